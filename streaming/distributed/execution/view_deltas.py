"""The deltas of views on executors: equal rows are sent to one task, which writes their sum.

Several cells may produce the same row of a view, with different weights, and a published delta has
each row once. So the rows of a view are exchanged by a hash of all their columns. The task that
receives a row adds up its weights, and writes the sums to Parquet files of the state directory.
They are published when the driver's manifest names them.

A view in mode ``upsert`` or ``complete`` is materialized in cells, by its keys. Each cell publishes
its own rows, so the task only writes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits import CircuitStep
from circuits.schema import WEIGHT, Schema
from circuits.types.codecs.codec import Codecs
from streaming.distributed.execution.cell import OPERATOR
from streaming.distributed.execution.task_files import TaskFiles
from streaming.distributed.execution.transport import encode_column
from streaming.distributed.execution.xxhash import xxhash64
from streaming.state.files import Files
from streaming.state.manifest import FileChecksum
from streaming.state.version_summary import StoredTable
from streaming.state.versions import OUTPUTS
from streaming.targets.output_mode import OutputMode, PostStepReader, PostStepTable

__all__ = [
    "RenamedReader",
    "ViewOutput",
    "concat_disjoint",
    "concat_published",
    "find_tasks",
    "publish_view",
    "sum_tables",
    "write_delta",
]


@dataclass(frozen=True)
class ViewOutput:
    """A view that executors write.

    Attributes:
        schema: Its columns.
        mode: Its output mode.
    """

    schema: Schema
    mode: OutputMode

    @property
    def empty_table(self) -> pa.Table:
        """The published table without rows."""
        empty = self.schema.empty_table
        return self.mode.publish("", empty, PostStepTable(empty))

    def stored(self, files: Files, checksums: Mapping[str, FileChecksum], rows: int) -> StoredTable:
        """Return the published table in some files."""
        return StoredTable(files, checksums, self.empty_table.schema, rows)


def find_tasks(table: pa.Table, tasks: int) -> npt.NDArray[np.int64]:
    """Return the task of each row of a view: a hash of its values modulo the number of tasks."""
    columns = [encode_column(table.column(name)) for name in table.column_names if name != WEIGHT]
    if not columns or tasks == 1:
        return np.zeros(table.num_rows, np.int64)
    return xxhash64(columns) % tasks


def write_delta(
    task_files: TaskFiles,
    batch_id: int,
    view: str,
    output: ViewOutput,
    tables: Sequence[pa.Table],
    *,
    is_local: bool = False,
) -> tuple[int, Mapping[str, FileChecksum]]:
    """Add up rows of a view, and write the sums in its output mode.

    The tables of a view in mode ``upsert`` or ``complete`` are published tables of cells
    (`publish_view`), which have no row in common. Neither have those of a local view.

    Args:
        task_files: The files of the task, which the caller syncs, or removes after an error.
        batch_id: The micro-batch.
        view: The name of the view.
        output: The view.
        tables: The rows.
        is_local: True if each table is the delta of another cell, and no other cell can compute an
            equal row (`planning.job_layout`).

    Returns:
        The number of published rows, and the size and checksum of each file. Without rows there
        are no files.

    Raises:
        TargetError: The rows do not fit the output mode.
        OSError: The file system failed.
    """
    if output.mode.needs_view:
        delta = concat_published(output, tables)
    else:
        sum_rows = concat_disjoint if is_local else sum_tables
        delta = output.mode.publish(view, sum_rows(output.schema, tables))
    if not delta.num_rows:
        return 0, {}
    stem = f"{OUTPUTS}/{batch_id:020}-{uuid.uuid4().hex[:12]}"
    writer = task_files.open_writer(None, stem)
    writer.write_outputs({view: delta}, stem)
    return delta.num_rows, writer.output_files


def publish_view(view: str, output: ViewOutput, step: CircuitStep) -> pa.Table:
    """Return the published table of the rows of a materialized view in one cell.

    Args:
        view: The view.
        output: Its columns and its output mode. All rows of a key are in this cell.
        step: The step of the cell, which has the delta of the view.

    Raises:
        TargetError: A key has several rows.
    """
    (delta,) = step.outputs.values()
    after = RenamedReader(step.after(OPERATOR), output.schema)
    return output.mode.publish(view, sum_tables(output.schema, [delta]), after)


def concat_published(output: ViewOutput, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the published tables of several cells as one."""
    schema = output.empty_table.schema
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


@dataclass(frozen=True)
class RenamedReader:
    """Reads the part of a view in a cell, with the names of the view's columns.

    Attributes:
        reader: Reads the view of the cell, whose columns are named by position.
        schema: The columns of the view.
    """

    reader: PostStepReader
    schema: Schema

    def rows(self) -> pa.Table:
        return self._rename(self.reader.rows())

    def rows_of(self, keys: pa.Table) -> pa.Table:
        positions = [self.schema.columns.index(name) for name in keys.column_names]
        names = [f"c{position}" for position in positions]
        return self._rename(self.reader.rows_of(keys.rename_columns(names)))

    def _rename(self, table: pa.Table) -> pa.Table:
        names = [f"c{position}" for position in range(self.schema.arity)]
        return table.select([*names, WEIGHT]).rename_columns(self.schema.arrow.names)


def sum_tables(schema: Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Add up tables of rows with weights; each row occurs once in the sum.

    Args:
        schema: The columns, by position.
        tables: The summands, all of the same types. A single one has each row once already.

    Complexity:
        O(rows · log rows).

    >>> schema = Schema.of("v", pa.schema({"x": pa.int64()}))
    >>> one, two = (pa.table({"c0": [7, 8], "weight": [1, w]}) for w in (1, -1))
    >>> sum_tables(schema, [one, two]).to_pylist()
    [{'x': 7, 'weight': 2}]
    """
    nonempty = [table.rename_columns(schema.arrow.names) for table in tables if table.num_rows]
    if not nonempty:
        return schema.empty_table
    codecs = Codecs()
    if len(nonempty) == 1 and nonempty[0].schema.types == schema.arrow.types:
        return nonempty[0].cast(schema.arrow)
    return schema.to_table(schema.to_zset(pa.concat_tables(nonempty), codecs), codecs)


def concat_disjoint(schema: Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Add up tables as `sum_tables`, if each row occurs once in all of them; O(1) for each table.

    >>> schema = Schema.of("v", pa.schema({"x": pa.int64()}))
    >>> one, two = (pa.table({"c0": [x], "weight": [1]}) for x in (7, 8))
    >>> concat_disjoint(schema, [one, two]).to_pylist()
    [{'x': 7, 'weight': 1}, {'x': 8, 'weight': 1}]
    """
    nonempty = [table.rename_columns(schema.arrow.names) for table in tables if table.num_rows]
    if any(table.schema.types != schema.arrow.types for table in nonempty):
        return sum_tables(schema, tables)
    return pa.concat_tables([schema.empty_table, *(table.cast(schema.arrow) for table in nonempty)])
