"""Encode columns for transport between driver and cells, in three types that Spark preserves.

::

    codes that order as values do   ->   int64     numbers, times, decimals up to 18 digits, NULL
    texts, wider decimals           ->   string
    binaries                        ->   binary

Spark has no column type for uint64, times or nanoseconds, and rounds or refuses such values.
The engine compares values by code (`circuits.types.codecs.codec`). Where a code does not depend on
a dictionary, the code itself is sent: then equal values are equal in transport encoding, whatever
their types, including -0.0 and 0.0. Tables are sent as Arrow streams (`write_table`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.arrow_types import Family, family_of, value_type
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.codecs.codec import NULL, Codecs
from streaming.errors import TargetError
from streaming.targets.column_types import plain_type

__all__ = ["decode_column", "encode_column", "read_table", "transport_type", "write_table"]


def transport_type(type: pa.DataType) -> pa.DataType:
    """Return the transport type of a column type.

    >>> [str(transport_type(type)) for type in (pa.uint8(), pa.time64("ns"), pa.large_string())]
    ['int64', 'int64', 'string']
    """
    if Codecs().codec(type).ordered:
        return pa.int64()
    family = family_of(value_type(type))
    if family in (Family.NESTED, Family.INTERVAL):
        raise TargetError(
            f"a distributed sink cannot transport values of type {type}: use an embedded sink, or "
            "make the parts columns"
        )
    return pa.binary() if family is Family.BINARY else pa.string()


def encode_column(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode a column; an encoded column is returned unchanged.

    >>> encode_column(pa.chunked_array([pa.array([2**64 - 2], pa.uint64())])).to_pylist()
    [9223372036854775807]
    """
    if column.type == pa.int64():  # a value is its own code; none is that of NULL
        column = pc.fill_null(column, int(NULL)) if column.null_count else column
        return pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    target_type = transport_type(column.type)
    if target_type == pa.int64():
        return pa.chunked_array([pa.array(Codecs().codec(column.type).encode(column))])
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    expanded = [expand_encoding(chunk).cast(target_type) for chunk in chunks]
    return pa.chunked_array(expanded, target_type)


def decode_column(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Decode a column of the given type; the inverse of `encode_column`.

    >>> sent = encode_column(pa.chunked_array([pa.array([None, 5], pa.timestamp("ns"))]))
    >>> decode_column(sent, pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    [None, 5]
    """
    if column.type == pa.int64():
        return pa.chunked_array([Codecs().codec(type).decode(column.to_numpy())], type)
    sent_type = plain_type(type)
    chunks: Sequence[pa.Array] = [chunk.cast(sent_type) for chunk in column.chunks]
    if types.is_dictionary(type):
        chunks = [chunk.dictionary_encode().cast(type) for chunk in chunks]
    elif sent_type != type:
        chunks = [chunk.cast(type) for chunk in chunks]
    return pa.chunked_array(chunks, type)


def write_table(table: pa.Table) -> bytes:
    """Serialize a table; `read_table` is the inverse."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_table(content: bytes) -> pa.Table:
    """Deserialize a table; the inverse of `write_table`."""
    return pa.ipc.open_stream(content).read_all()
