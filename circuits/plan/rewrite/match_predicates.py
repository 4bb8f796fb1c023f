"""Match predicates: rewrite the predicate of a semijoin or an outer join as equality of keys.

The left side is a block, the right side a plan. The predicate is a conjunction of conditions::

    l.x = r.x          a key: a pair of a left and a right expression that must have the same value;
                       rows of the right where its expression is NULL are filtered out
    l.x IS NOT DISTINCT FROM r.x
                       a key as well, and NULL equals NULL, so no row is filtered out
    l.x > 0            reads only the left: the key (l.x > 0, TRUE)
    r.y > 0            reads only the right: filters the right
    l.x < r.x          reads both sides, but not by equality: the distinct values of all left
                       columns that the predicate reads are joined with the right, and these
                       columns are the keys

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
    """Two sides whose rows match if their keys are equal; NULL equals NULL.

    Attributes:
        block: The left side.
        keys: The keys of the left, over the columns of the atoms of ``block``, not its outputs.
        right: The right side: first its keys, then all its columns. The columns may be missing if
            only the keys were requested.
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


def can_hold(block: SelectBlock, right: PlanNode, conditions: Sequence[Expression]) -> bool:
    """Return False if a condition tests for NULL a column that is never NULL.

    So ``x NOT IN (q)`` over columns without NULL becomes one antijoin instead of three.
    """
    width = len(block.outputs)
    for condition in conditions:
        if isinstance(condition, Call) and condition.function == "is_null":
            (subject,) = condition.arguments
            if isinstance(subject, Column) and subject.index >= width:
                if not is_nullable(right, Column(subject.index - width, subject.type)):
                    return False
            elif isinstance(subject, Column) and not block.is_nullable(subject.index):
                return False
    return True


def match_rows(
    block: SelectBlock,
    right: PlanNode,
    conditions: Sequence[Expression],
    *,
    keys_only: bool = False,
) -> MatchPredicate:
    """Rewrite a conjunction as equality of keys.

    Args:
        block: The left side.
        right: The right side.
        conditions: The conditions, over the outputs of the block, then the columns of ``right``.
        keys_only: True if the caller reads only the keys of the result's right side, so that no
            operator has to keep its other columns.
    """
    width = len(block.outputs)
    pairs: list[tuple[Expression, Expression]] = []
    rows = right
    for condition in conditions:
        left_only = all(c < width for c in columns_of(condition))
        right_only = all(c >= width for c in columns_of(condition))
        if right_only:
            rows = push_filter(rows, _over_right(condition, width))
        elif left_only:
            pairs.append((substitute(call("is_true", condition), block.outputs), TRUE))
        else:
            pair = _key_pair(condition, width)
            if pair is None:
                return _match_by_columns(block, right, conditions, keys_only)
            left_key, right_key = substitute(pair[0], block.outputs), _over_right(pair[1], width)
            if (
                isinstance(condition, Call)
                and condition.function == "eq"
                and is_nullable(rows, right_key)
            ):
                rows = push_filter(rows, call("not", call("is_null", right_key)))
            pairs.append((left_key, right_key))
    block, keys = with_keys(block, [left_key for left_key, _ in pairs])
    right_keys = [right_key for _, right_key in pairs]
    return MatchPredicate(block, keys, push_projection(rows, (*right_keys, *columns(rows))))


def with_keys(
    block: SelectBlock, keys: Sequence[Expression]
) -> tuple[SelectBlock, tuple[Expression, ...]]:
    """Return a block and keys such that each key is an expression over one atom.

    If a key reads several atoms, the block is joined first, with the keys as further columns.
    """
    if all(len(block.atoms_of([key])) <= 1 for key in keys):
        return block, tuple(keys)
    width = len(block.outputs)
    joined = SelectBlock.of(
        plan_block(
            SelectBlock(block.atoms, block.predicates, block.antijoins, (*block.outputs, *keys))
        )
    )
    return joined.select(joined.outputs[:width]), joined.outputs[width:]


def _match_by_columns(
    block: SelectBlock, right: PlanNode, conditions: Sequence[Expression], keys_only: bool
) -> MatchPredicate:
    """Match by all columns of the left that the conditions read."""
    width = len(block.outputs)
    outputs_read = {c for condition in conditions for c in columns_of(condition) if c < width}
    columns_read = sorted({c for output in outputs_read for c in columns_of(block.outputs[output])})
    block_columns = _block_columns(block)
    keys = tuple(block_columns[c] for c in columns_read)
    combinations = SelectBlock.of(right)
    if keys:  # there are no keys if the conditions read only constants of the left
        left = Distinct(plan_block(block.part_with(keys)))
        combinations = SelectBlock.of(left).times(combinations)
    key_position = {c: k for k, c in enumerate(columns_read)}

    def joined_column(column: Column) -> Expression:
        if column.index >= width:
            return Column(column.index - width + len(keys), column.type)
        return substitute(
            block.outputs[column.index], lambda c: Column(key_position[c.index], c.type)
        )

    matching = combinations.where(*(substitute(c, joined_column) for c in conditions))
    if keys_only:
        matching = matching.select(matching.outputs[: len(keys)])
    return MatchPredicate(block, keys, plan_block(matching))


def _block_columns(block: SelectBlock) -> list[Column]:
    types = [field.type for atom in block.atoms for field in atom.fields]
    return [Column(index, type) for index, type in enumerate(types)]


def _over_right(expression: Expression, width: int) -> Expression:
    """Renumber an expression that reads only the right: its first column becomes column 0."""
    return substitute(expression, lambda c: Column(c.index - width, c.type))


def _key_pair(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return the sides of an equality between left and right; None for other conditions."""
    if not (isinstance(condition, Call) and condition.function in ("eq", "same")):
        return None
    for left, right in (condition.arguments, condition.arguments[::-1]):
        if all(c < width for c in columns_of(left)) and all(c >= width for c in columns_of(right)):
            return left, right
    return None
