"""Bounds of columns: how the frontiers of the columns of a plan follow from those of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
)
from circuits.plan.frontier import ColumnBounds, least

__all__ = ["bounds_of_first", "bounds_of_keys", "close_bounds", "common_bounds", "ordered_columns"]


def bounds_of_keys(bounds: ColumnBounds, keys: Sequence[int]) -> ColumnBounds:
    """Return the bounds of columns that become the first columns of the result."""
    return {new: bounds[old] for new, old in enumerate(keys) if old in bounds}


def bounds_of_first(bounds: ColumnBounds, count: int) -> ColumnBounds:
    """Return the bounds of the first columns."""
    return {column: bound for column, bound in bounds.items() if column < count}


def common_bounds(alternatives: Sequence[ColumnBounds]) -> ColumnBounds:
    """Return the bounds of the columns that have one in each of the alternatives."""
    if not alternatives:
        return {}
    common = set(alternatives[0]).intersection(*alternatives[1:])
    return {c: least(bounds[c] for bounds in alternatives) for c in sorted(common)}


def close_bounds(bounds: ColumnBounds, pairs: Sequence[tuple[int, int]]) -> ColumnBounds:
    """Return the bounds that follow if the second column of each pair is not before the first."""
    known = dict(bounds)
    size = -1
    while size < len(known):
        size = len(known)
        for low, high in pairs:
            if low in known:
                known.setdefault(high, known[low])
    return known


def ordered_columns(conditions: Iterable[Expression]) -> Iterator[tuple[int, int]]:
    """Yield pairs of columns of which the second is not before the first, by some conditions.

    Floats are left out: 0.0 and -0.0 are equal values with different codes.
    """
    for part in conditions:
        match part:
            case Call(function, (Column(first, type), Column(second, other))) if type == other:
                if pa.types.is_floating(type):
                    continue
                if function in ("lt", "le", "eq"):
                    yield first, second
                if function in ("gt", "ge", "eq"):
                    yield second, first
