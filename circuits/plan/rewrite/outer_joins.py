"""Outer joins: an inner join with the right side, padded with NULLs for unmatched keys.

::

    A ⟕ R  =  A ⋈ R⁺          R⁺ = R  +  (K - K ⋈ distinct(keys(R))) x NULLs
                              K  = the keys of A, or any superset of them
    A ⟗ R  =  A ⟕ R  +  NULLs x (R ▷ A)            ⟕ left, ⟗ full outer join, ▷ antijoin

An example stream of A(k) and R(k, v), where ``-`` is NULL:

    delta of A      {1: +1, 2: +1}              {}                           {}
    delta of R      {}                          {(1,5): +1}                  {(1,5): -1, (1,6): +1}
    A ⟕ R           {(1,-): +1, (2,-): +1}      {(1,-): -1, (1,5): +1}       {(1,5): -1, (1,6): +1}

As K may be a superset, it is computed from the atoms that contain the key columns, and those that
connect them, and not from all of A: most often it is the distinct values of one column of one
relation. R⁺ is an ordinary atom, so
an outer join inside a count is part of the one N-way join, and the rows of A ⟕ R are never
enumerated.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.plan.expressions import Column, Expression, Literal, conjuncts, substitute
from circuits.plan.nodes import (
    Aggregate,
    Distinct,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.plan.physical_nodes import FinalAggregate
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.match_predicates import match_rows
from circuits.plan.rewrite.projection import push_projection
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.plan.rewrite.semijoins import without_matches
from circuits.types.functions import call

__all__ = ["add_left_join", "as_left_joins"]


def add_left_join(block: SelectBlock, right: PlanNode, predicate: Expression) -> SelectBlock:
    """Return the block left-joined with ``right``, whose columns are added to the outputs."""
    parts = list(conjuncts([predicate]))
    if not parts and _has_one_row(right):
        return block.times(SelectBlock.of(right))
    matching = match_rows(block, right, parts)
    block, keys, rows = matching.block, matching.keys, matching.right
    # If no key reads a column of the block, there is one row of keys.
    key_set = (
        Distinct(plan_block(block.part_with(keys)))
        if block.atoms_of(keys)
        else plan_block(SelectBlock((Values((), ((),)),), (), (), keys))
    )
    left_keys = SelectBlock.of(key_set)
    unmatched = plan_block(
        without_matches(left_keys, replace(matching, block=left_keys, keys=left_keys.outputs))
    )
    nulls = [Literal(None, field.type) for field in rows.fields[len(keys) :]]
    padded = Union((rows, push_projection(unmatched, (*columns(unmatched), *nulls))))
    product = block.times(SelectBlock.of(padded))
    width = block.width
    keys_match = [call("same", key, Column(width + k, key.type)) for k, key in enumerate(keys)]
    outputs = (*block.outputs, *product.outputs[len(block.outputs) + len(keys) :])
    return replace(product, predicates=(*product.predicates, *keys_match), outputs=outputs)


def as_left_joins(plan: OuterJoin) -> PlanNode:
    """Return a full outer join as a left outer join plus the unmatched rows of the right."""
    left_width, right_width = len(plan.left.fields), len(plan.right.fields)

    def swap_sides(column: Column) -> Expression:
        index = column.index
        swapped = index - left_width if index >= left_width else index + right_width
        return Column(swapped, column.type)

    unmatched = Semijoin(plan.right, plan.left, substitute(plan.predicate, swap_sides), anti=True)
    nulls = [Literal(None, field.type) for field in plan.left.fields]
    names = tuple(field.name for field in plan.fields)
    padded = Map(unmatched, (*nulls, *columns(plan.right)), names)
    return Union((OuterJoin(plan.left, plan.right, plan.predicate, "left"), padded))


def _has_one_row(plan: PlanNode) -> bool:
    """Return True for an aggregate without keys: it always has exactly one row."""
    while isinstance(plan, Map):
        plan = plan.input
    if isinstance(plan, FinalAggregate):
        return plan.key_count == 0
    return isinstance(plan, Aggregate) and not plan.keys
