"""Format numbers as text, and parse formatted text: format_number, printf, to_char, to_number.

``printf`` has the conversions ``%s %d %f %e %x %X %o %c %b %%`` with flags, width, precision and
positions (``%2$s``); its results are those of Java. ``to_char`` and ``to_number`` have Spark's
patterns of ``9 0 . D , G $ S MI PR``. Each function runs once per distinct row of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
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

__all__ = ["FUNCTIONS", "java_floats"]

_TEXT: Final = pa.string()
_C_SIZES: Final = re.compile(r"%(?:\(\w*\))?[-#+ 0]*(\d+|\*)?(?:\.(\d+|\*))?")
_DIRECTIVE: Final = re.compile(r"%(\d+\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def _too_long() -> ValueError:
    return ValueError(
        f"the result would be longer than {MAX_STRING_BYTES:,} bytes, which is the limit of texts "
        "that functions return"
    )


def _exact(value: float | int | Decimal) -> Decimal:
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
    number = _round(_exact(value), digits, ROUND_HALF_EVEN)
    return f"{number:,.{digits}f}"


def _format_number_pattern(value: Any, pattern: str) -> str:
    """Format with a pattern of ``#``, ``0``, ``,`` and ``.``, as Java's DecimalFormat."""
    if not re.fullmatch(r"[#,0]*(?:\.[0#]*)?", pattern):
        raise ValueError(f"the pattern {pattern!r} has other characters than # 0 , .")
    integer_pattern, _, fraction = pattern.partition(".")
    number = _round(_exact(value), len(fraction), ROUND_HALF_EVEN)
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
        position, flags, width, precision, kind = match.groups()
        if max(int(width or 0), int(precision or 0)) + length > MAX_STRING_BYTES:
            raise _too_long()
        if kind in "%n":
            pieces.append(("%" if kind == "%" else "\n").rjust(int(width or 0)))
            continue
        if position:
            index = int(position[:-1]) - 1
        else:
            index, next_index = next_index, next_index + 1
        if not 0 <= index < len(values):
            raise ValueError(f"{match[0]} in {pattern!r} has no argument")
        pieces.append(_directive(values[index], flags, int(width or 0), precision, kind))
        length += len(pieces[-1])
    if "%" in pattern[end:]:
        raise ValueError(f"{pattern!r} has an incomplete % directive")
    return "".join([*pieces, pattern[end:]])


def _directive(value: Any, flags: str, width: int, precision: str | None, kind: str) -> str:
    lower = kind.lower()
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
            rounded = abs(_round(_exact(value), digits, ROUND_HALF_UP))
            text = f"{rounded:{',' if ',' in flags else ''}.{digits}f}"
        else:
            text = f"{abs(_exact(value)):.{digits}e}"
            text = re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", text)
    else:
        raise ValueError(f"%{kind} does not format {value!r}")
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
    if kind.isupper():
        text = text.upper()
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _c_printf(pattern: str, *values: Any) -> str:
    """Format as C's printf."""
    sizes = [part for match in _C_SIZES.finditer(pattern) for part in match.groups() if part]
    length = sum(int(size) for size in sizes if size != "*")
    if "*" in sizes:  # each is one of the values
        length += sum(abs(value) for value in values if isinstance(value, int))
    if length > MAX_STRING_BYTES:
        raise _too_long()
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
    kind = "t" if is_text(arguments[1].type) else "i"
    return Signature("n" + kind, _TEXT)(name, arguments, target_type)


def _format_number_any(value: Any, digits_or_pattern: int | str) -> str | None:
    if isinstance(digits_or_pattern, str):
        return (
            _format_number_pattern(value, digits_or_pattern)
            if digits_or_pattern
            else _format_number(value, 0)
        )
    return _format_number(value, digits_or_pattern)


def _pattern_parts(pattern: str) -> tuple[str, str, str, str, bool]:
    """Split a pattern of ``to_char``.

    Returns:
        The sign at the start, the digits before the point, the digits after it, the sign at the
        end, and True if the pattern has ``$``.
    """
    upper = pattern.upper()
    match = re.fullmatch(r"(MI|S)?(L|\$)?([09,G]*)(?:[.D]([09]*))?(L|\$)?(MI|S|PR)?", upper)
    if match is None or not re.search("[09]", upper):
        raise ValueError(f"{pattern!r} is no format of numbers; write one such as 'S99,990.00'")
    leading_sign, leading_dollar, integer_part, fraction, late_dollar, trailing_sign = (
        match.groups()
    )
    return (
        leading_sign or "",
        integer_part.replace("G", ","),
        fraction or "",
        trailing_sign or "",
        bool(leading_dollar or late_dollar),
    )


def _to_char(value: Any, pattern: str) -> str:
    """Format a number as Spark does: signs move to the digits, a point without digits is a blank.

    A number that does not fit the pattern is shown as signs #.
    """
    leading_sign, integer_pattern, fraction_pattern, trailing_sign, has_dollar = _pattern_parts(
        pattern
    )
    exact = _exact(value)
    with localcontext() as context:
        context.prec = 100
        number = exact.quantize(Decimal(1).scaleb(-len(fraction_pattern)), rounding=ROUND_HALF_UP)
    digits, _, fraction_digits = f"{number.copy_abs():f}".partition(".")
    digits = digits.lstrip("0")
    slots = integer_pattern.replace(",", "")
    fits = len(digits) <= len(slots) and number == exact
    if not fits:
        digits, fraction_digits = "#" * len(slots), "#" * len(fraction_pattern)
    digits = digits.rjust(len(slots), "0" if slots.startswith("0") else " ")
    is_negative = exact < 0
    text = "<" if trailing_sign == "PR" and is_negative else ""
    if leading_sign:
        text += "-" if is_negative else "+" if leading_sign == "S" else " "
    text += "$" if has_dollar else ""
    index = 0
    for slot in integer_pattern:
        character = "," if index and digits[index - 1].isdigit() else " "
        if slot != ",":
            character, index = digits[index], index + 1
        text = _append_before_digits(text, character)
    if re.search("[.D]", pattern.upper()):
        # A number without digits before the point has a zero there, if there is a place.
        text = (text[:-1] + "0" if text.endswith(" ") else text) + (
            f".{fraction_digits}" if fraction_pattern else " "
        )
    if trailing_sign == "PR":
        return _append_before_blanks(text, ">") if is_negative else text + "  "
    if trailing_sign:
        sign = "-" if is_negative else "+" if trailing_sign == "S" else " "
        return _append_before_blanks(text, sign)
    return text


def _append_before_digits(text: str, character: str) -> str:
    """Append a character; a blank goes before the signs at the end."""
    signs = len(text) - len(text.rstrip("+-<")) if character == " " else 0
    return text[: len(text) - signs] + character + text[len(text) - signs :]


def _append_before_blanks(text: str, character: str) -> str:
    stripped = text.rstrip(" ")
    return stripped + character + text[len(stripped) :]


def _to_number(text: str, pattern: str) -> Decimal | None:
    leading_sign, integer_pattern, fraction_pattern, trailing_sign, has_dollar = _pattern_parts(
        pattern
    )
    sign = r"([+-])?"
    slots = len([slot for slot in integer_pattern if slot != ","])
    expression = (
        (sign if leading_sign else "()")
        + (r"\$" if has_dollar else "")
        + r"([\d,]*)(?:\.(\d*))?"
        + (r"(>)?" if trailing_sign == "PR" else sign if trailing_sign else "()")
    )
    trimmed = text.strip()
    in_brackets = trimmed.startswith("<")
    if trailing_sign == "PR" and in_brackets:
        trimmed = trimmed[1:]
    match = re.fullmatch(expression, trimmed)
    digits = match[2].replace(",", "") if match else ""
    if (
        match is None
        or len(digits) > slots
        or len(match[3] or "") > len(fraction_pattern)
        or not (digits or match[3])
        or not _has_groups(match[2], integer_pattern)
        or (match[4] == ">") != in_brackets
    ):
        raise ValueError(f"{text!r} does not match the format {pattern!r}")
    try:
        value = Decimal(f"{digits or '0'}.{match[3] or '0'}")
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is no number") from error
    is_negative = (match[1] == "-") != (match[4] in ("-", ">"))
    return -value if is_negative else value


def _has_groups(digits: str, pattern: str) -> bool:
    """Return whether digits have commas where the pattern has them, counted from the point."""
    sizes = [len(group) for group in digits.split(",")][::-1]
    limits = [len(group) for group in pattern.split(",")][::-1]
    if len(sizes) > len(limits):
        return False
    return sizes[:-1] == limits[: len(sizes) - 1] and sizes[-1] <= limits[len(sizes) - 1]


def _try_to_number(text: str, pattern: str) -> Decimal | None:
    try:
        return _to_number(text, pattern)
    except ValueError:
        return None


def _to_number_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, _ = Signature("tt", _TEXT)(name, arguments, target_type)
    pattern = typed[1]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise argument_error(name, arguments, "the format is a literal")
    try:
        _, integer_pattern, fraction_pattern, _, _ = _pattern_parts(pattern.value)
    except ValueError as error:
        raise argument_error(name, arguments, str(error)) from None
    digits = len(integer_pattern.replace(",", "")) + len(fraction_pattern)
    return typed, pa.decimal128(min(digits, 38), len(fraction_pattern))


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
    Function(
        "to_char",
        "a number in the format b of 9 0 . , $ S MI PR",
        Signature("nt", _TEXT),
        per_distinct_row(_to_char),
    ),
    Function(
        "to_number",
        "the decimal in the text a of format b",
        _to_number_rule,
        per_distinct_row(_to_number),
    ),
    Function(
        "try_to_number",
        "as to_number; NULL for a text of another format",
        _to_number_rule,
        per_distinct_row(_try_to_number),
    ),
)
