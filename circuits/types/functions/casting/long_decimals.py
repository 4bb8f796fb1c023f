"""Parse long texts and texts with an exponent as decimals, exactly.

Arrow's parser is exact for texts of up to 38 characters without an exponent. For other texts it
drops digits or wraps around without an error: ``1.5`` followed by 41 zeros becomes 0.00, and
``1e45`` becomes a negative number. Such texts are rare, so Python parses them.

Cost: O(characters) for each text, in Python.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation
from typing import Final

import pyarrow as pa

from circuits.excerpt import excerpt

__all__ = ["MAX_ARROW_CHARACTERS", "read_long_decimals"]

#: The length up to which Arrow's parser of decimals is exact.
MAX_ARROW_CHARACTERS: Final = 38

# Enough digits for every text of 1000 bytes and every scale: no text is rounded twice.
_EXACT: Final = Context(prec=4000, Emax=10**9, Emin=-(10**9), rounding=ROUND_HALF_UP)


def read_long_decimals(texts: pa.Array, target: pa.DataType, type_name: str) -> pa.Array:
    """Parse texts of numbers as decimals, rounded half away from zero.

    Args:
        texts: Texts of up to 1000 bytes, which the caller checks, without NULL or outer blanks.
        target: The decimal type.
        type_name: The name of the type in error messages.

    Raises:
        ArrowInvalid: A text is not a number, or has more digits than the type.

    >>> read_long_decimals(pa.array(["1.5" + 50 * "0"]), pa.decimal128(5, 2), "")[0].as_py()
    Decimal('1.50')
    """
    return pa.array([_decimal(text, target, type_name) for text in texts.to_pylist()], target)


def _decimal(text: str, target: pa.DataType, type_name: str) -> Decimal:
    try:
        if "_" in text or not text.isascii():
            raise InvalidOperation
        value = _EXACT.create_decimal(text)
        if value.is_finite():
            value = value.quantize(Decimal((0, (1,), -target.scale)), context=_EXACT)
    except DecimalException:
        value = Decimal("NaN")
    if not value.is_finite() or len(value.as_tuple().digits) > target.precision:
        raise pa.ArrowInvalid(f"{excerpt(text, 60)} cannot be parsed as {type_name}")
    return value
