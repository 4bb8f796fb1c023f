"""Codecs: encode the values of typed Arrow columns as int64 codes, and decode them.

A circuit encodes the rows that it is given and decodes the rows that it returns. In between, a row
is one int64 code per column. The code depends on the type:

=============================  =======================================================
integers, bool, dates, times   the number itself (`circuits.types.codecs.numbers`)
floats                         order-preserving bits (`dbsp_wcoj.values.bitcast`)
decimals up to 18 digits       the unscaled integer (`circuits.types.codecs.decimals`)
wider decimals                 0, 1, 2, … from a dictionary per scale, or inline
strings, binaries              0, 1, 2, … from one dictionary each
intervals with months          those of binaries (`circuits.types.codecs.intervals`)
VARIANT, ENUM                  those of strings (`circuits.types.codecs.variants`, `.enums`)
lists, structs, maps           0, 1, 2, … from one dictionary for all
=============================  =======================================================

The codes of the first three rows have the order of their values (`Codec.ordered`).

NULL is the code ``-2**63`` in every column: it groups with itself and sorts first by code.

Laws:

- If two types have the same `Codec.code_space`, their values have equal codes if and only if they
  are equal. -0.0 equals 0.0, and all NaN are equal.
- ``decode(encode(x))`` is x, except for -0.0 and NaN.
- If `Codec.ordered`, codes have the order of their values, with NaN greatest.
- A code never changes. In Arrow's dictionary-encoded columns, a row has the code of its value.

The state on disk contains the dictionaries (`Codecs.interners`, `circuits.state.circuit_state`). If
a step fails later, the values that it added may remain, which does no harm; `Interner.truncate`
removes them. Values that no row of the state has any more are removed from time to time
(`circuits.state.dictionary_sweep`). Their codes are not used again.

Cost: 100,000 strings take a few milliseconds in either direction; integers take at most one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from circuits.errors import SchemaError
from circuits.types.arrow_types import Family, family_of, is_nested, part_types, value_type
from circuits.types.codecs.arrow_buffers import (
    NULL,
    VIEW_TYPES,
    BoolArray,
    Int64Array,
    expand_encoding,
    valid_of,
)
from circuits.types.codecs.decimals import MAX_NARROW_DIGITS, NarrowDecimals, WideDecimals
from circuits.types.codecs.dictionaries import Dictionaries
from circuits.types.codecs.enums import Enums
from circuits.types.codecs.intervals import Intervals
from circuits.types.codecs.nested import Nested, ranks
from circuits.types.codecs.numbers import number_coding
from circuits.types.codecs.strings import Strings
from circuits.types.codecs.variants import Variants
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.values.interner import Interner, InternerArrays

__all__ = ["NULL", "Codec", "Codecs", "dictionary_columns"]


# The types of plans and schemas exist as long as their circuit; other type objects are few.
_MAX_TYPE_OBJECTS: Final = 4096


class Coding(Protocol):
    """The part of a codec that depends on the type.

    Its arrays are not dictionary-encoded. `Codec` handles NULL. If the type has a dictionary,
    `encode` adds new values to it if ``adding`` is True; else their code is -1.
    """

    @property
    def ordered(self) -> bool: ...
    @property
    def code_space(self) -> Hashable: ...
    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array: ...
    def decode(self, codes: Int64Array, valid: BoolArray | None) -> pa.Array: ...


@dataclass(frozen=True)
class Codec:
    """The codes of the columns of one type; `Codecs.codec` returns it.

    >>> names = Codecs().codec(pa.string())
    >>> names.encode(pa.array(["ann", "bob", None, "ann"])).tolist()
    [0, 1, -9223372036854775808, 0]
    >>> names.decode(np.array([1, 0])).to_pylist()
    ['bob', 'ann']
    >>> names.code_of("bob"), names.code_of("eve"), names.ordered
    (1, None, False)
    """

    type: pa.DataType
    coding: Coding

    @property
    def ordered(self) -> bool:
        """True if codes have the order of their values."""
        return self.coding.ordered

    @property
    def code_space(self) -> Hashable:
        """A value that is equal for two columns if and only if their codes can be compared."""
        return self.coding.code_space

    def encode(self, array: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Return the codes of a column; add new values to the dictionary of the type.

        Returns:
            int64 codes, which may share memory with ``array``: do not write to them.

        Raises:
            SchemaError: The column is of another type, or contains a value that has no code.

        Complexity:
            O(bytes).
        """
        return self._encode(array, adding=True)

    def find(self, array: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Like `encode`, but add nothing: the code of a value not in the dictionary is -1.

        >>> names = Codecs().codec(pa.string())
        >>> names.find(pa.array(["eve", None])).tolist()
        [-1, -9223372036854775808]
        """
        return self._encode(array, adding=False)

    def decode(self, codes: Int64Array) -> pa.Array:
        """Return the values of codes, as an array of exactly `type`.

        Raises:
            SchemaError: A number is not a code of this codec.

        Complexity:
            O(bytes); the result may share the memory of ``codes``.
        """
        try:
            if not self._is_expanded and types.is_dictionary(self.type):
                return self._decode_dictionary(codes)
            valid = codes != NULL
            return self.coding.decode(codes, None if valid.all() else valid)
        except ColumnTypeError as error:
            raise SchemaError(f"type {self.type}: {error}") from error

    def code_of(self, value: Any) -> int | None:
        """Return the code of a Python value or Arrow scalar, or None if no row can have it.

        No row can have a value that the type cannot represent exactly, or that was never encoded.
        Nothing is added to a dictionary.

        >>> prices = Codecs().codec(pa.decimal128(9, 2))
        >>> prices.code_of(3), prices.code_of(0.125), prices.code_of("x"), prices.code_of(None)
        (300, None, None, -9223372036854775808)
        """
        return self.lookup(value)()

    def lookup(self, value: Any) -> Callable[[], int | None]:
        """Return a function that computes `code_of` a value: faster if it is called often.

        >>> names = Codecs().codec(pa.string())
        >>> code_of_bob = names.lookup("bob")
        >>> code_of_bob(), names.encode(pa.array(["bob"])).tolist(), code_of_bob()
        (None, [0], 0)
        """
        array = _singleton(value, self.type)
        if array is None:
            return lambda: None
        if isinstance(self.coding, Strings) and isinstance(self.coding.dictionary, Interner):
            return _StringLookup(self._code_in, array, self.coding.dictionary)
        return lambda: self._code_in(array)

    def _code_in(self, array: pa.Array) -> int | None:
        """Return the code of the value of an array, or None if it has no code."""
        try:
            code = int(self._encode_chunk(array, adding=False)[0])
        except SchemaError:  # a value that has no code
            return None
        is_unknown = not self.ordered and NULL < code < 0  # codes of a dictionary start at 0
        return None if is_unknown else code

    def sort_keys(
        self, codes: Int64Array, *, descending: bool = False, nulls_first: bool = False
    ) -> tuple[list[Int64Array], bool]:
        """Return int64 columns whose lexicographic order is the order of the values.

        Args:
            codes: int64; codes of this codec.
            descending: If True, the greatest value is first.
            nulls_first: If True, NULLs are first in either direction; else last.

        Returns:
            The columns, and True if they are exact. Otherwise different values may have equal keys
            (strings with the same first bytes), but no value has the key of NULL.

        Complexity:
            O(n).

        >>> keys, exact = Codecs().codec(pa.int64()).sort_keys(np.array([5, NULL, 3]))
        >>> keys[0].argsort().tolist(), exact
        ([2, 0, 1], True)
        """
        flip = -1 if descending else 0  # x ^ -1 is ~x
        if isinstance(self.coding, Strings | WideDecimals | Nested):
            keys = [key ^ flip for key in self.coding.keys(codes)]
            is_null = codes == NULL
            if is_null.any():
                for key in keys:
                    key[is_null] = NULL if nulls_first else ~NULL
            return keys, self.coding.exact
        keys = [codes ^ flip]  # NULL, the least code, is now the greatest if descending
        if nulls_first == descending:
            # NULL is at the wrong end. Add or subtract 1: only its key wraps around to the other
            # end.
            keys[0] = keys[0] + (1 if descending else -1)
        return keys, True

    def hashes(self, codes: Int64Array) -> Int64Array:
        """Return a number for each value that does not depend on its code in the dictionary.

        Different values may have equal numbers, but it is improbable.

        Complexity:
            O(bytes).

        >>> names, others = Codecs().codec(pa.string()), Codecs().codec(pa.string())
        >>> codes = names.encode(pa.array(["ann", "bob"]))
        >>> other_codes = others.encode(pa.array(["bob", "ann"]))
        >>> names.hashes(codes).tolist() == others.hashes(other_codes).tolist()[::-1]
        True
        """
        coding = self.coding
        match coding:
            case Strings():
                return coding.dictionary.hashes(codes)
            case WideDecimals() | Nested():
                return coding.hashes(codes)
        return codes

    def ranks(self, codes: Int64Array) -> Int64Array:
        """Return integers in the order of the values of these codes; NULL is the greatest.

        Complexity:
            O(bytes * log): it decodes and sorts the values.

        >>> names = Codecs().codec(pa.string())
        >>> names.ranks(names.encode(pa.array(["eve", None, "ann"]))).tolist()
        [1, 3, 0]
        """
        distinct, positions = np.unique(codes, return_inverse=True)
        result: Int64Array = ranks(self.decode(distinct), Codecs())[positions]
        return result

    def _encode(self, array: pa.Array | pa.ChunkedArray, *, adding: bool) -> Int64Array:
        if array.type != self.type:
            raise SchemaError(
                f"the codec of {self.type} cannot encode an array of type {array.type}: "
                "cast it, or use the codec of its type"
            )
        if not isinstance(array, pa.ChunkedArray):
            return self._encode_chunk(array, adding)
        if array.num_chunks == 1:
            return self._encode_chunk(array.chunk(0), adding)
        codes = [self._encode_chunk(chunk, adding) for chunk in array.chunks]
        return np.concatenate([np.empty(0, np.int64), *codes])

    @cached_property
    def _is_expanded(self) -> bool:
        """True if `expand_encoding` has no effect on arrays of the type."""
        return not types.is_dictionary(self.type) and self.type not in VIEW_TYPES

    def _encode_chunk(self, chunk: pa.Array, adding: bool) -> Int64Array:
        array = chunk if self._is_expanded else expand_encoding(chunk)
        valid = valid_of(array)
        codes = self.coding.encode(array, valid, adding=adding)
        return codes if valid is None else np.where(valid, codes, NULL)

    def _decode_dictionary(self, codes: Int64Array) -> pa.Array:
        encoded = pa.array(codes, mask=codes == NULL).dictionary_encode()
        values = self.coding.decode(encoded.dictionary.to_numpy(), None)
        try:
            indices = encoded.indices.cast(self.type.index_type)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{len(values)} values are too many for the indices of {self.type}: {error}; "
                "declare a wider index type"
            ) from error
        return pa.DictionaryArray.from_arrays(indices, values, ordered=self.type.ordered)


class _StringLookup:
    """Finds the code of a string, and only again when it may have changed.

    Threads share it. So the code and the state of the dictionary for which it is valid are stored
    together, after the code has been found.
    """

    __slots__ = ("_array", "_code_in", "_dictionary", "_found")

    def __init__(
        self,
        code_in: Callable[[pa.Array], int | None],
        array: pa.Array,
        dictionary: Interner,
    ) -> None:
        self._code_in = code_in
        self._array = array
        self._dictionary = dictionary
        # The removals and the strings of the dictionary, and the code.
        self._found: tuple[int, int, int | None] = (-1, -1, None)

    def __call__(self) -> int | None:
        dictionary = self._dictionary
        removals, strings, code = self._found
        is_same = dictionary.removals == removals
        if not is_same or (code is None and len(dictionary) != strings):
            # The counters before the code: another thread may be adding strings.
            removals, strings = dictionary.removals, len(dictionary)
            code = self._code_in(self._array)
            self._found = (removals, strings, code)
        return code


class Codecs:
    """The codecs of one circuit, with the dictionaries that they share.

    Attributes:
        memos: Results that functions of other modules compute once for these codecs, by function.

    >>> codecs = Codecs()
    >>> codecs.codec(pa.string()).encode(pa.array(["x", "y"])).tolist()
    [0, 1]
    >>> codecs.codec(pa.large_string()).encode(pa.array(["y"], pa.large_string())).tolist()
    [1]
    >>> copy = Codecs()
    >>> copy.dictionary("text").load([codecs.interners["text"].arena()])
    >>> copy.codec(pa.string()).code_of("y")
    1
    """

    def __init__(self, dictionaries: Dictionaries | None = None) -> None:
        self._dictionaries = dictionaries or Dictionaries()
        self._codecs: dict[pa.DataType, Codec] = {}
        self.memos: dict[object, dict[Any, Any]] = {}
        # By the ``id`` of a type, because Arrow hashes a type slowly, by its text. The type is in
        # the value so that its ``id`` stays unique.
        self._by_id: dict[int, tuple[pa.DataType, Codec]] = {}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {size}" for name, size in self.lengths().items())
        return f"<Codecs with dictionaries {sizes}>"

    def codec(self, type: pa.DataType) -> Codec:
        """Return the codec of a type.

        Raises:
            SchemaError: A column cannot have the type.
        """
        entry = self._by_id.get(id(type))
        if entry is not None:
            return entry[1]
        codec = self._codecs.get(type)
        if codec is None:
            codec = self._codecs[type] = Codec(type, self._coding(type))
        if len(self._by_id) < _MAX_TYPE_OBJECTS:
            self._by_id[id(type)] = type, codec
        return codec

    @property
    def interners(self) -> Mapping[str, Interner]:
        """The dictionaries by name: ``text``, ``binary``, ``decimal 2`` for decimals of scale 2."""
        return self._dictionaries.named

    def dictionary(self, name: str) -> Interner:
        """Return the dictionary with a name, as in `interners`; it may still be empty.

        Raises:
            SchemaError: No dictionary has such a name.
        """
        return self._dictionaries.dictionary(name)

    def lengths(self) -> dict[str, int]:
        """The number of codes of each dictionary."""
        return self._dictionaries.lengths()

    def overlay(self, shared: Mapping[str, InternerArrays]) -> Codecs:
        """Return codecs for a reader: they have the shared values, and keep new values private.

        Any thread may call this while another thread adds to the dictionaries.

        Args:
            shared: The values of each dictionary, from `Interner.share`.

        Complexity:
            O(dictionaries).
        """
        return Codecs(self._dictionaries.overlay(shared))

    def _coding(self, type: pa.DataType) -> Coding:
        if type != value_type(type) and is_nested(value_type(type)):
            raise SchemaError(f"a column cannot be of type {type}: declare {value_type(type)}")
        type = value_type(type)
        coding = number_coding(type)
        if coding is not None:
            return coding
        match family_of(type):
            case Family.DECIMAL if type.precision <= MAX_NARROW_DIGITS:
                return NarrowDecimals(type)
            case Family.DECIMAL:
                return WideDecimals(type, self._dictionaries.decimals(type.scale))
            case Family.STRING:
                return Strings(type, self._dictionaries.text, "text")
            case Family.ENUM:
                return Enums(type, self._dictionaries.text, ("enum", type.labels))
            case Family.VARIANT:
                return Variants(type, self._dictionaries.text, "variant")
            case Family.BINARY:
                return Strings(type, self._dictionaries.binary, "binary")
            case Family.INTERVAL:
                return Intervals(type, self._dictionaries.binary, "interval")
            case Family.NESTED if Family.INTERVAL in map(family_of, part_types(type)):
                # Lists are compared by the codes of their parts, and equal intervals may differ.
                raise SchemaError(
                    f"a column cannot be of type {type}, because lists, structs and maps cannot "
                    "contain intervals with months: take the text of the intervals"
                )
            case Family.NESTED:
                parts = tuple(map(self.codec, part_types(type)))
                return Nested(type, self._dictionaries.nested(), parts)
        raise SchemaError(f"a column cannot be of type {type}: cast it to a supported type")


def dictionary_columns(codecs: Sequence[Codec]) -> dict[int, Codec]:
    """Return the columns whose codes come from a dictionary: they are valid in one circuit only.

    >>> codecs = Codecs()
    >>> list(dictionary_columns([codecs.codec(pa.int8()), codecs.codec(pa.string())]))
    [1]
    """
    return {index: codec for index, codec in enumerate(codecs) if not codec.ordered}


def _singleton(value: Any, type: pa.DataType) -> pa.Array | None:
    """Return an array of one value; None if the type cannot represent the value exactly.

    The array is not dictionary-encoded.
    """
    type = value_type(type)
    try:
        if isinstance(value, pa.Scalar) and value.type != type:
            value = value.as_py()
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, type)
        if scalar is not value:
            converted = scalar.as_py()
            are_nan = converted != converted and value != value  # only NaN differs from itself
            if converted != value and not are_nan:
                return None
        return pa.array([scalar], type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
