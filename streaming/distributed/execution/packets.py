"""Packets: the rows that the tasks of one Spark job send to each other, and their reports.

A micro-batch is one Spark job whose tasks exchange rows several times
(`streaming.distributed.batch_job`). All exchanges have one row type, the packet, because the rows
of different relations have different columns. A packet contains many rows as Arrow data, which
Spark copies without looking at them::

    task     the task of the next exchange that receives the packet
    level    the number of the exchange after which it is used; earlier tasks pass it on
    kind     what it contains (`Kind`)
    name     the number of the stage, or the name of the view; other kinds have other names
    cell     the cell of a manifest or an error; `OF_VIEW` or `OF_EXCHANGE` for other errors
    origin   the attempt of the task that made it, as level, partition and attempt
    content  Arrow data, JSON or a manifest

Packets for the driver have the level `DRIVER`, after the last exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_binary, is_large_binary, is_large_string, is_string
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streaming.distributed.execution.transport import write_table

__all__ = [
    "DRIVER",
    "MAX_PACKET_BYTES",
    "MAX_TABLE_BYTES",
    "OF_EXCHANGE",
    "OF_VIEW",
    "PACKET_SCHEMA",
    "Kind",
    "Packet",
    "divide_packets",
    "find_groups",
    "pack_rows",
    "read_packets",
    "route_hash",
    "slice_rows",
    "sort_positions",
    "write_packets",
]

Integers = npt.NDArray[np.integer[Any]]

#: The level of packets for the driver.
DRIVER: Final = 1 << 30
#: The cells of errors that are not of a cell.
OF_VIEW: Final = -1
OF_EXCHANGE: Final = -2
#: About the most bytes of the rows of a packet, unless it has one row. Spark sends the packets to a
#: task in batches (`streaming.distributed.spark_settings`).
MAX_PACKET_BYTES: Final = 1 << 18
#: The bytes of the packets that a task returns to Spark at once.
MAX_BYTES_TO_SPARK: Final = 1 << 26
#: The most bytes of rows that are copied as one table: an array has at most 2 GiB of texts.
MAX_TABLE_BYTES: Final = 1 << 30

_SCHEMA: Final = pa.schema(
    {
        "task": pa.int32(),
        "level": pa.int32(),
        "kind": pa.string(),
        "name": pa.string(),
        "cell": pa.int32(),
        "origin": pa.string(),
        "content": pa.binary(),
    }
)
#: The columns of a packet, for Spark.
PACKET_SCHEMA: Final[StructType] = from_arrow_schema(_SCHEMA)


class Kind(StrEnum):
    """The kind of content of a packet."""

    STAGE = "stage"  # rows of a stage, in transport encoding, with their cells
    VIEW = "view"  # rows of a view
    MANIFEST = "manifest"  # the manifest of a cell
    FILES = "files"  # JSON: the files with the rows of a view
    COUNTS = "counts"  # the most frequent values of a variable of a join
    REPORT = "report"  # JSON: the counts of a task
    DEAD_LETTERS = "dead letters"  # rows that cannot be decoded
    ERROR = "error"  # an error of a cell, a view, or without a name of the rows of the source


class Packet(NamedTuple):
    """One row of an exchange."""

    task: int
    level: int
    kind: str
    name: str
    cell: int
    origin: str
    content: Any  # bytes, or a buffer of a batch


def route_hash(packet: Packet) -> int:
    """Return 64 bits that depend on the attempt that made a packet, and on its destination.

    >>> packet = Packet(0, 1, Kind.VIEW, "v", 0, "0.1.7", b"")
    >>> route_hash(packet) == route_hash(packet._replace(task=1))
    False
    """
    text = f"{packet.origin} {packet.level} {packet.task}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def slice_rows(table: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of a table in slices of at most ``max_bytes``, or of one row.

    Nothing is copied.

    >>> texts = pa.table({"x": ["a" * 10, "b" * 10, "c"]})
    >>> [part.num_rows for part in slice_rows(texts, 30)]
    [1, 2]
    """
    if table.num_rows <= 1 or table.nbytes <= max_bytes:
        yield table
        return
    half = table.num_rows // 2
    yield from slice_rows(table.slice(0, half), max_bytes)
    yield from slice_rows(table.slice(half), max_bytes)


def pack_rows(
    table: pa.Table,
    task_of_row: Integers,
    level: int,
    kind: Kind,
    name: str,
    *,
    cell_of_row: Integers | None = None,
) -> Iterator[Packet]:
    """Yield packets of the rows of a table for each task; their origin is empty.

    The rows of a packet have at most `MAX_PACKET_BYTES`, or it has one row. They are sorted by
    their cells, if these are given. Tables of more than `MAX_TABLE_BYTES` are packed in slices.

    Complexity:
        O(rows) with few tasks and cells (`sort_positions`); else O(rows · log rows).
    """
    start = 0
    for part in slice_rows(table, MAX_TABLE_BYTES):
        end = start + part.num_rows
        tasks = task_of_row[start:end]
        keys = tasks
        if cell_of_row is not None and len(tasks):
            cells = cell_of_row[start:end]
            keys = tasks * (int(cells.max()) + 1) + cells
        order = sort_positions(keys)
        yield from _pack_slice(part, tasks, order, level, kind, name)
        start = end


def _pack_slice(
    table: pa.Table, task_of_row: Integers, order: Integers, level: int, kind: Kind, name: str
) -> Iterator[Packet]:
    """Yield packets of a table whose rows are sorted by their tasks in ``order``."""
    if not table.num_rows:
        return
    groups = find_groups(task_of_row[order])
    table = table.take(pa.array(order))
    ends = np.cumsum(_row_bytes(table))
    for task, start, end in groups:
        first = start
        while first < end:
            limit = MAX_PACKET_BYTES + (ends[first - 1] if first else 0)
            last = int(np.searchsorted(ends, limit, "right"))
            last = min(max(last, first + 1), end)
            rows = table.slice(first, last - first)
            yield Packet(task, level, kind, name, 0, "", write_table(rows))
            first = last


def _row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the bytes of each row; values that are neither fixed nor texts count as their mean.

    >>> _row_bytes(pa.table({"x": [1, 2], "s": ["abc", None]})).tolist()
    [15, 12]
    """
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if is_string(column.type) or is_binary(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += lengths.to_numpy() + 4  # and the offset
        elif is_large_string(column.type) or is_large_binary(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += lengths.to_numpy() + 8
        else:
            sizes += -(-column.nbytes // table.num_rows)
    return sizes


def sort_positions(values: Integers) -> npt.NDArray[np.int64]:
    """Return the positions of non-negative integers in ascending order; equal ones keep theirs.

    Complexity:
        O(n) below 2¹⁵, for which numpy has a radix sort; else O(n · log n).

    >>> sort_positions(np.array([2, 0, 2, 1])).tolist()
    [1, 3, 0, 2]
    """
    if len(values) and values.max() < 1 << 15:
        values = values.astype(np.int16)
    return np.argsort(values, kind="stable")


def find_groups(values: Integers) -> list[tuple[int, int, int]]:
    """Return the different integers of a sorted array, each with its first position and its end.

    >>> find_groups(np.array([3, 3, 8]))
    [(3, 0, 2), (8, 2, 3)]
    """
    if not len(values):
        return []
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    ends = [*starts[1:].tolist(), len(values)]
    return list(zip(values[starts].tolist(), starts.tolist(), ends, strict=True))


def write_packets(packets: Iterable[Packet | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield packets in batches of about `MAX_BYTES_TO_SPARK`; batches are passed on unchanged."""
    waiting: list[Packet] = []
    size = 0
    for packet in packets:
        if isinstance(packet, pa.RecordBatch):
            yield packet
            continue
        waiting.append(packet)
        size += len(packet.content)
        if size >= MAX_BYTES_TO_SPARK:
            yield _to_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _to_batch(waiting)


def _to_batch(packets: list[Packet]) -> pa.RecordBatch:
    columns = zip(zip(*packets, strict=True), _SCHEMA, strict=True)
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in columns], schema=_SCHEMA
    )


def read_packets(batch: pa.RecordBatch) -> Iterator[Packet]:
    """Yield the packets of a batch; their contents are not copied."""
    contents = batch.column("content")
    others = [batch.column(name).to_pylist() for name in _SCHEMA.names[:-1]]
    for number, values in enumerate(zip(*others, strict=True)):
        task, level, kind, name, cell, origin = values
        content = contents[number].as_buffer()
        yield Packet(task, level, kind, name, cell, origin, content)


def divide_packets(batch: pa.RecordBatch, level: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the packets that are used after an exchange, and those that are passed on."""
    batch = pa.record_batch(batch.columns, schema=_SCHEMA)
    is_used = pc.equal(batch.column("level"), level)
    return batch.filter(is_used), batch.filter(pc.invert(is_used))
