"""Retention: keep the rows whose event time is not before the watermark, which never decreases.

With the watermark h before a step, h' after it, and d the delta without late rows::

    h'  =  max(h, greatest time of the inserted rows - duration, source watermark - duration)
    R'  =  (R + d)[time >= h']
    R^Δ =  d[time >= h'] - R[h <= time < h']

R is the relation and R^Δ its change in the step. So a row may be inserted and expire in one step. A
step costs time in proportion to the rows that expire: the relation is sorted by time, and only the
range between the two watermarks is read (`dbsp_wcoj.storage.range_scan`). A row with a time before
h is late: it changes nothing, whether it is an insertion or a deletion. A row without a time is
rejected as well.

An example stream of rows ``time``, with a duration of 10::

    inserted     3        12         5          25         9
    watermark    -7       2          2          15         15
    output       +3       +12        +5         +25 -3     (late)
                                                -12 -5

Only insertions advance the watermark: a deletion refers to the past. An insertion advances it even
if a deletion in the same step cancels the row, so several steps can be merged into one: the sum of
the outputs is the same. A row with a time far in the future expires all others; filter such rows
before the input if they can occur.

The watermark is part of the circuit's state: one int64 code of the time column per input.

An input with `Lateness` has a watermark, too, and rejects late rows in the same way. The duration
is the lateness, and is not subtracted from the source watermark, because the source has already
subtracted its own lateness::

    h'  =  max(h, greatest time of the inserted rows - lateness, source watermark)

With `Retention` as well, rows expire ``retain - lateness`` before this watermark. Without it, they
do not expire, and the input has no trace.

Alternative considered: one watermark per source, as in Spark. A caller with such a watermark passes
it to ``prepare``.
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
from circuits.inputs.input_options import InputOptions, Lateness, Retention
from circuits.plan.event_time import EventTime
from circuits.plan.expressions import Column, Expression
from circuits.runtime.code_evaluation import CodeEvaluator
from circuits.runtime.evaluation import evaluate
from circuits.runtime.row_batch import RowBatch
from circuits.schema import Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import MAX_INT64, Int64Array

__all__ = ["EventTimeBound", "late_mask"]

_MIN_CODE: Final = NULL + 1
_NANOSECONDS_PER_UNIT: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NANOSECONDS_PER_DAY: Final = 86_400 * 10**9


class EventTimeBound:
    """The event time column of an input, how late its rows may be, and how long they are kept.

    Args:
        schema: The input's columns.
        options: The options of the input, with lateness or retention.
        codecs: The codes of values.
        groups: Non-decreasing functions of the time, as expressions in which the time is column 0.
            Rows with the same value of one of these functions expire together.
        computed: The event time that the declaration of the input computes; None without one.

    Raises:
        InputOptionsError: The column does not exist, or its type does not fit a duration.

    Attributes:
        time_column: The position of the event time; None if it is computed.
        type: Its type.
        span: The option with the duration from the newest row back to the watermark: the lateness,
            or the retention of an input without lateness.
        has_expiry: True if rows expire.
        keeps_results: True if published results stay when their rows expire.
        expiry_delay: The time between the watermark and the limit of expiry, in the column's units.
    """

    def __init__(
        self,
        schema: Schema,
        options: InputOptions,
        codecs: Codecs,
        groups: Sequence[Expression] = (),
        computed: EventTime | None = None,
    ) -> None:
        lateness, retain = options.lateness, options.retain
        for span, name in ((retain, "retention"), (lateness, "lateness")):
            if span is None or span.column in schema.columns:
                continue
            if computed is None or span.column != computed.name:
                raise InputOptionsError(
                    f"input {schema.relation!r}: unknown {name} column {span.column!r}; columns: "
                    f"{', '.join(schema.columns)}; a computed column is known if it has a "
                    "WATERMARK and a view reads the table"
                )
            if span is retain:
                raise InputOptionsError(
                    f"input {schema.relation!r}: retention by the computed column "
                    f"{span.column!r}: rows are kept by a column that they have: retain them by "
                    f"one of {', '.join(schema.columns)}"
                )
        span = lateness or retain
        assert span is not None
        self.span: Lateness | Retention = span
        self.time_column: int | None = None
        if span.column in schema.columns:
            self.time_column = schema.columns.index(span.column)
            field = schema.fields[self.time_column]
            self._time: Expression = Column(self.time_column, field.type)
        else:
            assert computed is not None
            self._time = computed.expression
        self.type = self._time.type
        self.has_expiry = retain is not None
        self.keeps_results = retain is not None and retain.keeps_results
        self._relation = schema.relation
        # In units of the column: from the newest row to the watermark, from this to the limit of
        # expiry.
        self._watermark_delay = span.units(self.type)
        self.expiry_delay = 0 if retain is None else retain.units(self.type) - self._watermark_delay
        # The least and the greatest code of the type. A watermark or limit before the least one is
        # possible; no row is before it.
        self._min_code, self._max_code = _code_range(self.type)
        self._codecs = codecs
        self._column_codecs = [codecs.codec(field.type) for field in schema.fields]
        self._column_names = [field.name for field in schema.fields]
        self._groups = tuple(groups)
        # Each step needs the same few limits several times, and a search is slow.
        self._group_start = lru_cache(maxsize=4)(self._find_group_start)

    def order(self, arity: int) -> ColumnOrder:
        """Return the column order of the trace: the time, then the other columns."""
        assert self.time_column is not None  # rows expire by a column that they have
        return self.time_column, *(c for c in range(arity) if c != self.time_column)

    def times(self, rows: Sequence[Int64Array] | Int64Array) -> Int64Array:
        """Return the event times of rows, given by column, as codes.

        Raises:
            EvaluationError: A computed event time has no value for a row.
        """
        if self.time_column is not None:
            times: Int64Array = rows[self.time_column]
            return times
        columns = np.stack(list(rows))
        zset = ZSet(columns, np.ones(columns.shape[1], np.int64))
        batch = RowBatch(zset, self._column_codecs, self._codecs, self._column_names)
        return np.broadcast_to(CodeEvaluator(batch, None).codes(self._time), len(zset))

    def expiry_limit(self, watermark: int) -> int:
        """Return the time before which rows expire, for a watermark of the input."""
        limit = max(watermark - self.expiry_delay, _MIN_CODE)
        return self._group_start(limit) if self.keeps_results else limit

    @property
    def expiry_text(self) -> str:
        """The text after "watermark" in messages, such as " - 10 ticks of int64"; or empty."""
        units = f" - {self.expiry_delay:,} ticks of {self.type}"
        return units if self.has_expiry and self.expiry_delay else ""

    def watermark_after(self, time: int) -> int:
        """Return the watermark that a row gives: its event time less the duration."""
        return max(time - self._watermark_delay, _MIN_CODE)

    def watermark_after_all(self, times: Int64Array) -> int | None:
        """Return the watermark that rows with these times give; None if all times are NULL."""
        latest = int(times.max(initial=NULL))
        return None if latest == NULL else self.watermark_after(latest)

    def encode_watermark(self, value: Any) -> int:
        """Return the watermark of the input, as a code, for a watermark of its source.

        Raises:
            InputOptionsError: The value is not of the type of the column, or is too late for it.
        """
        code = self._code(value)
        if code is not None and code > self._max_code:
            raise InputOptionsError(
                f"input {self._relation!r}: the watermark {value!r} is after the last time of "
                f"type {self.type}: give at most {self.format_time(self._max_code)}"
            )
        if code is None:
            zone = ""
            if types.is_timestamp(self.type):
                zone = " without a time zone" if self.type.tz is None else " with a time zone"
            raise InputOptionsError(
                f"input {self._relation!r}: the watermark {value!r} is of {type(value).__name__}, "
                f"but the time column is of type {self.type}: give a value of that type{zone}"
            )
        if isinstance(self.span, Lateness):
            return max(code, _MIN_CODE)  # the source has subtracted its own lateness
        return self.watermark_after(code)

    def expired(self, trace: Trace, previous_limit: int | None, limit: int) -> ZSet:
        """Return the rows of the trace between the previous limit of expiry and the new one."""
        low = _MIN_CODE if previous_limit is None else previous_limit
        if limit <= low:
            return ZSet.empty(trace.arity)
        return range_scan(trace, self.order(trace.arity), low, limit - 1)

    def _find_group_start(self, limit: int) -> int:
        """Return the first time of the groups that contain a limit of expiry.

        If rows before this time are deleted, no group loses only some of its rows.

        Complexity:
            About ten evaluations of each function, on at most 64 times each.
        """
        while limit > self._min_code:
            start = limit
            for function in self._groups:
                start = self._first_of_group(function, start)
            if start == limit:
                return start
            limit = start
        return limit

    def _first_of_group(self, function: Expression, time: int) -> int:
        """Return the least time for which a function has the same value as for ``time``."""
        # Invariant: the value at ``in_group`` is the same; after the first loop, the value at
        # ``outside`` is different.
        in_group, step = time, 1
        while in_group > self._min_code:  # step down, with steps of doubling size
            times = [max(in_group - (step << k), self._min_code) for k in range(16)]
            same = self._has_same_value(function, time, times)
            if not all(same):
                first_other = same.index(False)
                outside = times[first_other]
                in_group = times[first_other - 1] if first_other else in_group
                break
            in_group, step = times[-1], step << 16
        else:
            return self._min_code
        while in_group - outside > 1:  # divide the range between the two into 64 parts
            width = in_group - outside
            times = sorted({outside + width * k // 64 for k in range(1, 64)} - {outside, in_group})
            same = self._has_same_value(function, time, times)
            first_same = same.index(True) if True in same else len(times)
            outside = times[first_same - 1] if first_same else outside
            in_group = times[first_same] if first_same < len(times) else in_group
        return in_group

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
            return [self._has_same_value(function, time, [other])[0] for other in times]
        value_codes = self._codecs.codec(function.type).encode(values)
        return [bool(same) for same in value_codes[1:] == value_codes[0]]

    def decode_time(self, watermark: int) -> pa.Scalar:
        """Return a watermark as a value of the type of the event time.

        A watermark before the least value of the type is returned as that value.
        """
        code = min(max(watermark, self._min_code), self._max_code)
        return self._codecs.codec(self.type).decode(np.array([code]))[0]

    def format_time(self, watermark: int) -> Any:
        """Return a watermark as a text for messages."""
        return self.decode_time(watermark).cast(pa.string()).as_py()

    def _code(self, value: Any) -> int | None:
        """Return the code of a value, rounded down to the column's unit; None for another type.

        Rounding lets a watermark in microseconds be used for a column of days.
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


def _code_range(type: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest code of a type of event times."""
    if types.is_date32(type):
        type = pa.int32()
    if types.is_integer(type) and not types.is_uint64(type):  # of which each number is a code
        limits = np.iinfo(type.to_pandas_dtype())
        return max(int(limits.min), _MIN_CODE), int(limits.max)
    return _MIN_CODE, MAX_INT64


def late_mask(times: Int64Array, watermark: int | None) -> BoolArray:
    """Return a mask of the times before a watermark, except NULL."""
    if watermark is None:
        return np.zeros(len(times), np.bool_)
    mask: BoolArray = (times < watermark) & (times != NULL)
    return mask


def _nanoseconds(value: Any, type: pa.DataType) -> int | None:
    """Return the nanoseconds since 1970 of a datetime, date or Arrow scalar.

    None if the value does not fit the type of the column, for example if only one has a time zone.
    """
    has_zone = types.is_timestamp(type) and type.tz is not None
    if isinstance(value, pa.TimestampScalar):
        if (value.type.tz is not None) != has_zone:
            return None
        return int(value.value) * _NANOSECONDS_PER_UNIT[value.type.unit]
    if isinstance(value, datetime):
        if (value.tzinfo is not None) != has_zone:
            return None
        scalar = pa.scalar(value, pa.timestamp("us", tz="UTC" if has_zone else None))
        return int(scalar.value) * _NANOSECONDS_PER_UNIT["us"]
    if types.is_date(type):
        if isinstance(value, pa.Date32Scalar):
            return int(value.value) * _NANOSECONDS_PER_DAY
        if isinstance(value, pa.Date64Scalar):
            return int(value.value) * _NANOSECONDS_PER_UNIT["ms"]
        if isinstance(value, date):
            return int(pa.scalar(value, pa.date32()).value) * _NANOSECONDS_PER_DAY
    return None
