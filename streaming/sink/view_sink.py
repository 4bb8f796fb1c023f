"""ViewSink: applies micro-batches to a circuit; the function of ``foreachBatch``.

::

    circuit = compile_sql("SELECT city, count(*) AS n FROM r GROUP BY city", {"r": schema})
    sink = ViewSink(circuit, [Output("r", target)], state_dir="state/")
    changes.writeStream.foreachBatch(sink).option("checkpointLocation", "checkpoint/").start()

Spark calls it with the rows of one micro-batch and a batch id: 0, 1, 2 ... without gaps, at least
once each. The sink applies each micro-batch exactly once:

1.  the next id: read the rows by one ``toArrow()``, decode them, prepare the step, write its state
    and the deltas of the views, commit (one rename, `streaming.state.store`), make the step the
    state in memory, write the deltas to their targets;
2.  an id that is part of the state (Spark stopped or failed before it recorded the commit): read
    the rows, check that they are the same, publish the same deltas again, change nothing;
3.  any other id: `BatchOrderError`, because state and checkpoint do not belong together.

An error before the commit leaves the state unchanged, and the micro-batch may be replayed. Targets
get every delta at least once, with the same rows, and the targets of this package write it exactly
once (`streaming.targets`). A plain function ``(frame, batch_id)`` must itself be idempotent by
the batch id.

A replayed micro-batch is read as well: Spark records a micro-batch as complete when the function
returns, even if its rows were not read, so different rows would be lost silently.

Without ``state_dir`` the state is in the memory of this process, and the exactly-once guarantee
holds while the process lives. With ``state_dir``, the sink can be pickled to the definition of its
circuit and its settings; the copy loads the state from the directory. Spark Connect runs a sink
this way, in another process.

The rows of a micro-batch have one of three forms: flat, with a column ``relation`` if there are
several inputs; the envelope of `streaming.merge`; or raw, decoded by ``feed``
(`streaming.sources.change_feeds`).
"""

from __future__ import annotations

import logging
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from threading import RLock
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, UnknownInputError
from streaming.engine.engine import MicroBatch
from streaming.errors import StateError
from streaming.sink.execution_mode import (
    ExecutionMode,
    check_outputs,
    make_engine,
    resolve_mode,
)
from streaming.sink.metrics import BatchMetrics, Stopwatch
from streaming.sink.observer import Published, SinkObserver, notify
from streaming.sink.output import Output, Outputs, route_outputs
from streaming.sink.query_identity import QueryIdentity
from streaming.sources.change_feeds import ChangeFeed, find_feed
from streaming.sources.change_feeds.change_order import OrderCheck
from streaming.sources.dead_letters import BadRowPolicy, apply_policy, check_policy
from streaming.sources.envelope import Changes, decode_batch
from streaming.state.local_files import DEFAULT_STATE_MODE, check_mode
from streaming.state.version_summary import VersionSummary
from streaming.targets.frame import frame_of
from streaming.targets.target import ViewDelta

__all__ = ["ViewSink"]

MAX_METRICS_KEPT: Final = 1000  # micro-batches in `ViewSink.metrics`
MISSING_ROWS: Final = (
    "input %r: micro-batch %d deletes %d rows more often than they were inserted; they are kept "
    "with a negative weight, so a later insert of the same row has no effect; "
    "InputOptions(strict=True) refuses such rows instead; later ones are counted in the metrics "
    "(missing_deletions)"
)
LOAD_POLL_INTERVAL_S: Final = 0.05  # how often a reader checks whether the state is loaded

log = logging.getLogger(__name__)


class ViewSink:
    """Applies micro-batches to a circuit; pass it to ``writeStream.foreachBatch``.

    Args:
        circuit: The views; afterwards only this sink may step the circuit.
        outputs: The target and the output mode of each view, a list of `Output`. Short form: one
            `Target` or function ``(frame, batch_id)``, which receives the deltas of all outputs of
            the circuit, one view after another.
        state_dir: The location of the state: a path, a URI of a pyarrow file system, a pair of file
            system and path, or `Files`. Without it, the state is in memory.
        state_mode: The permission bits of the state directory, its folders and, without the execute
            bits, its files (also dead letters), when they are created on a local disk. Existing
            files keep their mode. By default only the user of this process may read them.
        keep: The number of versions of the state in the directory, at least 2.
        relation: The input of all rows, if they have no column ``relation``. Not needed if the
            circuit has one input.
        feed: The change feed that decodes the rows, or its name
            (`streaming.sources.change_feeds.FEEDS`).
        bad_rows: "fail", or "dead_letter" to keep invalid rows, with the reason, under
            ``dead_letters/`` in the state directory.
        checkpoint: The checkpoint directory of the query. With it, Spark's watermark advances
            inputs that retain rows by a timestamp, and a checkpoint of another query is detected
            in Spark Connect as well (elsewhere Spark reports the query).
        mode: "embedded" runs the circuit in this process. "distributed" runs its cells on Spark's
            executors (`streaming.distributed`): the same deltas, for state or work that exceeds
            one machine. It needs a state directory that all machines share, and no view is whole
            in one place. A circuit with a recursion runs embedded in either mode, with a warning.
        cells: The maximum number of cells of each join or group, in mode "distributed". An existing
            state directory has one mode and one number of cells; ``python -m streaming rescale``
            changes them.
        observers: Receive the events of each micro-batch (`SinkObserver`).

    Raises:
        StreamingError: ``mode``, ``cells`` and the circuit do not fit each other.
        UnknownInputError: ``relation`` is not an input of the circuit.
        UnknownViewError: An output names a view that is not an output of the circuit.
        TargetError: An output mode does not fit its view or ``mode``.
        FeedError: The feed is unknown.
        StateError: ``keep`` is too small, ``state_mode`` excludes this user, the location is not a
            folder, or dead letters have no state directory.
    """

    def __init__(
        self,
        circuit: Circuit,
        outputs: Outputs = None,
        *,
        state_dir: Any = None,
        state_mode: int = DEFAULT_STATE_MODE,
        keep: int = 3,
        relation: str | None = None,
        feed: ChangeFeed | str | None = None,
        bad_rows: BadRowPolicy = "fail",
        checkpoint: str | os.PathLike[str] | None = None,
        mode: ExecutionMode = "embedded",
        cells: int | None = None,
        observers: Iterable[SinkObserver] = (),
    ) -> None:
        if relation is not None and relation not in circuit.inputs:
            raise UnknownInputError(
                f"{relation!r} is not an input of the circuit; inputs are "
                f"{', '.join(circuit.inputs)}: rename the relation or add its schema"
            )
        if relation is None and len(circuit.inputs) == 1:
            relation = next(iter(circuit.inputs))
        check_policy(bad_rows)
        if bad_rows == "dead_letter" and state_dir is None:
            raise StateError(
                "bad_rows='dead_letter' keeps rows in the state directory, and there is none: give "
                "ViewSink(state_dir=...)"
            )
        mode, cells = resolve_mode(circuit, mode, cells)
        _log_expiry(circuit)
        self._circuit = circuit
        self._routing = route_outputs(circuit, outputs)
        check_outputs(mode, self._routing.outputs.values())
        self._relation = relation
        self._feed = None if feed is None else find_feed(feed)
        self._bad_rows: BadRowPolicy = bad_rows
        self._state_dir = state_dir
        self._state_mode = check_mode(state_mode)
        self._keep = keep
        self._mode = mode
        self._cells = cells
        self._query = QueryIdentity(None if checkpoint is None else os.fspath(checkpoint))
        self._begin()
        self._observers.extend(observers)

    def _begin(self) -> None:
        """Set the attributes that are not settings: the engine and the history of this process."""
        self._lock = RLock()
        self._engine = make_engine(
            self._circuit,
            mode=self._mode,
            cells=self._cells,
            state_dir=self._state_dir,
            state_mode=self._state_mode,
            keep=self._keep,
        )
        self._versions = self._engine.versions
        self._last: Published | None = None
        self._observers: list[SinkObserver] = []
        self._metrics: deque[BatchMetrics] = deque(maxlen=MAX_METRICS_KEPT)
        # True if the circuit has the state of the last micro-batch; readers may then use it.
        self._is_current = False
        rules = self._circuit.input_options.items()
        # Inputs for which missing deletions were logged.
        self._missed: set[str] = set()
        self._order = OrderCheck(
            self._feed, {name for name, rule in rules if rule.keys and rule.sequence is None}
        )

    @property
    def circuit(self) -> Circuit:
        """The views, at the state of the last micro-batch of this process.

        Any thread may read it (``sink.circuit.query(...)``). During a micro-batch it has the state
        before that micro-batch. In mode "distributed" it has no state, which is on the executors.
        """
        return self._circuit

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The target and output mode of each view that has an output."""
        return tuple(self._routing.outputs.values())

    @property
    def metrics(self) -> tuple[BatchMetrics, ...]:
        """The metrics of the last thousand micro-batches of this process, oldest first."""
        return tuple(self._metrics)

    @property
    def last(self) -> Published | None:
        """The tables of the latest micro-batch; None before the first one in this process."""
        return self._last

    def add_observer(self, observer: SinkObserver) -> None:
        """Send the events of the following micro-batches to an observer, such as a live page."""
        self._observers.append(observer)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch. A second thread waits.

        Raises:
            BatchOrderError: The id does not follow that of the state.
            ReplayError: The micro-batch was replayed with different rows.
            RowError: A row is invalid, and ``bad_rows`` is "fail".
            StateError: The state directory cannot be used.
            MicroBatchError, CircuitError: The rows do not fit the circuit. In all these cases the
                state has not changed.
        """
        with self._lock:
            self._notify(lambda observer: observer.batch_started(batch_id), batch_id)
            try:
                published = self._apply(df, batch_id)
            except BaseException as error:
                self._is_current = False  # the state in memory may differ from the one on disk
                failure = error
                self._notify(lambda observer: observer.batch_failed(batch_id, failure), batch_id)
                raise
            metrics = self._metrics[-1]
            self._notify(lambda observer: observer.batch_completed(published, metrics), batch_id)

    def _notify(self, send: Callable[[SinkObserver], object], batch_id: int) -> None:
        for observer in self._observers:
            notify(observer, send, batch_id)

    def _apply(self, df: DataFrame, batch_id: int) -> Published:
        with Stopwatch(batch_id) as watch:
            query_id = self._query.query_of(df)
            with watch.phase("load", "state"):
                done = self._versions.find(batch_id, query_id)
                self._is_current = True
            with watch.phase("read", "rows of the micro-batch"):
                frame = df
                if self._order.is_pending:  # reading the columns may require a call to a server
                    self._order.check_columns(df.columns)
                if self._feed is not None:
                    schemas, keys = self._circuit.definition.schemas, self._keys
                    frame = self._feed.envelope(df, schemas, keys=keys)
                table = frame.toArrow()  # the one action on df
                self._order.check_rows(table)
            with watch.phase("decode", f"{table.num_rows:,} rows"):
                changes = decode_batch(
                    table,
                    self._circuit.inputs,
                    relation=self._relation,
                    input_options=self._circuit.input_options,
                )
            if done is None:
                now, letters, missing = self._step(df, changes, batch_id, query_id, watch)
            else:
                self._engine.check_replay(done, changes.tables)
                now, letters, missing = done, 0, {}
            self._last = published = Published(query_id, batch_id, now.outputs)
            with watch.phase("publish", "targets"):
                self._publish(df, now, watch)
            self._measure(now, changes, letters, done is not None, watch, missing)
            return published

    def view(self, name: str, session: SparkSession | None = None) -> DataFrame:
        """Return a whole materialized view, or input, after the last micro-batch.

        With a state directory this works while another process runs the query on it: a Spark
        Connect server, or a job beside a notebook. During a micro-batch in another thread it is the
        view before that micro-batch. The call waits only for a sink that is loading its state.

        Args:
            name: The view.
            session: The session of the DataFrame; by default the active session.

        Raises:
            UnknownViewError: There is no such view, or it is not materialized.
            StateDamagedError: The newest version of the state directory is damaged.
        """
        whole = ViewDelta(name, -1, self.table(name), "complete")
        return frame_of(session or SparkSession.active(), whole)

    def table(self, name: str) -> pa.Table:
        """Return a whole view as an Arrow table, without Spark; otherwise as `view`."""
        self._engine.check_readable(name)
        while not self._is_current:
            if self._lock.acquire(timeout=LOAD_POLL_INTERVAL_S):
                try:
                    self._versions.load_newest()
                    return self._circuit.views[name]
                finally:
                    self._lock.release()
        return self._circuit.views[name]

    def explain(self) -> str:
        """Return the running plan: the operators of the circuit, or the stages of cells."""
        with self._lock if self._engine.explain_reads_state else nullcontext():
            return self._engine.explain()

    def close(self) -> None:
        """Release the state directory for another sink or process; the next call opens it again."""
        with self._lock:
            self._is_current = False
            self._versions.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, with which a copy continues from the state directory."""
        if self._state_dir is None:
            raise pickle.PicklingError(
                "a ViewSink without state_dir has its state in memory and cannot move to another "
                "process, which Spark Connect requires: give ViewSink(state_dir=...)"
            )
        own = (
            "_circuit",
            "_engine",
            "_is_current",
            "_lock",
            "_order",
            "_versions",
            "_last",
            "_observers",
            "_metrics",
            "_missed",
        )
        settings = {name: value for name, value in vars(self).items() if name not in own}
        return {**settings, "definition": self._circuit.definition}

    def __setstate__(self, settings: dict[str, Any]) -> None:
        """Restore the sink from its settings, without state."""
        self._circuit = Circuit(settings.pop("definition"))
        vars(self).update(settings)
        self._begin()

    @property
    def _keys(self) -> dict[str, tuple[str, ...]]:
        """The keys of the inputs whose rows are upserts."""
        return {
            name: rules.keys for name, rules in self._circuit.input_options.items() if rules.keys
        }

    def _step(
        self,
        df: DataFrame,
        changes: Changes,
        batch_id: int,
        query_id: str | None,
        watch: Stopwatch,
    ) -> tuple[VersionSummary, int, Mapping[str, int]]:
        """Apply a new micro-batch: prepare it, write it, make it the state in memory."""
        circuit = self._circuit
        apply_policy(changes.dead_letters, bad_rows=self._bad_rows, batch_id=batch_id)
        watermarks = self._query.watermarks(circuit.inputs, circuit.input_options, batch_id)
        batch = MicroBatch(batch_id, query_id, changes, df, watermarks)
        staged = self._engine.prepare(batch, bad_rows=self._bad_rows, timer=watch)
        try:
            with watch.phase("write", "state and deltas"):
                done = staged.write(self._routing.tables(staged.deltas, staged.after))
            with watch.phase("merge", "the step into the state"):
                staged.commit()
        except BaseException:
            staged.abandon()
            raise
        return done, len(staged.dead_letters), staged.missing_deletions

    def _publish(self, df: DataFrame, done: VersionSummary, watch: Stopwatch) -> None:
        for view, table in done.outputs.items():
            target = self._routing.output_of(view).target_name
            watch.subject(f"{target} of view {view}, {table.num_rows:,} rows")
            self._routing.publish(
                view,
                done.batch_id,
                table,
                state_id=self._versions.id,
                files=done.files.get(view, ()),
                session=df.sparkSession,
            )

    def _measure(
        self,
        done: VersionSummary,
        changes: Changes,
        dead_letters: int,
        replayed: bool,
        watch: Stopwatch,
        missing: Mapping[str, int],
    ) -> None:
        metrics = BatchMetrics(
            batch_id=done.batch_id,
            replayed=replayed,
            rows_in={name: table.num_rows for name, table in changes.tables.items()},
            rows_out={name: table.num_rows for name, table in done.outputs.items()},
            dead_letters=dead_letters,
            dead_letters_total=done.dead_letters,
            seconds=watch.seconds,
            bytes_written=0 if replayed else self._versions.bytes_written,
            arrangements=done.sizes,
            missing_deletions=dict(missing),
        )
        self._metrics.append(metrics)
        for name, rows in missing.items():
            if rows and name not in self._missed:
                self._missed.add(name)
                log.warning(MISSING_ROWS, name, done.batch_id, rows)
        if dead_letters:
            log.warning(
                "micro-batch %d: %d rows were not accepted, and are %s",
                done.batch_id,
                dead_letters,
                self._versions.describe_dead_letters(done.batch_id),
            )
        line = metrics.to_json()
        if log.isEnabledFor(logging.INFO):
            fields = {"event": "metrics", "metrics": asdict(metrics)}
            log.info("%s", line, extra={"fields": fields})
        try:
            self._versions.append_metrics(f"{line}\n")
        except OSError as error:
            log.warning("the metrics of micro-batch %d are not kept: %s", done.batch_id, error)


def _log_expiry(circuit: Circuit) -> None:
    """Log the effect of expiry on published rows, for inputs without an explicit ``on_expiry``."""
    for name, rules in circuit.input_options.items():
        retain = rules.retain
        if retain is not None and not retain.has_explicit_on_expiry:
            log.warning(
                "input %r: a row expires when %r of the newest row is %s ahead, and its results "
                "are then deleted from the views and from their targets (on_expiry=retract, the "
                "default); give on_expiry=keep beside retain to keep published results, or "
                "on_expiry=retract to confirm the default",
                name,
                retain.column,
                retain.duration_text,
            )
