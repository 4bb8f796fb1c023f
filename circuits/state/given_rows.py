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

Alternative considered: pass each slice of the table, and each delta, to the new views at once. They
would see deletions of rows that they do not have.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from circuits.schema import Schema
from circuits.state.kept_rows import StoredRows
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.trace import TraceStep

__all__ = ["GivenRows"]


class GivenRows:
    """The rows of an input after some step, and the deltas of the input since then.

    Args:
        schema: The columns of the input, at least one.
        table: The rows, with or without ``weight``.

    Attributes:
        trace: The rows that are loaded, and all deltas.
        rows_to_load: The number of rows of the table that are not loaded yet.

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
        # Batches are removed when they are loaded. The memory of a batch is then released, unless
        # other batches share it, as the slices of one do.
        self._batches = deque(batch for batch in table.to_batches() if batch.num_rows)
        self.rows_to_load: int = table.num_rows
        self.trace = Trace(schema.arity)

    @property
    def is_loaded(self) -> bool:
        """True if the trace has all rows of the table."""
        return not self._batches

    def load(self, max_rows: int) -> int:
        """Add the next rows of the table to the trace; return their number.

        Args:
            max_rows: The limit on the rows, at least 1.

        Raises:
            SchemaError: The rows do not fit the columns of the input.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64. After an
                error, the rows are still to be loaded.

        Complexity:
            O(max_rows * log max_rows), plus merges of the trace.
        """
        parts: list[pa.RecordBatch] = []
        count = 0
        while self._batches and count < max_rows:
            batch = self._batches.popleft()
            part = batch.slice(0, max_rows - count)
            if part.num_rows < batch.num_rows:
                self._batches.appendleft(batch.slice(part.num_rows))
            parts.append(part)
            count += part.num_rows
        if parts:
            try:
                step = self._prepare(pa.Table.from_batches(parts))
            except BaseException:
                self._batches.extendleft(reversed(parts))  # they are still to be loaded
                raise
            self.rows_to_load -= count
            if step is not None:
                step.commit()
        return count

    def add(self, delta: pa.Table) -> TraceStep | None:
        """Add a later delta of the input.

        Args:
            delta: Rows, with or without ``weight``.

        Returns:
            The step of the trace; None if the delta cancels itself.

        Raises:
            As `load`.
        """
        step = self._prepare(delta)
        if step is not None:
            step.commit()
        return step

    def _prepare(self, delta: pa.Table) -> TraceStep | None:
        zset = self._schema.to_zset(delta, self._codecs)
        return self.trace.prepare(zset) if len(zset) else None

    def table(self) -> pa.Table:
        """Return all rows, with the deltas; O(rows).

        Before the first row is in the trace, it is the given table, with or without ``weight``;
        later it has the columns of the input and ``weight``.
        """
        rest = pa.Table.from_batches(self._batches, self._columns)
        if self.trace.is_empty:
            return rest
        rows = self.trace.to_zset() + self._schema.to_zset(rest, self._codecs)
        return self._schema.to_table(rows, self._codecs)

    def stored_rows(self, name: str, codecs: Codecs) -> StoredRows:
        """Return the trace as a source of rows, like a trace of the state.

        Args:
            name: The name of the source.
            codecs: Encode the rows that are read.
        """

        def decode(rows: ZSet) -> ZSet:
            return self._schema.to_zset(self._schema.to_table(rows, self._codecs), codecs)

        return StoredRows(name, self.trace, tuple(range(self._schema.arity)), decode)
