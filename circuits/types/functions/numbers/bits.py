"""Functions of integers: operations on their 64 bits, factorial, common divisors and multiples.

Shifts use the low six bits of the distance, as the JVM does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from circuits.types.functions.argument_rows import array_function
from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, column_kernel, per_distinct_row

__all__ = ["FUNCTIONS"]

_INT = pa.int64()


def _function(
    name: str, description: str, parameters: str, function: Callable[..., Any]
) -> Function:
    """Return a function of int64 columns; ``function`` gets and returns numpy arrays."""
    kernel = column_kernel(array_function(function, _INT))
    return Function(name, description, Signature(parameters, _INT), kernel)


def _unsigned_shift(value: Any, distance: Any) -> Any:
    return (value.view(np.uint64) >> (distance & 63).astype(np.uint64)).view(np.int64)


def _shift_without_loss(value: Any, distance: Any) -> Any:
    if (distance < 0).any() or (value < 0).any():
        raise pa.ArrowInvalid("a shift to the left of a negative number, or by a negative number")
    shifted = np.where(distance > 63, 0, value << (distance & 63))
    loses_bits = (value != 0) & (
        (distance > 63) | ((shifted >> (distance & 63)) != value) | (shifted < 0)
    )
    if loses_bits.any():
        raise pa.ArrowInvalid("the shift to the left overflows 64 bits")
    return shifted


def _bit_at(value: Any, position: Any, last_position: Any) -> Any:
    is_outside = (position < 0) | (position > last_position)
    if is_outside.any():
        raise pa.ArrowInvalid(
            f"the number has the bits 0 to {last_position.max()}, not {position[is_outside][0]}"
        )
    return (value >> position) & 1


def _factorial(number: int) -> int | None:
    return math.factorial(number) if 0 <= number <= 20 else None


def _binomial(total: int, chosen: int) -> int:
    if total < 0 or chosen < 0:
        raise ValueError(f"binom({total}, {chosen}) of a negative number")
    result = math.comb(total, chosen) if chosen <= total <= 10_000 else 0
    if total > 10_000 or result >= 2**63:
        raise OverflowError(f"binom({total}, {chosen}) does not fit 64 bits")
    return result


def _bits_of_bytes(value: str | bytes) -> str:
    encoded = value.encode() if isinstance(value, str) else value
    return "".join(f"{byte:08b}" for byte in encoded)


def _bytes_of_bits(digits: str) -> bytes:
    if digits.strip("01"):
        raise ValueError(f"{digits!r} is not made of binary digits")
    size = -(-len(digits) // 8)
    return int(digits or "0", 2).to_bytes(size, "big")


def _lcm(left: int, right: int) -> int:
    # numpy's lcm wraps around; a result of Python beyond int64 is an error.
    return math.lcm(left, right)


# In a signature, i is an integer, t a text and y a text or bytes.
FUNCTIONS = (
    _function("bit_and_of", "a & b", "ii", np.bitwise_and),
    _function("bit_or_of", "a | b", "ii", np.bitwise_or),
    _function("bit_xor_of", "the exclusive or of the bits of a and b", "ii", np.bitwise_xor),
    _function("bit_not", "the complement of the bits of a", "i", np.bitwise_not),
    _function(
        "shift_left",
        "a with its bits moved b places to the left",
        "ii",
        lambda a, b: a << (b & 63),
    ),
    _function(
        "shift_right",
        "a with its bits moved b places to the right; the sign stays",
        "ii",
        lambda a, b: a >> (b & 63),
    ),
    _function(
        "shift_right_unsigned",
        "a with its 64 bits moved b places to the right, filled with 0 from the left",
        "ii",
        _unsigned_shift,
    ),
    _function(
        "shift_left_checked",
        "as shift_left; an error if a bit that is 1 is lost, or a or b is negative",
        "ii",
        _shift_without_loss,
    ),
    _function(
        "shift_right_checked",
        "as shift_right; 0 if b is negative, or 64 or more",
        "ii",
        lambda a, b: np.where((b < 0) | (b > 63), 0, a >> (b & 63)),
    ),
    _function(
        "bit_count",
        "the number of bits of a that are set",
        "i",
        lambda a: np.bitwise_count(a.view(np.uint64)),
    ),
    _function(
        "get_bit",
        "bit b of a, from 0 at the right; an error if a does not have this bit",
        "iii",
        _bit_at,
    ),
    Function(
        "factorial",
        "1 · 2 · … · a; NULL unless a is from 0 to 20",
        Signature("i", _INT),
        per_distinct_row(_factorial),
    ),
    Function(
        "binomial",
        "the number of ways to choose b of a things",
        Signature("ii", _INT),
        per_distinct_row(_binomial),
    ),
    Function(
        "bits_of_bytes",
        "the binary digits of the bytes of a",
        Signature("y", pa.string()),
        per_distinct_row(_bits_of_bytes),
    ),
    Function(
        "bytes_of_bits",
        "the bytes with the binary digits a",
        Signature("t", pa.binary()),
        per_distinct_row(_bytes_of_bits),
    ),
    _function("gcd", "the greatest common divisor", "ii", np.gcd),
    Function("lcm", "the least common multiple", Signature("ii", _INT), per_distinct_row(_lcm)),
)
