"""Retain: a relation of the rows whose time is not before a horizon, which only moves on.

With the horizon h before a step, h' after it, and d the change that is not late::

    h'  =  max(h, greatest time of the rows inserted - duration, watermark - duration)
    R'  =  (R + d)[time >= h']
    R^Δ =  d[time >= h'] - R[h <= time < h']

So rows may come and expire in one step, and a step costs what expires: the relation is arranged by
time, and only the slice between the two horizons is read (`dbsp_wcoj.storage.range_scan`). Late are
rows with a time before h; they change nothing, be they inserted or deleted. A row without a time is
refused as well.

An example stream, a duration of 10, rows ``time``::

    inserted     3        12         5          25         9
    horizon      -7       2          2          15         15
    out          +3       +12        +5         +25 -3     (late)
                                                -12 -5

Only insertions move the horizon: a deletion speaks of the past. They count before weights are added
up, so that steps can be taken together: the sum of the output is the same. A row with a time far in
the future expires all others; who cannot exclude that filters before.

The horizon is a mark of the circuit, a code of the column. The way not taken: a watermark per
source, as Spark has it. A caller who has one gives it to ``prepare``.
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

_LEAST: Final = NULL + 1
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9


class RetentionBound:
    """The column of times of an input, and how long its rows are kept.

    Args:
        schema: The input's columns.
        retain: The column and the duration.
        codecs: The codes of values.
        groups: Functions of the time, which is their column 0, that never fall as it grows; rows
            for which one of them has the same value expire together.

    Raises:
        InputOptionsError: There is no such column, or it does not go with the duration.
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
        self.keeps = retain.keeps
        self._relation = schema.relation
        self._units = retain.units(self.type)
        self._codecs = codecs
        self._groups = tuple(groups)
        self.expired_before = lru_cache(maxsize=4)(self._expired_before)

    def order(self, arity: int) -> ColumnOrder:
        """The time, then the other columns."""
        return self.place, *(c for c in range(arity) if c != self.place)

    def bound(self, time: int) -> int:
        """The horizon that a time moves to, if it is not there yet."""
        return max(time - self._units, _LEAST)

    def bound_of(self, times: Int64Array) -> int | None:
        """The horizon that the greatest of some times moves to; None without a time."""
        latest = int(times.max(initial=NULL))
        return None if latest == NULL else self.bound(latest)

    def watermark(self, value: Any) -> int:
        """The horizon that a watermark moves to.

        Raises:
            InputOptionsError: It is not of the column's type.
        """
        code = self._code(value)
        if code is None:
            zone = "" if not types.is_timestamp(self.type) else " (with a zone if that has one)"
            raise InputOptionsError(
                f"input {self._relation!r}: the watermark {value!r} is of {type(value).__name__}, "
                f"not a value of {self.type}: give one{zone}"
            )
        return self.bound(code)

    def expired(self, trace: Trace, before: int | None, horizon: int) -> ZSet:
        """The rows of the trace from the horizon before on that are before this one."""
        low = _LEAST if before is None else before
        if horizon <= low:
            return ZSet.empty(trace.arity)
        return range_scan(trace, self.order(trace.arity), low, horizon - 1)

    def _expired_before(self, horizon: int) -> int:
        """The time before which rows leave the state: the horizon, or the start of its groups.

        Complexity:
            About ten evaluations of each function, on at most 64 times each.
        """
        while True:
            found = horizon
            for function in self._groups:
                found = self._first_of_group(function, found)
            if found == horizon:
                return found
            horizon = found

    def _first_of_group(self, function: Expression, time: int) -> int:
        """The least time of which a function has the value that it has of this one."""
        last, step = time, 1
        while last > _LEAST:  # gallop down until the value is another one
            times = [max(last - (step << k), _LEAST) for k in range(16)]
            same = self._same(function, time, times)
            if not all(same):
                first = same.index(False)
                low, last = times[first], times[first - 1] if first else last
                break
            last, step = times[-1], step << 16
        else:
            return _LEAST
        while last - low > 1:  # the value at ``low`` differs, that at ``last`` does not
            times = sorted({low + (last - low) * k // 64 for k in range(1, 64)} - {low, last})
            same = self._same(function, time, times)
            first = same.index(True) if True in same else len(times)
            low = times[first - 1] if first else low
            last = times[first] if first < len(times) else last
        return last

    def _same(self, function: Expression, time: int, times: Sequence[int]) -> list[bool]:
        """For which times a function has the value that it has of one; where it has none: not."""
        codes = np.array([time, *times])
        try:
            values = evaluate(function, [self._codecs.codec(self.type).decode(codes)], len(codes))
        except EvaluationError:
            if len(times) <= 1:
                return [False] * len(times)
            return [same for one in times for same in self._same(function, time, [one])]
        found = self._codecs.codec(function.type).encode(values)
        return [bool(same) for same in found[1:] == found[0]]

    def shown(self, horizon: int) -> Any:
        """A horizon as a value."""
        array = self._codecs.codec(self.type).decode(np.array([horizon]))
        return array.cast(pa.string())[0].as_py()

    def _code(self, value: Any) -> int | None:
        """The code of a value, that of the last time not after it; None if it is of another type.

        So a watermark in microseconds does for a column of days.
        """
        if isinstance(value, pa.Scalar) and not value.is_valid:
            return None
        if types.is_integer(self.type):
            code = None if isinstance(value, bool) else self._codecs.codec(self.type).code_of(value)
            return None if code == NULL else code
        nanoseconds = _nanoseconds(value, self.type)
        if nanoseconds is None:
            return None
        unit = _DAY if types.is_date32(self.type) else _NANOSECONDS["ms"]
        if types.is_timestamp(self.type):
            unit = _NANOSECONDS[self.type.unit]
        return nanoseconds // unit


def late(times: Int64Array, horizon: int | None) -> BoolArray:
    """Which times are before a horizon, NULL not among them."""
    if horizon is None:
        return np.zeros(len(times), np.bool_)
    found: BoolArray = (times < horizon) & (times != NULL)
    return found


def _nanoseconds(value: Any, type: pa.DataType) -> int | None:
    """Nanoseconds since 1970 of a datetime, date or Arrow scalar that goes with a type of times."""
    zoned = types.is_timestamp(type) and type.tz is not None
    if isinstance(value, pa.TimestampScalar):
        if (value.type.tz is not None) != zoned:
            return None
        return int(value.value) * _NANOSECONDS[value.type.unit]
    if isinstance(value, datetime):
        if (value.tzinfo is not None) != zoned:
            return None
        scalar = pa.scalar(value, pa.timestamp("us", tz="UTC" if zoned else None))
        return int(scalar.value) * _NANOSECONDS["us"]
    if types.is_date(type):
        if isinstance(value, pa.Date32Scalar):
            return int(value.value) * _DAY
        if isinstance(value, pa.Date64Scalar):
            return int(value.value) * _NANOSECONDS["ms"]
        if isinstance(value, date):
            return int(pa.scalar(value, pa.date32()).value) * _DAY
    return None
