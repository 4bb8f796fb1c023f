"""Format numbers as text: format_number, printf, and floats as Java writes them.

``printf`` has the conversions ``%s %d %f %e %x %X %o %c %b %%`` with flags, width, precision and
positions (``%2$s``); its results are those of Java. ``c_printf`` is that of C, as DuckDB has it:
also ``%i %u %g``, modifiers such as ``%ld``, and ``*`` for a width that is an argument. Each
function runs once per distinct row of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, localcontext
from functools import partial
from typing import Any, Final

import numpy as np
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

__all__ = ["FUNCTIONS", "exact_decimal", "java_float", "java_floats", "postgres_float_texts"]

_TEXT: Final = pa.string()
# The groups of both directives: position, flags, width, precision, letter. In C, the width and the
# precision may be *, if an argument gives them, and a modifier is before the letter.
_C_DIRECTIVE: Final = re.compile(
    r"%(?:(\d+)\$)?([-+ #0,']*)(\d+|\*)?(?:\.(\d+|\*|))?(hh|h|ll|l|j|z|t|L)?([a-zA-Z%])"
)
_C_BITS: Final = {"hh": 8, "h": 16}
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


def _format_number(value: Any, digits_or_pattern: int | str) -> str | None:
    """Format a number with digits after the point, or in a pattern, as Java's DecimalFormat."""
    if isinstance(digits_or_pattern, int) and digits_or_pattern < 0:
        return None
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if abs(value) == float("inf"):
            return "∞" if value > 0 else "-∞"
        value += 0.0  # -0.0 is 0.0
    exact = Decimal(value)  # of a float, all digits of its bits
    if isinstance(digits_or_pattern, str) and digits_or_pattern:
        return _format_in_pattern(exact, digits_or_pattern)
    digits = int(digits_or_pattern or 0)
    return f"{_round(exact, digits, ROUND_HALF_EVEN):,.{digits}f}"


def _format_in_pattern(value: Decimal, pattern: str) -> str:
    """Format in a pattern of ``#``, ``0``, ``,`` and ``.``."""
    if not re.fullmatch(r"[#,0]*(?:\.[0#]*)?", pattern):
        raise ValueError(f"the pattern {pattern!r} has other characters than # 0 , .")
    integer_pattern, point, fraction = pattern.partition(".")
    number = _round(value, len(fraction), ROUND_HALF_EVEN)
    integer_digits, _, fraction_digits = f"{number.copy_abs():f}".partition(".")
    min_integer_digits, min_fraction_digits = integer_pattern.count("0"), fraction.count("0")
    if point and "0" not in pattern:  # Java then requires the digit next to the point
        if integer_pattern:
            min_integer_digits = 1
        else:
            min_fraction_digits = 1
    while len(fraction_digits) > min_fraction_digits and fraction_digits.endswith("0"):
        fraction_digits = fraction_digits[:-1]
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
        ("-" if number.is_signed() else "")
        + integer_digits
        + (f".{fraction_digits}" if fraction_digits else "")
    )


def _java_text(value: Any, data_type: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return java_float(value, str(np.float32(value)) if arrow.is_float32(data_type) else "")
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
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    if len(digits) == 1:  # the closest of two digits: the least float is 4.9E-324, not 5E-324
        sign, digits, exponent = Decimal(f"{value:.1e}").normalize().as_tuple()
    mantissa = f"{digits[0]}.{''.join(map(str, digits[1:])) or '0'}"
    return f"{'-' if sign else ''}{mantissa}E{int(exponent) + len(digits) - 1}"


def postgres_float(value: float, shortest: str, digit_count: int) -> str:
    """Return a float as PostgreSQL writes it: ``1``, ``0.0001``, ``1e-05``, ``1.5e+15``, ``NaN``.

    Args:
        value: The float.
        shortest: Its shortest decimal text.
        digit_count: The digits that its type always keeps: 15 for 64 bits, 6 for 32 bits. A number
            with more digits before the point has an exponent.
    """
    if value != value or abs(value) == float("inf"):
        return java_float(value)
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    first = int(exponent) + len(digits) - 1  # the exponent of the first digit
    if -4 <= first < digit_count:
        return f"{Decimal(shortest).normalize():f}"
    fraction = "".join(map(str, digits[1:]))
    mantissa = f"{digits[0]}.{fraction}" if fraction else str(digits[0])
    return f"{'-' if sign else ''}{mantissa}e{first:+03d}"


def java_floats(floats: pa.Array) -> pa.Array:
    """Return a column of floats as `java_float` writes them."""
    return _format_floats(floats, java_float)


def _format_floats(floats: pa.Array, write: Callable[[float, str], str]) -> pa.Array:
    """Return the texts of a column of floats; ``write`` takes a float and its shortest text."""
    encoded = pc.dictionary_encode(floats)
    # str() of a float32 of numpy is its shortest text; repr() of it as a float of Python is longer.
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    texts = [write(float(value), str(value)) for value in values]
    return pa.array(texts, _TEXT).take(encoded.indices)


def _java_floats(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(java_floats(fill_rows(arguments[0], row_count(arguments))), result_type)


def postgres_float_texts(floats: pa.Array) -> pa.Array:
    """Return a column of floats as `postgres_float` writes them."""
    digit_count = 6 if arrow.is_float32(floats.type) else 15
    return _format_floats(floats, partial(postgres_float, digit_count=digit_count))


def _postgres_floats(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    floats = fill_rows(arguments[0], row_count(arguments))
    return pc.cast(postgres_float_texts(floats), result_type)


def _float_text_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    value = arguments[0]
    if not arrow.is_float32(value.type):
        value = cast_to(value, pa.float64())
    return (value,), _TEXT


def _directives(
    pattern: str, directive: re.Pattern[str]
) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each directive of a format with the text before it; None after the last text.

    Raises:
        ValueError: A % does not begin a directive.
    """
    end = 0
    for match in (*directive.finditer(pattern), None):
        text = pattern[end : match.start() if match else len(pattern)]
        if "%" in text:
            raise ValueError(f"{pattern!r} has an incomplete % directive")
        yield text, match
        end = match.end() if match else end


def _printf(types: Sequence[pa.DataType], pattern: str | None, *values: Any) -> str | None:
    """Format values of these types as Java's String.format."""
    if pattern is None:
        return None
    next_index = length = 0
    pieces: list[str] = []
    for text, match in _directives(pattern, _DIRECTIVE):
        pieces.append(text)
        if match is None:
            break
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
        for pair in ("-0", "+ "):
            if set(pair) <= set(flags):
                raise ValueError(f"{match[0]} in {pattern!r} has two flags that exclude each other")
        pieces.append(
            _format_directive(
                values[index], types[index], flags, int(width or 0), precision, conversion
            )
        )
        length += len(pieces[-1])
    return "".join(pieces)


def _format_directive(
    value: Any,
    data_type: pa.DataType,
    flags: str,
    width: int,
    precision: str | None,
    conversion: str,
) -> str:
    """Format one value as Java; ``conversion`` is the letter at the end of the directive."""
    lower = conversion.lower()
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if value is None and lower != "b":
        text = "null" if precision is None else "null"[: int(precision)]
    elif lower == "s":
        text = _java_text(value, data_type)
        text = text if precision is None else text[: int(precision)]
    elif lower == "b":
        text = str(bool(value) if isinstance(value, bool) else value is not None).lower()
    elif lower == "c" and isinstance(value, int | str):
        text = chr(value) if isinstance(value, int) else value[:1]
    elif lower == "d" and isinstance(value, int) and is_number:
        text = _signed(f"{abs(value):{',' if ',' in flags else ''}d}", value < 0, flags, width)
    elif lower in "xo" and isinstance(value, int) and is_number and not set("(+ ,") & set(flags):
        # A negative number is the two's complement of its type.
        text = f"{value % 2**data_type.bit_width:{lower}}"
        text = ("0x" if lower == "x" else "0") + text if "#" in flags else text
        text = text.rjust(width, "0") if "0" in flags else text
    elif lower in "fe" and isinstance(value, float | Decimal):
        digits = 6 if precision is None else int(precision)
        if isinstance(value, float) and not abs(value) < float("inf"):
            text = java_float(abs(value))
            if value == value:
                text = _signed(text, value < 0, flags.replace("0", ""), width)
        else:
            if lower == "f":
                rounded = abs(_round(exact_decimal(value), digits, ROUND_HALF_UP))
                text = f"{rounded:{',' if ',' in flags else ''}.{digits}f}"
            else:
                text = _scientific(abs(exact_decimal(value)), digits)
            text = _signed(text, value < 0, flags, width)
    else:
        raise ValueError(f"%{conversion} does not format {value!r}")
    if conversion.isupper():
        text = text.upper()
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _scientific(value: Decimal, digits: int) -> str:
    """Return a number that is not negative with one digit before the point, rounded half up."""
    if not value:
        return f"{0:.{digits}e}"
    rounded = Context(prec=digits + 1, rounding=ROUND_HALF_UP).create_decimal(value)
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", f"{rounded:.{digits}e}")


def _signed(text: str, is_negative: bool, flags: str, width: int) -> str:
    """Return the digits of a number with the sign and the zeros that flags of Java ask for."""
    if is_negative:
        before, after = ("(", ")") if "(" in flags else ("-", "")
    else:
        before, after = "+" if "+" in flags else " " if " " in flags else "", ""
    if "0" in flags:
        text = text.rjust(width - len(before + after), "0")
    return before + text + after


def _c_printf(pattern: str, *values: Any) -> str:
    """Format as C's printf; further arguments have no effect."""
    next_index = length = 0
    has_positions: bool | None = None
    pieces: list[str] = []

    def argument(position: str | None) -> Any:
        nonlocal next_index, has_positions
        if has_positions not in (None, position is not None):
            raise ValueError(f"{pattern!r} has directives with and without a position")
        has_positions = position is not None
        index = next_index if position is None else int(position) - 1
        next_index += 1
        if not 0 <= index < len(values):
            raise ValueError(f"{pattern!r} has more directives than arguments")
        return values[index]

    def size(text: str | None) -> int | None:
        value = argument(None) if text == "*" else text
        if isinstance(value, str):
            return int(value or 0)
        if value is not None and not isinstance(value, int):
            raise ValueError(f"* in {pattern!r} is not an integer")
        return value

    for text, match in _directives(pattern, _C_DIRECTIVE):
        pieces.append(text)
        if match is None:
            break
        position, flags, width_text, precision_text, modifier, conversion = match.groups()
        if match[0] == "%%":
            pieces.append("%")
            continue
        width, precision = size(width_text) or 0, size(precision_text)
        if max(abs(width), precision or 0) + length > MAX_STRING_BYTES:
            raise _too_long_error()
        if precision is not None and precision < 0:
            precision = None
        value = argument(position)
        flags += "-" if width < 0 else ""
        width = abs(width)
        if conversion in "diuxXobB" and isinstance(value, int):
            bits = _C_BITS.get(modifier, 64)
            formatted = _format_c_integer(value, flags, width, precision, bits, conversion)
        elif conversion in "eEfFgG" and isinstance(value, float | Decimal) and "," not in flags:
            digits = "" if precision is None else f".{precision}"
            formatted = f"%{flags}{width or ''}{digits}{conversion}" % float(value)
        elif conversion == "c" and isinstance(value, int):
            formatted = chr(value)
        elif conversion == "s" and isinstance(value, str | bool):
            formatted = (value if isinstance(value, str) else str(value).lower())[:precision]
        else:
            raise ValueError(f"%{conversion} does not format {value!r}")
        pieces.append(formatted.ljust(width) if "-" in flags else formatted.rjust(width))
        length += len(pieces[-1])
    return "".join(pieces)


def _format_c_integer(
    value: int, flags: str, width: int, precision: int | None, bits: int, conversion: str
) -> str:
    """Format an integer as C; a negative one without a sign is its two's complement."""
    if bits < 64 or conversion not in "di":
        value %= 2**bits
    if bits < 64 and conversion in "di" and value >= 2 ** (bits - 1):
        value -= 2**bits
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    separator = "," if "," in flags else "'" if "'" in flags else ""
    if conversion in "diu":
        digits = f"{abs(value):{',' if separator else ''}d}".replace(",", separator)
    else:
        digits = f"{value:{conversion.replace('B', 'b')}}"
        if "#" in flags and value:
            sign += "0" if conversion == "o" else f"0{conversion}"
    digits = digits.rjust(precision or 0, "0")
    if "0" in flags and "-" not in flags and precision is None:
        digits = digits.rjust(width - len(sign), "0")
    return sign + digits


def _printf_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    types = [argument.type for argument in arguments[1:]]
    return per_distinct_row(partial(_printf, types), nulls=True)(arguments, result_type)


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


FUNCTIONS = (
    Function(
        "format_number",
        "a with b digits and commas, or in the pattern b",
        _format_rule,
        per_distinct_row(_format_number),
    ),
    Function(
        "printf",
        "the format a with the other arguments in place of its % directives",
        _printf_rule,
        _printf_kernel,
    ),
    Function(
        "c_printf",
        "as printf, in a format of C",
        _printf_rule,
        per_distinct_row(_c_printf),
    ),
    Function(
        "java_float",
        "a float as Java writes it: 1.0E10, NaN, Infinity",
        _float_text_rule,
        _java_floats,
    ),
    Function(
        "postgres_float",
        "a float as PostgreSQL writes it: 1, 1e+15, NaN, Infinity",
        _float_text_rule,
        _postgres_floats,
    ),
)
