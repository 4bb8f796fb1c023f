"""EncodedInputs: the rows and the watermarks of a step as codes, before the options apply.

::

    tables of rows, watermarks    --encode_inputs-->    Z-sets and watermarks of int64 codes

The checksums of the encoded rows tell whether a micro-batch that is given again has the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from circuits.errors import CircuitError, InputOptionsError
from circuits.inputs.checked_input import CheckedInput, no_event_time_error
from circuits.inputs.encoded_rows import MIN_UNSORTED_ROWS, EncodedRows
from circuits.inputs.tables import Rows, check_input, tables_of
from circuits.phases import ENCODE
from circuits.schema import Schema
from circuits.types.codecs.codec import Codec, Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.observer import observed
from dbsp_wcoj.values.row_hash import hash_rows
from dbsp_wcoj.zset import Int64Array

__all__ = ["EncodedInputs", "digests_of", "encode_inputs", "microseconds_of"]


class InputReaders(Protocol):
    """The operators that read inputs: a graph (`circuits.runtime.graph.Graph`)."""

    def read_columns(self, name: str) -> Collection[int]:
        """Return the columns of an input that operators read; others need no codes."""

    def takes_slices(self, name: str) -> bool:
        """True if no operator needs the Z-set of all rows of an input."""


class EncodedInputs(NamedTuple):
    """The rows of a step as codes.

    Attributes:
        zsets: The rows of each input; not sorted if there are many, and only linear operators read
            them.
        watermarks: The watermark after these rows, of each input that has one.
        row_count: The number of rows of all inputs.
    """

    zsets: dict[str, ZSet | EncodedRows]
    watermarks: dict[str, int]
    row_count: int


@observed(ENCODE, lambda _, encoded: encoded.row_count)
def encode_inputs(
    tables: Mapping[str, Rows],
    watermarks: Mapping[str, Any],
    schemas: Mapping[str, Schema],
    checked: Mapping[str, CheckedInput],
    codecs: Codecs,
    readers: InputReaders,
) -> EncodedInputs:
    """Encode the rows of a step, and compute the watermarks of the inputs after them.

    Args:
        tables: Rows, by input.
        watermarks: Watermarks of the sources, by input.
        schemas: The schema of every input.
        checked: The inputs with options, with these codecs.
        codecs: The codes of values; new values are added.
        readers: The operators that read the inputs.

    Raises:
        UnknownInputError: A name is not the name of an input.
        SchemaError: A table does not fit its input.
        InputOptionsError: A watermark does not fit its input.
    """
    if not isinstance(watermarks, Mapping):
        raise InputOptionsError(
            f"watermarks are a mapping from inputs to times, not {type(watermarks).__name__}: "
            'give {"name of the input": time}'
        )
    new_watermarks: dict[str, int] = {}
    for name, source_watermark in watermarks.items():
        check_input(name, schemas)
        if name not in checked:
            raise no_event_time_error(name)
        new_watermarks[name] = checked[name].encode_watermark(source_watermark)
    zsets: dict[str, ZSet | EncodedRows] = {}
    row_count = 0
    table_readers = {name: schema.table_reader for name, schema in schemas.items()}

    def unread(name: str) -> list[str]:
        if name in checked:
            return []
        columns = readers.read_columns(name)
        return [c for number, c in enumerate(schemas[name].columns) if number not in columns]

    for name, table in tables_of(tables, table_readers, unread).items():
        row_count += table.num_rows
        if name not in checked:
            zsets[name] = _encode(table, schemas[name], codecs, readers)
            continue
        zsets[name], watermark = checked[name].read(table)
        if watermark is not None:
            new_watermarks[name] = max(watermark, new_watermarks.get(name, watermark))
    return EncodedInputs(zsets, new_watermarks, row_count)


def _encode(
    table: pa.Table, schema: Schema, codecs: Codecs, readers: InputReaders
) -> ZSet | EncodedRows:
    """Encode the rows of an input without options."""
    name = schema.relation
    columns = readers.read_columns(name)
    if table.num_rows < MIN_UNSORTED_ROWS or not schema.fields or not readers.takes_slices(name):
        return schema.encode_table(table, codecs, read_columns=columns)
    codes, weights = schema.to_codes(table, codecs, read_columns=columns)
    if weights is not None and weights.min() <= 0:
        return ZSet.from_columns(codes, weights)
    return EncodedRows(codes, weights)


def microseconds_of(now: datetime | pa.TimestampScalar | None) -> int:
    """Return the time of a step in microseconds since 1970; a time without a zone is in UTC.

    Raises:
        ArgumentTypeError: ``now`` is not a time.
        CircuitError: ``now`` is missing.

    >>> microseconds_of(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    if now is None:
        raise CircuitError(
            "a view compares with now(): give the time of the step, "
            "as in step(tables, now=datetime.now(UTC))"
        )
    check_type("now", now, datetime | pa.TimestampScalar, "a datetime or an Arrow timestamp")
    scalar = pa.scalar(now) if isinstance(now, datetime) else now
    microseconds = scalar.cast(pa.timestamp("us", scalar.type.tz), safe=False).value
    if microseconds is None:
        raise CircuitError("now=NULL: give the time of the step")
    return int(microseconds)


def digests_of(
    zsets: Mapping[str, ZSet | EncodedRows], coded: Mapping[str, Mapping[int, Codec]]
) -> dict[str, int]:
    """Return a checksum of the rows of each Z-set, independent of their order and codes.

    It is the sum of the hashes of the rows, each times its weight, in int64 with wraparound. So the
    checksum of a sum of Z-sets is the sum of their checksums, and parts can be read separately.

    Args:
        zsets: The rows in codes.
        coded: By Z-set, the columns with codes of dictionaries.

    >>> one = digests_of({"e": ZSet.from_rows([(1, 2)])}, {"e": {}})["e"]
    >>> digests_of({"e": ZSet.from_rows([(1, 2), (1, 2)])}, {"e": {}})["e"] - 2 * one
    0
    """
    return {
        name: _checksum(rows.columns, rows.weights, coded[name])
        if isinstance(rows, EncodedRows)
        else _checksum(rows.row_array, rows.weight_array, coded[name])
        for name, rows in zsets.items()
    }


def _checksum(
    all_codes: Iterable[Int64Array], weights: Int64Array, coded: Mapping[int, Codec]
) -> int:
    columns = [
        coded[column].hashes(codes) if column in coded else codes
        for column, codes in enumerate(all_codes)
    ]
    return int((hash_rows(columns, len(weights)) * weights).sum())
