"""One-shot queries over what a circuit keeps: plans evaluated as they mean, nothing registered.

Relations are read from the traces of one version: a join reads the arrangements that exist, and
sorts for itself what is arranged in no order that it needs (`dbsp_wcoj.generic_join`). What is kept
is what is materialized, and inputs that a join of the circuit reads whole.

A query leaves nothing behind: no arrangement, and no code, for it has codecs of its own over those
of the version (`circuits.runtime.circuit_version`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from circuits.datalog import plan_datalog
from circuits.language import is_datalog
from circuits.limits import bounded
from circuits.plan.nodes import Fields
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.operators.join import JoinOptions
from circuits.schema import Schema
from circuits.sql import plan_sql
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace
from dbsp_wcoj.limits import Budget

__all__ = ["Kept", "answer_query"]

# The columns and the rows of each relation that can be asked for.
Kept = Mapping[str, tuple[Fields, Trace]]


def answer_query(
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
        rows = graph.evaluate({name: trace for name, (_, trace) in kept.items()}, budget)[name]
        return schema.to_table(rows, codecs)


def _unlike(names: Collection[str]) -> str:
    """A name that is none of these, whichever the case.

    >>> _unlike(["e"]), _unlike(["e", "Answer"])
    ('answer', 'answer_')
    """
    name, taken = "answer", {taken.casefold() for taken in names}
    while name in taken:
        name += "_"
    return name
