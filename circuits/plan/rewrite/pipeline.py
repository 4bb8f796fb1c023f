"""Pipeline: rewrite the logical plan of a view as the physical plan that runs.

A block (`circuits.plan.rewrite.select_block`) becomes one N-way join. Every other node is kept and
gets rewritten inputs. References to other views remain Scans: a view is computed once for all its
readers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import Final

from circuits.plan.expressions import Column, Expression, size_after, substitute
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Filter,
    Fixpoint,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    TemporalFilter,
)
from circuits.plan.physical_nodes import (
    FinalAggregate,
    Join,
    PartialAggregate,
    RowIdDecode,
    RowIdEncode,
)
from circuits.plan.rewrite.derived_keys import drop_derived_keys
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.key_filters import filter_before_groups
from circuits.plan.rewrite.numbered_rows import number_top_rows
from circuits.plan.rewrite.outer_joins import add_left_join, as_left_joins
from circuits.plan.rewrite.partial_aggregates import aggregate_partially
from circuits.plan.rewrite.projection import push_projection
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.plan.rewrite.semijoins import add_antijoin, add_semijoin
from circuits.plan.rewrite.unmatched_rows import as_antijoin

__all__ = ["rewrite_plan"]

# The maximum size of expressions that are substituted into each other; larger ones are computed as
# columns first. Otherwise a query in which each level reads the previous level's column twice would
# double the expression at every level.
MAX_EXPRESSION_NODES: Final = 4096

# The maximum number of relations in a join that several nodes read. A larger one is computed once,
# as one relation. Otherwise a query in which each level joins the previous level with itself would
# double the relations of the join at every level.
MAX_SHARED_RELATIONS: Final = 16


def rewrite_plan(plan: PlanNode) -> PlanNode:
    """Return the physical plan, with the same columns; their names may differ."""
    return _Rewriter(plan).rewrite(plan)


def _count_readers(plan: PlanNode) -> Counter[int]:
    """Return how many times each node is an input of another node, by the ``id`` of the node."""
    readers: Counter[int] = Counter()
    pending = [plan]
    while pending:
        for node in pending.pop().inputs:
            if not readers[id(node)]:
                pending.append(node)
            readers[id(node)] += 1
    return readers


class _Rewriter:
    """Rewrites each node of a plan once: a DAG can have far more paths than nodes."""

    def __init__(self, plan: PlanNode) -> None:
        self._readers = _count_readers(plan)
        # By the ``id`` of a node, which stays unique as long as the node is referenced here.
        self._plans: dict[int, tuple[PlanNode, PlanNode]] = {}
        self._blocks: dict[int, tuple[SelectBlock, PlanNode]] = {}

    def rewrite(self, plan: PlanNode) -> PlanNode:
        """Return the physical plan of a node."""
        if id(plan) not in self._plans:
            self._plans[id(plan)] = self._rewrite_node(plan), plan
        return self._plans[id(plan)][0]

    def as_block(self, plan: PlanNode) -> SelectBlock:
        """Return the plan as a block; a node that is not part of a SELECT becomes one atom."""
        if id(plan) not in self._blocks:
            block = self._flatten(plan)
            if len(block.atoms) > MAX_SHARED_RELATIONS and self._readers[id(plan)] > 1:
                block = SelectBlock.of(plan_block(block))
            self._blocks[id(plan)] = block, plan
        return self._blocks[id(plan)][0]

    def _rewrite_node(self, plan: PlanNode) -> PlanNode:
        match plan:
            case Fixpoint():  # the graph adds iterations to the bodies, then rewrites them
                return plan
            case Join() | RowIdEncode() | RowIdDecode() | PartialAggregate() | FinalAggregate():
                return plan
            case OuterJoin(kind="full"):
                return self.rewrite(as_left_joins(plan))
            case Aggregate(input):
                aggregate, block, expressions = drop_derived_keys(plan, self.as_block(input))
                partial = aggregate_partially(aggregate, block)
                return push_projection(
                    partial or replace(aggregate, input=plan_block(block)), expressions
                )
            case CrossJoin() | Filter() | Map() | Semijoin() | OuterJoin() | TemporalFilter():
                return plan_block(self.as_block(plan))
        return number_top_rows(plan.with_inputs([self.rewrite(input) for input in plan.inputs]))

    def _flatten(self, plan: PlanNode) -> SelectBlock:
        match plan:
            case CrossJoin(inputs):
                return reduce(SelectBlock.times, map(self.as_block, inputs))
            case Filter(input, predicate):
                filtered_before = filter_before_groups(plan, self._readers)
                if filtered_before is not None:
                    return self.as_block(filtered_before)
                antijoin = as_antijoin(plan)
                if antijoin is plan:
                    return self.as_block(input).where(predicate)
                return self.as_block(antijoin)
            case Map(input, expressions):
                block = self.as_block(input)
                if size_after(expressions, block.outputs) > MAX_EXPRESSION_NODES:
                    block = SelectBlock.of(plan_block(block))
                return block.select(expressions)
            case Semijoin(left, right, predicate, is_anti):
                add_operand = add_antijoin if is_anti else add_semijoin
                return add_operand(self.as_block(left), self.rewrite(right), predicate)
            case OuterJoin(left, right, predicate, "left"):
                return add_left_join(self.as_block(left), self.rewrite(right), predicate)
            case TemporalFilter(input, value):
                return self._filter_by_time(plan, self.as_block(input), value)
            case Aggregate():
                aggregate = self.rewrite(plan)
                if isinstance(aggregate, Map):  # of keys that are derived from other keys
                    return SelectBlock.of(aggregate.input).select(aggregate.expressions)
        return SelectBlock.of(self.rewrite(plan))

    def _filter_by_time(
        self, plan: TemporalFilter, block: SelectBlock, value: Expression
    ) -> SelectBlock:
        """Return the block with a temporal filter, over the one atom that it reads if possible."""
        value = substitute(value, block.outputs)
        atoms = block.atoms_of([value])
        if len(atoms) != 1:
            return SelectBlock.of(replace(plan, input=plan_block(block)))
        (atom,) = atoms
        start = block.starts[atom]
        value_over_atom = substitute(
            value, lambda column: Column(column.index - start, column.type)
        )
        filtered = replace(plan, input=block.atoms[atom], value=value_over_atom)
        return replace(block, atoms=(*block.atoms[:atom], filtered, *block.atoms[atom + 1 :]))
