"""Generated rows: a table with a given number of rows, and of distinct values in each column.

Values are drawn uniformly and independently. Value number i of a type is the same in each column
and relation, so columns with d and e distinct values have min(d, e) values in common: a foreign key
finds its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.functions.casting.time_units import PER_SECOND
from streaming.errors import EventsError

__all__ = ["generate_rows", "values_of"]

Int64Array = npt.NDArray[np.int64]

TEXT_CHARACTERS: Final = 16
#: 2026-01-01 in days since 1970.
FIRST_DAY: Final = 20_454
SECONDS_PER_DAY: Final = 86_400


def generate_rows(
    schema: pa.Schema,
    rows: int,
    distinct: Mapping[str, int],
    keys: tuple[str, ...],
    rng: np.random.Generator,
    *,
    key_values: int,
) -> pa.Table:
    """Generate rows, each with a key of its own if there are keys.

    Args:
        schema: The columns.
        rows: The number of rows.
        distinct: The number of distinct values by column; by default as many as rows.
        keys: The columns of the key of the relation, if it has one. If they are several, rows whose
            key is drawn again are left out.
        rng: Draws the values.
        key_values: The number of values of a key of one column; at least ``rows``.

    Raises:
        EventsError: A column has a type for which no values are generated.
    """
    indices: dict[str, Int64Array] = {}
    for name in schema.names:
        if keys == (name,):
            indices[name] = rng.permutation(key_values)[:rows].astype(np.int64)
        else:
            indices[name] = rng.integers(0, max(1, distinct.get(name, rows)), rows)
    table = pa.table([values_of(field, indices[field.name]) for field in schema], schema=schema)
    if len(keys) < 2:
        return table
    _, first_rows = np.unique([indices[name] for name in keys], axis=1, return_index=True)
    return table.take(first_rows)


def values_of(field: pa.Field, indices: Int64Array) -> pa.Array:
    """Return the values of a type with these numbers.

    Raises:
        EventsError: The type has no generated values.

    >>> values_of(pa.field("day", pa.date32()), np.array([0, 1])).to_pylist()
    [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]
    >>> values_of(pa.field("name", pa.string()), np.array([7])).to_pylist()
    ['0000000000000007']
    """
    values = _values(field.type, indices)
    if values is None:
        raise EventsError(
            f"column {field.name!r}: no values of type {field.type} are generated: give a file "
            "with a sample of the rows, as in --source NAME=sample.parquet"
        )
    return values


def _values(type: pa.DataType, indices: Int64Array) -> Any:
    if types.is_boolean(type):
        return pa.array(indices % 2 == 1)
    if types.is_integer(type):
        limit = 1 << (type.bit_width - 1)
        return pa.array(indices % limit if type.bit_width < 64 else indices).cast(type)
    if types.is_floating(type):
        return pa.array(indices.astype(np.float64)).cast(type)
    if types.is_decimal(type):
        limit = 10 ** min(18, type.precision - type.scale)
        return pa.array(indices % max(1, limit)).cast(pa.decimal128(38, 0)).cast(type)
    if types.is_date(type):
        return pa.array((FIRST_DAY + indices % 1_000_000).astype(np.int32), pa.date32()).cast(type)
    if types.is_timestamp(type):
        seconds = FIRST_DAY * SECONDS_PER_DAY + indices
        return pa.array(seconds * PER_SECOND[type.unit]).cast(type)
    if types.is_time(type):
        return pa.array((indices % SECONDS_PER_DAY).astype(np.int32), pa.time32("s")).cast(type)
    texts = pc.utf8_lpad(pa.array(indices).cast(pa.string()), TEXT_CHARACTERS, "0")
    if types.is_string(type) or types.is_large_string(type):
        return texts.cast(type)
    if types.is_binary(type) or types.is_large_binary(type):
        return texts.cast(pa.binary()).cast(type)
    return _nested_values(type, indices)


def _nested_values(type: pa.DataType, indices: Int64Array) -> Any:
    """Return structs, or lists of one element; None for another type."""
    if types.is_struct(type):
        children = [_values(field.type, indices) for field in type]
        if any(child is None for child in children):
            return None
        return pa.StructArray.from_arrays(children, fields=list(type))
    if types.is_list(type):
        child = _values(type.value_type, indices)
        if child is None:
            return None
        offsets = pa.array(np.arange(len(indices) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, child).cast(type)
    return None
