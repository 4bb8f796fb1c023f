"""One-shot queries over what a circuit keeps: plans evaluated as they mean, nothing registered.

Relations are read from the traces of one version: a join reads the arrangements that exist, and
sorts for itself what is arranged in no order that it needs (`dbsp_wcoj.generic_join`). What is kept
is what is materialized, and inputs that a join of the circuit reads whole.

A query leaves nothing behind: no arrangement, and no code, for it has codecs of its own over those
of the version (`circuits.runtime.circuit_version`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from circuits.datalog import plan_datalog
from circuits.language import is_datalog
from circuits.limits import bounded
from circuits.plan.nodes import Fields, Fixpoint
from circuits.runtime.graph import Graph, JoinOptions
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.operators.join import JoinOperator
from circuits.schema import Schema
from circuits.sql import plan_sql
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet, generic_join
from dbsp_wcoj.generic_join import plain
from dbsp_wcoj.limits import Budget

__all__ = ["Kept", "answered"]

# The columns and the rows of each relation that can be asked for.
Kept = Mapping[str, tuple[Fields, Trace]]


def answered(
    text: str,
    kept: Kept,
    codecs: Codecs,
    *,
    dialect: str,
    joining: JoinOptions,
    budget: Budget,
) -> pa.Table:
    """The answer of a SELECT, or of the last head of Datalog rules; see `Circuit.query`.

    Args:
        text: The query.
        kept: Traces that nobody changes.
        codecs: For this query only.
        dialect: The dialect of a SELECT.
        joining: How the joins within recursions are made.
        budget: What the query may use.
    """
    fields = {name: columns for name, (columns, _) in kept.items()}
    if is_datalog(text):
        plans = plan_datalog(text, fields)
    else:
        plans = plan_sql(text, fields, name=_unlike(fields), dialect=dialect)
    name, plan = list(plans.items())[-1]
    schema = Schema(name, plan.fields)
    graph = incrementalize(plans, fields, codecs=codecs, joining=joining)
    with bounded(graph, budget):
        return schema.to_table(_rows(graph, name, kept, budget), codecs)


def _unlike(names: Collection[str]) -> str:
    """A name that is none of these, whichever the case.

    >>> _unlike(["e"]), _unlike(["e", "Answer"])
    ('answer', 'answer_')
    """
    name, taken = "answer", {taken.casefold() for taken in names}
    while name in taken:
        name += "_"
    return name


def _rows(graph: Graph, view: str, kept: Kept, budget: Budget) -> ZSet:
    """The rows of a view; constants and results get codes of the graph's codecs."""
    values: list[ZSet | Trace] = []
    solved: dict[int, Sequence[ZSet]] = {}

    def whole(number: int) -> ZSet:
        return plain(values[number], len(graph.nodes[number].plan.fields))

    for number, node in enumerate(graph.nodes):
        if node.inner:
            values.append(node.nothing)
            continue
        if node.operator is None and node.loop is None:
            trace = kept[node.name][1]
            budget.add_input_rows(trace.rows, trace.arity)
            values.append(trace)
            continue
        budget.start_operator(number)
        value: ZSet
        if node.loop is not None and isinstance(node.plan, Fixpoint):
            loop = node.loop
            if id(loop) not in solved:
                read = {number: whole(number) for number in loop.outside}
                solved[id(loop)] = loop.solution(graph.nodes, read, graph.relations, budget)
            value = solved[id(loop)][node.plan.index]
        elif isinstance(node.operator, JoinOperator):
            views = [values[i] for i in node.inputs]
            value = generic_join(node.operator.query, views, budget=budget)
        else:
            assert node.operator is not None
            value = node.operator.evaluate([whole(number) for number in node.inputs])
        budget.finish_operator(len(value), value.arity)
        values.append(value)
    budget.start_operator(graph.views[view])
    return whole(graph.views[view])
