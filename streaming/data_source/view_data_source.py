"""ViewDataSource: the Python data source ``dbsp_wcoj`` of Spark.

::

    spark.dataSource.register(ViewDataSource)
    views = spark.read.format("dbsp_wcoj").option("state", "state/").option("view", "waiting")
    views.load()                                        the rows of the newest version

    changes = spark.readStream.format("dbsp_wcoj").option("readChangeFeed", "true")
    changes.option("state", "state/").option("view", "waiting").load()

A stream can also be written into an input, which updates the views
(`streaming.data_source.input_stream_writer`)::

    stream = orders.writeStream.format("dbsp_wcoj").option("state", "state/")
    stream.option("input", "orders").option("checkpointLocation", "checkpoint/").start()

Options for reading:

- ``state``: the location of the state, as ``state_dir`` of `streaming.ViewSink`.
- ``view``: the name of the view. To read its rows, it must be materialized; to read its changes,
  the sink must have an `Output` of it, in mode ``delta`` or ``upsert``.
- ``version``: the batch id of the version to read, by default the newest.
- ``readChangeFeed``: with "true", read changes instead of rows: the columns of the view, ``weight``
  and ``batch_id``. A stream needs this option.
- ``startingVersion``: the first version whose changes are read, or "latest" for those after the
  newest. By default a stream begins with all rows of the newest version, and a batch with the
  oldest version that is kept. A view that was added later has no changes before; its first ones are
  all its rows.
- ``endingVersion``: the last version whose changes a batch reads, by default the newest.
- ``maxVersionsPerTrigger``: the maximum number of versions in a micro-batch of a stream.

A batch reads the version that is the newest when its task runs. Two scans in one query can read two
versions; the option ``version`` makes them agree. A row that occurs several times in the view is
read several times. With the changes, the rows of one ``batch_id`` are the table that the sink
published for this micro-batch.

The sink keeps the last ``keep`` versions. A stream that is farther behind fails with an error, so
give the sink a ``keep`` that covers the longest pause of its readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from circuits.schema import WEIGHT
from streaming.data_source.input_stream_writer import InputStreamWriter, WriteOptions
from streaming.data_source.read_options import ReadOptions
from streaming.data_source.stored_views import Position, StoredViews, ViewInVersion
from streaming.errors import StateError
from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.target import BATCH_ID

__all__ = ["ViewDataSource"]

#: The maximum number of rows of a batch that a task hands to Spark.
MAX_ROWS_TO_SPARK: Final = 1 << 16


class ViewDataSource(DataSource):
    """Reads a view or its changes, or writes a stream into an input; see the module.

    Register it with ``spark.dataSource.register(ViewDataSource)``. The executors need this package
    and access to the location of the state.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Store the options; `reader`, `streamReader` and `streamWriter` check them."""
        super().__init__(options)
        self._given = dict(options)

    @property
    def _options(self) -> ReadOptions:
        return ReadOptions.of(self._given)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dbsp_wcoj"

    def schema(self) -> StructType:
        """Return the columns of the view; with ``readChangeFeed``, ``weight`` and ``batch_id`` too.

        Raises:
            UnknownViewError: There is no such view.
            StateError: There is no version of the state, or it cannot be read.
        """
        options = self._options
        stored = StoredViews(options.state)
        version = stored.newest() if options.version is None else options.version
        fields = list(stored.schema(options.view, version))
        if options.reads_changes:
            fields += [pa.field(WEIGHT, pa.int64()), pa.field(BATCH_ID, pa.int64())]
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise StateError(
                f"view {options.view!r} has a column {BATCH_ID!r}, which is the name of the column "
                "with the version of a change: rename it in the view"
            )
        schema = pa.schema([pa.field(field.name, lake_type(field.type)) for field in fields])
        return _spark_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return _BatchReader(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream.

        Raises:
            StateError: The option ``readChangeFeed`` is not set.
        """
        if not self._options.reads_changes:
            raise StateError(
                "a stream of a view consists of changes: set the option readChangeFeed to true; "
                "the rows then have a weight, 1 for an inserted and -1 for a deleted row"
            )
        return _ChangeStreamReader(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream into an input.

        Raises:
            StateError: An option is missing, unknown or invalid.
        """
        return InputStreamWriter(WriteOptions.of(self._given))


class _Rows(InputPartition):
    """The rows of a view in a version; ``value`` is its batch id."""


class _Changes(InputPartition):
    """The changes of a view in a version; ``value`` is a `ViewInVersion`."""


class _BatchReader(DataSourceReader):
    """Reads the rows of a view, or its changes in a range of versions.

    Spark plans the partitions of a temporary view once. So there is one partition, and the task
    that reads it chooses the versions.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._changes() if self._options.reads_changes else self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        view, stored = self._options.view, StoredViews(self._options.state)
        version = self._options.version
        rows = stored.newest_rows(view) if version is None else stored.rows(view, version)
        weights = rows[WEIGHT].to_numpy()
        if (weights < 0).any():
            raise StateError(
                f"view {view!r} has {int((weights < 0).sum())} rows with a negative weight, "
                "because more rows were deleted from an input than inserted: read the view by "
                "sink.view(name), which has the column weight"
            )
        return _repeated(_converted(rows.drop_columns([WEIGHT]), view), weights)

    def _changes(self) -> Iterator[pa.RecordBatch]:
        options, stored = self._options, StoredViews(self._options.state)
        last = stored.newest() if options.ending_version is None else options.ending_version
        first = options.starting_version
        if options.starts_at_newest:
            raise StateError("startingVersion 'latest' is for streams: give the first version")
        if first is None:
            first = stored.versions()[0]
        if first > last:
            raise StateError(f"startingVersion {first} is after the last version {last}")
        after = stored.position_before(options.view, first)
        for version in stored.changed_versions(options.view, after, last):
            yield from _changes_of(options, version)


class _ChangeStreamReader(DataSourceStreamReader):
    """Reads the changes of a view as a stream.

    An offset has the fields of a `Position`; ``reads_rows`` is true before the first micro-batch of
    a stream that begins with all rows.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, Any]:
        options, stored = self._options, StoredViews(self._options.state)
        if options.starts_at_newest:
            return _offset(stored.position(options.view, stored.newest()))
        if options.starting_version is None:
            return {"reads_rows": True}
        return _offset(stored.position_before(options.view, options.starting_version))

    def latestOffset(self, start: Mapping[str, Any], limit: object = None) -> dict[str, Any]:
        """Return the offset of the newest version, or of the last one that the options allow."""
        options, stored = self._options, StoredViews(self._options.state)
        newest = stored.newest()
        if "batch_id" in start:
            if newest <= start["batch_id"]:
                return dict(start)
            if options.max_versions is not None:
                newest = min(newest, start["batch_id"] + options.max_versions)
        return _offset(stored.position(options.view, newest))

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        if start == end:
            return []
        if "batch_id" not in start:
            return [_Rows(end["batch_id"])]
        stored, after = StoredViews(self._options.state), _position(start)
        versions = stored.changed_versions(self._options.view, after, end["batch_id"])
        return [_Changes(version) for version in versions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Changes):
            return _changes_of(self._options, partition.value)
        rows = StoredViews(self._options.state).rows(self._options.view, partition.value)
        return _with_batch_id(rows, self._options.view, partition.value)


def _offset(position: Position) -> dict[str, Any]:
    """Return a position as JSON values; an unknown last change is left out."""
    offset = position._asdict()
    return {name: value for name, value in offset.items() if value is not None}


def _position(offset: Mapping[str, Any]) -> Position:
    return Position(offset["batch_id"], offset.get("last_change"), offset["state_id"])


def _changes_of(options: ReadOptions, version: ViewInVersion) -> Iterator[pa.RecordBatch]:
    batch_id, view = version
    table = StoredViews(options.state).changes(view, batch_id)
    return _with_batch_id(table, view, batch_id)


def _with_batch_id(table: pa.Table, view: str, batch_id: int) -> Iterator[pa.RecordBatch]:
    column = pa.repeat(pa.scalar(batch_id, pa.int64()), table.num_rows)
    converted = _converted(table.append_column(BATCH_ID, column), view)
    return iter(converted.to_batches(max_chunksize=MAX_ROWS_TO_SPARK))


def _converted(table: pa.Table, view: str) -> pa.Table:
    """Return a table with the types of Spark, without nullability, which Spark compares."""
    converted = convert_columns(table, lake_type, subject=f"view {view!r}")
    return converted.cast(pa.schema([pa.field(f.name, f.type) for f in converted.schema]))


def _repeated(table: pa.Table, weights: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
    """Return batches with each row as often as its weight says."""
    ends = np.cumsum(weights)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, MAX_ROWS_TO_SPARK):
        positions = np.arange(first, min(first + MAX_ROWS_TO_SPARK, total))
        rows = table.take(pa.array(np.searchsorted(ends, positions, side="right")))
        yield from rows.combine_chunks().to_batches()


def _spark_schema(schema: pa.Schema) -> StructType:
    converted: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return converted
