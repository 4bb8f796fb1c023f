"""Rows of different engines as values that compare equal."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["add_changes", "comparable"]


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with numbers rounded to nine digits; lists and structs become tuples."""
    return tuple(map(_plain, row))


def add_changes(total: Counter[tuple[Any, ...]], changes: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows of a view after changes whose last column is the weight."""
    total = total.copy()
    for row in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        total[comparable(row[:-1])] += row[-1]
    return Counter({row: weight for row, weight in total.items() if weight})


def _plain(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        return "NaN" if math.isnan(value) else float(f"{float(value):.9g}") + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    return value
