"""Lowering: from a plan as it was written to a plan as it runs.

Cross, Filter, Map, Semi and Outer become flat blocks (`block`), and each block one N-way join with
its filters, maps and differences (`join`); semijoins and outer joins are made into atoms of it
(`semi`, `outer`), left joins that ask for rows without partner into antijoins (`unmatched`). All
other nodes stay, over lowered inputs. References to other views stay Scans: a view is computed
once, whoever uses it.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.lowering.block import Block
from circuits.lowering.join import finish
from circuits.lowering.outer import as_left_joins, left_outer
from circuits.lowering.semi import anti, semi
from circuits.lowering.spread import summed
from circuits.lowering.unmatched import as_antijoin
from circuits.relational import (
    Aggregate,
    Cross,
    Distinct,
    Filter,
    Join,
    Map,
    Negate,
    Outer,
    Pack,
    Plan,
    Positive,
    Scan,
    Semi,
    Spread,
    TopK,
    Totals,
    Union,
    Unpack,
    Values,
)

__all__ = ["lowered"]


def lowered(plan: Plan) -> Plan:
    """The plan that runs; it has the same columns, under names of its own."""
    match plan:
        case Scan() | Values() | Join() | Pack() | Unpack() | Spread() | Totals():
            return plan
        case Union(inputs):
            return Union(tuple(map(lowered, inputs)))
        case Outer(kind="full"):
            return lowered(as_left_joins(plan))
        case Aggregate(below):
            block = _block(below)
            return summed(plan, block) or replace(plan, input=finish(block))
        case Negate() | Distinct() | Positive() | TopK():
            return replace(plan, input=lowered(plan.input))
        case Cross() | Filter() | Map() | Semi() | Outer():
            return finish(_block(plan))


def _block(plan: Plan) -> Block:
    match plan:
        case Cross(inputs):
            first, *rest = inputs
            block = _block(first)
            for other in rest:
                block = block.times(_block(other))
            return block
        case Filter(below, predicate):
            antijoin = as_antijoin(plan)
            return _block(below).where(predicate) if antijoin is plan else _block(antijoin)
        case Map(below, expressions):
            return _block(below).select(expressions)
        case Semi(left, right, predicate, is_anti):
            return (anti if is_anti else semi)(_block(left), lowered(right), predicate)
        case Outer(left, right, predicate, "left"):
            return left_outer(_block(left), lowered(right), predicate)
    return Block.of(lowered(plan))
