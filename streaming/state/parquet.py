"""Parquet: encode published tables as files of a bounded number of rows.

A published table contains the changes of one view in one micro-batch. Its files are kept for a few
micro-batches only. Therefore they are not compressed and have no dictionaries: a better encoding
would take longer than writing more bytes. An empty table is written as one file without rows, which
stores the columns of the table.

Dead letters are invalid input rows that the sink keeps apart. Manifests do not list their files, so
these files have checksums in their Parquet pages.

Parquet has no type for some values (`stored_type`). A column of such a type is stored as another
type, and its own type is in the metadata of the file, so that a replay reads it again.

This library never writes compressed files. Reading one raises an error before it is decompressed,
because a small file could fill the memory.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from circuits.types.arrow_types import VARIANT, Family, family_of, is_nested, part_types, with_parts
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.interval_texts import cast_intervals
from streaming.errors import StateDamagedError, StateError
from streaming.state.files import Bytes

__all__ = ["encode_parquet", "read_header", "read_parquet", "stored_type"]

MAX_FILE_ROWS: Final = 1 << 20
MAX_DECIMAL_DIGITS: Final = 76
#: The metadata key of the Arrow schema before `stored_type`, for files with such columns.
_SCHEMA_KEY: Final = b"dbsp_wcoj.schema"


def stored_type(type: pa.DataType) -> pa.DataType:
    """Return a type that Parquet has and that contains all values of an Arrow type.

    Parquet has no decimals with a negative scale, no binary values of the fixed length 0, and no
    intervals, which are stored as text, as are VARIANT and ENUM. Other types are unchanged.

    >>> stored_type(pa.decimal128(5, -2)), stored_type(pa.list_(pa.binary(0)))
    (Decimal128Type(decimal128(7, 0)), ListType(list<item: binary>))
    """
    if types.is_decimal(type) and type.scale < 0:
        digits = min(type.precision - type.scale, MAX_DECIMAL_DIGITS)
        return pa.decimal128(digits, 0) if digits <= 38 else pa.decimal256(digits, 0)
    if type == pa.binary(0):
        return pa.binary()
    if type in (INTERVAL, VARIANT) or family_of(type) is Family.ENUM:
        return pa.string()
    if is_nested(type):
        parts = part_types(type)
        stored = [stored_type(part) for part in parts]
        return type if stored == parts else with_parts(type, stored)
    return type


def encode_parquet(table: pa.Table, *, single_file: bool = False) -> Iterator[pa.Buffer]:
    """Yield the contents of the files of a table, each of at most `MAX_FILE_ROWS` rows.

    Args:
        table: The table.
        single_file: True to encode any number of rows as one file, with checksums in its pages.

    Raises:
        StateError: Parquet cannot store a column, such as one of structs without fields.

    >>> [file] = encode_parquet(pa.table({"n": [1, 2]}))
    >>> pq.read_table(pa.BufferReader(file)).to_pylist()
    [{'n': 1}, {'n': 2}]
    """
    table = _with_stored_types(table)
    total_rows = max(table.num_rows, 1)  # an empty table has one file
    file_rows = total_rows if single_file else MAX_FILE_ROWS
    for start in range(0, total_rows, file_rows):
        sink = pa.BufferOutputStream()
        pq.write_table(
            table.slice(start, file_rows),
            sink,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=single_file,
            store_schema=True,
        )
        yield sink.getvalue()


def read_parquet(data: Bytes, name: str) -> pa.Table:
    """Read a file that `encode_parquet` wrote, in O(bytes).

    Args:
        data: The bytes of the file.
        name: The name of the file, for messages.

    Raises:
        StateDamagedError: The file is not a Parquet file, or another program wrote it.
    """
    with _name_damage(name):
        file = _open_checked(data)
        return _with_written_types(file.read(), file.metadata.metadata or {})


def read_header(data: Bytes, name: str) -> tuple[pa.Schema, int]:
    """Return the columns, and the number of rows, of a file that `encode_parquet` wrote.

    The arguments and the errors are those of `read_parquet`. Only the end of the file is read.

    >>> [file] = encode_parquet(pa.table({"n": [1, 2]}))
    >>> read_header(file, "file")[1]
    2
    """
    with _name_damage(name):
        file = _open_checked(data)
        empty = _with_written_types(file.schema_arrow.empty_table(), file.metadata.metadata or {})
        return empty.schema, file.metadata.num_rows


def _open_checked(data: Bytes) -> pq.ParquetFile:
    """Open a file, and check that this library wrote it."""
    buffer = pa.py_buffer(data)
    file = pq.ParquetFile(buffer)
    metadata = file.metadata
    # Even a column of booleans has at most eight rows in a byte.
    if metadata.num_rows > max(MAX_FILE_ROWS, 8 * buffer.size):
        raise ValueError(f"{metadata.num_rows} rows in {buffer.size} bytes")
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.compression != "UNCOMPRESSED" or column.has_dictionary_page:
                raise ValueError(f"column {column.path_in_schema} is compressed")
    return file


@contextmanager
def _name_damage(name: str) -> Iterator[None]:
    """Raise errors of a damaged file as `StateDamagedError` with its name."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise StateDamagedError(
            f"{name} is not a Parquet file of this library ({type(error).__name__}: {error}): "
            "restore the state directory from a copy"
        ) from error


def _with_stored_types(table: pa.Table) -> pa.Table:
    """Return a table with types that Parquet has; the metadata contains the types before.

    Raises:
        StateError: There is no such type for a column, or it does not contain one of the values.
    """
    schema = table.schema
    for index, field in enumerate(schema):
        if _has_empty_struct(field.type):
            raise StateError(
                f"column {field.name!r} of type {field.type} cannot be stored, because Parquet has "
                "no structs without fields: leave the column out of the view"
            )
        type = stored_type(field.type)
        if type == field.type:
            continue
        try:
            chunks = [cast_intervals(chunk, type) for chunk in table.column(index).chunks]
            column = pa.chunked_array(chunks, type)
        except pa.ArrowInvalid as error:
            raise StateError(
                f"column {field.name!r} of type {field.type} cannot be stored as {type}, the "
                f"largest such type of Parquet: {error}; cast it in the view"
            ) from error
        table = table.set_column(index, field.with_type(type), column)
    if table.schema == schema:
        return table
    encoded = base64.b64encode(schema.remove_metadata().serialize())
    return table.replace_schema_metadata({**(schema.metadata or {}), _SCHEMA_KEY: encoded})


def _has_empty_struct(type: pa.DataType) -> bool:
    if not is_nested(type):
        return False
    return type == pa.struct([]) or any(map(_has_empty_struct, part_types(type)))


def _with_written_types(table: pa.Table, metadata: Mapping[bytes, bytes]) -> pa.Table:
    """Return a table with the types that were written; Parquet has no seconds, and no date64."""
    encoded = metadata.get(_SCHEMA_KEY, metadata.get(b"ARROW:schema"))
    if encoded is None:
        raise ValueError("it has no Arrow schema")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
    if _SCHEMA_KEY in metadata:
        table = table.replace_schema_metadata(
            {k: v for k, v in table.schema.metadata.items() if k != _SCHEMA_KEY}
        )
    for index, field in enumerate(schema):
        column = table.column(index)
        if column.type != field.type and not pa.types.is_dictionary(field.type):
            chunks = [cast_intervals(chunk, field.type) for chunk in column.chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table
