"""Bounds of columns: derive the frontiers of a node's columns from those of its inputs.

A bound of a column is its frontier (`circuits.plan.frontier`): no later change is before it. Bounds
are compared by code, so a computed column has one only if its codes have the order of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from circuits.plan.expressions import Call, Column, Expression
from circuits.plan.frontier import ColumnBounds, least
from circuits.types.codecs.codec import Codecs

__all__ = [
    "add_implied_bounds",
    "bounds_of_first",
    "bounds_of_keys",
    "common_bounds",
    "has_ordered_codes",
    "keep_bounds",
    "ordered_columns",
]

_CODECS: Final = Codecs()


def keep_bounds(bounds: ColumnBounds, columns: Iterable[int]) -> ColumnBounds:
    """Return the bounds of some columns, which keep their numbers."""
    return {column: bounds[column] for column in columns if column in bounds}


def bounds_of_keys(bounds: ColumnBounds, keys: Sequence[int]) -> ColumnBounds:
    """Return the bounds of some columns, which become columns 0, 1, … of the result."""
    return {new: bounds[old] for new, old in enumerate(keys) if old in bounds}


def bounds_of_first(bounds: ColumnBounds, count: int) -> ColumnBounds:
    """Return the bounds of the first columns."""
    return {column: bound for column, bound in bounds.items() if column < count}


def common_bounds(alternatives: Sequence[ColumnBounds]) -> ColumnBounds:
    """Return, for each column that is bounded in all alternatives, the least of its bounds."""
    if not alternatives:
        return {}
    common = set(alternatives[0]).intersection(*alternatives[1:])
    return {c: least(bounds[c] for bounds in alternatives) for c in sorted(common)}


def add_implied_bounds(bounds: ColumnBounds, pairs: Sequence[tuple[int, int]]) -> ColumnBounds:
    """Return the bounds, and those that follow from ``low <= high`` for each pair of columns."""
    all_bounds = dict(bounds)
    size = -1
    while size < len(all_bounds):
        size = len(all_bounds)
        for low, high in pairs:
            if low in all_bounds:
                all_bounds.setdefault(high, all_bounds[low])
    return all_bounds


def has_ordered_codes(type: pa.DataType) -> bool:
    """Return whether the codes of a type have the order of its values.

    >>> has_ordered_codes(pa.decimal128(18, 2)), has_ordered_codes(pa.decimal128(19, 2))
    (True, False)
    """
    return _CODECS.codec(type).ordered


def ordered_columns(conditions: Iterable[Expression]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of columns ``low, high`` with ``low <= high`` where the conditions hold.

    Only types whose codes have the order of their values count.
    """
    for part in conditions:
        match part:
            case Call(function, (Column(left, type), Column(right, other))) if type == other:
                if not has_ordered_codes(type):
                    continue
                if function in ("lt", "le", "eq"):
                    yield left, right
                if function in ("gt", "ge", "eq"):
                    yield right, left
