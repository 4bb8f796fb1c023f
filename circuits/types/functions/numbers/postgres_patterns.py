"""Format numbers by a pattern, with the results of PostgreSQL's ``to_char``.

::

    9          a digit, or a blank in place of a leading zero
    0          a digit, also if it is a leading zero
    . D        the point
    , G        a comma between digits; a blank before the first digit
    S          the sign next to the number;  SG  the sign here
    MI PL      a minus (plus) sign here, or a blank
    PR         <> around a negative number
    FM         at the start: no blanks, and no zeros at the end of the fraction
    TH th      the ending of an ordinal number: 1ST, 2nd
    "text"     text; so are other characters than letters

The sign is written before the first digit if the pattern has no sign. A number with more digits
than the pattern is written in ``#``. The steps are those of ``formatting.c`` in PostgreSQL.

Each function runs once per distinct row of arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
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
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS", "is_number_pattern"]

# A float has 15 reliable digits; PostgreSQL writes no more.
_FLOAT_DIGITS: Final = 15
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|(SG|MI|PL|PR|th|TH|[09.,DGS])|([^A-Za-z"])', re.I)


@dataclass(frozen=True)
class _Pattern:
    """A pattern of ``to_char``.

    Attributes:
        tokens: The parts in their order: a keyword in upper case (``TH`` as written), or a text
            with a space before it.
        integer_digits: How many digits are before the point.
        fraction_digits: How many are after it.
        zero_start: The position of the first 0 before the point; None without one.
        zero_end: The number of digits up to the last 0.
        sign_position: The digits before the point in front of S; None without S.
        has_point: Whether there is a point.
        is_filled: Whether there are blanks in place of digits; not with FM.
    """

    tokens: tuple[str, ...]
    integer_digits: int
    fraction_digits: int
    zero_start: int | None
    zero_end: int
    sign_position: int | None
    has_point: bool
    is_filled: bool

    def has(self, *keywords: str) -> bool:
        """Return whether the pattern has one of some keywords."""
        return any(token in keywords for token in self.tokens)


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> _Pattern:
    """Parse a pattern.

    Raises:
        ValueError: It is not such a pattern.
    """
    error = ValueError(
        f"{pattern!r} is no format of numbers; write one such as 'FM999,990.00' from 9 0 . , D G "
        "S MI PL SG PR FM TH"
    )
    text, tokens = re.sub(r"^FM", "", pattern, flags=re.I), []
    offset, digits, zero_start, zero_end, sign_position, point = 0, 0, None, 0, None, None
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise error
        offset = match.end()
        if match[2] is None:
            tokens.append(" " + (match[3] or re.sub(r"\\(.)", r"\1", match[1] or "")))
            continue
        token = match[2] if match[2] in ("th", "Th", "tH") else match[2].upper()
        token = {"D": ".", "G": ",", "Th": "TH", "tH": "TH"}.get(token, token)
        if token == "." and point is None:
            point = digits
        elif token in (".", "PR", "S") and token in tokens:
            raise error
        elif token in "09":
            if token == "0":
                zero_start = digits if zero_start is None and point is None else zero_start
                zero_end = digits + 1
            digits += 1
        elif token == "S":
            sign_position = digits if point is None else -1
        tokens.append(token)
    signs = {token for token in tokens if token in ("S", "PR", "MI", "PL", "SG")}
    is_last = "PR" not in tokens or not {"9", "0"} & set(tokens[tokens.index("PR") :])
    if not digits or len(signs & {"S", "PR"}) + bool(signs - {"S", "PR"}) > 1 or not is_last:
        raise error
    integer_digits = digits if point is None else point
    return _Pattern(
        tuple(tokens),
        integer_digits,
        digits - integer_digits,
        zero_start,
        zero_end,
        sign_position,
        point is not None,
        is_filled=text == pattern,
    )


def is_number_pattern(text: str) -> bool:
    """Return whether a text is a pattern of numbers for ``to_char``."""
    try:
        _parse_pattern(text)
    except ValueError:
        return False
    return True


def _digits_of(value: Any, pattern: _Pattern) -> tuple[bool, str, str, int]:
    """Return whether a number is negative, its digits, and how many digits the fraction has."""
    places = pattern.fraction_digits
    if isinstance(value, float):
        size = len(f"{abs(value):.0f}")
        places = max(0, min(places, _FLOAT_DIGITS - size))
        text = f"{value:.{places}f}"
    else:
        with localcontext() as context:
            context.prec = 100
            number = Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
        text = f"{number:f}" if number else f"{abs(number):f}"
    integer, _, fraction = text.removeprefix("-").partition(".")
    return text.startswith("-"), integer, fraction, places


def _to_char(value: Any, text: str) -> str:
    pattern = _parse_pattern(text)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise ValueError("the number is not finite")
    is_negative, integer, fraction, places = _digits_of(value, pattern)
    sign = "-" if is_negative else "+"
    if len(integer) > pattern.integer_digits:
        integer = "#" * pattern.integer_digits
        fraction = "#" * places
    return _Writer(pattern, sign, integer, fraction, places).write()


class _Writer:
    """Writes one number by a pattern.

    Attributes:
        number: The digits and the point, as far as the pattern has it.
        position: The next character of ``number``.
        blanks: How many digits of the pattern are in front of the number.
        written: How many digits and points of the pattern are written.
    """

    def __init__(
        self, pattern: _Pattern, sign: str, integer: str, fraction: str, places: int
    ) -> None:
        self.pattern = pattern
        self.sign = sign
        has_point = pattern.has_point and (fraction or integer.strip("#") == "")
        self.number = integer + "." + fraction if has_point else integer
        self.position = 0
        self.written = 0
        self.blanks = pattern.integer_digits - len(integer)
        self.has_digit = False
        # Whether the number has fewer characters than the pattern: nothing is written after it.
        self.is_at_end = False
        self.output: list[str] = []
        self.has_brackets = pattern.has("PR") and (sign == "-" or pattern.is_filled)
        sign_position = pattern.sign_position
        self.has_sign_before = sign_position is not None and sign_position not in (
            -1,
            pattern.integer_digits,
        )
        if sign_position == 0:
            self.has_sign_before = pattern.integer_digits > 0
        self.has_sign_after = sign_position is not None and not self.has_sign_before
        if pattern.has("PL", "MI", "SG"):
            self.is_sign_written = pattern.has("MI", "SG")
        else:
            self.is_sign_written = sign == "+" and not pattern.is_filled and sign_position is None
        count = places + pattern.integer_digits - 1
        if not self.is_sign_written and self.blanks == 0:
            count += 1
        self.end = count + (1 if self.blanks else 0) + (1 if pattern.has_point else 0)
        # The last character of the number that FM keeps; None if it keeps all.
        self.last_kept: int | None = None
        if not pattern.is_filled and "." in self.number:
            self.last_kept = len(self.number.rstrip("0")) - 1
            if pattern.zero_end > self.blanks:
                self.last_kept = max(self.last_kept, pattern.zero_end - self.blanks)

    def write(self) -> str:
        """Return the text of the number."""
        for token in self.pattern.tokens:
            if token.startswith(" "):
                self.output.append(token[1:])
            elif token in ("9", "0", "."):
                self._write_digit(token)
                if self.is_at_end:
                    break
            elif token == ",":
                self._write_if(self.has_digit, ",")
            elif token == "MI":
                self._write_if(self.sign == "-", "-")
            elif token == "PL":
                self._write_if(self.sign == "+", "+")
            elif token == "SG":
                self.output.append(self.sign)
            elif token.upper() == "TH":
                self._write_ordinal(token)
        return "".join(self.output)

    def _write_if(self, condition: bool, text: str) -> None:
        if condition:
            self.output.append(text)
        elif self.pattern.is_filled:
            self.output.append(" ")

    def _has_blank_zero(self) -> bool:
        """Return whether the digit is the 0 before a point, which is written as a blank."""
        return (
            self.pattern.zero_start is None
            and self.position == 0
            and self.number.startswith("0")
            and self.pattern.fraction_digits > 0
        )

    def _keeps_no_fraction(self) -> bool:
        return (
            self.last_kept is not None and self.number[self.last_kept : self.last_kept + 1] == "."
        )

    def _write_digit(self, token: str) -> None:
        zero_start = self.pattern.zero_start
        is_zero = zero_start is not None and zero_start <= self.written
        starts = self.written >= self.blanks or (zero_start == self.written)
        if (
            not self.is_sign_written
            and starts
            and (not self._has_blank_zero() or self._keeps_no_fraction())
        ):
            self._write_sign()
        if self.written < self.blanks and not is_zero:
            if self.pattern.is_filled:
                self.output.append(" ")
        elif self.written < self.blanks:
            self.output.append("0")
            self.has_digit = True
        else:
            self._write_character(token)
            if self.is_at_end:
                return
        if self.written + 1 == self.end:
            if self.is_sign_written and self.has_brackets:
                self.output.append(">" if self.sign == "-" else " ")
            elif self.has_sign_after:
                self.output.append(self.sign)
        self.written += 1

    def _write_sign(self) -> None:
        if self.pattern.sign_position is not None:
            if self.has_sign_before:
                self.output.append(self.sign)
                self.is_sign_written = True
            return
        if self.has_brackets:
            self.output.append("<" if self.sign == "-" else " ")
        elif self.sign == "-":
            self.output.append("-")
        elif self.pattern.is_filled:
            self.output.append(" ")
        self.is_sign_written = True

    def _write_character(self, token: str) -> None:
        character = self.number[self.position : self.position + 1]
        if character == ".":
            if not self._keeps_no_fraction() or not self.pattern.is_filled:
                self.output.append(".")
        elif self.last_kept is not None and self.position > self.last_kept and token != "0":
            pass
        elif self._has_blank_zero():
            if self.pattern.is_filled:
                self.output.append(" ")
            elif self._keeps_no_fraction():
                self.output.append("0")
        elif character:
            self.output.append(character)
            self.has_digit = True
        else:
            self.is_at_end = True
        self.position += bool(character)

    def _write_ordinal(self, token: str) -> None:
        if self.sign == "-" or self.pattern.has_point or self.number.startswith("#"):
            return
        last = self.number[-1:]
        is_teen = self.number[-2:-1] == "1"
        ending = "th" if is_teen else {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")
        self.output.append(ending if token == "th" else ending.upper())


def _to_char_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    typed, result = Signature("nt", pa.string())(name, arguments, target_type)
    pattern = typed[1]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise argument_error(name, arguments, "the format is a literal")
    try:
        _parse_pattern(pattern.value)
    except ValueError as error:
        raise argument_error(name, arguments, str(error)) from None
    return typed, result


# In a signature, n is a number and t a text.
FUNCTIONS = (
    Function(
        "postgres_to_char",
        "the number a in the format b, which consists of 9 0 . , D G S MI PL SG PR FM TH",
        _to_char_rule,
        per_distinct_row(_to_char),
    ),
)
