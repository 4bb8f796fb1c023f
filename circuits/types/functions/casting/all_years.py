"""Arrow's functions of the calendar for all years.

Arrow computes with years of 16 bits: the fields of a date beyond the years -32767 to 32767, the
start of its year and its local time are wrong, without an error. The Gregorian calendar repeats
every 400 years, which are 146,097 days and a whole number of weeks. So a date outside of the years
-25,000 to 29,000 is moved by a multiple of 400 years, and the result is moved back. Such a date
gets into the years 2370 to 2769, or 1170 to 1569 if it is in the past: after or before all changes
of the rules of time zones.

Local times after 2037 are those of `zone_rules`, because Arrow knows no daylight saving time there.

Cost: one pass over the ticks; several for a column with such a date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.casting.time_units import (
    INFINITE,
    PER_SECOND,
    Int64s,
    check_finite,
    from_ticks,
    is_infinite,
    ticks_of,
)
from circuits.types.functions.casting.zone_rules import FIRST_SECOND, rules_of_zone
from circuits.types.functions.exact_integers import add

__all__ = [
    "assume_timezone",
    "calendar_field",
    "floor_temporal",
    "iso_year",
    "local_timestamp",
    "year",
]

_YEARS_PER_CYCLE: Final = 400
_DAYS_PER_CYCLE: Final = 146_097
_MAX_DAY: Final = 10_000_000


def calendar_field(function: Callable[..., pa.Array], values: pa.Array, **options: Any) -> pa.Array:
    """Return a field that is the same 400 years later, such as the month or the hour.

    Args:
        function: The function of Arrow.
        values: Dates or timestamps.
        options: Options of the function.
    """
    return function(_move_into_range(_without_zone(values))[0], **options)


def year(values: pa.Array) -> pa.Array:
    """Return the years of dates or timestamps."""
    return _move_years_back(pc.year, _without_zone(values))


def iso_year(values: pa.Array) -> pa.Array:
    """Return the years of the ISO weeks of dates or timestamps."""
    return _move_years_back(pc.iso_year, _without_zone(values))


def floor_temporal(values: pa.Array, unit: str) -> pa.Array:
    """Return the starts of the units that contain dates or timestamps.

    Raises:
        ArrowInvalid: A start is before the least value of the type.
    """
    starts = _move_back(lambda moved: pc.floor_temporal(moved, unit=unit), values, values.type)
    # Before the least timestamp, Arrow's starts of weeks, days and shorter units wrap around.
    if pc.any(pc.greater(starts, values)).as_py():
        raise pa.ArrowInvalid(f"the start of a {unit} is out of range of {values.type}")
    late = _late_rows(values)
    if late is None:
        return starts
    local_starts = floor_temporal(local_timestamp(values.filter(late)), unit)
    late_starts = assume_timezone(
        local_starts, values.type.tz, ambiguous="earliest", nonexistent="earliest"
    )
    return pc.replace_with_mask(starts, late, late_starts)


def local_timestamp(values: pa.Array) -> pa.Array:
    """Return the local times of timestamps with a time zone."""
    naive = pa.timestamp(values.type.unit)
    local = _move_back(pc.local_timestamp, values, naive)
    late = _late_rows(values)
    if late is None:
        return local
    rules = rules_of_zone(values.type.tz)
    assert rules is not None
    late_values, per_second = values.filter(late), PER_SECOND[values.type.unit]
    ticks = ticks_of(late_values)
    local_ticks = add(ticks, rules.offsets_in_utc(ticks // per_second) * per_second)
    return pc.replace_with_mask(local, late, from_ticks(local_ticks, naive, late_values))


def assume_timezone(
    values: pa.Array, timezone: str, *, ambiguous: str = "raise", nonexistent: str = "raise"
) -> pa.Array:
    """Return the timestamps with a time zone that have these local times.

    Args:
        values: Timestamps without a time zone.
        timezone: The time zone.
        ambiguous: ``earliest``, ``latest`` or ``raise``, for a time that occurs twice.
        nonexistent: The same for a time that does not occur; after 2037, ``earliest`` and
            ``latest`` are the time with the offset before the change.

    Raises:
        ArrowInvalid: There is not exactly one such time, or it is out of range.
    """
    target = pa.timestamp(values.type.unit, timezone)
    late = _late_rows(values, timezone)
    early = values if late is None else pc.if_else(late, None, values)
    zoned = _move_back(
        lambda moved: pc.assume_timezone(
            moved, timezone, ambiguous=ambiguous, nonexistent=nonexistent
        ),
        early,
        target,
    )
    if late is None:
        return zoned
    rules = rules_of_zone(timezone)
    assert rules is not None
    late_values, per_second = values.filter(late), PER_SECOND[values.type.unit]
    ticks = ticks_of(late_values)
    first, last = (
        rules.offsets_in_local_time(ticks // per_second, earliest=earliest)
        for earliest in (True, False)
    )
    if ambiguous == "raise" and (first != last).any():
        raise pa.ArrowInvalid(f"a local time occurs twice in the time zone {timezone}")
    offsets = last if ambiguous == "latest" else first
    late_ticks = add(ticks, -offsets * per_second)
    return pc.replace_with_mask(zoned, late, from_ticks(late_ticks, target, late_values))


def _late_rows(values: pa.Array, zone: str | None = None) -> pa.Array | None:
    """Return a mask of the finite timestamps after 2037 in a zone with rules; None without any.

    Args:
        values: Timestamps.
        zone: The time zone, if the type has none.
    """
    zone = zone or (values.type.tz if arrow.is_timestamp(values.type) else None)
    if zone is None or zone == "UTC":
        return None
    ticks = ticks_of(values)
    is_late = (ticks >= FIRST_SECOND * PER_SECOND[values.type.unit]) & (ticks != INFINITE)
    if not is_late.any() or rules_of_zone(zone) is None:
        return None
    return pa.array(is_late)


def _without_zone(values: pa.Array) -> pa.Array:
    """Return the local times of timestamps; other values unchanged."""
    has_zone = arrow.is_timestamp(values.type) and values.type.tz is not None
    return local_timestamp(values) if has_zone else values


def _ticks_per_cycle(data_type: pa.DataType) -> int:
    if arrow.is_date(data_type):
        return _DAYS_PER_CYCLE
    return _DAYS_PER_CYCLE * 86_400 * PER_SECOND[data_type.unit]


def _move_into_range(values: pa.Array) -> tuple[pa.Array, Int64s | None]:
    """Move values into the years of Arrow.

    Returns:
        The moved values, and by how many cycles each value was moved; None if none was.
    """
    ticks, ticks_per_cycle = ticks_of(values), _ticks_per_cycle(values.type)
    max_ticks = _MAX_DAY * (ticks_per_cycle // _DAYS_PER_CYCLE)
    is_future, is_past = ticks > max_ticks, ticks < -max_ticks
    if not is_future.any() and not is_past.any():
        return values, None
    cycle = ticks // ticks_per_cycle
    cycles = np.where(is_future, cycle - 1, np.where(is_past, cycle + 2, 0))
    return from_ticks(ticks - cycles * ticks_per_cycle, values.type, values), cycles


def _move_years_back(function: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    moved, cycles = _move_into_range(values)
    years = function(moved)
    return years if cycles is None else pc.add(years, pa.array(cycles * _YEARS_PER_CYCLE))


def _move_back(
    function: Callable[[pa.Array], pa.Array], values: pa.Array, result_type: pa.DataType
) -> pa.Array:
    """Call a function of dates or timestamps whose result moves with its argument.

    An infinite value remains infinite.
    """
    ticks = ticks_of(values)
    infinite = is_infinite(ticks, values.type)
    if infinite.any():
        values = from_ticks(np.where(infinite, 0, ticks), values.type, values)
    moved, cycles = _move_into_range(values)
    result = function(moved)
    if cycles is not None:
        moved_back = add(ticks_of(result), cycles * _ticks_per_cycle(values.type))
        if arrow.is_timestamp(result_type):
            check_finite(pa.array(moved_back), result_type)
        result = from_ticks(moved_back, result_type, result)
    if infinite.any():
        unchanged = np.where(infinite, ticks, ticks_of(result))
        result = from_ticks(unchanged, result_type, values)
    return result
