"""Columns as users give them, brought to one type without ever changing a value.

Numpy arrays, masked arrays and Python sequences come in; what goes out is the values that are
present and a mask of the rows that hold one. NULL is ``None``, ``NaT``, a masked value, or the
missing value of a numpy string dtype. NaN is no NULL: it is a value.

A value *fits* a dtype iff the cast keeps it exactly: ``300`` does not fit uint8, nor ``0.1`` a
float32, nor a microsecond a datetime64[s]; ``2**60`` fits float64 but ``2**53 + 1`` does not.
Misfits are marked, not raised: an encoding refuses them, a look-up knows that no row can hold them.
Types are not converted: a bool is no integer, and a float, be it 1.0, is none either.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.errors import ColumnTypeError

__all__ = ["BoolArray", "TypedColumn", "listed_column", "typed_column"]

BoolArray = npt.NDArray[np.bool_]

_SOURCES: Final = {"i": "iu", "u": "iu", "f": "fiu", "b": "b", "M": "M", "m": "m"}
_INTEGERS: Final = (int, np.integer)
_FLOATS: Final = (int, float, np.integer, np.float16, np.float32, np.float64)
_SCALARS: Final[dict[str, tuple[type, ...]]] = {
    "i": _INTEGERS,
    "u": _INTEGERS,
    "f": _FLOATS,
    "b": (bool, np.bool_),
    "M": (datetime.datetime, datetime.date, np.datetime64),
    "m": (datetime.timedelta, np.timedelta64),
}
_WAY_OUT: Final = "convert the values, or use a Dictionary of their own kind"


class TypedColumn(NamedTuple):
    """The values present, which of them fit the dtype, and which rows hold one.

    ``values`` and ``fits`` have one entry per True in ``present``; a misfit's value is arbitrary.
    ``misfit`` names the first one, as it was given.
    """

    values: npt.NDArray[Any]
    fits: BoolArray
    present: BoolArray
    misfit: str


def typed_column(values: Any, dtype: np.dtype[Any]) -> TypedColumn:
    """Bring values to a bit-cast dtype; an array of that dtype is passed on without a copy.

    Raises:
        ColumnTypeError: Values of another type, mixed types, or not one-dimensional.

    Complexity:
        At most three passes over an array; Python work per row for a sequence.
    """
    given, present = _present(values)
    if isinstance(given, list):
        cast, fits = _cast_scalars(given, dtype, present)
    elif not len(given):
        cast, fits = np.empty(0, dtype), np.empty(0, np.bool_)
    elif given.dtype.kind not in _SOURCES[dtype.kind] or given.dtype.itemsize > 8:
        raise ColumnTypeError(
            f"values have dtype {given.dtype} (first value {given[0]!r}), expected {dtype}; "
            f"{_WAY_OUT}"
        )
    else:
        cast, fits = _cast(given, dtype)
    misfit = ""
    if not fits.all():
        first = int(np.argmin(fits))
        misfit = f"value {given[first]!s} in row {np.flatnonzero(present)[first]}"
    if dtype.kind in "mM":
        real = ~np.isnat(cast) | ~fits
        if not real.all():
            present[np.flatnonzero(present)] = real
            cast, fits = cast[real], fits[real]
    return TypedColumn(cast, fits, present, misfit)


def listed_column(values: Any, kind: type, *, dtypes: str) -> tuple[list[Any], BoolArray]:
    """Return the values present as a list of exact ``kind``, and the mask of their rows.

    Args:
        values: A numpy array whose dtype kind is in ``dtypes``, an object array, or a sequence.
        kind: The Python type that each value must have; subclasses become plain.
        dtypes: Characters of numpy dtype kinds that list as ``kind``.

    Raises:
        ColumnTypeError: A value of another type, or not one-dimensional.

    Complexity:
        O(n) in C; Python work per row only for subclasses of ``kind``, and where NULLs occur.
    """
    given, present = _present(values)
    if not isinstance(given, list):
        if len(given) and given.dtype.kind not in dtypes:
            raise ColumnTypeError(
                f"values have dtype {given.dtype} (first value {given[0]!r}), "
                f"expected {kind.__name__}; {_WAY_OUT}"
            )
        given = given.tolist() if len(given) else []
    kinds = set(map(type, given))
    _check_types(given, kinds, (kind,), present, kind.__name__)
    if kinds - {kind}:
        given = [_PLAIN.get(kind, kind)(value) for value in given]
    return given, present


_PLAIN: Final[dict[type, Any]] = {str: str.__str__, bytes: lambda value: b"".join((value,))}


def _present(values: Any) -> tuple[npt.NDArray[Any] | list[Any], BoolArray]:
    """Return the values that are not None, masked or missing, and the mask of their rows."""
    if isinstance(values, np.ma.MaskedArray):
        present = ~np.ma.getmaskarray(values)
        values = values.data
    elif isinstance(values, str | bytes) or not isinstance(values, np.ndarray | Iterable):
        raise ColumnTypeError(f"{values!r} is one value; give a sequence of values: [{values!r}]")
    else:
        values = values if isinstance(values, np.ndarray) else list(values)
        present = np.ones(values.size if isinstance(values, np.ndarray) else len(values), bool)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ColumnTypeError(f"values have shape {values.shape}; give a one-dimensional array")
        if not present.all():
            values = values[present]
        if values.dtype.kind not in "OT":
            return values, present
        missing = getattr(values.dtype, "na_object", None)
        values = values.tolist()
    else:
        missing = None
    if missing is not None or type(None) in set(map(type, values)):
        real = np.fromiter((v is not None and v is not missing for v in values), bool, len(values))
        present[np.flatnonzero(present)] = real
        values = [value for value, is_real in zip(values, real.tolist(), strict=True) if is_real]
    return values, present


def _check_types(
    given: list[Any], kinds: set[type], allowed: tuple[type, ...], present: BoolArray, name: str
) -> None:
    """Refuse values of types that are not allowed; a bool is an integer to Python, not here."""
    wrong = {
        kind
        for kind in kinds
        if not issubclass(kind, allowed) or (kind is bool and bool not in allowed)
    }
    if not wrong:
        return
    at = next(i for i, value in enumerate(given) if type(value) in wrong)
    raise ColumnTypeError(
        f"value {given[at]!r} in row {np.flatnonzero(present)[at]} is of type "
        f"{type(given[at]).__name__}, expected {name}; {_WAY_OUT}"
    )


def _cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], BoolArray]:
    """Cast an array to a dtype of its own sort, and tell which values were kept exactly."""
    source = array.dtype
    fits = np.ones(len(array), np.bool_)
    if source == dtype:
        return array.astype(dtype, copy=False), fits
    if dtype.kind in "iu":
        if not np.can_cast(source, dtype, "safe"):
            bounds = np.iinfo(dtype)
            fits = (array >= bounds.min) & (array <= bounds.max)
        return array.astype(dtype), fits
    if dtype.kind == "f" and source.kind != "f":
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
        wide, bounds = cast.astype(np.float64), np.iinfo(source)
        inside = (wide >= float(bounds.min)) & (wide < float(bounds.max + 1))
        return cast, inside & (np.where(inside, wide, 0.0).astype(source) == array)
    if dtype.kind in "mM" and not _same_clock(source, dtype):
        return array.astype(dtype), np.isnat(array)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    back = cast.astype(source)  # a wrapped overflow does not come back either
    return cast, (back == array) | (np.isnat(array) if dtype.kind in "mM" else np.isnan(array))


def _same_clock(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether units convert exactly: months have no fixed length, and a bare number no unit."""
    return np.datetime_data(source)[0] != "generic" and np.can_cast(source, dtype, "same_kind")


def _cast_scalars(
    given: list[Any], dtype: np.dtype[Any], present: BoolArray
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Cast Python or numpy scalars one by one, exactly, where numpy would round or wrap."""
    kinds = set(map(type, given))
    _check_types(given, kinds, _SCALARS[dtype.kind], present, str(dtype))
    if dtype.kind == "b":
        return np.array(given, dtype), np.ones(len(given), np.bool_)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        least, most = int(bounds.min), int(bounds.max)
        fits = np.fromiter((least <= int(value) <= most for value in given), bool, len(given))
        if not fits.all():
            given = [v if fit else 0 for v, fit in zip(given, fits.tolist(), strict=True)]
        return np.array(given, dtype), fits
    return _cast_floats(given, dtype) if dtype.kind == "f" else _cast_times(given, dtype)


def _cast_floats(given: list[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], BoolArray]:
    numbers = [value.item() if isinstance(value, np.generic) else value for value in given]
    floats = [_float(number) for number in numbers]
    exact = [x == number or number != number for x, number in zip(floats, numbers, strict=True)]
    cast, fits = _cast(np.array(floats, np.float64), dtype)
    return cast, fits & np.array(exact, np.bool_)


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return np.inf


def _cast_times(given: list[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], BoolArray]:
    for value in given:
        if type(value) not in _SCALARS[dtype.kind] or getattr(value, "tzinfo", None) is not None:
            raise ColumnTypeError(
                f"value {value!r} has a time zone or is a subclass ({type(value).__name__}); "
                f"give numpy {dtype} values in UTC"
            )
    if dtype.kind == "M" and np.datetime64 not in set(map(type, given)):
        return _cast(np.array(given, "M8[us]"), dtype)
    pairs = [_cast(_moment(value), dtype) for value in given]  # numpy would wrap mixed units around
    cast = np.concatenate([np.empty(0, dtype), *(array for array, _ in pairs)])
    return cast, np.concatenate([np.empty(0, np.bool_), *(fits for _, fits in pairs)])


def _moment(value: Any) -> npt.NDArray[Any]:
    """Return a moment or a duration as an array of one, in a unit that holds it exactly."""
    if isinstance(value, datetime.timedelta):
        unit = "us" if value.microseconds else "s"
        count = value // datetime.timedelta(microseconds=1 if unit == "us" else 1_000_000)
        overflows = abs(count) >= 2**63  # then a number of no unit: a misfit by `_cast`
        return np.array([5 if overflows else count], "m8" if overflows else f"m8[{unit}]")
    return np.array([value], "M8[us]" if isinstance(value, datetime.date) else None)
