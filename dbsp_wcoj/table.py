"""Tables: append-only codes for values that are not of a fixed width.

A table numbers strings, binaries or decimals 0, 1, 2, … in order of first appearance. A code never
changes and is never given again; adding is all or nothing. Values are stored canonical: a decimal
has no trailing zeros (1.50 is 1.5, 1E+2 is 100), so that what decodes never depends on which of two
equal values came first.

A lone surrogate is no text and a NaN no decimal: both are refused here, before they reach a file
that could not be written.

Cost: one hash look-up per row, in C, and Python work per *new* value.

Way not taken: ``np.unique``, which sorts strings, at ten times the cost of one pass of a dict.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.column import BoolArray, listed_column
from dbsp_wcoj.errors import ColumnTypeError

__all__ = ["KINDS", "Table"]

Int64Array = npt.NDArray[np.int64]


class Table:
    """The values of one column's domain, by code.

    Args:
        kind: A key of `KINDS`.

    >>> names = Table("str")
    >>> names.add(["ann", "bob", "ann"]).tolist()
    [0, 1, 0]
    >>> names.find(["bob", "eve"]).tolist(), names[np.array([1])].tolist()
    ([1, -1], ['bob'])
    """

    __slots__ = ("_codes", "_kind", "_values")

    _kind: TableKind
    _codes: _Codes
    _values: npt.NDArray[np.object_]

    def __init__(self, kind: str) -> None:
        self._kind = KINDS[kind]
        self._codes = _Codes()
        self._values = np.empty(0, object)  # by code, with room to grow

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, codes: Any) -> npt.NDArray[np.object_]:
        """Return a new array of the values of codes (or of a slice of them) within the table."""
        values: npt.NDArray[np.object_] = self._values[: len(self)][codes].copy()
        return values

    def listed(self, values: Any) -> tuple[list[Any], BoolArray]:
        """Return the values of a column that are no NULL, and the mask of their rows."""
        return listed_column(values, self._kind.type, dtypes=self._kind.dtypes)

    def find(self, rows: list[Any]) -> Int64Array:
        """Return the codes of plain values, -1 for unknown ones."""
        try:
            return np.fromiter(map(self._codes.get, rows, repeat(-1)), np.int64, len(rows))
        except TypeError as error:
            raise _no_hash(error) from error

    def add(self, rows: list[Any]) -> Int64Array:
        """Return the codes of plain values, adding the new ones, or none of them on an error."""
        before = len(self._codes)
        try:
            codes = np.fromiter(map(self._codes.__getitem__, rows), np.int64, len(rows))
            new = list(islice(reversed(self._codes), len(self._codes) - before))[::-1]
            self._store(list(map(self._kind.canonical, new)), before)
        except BaseException as error:
            while len(self._codes) > before:
                self._codes.popitem()
            if isinstance(error, TypeError):
                raise _no_hash(error) from error
            raise
        return codes

    def _store(self, values: list[Any], at: int) -> None:
        end = at + len(values)
        if end > len(self._values):
            grown = np.empty(max(end, 2 * len(self._values)), object)
            grown[:at] = self._values[:at]
            self._values = grown
        self._values[at:end] = values

    def _check(self) -> None:
        """Assert the invariant: dense codes in order, each value under its own code, canonical."""
        values = self[:].tolist()
        assert list(self._codes.values()) == list(range(len(self)))
        assert list(self._codes) == values
        assert [repr(self._kind.canonical(value)) for value in values] == list(map(repr, values))


class TableKind(NamedTuple):
    """The Python type of the values, the numpy dtype kinds that list as it, its canonical form."""

    type: type
    dtypes: str
    canonical: Callable[[Any], Any]


class _Codes(dict[Any, int]):
    """Value -> code, that gives a missing value the next code: one look-up per row, in C."""

    __slots__ = ()

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


def _no_hash(error: TypeError) -> ColumnTypeError:
    return ColumnTypeError(f"a value has no code ({error}); give finite decimals")


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ColumnTypeError(
                f"value {value!r} has a lone surrogate and is no Unicode text; use kind 'bytes'"
            ) from error
    return value


def _binary(value: bytes) -> bytes:
    return value


_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_WIDEST: Final = 76  # digits of the widest decimal of Arrow; beyond, zeros stay an exponent


def _decimal(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise ColumnTypeError(f"value {value!r} is no finite decimal; use NULL, or kind 'float64'")
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    if 0 < exponent <= _WIDEST - len(digits):
        digits, exponent = digits + (0,) * exponent, 0
    return Decimal((sign, digits, exponent))


KINDS: Final = {
    "str": TableKind(str, "UT", _text),
    "bytes": TableKind(bytes, "S", _binary),
    "decimal": TableKind(Decimal, "", _decimal),
}
