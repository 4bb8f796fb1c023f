"""InputStreamWriter: writes a stream of Spark into an input, exactly once.

::

    executors    each task writes its rows to an Arrow file in the state directory, a *part*
    driver       the commit of a micro-batch applies all its parts as one step

The step also records, for each input, the last micro-batch of each query that writes into it
(`streaming.data_source.query_positions`). So a commit recognizes a micro-batch that Spark repeats
after a crash, and applies its rows once. At its end, it removes all parts of its query, also those
of failed tasks.

Options:

- ``state``: the state directory; the executors need access to it.
- ``input``: the name of the input to write into; not needed if there is only one.
- ``views``: the SQL of tables and views, or the path of a file ``*.sql`` that the driver can read.
  It is needed for a new state. If the SQL differs from that of an existing state, the views change.
- ``dialect``: the SQL dialect of ``views``, by default "duckdb".
- ``checkpointLocation``: the checkpoint of the query, which contains the id of the query. Give it
  as an option of the stream, because a data source does not see the settings of the session.
- ``keep``: the number of versions of the state to keep for streams that read changes, at least 2,
  by default 3.
- ``newQuery``: "true" to let a query with a new checkpoint write into an input that has rows of
  other queries; its rows are added to theirs.

Rows may have a column ``weight``: -1 deletes a row. A deletion fails if the circuit stores the
rows of the input and the row is not among them (`circuits.inputs.missing_deletions`). Several
queries can write into one state. A commit waits a few seconds while another one runs, then fails.

Cost: Spark runs each commit in a new process, so a commit loads the state: O(rows of the state)
in addition to the step. `streaming.ViewSink` keeps the state in memory between micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from circuits import Circuit, compile_sql
from streaming.data_source.query_positions import FORGOTTEN, advance, is_applied
from streaming.database.database import Database
from streaming.database.positions import (
    POSITIONS,
    POSITIONS_SCHEMA,
    Position,
    position_changes,
    read_positions,
)
from streaming.errors import BatchOrderError, StateError
from streaming.sink.checkpoint import Checkpoint
from streaming.state.files import Files, remove_files
from streaming.state.open_files import open_files

__all__ = ["InputStreamWriter", "WriteOptions"]

NAMES: Final = ("state", "input", "views", "dialect", "checkpointLocation", "keep", "newQuery")
#: Options that Spark adds, in lower case: ``queryName`` of a stream.
SPARK_OPTIONS: Final = ("queryname",)
#: The folders of the parts in the state directory begin with this word.
PARTS: Final = "incoming"
SQL_SUFFIX: Final = ".sql"
MIN_VERSIONS_KEPT: Final = 2


@dataclass(frozen=True)
class WriteOptions:
    """Where to write; the module describes the options."""

    state: str
    checkpoint: str
    input: str | None = None
    views: str | None = None
    dialect: str = "duckdb"
    keep: int = 3
    accepts_new_query: bool = False

    @property
    def parts_folder(self) -> str:
        """The folder of the parts in the state directory; each query has its own."""
        return f"{PARTS}-{sha256(self.checkpoint.encode()).hexdigest()[:16]}"

    @staticmethod
    def of(options: Mapping[str, str]) -> WriteOptions:
        """Read the options of Spark; ``path``, the argument of ``start``, means ``state``.

        Raises:
            StateError: An option is missing, unknown or invalid.

        >>> WriteOptions.of({"path": "s/", "checkpointlocation": "c/", "INPUT": "orders"}).input
        'orders'
        """
        names = {name.lower(): name for name in NAMES} | {"path": "state"}
        values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() in SPARK_OPTIONS:
                continue
            known = names.get(name.lower())
            if known is None:
                raise StateError(
                    f"unknown option {name!r} of a stream into format 'dbsp_wcoj'; there are "
                    f"{', '.join(NAMES)}"
                )
            if values.setdefault(known, value) != value:
                raise StateError(f"the options state={values[known]!r} and path={value!r} differ")
        for name in ("state", "checkpointLocation"):
            if not values.get(name):
                raise StateError(
                    f"a stream into format 'dbsp_wcoj' needs the option {name!r}: "
                    ".option('state', 'state/').option('checkpointLocation', 'checkpoint/')"
                )
        keep, new_query = values.get("keep", "3"), values.get("newQuery", "false").lower()
        if not (keep.isascii() and keep.isdigit() and int(keep) >= MIN_VERSIONS_KEPT):
            raise StateError(f"option keep={keep!r}: it must be a whole number from 2")
        if new_query not in ("true", "false"):
            raise StateError(f"option newQuery={new_query!r}: it must be true or false")
        return WriteOptions(
            values["state"],
            values["checkpointLocation"],
            values.get("input"),
            values.get("views"),
            values.get("dialect", "duckdb"),
            int(keep),
            new_query == "true",
        )


@dataclass
class _Part(WriterCommitMessage):
    """The file with the rows of a task; its name is None if the task had no rows."""

    name: str | None


class InputStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch as one step; see the module."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to a file, and return its name for the commit."""
        batches = [batch for batch in iterator if batch.num_rows]
        if not batches:
            return _Part(None)
        output = pa.BufferOutputStream()
        with pa.ipc.new_file(output, batches[0].schema) as file:
            for batch in batches:
                file.write_batch(batch)
        name = f"{self._options.parts_folder}/{uuid4()}.arrow"
        open_files(self._options.state).write(name, [output.getvalue()])
        return _Part(name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Apply the parts of a micro-batch as one step, unless the state already contains it.

        Raises:
            BatchOrderError: The micro-batch is older than the last one of its query; or the input
                has rows of other queries only; or the position of the query was forgotten.
            StateError, CircuitError: The state cannot be used, or the rows do not fit the input,
                or are deletions of rows that do not exist. Nothing has changed.
        """
        options = self._options
        files = open_files(options.state)
        parts = [part.name for part in messages if isinstance(part, _Part) and part.name]
        checkpoint = Checkpoint(options.checkpoint)
        query = checkpoint.query_id
        with _open_database(options) as database:
            relation = _input_of(database.circuit, options.input)
            positions = read_positions(database.view(POSITIONS).to_arrow())
            position = positions.get(relation, {})
            planned_ms = checkpoint.planned_ms(batchId)
            is_new = query not in position
            if (parts or is_new) and not self._is_committed(
                relation, position, query, batchId, planned_ms
            ):
                new = {relation: advance(position, query, batchId, planned_ms)}
                changes = {POSITIONS: position_changes(positions, new)}
                if parts:
                    changes[relation] = pa.concat_tables([_read(files, name) for name in parts])
                database.apply(changes)
        remove_files(files, files.names(options.parts_folder))  # also those of tasks that failed

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the parts of a micro-batch that failed."""
        names = [part.name for part in messages if isinstance(part, _Part) and part.name]
        remove_files(open_files(self._options.state), names)

    def _is_committed(
        self, relation: str, position: Position, query: str, batch_id: int, planned_ms: int
    ) -> bool:
        """Return whether the state contains a micro-batch.

        Args:
            relation: The name of the input.
            position: The last micro-batches of the queries that have written into it.
            query: The id of this query.
            batch_id: The id of the micro-batch.
            planned_ms: When Spark planned it.

        Raises:
            BatchOrderError: See `commit`.
        """
        if position and query not in position and not self._options.accepts_new_query:
            others = [item for item in position if item != FORGOTTEN]
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise BatchOrderError(
                f"input {relation!r} of {self._options.state} has rows of another query "
                f"({shown}), and this one ({query}) has a new checkpoint, so it "
                "would add all its rows again: continue with the earlier checkpoint; or give "
                "the option newQuery=true to add its rows"
            )
        try:
            return is_applied(position, query, batch_id, planned_ms)
        except BatchOrderError as error:
            raise BatchOrderError(f"input {relation!r} of {self._options.state}: {error}") from None


def _open_database(options: WriteOptions) -> Database:
    """Open the state with the views of the option ``views``, or else with its own."""
    if options.views is None:
        return Database(path=options.state, keep=options.keep)
    text = options.views
    if text.strip().lower().endswith(SQL_SUFFIX):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(
                f"option views: {options.views} cannot be read: {error}; give the absolute path of "
                "a file of SQL"
            ) from error
    schemas = {POSITIONS: POSITIONS_SCHEMA}
    circuit = compile_sql(text, schemas, dialect=options.dialect)
    materialized = [POSITIONS, *circuit.outputs]
    circuit = compile_sql(text, schemas, dialect=options.dialect, materialize=materialized)
    return Database(circuit, path=options.state, keep=options.keep)


def _input_of(circuit: Circuit, name: str | None) -> str:
    """Return the name of the input to write into.

    Raises:
        StateError: There is no such input, no name is given for one of several inputs, or the state
            has no positions.
    """
    inputs = [relation for relation in circuit.inputs if relation != POSITIONS]
    if POSITIONS not in circuit.inputs:
        raise StateError(
            "the state was made by another program, and does not record the micro-batches of a "
            "stream: write into a new state directory, with the option views"
        )
    if name is None and len(inputs) == 1:
        return inputs[0]
    if name not in inputs:
        raise StateError(f"option input={name!r}: name one of the inputs {', '.join(inputs)}")
    return name


def _read(files: Files, name: str) -> pa.Table:
    return pa.ipc.open_file(pa.py_buffer(files.read(name))).read_all()
