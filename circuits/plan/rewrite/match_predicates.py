"""How rows of a block find rows of another plan: the predicate of a semijoin or an outer join.

The predicate, a conjunction, is taken apart into

- keys: pairs of an expression of the left and one of the right that must be the same. An equality
  is one, its right side not NULL, and so is a condition on the left only, which must be TRUE;
- conditions on the right only, which filter it;
- the rest, which needs both sides: then the left's columns that it reads are joined with the right,
  and their values are the keys.

In all cases what is left to do is a join by keys, which `circuits.plan.rewrite.join_planning` is
good at.
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
from circuits.plan.nodes import Distinct, Plan, columns
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.nullability import is_nullable
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import SelectBlock
from circuits.types.functions import call

__all__ = ["MatchPredicate", "alternatives", "can_hold", "match_rows", "with_keys"]

# More alternatives than this are not spelled out; their disjunction is evaluated as it stands.
MOST_ALTERNATIVES = 16

TRUE = Literal(True, pa.bool_())


@dataclass(frozen=True)
class MatchPredicate:
    """Left keys (over the columns of ``block``), and the right: its keys, then its columns."""

    block: SelectBlock
    keys: tuple[Expression, ...]
    right: Plan


def alternatives(predicate: Expression) -> list[list[Expression]]:
    """The predicate as alternatives, each a list of conditions that all hold.

    >>> a, b, c = (Column(i, pa.bool_()) for i in range(3))
    >>> [len(parts) for parts in alternatives(call("and", a, call("or", b, c)))]
    [2, 2]
    """
    choices = [
        list(part.arguments) if isinstance(part, Call) and part.function == "or" else [part]
        for part in conjuncts([predicate])
    ]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MOST_ALTERNATIVES:
        return [list(conjuncts([predicate]))]
    return [list(conjuncts(combination)) for combination in product(*choices)]


def can_hold(block: SelectBlock, right: Plan, parts: Sequence[Expression]) -> bool:
    """Whether no condition asks for NULL in a column that has none.

    So ``x NOT IN (q)`` over columns without NULL is one antijoin and not three.
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


def match_rows(block: SelectBlock, right: Plan, parts: Sequence[Expression]) -> MatchPredicate:
    """Take a conjunction over the block's outputs and the columns of ``right`` apart."""
    width = len(block.outputs)
    pairs: list[tuple[Expression, Expression]] = []
    rows = right
    for part in parts:
        left_only = all(c < width for c in columns_of(part))
        right_only = all(c >= width for c in columns_of(part))
        if right_only:
            rows = push_filter(rows, _right(part, width))
        elif left_only:
            pairs.append((substitute(call("is_true", part), block.outputs), TRUE))
        else:
            pair = _pair(part, width)
            if pair is None:
                return _by_columns(block, right, parts)
            left, other = substitute(pair[0], block.outputs), _right(pair[1], width)
            if isinstance(part, Call) and part.function == "eq" and is_nullable(rows, other):
                rows = push_filter(rows, call("not", call("is_null", other)))
            pairs.append((left, other))
    block, keys = with_keys(block, [left for left, _ in pairs])
    keyed = push_projection(rows, (*(other for _, other in pairs), *columns(rows)))
    return MatchPredicate(block, keys, keyed)


def with_keys(
    block: SelectBlock, keys: Sequence[Expression]
) -> tuple[SelectBlock, tuple[Expression, ...]]:
    """The block with each key an expression over one atom; else it is joined first."""
    if all(len(block.atoms_of([key])) <= 1 for key in keys):
        return block, tuple(keys)
    width = len(block.outputs)
    whole = SelectBlock.of(
        plan_block(
            SelectBlock(block.atoms, block.predicates, block.absent, (*block.outputs, *keys))
        )
    )
    return whole.select(whole.outputs[:width]), whole.outputs[width:]


def _by_columns(block: SelectBlock, right: Plan, parts: Sequence[Expression]) -> MatchPredicate:
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
    if keys:  # what the conditions read of the left may be constants
        both = SelectBlock.of(Distinct(plan_block(block.part(block.atoms_of(keys), keys)))).times(
            both
        )
    place = {c: k for k, c in enumerate(read)}

    def moved(column: Column) -> Expression:
        if column.index >= width:
            return Column(column.index - width + len(keys), column.type)
        return substitute(block.outputs[column.index], lambda c: Column(place[c.index], c.type))

    joined = both.where(*(substitute(part, moved) for part in parts))
    return MatchPredicate(block, keys, plan_block(joined))


def _all_columns(block: SelectBlock) -> list[tuple[Column, ...]]:
    return [
        tuple(Column(start + c.index, c.type) for c in columns(atom))
        for start, atom in zip(block.starts, block.atoms, strict=True)
    ]


def _right(expression: Expression, width: int) -> Expression:
    return substitute(expression, lambda c: Column(c.index - width, c.type))


def _pair(part: Expression, width: int) -> tuple[Expression, Expression] | None:
    """The left and the right side of an equality between the two plans."""
    if not (isinstance(part, Call) and part.function in ("eq", "same")):
        return None
    for left, right in (part.arguments, part.arguments[::-1]):
        if all(c < width for c in columns_of(left)) and all(c >= width for c in columns_of(right)):
            return left, right
    return None
