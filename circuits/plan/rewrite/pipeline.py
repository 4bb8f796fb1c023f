"""Pipeline: rewrite the logical plan of a view as the physical plan that runs.

A block (`circuits.plan.rewrite.select_block`) becomes one N-way join. Every other node is kept and
gets rewritten inputs. References to other views remain Scans: a view is computed once for all its
readers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from circuits.plan.expressions import size_after
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Filter,
    FinalAggregate,
    Fixpoint,
    Join,
    Map,
    OuterJoin,
    PartialAggregate,
    PlanNode,
    RowIdDecode,
    RowIdEncode,
    Semijoin,
)
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.outer_joins import as_left_joins, left_outer
from circuits.plan.rewrite.partial_aggregates import aggregate_partially
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.plan.rewrite.semijoins import add_antijoin, add_semijoin
from circuits.plan.rewrite.unmatched_rows import as_antijoin

__all__ = ["rewrite_plan"]

# Expressions that would have more nodes than this read computed columns instead. Otherwise a query
# that reads each computed column twice in the next one would double them at every level.
MAX_EXPRESSION_NODES: Final = 4096


def rewrite_plan(plan: PlanNode) -> PlanNode:
    """Return the physical plan, with the same columns; their names may differ."""
    return _Rewriter().plan(plan)


class _Rewriter:
    """Rewrites each node of a plan once: a DAG can have far more paths than nodes."""

    def __init__(self) -> None:
        # By the ``id`` of a node, which stays unique as long as the node is referenced here.
        self._plans: dict[int, tuple[PlanNode, PlanNode]] = {}
        self._blocks: dict[int, tuple[SelectBlock, PlanNode]] = {}

    def plan(self, plan: PlanNode) -> PlanNode:
        """Return the physical plan of a node."""
        if id(plan) not in self._plans:
            self._plans[id(plan)] = self._rewrite(plan), plan
        return self._plans[id(plan)][0]

    def block(self, plan: PlanNode) -> SelectBlock:
        """Return the plan as a block; a node that is not part of a SELECT becomes one atom."""
        if id(plan) not in self._blocks:
            self._blocks[id(plan)] = self._flatten(plan), plan
        return self._blocks[id(plan)][0]

    def _rewrite(self, plan: PlanNode) -> PlanNode:
        match plan:
            case Fixpoint():  # the graph rewrites the bodies, with their iterations
                return plan
            case Join() | RowIdEncode() | RowIdDecode() | PartialAggregate() | FinalAggregate():
                return plan
            case OuterJoin(kind="full"):
                return self.plan(as_left_joins(plan))
            case Aggregate(below):
                block = self.block(below)
                return aggregate_partially(plan, block) or replace(plan, input=plan_block(block))
            case CrossJoin() | Filter() | Map() | Semijoin() | OuterJoin():
                return plan_block(self.block(plan))
        return plan.with_inputs([self.plan(below) for below in plan.inputs])

    def _flatten(self, plan: PlanNode) -> SelectBlock:
        match plan:
            case CrossJoin(inputs):
                first, *rest = inputs
                block = self.block(first)
                for other in rest:
                    block = block.times(self.block(other))
                return block
            case Filter(below, predicate):
                antijoin = as_antijoin(plan)
                if antijoin is plan:
                    return self.block(below).where(predicate)
                return self.block(antijoin)
            case Map(below, expressions):
                block = self.block(below)
                if size_after(expressions, block.outputs) > MAX_EXPRESSION_NODES:
                    block = SelectBlock.of(plan_block(block))
                return block.select(expressions)
            case Semijoin(left, right, predicate, is_anti):
                return (add_antijoin if is_anti else add_semijoin)(
                    self.block(left), self.plan(right), predicate
                )
            case OuterJoin(left, right, predicate, "left"):
                return left_outer(self.block(left), self.plan(right), predicate)
        return SelectBlock.of(self.plan(plan))
