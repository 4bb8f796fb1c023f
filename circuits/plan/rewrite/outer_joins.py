"""Outer joins: an inner join with the right side, padded by NULLs for keys without partner.

::

    A ⟕ R  =  A ⋈ R⁺          R⁺ = R  +  (K - K ⋈ distinct(keys(R))) x NULLs
                              K  = the keys of A, or any set that has them all
    A ⟗ R  =  A ⟕ R  +  NULLs x (R ▷ A)

An example stream of A(k) and R(k, v), where ``-`` is NULL:

    delta of A      {1: +1, 2: +1}              {}                           {}
    delta of R      {}                          {(1,5): +1}                  {(1,5): -1, (1,6): +1}
    A ⟕ R           {(1,-): +1, (2,-): +1}      {(1,-): -1, (1,5): +1}       {(1,5): -1, (1,6): +1}

As K may be larger, it is taken from the atoms that hold the keys, not from all of A: most often one
relation's distinct column. R⁺ is an atom like others, so an outer join inside a count takes part in
the one N-way join and no row of A ⟕ R is ever listed for it.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.plan.expressions import Column, Expression, Literal, conjuncts, substitute
from circuits.plan.nodes import (
    Aggregate,
    Distinct,
    FinalAggregate,
    Map,
    OuterJoin,
    Plan,
    Semijoin,
    Union,
    Values,
    columns,
)
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.match_predicates import match_rows
from circuits.plan.rewrite.projection import push_projection
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.plan.rewrite.semijoins import missing_keys
from circuits.types.functions import call

__all__ = ["as_left_joins", "left_outer"]


def left_outer(block: SelectBlock, right: Plan, predicate: Expression) -> SelectBlock:
    """The block with the columns of ``right`` after its outputs."""
    parts = list(conjuncts([predicate]))
    if not parts and _has_one_row(right):
        return block.times(SelectBlock.of(right))
    matching = match_rows(block, right, parts)
    block, keys, rows = matching.block, matching.keys, matching.right
    held = (
        Distinct(plan_block(block.part(block.atoms_of(keys), keys)))
        if block.atoms_of(keys)
        else plan_block(SelectBlock((Values((), ((),)),), (), (), keys))
    )
    known = SelectBlock.of(held)
    missing = plan_block(missing_keys(known, replace(matching, block=known, keys=known.outputs)))
    nulls = [Literal(None, field.type) for field in rows.fields[len(keys) :]]
    padded = Union((rows, push_projection(missing, (*columns(missing), *nulls))))
    both = block.times(SelectBlock.of(padded))
    width = block.width
    same = [call("same", key, Column(width + k, key.type)) for k, key in enumerate(keys)]
    outputs = (*block.outputs, *both.outputs[len(block.outputs) + len(keys) :])
    return replace(both, predicates=(*both.predicates, *same), outputs=outputs)


def as_left_joins(plan: OuterJoin) -> Plan:
    """A full outer join, as the left one and the right rows without partner."""
    left, right = len(plan.left.fields), len(plan.right.fields)

    def exchanged(column: Column) -> Expression:
        index = column.index
        return Column(index - left if index >= left else index + right, column.type)

    alone = Semijoin(plan.right, plan.left, substitute(plan.predicate, exchanged), anti=True)
    nulls = [Literal(None, field.type) for field in plan.left.fields]
    names = tuple(field.name for field in plan.fields)
    padded = Map(alone, (*nulls, *columns(plan.right)), names)
    return Union((OuterJoin(plan.left, plan.right, plan.predicate, "left"), padded))


def _has_one_row(plan: Plan) -> bool:
    """Whether the plan always has exactly one row, as an aggregate without keys has."""
    while isinstance(plan, Map):
        plan = plan.input
    return isinstance(plan, Aggregate | FinalAggregate) and not plan.keys
