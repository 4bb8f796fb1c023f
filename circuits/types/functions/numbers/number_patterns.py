"""Format and parse numbers by a pattern: to_char and to_number, with Spark's results.

::

    9         a digit, or a blank in place of a leading zero
    0         a digit; if the pattern begins with it, leading zeros are written
    . or D    the point
    , or G    a comma between groups of digits
    $ or L    a dollar sign
    S         the sign, + or -
    MI        the sign of a negative number, else a blank
    PR        <> around a negative number

Each function runs once per distinct row of arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from circuits.plan.expressions import Literal
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    argument_error,
)
from circuits.types.functions.numbers.number_formats import exact_decimal
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_TEXT: Final = pa.string()


@dataclass(frozen=True)
class _Pattern:
    """A pattern of ``to_char``, such as ``S99,990.00``.

    Attributes:
        leading_sign: ``S`` or ``MI`` at the start, or nothing.
        integer_part: The digits ``0`` and ``9`` before the point, with commas.
        fraction: The digits ``0`` and ``9`` after the point.
        trailing_sign: ``S``, ``MI`` or ``PR`` at the end, or nothing.
        has_point: True if the pattern has a point.
        has_dollar: True if the pattern has a ``$``.
    """

    leading_sign: str
    integer_part: str
    fraction: str
    trailing_sign: str
    has_point: bool
    has_dollar: bool

    @property
    def integer_digits(self) -> str:
        """The digits before the point, without commas."""
        return self.integer_part.replace(",", "")


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> _Pattern:
    """Parse a pattern of ``to_char``.

    Raises:
        ValueError: It is not such a pattern.
    """
    upper = pattern.upper()
    match = re.fullmatch(r"(MI|S)?(L|\$)?([09,G]*)(?:[.D]([09]*))?(L|\$)?(MI|S|PR)?", upper)
    if match is None or not re.search("[09]", upper):
        raise ValueError(f"{pattern!r} is no format of numbers; write one such as 'S99,990.00'")
    leading_sign, leading_dollar, integer_part, fraction, late_dollar, trailing_sign = (
        match.groups()
    )
    return _Pattern(
        leading_sign or "",
        integer_part.replace("G", ","),
        fraction or "",
        trailing_sign or "",
        has_point=fraction is not None,
        has_dollar=bool(leading_dollar or late_dollar),
    )


def _to_char(value: Any, pattern: str) -> str:
    """Format a number as Spark does.

    A sign stands next to the digits: before or after the blanks that replace leading zeros. A point
    at the end of the pattern is written as a blank. If a number does not fit the pattern, each of
    its digits is written as ``#``.
    """
    parts = _parse_pattern(pattern)
    exact = exact_decimal(value)
    with localcontext() as context:
        context.prec = 100
        number = exact.quantize(Decimal(1).scaleb(-len(parts.fraction)), rounding=ROUND_HALF_UP)
    digits, _, fraction_digits = f"{number.copy_abs():f}".partition(".")
    digits = digits.lstrip("0")
    max_digits = len(parts.integer_digits)
    fits = len(digits) <= max_digits and number == exact
    if not fits:
        digits, fraction_digits = "#" * max_digits, "#" * len(parts.fraction)
    digits = digits.rjust(max_digits, "0" if parts.integer_digits.startswith("0") else " ")
    is_negative = exact < 0
    text = "<" if parts.trailing_sign == "PR" and is_negative else ""
    if parts.leading_sign:
        text += _sign(parts.leading_sign, is_negative)
    text += "$" if parts.has_dollar else ""
    index = 0
    for symbol in parts.integer_part:
        if symbol != ",":
            character, index = digits[index], index + 1
        else:  # a comma after blanks is a blank, too
            character = "," if index and digits[index - 1].isdigit() else " "
        text = _append_before_digits(text, character)
    if parts.has_point:
        # A number without digits before the point has a zero there, if there is a blank for it.
        text = text[:-1] + "0" if text.endswith(" ") else text
        text += f".{fraction_digits}" if parts.fraction else " "
    if parts.trailing_sign == "PR":
        # A number that is not negative has blanks in the place of < and >.
        return _append_before_blanks(text, ">") if is_negative else text + "  "
    if parts.trailing_sign:
        return _append_before_blanks(text, _sign(parts.trailing_sign, is_negative))
    return text


def _sign(symbol: str, is_negative: bool) -> str:
    """Return the sign of a number for ``S``, or for ``MI``, which shows only minus signs."""
    return "-" if is_negative else "+" if symbol == "S" else " "


def _append_before_digits(text: str, character: str) -> str:
    """Append a character; a blank goes before the signs at the end."""
    signs = len(text) - len(text.rstrip("+-<")) if character == " " else 0
    return text[: len(text) - signs] + character + text[len(text) - signs :]


def _append_before_blanks(text: str, character: str) -> str:
    stripped = text.rstrip(" ")
    return stripped + character + text[len(stripped) :]


def _to_number(text: str, pattern: str) -> Decimal | None:
    parts = _parse_pattern(pattern)
    # Groups: 1 the sign at the start, 2 the digits before the point, 3 those after it, 4 the end.
    sign = r"([+-])?"
    start = sign if parts.leading_sign else "()"
    dollar = r"\$" if parts.has_dollar else ""
    end = sign if parts.trailing_sign else "()"
    if parts.trailing_sign == "PR":
        end = r"(>)?"
    expression = rf"{start}{dollar}([\d,]*)(?:\.(\d*))?{end}"
    trimmed = text.strip()
    in_brackets = trimmed.startswith("<")
    if parts.trailing_sign == "PR" and in_brackets:
        trimmed = trimmed[1:]
    match = re.fullmatch(expression, trimmed)
    digits = match[2].replace(",", "") if match else ""
    if (
        match is None
        or len(digits) > len(parts.integer_digits)
        or len(match[3] or "") > len(parts.fraction)
        or not (digits or match[3])
        or not _has_groups(match[2], parts.integer_part)
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
    """Return True if digits have commas where the pattern has them, counted from the point."""
    sizes = [len(group) for group in reversed(digits.split(","))]
    limits = [len(group) for group in reversed(pattern.split(","))]
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
        parts = _parse_pattern(pattern.value)
    except ValueError as error:
        raise argument_error(name, arguments, str(error)) from None
    digits = len(parts.integer_digits) + len(parts.fraction)
    return typed, pa.decimal128(min(digits, 38), len(parts.fraction))


# In a signature, n is a number and t a text.
FUNCTIONS = (
    Function(
        "to_char",
        "the number a in the format b, which consists of 9 0 . , $ S MI PR",
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
