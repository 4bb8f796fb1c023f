"""Wire: columns on their way to cells and back, in the three types that nothing on it changes.

::

    codes that order as values do   ->   int64     numbers, times, decimals up to 18 digits, NULL
    texts, wider decimals           ->   string
    binaries                        ->   binary

Spark has no column for a uint64, a time or a nanosecond, and rounds or refuses them. What the
engine calls equal, it compares by code (`circuits.types.codecs.codec`), so codes are sent where
they do not depend on a table: then equal values are equal on the wire, whatever their types, -0.0
and 0.0 too.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.arrow_types import Family, family_of, value_type
from circuits.types.codecs.arrow_buffers import plain
from circuits.types.codecs.codec import NULL, Codecs
from streaming.targets.column_types import plain_type

__all__ = ["from_wire", "to_wire", "wire_type"]


def wire_type(type: pa.DataType) -> pa.DataType:
    """What a column of a type is on the wire.

    >>> [str(wire_type(type)) for type in (pa.uint8(), pa.time64("ns"), pa.large_string())]
    ['int64', 'int64', 'string']
    """
    if Codecs().codec(type).ordered:
        return pa.int64()
    family = family_of(value_type(type))
    return pa.binary() if family is Family.BINARY else pa.string()


def to_wire(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as it is sent; one that is on the wire stays as it is.

    >>> to_wire(pa.chunked_array([pa.array([2**64 - 2], pa.uint64())])).to_pylist()
    [9223372036854775807]
    """
    if column.type == pa.int64():  # the value that is NULL's code is that of no row
        column = pc.fill_null(column, int(NULL)) if column.null_count else column
        return pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    wire = wire_type(column.type)
    if wire == pa.int64():
        return pa.chunked_array([pa.array(Codecs().codec(column.type).encode(column))])
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([plain(chunk).cast(wire) for chunk in chunks], wire)


def from_wire(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """A column of a type as it was before `to_wire`.

    >>> sent = to_wire(pa.chunked_array([pa.array([None, 5], pa.timestamp("ns"))]))
    >>> from_wire(sent, pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    [None, 5]
    """
    if column.type == pa.int64():
        return pa.chunked_array([Codecs().codec(type).decode(column.to_numpy())], type)
    given = plain_type(type)
    chunks: Sequence[pa.Array] = [chunk.cast(given) for chunk in column.chunks]
    if types.is_dictionary(type):
        chunks = [chunk.dictionary_encode().cast(type) for chunk in chunks]
    elif given != type:
        chunks = [chunk.cast(type) for chunk in chunks]
    return pa.chunked_array(chunks, type)
