"""Codes of expressions: computed from the codes of columns, without decoding, where possible.

================================ ==================================================================
a column, a literal              its codes, its code
cast between equal codes         the codes of its argument
greatest of ordered codes        the greatest code; NULL has the least code
is_true                          the truth of its argument (`circuits.runtime.predicates`)
case of comparisons              the codes of the chosen columns and literals
add, subtract, multiply          arithmetic on the codes of numbers (`code_arithmetic`)
time_bucket, date_add            arithmetic on ticks, if no row overflows or is infinite
formats of a timestamp           the codes of the texts, one for each day, hour, minute or second
all others                       evaluated in Arrow (`circuits.runtime.evaluation`), then encoded
================================ ==================================================================

Each distinct call is computed once per batch.

Cost: a few passes of numpy per call; decoding, a kernel and encoding for the others.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce

import numpy as np
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime.code_arithmetic import (
    Arithmetic,
    arithmetic_of,
    numbers_of_codes,
    with_nulls,
)
from circuits.runtime.evaluation import evaluate
from circuits.runtime.predicates import (
    cached_by_codecs,
    compares_codes,
    ordered_code,
    true_rows,
    truth,
)
from circuits.runtime.row_batch import RowBatch, keeps_codes
from circuits.types.codecs.codec import NULL, Codecs
from circuits.types.functions.casting.time_units import DAY_US, INFINITE, MAX_TIMESTAMP_DAY
from circuits.types.functions.dates.date_formats import finest_unit, format_seconds
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.zset import Int64Array

__all__ = ["CodeEvaluator"]

_TICKS_PER_MICROSECOND = {"us": 1, "ns": 1000}
# The units that `finest_unit` returns, except microseconds.
_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


class CodeEvaluator:
    """Computes the codes of expressions over one batch.

    Args:
        batch: The rows.
        budget: Counts the bytes of values that are computed in Arrow; None for no limit.
    """

    def __init__(self, batch: RowBatch, budget: Budget | None) -> None:
        self._batch = batch
        self._budget = budget
        self._results: dict[Expression, Int64Array | int] = {}

    def codes(self, expression: Expression) -> Int64Array | int:
        """Return the code of an expression for each row, or one code for all rows.

        Raises:
            EvaluationError: The expression has no value for a row.
            SchemaError: The value of a row has no code.
            LimitError: The values exceed the step's limit of bytes.
        """
        if isinstance(expression, Column):
            return self._batch.codes(expression.index)
        if isinstance(expression, Literal) and expression.value is None:
            return NULL
        if expression not in self._results:
            codes = None
            if isinstance(expression, Call):
                with suppress(SchemaError):  # the value of an argument has no code
                    codes = self._from_codes(expression)
            self._results[expression] = self._from_values(expression) if codes is None else codes
        return self._results[expression]

    def _from_values(self, expression: Expression) -> Int64Array | int:
        codec = self._batch.codecs.codec(expression.type)
        if isinstance(expression, Literal):
            code = ordered_code(expression) if codec.ordered else None
            return int(codec.encode(evaluate(expression, (), 1))[0]) if code is None else code
        values = evaluate(expression, self._batch, self._batch.rows, self._batch.names)
        if self._budget is not None:
            self._budget.add_bytes(values.nbytes)
        return codec.encode(values)

    def _from_codes(self, call: Call) -> Int64Array | int | None:
        """Return the codes of a call; None if they cannot be computed from codes."""
        arguments, codecs = call.arguments, self._batch.codecs
        match call.function:
            case "cast" if keeps_codes(arguments[0].type, call.type, codecs):
                return self.codes(arguments[0])
            case "is_true":
                return truth(call, self._batch).true.astype(np.int64)
            case "greatest" if self._is_ordered(call):
                return reduce(np.maximum, map(self.codes, arguments))
            case "case" if _chooses_codes(call, codecs):
                return self._choose(call)
            case "time_bucket" if arguments[0].type == call.type:
                return self._bucket(call)
            case "date_add" if arguments[0].type == call.type:
                return self._add_microseconds(call)
            case "strftime" | "date_format":
                return self._format(call)
        arithmetic = _arithmetic_of(call, codecs)
        return None if arithmetic is None else self._compute(call, arithmetic)

    def _compute(self, call: Call, arithmetic: Arithmetic) -> Int64Array | int | None:
        """Return the codes of a sum, difference or product; None if Arrow has to compute it."""
        if not self._batch.rows:
            return None
        arguments = []
        for argument in call.arguments:
            codes = self._results.get(argument)
            if codes is None and isinstance(argument, Call):
                codes = self._from_codes(argument)
                if codes is None:  # the value of an argument can be one that has no code
                    return None
                self._results[argument] = codes
            arguments.append(self.codes(argument) if codes is None else codes)
        return arithmetic.compute(arguments)

    def _is_ordered(self, call: Call) -> bool:
        """True if the codes of the arguments have the order of their values."""
        codec = self._batch.codecs.codec(call.type)
        return codec.ordered and all(a.type == call.type for a in call.arguments)

    def _choose(self, case: Call) -> Int64Array:
        *pairs, otherwise = case.arguments
        tests, values = pairs[::2], pairs[1::2]
        result = self._code(otherwise, case.type)
        # The last test is the first one here, so that the value of the first true test remains.
        for test, value in zip(reversed(tests), reversed(values), strict=True):
            matching = true_rows(test, self._batch)
            result = np.where(matching, self._code(value, case.type), result)
        assert isinstance(result, np.ndarray)  # a CASE has at least one test
        return result

    def _code(self, value: Expression, type: pa.DataType) -> Int64Array | int:
        """Return the codes of a column, or of a literal as a value of another type."""
        if isinstance(value, Literal) and value.value is not None and value.type != type:
            return self.codes(Call("cast", (value,), type))
        return self.codes(value)

    def _bucket(self, call: Call) -> Int64Array | None:
        value, *constants = call.arguments
        size, offset = (part.value for part in constants if isinstance(part, Literal))
        is_integer = pa.types.is_integer(call.type)
        if not (is_integer or pa.types.is_timestamp(call.type)) or not 0 < size < 2**62:
            return None
        ticks, is_null, greatest = numbers_of_codes(self.codes(value))
        # Otherwise the start of a bucket may be out of range.
        if greatest > _largest_ticks(call.type) - 2 * size:
            return None
        return with_nulls(ticks - (ticks - offset % size) % size, is_null)

    def _add_microseconds(self, call: Call) -> Int64Array | None:
        value, *constants = call.arguments
        months, days, micros = (part.value for part in constants if isinstance(part, Literal))
        factor = _TICKS_PER_MICROSECOND.get(call.type.unit)
        # Below 2**52 microseconds, the nanoseconds fit in int64.
        if months or days or factor is None or abs(micros) >= 2**52:
            return None
        added_ticks = micros * factor
        ticks, is_null, greatest = numbers_of_codes(self.codes(value))
        if greatest > _largest_ticks(call.type) - abs(added_ticks):
            return None
        return with_nulls(ticks + added_ticks, is_null)

    def _format(self, call: Call) -> Int64Array | None:
        """Return the codes of a format of a column; None if each row has to be formatted.

        The text is the same in a whole day, hour, minute or second, so each of them that occurs is
        formatted once.
        """
        timestamp, pattern = call.arguments
        seconds = _seconds_of_format(call, self._batch.codecs)
        if seconds is None or not isinstance(timestamp, Column) or not self._batch.rows:
            return None
        assert isinstance(pattern, Literal)
        ticks, is_null, greatest = numbers_of_codes(self._batch.codes(timestamp.index))
        if greatest > _largest_ticks(timestamp.type):
            return None
        assert isinstance(ticks, np.ndarray)
        units = ticks // (seconds * 10**6)
        present = units if is_null is None else units[~is_null]
        distinct, position_of_row = _distinct_numbers(present)
        try:
            texts = [
                format_seconds(call.function, pattern.value, number * seconds)
                for number in distinct.tolist()
            ]
        except (ValueError, OverflowError):  # `evaluate` raises the error, with its row
            return None
        formatted = pa.array(texts, call.type)
        if self._budget is not None:
            self._budget.add_bytes(formatted.nbytes)
        codes = self._batch.codecs.codec(call.type).encode(formatted)[position_of_row]
        if is_null is None:
            return codes
        result = np.full(len(is_null), NULL)
        result[~is_null] = codes
        return result


@cached_by_codecs
def _arithmetic_of(call: Call, codecs: Codecs) -> Arithmetic | None:
    return arithmetic_of(call)


@cached_by_codecs
def _chooses_codes(case: Call, codecs: Codecs) -> bool:
    """Return whether no test or value of a CASE can fail, and all are computed from codes."""
    *pairs, otherwise = case.arguments
    return all(compares_codes(test, codecs) for test in pairs[::2]) and all(
        isinstance(value, Literal)
        or (isinstance(value, Column) and keeps_codes(value.type, case.type, codecs))
        for value in (*pairs[1::2], otherwise)
    )


@cached_by_codecs
def _seconds_of_format(call: Call, codecs: Codecs) -> int | None:
    """Return the seconds of the unit in which a format of a timestamp has one text, if known."""
    timestamp, pattern = call.arguments
    if timestamp.type != pa.timestamp("us") or not isinstance(pattern, Literal):
        return None
    if pattern.value is None:
        return None
    try:
        return _SECONDS.get(finest_unit(call.function, pattern.value))
    except ValueError:  # `evaluate` raises the error if there is a row
        return None


def _distinct_numbers(numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the distinct numbers, and for each number its position among them."""
    if len(numbers) and (numbers == numbers[0]).all():
        return numbers[:1], np.zeros(len(numbers), np.int64)
    return np.unique(numbers, return_inverse=True)


def _largest_ticks(data_type: pa.DataType) -> int:
    """Return the ticks up to which a type has values, in both directions."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "us":
        return MAX_TIMESTAMP_DAY * DAY_US
    return INFINITE - 1
