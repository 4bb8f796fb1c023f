"""Semijoins and antijoins: join with the set of matching keys of the right, or subtract that join.

A semijoin A ⋉ R keeps the rows of A with a matching row in R, an antijoin A ▷ R the others::

    A ⋉ R  =  A ⋈ distinct(keys(R))
    A ▷ R  =  A - A ⋈ distinct(keys(R))

Both are linear in A. They are not linear in R, because its keys are a set; the incremental form is
that of the join and of distinct. An example stream of A(x) and R(x), where R has x in two rows at
the third step:

    delta of A      {1: +1, 2: +2}   {}            {}            {2: -1}
    delta of R      {}               {2: +1}       {2: +1}       {2: -2}
    A ⋉ R           {}               {2: +2}       {}            {2: -2}
    A ▷ R           {1: +1, 2: +2}   {2: -2}       {}            {2: +1}

An antijoin with a disjunction becomes a sequence of antijoins. A semijoin with a disjunction is a
semijoin with the union of the key sets. So EXISTS adds an atom to the one N-way join, and NOT
EXISTS turns the join into a difference of two joins. A count of the rows is computed without
enumerating them.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.plan.expressions import Column, Expression
from circuits.plan.nodes import Distinct, PlanNode, Union, columns
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.match_predicates import (
    MatchPredicate,
    alternatives,
    can_hold,
    match_rows,
)
from circuits.plan.rewrite.projection import push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock
from circuits.types.functions import call, conjunction

__all__ = ["add_antijoin", "add_semijoin", "matching_keys", "without_matches"]


def add_semijoin(block: SelectBlock, right: PlanNode, predicate: Expression) -> SelectBlock:
    """Return the rows of the block that have a matching row in ``right``."""
    disjuncts = alternatives(predicate)
    if len(disjuncts) > 1:
        # All columns of the block are the keys. The key set is the union over the alternatives.
        joined = SelectBlock.of(plan_block(block))
        keys = joined.outputs
        sets = [
            Distinct(plan_block(add_semijoin(joined, right, conjunction(parts))))
            for parts in disjuncts
        ]
        return _join_keys(MatchPredicate(joined, keys, Union(tuple(sets))), keys)
    matching = match_rows(block, right, disjuncts[0], keys_only=True)
    return _join_keys(matching, matching.block.outputs)


def add_antijoin(block: SelectBlock, right: PlanNode, predicate: Expression) -> SelectBlock:
    """Return the rows of the block that have no matching row in ``right``."""
    for parts in alternatives(predicate):
        if not can_hold(block, right, parts):
            continue
        matching = match_rows(block, right, parts, keys_only=True)
        block = without_matches(matching.block, matching)
    return block


def without_matches(block: SelectBlock, matching: MatchPredicate) -> SelectBlock:
    """Return the rows of the block whose keys are not among the matching keys."""
    operand = AntijoinOperand(matching_keys(matching), matching.keys)
    return replace(block, antijoins=(*block.antijoins, operand))


def matching_keys(matching: MatchPredicate) -> PlanNode:
    """Return the set of the keys of the right side."""
    return Distinct(push_projection(matching.right, columns(matching.right)[: len(matching.keys)]))


def _join_keys(matching: MatchPredicate, outputs: tuple[Expression, ...]) -> SelectBlock:
    """Return the block joined with the set of matching keys."""
    block, keys = matching.block, matching.keys
    product = block.times(SelectBlock.of(matching_keys(matching)))
    width = block.width
    keys_match = [call("same", key, Column(width + k, key.type)) for k, key in enumerate(keys)]
    return replace(product, predicates=(*product.predicates, *keys_match), outputs=outputs)
