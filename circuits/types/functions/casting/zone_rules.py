"""The offsets of time zones from UTC after 2037, where the data of Arrow end.

A file of the database of time zones lists the changes of the clocks up to 2037, and has a rule for
all later years. Arrow reads the list only: after 2037, daylight saving time never comes again.
Python reads the rule, too. Here are the changes of the years 2038 to 2499 as arrays, found with
Python once per zone. Later years repeat the years 2100 to 2499: the Gregorian calendar has a period
of 400 years.

Cost: about 30 ms for the first use of a zone, then a binary search per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from circuits.types.functions.casting.time_units import Int64s

__all__ = ["FIRST_SECOND", "ZoneRules", "rules_of_zone"]

_START: Final = datetime(2038, 1, 1, tzinfo=UTC)
_STOP: Final = datetime(2500, 1, 1, tzinfo=UTC)
#: The first second after 1970 that this module is for.
FIRST_SECOND: Final = int(_START.timestamp())
_STOP_SECOND: Final = int(_STOP.timestamp())
_SECONDS_PER_CYCLE: Final = 146_097 * 86_400  # 400 years
# Shorter than the time between any two changes.
_SAMPLE_DISTANCE: Final = timedelta(days=10)


@dataclass(frozen=True)
class ZoneRules:
    """The offsets of one zone, in seconds.

    Attributes:
        changes: The seconds from 1970 to each change of the offset, ascending.
        offsets: The offset before the first change, and after each change.
    """

    changes: Int64s
    offsets: Int64s

    def offsets_in_utc(self, seconds: Int64s) -> Int64s:
        """Return the offset at each time in UTC, in seconds since 1970."""
        return self.offsets[np.searchsorted(self.changes, _repeat(seconds), side="right")]

    def offsets_in_local_time(self, seconds: Int64s, *, earliest: bool) -> Int64s:
        """Return the offset at each local time, in seconds since 1970.

        If clocks are set forward over the time, so that it does not exist, it is the offset before
        the change.

        Args:
            seconds: The local times.
            earliest: If a time occurs twice, True for the offset of the first one.
        """
        after = self.changes + self.offsets[1:]
        before = self.changes + self.offsets[:-1]
        changes = np.maximum(before, after) if earliest else after
        return self.offsets[np.searchsorted(changes, _repeat(seconds), side="right")]


def _repeat(seconds: Int64s) -> Int64s:
    """Move times after 2499 by a multiple of 400 years."""
    beyond = np.maximum(seconds - _STOP_SECOND, -1)
    moved: Int64s = seconds - (beyond // _SECONDS_PER_CYCLE + 1) * _SECONDS_PER_CYCLE
    return moved


@lru_cache(maxsize=64)
def rules_of_zone(zone: str) -> ZoneRules | None:
    """Return the rules of a zone; None for UTC and for another zone without a name."""
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as America
        return None
    changes = list(_find_changes(info))
    offsets = [_offset(info, _START), *(_offset(info, moment) for moment in changes)]
    seconds = [int(moment.timestamp()) for moment in changes]
    return ZoneRules(np.array(seconds, np.int64), np.array(offsets, np.int64))


def _find_changes(zone: ZoneInfo) -> Iterator[datetime]:
    before, offset = _START, _offset(zone, _START)
    while before < _STOP:
        after = before + _SAMPLE_DISTANCE
        next_offset = _offset(zone, after)
        if next_offset != offset:
            low, high = before, after
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            yield high
        before, offset = after, next_offset


def _offset(zone: ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
