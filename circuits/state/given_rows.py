"""Given rows: the rows of an input that a caller gives for a backfill, read in slices.

::

    table as of step t        -- slices -->   trace   -- cursor, slices -->   new views
    deltas of later steps     ----------->

The rows are given once, and the input changes while slices are computed. So the slices of the table
and the later deltas are added up in a trace, which is then read as a trace of the state
(`circuits.state.sliced_backfill`). A delta may delete a row that is not in the trace yet: the
weight of the row in the trace is then negative until its slice follows, and no view reads it in
between.

The codes of the trace belong to codecs of its own. So the rows stay valid if the state of the
circuit is loaded again, which replaces its dictionaries.

An interrupt of `GivenRows.load` may come before or after its commit. So the rest of the table is
immutable, and is stored together with the version of the trace before the commit. The next call
compares the versions: the rows are loaded or not, never in part and never twice.

Alternative considered: pass each slice of the table, and each delta, to the new views at once. They
would see deletions of rows that they do not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from circuits.schema import Schema
from circuits.state.kept_rows import StoredRows
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.trace import TraceStep, TraceVersion

__all__ = ["GivenRows"]


class _Rest(NamedTuple):
    """The part of a table that is not loaded yet: a linked list of batches."""

    batch: pa.RecordBatch
    rows: int  # of this batch and the later ones
    later: _Rest | None

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch]) -> _Rest | None:
        """Return the batches in reverse order; None without rows."""
        rest: _Rest | None = None
        for batch in batches:
            if batch.num_rows:
                rest = _Rest(batch, batch.num_rows + (0 if rest is None else rest.rows), rest)
        return rest


class _UnfinishedLoad(NamedTuple):
    """A slice whose commit has begun."""

    rest: _Rest | None  # after the slice
    before: TraceVersion
    version: int  # of the trace before the slice
    is_undone: bool


class GivenRows:
    """The rows of an input after some step, and the deltas of the input since then.

    Args:
        schema: The columns of the input, at least one.
        table: The rows, with or without ``weight``.

    Attributes:
        trace: The rows that are loaded, and all deltas.

    >>> schema = Schema.of("e", pa.schema({"src": pa.int64()}))
    >>> given = GivenRows(schema, pa.table({"src": [1, 2, 3]}))
    >>> given.load(2), given.is_loaded
    (2, False)
    >>> step = given.add(pa.table({"src": [3, 4], "weight": [-1, 1]}))
    >>> given.load(2), given.is_loaded
    (1, True)
    >>> given.table().column("src").to_pylist()
    [1, 2, 4]
    """

    def __init__(self, schema: Schema, table: pa.Table) -> None:
        self._schema = schema
        self._codecs = Codecs()
        self._columns = table.schema
        # A batch that is loaded is not in the rest. Its memory is then released, unless other
        # batches share it, as the slices of one do.
        self._rest = _Rest.of(reversed(table.to_batches()))
        self._unfinished: _UnfinishedLoad | None = None
        self.trace = Trace(schema.arity)

    @property
    def rows_to_load(self) -> int:
        """The number of rows of the table that are not loaded yet."""
        self._finish_load()
        return 0 if self._rest is None else self._rest.rows

    @property
    def is_loaded(self) -> bool:
        """True if the trace has all rows of the table."""
        return not self.rows_to_load

    def load(self, max_rows: int) -> int:
        """Add the next rows of the table to the trace; return their number.

        After an error or an interrupt, all of the rows are loaded or none, and the next call goes
        on with those that are still to be loaded.

        Args:
            max_rows: The limit on the rows, at least 1.

        Raises:
            SchemaError: The rows do not fit the columns of the input.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64.

        Complexity:
            O(max_rows * log max_rows), plus merges of the trace.
        """
        self._finish_load()
        parts: list[pa.RecordBatch] = []
        count, rest = 0, self._rest
        while rest is not None and count < max_rows:
            part = rest.batch.slice(0, max_rows - count)
            if part.num_rows < rest.batch.num_rows:
                batch = rest.batch.slice(part.num_rows)
                rest = _Rest(batch, rest.rows - part.num_rows, rest.later)
            else:
                rest = rest.later
            parts.append(part)
            count += part.num_rows
        if parts:
            step = self._prepare(pa.Table.from_batches(parts))
            if step is None:
                self._rest = rest
            else:
                before = TraceVersion(self.trace)
                self._unfinished = _UnfinishedLoad(rest, before, self.trace.version, False)
                step.commit()
                self._finish_load()
        return count

    def _finish_load(self) -> None:
        """Remove the slice that is being loaded from the rest if it is in the trace; else undo it.

        An interrupt of this function is harmless, because the next call repeats it.
        """
        load, trace = self._unfinished, self.trace
        if load is None:
            return
        if trace.has_unfinished_commit or load.is_undone:
            self._unfinished = load._replace(is_undone=True)
            before = load.before.trace.arrangements
            trace.load({arrangement.order: arrangement.spine.runs for arrangement in before})
        elif trace.version != load.version:
            self._rest = load.rest
        self._unfinished = None

    def add(self, delta: pa.Table) -> TraceStep | None:
        """Add a later delta of the input.

        Args:
            delta: Rows, with or without ``weight``.

        Returns:
            The step of the trace; None if the delta cancels itself.

        Raises:
            As `load`. After an interrupt, the rows cannot be used any more: each later call raises
            a `DbspWcojError`.
        """
        self._finish_load()
        step = self._prepare(delta)
        if step is not None:
            step.commit()
        return step

    def _prepare(self, delta: pa.Table) -> TraceStep | None:
        zset = self._schema.to_zset(delta, self._codecs)
        return self.trace.prepare(zset) if len(zset) else None

    def table(self) -> pa.Table:
        """Return all rows, with the deltas; O(n log n) in the rows.

        Before the first row is in the trace, it is the given table, with or without ``weight``;
        later it has the columns of the input and ``weight``.
        """
        self._finish_load()
        batches, unread = [], self._rest
        while unread is not None:
            batches.append(unread.batch)
            unread = unread.later
        rest = pa.Table.from_batches(batches, self._columns)
        if self.trace.is_empty:
            return rest
        rows = self.trace.to_zset() + self._schema.to_zset(rest, self._codecs)
        return self._schema.to_table(rows, self._codecs)

    def stored_rows(self, name: str, codecs: Codecs) -> StoredRows:
        """Return the rows that are loaded as a source of rows, like a trace of the state.

        Args:
            name: The name of the source.
            codecs: The codecs of the reader; they encode the rows that are read.
        """

        def decode(rows: ZSet) -> ZSet:
            return self._schema.to_zset(self._schema.to_table(rows, self._codecs), codecs)

        self._finish_load()
        return StoredRows(name, self.trace, tuple(range(self._schema.arity)), decode)
