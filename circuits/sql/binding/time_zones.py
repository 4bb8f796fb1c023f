"""Timestamps with and without a time zone in one call, in the dialects of PostgreSQL.

PostgreSQL casts a date, and a timestamp without a time zone, to one of the time zone of the
session, which is UTC here. In other dialects, such a call is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from circuits.plan.expressions import Expression, columns_of
from circuits.sql.binding.scope import NOW_COLUMN
from circuits.types import functions
from circuits.types.functions.type_rules import is_temporal

__all__ = ["add_time_zones"]

_FUNCTIONS: Final = frozenset(
    (
        *("eq", "ne", "lt", "le", "gt", "ge", "same", "in", "nullif", "subtract"),
        *("case", "coalesce", "greatest", "least"),
    )
)


def add_time_zones(name: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return the arguments of a function, all with a time zone if one of them has one.

    Next to ``now()`` they are unchanged: compared with a timestamp without a time zone, the current
    time is read without one (`circuits.sql.expressions.current_time`).
    """
    zoned = [value for value in arguments if _has_zone(value.type)]
    if name not in _FUNCTIONS or len(zoned) in (0, len(arguments)):
        return tuple(arguments)
    if any(NOW_COLUMN in columns_of(value) for value in zoned):
        return tuple(arguments)
    return tuple(map(_add_time_zone, arguments))


def _has_zone(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and type.tz is not None)


def _add_time_zone(value: Expression) -> Expression:
    if not is_temporal(value.type) or _has_zone(value.type):
        return value
    unit = value.type.unit if pa.types.is_timestamp(value.type) else "us"
    return functions.call("cast", value, type=pa.timestamp(unit, "UTC"))
