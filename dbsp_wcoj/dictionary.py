"""Dictionaries: between the values of a column and the int64 codes that the joins work on.

A dictionary has one *kind*, and every value of its domain one code:

- Numbers, booleans, dates, times and floats are bit-cast (`dbsp_wcoj.values.bitcast`): no table,
  and codes compare as the values do, so that ``a < b`` can be decided on codes
  (`Dictionary.ordered`).
- Strings, binaries and decimals have a table (`dbsp_wcoj.table`): the codes 0, 1, 2, … in order of
  first appearance. They are dense, which sorting and bitmaps like, but not in the values' order.

Laws: ``decode(encode(x)) == x``; two values have one code iff they are equal; a code never changes
and is never given again, whatever is encoded later; an error leaves the dictionary as it was.

What decodes is canonical, so it is the same whichever equal value came first: 0.0 for -0.0, the one
NaN, and decimals without trailing zeros.

NULL has no code, because ``NULL = NULL`` does not hold in a join: `Dictionary.encode` returns a
mask beside the codes, and the caller drops those rows. Their code is 0, always, so that
``(code, mask)`` can serve as a grouping key, where SQL takes NULLs for equal.

Two columns can be joined on codes iff they share one dictionary, or are bit-cast alike: all
integers but uint64 are, floats of two widths or times of two units are not (see `bitcast`).

Tables only grow. For durable state keep `Dictionary.kind`, and after each step the values since the
last (`Dictionary.values_since`); give them back in that order to `Dictionary.append`. A value that
was added by a step which then failed elsewhere stays; no row has it and it does no harm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.column import BoolArray, typed_column
from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.table import KINDS, Table
from dbsp_wcoj.values.bitcast import codes_of, values_of

__all__ = ["Dictionary", "Encoded"]

Int64Array = npt.NDArray[np.int64]


class Encoded(NamedTuple):
    """Codes of a column, one per row, and which of them mean a value.

    Where ``valid`` is False the code is 0 and stands for nothing: mask those rows.
    """

    codes: Int64Array
    valid: BoolArray


class Dictionary:
    """The codes of one column's domain.

    Args:
        kind: A numpy dtype of integers, booleans, floats up to 64 bits, ``datetime64`` or
            ``timedelta64`` with a unit, or its name; or "str", "bytes" or "decimal".

    Raises:
        ColumnTypeError: No such kind.

    >>> names = Dictionary("str")
    >>> codes, valid = names.encode(["ann", "bob", None, "ann"])
    >>> codes.tolist(), valid.tolist()
    ([0, 1, 0, 0], [True, True, False, True])
    >>> names.decode(codes[valid]).tolist()
    ['ann', 'bob', 'ann']
    >>> Dictionary("float64").encode([1.5, -2.0]).codes.argsort().tolist()
    [1, 0]
    """

    __slots__ = ("_dtype", "_kind", "_table")

    _kind: str
    _dtype: np.dtype[Any]
    _table: Table | None

    def __init__(self, kind: Any) -> None:
        self._kind, self._dtype = _resolved(kind)
        self._table = Table(self._kind) if self._kind in KINDS else None

    @property
    def kind(self) -> str:
        """The name that makes an empty dictionary of this kind, such as "int64" or "str"."""
        return self._kind

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of decoded values: the bit-cast dtype in native byte order, or object."""
        return self._dtype

    @property
    def ordered(self) -> bool:
        """Whether codes compare as their values do: bit-casts yes, tables no."""
        return self._table is None

    def __len__(self) -> int:
        """Number of values in the table; 0 for bit-casts, which have none."""
        return 0 if self._table is None else len(self._table)

    def __repr__(self) -> str:
        table = "" if self.ordered else f", {len(self)} values"
        return f"<Dictionary of {self._kind}{table}>"

    def encode(self, values: Any) -> Encoded:
        """Return the codes of a column, adding values that are new.

        Args:
            values: A one-dimensional numpy array or masked array, or an iterable of Python values.

        Returns:
            Codes, and a mask that is False where the value is NULL (None, NaT, masked). Codes of an
            int64 or time array without NULL share its memory: do not write to it afterwards.

        Raises:
            ColumnTypeError: A value of another type, or one that the kind cannot hold exactly.
                Nothing was added.

        Complexity:
            Bit-casts: at most a few passes in C, none for int64. Tables: one hash look-up per row
            in C, and Python work per new value.

        >>> Dictionary("uint8").encode([1, 300])
        Traceback (most recent call last):
        dbsp_wcoj.errors.ColumnTypeError: value 300 in row 1 does not fit uint8; use a wider kind
        """
        if self._table is None:
            column = typed_column(values, self._dtype)
            if column.misfit:
                raise ColumnTypeError(
                    f"{column.misfit} does not fit {self._kind}; use a wider kind"
                )
            return _scattered(codes_of(column.values), column.present)
        rows, present = self._table.listed(values)
        return _scattered(self._table.add(rows), present)

    def lookup(self, values: Any) -> Encoded:
        """Return the codes of a column without adding anything.

        Args:
            values: As for `encode`.

        Returns:
            Codes, and a mask that is False where no row can have the value: it is NULL, was never
            encoded, or does not fit the kind.

        Raises:
            ColumnTypeError: A value of another type.

        Complexity:
            As `encode`.

        >>> names = Dictionary("str")
        >>> _ = names.encode(["ann"])
        >>> names.lookup(["bob", "ann"]).valid.tolist(), len(names)
        ([False, True], 1)
        """
        if self._table is None:
            cast, known, present, _ = typed_column(values, self._dtype)
            codes = codes_of(cast)
        else:
            rows, present = self._table.listed(values)
            codes = self._table.find(rows)
            known = codes >= 0
        if not known.all():
            present[np.flatnonzero(present)] = known
            codes = codes[known]
        return _scattered(codes, present)

    def constant(self, value: Any) -> int | None:
        """Return the code of one value, or None where no row can have it; adds nothing.

        Raises:
            ColumnTypeError: A value of another type.

        >>> Dictionary("uint8").constant(7), Dictionary("uint8").constant(300)
        (7, None)
        """
        codes, known = self.lookup([value])
        return int(codes[0]) if known[0] else None

    def decode(self, codes: Any, valid: BoolArray | None = None) -> npt.NDArray[Any]:
        """Return the values of codes.

        Args:
            codes: Integer array; codes that this dictionary gave.
            valid: The mask that `encode` gave; by default every code means a value.

        Returns:
            Array of `dtype`; with ``valid`` a masked array, masked where ``valid`` is False. It
            shares the memory of ``codes`` where their bits are the values.

        Raises:
            ColumnTypeError: A code that this dictionary cannot have given.

        Complexity:
            One pass in C, none for int64 and times.

        >>> Dictionary("datetime64[D]").decode([0, 1]).astype(str).tolist()
        ['1970-01-01', '1970-01-02']
        """
        array = np.asarray(codes) if np.size(codes) else np.empty(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.dtype == np.uint64:
            raise ColumnTypeError(
                f"codes have dtype {array.dtype} and shape {array.shape}; "
                "give a one-dimensional int64 array, as encode returned it"
            )
        given = array.astype(np.int64, copy=False)
        if valid is not None:
            if np.shape(valid) != given.shape:
                raise ColumnTypeError(
                    f"{np.shape(valid)} is the shape of the mask of {len(given)} codes; "
                    "give the mask that encode returned with them"
                )
            empty = np.zeros(1, self._dtype)[0] if self._table is None else None
            values = np.full(len(given), empty, self._dtype)
            values[valid] = self.decode(given[valid])
            masked: npt.NDArray[Any] = np.ma.MaskedArray(values, mask=~np.asarray(valid, bool))
            return masked
        self._check_range(given)
        return values_of(given, self._dtype) if self._table is None else self._table[given]

    def values_since(self, length: int) -> npt.NDArray[np.object_]:
        """Return the values of the codes from ``length`` on: what was added since it was ``len()``.

        Raises:
            ColumnTypeError: ``length`` is not in ``[0, len(self)]``.

        Complexity:
            O(values returned).

        >>> names = Dictionary("str")
        >>> _ = names.encode(["ann", "bob"])
        >>> names.values_since(1).tolist()
        ['bob']
        """
        if not 0 <= length <= len(self):
            raise ColumnTypeError(
                f"no values since {length}: this dictionary has {len(self)}; "
                f"give a length from 0 to {len(self)}"
            )
        return np.empty(0, object) if self._table is None else self._table[length:]

    def append(self, values: Any) -> None:
        """Give the next codes to values, in their order: the inverse of `values_since`.

        Raises:
            ColumnTypeError: A value is NULL, there already, given twice or of another type, or the
                kind has no table. Nothing was added.

        Complexity:
            O(len(values)).

        >>> names, copy = Dictionary("str"), Dictionary("str")
        >>> _ = names.encode(["ann", "bob"])
        >>> copy.append(names.values_since(0))
        >>> copy.constant("bob")
        1
        """
        if self._table is None:
            if len(values):
                raise ColumnTypeError(
                    f"{self._kind} codes need no table, got {len(values)} values; append none"
                )
            return
        rows, present = self._table.listed(values)
        if not present.all():
            row = np.flatnonzero(~present)[0]
            raise ColumnTypeError(f"row {row} is NULL, which has no code; append values only")
        known = self._table.find(rows) >= 0
        seen: set[Any] = set()
        for row, is_known in zip(rows, known.tolist(), strict=True):
            if is_known or row in seen:
                raise ColumnTypeError(
                    f"value {row!r} has a code already; append each segment of values_since once, "
                    "in order, to an empty dictionary"
                )
            seen.add(row)
        self._table.add(rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as kind and values."""
        return _restored, (self._kind, self.values_since(0).tolist())

    def _check_range(self, codes: Int64Array) -> None:
        """Refuse codes that no value has; the bit-casts of 64 bits use nearly all."""
        if self._table is not None:
            least, most = 0, len(self) - 1
        elif self._dtype.itemsize == 8:
            return
        elif self._dtype.kind in "bu":
            least, most = 0, 1 if self._dtype.kind == "b" else int(np.iinfo(self._dtype).max)
        else:
            bounds = np.iinfo(f"i{self._dtype.itemsize}")
            least, most = int(bounds.min), int(bounds.max)
        if len(codes) and not (least <= codes.min() and codes.max() <= most):
            wrong = codes[(codes < least) | (codes > most)][0]
            raise ColumnTypeError(
                f"code {wrong} is outside [{least}, {most}] of {self!r}; "
                "decode with the dictionary that encoded"
            )


def _resolved(kind: Any) -> tuple[str, np.dtype[Any]]:
    """Return the name and the dtype of a kind."""
    if isinstance(kind, str) and kind in KINDS:
        return kind, np.dtype(object)
    try:
        dtype = np.dtype(object if kind is None else kind)
    except TypeError:
        dtype = np.dtype(object)
    for name, table in KINDS.items():
        if dtype.kind in table.dtypes or kind is table.type:
            return name, np.dtype(object)
    unitless = dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic"
    if dtype.kind not in "biufmM" or dtype.itemsize > 8 or unitless:
        raise ColumnTypeError(
            f"no dictionary of kind {kind!r}; give an integer, bool, float16 to float64, "
            "datetime64[unit] or timedelta64[unit] dtype, or 'str', 'bytes' or 'decimal'"
        )
    return dtype.name, dtype.newbyteorder("=")


def _scattered(codes: Int64Array, valid: BoolArray) -> Encoded:
    """Put the codes of the valid rows in their rows, and 0 in the others."""
    if len(codes) == len(valid):
        return Encoded(codes, valid)
    rows = np.zeros(len(valid), np.int64)
    rows[valid] = codes
    return Encoded(rows, valid)


def _restored(kind: str, values: list[Any]) -> Dictionary:
    dictionary = Dictionary(kind)
    dictionary.append(values)
    return dictionary
