"""Rows as Python dicts become an Arrow table, without changing a value.

Arrow infers the type of each column from its values, and `circuits.lossless` casts that to the
declared type later, under the same rules as for a table. Alternative considered:
``pa.Table.from_pylist(rows, schema=...)``, which drops unknown keys, makes 1 of 1.5, a date of a
date with a time, and 12:00 in UTC of 12:00 without a zone. The declared type decides only where
values of Python have no other type: float32, integers beyond int64, and decimals of large integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from numbers import Integral, Number
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.errors import SchemaError

__all__ = ["table_of_dicts"]

# Keys besides the columns: a weight, a sequence, and mistakes; each takes a column of all rows.
_MAX_OTHER_KEYS: Final = 16
# In this order: a bool is a number, a time is a date.
_FAMILIES: Final[dict[str, type | tuple[type, ...]]] = {
    "true or false": (bool, np.bool_),
    "numbers": Number,
    "texts": str,
    "bytes": bytes,
    "times": datetime,
    "dates": date,
    "times of day": time,
    "durations": timedelta,
}


def table_of_dicts(relation: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as a table: every column of the schema, and every other key that a row has.

    A key that a row lacks is NULL there. Other keys become columns, since an input with rules may
    read them; `circuits.schema` refuses those that nothing reads.

    Args:
        relation: The input, for errors.
        rows: One dict per row.
        schema: The declared columns.

    Raises:
        SchemaError: A key is no string, there are many unknown keys, or Arrow has no type for the
            values of a column.

    Complexity:
        O(rows x columns).

    >>> schema = pa.schema([("nr", pa.int64()), ("item", pa.string())])
    >>> table_of_dicts("r", [{"nr": 1}, {"nr": 2, "item": "x"}], schema).to_pylist()
    [{'nr': 1, 'item': None}, {'nr': 2, 'item': 'x'}]
    """
    declared = dict(zip(schema.names, schema.types, strict=True))
    keys = dict.fromkeys(chain(declared, chain.from_iterable(rows)))
    other = list(islice(keys, len(declared), None))
    if len(other) > _MAX_OTHER_KEYS:
        raise SchemaError(
            f"relation {relation!r}: rows have {len(other)} keys that are no columns, more than "
            f"{_MAX_OTHER_KEYS}; the first is {other[0]!r}: give the columns "
            f"{', '.join(declared)}"
        )
    # A table without columns still has a number of rows; so one column is there and is left out.
    names, columns = [""], [pa.nulls(len(rows))]
    for key in keys:
        if not isinstance(key, str):
            raise SchemaError(
                f"relation {relation!r}: the key {key!r} of a row is of type "
                f"{type(key).__name__}: the names of columns are strings"
            )
        values = [row.get(key) for row in rows]
        try:
            columns.append(_column(values, declared.get(key)))
        except MemoryError:
            raise
        except Exception as error:  # a value may be of any class, and Arrow calls its methods
            raise SchemaError(
                f"relation {relation!r}: the values of the key {key!r} are no column of one type: "
                f"{error}"
            ) from error
        names.append(key)
    try:
        table = pa.Table.from_arrays(columns, names=names)
    except UnicodeEncodeError as error:
        raise SchemaError(f"relation {relation!r}: a key is not valid Unicode: {error}") from error
    return table.select(range(1, len(names)))


def _column(values: list[Any], declared: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    """The values with the type that Arrow infers, or with the declared one where that is safe."""
    kinds = set(map(type, values)) - {type(None)}
    _check_kinds(values, kinds)
    if declared is not None and kinds:
        numbers: tuple[type, ...] = ()
        if types.is_integer(declared):
            numbers = (Integral,)
        elif types.is_decimal(declared):
            numbers = (Integral, Decimal)
        if _are_numbers(kinds, numbers):
            return pa.array(values, declared)
        allowed = (float,) if types.is_float16(declared) else (float, Integral)
        if types.is_floating(declared) and _are_numbers(kinds, allowed):
            return _floats(values, declared)
    return pa.array(values)


def _are_numbers(kinds: set[type], allowed: tuple[type, ...]) -> bool:
    return bool not in kinds and all(issubclass(kind, allowed) for kind in kinds)


def _floats(values: list[float | None], declared: pa.DataType) -> pa.Array:
    """Floats of Python in the declared width, rounded; a finite one does not become infinite."""
    wide = pa.array(values, pa.float64())
    # Arrow refuses integers that are no such float.
    found = wide.cast(declared) if types.is_float16(declared) else pa.array(values, declared)
    if declared.bit_width < 64:
        finite = pc.is_finite(wide)
        beyond = pc.and_(finite, pc.invert(pc.is_finite(found.cast(pa.float64()))))
        if pc.any(beyond).as_py():
            raise ValueError(f"a value is beyond {declared}: declare double")
    return found


def _check_kinds(values: list[Any], kinds: set[type]) -> None:
    """Refuse what Arrow would change silently: mixed kinds, a zone, nanoseconds.

    Of a date and a time it makes two dates, of a time and an integer two times, of text and bytes
    two bytes.

    Raises:
        ValueError: The values are of several kinds, or one does not fit a column.
    """
    families = sorted(set(map(_family, kinds)))
    if len(families) > 1:
        raise ValueError(f"some are {families[0]} and some are {families[1]}: give one kind")
    if families == ["times"] or families == ["times of day"]:
        timed = (value for value in values if isinstance(value, datetime | time))
        zoned = {value.tzinfo is not None for value in timed}
        if len(zoned) > 1:
            raise ValueError("some times have a zone and some have none: give all of them one")
        if zoned == {True} and families == ["times of day"]:
            raise ValueError("a time of day has a zone, and no column holds that: leave it out")
    for kind in kinds:
        for part in ("nanosecond", "nanoseconds"):
            if hasattr(kind, part) and any(getattr(value, part, 0) for value in values):
                raise ValueError("a time has nanoseconds, and Arrow would drop them: give a frame")


def _family(kind: type) -> str:
    """The kind of values that a Python type belongs to, as users call it."""
    for name, types_ in _FAMILIES.items():
        if issubclass(kind, types_):
            return name
    return kind.__name__
