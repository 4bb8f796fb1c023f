"""Coded columns: the columns of traces that have codes of dictionaries.

A column of a trace has codes of one dictionary, or numbers that mean the same in every circuit::

    Codec     codes of values (`circuits.types.codecs.codec`)
    RowIds    codes of rows of other columns (`circuits.runtime.operators.late_materialization`)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from circuits.plan.columns import Fields
from circuits.runtime.graph import Graph
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.state.registry import operator_trace
from circuits.types.codecs.codec import Codec, Codecs, dictionary_columns
from dbsp_wcoj.values.interner import Interner

__all__ = ["RowIds", "coded_traces", "field_codecs", "operator_coded_columns"]


class RowIds(NamedTuple):
    """The codes of rows.

    Attributes:
        dictionary: The dictionary of the rows.
        columns: The columns of the rows that have codes of values.
    """

    dictionary: Interner
    columns: Mapping[int, Codec]


def coded_traces(graph: Graph) -> dict[str, dict[int, Codec | RowIds]]:
    """Return the coded columns of all traces that have any, by the names of the traces."""
    registry, codecs = graph.registry, graph.codecs
    traces: dict[str, dict[int, Codec | RowIds]] = {}
    for node in graph.nodes:
        relation, operator = registry.relations.get(node.name), node.operator
        if relation is not None:
            traces[relation] = {**field_codecs(node.plan.fields, codecs)}
            if isinstance(operator, RowIdEncodeOperator):
                fields = graph.nodes[node.inputs[0]].plan.fields[operator.kept_count :]
                row_ids = RowIds(operator.dictionary, field_codecs(fields, codecs))
                traces[relation][operator.kept_count] = row_ids
        for index, columns in enumerate(operator_coded_columns(node, codecs)):
            traces[operator_trace(node.state_name, index)] = {**columns}
    return {name: columns for name, columns in traces.items() if columns}


def operator_coded_columns(node: Node, codecs: Codecs) -> tuple[Mapping[int, Codec], ...]:
    """Return, for each trace of a node's operator, the columns whose codes are of a dictionary."""
    if not len(getattr(node.operator, "traces", ())):
        return ()
    columns = getattr(node.operator, "coded_columns", None)
    if columns is not None:
        return tuple(columns)
    # Distinct and similar operators store the rows of their input unchanged.
    return (field_codecs(node.plan.fields, codecs),)


def field_codecs(fields: Fields, codecs: Codecs) -> dict[int, Codec]:
    """Return the columns of these fields whose codes are of a dictionary."""
    return dictionary_columns([codecs.codec(field.type) for field in fields])
