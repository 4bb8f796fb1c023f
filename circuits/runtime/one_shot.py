"""One-shot queries over the state of a circuit: plans evaluated once, in non-incremental form.

A query reads relations from the traces of one version of the state. It can read the materialized
views and inputs, and each input whose rows a join or an input option keeps with all columns. A join
in the query uses the existing arrangements of these traces. It sorts a relation itself if no
arrangement has the column order that it needs (`dbsp_wcoj.generic_join`).

A query does not change the circuit: it adds no view, no arrangement and no code for a value. Its
codecs are an overlay of those of the version (`circuits.runtime.circuit_version`).

The rows of a SELECT with ORDER BY are numbered in that order by a window function, and then sorted
by the numbers, which are not part of the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from circuits.datalog import plan_datalog
from circuits.language import is_datalog
from circuits.limits import name_limit_errors
from circuits.plan.nodes import Fields, Map, PlanNode, TopK, columns
from circuits.plan.user_call_placement import place_user_calls
from circuits.plan.window import Window, WindowCall
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.operators.join import JoinOptions
from circuits.runtime.views import Views
from circuits.schema import Schema
from circuits.sql import plan_sql
from circuits.state.registry import relation_trace
from circuits.types.codecs.codec import Codecs
from circuits.user_functions import UserFunction
from dbsp_wcoj import Trace
from dbsp_wcoj.limits import Budget

__all__ = ["StoredRelations", "answer_query", "stored_relations"]

#: The column with the number of each row, in a query with ORDER BY; no identifier has a space.
ROW_NUMBER: Final = "row number"

#: The columns and the rows of each relation that a query can read, by name.
StoredRelations = Mapping[str, tuple[Fields, Trace]]


def stored_relations(
    state: CircuitVersion,
    materialized: Views,
    inputs: Mapping[str, Schema],
    views: Mapping[str, Schema],
) -> StoredRelations:
    """Return the relations whose rows are in the state with all their columns.

    Args:
        state: A version of the state.
        materialized: The materialized views and inputs of this version.
        inputs: The schema of each input.
        views: The schema of each view.
    """
    # The trace of an input has the name of the input. Joins that read only some of its rows or
    # columns have the trace of a filter or projection instead.
    names_of_traces = set(state.graph.relations.traces)
    bounds = state.graph.state_bounds
    for position in bounds.relation_bounds if bounds is not None else ():
        names_of_traces.remove(state.graph.nodes[position].name)  # the trace drops old rows
    stored: dict[str, tuple[Fields, Trace]] = {}
    for name, schema in {**inputs, **views}.items():
        if name in materialized:
            stored[name] = (schema.fields, materialized.trace(name))
        elif name in inputs and name in names_of_traces and schema.arity:
            stored[name] = (schema.fields, state.trace(relation_trace(name)))
    return stored


def answer_query(
    text: str,
    stored: StoredRelations,
    codecs: Codecs,
    *,
    dialect: str,
    join_options: JoinOptions,
    budget: Budget,
    functions: Mapping[str, UserFunction],
    tables: Mapping[str, PlanNode],
) -> pa.Table:
    """Answer a SELECT, or the last relation that Datalog rules define; see `Circuit.query`.

    Args:
        text: The query.
        stored: The columns and the trace of each relation; no thread may change the traces.
        codecs: The codecs of this query only.
        dialect: The dialect of a SELECT.
        join_options: The options of joins that deltas maintain: in a query, those of a recursion.
        budget: The limits of the query.
        functions: The user-defined functions by lower-case name; they are called for the rows of
            the query, even if a view stores their results.
        tables: The plans of the inputs with computed columns, for a SELECT.
    """
    fields = {name: columns for name, (columns, _) in stored.items()}
    if is_datalog(text):
        plans = plan_datalog(text, fields, functions)
    else:
        name = _unused_name(fields)
        plans = plan_sql(
            text,
            fields,
            name=name,
            dialect=dialect,
            allow_declarations=False,
            functions=functions,
            tables=tables,
            keep_order=True,
        )
        plans[name] = _number_rows(plans[name])
    plans = place_user_calls(plans, functions)
    name, plan = list(plans.items())[-1]
    schema = Schema(name, plan.fields)
    graph = incrementalize(plans, fields, codecs=codecs, join_options=join_options)
    with name_limit_errors(graph, budget):
        rows = graph.evaluate({name: trace for name, (_, trace) in stored.items()}, budget)[name]
        table = schema.to_table(rows, codecs)
    if plan.fields and plan.fields[-1].name == ROW_NUMBER:
        return table.sort_by(ROW_NUMBER).drop_columns([ROW_NUMBER])
    return table


def _number_rows(plan: PlanNode) -> PlanNode:
    """Add the numbers of the rows as a last column, if the plan orders them."""
    outer = plan if isinstance(plan, Map) else None
    top = plan if outer is None else outer.input
    if not isinstance(top, TopK) or top.keys or not top.order:
        return plan
    call = WindowCall("row_number", (), pa.int64(), ROW_NUMBER)
    numbered = Window(top, (), top.order, (call,))
    if outer is None:
        return numbered
    number = columns(numbered)[-1]
    return Map(numbered, (*outer.expressions, number), (*outer.names, ROW_NUMBER))


def _unused_name(names: Collection[str]) -> str:
    """Return a name that differs from all of these, ignoring case.

    >>> _unused_name(["e"]), _unused_name(["e", "Answer"])
    ('answer', 'answer_')
    """
    name = "answer"
    used = {other.casefold() for other in names}
    while name in used:
        name += "_"
    return name
