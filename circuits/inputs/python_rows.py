"""Convert rows that are Python dicts to an Arrow table, without changing a value.

Arrow infers the type of each column from its values, and `circuits.types.safe_cast` casts that to
the declared type later, under the same rules as for a table. Where this would fail or lose digits,
the column is built in the declared type: for numbers in a column of integers, decimals or floats,
and for maps.

Alternative considered: ``pa.Table.from_pylist(rows, schema=...)``. It drops unknown keys and
changes values silently: 1.5 becomes 1, a date with a time becomes a date, and 12:00 without a time
zone becomes 12:00 in UTC.
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
from circuits.types.arrow_types import has_enum, has_variant, part_types, with_parts

__all__ = ["table_of_dicts"]

# Maximum number of keys other than the declared columns (the weight, a sequence, mistakes). Each of
# them costs a column with a value for every row.
_MAX_OTHER_KEYS: Final = 16
# The order matters: in Python a bool is also a number, and a datetime is also a date.
_CLASSES_BY_KIND: Final[dict[str, type | tuple[type, ...]]] = {
    "true or false": (bool, np.bool_),
    "numbers": Number,
    "texts": str,
    "bytes": bytes,
    "times": datetime,
    "dates": date,
    "times of day": time,
    "durations": timedelta,
    "lists": (list, tuple, np.ndarray),
    "structs": Mapping,
}


def table_of_dicts(relation: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a table with every column of the schema, and every other key that a row has.

    A key that a row lacks is NULL in that row. Keys that are not in the schema become columns too,
    because an input may declare that it reads them, for example as its sequence.
    `circuits.schema` raises an error for the columns that nothing reads.

    Args:
        relation: The name of the input, for error messages.
        rows: One dict per row.
        schema: The declared columns.

    Raises:
        SchemaError: A key is not a string, there are too many unknown keys, or Arrow has no type
            for the values of a column.

    Complexity:
        O(rows x columns).

    >>> schema = pa.schema([("nr", pa.int64()), ("item", pa.string())])
    >>> table_of_dicts("r", [{"nr": 1}, {"nr": 2, "item": "x"}], schema).to_pylist()
    [{'nr': 1, 'item': None}, {'nr': 2, 'item': 'x'}]
    """
    declared = dict(zip(schema.names, schema.types, strict=True))
    keys = dict.fromkeys(chain(declared, chain.from_iterable(rows)))
    other_keys = list(islice(keys, len(declared), None))
    if len(other_keys) > _MAX_OTHER_KEYS:
        raise SchemaError(
            f"relation {relation!r}: rows have {len(other_keys)} keys that are not columns, more "
            f"than {_MAX_OTHER_KEYS}; the first is {other_keys[0]!r}: use the columns "
            f"{', '.join(declared)}"
        )
    # A table must keep its number of rows even if it has no columns. A placeholder column, removed
    # in the last line, provides it.
    names, columns = [""], [pa.nulls(len(rows))]
    for key in keys:
        if not isinstance(key, str):
            raise SchemaError(
                f"relation {relation!r}: the key {key!r} of a row is of type "
                f"{type(key).__name__}: names of columns must be strings"
            )
        values = [row.get(key) for row in rows]
        try:
            columns.append(_column(values, declared.get(key)))
        except MemoryError:
            raise
        except Exception as error:  # Arrow calls methods of the values, which may be of any class
            raise SchemaError(
                f"relation {relation!r}: the values of the key {key!r} do not form a column of one "
                f"type: {error}"
            ) from error
        names.append(key)
    try:
        table = pa.Table.from_arrays(columns, names=names)
    except UnicodeEncodeError as error:
        raise SchemaError(f"relation {relation!r}: a key is not valid Unicode: {error}") from error
    return table.select(range(1, len(names)))


def _column(values: list[Any], declared: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    """Return a column of the type that Arrow infers, or of the declared type where that is safe."""
    classes = set(map(type, values)) - {type(None)}
    if declared is not None and types.is_map(declared):
        # Of several kinds: a map may be a dict in one row, and a list of pairs in another.
        return _nested_values(values, declared)
    _check_kinds(values, classes)
    if declared is None or not classes:
        return pa.array(values)
    if types.is_nested(declared):
        return _nested_values(values, declared)
    if types.is_integer(declared) and _are_numbers(classes, (Integral,)):
        return pa.array(values, declared)
    if types.is_decimal(declared) and _are_numbers(classes, (Integral, Decimal)):
        return pa.array(values, declared)
    if types.is_floating(declared):
        # Arrow would round an integer to float16; the later cast raises an error instead.
        allowed = (float,) if types.is_float16(declared) else (float, Integral)
        if _are_numbers(classes, allowed):
            return _floats(values, declared)
    return pa.array(values)


def _nested_values(values: list[Any], declared: pa.DataType) -> pa.Array:
    """Return an array of lists, structs or maps; the declared type says what a dict is.

    Arrow infers the type of lists and structs, so that a cast can be checked. It cannot infer the
    type of a map, so a column with maps is built in the declared type, with texts for VARIANT and
    ENUM.
    """
    if "map<" not in str(declared):
        return pa.array(values)
    return pa.array([_entries(value, declared) for value in values], _stored_type(declared))


def _stored_type(declared: pa.DataType) -> pa.DataType:
    """Return a type with the types of texts in place of VARIANT and ENUM."""
    if isinstance(declared, pa.BaseExtensionType):
        return declared.storage_type
    if not has_variant(declared) and not has_enum(declared):
        return declared
    return with_parts(declared, [_stored_type(part) for part in part_types(declared)])


def _entries(value: Any, declared: pa.DataType) -> Any:
    """Return a value in which each dict that is declared as a map is a list of pairs."""
    if value is None or not types.is_nested(declared):
        return value
    if types.is_map(declared):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(key, _entries(item, declared.item_type)) for key, item in pairs]
    if types.is_struct(declared):
        surplus = [name for name in value if declared.get_field_index(name) < 0]
        if surplus:
            raise ValueError(f"{declared} has no field {surplus[0]!r}")
        return {name: _entries(part, declared.field(name).type) for name, part in value.items()}
    return [_entries(element, declared.value_type) for element in value]


def _are_numbers(classes: set[type], allowed: tuple[type, ...]) -> bool:
    return bool not in classes and all(issubclass(cls, allowed) for cls in classes)


def _floats(values: list[float | None], declared: pa.DataType) -> pa.Array:
    """Round Python floats to the declared width; raise an error if a finite one overflows."""
    wide = pa.array(values, pa.float64())
    # Arrow raises an error for an integer that the float type cannot represent.
    narrow = wide.cast(declared) if types.is_float16(declared) else pa.array(values, declared)
    if declared.bit_width < 64:
        finite = pc.is_finite(wide)
        overflows = pc.and_(finite, pc.invert(pc.is_finite(narrow.cast(pa.float64()))))
        if pc.any(overflows).as_py():
            raise ValueError(f"a value is beyond {declared}: declare double")
    return narrow


def _check_kinds(values: list[Any], classes: set[type]) -> None:
    """Raise an error for values that Arrow would change silently: mixed kinds, zones, nanoseconds.

    In a column of mixed kinds, Arrow converts a date and a timestamp to two dates, a timestamp and
    an integer to two timestamps, and a string and bytes to two bytes values.

    Raises:
        ValueError: The values are of several kinds, or one does not fit a column.
    """
    kinds = sorted(set(map(_kind_of, classes)))
    if len(kinds) > 1:
        raise ValueError(f"some are {kinds[0]} and some are {kinds[1]}: give one kind")
    if kinds in (["times"], ["times of day"]):
        timed = (value for value in values if isinstance(value, datetime | time))
        have_zones = [value.tzinfo is not None for value in timed]
        if any(have_zones) and not all(have_zones):
            raise ValueError("some times have a zone and some have none: give all of them one")
        if any(have_zones) and kinds == ["times of day"]:
            raise ValueError("a time of day has a zone, and no column type has one: remove it")
    for cls in classes:
        for part in ("nanosecond", "nanoseconds"):
            if hasattr(cls, part) and any(getattr(value, part, 0) for value in values):
                raise ValueError(
                    "a time has nanoseconds, and Arrow would drop them: give a table or a frame"
                )


def _kind_of(cls: type) -> str:
    """Return the kind of the values of a Python class, as error messages show it."""
    for kind, classes in _CLASSES_BY_KIND.items():
        if issubclass(cls, classes):
            return kind
    return cls.__name__
