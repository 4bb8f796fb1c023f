"""Format numbers as text: format_number, printf, and floats as Java writes them.

``printf`` has the conversions ``%s %d %f %e %x %X %o %c %b %%`` with flags, width, precision and
positions (``%2$s``); its results are those of Java. Each function runs once per distinct row of
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.length_limits import MAX_STRING_BYTES
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.type_rules import is_number, is_text

__all__ = ["FUNCTIONS", "exact_decimal", "java_float", "java_floats"]

_TEXT: Final = pa.string()
# The groups are the width and the precision of a directive of C; * is a size that is an argument.
_C_SIZES: Final = re.compile(r"%(?:\(\w*\))?[-#+ 0]*(\d+|\*)?(?:\.(\d+|\*))?")
_DIRECTIVE: Final = re.compile(r"%(\d+\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def _too_long_error() -> ValueError:
    return ValueError(
        f"the result would be longer than {MAX_STRING_BYTES:,} bytes, which is the limit of texts "
        "that functions return"
    )


def exact_decimal(value: float | int | Decimal) -> Decimal:
    """Return a number as a decimal; a float as its shortest decimal text."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _round(value: Decimal, digits: int, rounding: str) -> Decimal:
    with localcontext() as context:
        context.prec = 400
        return value.quantize(Decimal(1).scaleb(-digits), rounding=rounding)


def _format_number(value: Any, digits: int) -> str | None:
    if digits < 0:
        return None
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, float) and abs(value) == float("inf"):
        return "∞" if value > 0 else "-∞"
    number = _round(exact_decimal(value), digits, ROUND_HALF_EVEN)
    return f"{number:,.{digits}f}"


def _format_number_pattern(value: Any, pattern: str) -> str:
    """Format with a pattern of ``#``, ``0``, ``,`` and ``.``, as Java's DecimalFormat."""
    if not re.fullmatch(r"[#,0]*(?:\.[0#]*)?", pattern):
        raise ValueError(f"the pattern {pattern!r} has other characters than # 0 , .")
    integer_pattern, _, fraction = pattern.partition(".")
    number = _round(exact_decimal(value), len(fraction), ROUND_HALF_EVEN)
    text = f"{number.copy_abs():f}"
    integer_digits, _, fraction_digits = text.partition(".")
    min_fraction_digits = fraction.count("0")
    while len(fraction_digits) > min_fraction_digits and fraction_digits.endswith("0"):
        fraction_digits = fraction_digits[:-1]
    min_integer_digits = integer_pattern.count("0")
    integer_digits = integer_digits.lstrip("0").rjust(min_integer_digits, "0")
    if "," in integer_pattern:
        group_size = len(integer_pattern) - integer_pattern.rindex(",") - 1
        groups: list[str] = []
        while len(integer_digits) > group_size > 0:
            groups.insert(0, integer_digits[-group_size:])
            integer_digits = integer_digits[:-group_size]
        integer_digits = ",".join([integer_digits, *groups])
    if not integer_digits and not fraction_digits:
        integer_digits = "0"
    return (
        ("-" if number < 0 else "")
        + integer_digits
        + (f".{fraction_digits}" if fraction_digits else "")
    )


def _java_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return java_float(value)
    return str(value)


def java_float(value: float, shortest: str = "") -> str:
    """Return a float as Java and Spark write it: ``1.0E10``, ``1.0E-4``, ``NaN``, ``Infinity``.

    Args:
        value: The float.
        shortest: Its shortest decimal text, if that is not ``repr(value)``, as for 32 bits.
    """
    shortest = shortest or repr(value)
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(shortest):f}"
        return text if "." in text else text + ".0"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    while len(digits) > 1 and digits[-1] == 0:
        digits, exponent = digits[:-1], int(exponent) + 1
    mantissa = f"{digits[0]}.{''.join(map(str, digits[1:])) or '0'}"
    return f"{'-' if sign else ''}{mantissa}E{int(exponent) + len(digits) - 1}"


def java_floats(floats: pa.Array) -> pa.Array:
    """Return a column of floats as `java_float` writes them."""
    encoded = pc.dictionary_encode(floats)
    # str() of a float32 of numpy is its shortest text; repr() of it as a float of Python is longer.
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    texts = [java_float(float(value), str(value)) for value in values]
    return pa.array(texts, _TEXT).take(encoded.indices)


def _java_floats(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(java_floats(fill_rows(arguments[0], row_count(arguments))), result_type)


def _java_float_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    value = arguments[0]
    if not arrow.is_float32(value.type):
        value = cast_to(value, pa.float64())
    return (value,), _TEXT


def _printf(pattern: str | None, *values: Any) -> str | None:
    """Format as Java's String.format."""
    if pattern is None:
        return None
    next_index = length = 0
    pieces: list[str] = []
    end = 0
    for match in _DIRECTIVE.finditer(pattern):
        if "%" in pattern[end : match.start()]:
            raise ValueError(f"{pattern!r} has an incomplete % directive")
        pieces.append(pattern[end : match.start()])
        end = match.end()
        position, flags, width, precision, conversion = match.groups()
        if max(int(width or 0), int(precision or 0)) + length > MAX_STRING_BYTES:
            raise _too_long_error()
        if conversion in "%n":
            pieces.append(("%" if conversion == "%" else "\n").rjust(int(width or 0)))
            continue
        if position:
            index = int(position[:-1]) - 1
        else:
            index, next_index = next_index, next_index + 1
        if not 0 <= index < len(values):
            raise ValueError(f"{match[0]} in {pattern!r} has no argument")
        text = _format_directive(values[index], flags, int(width or 0), precision, conversion)
        pieces.append(text)
        length += len(text)
    if "%" in pattern[end:]:
        raise ValueError(f"{pattern!r} has an incomplete % directive")
    return "".join([*pieces, pattern[end:]])


def _format_directive(
    value: Any, flags: str, width: int, precision: str | None, conversion: str
) -> str:
    """Format one value; ``conversion`` is the letter at the end of the directive."""
    lower = conversion.lower()
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if value is None and lower != "b":
        text = "null" if precision is None else "null"[: int(precision)]
    elif lower == "s":
        text = _java_text(value)
        text = text if precision is None else text[: int(precision)]
    elif lower == "b":
        text = str(bool(value) if isinstance(value, bool) else value is not None).lower()
    elif lower == "c" and isinstance(value, int | str):
        text = chr(value) if isinstance(value, int) else value[:1]
    elif lower == "d" and isinstance(value, int) and is_number:
        text = f"{abs(value):{',' if ',' in flags else ''}d}"
    elif lower in "xo" and isinstance(value, int) and is_number:
        # Java formats a negative int as 32 bits in two's complement, a long as 64 bits.
        modulus = 2**32 if value >= -(2**31) else 2**64
        unsigned = value % modulus if value < 0 else value
        text = f"{unsigned:{lower}}"
        text = ("0x" if lower == "x" else "0") + text if "#" in flags else text
    elif lower in "fe" and isinstance(value, float | Decimal):
        digits = 6 if precision is None else int(precision)
        if isinstance(value, float) and not abs(value) < float("inf"):
            text = java_float(abs(value))
        elif lower == "f":
            rounded = abs(_round(exact_decimal(value), digits, ROUND_HALF_UP))
            text = f"{rounded:{',' if ',' in flags else ''}.{digits}f}"
        else:
            text = f"{abs(exact_decimal(value)):.{digits}e}"
            text = re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", text)
    else:
        raise ValueError(f"%{conversion} does not format {value!r}")
    if lower in "dfe" and value is not None:
        is_negative = value < 0
        digits_width = width - (is_negative or "+" in flags or " " in flags)
        if "0" in flags:
            text = text.rjust(digits_width, "0")
        if is_negative:
            text = f"({text})" if "(" in flags else "-" + text
        elif "+" in flags:
            text = "+" + text
        elif " " in flags:
            text = " " + text
    elif "0" in flags and lower in "xo":
        text = text.rjust(width, "0")
    if conversion.isupper():
        text = text.upper()
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _c_printf(pattern: str, *values: Any) -> str:
    """Format as C's printf."""
    sizes = [part for match in _C_SIZES.finditer(pattern) for part in match.groups() if part]
    length = sum(int(size) for size in sizes if size != "*")
    if "*" in sizes:  # a size may be any of the integers
        length += sum(abs(value) for value in values if isinstance(value, int))
    if length > MAX_STRING_BYTES:
        raise _too_long_error()
    try:
        return pattern % values
    except (TypeError, KeyError) as error:
        raise ValueError(f"the format {pattern!r} does not suit its arguments: {error}") from None


def _printf_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    pattern = arguments[0]
    if arrow.is_null(pattern.type):
        pattern = cast_to(pattern, _TEXT)
    if not is_text(pattern.type):
        raise argument_error(name, arguments, "the format is a text")
    typed = [pattern]
    for argument in arguments[1:]:
        if is_number(argument.type) or is_text(argument.type) or arrow.is_boolean(argument.type):
            typed.append(argument)
        else:
            typed.append(cast_to(argument, _TEXT))
    return tuple(typed), _TEXT


def _format_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    parameters = "nt" if is_text(arguments[1].type) else "ni"
    return Signature(parameters, _TEXT)(name, arguments, target_type)


def _format_number_any(value: Any, digits_or_pattern: int | str) -> str | None:
    if isinstance(digits_or_pattern, str):
        return (
            _format_number_pattern(value, digits_or_pattern)
            if digits_or_pattern
            else _format_number(value, 0)
        )
    return _format_number(value, digits_or_pattern)


FUNCTIONS = (
    Function(
        "format_number",
        "a with b digits and commas, or in the pattern b",
        _format_rule,
        per_distinct_row(_format_number_any),
    ),
    Function(
        "printf",
        "the format a with the other arguments in place of its % directives",
        _printf_rule,
        per_distinct_row(_printf, nulls=True),
    ),
    Function(
        "c_printf",
        "as printf, in the format of C",
        _printf_rule,
        per_distinct_row(_c_printf),
    ),
    Function(
        "java_float",
        "a float as Java writes it: 1.0E10, NaN, Infinity",
        _java_float_rule,
        _java_floats,
    ),
)
