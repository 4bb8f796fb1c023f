"""Semijoins and antijoins: the keys of the right that match, as a set, joined or subtracted.

::

    A ⋉ R  =  A ⋈ distinct(keys(R))
    A ▷ R  =  A - A ⋈ distinct(keys(R))

Both are linear in A and not in R, whose keys are a set; the incremental form is that of the join
and of distinct. An example stream of A(x) and R(x), which has x in two rows at the third step:

    delta of A      {1: +1, 2: +2}   {}            {}            {2: -1}
    delta of R      {}               {2: +1}       {2: +1}       {2: -2}
    A ⋉ R           {}               {2: +2}       {}            {2: -2}
    A ▷ R           {1: +1, 2: +2}   {2: -2}       {}            {2: +1}

A disjunction of an antijoin is one antijoin after the other; of a semijoin, the union of the sets.
So EXISTS adds an atom to the one N-way join, and NOT EXISTS makes it a difference of two, of which
a count never lists the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from circuits.plan.expressions import Column, Expression, Literal
from circuits.plan.nodes import Distinct, Plan, Union, columns
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.match_predicates import (
    MatchPredicate,
    alternatives,
    can_hold,
    match_rows,
)
from circuits.plan.rewrite.projection import push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock
from circuits.types.functions import call

__all__ = ["add_antijoin", "add_semijoin", "matching_keys", "missing_keys"]


def add_semijoin(block: SelectBlock, right: Plan, predicate: Expression) -> SelectBlock:
    """The rows of the block that have a partner."""
    choices = alternatives(predicate)
    if len(choices) > 1:
        # The rows' own columns are the keys: those that any of the alternatives matches.
        whole = SelectBlock.of(plan_block(block))
        sets = [Distinct(plan_block(add_semijoin(whole, right, _all(parts)))) for parts in choices]
        keys = whole.outputs
        return _joined(MatchPredicate(whole, keys, Union(tuple(sets))), whole.outputs)
    matching = match_rows(block, right, choices[0])
    return _joined(matching, matching.block.outputs)


def add_antijoin(block: SelectBlock, right: Plan, predicate: Expression) -> SelectBlock:
    """The rows of the block that have no partner."""
    for parts in alternatives(predicate):
        if not can_hold(block, right, parts):
            continue
        matching = match_rows(block, right, parts)
        block = missing_keys(matching.block, matching)
    return block


def missing_keys(block: SelectBlock, matching: MatchPredicate) -> SelectBlock:
    """The rows of the block whose keys no partner has."""
    absent = AntijoinOperand(matching_keys(matching), matching.keys)
    return replace(block, absent=(*block.absent, absent))


def matching_keys(matching: MatchPredicate) -> Plan:
    """The set of keys that have a partner."""
    return Distinct(push_projection(matching.right, columns(matching.right)[: len(matching.keys)]))


def _all(parts: Sequence[Expression]) -> Expression:
    """The conjunction, of none as well: an alternative that is always true has no parts."""
    match parts:
        case []:
            return Literal(True, pa.bool_())
        case [part]:
            return part
    return call("and", *parts)


def _joined(matching: MatchPredicate, outputs: tuple[Expression, ...]) -> SelectBlock:
    block, keys = matching.block, matching.keys
    both = block.times(SelectBlock.of(matching_keys(matching)))
    width = block.width
    same = [call("same", key, Column(width + k, key.type)) for k, key in enumerate(keys)]
    return replace(both, predicates=(*both.predicates, *same), outputs=outputs)
