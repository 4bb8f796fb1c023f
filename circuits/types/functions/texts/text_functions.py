"""Functions of text. Positions and lengths count characters (code points), from 1.

Deviations from DuckDB: ``reverse`` reverses code points, not grapheme clusters; ``lpad`` and
``rpad`` pad with a space by default; ``concat`` with a NULL is NULL, as ``||`` is. Positions,
search texts and padding may be columns; the cost is one Arrow call per distinct combination of
them. A result that is longer than `circuits.types.functions.length_limits` allows is an error of
its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression
from circuits.types.functions.argument_rows import by_constants, fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.length_limits import (
    MAX_STRING_BYTES,
    byte_lengths,
    check_lengths,
    upper_bound,
)
from circuits.types.functions.type_rules import common_type, is_text, kernel_type

__all__ = ["FUNCTIONS", "text_rule"]

#: More characters than a text in an Arrow string column can have.
MAX_CHARACTERS: Final = 2**31


def text_rule(letters: str, min_count: int, result: pa.DataType | None = None) -> Rule:
    """Return a type rule for arguments of text and integers.

    Args:
        letters: A letter per argument: ``t`` for text, ``i`` for an integer. The first is ``t``.
        min_count: The least number of arguments.
        result: The type of the result; None for the type of the first argument.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, min_count, len(letters))
        typed = tuple(
            _cast_argument(name, arguments, argument, letter)
            for argument, letter in zip(arguments, letters, strict=False)
        )
        return typed, result or kernel_type(typed[0].type)

    return rule


def _cast_argument(
    name: str, arguments: Arguments, argument: Expression, letter: str
) -> Expression:
    if letter == "i":
        if not arrow.is_integer(argument.type) and not arrow.is_null(argument.type):
            raise argument_error(name, arguments, "positions and lengths are integers")
        return cast_to(argument, pa.int64())
    if arrow.is_null(argument.type):
        return cast_to(argument, pa.string())
    if not is_text(argument.type):
        raise argument_error(name, arguments, "it takes text; cast the argument to string")
    return argument


def _concat_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    texts = tuple(a if is_text(a.type) else cast_to(a, pa.string()) for a in arguments)
    target = kernel_type(common_type(text.type for text in texts))
    return tuple(cast_to(text, target) for text in texts), target


def _concat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    if sum(upper_bound(values, rows) for values in arguments) > MAX_STRING_BYTES:
        check_lengths(np.sum([byte_lengths(values, rows) for values in arguments], axis=0))
    return pc.binary_join_element_wise(*arguments, pa.scalar("", result_type))


def _unary_kernel(function: Callable[..., Any], **options: Any) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        result = function(arguments[0], **options)
        return result if result.type == result_type else pc.cast(result, result_type)

    return kernel


def _slice(values: pa.Array, start: int, stop: int | None) -> pa.Array:
    # No text is longer than MAX_CHARACTERS, so a greater position has the same result.
    start = min(max(start, -MAX_CHARACTERS), MAX_CHARACTERS)
    if stop is not None:
        stop = min(max(stop, -MAX_CHARACTERS), MAX_CHARACTERS)
    return pc.utf8_slice_codeunits(values, start, stop)


def _empty(values: pa.Array) -> pa.Array:
    """Return an empty text for each text; NULL for NULL."""
    return _slice(values, 0, 0)


def _substring(values: pa.Array, start: int, length: int | None = None) -> pa.Array:
    """Return ``length`` characters from ``start``.

    A negative start counts from the end. With a negative length, the characters before the start
    are returned. The start 0 is the position before the first character, as in DuckDB.
    """
    if length is None:
        return _slice(values, start - (start > 0), None)
    offset = start - (start > 0)  # from 0; from the end if it is negative
    begin, end = (offset, offset + length) if length >= 0 else (offset + length, offset)
    if start == 0:
        begin, end = begin - 1, end - 1
    if start < 0:  # an offset from the end; the slice ends with the text if that is 0 or more
        return _slice(values, begin, None if end >= 0 else end)
    return _slice(values, max(begin, 0), max(end, 0)) if end > 0 else _empty(values)


def _left(values: pa.Array, count: int) -> pa.Array:
    return _slice(values, 0, count)


def _right(values: pa.Array, count: int) -> pa.Array:
    return _slice(values, -count, None) if count else _empty(values)


def _trim_kernel(function: Callable[..., Any]) -> Kernel:
    return by_constants(lambda values, characters=" ": function(values, characters=characters))


def _replace(values: pa.Array, pattern: str, replacement: str) -> pa.Array:
    if not pattern:  # Arrow would find the empty text endlessly
        return values
    old, new = len(pattern.encode()), len(replacement.encode())
    if new > old and upper_bound(values, len(values)) // old * new > MAX_STRING_BYTES:
        match_counts = pc.fill_null(pc.count_substring(values, pattern=pattern), 0)
        replacements = np.asarray(match_counts.to_numpy(), np.int64)
        check_lengths(byte_lengths(values, len(values)) + replacements * (new - old))
    return pc.replace_substring(values, pattern=pattern, replacement=replacement)


def _test_kernel(function: Callable[..., Any]) -> Kernel:
    return by_constants(lambda values, pattern: function(values, pattern=pattern))


def _position(values: pa.Array, needle: str) -> pa.Array:
    """Return the position of ``needle`` in each text, from 1; 0 if the text does not contain it."""
    if not needle:
        return pc.if_else(pc.is_valid(values), pa.scalar(1), None)
    before = pc.list_element(pc.split_pattern(values, needle, max_splits=1), 0)
    position = pc.add(pc.utf8_length(before), pa.scalar(1, pa.int32()))
    return pc.if_else(pc.match_substring(values, needle), position, pa.scalar(0, pa.int32()))


def _split_part(values: pa.Array, separator: str, index: int) -> pa.Array:
    if index == 0:
        return _empty(values)
    if not separator:
        return _substring(values, index, 1)
    parts = pc.split_pattern(values, separator)
    counts = pc.fill_null(pc.list_value_length(parts), 0).to_numpy().astype(np.int64)
    position = index - 1 if index > 0 else counts + index  # from 0
    exists = (position >= 0) & (position < counts)
    offsets = parts.offsets.to_numpy()[:-1].astype(np.int64)
    selected = parts.values.take(pa.array(np.where(exists, offsets + position, 0), mask=~exists))
    return pc.if_else(pc.is_valid(values), pc.fill_null(selected, ""), None)


def _pad_kernel(*, before: bool) -> Kernel:
    def pad(values: pa.Array, length: int, padding: str = " ") -> pa.Array:
        length = max(length, 0)
        differences = pc.subtract(pa.scalar(length), pc.cast(pc.utf8_length(values), pa.int64()))
        missing_counts = np.maximum(pc.fill_null(differences, 0).to_numpy(), 0)
        if not padding and missing_counts.any():
            raise pa.ArrowInvalid(
                f"the padding is empty, but {missing_counts.max()} characters are missing"
            )
        shortened = _slice(values, 0, length)
        counts, row_indices = np.unique(  # each padding is made once
            np.minimum(missing_counts, MAX_STRING_BYTES + 1), return_inverse=True
        )
        added_bytes = np.array([_padding_bytes(padding, int(n)) for n in counts], np.int64)
        check_lengths(byte_lengths(shortened, len(shortened)) + added_bytes[row_indices])
        paddings = [(padding * (int(n) // max(len(padding), 1) + 1))[: int(n)] for n in counts]
        added = pa.array(paddings, values.type).take(pa.array(row_indices))
        pair = (added, shortened) if before else (shortened, added)
        return pc.binary_join_element_wise(*pair, pa.scalar("", values.type))

    return by_constants(pad)


def _padding_bytes(padding: str, characters: int) -> int:
    """Return the number of bytes of this many characters of repeated padding."""
    if not padding:
        return 0
    repetitions, remainder = divmod(characters, len(padding))
    return repetitions * len(padding.encode()) + len(padding[:remainder].encode())


def _repeat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    text, count = (fill_rows(values, rows) for values in arguments)
    lengths = byte_lengths(text, rows)
    times = np.asarray(pc.fill_null(count, 0).to_numpy(), np.int64)
    # An empty text stays empty. A text of at least one byte that is repeated more often than
    # MAX_STRING_BYTES exceeds the limit in any case.
    times = np.where(lengths, np.clip(times, 0, MAX_STRING_BYTES + 1), 0)
    check_lengths(lengths * times)
    return pc.binary_repeat(text, pa.array(times, pa.int64(), mask=~_is_valid(count)))


def _is_valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_valid(values).to_numpy(zero_copy_only=False), np.bool_)


_BOOL, _INT = pa.bool_(), pa.int64()
_ONE_TEXT_RULE = text_rule("t", 1)
_TEST_RULE = text_rule("tt", 2, _BOOL)

# In a signature, i is an integer and t a text.
FUNCTIONS = (
    Function(
        "concat",
        "the arguments joined to one string; SQL's `concat()` skips NULL, `||` does not",
        _concat_rule,
        _concat,
    ),
    Function("lower", "in lower case", _ONE_TEXT_RULE, _unary_kernel(pc.utf8_lower)),
    Function("upper", "in upper case", _ONE_TEXT_RULE, _unary_kernel(pc.utf8_upper)),
    Function(
        "reverse", "the characters in reverse order", _ONE_TEXT_RULE, _unary_kernel(pc.utf8_reverse)
    ),
    Function(
        "length", "the number of characters", text_rule("t", 1, _INT), _unary_kernel(pc.utf8_length)
    ),
    Function(
        "substring",
        "c characters from position b on (1 is the first, -1 the last)",
        text_rule("tii", 2),
        by_constants(_substring),
    ),
    Function("left", "the first b characters", text_rule("ti", 2), by_constants(_left)),
    Function("right", "the last b characters", text_rule("ti", 2), by_constants(_right)),
    Function(
        "trim",
        "a without spaces, or without the characters of b, at both ends",
        text_rule("tt", 1),
        _trim_kernel(pc.utf8_trim),
    ),
    Function(
        "ltrim", "as trim, at the start only", text_rule("tt", 1), _trim_kernel(pc.utf8_ltrim)
    ),
    Function("rtrim", "as trim, at the end only", text_rule("tt", 1), _trim_kernel(pc.utf8_rtrim)),
    Function("replace", "a with each b replaced by c", text_rule("ttt", 3), by_constants(_replace)),
    Function("starts_with", "true if a starts with b", _TEST_RULE, _test_kernel(pc.starts_with)),
    Function("ends_with", "true if a ends with b", _TEST_RULE, _test_kernel(pc.ends_with)),
    Function("contains", "true if a contains b", _TEST_RULE, _test_kernel(pc.match_substring)),
    Function(
        "position",
        "the position of the first b in a, from 1; 0 if there is none",
        text_rule("tt", 2, _INT),
        by_constants(_position),
    ),
    Function(
        "lpad",
        "a padded with c at the start to b characters",
        text_rule("tit", 2),
        _pad_kernel(before=True),
    ),
    Function(
        "rpad",
        "a padded with c at the end to b characters",
        text_rule("tit", 2),
        _pad_kernel(before=False),
    ),
    Function("repeat", "a repeated b times", text_rule("ti", 2), _repeat),
    Function(
        "split_part",
        "part c of a split by b (-1 is the last); empty if there is none",
        text_rule("tti", 3),
        by_constants(_split_part),
    ),
)
