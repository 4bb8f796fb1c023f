"""Retention: keep the rows whose event time is not before the watermark, which never decreases.

With the watermark h before a step, h' after it, and d the delta without late rows::

    h'  =  max(h, greatest time of the inserted rows - duration, source watermark - duration)
    R'  =  (R + d)[time >= h']
    R^Δ =  d[time >= h'] - R[h <= time < h']

So a row may be inserted and expire in one step. A step costs time in proportion to the rows that
expire: the relation is arranged by time, and only the range between the two watermarks is read
(`dbsp_wcoj.storage.range_scan`). A row with a time before h is late: it changes nothing, whether it
is an insertion or a deletion. A row without a time is rejected as well.

An example stream of rows ``time``, with a duration of 10::

    inserted     3        12         5          25         9
    watermark    -7       2          2          15         15
    output       +3       +12        +5         +25 -3     (late)
                                                -12 -5

Only insertions advance the watermark: a deletion refers to the past. Insertions count before
weights are added up, so several steps can be merged into one: the sum of the outputs is the same. A
row with a time far in the future expires all others; filter such rows before the input if they can
occur.

The watermark is a scalar of the circuit's state, a code of the column. Alternative considered: one
watermark per source, as in Spark. A caller with such a watermark passes it to ``prepare``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from circuits.errors import EvaluationError, InputOptionsError
from circuits.inputs.input_options import Retention
from circuits.plan.expressions import Expression
from circuits.runtime.evaluation import evaluate
from circuits.schema import Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array

__all__ = ["RetentionBound"]

_MIN_CODE: Final = NULL + 1
_NANOSECONDS_PER_UNIT: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NANOSECONDS_PER_DAY: Final = 86_400 * 10**9


class RetentionBound:
    """The event time column of an input, and how long its rows are kept.

    Args:
        schema: The input's columns.
        retain: The column and the duration.
        codecs: The codes of values.
        groups: Non-decreasing functions of the time, which is their column 0. Rows for which one of
            them has the same value expire together.

    Raises:
        InputOptionsError: The column does not exist, or its type does not fit the duration.
    """

    def __init__(
        self, schema: Schema, retain: Retention, codecs: Codecs, groups: Sequence[Expression] = ()
    ) -> None:
        if retain.column not in schema.columns:
            raise InputOptionsError(
                f"input {schema.relation!r}: no column {retain.column!r} to retain by among "
                f"{list(schema.columns)}"
            )
        self.place = schema.columns.index(retain.column)
        self.type = schema.fields[self.place].type
        self.keeps_results = retain.keeps_results
        self._relation = schema.relation
        self._units = retain.units(self.type)
        self._codecs = codecs
        self._groups = tuple(groups)
        self.expired_before = lru_cache(maxsize=4)(self._expired_before)

    def order(self, arity: int) -> ColumnOrder:
        """The time, then the other columns."""
        return self.place, *(c for c in range(arity) if c != self.place)

    def watermark_after(self, time: int) -> int:
        """Return the watermark after a row with this event time, if it was not later before."""
        return max(time - self._units, _MIN_CODE)

    def watermark_after_all(self, times: Int64Array) -> int | None:
        """Return the watermark after rows with these event times; None if all are NULL."""
        latest = int(times.max(initial=NULL))
        return None if latest == NULL else self.watermark_after(latest)

    def decode_watermark(self, value: Any) -> int:
        """Return the watermark of the input, as a code, for a watermark of its source.

        Raises:
            InputOptionsError: The value is not of the type of the column.
        """
        code = self._code(value)
        if code is None:
            zone = "" if not types.is_timestamp(self.type) else " (with a zone if that has one)"
            raise InputOptionsError(
                f"input {self._relation!r}: the watermark {value!r} is of {type(value).__name__}, "
                f"not a value of {self.type}: give one{zone}"
            )
        return self.watermark_after(code)

    def expired(self, trace: Trace, before: int | None, watermark: int) -> ZSet:
        """Return the rows of the trace between the previous watermark and the new one."""
        low = _MIN_CODE if before is None else before
        if watermark <= low:
            return ZSet.empty(trace.arity)
        return range_scan(trace, self.order(trace.arity), low, watermark - 1)

    def _expired_before(self, watermark: int) -> int:
        """Return the time before which rows are deleted: the watermark, or the start of its groups.

        Complexity:
            About ten evaluations of each function, on at most 64 times each.
        """
        while True:
            found = watermark
            for function in self._groups:
                found = self._first_of_group(function, found)
            if found == watermark:
                return found
            watermark = found

    def _first_of_group(self, function: Expression, time: int) -> int:
        """Return the least time for which a function has the same value as for ``time``."""
        last, step = time, 1
        while last > _MIN_CODE:  # gallop down until the value is another one
            times = [max(last - (step << k), _MIN_CODE) for k in range(16)]
            same = self._has_same_value(function, time, times)
            if not all(same):
                first = same.index(False)
                low, last = times[first], times[first - 1] if first else last
                break
            last, step = times[-1], step << 16
        else:
            return _MIN_CODE
        while last - low > 1:  # the value at ``low`` differs, that at ``last`` does not
            times = sorted({low + (last - low) * k // 64 for k in range(1, 64)} - {low, last})
            same = self._has_same_value(function, time, times)
            first = same.index(True) if True in same else len(times)
            low = times[first - 1] if first else low
            last = times[first] if first < len(times) else last
        return last

    def _has_same_value(self, function: Expression, time: int, times: Sequence[int]) -> list[bool]:
        """Return for each time whether a function has the same value as for ``time``.

        A time for which the function has no value gets False.
        """
        codes = np.array([time, *times])
        try:
            values = evaluate(function, [self._codecs.codec(self.type).decode(codes)], len(codes))
        except EvaluationError:
            if len(times) <= 1:
                return [False] * len(times)
            return [same for one in times for same in self._has_same_value(function, time, [one])]
        found = self._codecs.codec(function.type).encode(values)
        return [bool(same) for same in found[1:] == found[0]]

    def format_time(self, watermark: int) -> Any:
        """Return a watermark as a text for messages."""
        array = self._codecs.codec(self.type).decode(np.array([watermark]))
        return array.cast(pa.string())[0].as_py()

    def _code(self, value: Any) -> int | None:
        """Return the code of the last time that is not after a value; None for another type.

        So a watermark in microseconds can be used for a column of days.
        """
        if isinstance(value, pa.Scalar) and not value.is_valid:
            return None
        if types.is_integer(self.type):
            code = None if isinstance(value, bool) else self._codecs.codec(self.type).code_of(value)
            return None if code == NULL else code
        nanoseconds = _nanoseconds(value, self.type)
        if nanoseconds is None:
            return None
        unit = _NANOSECONDS_PER_DAY if types.is_date32(self.type) else _NANOSECONDS_PER_UNIT["ms"]
        if types.is_timestamp(self.type):
            unit = _NANOSECONDS_PER_UNIT[self.type.unit]
        return nanoseconds // unit


def late_mask(times: Int64Array, watermark: int | None) -> BoolArray:
    """Return a mask of the times before a watermark; NULL is not among them."""
    if watermark is None:
        return np.zeros(len(times), np.bool_)
    found: BoolArray = (times < watermark) & (times != NULL)
    return found


def _nanoseconds(value: Any, type: pa.DataType) -> int | None:
    """Return the nanoseconds since 1970 of a datetime, date or Arrow scalar; None if it does not
    fit a type of times.
    """
    zoned = types.is_timestamp(type) and type.tz is not None
    if isinstance(value, pa.TimestampScalar):
        if (value.type.tz is not None) != zoned:
            return None
        return int(value.value) * _NANOSECONDS_PER_UNIT[value.type.unit]
    if isinstance(value, datetime):
        if (value.tzinfo is not None) != zoned:
            return None
        scalar = pa.scalar(value, pa.timestamp("us", tz="UTC" if zoned else None))
        return int(scalar.value) * _NANOSECONDS_PER_UNIT["us"]
    if types.is_date(type):
        if isinstance(value, pa.Date32Scalar):
            return int(value.value) * _NANOSECONDS_PER_DAY
        if isinstance(value, pa.Date64Scalar):
            return int(value.value) * _NANOSECONDS_PER_UNIT["ms"]
        if isinstance(value, date):
            return int(pa.scalar(value, pa.date32()).value) * _NANOSECONDS_PER_DAY
    return None
