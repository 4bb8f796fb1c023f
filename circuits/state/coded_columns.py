"""Coded columns: the columns of traces whose codes need a dictionary to decode them.

The codes of the other columns, such as integers and dates, mean the same in every circuit. There
are two kinds of coded columns, by what a code stands for::

    Codec     one value, such as a string (`circuits.types.codecs.codec`)
    RowIds    the values of several columns (`circuits.runtime.operators.late_materialization`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from circuits.plan.columns import Fields
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.state.registry import operator_trace
from circuits.types.codecs.codec import Codec, Codecs, dictionary_columns
from dbsp_wcoj import Trace
from dbsp_wcoj.values.interner import Interner

__all__ = ["RowIds", "coded_traces", "field_codecs", "operator_coded_columns"]


class RowIds(NamedTuple):
    """A column of row ids: each code stands for a row of codes (late materialization).

    Attributes:
        dictionary: The rows by their row ids.
        columns: The columns of these rows that are coded themselves, by position.
    """

    dictionary: Interner
    columns: Mapping[int, Codec]


def coded_traces(graph: Graph) -> dict[str, dict[int, Codec | RowIds]]:
    """Return the coded columns of all traces that have any, by trace name and column position."""
    registry, codecs = graph.registry, graph.codecs
    traces: dict[str, dict[int, Codec | RowIds]] = {}
    for node in graph.nodes:
        relation, operator = registry.relations.get(node.name), node.operator
        if relation is not None:
            traces[relation] = {**field_codecs(node.plan.fields, codecs)}
            if isinstance(operator, RowIdEncodeOperator):
                # Its result is the first columns of its input, then a row id for the other columns.
                fields = graph.nodes[node.inputs[0]].plan.fields[operator.kept_count :]
                row_ids = RowIds(operator.dictionary, field_codecs(fields, codecs))
                traces[relation][operator.kept_count] = row_ids
        for index, columns in enumerate(operator_coded_columns(node, codecs)):
            traces[operator_trace(node.state_name, index)] = {**columns}
    return {name: columns for name, columns in traces.items() if columns}


def operator_coded_columns(node: Node, codecs: Codecs) -> tuple[Mapping[int, Codec], ...]:
    """Return the coded columns of each trace of a node's operator, by position."""
    traces: Sequence[Trace] = getattr(node.operator, "traces", ())
    if not traces:
        return ()
    columns = getattr(node.operator, "coded_columns", None)
    if columns is not None:
        return tuple(columns)
    # The operator has one trace, with the columns of its result (DISTINCT, EMIT ON WINDOW CLOSE). A
    # row without columns is stored with one column of zeros.
    assert [trace.arity for trace in traces] == [max(len(node.plan.fields), 1)], node.name
    return (field_codecs(node.plan.fields, codecs),)


def field_codecs(fields: Fields, codecs: Codecs) -> dict[int, Codec]:
    """Return the codecs of the fields whose codes need a dictionary, by position."""
    return dictionary_columns([codecs.codec(field.type) for field in fields])
