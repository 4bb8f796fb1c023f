"""The oracle of aggregates over ordered rows, bits and lists of texts: one group at a time.

A group is a ``Counter`` from rows (tuples of Python values, None for NULL) to weights.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from circuits.plan.nodes import AggregateCall

__all__ = ["NAIVE_AGGREGATES", "naive_aggregate"]

Row = tuple[Any, ...]
NAIVE_AGGREGATES = frozenset(
    (
        "bit_and",
        "bit_or",
        "bit_xor",
        "first",
        "mode",
        "quantile_cont",
        "quantile_disc",
        "string_agg",
    )
)


def naive_aggregate(call: AggregateCall, group: Counter[Row]) -> Any:
    """Compute one aggregate of one group."""
    if call.function.startswith("bit_"):
        return _bits(call, group)
    values = _ordered_values(call, group)
    if not values:
        return None
    if call.function == "first":
        return values[0][0]
    if call.function == "mode":
        largest = max(weight for _, weight in values)
        return next(value for value, weight in values if weight == largest)
    repeated = [value for value, weight in values for _ in range(weight)]
    if call.function == "string_agg":
        return call.options[0].join(repeated)
    fraction = call.options[0]
    size = len(repeated)
    if call.function == "quantile_cont":  # of floats
        share = (size - 1) * fraction - math.floor((size - 1) * fraction)
        low = repeated[math.floor((size - 1) * fraction)]
        high = repeated[math.ceil((size - 1) * fraction)]
        return low if share == 0 else low * (1 - share) + high * share
    return repeated[max(1, size - math.floor(size - size * fraction)) - 1]


def _bits(call: AggregateCall, group: Counter[Row]) -> int | None:
    counts: Counter[int] = Counter()
    for row, weight in group.items():
        if row[call.argument] is not None:
            counts[row[call.argument]] += weight
    if call.distinct:
        counts = Counter({value: 1 for value, weight in counts.items() if weight > 0})
    total = sum(counts.values())
    if total == 0:
        return None
    result = 0
    for bit in range(64):
        count = sum(weight for value, weight in counts.items() if value >> bit & 1)
        is_set = {"bit_and": count == total, "bit_or": count > 0, "bit_xor": count % 2 == 1}
        if count and is_set[call.function]:
            result |= 1 << bit
    return result - 2**64 if result >= 2**63 else result


def _ordered_values(call: AggregateCall, group: Counter[Row]) -> list[tuple[Any, int]]:
    """The values of the first argument with their weights, in order; equal rows are one value."""
    assert call.argument is not None
    required = call.others if call.function == "first" else (*call.others, call.argument)
    columns = list(dict.fromkeys((*(part.column for part in call.order), call.argument)))
    counts: Counter[Row] = Counter()
    for row, weight in group.items():
        if all(row[column] is not None for column in required):
            counts[tuple(row[column] for column in columns)] += weight
    rows = [row for row, weight in counts.items() if weight > 0]
    argument = columns.index(call.argument)
    rows.sort(key=lambda row: _rank(row[argument], nulls_first=False))
    for position in reversed(range(len(call.order))):
        part = call.order[position]
        nulls = [row for row in rows if row[position] is None]
        others = [row for row in rows if row[position] is not None]
        others.sort(key=lambda row: _rank(row[position], False), reverse=part.descending)
        rows = nulls + others if part.nulls_first else others + nulls
    return [(row[argument], 1 if call.distinct else counts[row]) for row in rows]


def _rank(value: Any, nulls_first: bool) -> tuple[bool, bool, Any]:
    is_nan = isinstance(value, float) and math.isnan(value)
    is_special = is_nan or value is None
    return (value is None) != nulls_first, is_nan, 0 if is_special else value
