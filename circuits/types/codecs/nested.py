"""Codes of lists, structs and maps: rows of the codes of their parts, in one dictionary.

::

    list    [x, y, z]             the codes of its elements
    struct  {a: x, b: y}          the codes of its fields
    map     {k: v, l: w}          the codes of its entries, key after key: k, v, l, w

The parts are encoded first, with the codec of their own type, so types nest to any depth. The codes
of the parts are 64-bit words, and the bytes of these words are the value in the dictionary. Equal
values have equal parts in the same order, and so equal bytes. NULL is equal to NULL within a value,
as in DuckDB and Spark. Maps are equal if they have the same entries in the same order.

All nested types share one dictionary. Two types may use the same bytes for different values,
because codes are compared only between columns of one ``code_space``.

Codes do not have the order of the values. The sort key of a value is that of its first part, and
ORDER BY compares values with equal keys as a whole (`ranks`): part by part, a list before its
continuations, NULL after every value, as in DuckDB.

Cost: to encode, the cost of the parts and one hash per value; to decode, one copy of the words and
the cost of the parts. Both work on whole columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.errors import SchemaError
from circuits.types.arrow_types import has_variant, type_row
from circuits.types.codecs.arrow_buffers import (
    GREATEST_KEY,
    LEAST_KEY,
    NULL,
    BoolArray,
    Int64Array,
    bitmap_of,
    check_dictionary_codes,
    valid_of,
)
from circuits.types.codecs.intervals import INTERVAL, interval_bytes
from circuits.types.codecs.strings import WORD_BYTES
from dbsp_wcoj.values.interner import ABSENT, Interner
from dbsp_wcoj.values.row_hash import hash_rows

__all__ = [
    "Lists",
    "Nested",
    "element_positions",
    "entries_type",
    "list_array",
    "list_parts",
    "ranks",
    "struct_array",
]

_INT32_MAX: Final = 2**31 - 1


class PartCodec(Protocol):
    """The codec of the parts of a value: of elements, of one field, of keys or of values."""

    @property
    def ordered(self) -> bool: ...
    @property
    def code_space(self) -> Hashable: ...
    def encode(self, array: pa.Array) -> Int64Array: ...
    def find(self, array: pa.Array) -> Int64Array: ...
    def decode(self, codes: Int64Array) -> pa.Array: ...
    def hashes(self, codes: Int64Array) -> Int64Array: ...
    def sort_keys(self, codes: Int64Array) -> tuple[list[Int64Array], bool]: ...


@dataclass(frozen=True)
class Nested:
    """The coding of a nested type.

    The value of a code is stored as rows of words: one row per element of a list or entry of a map,
    one row for a struct; one word per part.

    Args:
        type: A list, fixed-size list, struct or map.
        dictionary: The dictionary of all nested types.
        parts: The codecs of the elements, of the fields, or of the keys and values.
        exact: False, because different values may have equal sort keys.
        ordered: False, because codes do not have the order of the values.
    """

    type: pa.DataType
    dictionary: Interner
    parts: tuple[PartCodec, ...]
    exact: bool = False
    ordered: bool = False

    @property
    def code_space(self) -> Hashable:
        """The kind of the type and the code spaces of its parts.

        The names of fields do not matter, because structs are compared by position.
        """
        kind = "struct" if self.is_struct else "map" if types.is_map(self.type) else "list"
        return (kind, *(part.code_space for part in self.parts))

    @property
    def is_struct(self) -> bool:
        return bool(types.is_struct(self.type))

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values; see `circuits.types.codecs.strings.Strings.encode`."""
        if self.is_struct:
            columns: Sequence[pa.Array] = array.flatten()
            row_counts = np.full(len(array), 1, np.int64)
        else:
            row_counts, columns = list_parts(array)
        rows = int(row_counts.sum())
        words = np.empty((rows, len(self.parts)), np.int64)
        is_known = np.ones(rows, np.bool_)  # for each row of words
        for part_index, (part, column) in enumerate(zip(self.parts, columns, strict=True)):
            codes = part.encode(column) if adding else part.find(column)
            words[:, part_index] = codes
            if not adding and not part.ordered:
                is_known &= codes != ABSENT
        offsets = _offsets(row_counts)
        if not is_known.all():
            # If a part is in no dictionary, its value is in none either.
            unknown_before = np.concatenate(([0], np.cumsum(~is_known)))
            is_value_known = unknown_before[offsets[1:]] == unknown_before[offsets[:-1]]
            valid = is_value_known if valid is None else valid & is_value_known
        look_up = self.dictionary.intern if adding else self.dictionary.find
        data = words.reshape(-1).view(np.uint8)
        return look_up(offsets * (WORD_BYTES * len(self.parts)), data, valid)

    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array:
        """Return the values of codes.

        Raises:
            SchemaError: A code is not in the dictionary, or the elements do not fit the type.
        """
        check_dictionary_codes(codes, valid, len(self.dictionary), self.type)
        row_counts, words = self.words(codes)
        if self.is_struct:
            rows = np.full((len(codes), len(self.parts)), NULL, np.int64)
            rows[slice(None) if valid is None else valid] = words
            columns = [
                part.decode(np.ascontiguousarray(rows[:, part_index]))
                for part_index, part in enumerate(self.parts)
            ]
            return struct_array(self.type, columns, valid, len(codes))
        columns = [
            part.decode(np.ascontiguousarray(words[:, part_index]))
            for part_index, part in enumerate(self.parts)
        ]
        return list_array(self.type, row_counts, columns, valid)

    def keys(self, codes: Int64Array) -> list[Int64Array]:
        """Return one column of sort keys, in the order of the first parts of the values.

        No key is the least or the greatest int64.
        """
        if not self.parts:
            return [np.zeros(len(codes), np.int64)]
        row_counts, words = self.words(codes)
        non_empty = np.flatnonzero(row_counts)
        first_words = np.ascontiguousarray(words[_offsets(row_counts)[:-1][non_empty], 0])
        keys = np.full(len(codes), LEAST_KEY, np.int64)
        part_keys, _ = self.parts[0].sort_keys(first_words)
        keys[non_empty] = np.clip(part_keys[0], LEAST_KEY, GREATEST_KEY)
        return [keys]

    def hashes(self, codes: Int64Array) -> Int64Array:
        """Return a hash of each value; a negative code stands for itself."""
        is_value = codes >= 0
        row_counts, words = self.words(codes)
        if self.is_struct:
            row_counts = is_value.astype(np.int64)
        columns = [
            part.hashes(np.ascontiguousarray(words[:, part_index]))
            for part_index, part in enumerate(self.parts)
        ]
        row_hashes = hash_rows([element_positions(row_counts), *columns], len(words))
        sums = np.concatenate(([0], np.cumsum(row_hashes)))  # wraps around
        offsets = _offsets(row_counts)
        value_hashes = hash_rows([row_counts, sums[offsets[1:]] - sums[offsets[:-1]]], len(codes))
        return np.where(is_value, value_hashes, codes)

    def words(self, codes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the number of rows of each value, and the rows of all values.

        The shapes are ``(n,)`` and ``(rows, parts)``.
        """
        offsets, data = self.dictionary.gather(codes)
        width = len(self.parts)
        if not width:  # structs without fields: each value that is not NULL is a row of no words
            # The number of rows per value is not read for structs.
            return np.zeros(len(codes), np.int64), np.empty((int((codes >= 0).sum()), 0), np.int64)
        words = data.view(np.int64).reshape(-1, width)
        return np.diff(offsets) // (WORD_BYTES * width), words


@dataclass(frozen=True)
class Lists:
    """A column of lists as numpy and Arrow arrays.

    Attributes:
        lengths: The number of elements of each list; 0 for NULL.
        values: The elements of all lists, one after another.
        valid: A mask of the lists that are not NULL; None if no list is NULL.
    """

    lengths: Int64Array
    values: pa.Array
    valid: BoolArray | None

    @classmethod
    def of(cls, array: pa.Array) -> Lists:
        """Read an array of lists, or of maps as lists of entries."""
        if types.is_map(array.type):
            array = array.cast(entries_type(array.type))
        lengths, (values,) = list_parts(array)
        return cls(lengths, values, valid_of(array))

    @property
    def starts(self) -> Int64Array:
        """The position of the first element of each list in ``values``."""
        return _offsets(self.lengths)[:-1]

    @property
    def owners(self) -> Int64Array:
        """For each element, the row of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def positions(self) -> Int64Array:
        """The position of each element in its list, from 0."""
        return element_positions(self.lengths)

    def array(self, type: pa.DataType) -> pa.Array:
        """Return the lists as an Arrow array."""
        return list_array(type, self.lengths, [self.values], self.valid)


def element_positions(lengths: Int64Array) -> Int64Array:
    """Return the position of each element in its list, from 0, for lists of these lengths.

    >>> element_positions(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    offsets = _offsets(lengths)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


def entries_type(type: pa.DataType) -> pa.DataType:
    """Return the type of a list of the entries of a map: structs of ``key`` and ``value``."""
    return pa.list_(pa.struct([pa.field("key", type.key_type), pa.field("value", type.item_type)]))


def list_parts(array: pa.Array) -> tuple[Int64Array, list[pa.Array]]:
    """Split lists or maps into their parts.

    Returns:
        The number of elements of each list or map, 0 for NULL. And the elements, one after another:
        one array for lists; the keys and the values for maps.
    """
    is_map = types.is_map(array.type)
    if is_map:
        array = array.cast(entries_type(array.type))
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()).to_numpy()
    if has_variant(array.type):  # Arrow cannot flatten lists of extension types
        texts = array.cast(type_row(array.type).kernel_type(array.type))
        values = texts.flatten().cast(array.type.value_type)
    else:
        values = array.flatten()
    return lengths, values.flatten() if is_map else [values]


def list_array(
    type: pa.DataType, lengths: Int64Array, columns: Sequence[pa.Array], valid: BoolArray | None
) -> pa.Array:
    """Return an array of lists or maps of exactly ``type``.

    Args:
        type: A list or map; ``columns`` are the elements, or the keys and the values.
        lengths: The number of elements of each list; 0 for NULL.
        columns: The elements, one after another.
        valid: A mask of the lists that are not NULL; None if no list is NULL.

    Raises:
        SchemaError: There are more elements than the type can hold, or a list has another length
            than its fixed-size type.
    """
    if types.is_fixed_size_list(type):
        return _fixed_size_array(type, lengths, columns[0], valid)
    offsets: npt.NDArray[Any] = _offsets(lengths)
    if not types.is_large_list(type):
        if offsets[-1] > _INT32_MAX:
            raise SchemaError(
                f"{offsets[-1]} elements in {len(lengths)} lists are more than {type} holds "
                f"({_INT32_MAX}): give fewer rows in a step"
            )
        offsets = offsets.astype(np.int32)
    if types.is_map(type):
        fields = [type.key_field, type.item_field]
        elements = pa.StructArray.from_arrays(list(columns), fields=fields)
    else:
        elements = columns[0]
    buffers = [bitmap_of(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(type, len(lengths), buffers, children=[elements])


def struct_array(
    type: pa.DataType, columns: Sequence[pa.Array], valid: BoolArray | None, rows: int
) -> pa.Array:
    """Return an array of structs of exactly ``type``."""
    return pa.Array.from_buffers(type, rows, [bitmap_of(valid)], children=list(columns))


def _fixed_size_array(
    type: pa.DataType, lengths: Int64Array, values: pa.Array, valid: BoolArray | None
) -> pa.Array:
    size = type.list_size
    valid_lengths = lengths if valid is None else lengths[valid]
    if (valid_lengths != size).any():
        other_length = valid_lengths[valid_lengths != size][0]
        raise SchemaError(
            f"a list of {other_length} elements is not of type {type}: declare a list"
        )
    if valid is not None:
        positions = np.zeros((len(lengths), size), np.int64)
        rows = len(valid_lengths)
        positions[valid] = np.arange(rows * size).reshape(rows, size)
        missing = np.repeat(~valid, size)
        values = values.take(pa.array(positions.reshape(-1), mask=missing))
    return pa.Array.from_buffers(type, len(lengths), [bitmap_of(valid)], children=[values])


def ranks(array: pa.Array, codecs: Any) -> Int64Array:
    """Return integers in the order of the values, equal for equal values; NULL is the greatest.

    Lists are compared position by position. A list is compared further only if it has more elements
    and is equal to another list so far, so the work is O(elements * log).

    Args:
        array: An array of any type.
        codecs: The `Codecs` that encode the parts.
    """
    type = array.type
    if types.is_struct(type):
        field_ranks = [ranks(column, codecs) for column in array.flatten()]
        result = _dense_ranks(field_ranks) if field_ranks else np.zeros(len(array), np.int64)
    elif types.is_nested(type):
        lists = Lists.of(array)
        result = _list_ranks(lists.lengths, ranks(lists.values, codecs))
    else:
        codec = codecs.codec(type)
        codes = codec.encode(array)
        if codec.ordered:
            result = _dense_ranks([codes])
        else:
            distinct, inverse = np.unique(codes, return_inverse=True)
            sorted_positions = pc.array_sort_indices(_sortable(codec.decode(distinct))).to_numpy()
            rank_by_distinct = np.empty(len(distinct), np.int64)
            rank_by_distinct[sorted_positions] = np.arange(len(distinct))
            result = rank_by_distinct[inverse]
    if array.null_count:
        result[_mask(array.is_null())] = len(array)
    return result


def _sortable(array: pa.Array) -> pa.Array:
    """Return the values in a type that Arrow can sort."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):  # VARIANT and ENUM, as texts
        return array.storage
    if array.type == pa.string_view():
        return array.cast(pa.large_string())
    if array.type == INTERVAL:
        return interval_bytes(array)
    return array.cast(pa.large_binary()) if array.type == pa.binary_view() else array


def _list_ranks(lengths: Int64Array, element_ranks: Int64Array) -> Int64Array:
    """Return the ranks of lists of these lengths.

    Pass p of the loop divides the groups of equal lists by their elements at position p. A list
    leaves the loop when it has no such element, or is alone in its group.
    """
    starts, groups = _offsets(lengths)[:-1], np.zeros(len(lengths), np.int64)
    position, active = 0, np.arange(len(lengths))
    while len(active):
        has_element = lengths[active] > position
        elements = np.full(len(active), -1, np.int64)
        elements[has_element] = element_ranks[starts[active[has_element]] + position]
        # The lists of a group are either all active or all inactive. So zeros for the inactive
        # lists do not split their groups.
        element_ranks_of_all = np.zeros(len(lengths), np.int64)
        element_ranks_of_all[active] = elements
        groups = _dense_ranks([groups, element_ranks_of_all])
        group_sizes = np.bincount(groups)
        position += 1
        active = active[has_element]
        active = active[group_sizes[groups[active]] > 1]
    return groups


def _dense_ranks(columns: Sequence[Int64Array]) -> Int64Array:
    """Return the ranks 0, 1, 2, … of rows in lexicographic order; equal rows have equal ranks."""
    order = np.lexsort(tuple(reversed(columns)))
    changes = np.zeros(len(order), np.bool_)
    for column in columns:
        in_order = column[order]
        changes[1:] |= in_order[1:] != in_order[:-1]
    result = np.empty(len(order), np.int64)
    result[order] = np.cumsum(changes)
    return result


def _offsets(lengths: Int64Array) -> Int64Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.to_numpy(zero_copy_only=False)
    return mask
