"""Match predicates: the predicate of a semijoin or an outer join as equality of keys.

The left side is a block and the right side a plan. The predicate, a conjunction, is split into

- keys: pairs of an expression of the left and one of the right that must have the same value. An
  equality is such a pair; rows of the right where its side is NULL are filtered out. A condition on
  the left only is a pair too: its value must be TRUE;
- conditions on the right only, which filter the right;
- other conditions, which read both sides. If there is one, the distinct values of all left columns
  that the predicate reads are joined with the right, and these columns are the keys.

In all cases the result is a join by keys, which `circuits.plan.rewrite.join_planning` plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.nodes import Distinct, PlanNode, columns
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.types.functions import call

__all__ = ["MatchPredicate", "alternatives", "can_hold", "match_rows", "with_keys"]

# A predicate with more alternatives is not expanded; its disjunctions are evaluated as conditions.
MAX_ALTERNATIVES = 16

TRUE = Literal(True, pa.bool_())


@dataclass(frozen=True)
class MatchPredicate:
    """A match by keys.

    Attributes:
        block: The left side.
        keys: The keys of the left, over the columns of ``block``.
        right: The right side: its keys, then its columns.
    """

    block: SelectBlock
    keys: tuple[Expression, ...]
    right: PlanNode


def alternatives(predicate: Expression) -> list[list[Expression]]:
    """Expand a predicate into alternatives, each a list of conditions of a conjunction.

    >>> a, b, c = (Column(i, pa.bool_()) for i in range(3))
    >>> [len(parts) for parts in alternatives(call("and", a, call("or", b, c)))]
    [2, 2]
    """
    disjunctions = [
        list(part.arguments) if isinstance(part, Call) and part.function == "or" else [part]
        for part in conjuncts([predicate])
    ]
    total = 1
    for disjunction in disjunctions:
        total *= len(disjunction)
    if total > MAX_ALTERNATIVES:
        return [list(conjuncts([predicate]))]
    return [list(conjuncts(combination)) for combination in product(*disjunctions)]


def can_hold(block: SelectBlock, right: PlanNode, parts: Sequence[Expression]) -> bool:
    """Return False if a condition is IS NULL of a column that is never NULL.

    So ``x NOT IN (q)`` over columns without NULL becomes one antijoin instead of three.
    """
    width = len(block.outputs)
    for part in parts:
        if isinstance(part, Call) and part.function == "is_null":
            (subject,) = part.arguments
            if isinstance(subject, Column) and subject.index >= width:
                if not is_nullable(right, Column(subject.index - width, subject.type)):
                    return False
            elif isinstance(subject, Column) and not block.is_nullable(subject.index):
                return False
    return True


def match_rows(block: SelectBlock, right: PlanNode, parts: Sequence[Expression]) -> MatchPredicate:
    """Return the match by keys for a conjunction.

    Args:
        block: The left side.
        right: The right side.
        parts: The conditions, over the outputs of the block followed by the columns of ``right``.
    """
    width = len(block.outputs)
    pairs: list[tuple[Expression, Expression]] = []
    rows = right
    for part in parts:
        left_only = all(c < width for c in columns_of(part))
        right_only = all(c >= width for c in columns_of(part))
        if right_only:
            rows = push_filter(rows, _over_right(part, width))
        elif left_only:
            pairs.append((substitute(call("is_true", part), block.outputs), TRUE))
        else:
            pair = _key_pair(part, width)
            if pair is None:
                return _match_by_columns(block, right, parts)
            left, other = substitute(pair[0], block.outputs), _over_right(pair[1], width)
            if isinstance(part, Call) and part.function == "eq" and is_nullable(rows, other):
                rows = push_filter(rows, call("not", call("is_null", other)))
            pairs.append((left, other))
    block, keys = with_keys(block, [left for left, _ in pairs])
    keyed = push_projection(rows, (*(other for _, other in pairs), *columns(rows)))
    return MatchPredicate(block, keys, keyed)


def with_keys(
    block: SelectBlock, keys: Sequence[Expression]
) -> tuple[SelectBlock, tuple[Expression, ...]]:
    """Return a block and keys such that each key is an expression over one atom.

    If a key reads several atoms, the block is joined first, with the keys as further columns.
    """
    if all(len(block.atoms_of([key])) <= 1 for key in keys):
        return block, tuple(keys)
    width = len(block.outputs)
    whole = SelectBlock.of(
        plan_block(
            SelectBlock(block.atoms, block.predicates, block.absent, (*block.outputs, *keys))
        )
    )
    return whole.select(whole.outputs[:width]), whole.outputs[width:]


def _match_by_columns(
    block: SelectBlock, right: PlanNode, parts: Sequence[Expression]
) -> MatchPredicate:
    """Match by all columns of the left that the conditions read."""
    width = len(block.outputs)
    read = sorted(
        {
            c
            for part in parts
            for i in columns_of(part)
            if i < width
            for c in columns_of(block.outputs[i])
        }
    )
    types = {c.index: c for atom_columns in _all_columns(block) for c in atom_columns}
    keys = tuple(types[c] for c in read)
    both = SelectBlock.of(right)
    if keys:  # no keys if the conditions read only constants of the left
        left = Distinct(plan_block(block.part(block.atoms_of(keys), keys)))
        both = SelectBlock.of(left).times(both)
    position = {c: k for k, c in enumerate(read)}

    def joined_column(column: Column) -> Expression:
        if column.index >= width:
            return Column(column.index - width + len(keys), column.type)
        return substitute(block.outputs[column.index], lambda c: Column(position[c.index], c.type))

    joined = both.where(*(substitute(part, joined_column) for part in parts))
    return MatchPredicate(block, keys, plan_block(joined))


def _all_columns(block: SelectBlock) -> list[tuple[Column, ...]]:
    return [
        tuple(Column(start + c.index, c.type) for c in columns(atom))
        for start, atom in zip(block.starts, block.atoms, strict=True)
    ]


def _over_right(expression: Expression, width: int) -> Expression:
    """Return an expression that reads only the right over the columns of the right."""
    return substitute(expression, lambda c: Column(c.index - width, c.type))


def _key_pair(part: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return the sides of an equality between left and right; None for other conditions."""
    if not (isinstance(part, Call) and part.function in ("eq", "same")):
        return None
    for left, right in (part.arguments, part.arguments[::-1]):
        if all(c < width for c in columns_of(left)) and all(c >= width for c in columns_of(right)):
            return left, right
    return None
