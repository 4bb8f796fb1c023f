"""Intervals: products and quotients with numbers, and texts, as in Spark.

The unit of an interval is a microsecond. A product with an integer is exact; another product or a
quotient is rounded half away from zero. An overflow of 64 bits is an error, and so is a division by
zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.interval_texts import parse_span
from circuits.types.functions.dates.interval_values import (
    divide_parts,
    multiply_parts,
    scaling_rule,
)
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.type_rules import is_interval, is_number

__all__ = ["FUNCTIONS"]

_DURATION = pa.duration("us")


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    interval, number = arguments
    if interval.type == INTERVAL:
        return scaling_rule(name, arguments)
    if not arrow.is_duration(interval.type) or not is_number(number.type):
        raise argument_error(name, arguments, "it takes an interval and a number")
    is_exact = arrow.is_integer(number.type) and name == "multiply_interval"
    target = pa.int64() if is_exact else pa.float64()
    return (cast_to(interval, _DURATION), cast_to(number, target)), _DURATION


def _multiply(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    if result_type == INTERVAL:
        return multiply_parts(arguments)
    micros, number = _microseconds_and_number(arguments)
    if arrow.is_integer(number.type):
        return pc.cast(pc.multiply_checked(micros, number), result_type)
    return _round(pc.multiply(pc.cast(micros, pa.float64(), safe=False), number), result_type)


def _divide(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    if result_type == INTERVAL:
        return divide_parts(arguments)
    micros, number = _microseconds_and_number(arguments)
    if pc.any(pc.and_(pc.equal(number, 0.0), pc.is_valid(micros))).as_py():
        raise pa.ArrowInvalid("division by zero")
    return _round(pc.divide(pc.cast(micros, pa.float64(), safe=False), number), result_type)


def _microseconds_and_number(arguments: Sequence[Values]) -> list[Any]:
    rows = row_count(arguments)
    interval, number = (fill_rows(values, rows) for values in arguments)
    return [pc.cast(interval, pa.int64()), number]


def _round(micros: pa.Array, data_type: pa.DataType) -> pa.Array:
    whole = pc.round(micros, round_mode="half_towards_infinity")
    return pc.cast(pc.cast(whole, pa.int64()), data_type)


#: The fields of an interval with the microseconds of their units.
_FIELDS: Final = {
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}


def _text_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 3, 3)
    if not is_interval(arguments[0].type):
        raise argument_error(name, arguments, "it takes an interval and two fields")
    if arguments[0].type == INTERVAL:
        return arguments, pa.string()
    return (cast_to(arguments[0], _DURATION), *arguments[1:]), pa.string()


def _text(interval: timedelta | pa.MonthDayNano, first: str, last: str) -> str:
    """Return ``INTERVAL '1 02:03' DAY TO MINUTE`` for the fields from DAY to MINUTE."""
    if isinstance(interval, pa.MonthDayNano):
        return _month_text(interval.months, first, last)
    names = list(_FIELDS)
    names = names[names.index(first) : names.index(last) + 1]
    micros = interval // timedelta(microseconds=1)
    remaining, parts = abs(micros), []
    for name in names:
        number, remaining = divmod(remaining, _FIELDS[name])
        parts.append(str(number) if name == "DAY" else f"{number:02}")
    if last == "SECOND" and remaining:
        parts[-1] += f".{remaining:06}".rstrip("0")
    separators = [" " if name == "DAY" else ":" for name in names[:-1]]
    value = "".join(part + end for part, end in zip(parts, [*separators, ""], strict=True))
    fields = first if first == last else f"{first} TO {last}"
    return f"INTERVAL '{'-' if micros < 0 else ''}{value}' {fields}"


def _month_text(months: int, first: str, last: str) -> str:
    """Return ``INTERVAL '1-2' YEAR TO MONTH``, or the text of one of these fields."""
    sign = "-" if months < 0 else ""
    years, rest = divmod(abs(months), 12)
    if first != last:
        return f"INTERVAL '{sign}{years}-{rest}' {first} TO {last}"
    return f"INTERVAL '{sign}{years if first == 'YEAR' else abs(months)}' {first}"


def _parse_spark(text: str, first: str, last: str, lenient: bool) -> int | None:
    """Return the months or microseconds of a text such as ``1-2`` or ``3 04:05:06.7``.

    The text may also be a whole literal, such as ``INTERVAL '1-2' YEAR TO MONTH``.
    """
    fields = first if first == last else f"{first} TO {last}"
    literal = re.fullmatch(rf"\s*interval\s*([+-]?)\s*'(.*)'\s*{fields}\s*", text, re.IGNORECASE)
    sign, body = (literal[1], literal[2]) if literal else ("", text)
    body = body.strip()
    if body[:1] in ("+", "-"):
        sign, body = ("-" if (body[0] == "-") != (sign == "-") else ""), body[1:]
    amount = parse_span(body, first.lower(), last.lower(), limits_hours=True)
    if amount is None:
        if lenient:
            return None
        raise ValueError(f"{text!r} cannot be cast to INTERVAL {fields}")
    total = amount.months + (amount.days * 86_400_000_000 + amount.microseconds)
    return -total if sign == "-" else total


FUNCTIONS = (
    Function(
        "parse_interval",
        "the months or microseconds of the text a with the fields from b to c; NULL if d allows it",
        Signature("tttb", pa.int64()),
        per_distinct_row(_parse_spark),
    ),
    Function("multiply_interval", "the interval a times the number b", _rule, _multiply),
    Function(
        "divide_interval", "the interval a by the number b; an error where b is 0", _rule, _divide
    ),
    Function(
        "interval_text",
        "the interval a as a literal with the fields from b to c",
        _text_rule,
        per_distinct_row(_text),
    ),
)
