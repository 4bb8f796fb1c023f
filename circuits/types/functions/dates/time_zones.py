"""Conversion of timestamps between UTC and the local time of a zone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants
from circuits.types.functions.casting.all_years import assume_timezone, local_timestamp
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature

__all__ = ["FUNCTIONS"]

_TIMESTAMP = pa.timestamp("us")
_DAY = pa.scalar(86_400_000_000, pa.duration("us"))


def _to_zone(values: pa.Array, zone: str) -> pa.Array:
    """Convert timestamps in UTC to the local time of a zone."""
    return local_timestamp(
        values.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", _zone(zone)))
    )


def _from_zone(ambiguous: str) -> Callable[..., pa.Array]:
    """Return a function that converts timestamps in the local time of a zone to UTC.

    If a local time does not exist, because clocks are set forward, the offset before the change
    applies.

    Args:
        ambiguous: ``earliest`` or ``latest``, for a time that occurs twice.
    """

    def convert(values: pa.Array, zone: str) -> pa.Array:
        zone = _zone(zone)
        zoned = assume_timezone(values, zone, ambiguous=ambiguous, nonexistent="earliest")
        local = local_timestamp(zoned)
        in_utc = zoned.cast(pa.timestamp("us", "UTC")).cast(_TIMESTAMP)
        is_skipped = pc.fill_null(pc.not_equal(local, values), False)
        if not pc.any(is_skipped).as_py():
            return in_utc
        # The offset before the change is that of the day before.
        skipped = values.filter(is_skipped)
        day_before = pc.subtract_checked(skipped, _DAY)
        offset = pc.subtract_checked(_to_zone(day_before, zone), day_before)
        return pc.replace_with_mask(in_utc, is_skipped, pc.subtract_checked(skipped, offset))

    return convert


#: Abbreviations that Spark accepts, and that the database of time zones does not have.
_SHORT_ZONES = {"PST": "America/Los_Angeles", "CST": "America/Chicago", "JST": "Asia/Tokyo"}


def _zone(name: str) -> str:
    """Return Arrow's name of a time zone: a region, ``UTC``, or an offset such as ``+02:00``."""
    full_name = _SHORT_ZONES.get(name, name)
    if full_name.islower():
        full_name = full_name.upper() if "/" not in full_name else full_name.title()
        full_name = full_name.replace("Us/", "US/")
    offset = full_name.removeprefix("UTC").removeprefix("GMT")
    if not offset or offset.upper() == "Z":
        return "UTC"
    if offset[0] in "+-":
        hours, _, minutes = offset[1:].partition(":")
        return f"{offset[0]}{int(hours):02}:{int(minutes or 0):02}"
    return full_name


# In a signature, m is a timestamp and t a text.
FUNCTIONS = (
    Function(
        "to_zone",
        "a timestamp of UTC in the local time of zone b",
        Signature("mt", _TIMESTAMP),
        by_constants(_to_zone),
    ),
    Function(
        "from_zone",
        "the timestamp of UTC when the local time in zone b is a",
        Signature("mt", _TIMESTAMP),
        by_constants(_from_zone("earliest")),
    ),
    Function(
        "from_zone_latest",
        "as from_zone; the later one if the local time a occurs twice",
        Signature("mt", _TIMESTAMP),
        by_constants(_from_zone("latest")),
    ),
)
