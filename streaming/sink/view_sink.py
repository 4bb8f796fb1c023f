"""ViewSink: applies micro-batches to a circuit; the function of ``foreachBatch``.

::

    circuit = compile_sql("SELECT city, count(*) AS n FROM r GROUP BY city", {"r": schema})
    sink = ViewSink(circuit, [Output("r", target)], state_dir="state/")
    changes.writeStream.foreachBatch(sink).option("checkpointLocation", "checkpoint/").start()

A circuit is a compiled set of views; a step takes the changed rows of its inputs and returns the
changed rows of its views. Spark calls the sink with the rows of one micro-batch and a batch id: 0,
1, 2 ... without gaps, at least once each. The sink applies each micro-batch exactly once:

1.  The id is the next one. The sink reads the rows by one ``toArrow()``, decodes them and prepares
    the step; in mode "distributed", executors do that, and a micro-batch that probably has few rows
    is evaluated twice if it has many. It writes the new state and the deltas of the views, commits
    by one rename (`streaming.state.store`), updates the state in memory, and writes the deltas to
    their targets.
2.  The id is committed: Spark stopped or failed before it recorded the commit. The sink reads the
    rows, checks that they are the same, and publishes the same deltas again. The state does not
    change.
3.  Any other id raises `BatchOrderError`, because state and checkpoint do not belong together.

An error before the commit leaves the state unchanged, and the micro-batch may be replayed. Targets
receive every delta at least once, with the same rows, and the targets of this package write it
exactly once (`streaming.targets`). A plain function ``(frame, batch_id)`` must itself be idempotent
by the batch id.

The sink also reads the rows of a replayed micro-batch. Spark records a micro-batch as complete when
the function returns, so rows that differ and are not read would be lost silently.

Without ``state_dir`` the state is in the memory of this process, and the exactly-once guarantee
holds while the process lives. With ``state_dir``, the sink can be pickled: the pickle has the
`CircuitSpec` and the settings, and the copy loads the state from the directory. Spark Connect runs
a sink this way, in another process.

The rows of a micro-batch have one of three forms: the columns of the inputs, with a column
``relation`` if there are several inputs; the envelope of `streaming.merge`; or change events, which
``feed`` decodes (`streaming.sources.change_feeds`).
"""

from __future__ import annotations

import logging
import os
import pickle
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import datetime
from threading import Lock, RLock
from time import perf_counter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, ProgramChangeError, UnknownInputError
from circuits.inputs.encoded_inputs import microseconds_of
from circuits.runtime.state_names import StateNames
from circuits.user_functions import UserFunction
from streaming.clock import utc_now
from streaming.engine.engine import MicroBatch, StagedBatch, UnreadBatch
from streaming.errors import (
    MissedBatchesError,
    StateError,
    StateMismatchError,
    StreamingError,
)
from streaming.sink.execution_mode import (
    ExecutionMode,
    make_engine,
)
from streaming.sink.frozen_objects import FROZEN_OBJECTS
from streaming.sink.given_inputs import GivenInputs
from streaming.sink.metrics import BatchMetrics, Stopwatch
from streaming.sink.metrics_recorder import BatchResult, MetricsRecorder
from streaming.sink.observer import Published, SinkObserver, notify
from streaming.sink.output import Output, OutputRouting, Outputs, list_outputs, route_outputs
from streaming.sink.progress import Progress
from streaming.sink.query_identity import QueryIdentity
from streaming.sink.sliced_start import find_sliced_start
from streaming.sink.view_changes import (
    AddViews,
    BackfillProgress,
    ComputedChange,
    DropView,
    RequestedChange,
    RunningBackfill,
    ViewChanges,
)
from streaming.sources.change_feeds import ChangeFeed, find_feed
from streaming.sources.change_feeds.change_order import OrderCheck
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.dead_letters import BadRowPolicy, apply_policy, check_policy
from streaming.sources.envelope import Changes
from streaming.sources.few_rows import Refusal, collect_few_rows
from streaming.state.local_files import DEFAULT_STATE_MODE, check_mode
from streaming.state.mapped.memory_limit import parse_memory_limit
from streaming.state.program_change import ChangeOptions
from streaming.state.records.dead_letter_files import DEFAULT_RETENTION, DeadLetterRetention
from streaming.state.version_summary import VersionSummary
from streaming.targets.frame import frame_of
from streaming.targets.output_mode import OutputMode
from streaming.targets.target import ViewDelta

__all__ = ["ViewSink"]

# The greatest size of a micro-batch that the driver reads because it has few rows; no row may have
# more than its share.
MAX_FEW_BYTES: Final = 1 << 24
# After a micro-batch of few rows with a large one, this many go to executors unread, because the
# time of reading rows that are refused is lost.
BATCHES_WITHOUT_FEW: Final = 100
LOAD_POLL_INTERVAL_S: Final = 0.05  # how often a reader checks whether the state is loaded

log = logging.getLogger(__name__)


class ViewSink:
    """Applies micro-batches to a circuit; pass it to ``writeStream.foreachBatch``.

    Args:
        circuit: The views; afterwards only this sink may step the circuit.
        outputs: The target and the output mode of each view, a list of `Output`. Short form: one
            `Target` or function ``(frame, batch_id)``, which receives the deltas of all outputs of
            the circuit, one view after another.
        state_dir: The location of the state: a path, a URI such as ``s3://bucket/folder`` or of a
            pyarrow file system, a pair of file system and path, or `Files`. Without it, the state
            is in memory.
        state_mode: The permission bits of the state directory, its folders and, without the execute
            bits, its files (also dead letters), when they are created on a local disk. Existing
            files keep their mode. By default only the user of this process may read them.
        keep: The number of versions of the state in the directory, at least 2.
        memory_limit: Bytes of the state that may be in memory, as a number or a text such as
            ``"4 GB"``. After a commit that exceeds it, large parts of the state are mapped from the
            files of ``state_dir``, or on S3 from their copies in the local cache. By default all
            state is in memory.
        relation: The input of all rows, if they have no column ``relation``. Not needed if the
            circuit has one input.
        feed: The change feed that decodes the rows, or its name
            (`streaming.sources.change_feeds.FEEDS`).
        bad_rows: The policy for invalid rows: "fail" raises an error; "dead_letter" keeps the rows
            apart, with the reason, in ``dead_letters/`` of the state directory.
        dead_letters: How long and up to which size dead letters are kept; by default 30 days and
            1 GiB.
        checkpoint: The checkpoint directory of the query. With it, Spark's watermark advances
            inputs with lateness or retention by a timestamp, and a checkpoint of another query is
            detected in Spark Connect as well (elsewhere Spark reports the query).
        mode: "embedded" runs the circuit in this process. "distributed" runs its cells on Spark's
            executors (`streaming.distributed`): the same deltas, for state or work that exceeds
            one machine. It needs a state directory that all machines share, and no view is whole
            in one place. A recursion without a column that all rules keep runs in one cell.
        cells: The maximum number of cells of each join or group, in mode "distributed". An existing
            state directory has one mode and one number of cells; ``python -m streaming rescale``
            changes them.
        pin_cells: True to step the cells on the same executors in each micro-batch that executors
            decode, so that they find their state in memory: for executors of one core, and cells
            with many strings. It
            needs the setting ``spark.shuffle.reduceLocality.enabled=false`` of the application.
        observers: Receive the events of each micro-batch (`SinkObserver`).
        clock: Returns the time of a micro-batch, for views that read ``now()``. The manifest
            records the time. A replay publishes the results for the recorded time, and time never
            goes back, also after a restart.
        change: What a change of the views of an existing state directory may do: `ChangeOptions`
            (`streaming.state.program_change`). Equal parts of the views keep their state, new ones
            are computed from rows that the state has. Without options, a change that would drop
            something raises an error. With ``rows_per_batch`` or ``seconds_per_batch``, the sink
            first runs the views of the directory, and computes the new views in slices; then it
            goes on with the views of ``circuit``, in a circuit of its own (`ViewSink.circuit`). The
            views of the directory must be among them, unchanged, and the inputs must be equal.

    Raises:
        StreamingError: ``mode``, ``cells`` and the circuit do not fit each other.
        StateMismatchError: ``change`` limits the slices, and the views cannot change in slices.
        StateDamagedError: ``change`` limits the slices, and the state directory is damaged.
        UnknownInputError: ``relation`` is not an input of the circuit.
        UnknownViewError: An output names a view that is not an output of the circuit.
        TargetError: An output mode does not fit its view or ``mode``.
        FeedError: The feed is unknown.
        StateError: ``keep`` is too small, ``state_mode`` excludes this user, the location is not a
            folder, ``memory_limit`` is not a size or the state is neither on a local disk nor on
            S3, or dead letters have no state directory.
    """

    def __init__(
        self,
        circuit: Circuit,
        outputs: Outputs = None,
        *,
        state_dir: Any = None,
        state_mode: int = DEFAULT_STATE_MODE,
        keep: int = 3,
        memory_limit: int | str | None = None,
        relation: str | None = None,
        feed: ChangeFeed | str | None = None,
        bad_rows: BadRowPolicy = "fail",
        dead_letters: DeadLetterRetention = DEFAULT_RETENTION,
        checkpoint: str | os.PathLike[str] | None = None,
        mode: ExecutionMode = "embedded",
        cells: int | None = None,
        pin_cells: bool = False,
        observers: Iterable[SinkObserver] = (),
        clock: Callable[[], datetime] = utc_now,
        change: ChangeOptions | None = None,
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
                "bad_rows='dead_letter' keeps rows in the state directory, and this sink has none: "
                "give ViewSink(state_dir=...)"
            )
        _log_expiry(circuit)
        self._circuit = circuit
        outputs = list_outputs(circuit.outputs, outputs)
        self._routing = route_outputs(circuit, outputs)
        self._relation = relation
        self._feed = None if feed is None else find_feed(feed)
        self._bad_rows: BadRowPolicy = bad_rows
        self._dead_letters = dead_letters
        self._state_dir = state_dir
        self._state_mode = check_mode(state_mode)
        self._keep = keep
        self._memory_limit = parse_memory_limit(memory_limit)
        self._mode = mode
        self._cells = cells
        self._pin_cells = pin_cells
        self._query = QueryIdentity(None if checkpoint is None else os.fspath(checkpoint))
        self._clock = clock
        self._change = change or ChangeOptions()
        start = None
        if self._change.is_sliced and state_dir is not None:
            start = find_sliced_start(circuit, outputs, state_dir, self._change)
        if start is not None:
            self._circuit, self._routing = start.circuit, start.routing
            self._change = ChangeOptions()  # these are the views of the directory
        self._initialize()
        if start is not None:
            self._changes.request(start.request, start.circuit, start.routing, at_once=False)
        self._observers.extend(observers)

    def _initialize(self) -> None:
        """Set the attributes that are not settings: the engine, and what this process has done."""
        self._lock = RLock()
        # Without a cycle of references, a dropped sink releases its state directory at once.
        sink = weakref.proxy(self)
        self._engine = make_engine(
            self._circuit,
            mode=self._mode,
            cells=self._cells,
            pin_cells=self._pin_cells,
            state_dir=self._state_dir,
            state_mode=self._state_mode,
            keep=self._keep,
            change=self._change,
            clock=self._clock,
            dead_letters=self._dead_letters,
            last_batch=lambda view: sink.last_batch_of_target(view),
            memory_limit=self._memory_limit,
        )
        self._versions = self._engine.versions
        self._changes = ViewChanges(sink)
        self._was_copied = False  # by `__getstate__`, to another process
        self._last: Published | None = None
        # The rows of the last micro-batch; None before the first one.
        self._last_rows: int | None = None
        self._batches_without_few = 0  # how many of the next ones are not read as few rows
        self._observers: list[SinkObserver] = []
        self._observers_lock = Lock()  # the other lock is held during a micro-batch
        self._recorder = MetricsRecorder(self._versions, StateNames(self._circuit.graph))
        # True if the circuit has the state of the last micro-batch; readers may then use it.
        self._is_current = False
        self._watch: Stopwatch | None = None  # of the micro-batch that is being applied
        self._has_new_views = False  # True until the observers get them
        unordered_inputs = {  # no column says which of two upserts of a key is the newer one
            name
            for name, options in self._circuit.input_options.items()
            if options.keys and options.sequence is None
        }
        self._order = OrderCheck(self._feed, unordered_inputs)
        self._reader: FeedReader | None = None

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
        return self._recorder.metrics

    @property
    def last(self) -> Published | None:
        """The tables of the latest micro-batch; None before the first one in this process."""
        return self._last

    @property
    def progress(self) -> Progress | None:
        """The activity of the running micro-batch, for any thread; None between micro-batches."""
        watch = self._watch
        return None if watch is None else watch.progress

    @property
    def backfill(self) -> BackfillProgress | None:
        """The progress of new views that are computed in slices, for any thread; None without any.

        When it becomes None, the next micro-batch publishes the last slice, and commits the change.
        """
        return self._changes.progress

    @property
    def is_changing(self) -> bool:
        """True if a change of the views is not committed yet; for any thread."""
        return self._changes.is_pending

    def add_observer(self, observer: SinkObserver) -> None:
        """Send the events of the following micro-batches to an observer, such as a live page."""
        with self._observers_lock:
            self._observers.append(observer)

    def remove_observer(self, observer: SinkObserver) -> None:
        """Send no further events to an observer; no effect if it gets none.

        Any thread may call this. It does not wait for the running micro-batch, so an event that is
        being sent may still arrive.
        """
        with self._observers_lock:
            for index, other in enumerate(self._observers):
                if other is observer:  # not ==, which is true for two observers of equal fields
                    del self._observers[index]
                    return

    def add_view(
        self,
        text: str,
        outputs: Outputs = None,
        *,
        name: str | None = None,
        materialize: Collection[str] = (),
        functions: Mapping[str, UserFunction] | None = None,
        change: ChangeOptions | None = None,
    ) -> Future[int]:
        """Add views while the query runs; they take effect between two micro-batches.

        Any thread may call this. It waits for the running micro-batch. The state of the new views
        is computed from rows that the state has, or that ``change`` gives; the state of the others
        stays. The next micro-batch commits the change with its manifest, and each new view writes
        all its rows to its target. A crash before that leaves the views as they were. After it,
        start the job with the new program: ``sink.circuit.spec``, or the text with the new views.

        ``sink.circuit`` is another object after the change, and the circuit before it accepts no
        more steps.

        Args:
            text: The views, in the language and dialect of the program: ``CREATE VIEW``
                statements, or rules. They may read all inputs and views.
            outputs: The outputs of the new views: a list of `Output`, or one target for all.
            name: The name of the view, if ``text`` is one SELECT; other statements and rules name
                their views.
            materialize: The new views that are kept whole.
            functions: User-defined functions that the new views call.
            change: Rows of inputs for the backfill, as they are after the last micro-batch; the
                rows of later ones are added until the change is made. With ``rows_per_batch`` or
                ``seconds_per_batch``, no micro-batch takes much longer: the state of the new views
                is computed in slices, one after each of the following micro-batches, and the one
                after that commits the change. If the job stops before, nothing has changed.
                `backfill` says how far it is, and ``cancel()`` of the future ends it. Further
                changes wait for it.

        Returns:
            A future with the id of the micro-batch that has committed the change, when its rows
            are in the targets. Waiting for it in the thread of the query would never end.

        Raises:
            SqlError, DatalogError: The text is not valid, or names an unknown relation.
            ProgramChangeError: The rows that the views need are neither kept nor given; a
                micro-batch was committed while given rows were read; or the text changes an
                existing view or declares an input. In all cases nothing has changed. If the sink
                has not loaded its state yet, an error that depends on it is set on the future.
            UnknownViewError, TargetError: An output does not fit the new views.
            StreamingError: The mode is "distributed", and the new views cannot be distributed, or
                not in slices; or another process runs this sink.

        Complexity:
            O(rows that the new views read) and the work of a first step over them, in this call;
            in slices, in the following micro-batches.
        """
        if isinstance(outputs, Iterator):
            outputs = list(outputs)
        edit = AddViews(text, outputs, name, materialize, dict(functions or {}))
        return self._request(edit, change or ChangeOptions())

    def drop_view(self, name: str, *, change: ChangeOptions | None = None) -> Future[int]:
        """Drop a view while the query runs, between two micro-batches.

        Its target receives nothing more. State that no other view needs is dropped. The change is
        committed as that of `add_view`.

        Args:
            name: The view.
            change: With ``allow_drop``, rows of inputs that only this view keeps are dropped, too.

        Returns:
            As `add_view`.

        Raises:
            UnknownViewError: There is no view of that name.
            ProgramChangeError: Other views read it, or it is the only one.
            StateMismatchError: Rows of an input would be dropped, and ``change`` does not allow it.
            StreamingError: As `add_view`.
        """
        return self._request(DropView(name), change or ChangeOptions())

    def _request(self, edit: AddViews | DropView, options: ChangeOptions) -> Future[int]:
        """Make a change of the views now, or when the next micro-batch has loaded the state."""
        if options.renames:
            raise ProgramChangeError(
                f"renames={dict(options.renames)}: a view is renamed by a start with the new views "
                "only; close this sink, and open one with these options"
            )
        batch_id = self._versions.last_batch_id if self._is_current else None
        given = GivenInputs(options, self._circuit)  # no micro-batch waits while rows are read
        request = RequestedChange(edit, given)
        with self._lock:
            if self._was_copied and not self._recorder.metrics:
                raise StreamingError(
                    "this sink was copied to another process, which runs the query (Spark "
                    "Connect), so its views cannot change here: stop the query and start it with "
                    "the changed views"
                )
            # In a micro-batch, this is a call by one of its targets or observers.
            at_once = self._is_current and self._watch is None
            if self._is_current:
                given.assign_batch(batch_id)
                given.assign_batch(self._versions.last_batch_id)  # none was committed meanwhile
            self._changes.request(request, self._circuit, self._routing, at_once=at_once)
            return request.committed

    @property
    def must_commit_change(self) -> bool:
        """True if a change must be committed before the next one; `ViewChanges` reads this."""
        return self._engine.must_commit_change

    def begin_change(self, request: RequestedChange) -> RunningBackfill | ComputedChange:
        """Compute the rows of a change, or begin its backfill; `ViewChanges` calls this."""
        circuit, routing = request.edit.apply(self._circuit, self._routing)
        request.given.assign_batch(self._versions.last_batch_id)
        options, dropped = request.options, request.edit.dropped
        new = [view for view in circuit.outputs if view not in self._circuit.outputs]
        new_outputs = [routing.output_of(view) for view in new]
        if self._engine.begins_backfill(options):
            for output in new_outputs:
                _log_whole_view(output)
            backfill = self._engine.begin_backfill(
                circuit,
                options,
                dropped=dropped,
                sliced_views={o.view: o.keys for o in new_outputs if o.accepts_slices},
                unread_views=[o.view for o in new_outputs if o.mode == "complete"],
            )
            early = self._engine.early_state(backfill)
            return RunningBackfill(request, circuit, routing, backfill, early)
        now = self._microseconds_now() if circuit.reads_now else None
        keys = {output.view: output.keys for output in new_outputs if output.mode == "upsert"}
        make, discard = self._engine.compute_change(
            circuit, options, dropped=dropped, now=now, keys=keys
        )
        return ComputedChange(request, circuit, routing, make, discard)

    def remember_views(self) -> Callable[[], None]:
        """Return a function that goes back to the views of now; `ViewChanges` calls both."""
        settings, circuit, routing = self._engine.settings(), self._circuit, self._routing
        method = weakref.WeakMethod(self._return_to)  # the sink keeps `undo`, see `_initialize`

        def undo() -> None:
            return_to = method()
            assert return_to is not None
            return_to(settings, circuit, routing)

        return undo

    def _return_to(
        self, settings: Mapping[str, Any], circuit: Circuit, routing: OutputRouting
    ) -> None:
        """Go back to the views before a change, whose state is loaded again."""
        self._engine.undo_change(settings)
        self._is_current = False
        self._continue_with(circuit, routing)

    def finish_change(self, change: RunningBackfill | ComputedChange) -> None:
        """Make a change of the views whose rows are computed; `ViewChanges` calls this."""
        options = change.request.options

        def finish() -> None:
            if isinstance(change, RunningBackfill):
                self._engine.finish_backfill(change.backfill, change.early, options)
            else:
                change.make()

        self._switch(finish, change.circuit, change.routing)

    def _switch(self, change: Callable[[], None], circuit: Circuit, routing: OutputRouting) -> None:
        """Go on with other views; after an error or interrupt, with those before."""
        settings = self._engine.settings()
        old_circuit, old_routing = self._circuit, self._routing
        try:
            change()
            self._continue_with(circuit, routing)
        except BaseException as error:
            if not isinstance(error, Exception) or self._engine.must_undo_change(settings):
                self._engine.undo_change(settings)
                self._circuit, self._routing = old_circuit, old_routing
                self._recorder.state_names = StateNames(old_circuit.graph)
                self._is_current = False  # the next micro-batch loads the state again
            raise

    def _microseconds_now(self) -> int:
        return microseconds_of(self._clock())

    def _continue_with(self, circuit: Circuit, routing: OutputRouting) -> None:
        """Go on with other views, whose state is in memory."""
        self._circuit, self._routing = circuit, routing
        self._recorder.state_names = StateNames(circuit.graph)
        FROZEN_OBJECTS.release(self)  # so that the state that was dropped can be freed
        self._has_new_views = True

    def report_views(self) -> None:
        """Send the views to the observers if they have changed; `ViewChanges` calls this."""
        if self._has_new_views:
            self._has_new_views = False
            circuit, last = self._circuit, self._versions.last_batch_id
            batch_id = -1 if last is None else last
            self._notify(lambda observer: observer.views_changed(circuit), batch_id)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch. A call in a second thread waits for the first.

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
                if isinstance(error, StateMismatchError | ProgramChangeError | MissedBatchesError):
                    # A sink that fits can open the directory, and this one loads the state again.
                    self._engine.close()
                failure = error
                self._notify(lambda observer: observer.batch_failed(batch_id, failure), batch_id)
                raise
            finally:
                self._watch = None
            FROZEN_OBJECTS.hold(self)
            metrics = self._recorder.last
            self._notify(lambda observer: observer.batch_completed(published, metrics), batch_id)

    def _notify(self, send: Callable[[SinkObserver], object], batch_id: int) -> None:
        for observer in tuple(self._observers):  # another thread may remove one
            notify(observer, send, batch_id)

    def _apply(self, df: DataFrame, batch_id: int) -> Published:
        def notify_phase(phase: str, seconds: float) -> None:
            self._notify(
                lambda observer: observer.phase_completed(batch_id, phase, seconds), batch_id
            )

        on_phase = notify_phase if self._observers else None
        with Stopwatch(batch_id, on_phase=on_phase) as watch:
            self._watch = watch
            query_id = self._query.query_of(df)
            with watch.phase("load", "state"):
                if self._changes.has_made_slices and self._versions.has_lost_change():
                    self._changes.undo_slices()
                committed = self._versions.find(batch_id, query_id)
                self._is_current = True
            if committed is None:
                self._publish_left_out(df, watch)
                if self._changes.is_pending:
                    with watch.phase("backfill", "new views"):
                        self._changes.make_all(self._versions.last_batch_id)
            result, few_rows = None, self._read_few(df, watch)
            if few_rows is None:
                result = self._apply_unread(df, committed, batch_id, query_id, watch)
            if result is None:
                result = self._apply_read(df, few_rows, committed, batch_id, query_id, watch)
            self._last_rows = sum(result.rows_in.values())
            self._last = published = Published(query_id, batch_id, result.summary.outputs)
            with watch.phase("publish", "targets"):
                self._publish(df, result.summary, watch, is_repeated=result.is_replay)
            if not self._versions.has_pending_change:
                self._changes.confirm(batch_id)
            self._recorder.record(result, watch)
            self._changes.finish()
            return published

    def view(self, name: str, session: SparkSession | None = None) -> DataFrame:
        """Return a whole materialized view, or input, after the last micro-batch.

        With a state directory this also works while another process runs the query, for example a
        Spark Connect server. During a micro-batch in another thread the call returns the view
        before that micro-batch. It waits only while the sink loads its state.

        Args:
            name: The view.
            session: The session of the DataFrame; by default the active session.

        Raises:
            UnknownViewError: The view is unknown or not materialized.
            StateDamagedError: The newest version of the state directory is damaged.
        """
        contents = ViewDelta(name, batch_id=-1, table=self.table(name), mode="complete")
        return frame_of(session or SparkSession.active(), contents)

    def table(self, name: str) -> pa.Table:
        """Return a whole view like `view`, but as an Arrow table and without Spark."""
        while not self._is_current:
            if self._lock.acquire(timeout=LOAD_POLL_INTERVAL_S):
                try:
                    stored = self._engine.read_stored_view(name)
                    if stored is not None:
                        return stored
                    self._versions.load_newest()
                    return self._engine.read_view(name)
                finally:
                    self._lock.release()
        return self._engine.read_view(name)

    def explain(self) -> str:
        """Return the running plan: the operators of the circuit, or the stages of cells."""
        with self._lock if self._engine.explain_reads_state else nullcontext():
            return self._engine.explain()

    def close(self) -> None:
        """Release the state directory for another sink or process; the next call opens it again."""
        with self._lock:
            if self._is_current and self._versions.loses_pending_change:
                self._changes.undo_slices()
            self._is_current = False
            self._changes.restart_backfill()
            try:
                self._engine.close()
            finally:
                FROZEN_OBJECTS.release(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, with which a copy continues from the state directory."""
        if self._state_dir is None:
            raise pickle.PicklingError(
                "a ViewSink without state_dir has its state in memory and cannot move to another "
                "process, which Spark Connect requires: give ViewSink(state_dir=...)"
            )
        if self._changes.is_pending:
            raise pickle.PicklingError(
                "the changes of the views of this ViewSink are not committed yet: start the query "
                "with a sink of all views, and without rows_per_batch and seconds_per_batch"
            )
        self._was_copied = True
        not_settings = (
            "_changes",
            "_circuit",
            "_engine",
            "_has_new_views",
            "_is_current",
            "_lock",
            "_order",
            "_reader",
            "_versions",
            "_was_copied",
            "_watch",
            "_last",
            "_observers",
            "_observers_lock",
            "_recorder",
        )
        settings = {name: value for name, value in vars(self).items() if name not in not_settings}
        settings["_change"] = self._change.with_tables()  # a DataFrame cannot be pickled
        return {**settings, "spec": self._circuit.spec}

    def __setstate__(self, settings: dict[str, Any]) -> None:
        """Restore the sink from its settings, without state."""
        self._circuit = Circuit(settings.pop("spec"))
        vars(self).update(settings)
        self._initialize()

    def _feed_reader(self) -> FeedReader:
        """Return the reader of micro-batches, made again when the inputs have changed."""
        circuit = self._circuit
        if self._reader is None or self._reader.inputs is not circuit.inputs:
            self._reader = FeedReader(
                self._feed, circuit.inputs, circuit.input_options, relation=self._relation
            )
        return self._reader

    def _read_few(self, df: DataFrame, watch: Stopwatch) -> pa.Table | None:
        """Read a micro-batch that probably has few rows, as the one before.

        Returns:
            None if the rows are many, or one is so large that many of them would fill the memory,
            or the one before was large, or the engine never reads rows for this reason.
        """
        if self._batches_without_few > 0:
            self._batches_without_few -= 1
            return None
        most = self._engine.max_few_rows(self._output_modes())
        if (
            not most
            or self._last_rows is None
            or self._last_rows > most
            or not hasattr(df, "limit")
        ):
            return None
        with watch.phase("read", "rows of the micro-batch"):
            self._check_order_columns(df)
            frame = self._feed_reader().select(df.limit(most + 1))
            few_rows = collect_few_rows(frame, most, MAX_FEW_BYTES // most)
        if few_rows is Refusal.LARGE:
            self._batches_without_few = BATCHES_WITHOUT_FEW
        return None if isinstance(few_rows, Refusal) else few_rows

    def _apply_unread(
        self,
        df: DataFrame,
        committed: VersionSummary | None,
        batch_id: int,
        query_id: str | None,
        watch: Stopwatch,
    ) -> BatchResult | None:
        """Apply or check a micro-batch whose rows stay on executors; None if it must be read."""
        if self._changes.is_pending or self._changes.publishing is not None:
            return None
        batch = UnreadBatch(batch_id, query_id, df, self._feed_reader(), self._output_modes())
        if committed is not None:
            counts = self._engine.count_unread(batch)
            if counts is None:
                return None
            if committed.digests:  # else failing rows were isolated, as in `Engine.check_replay`
                committed.check_same_rows(counts.digests)
            return BatchResult(committed, counts.rows, is_replay=True)
        with self._versions.guard_reads():
            staged = self._engine.prepare_unread(batch, bad_rows=self._bad_rows, timer=watch)
            return None if staged is None else self._commit(staged, watch)

    def _output_modes(self) -> dict[str, OutputMode]:
        return {view: self._routing.output_of(view).output_mode for view in self._circuit.outputs}

    def _check_order_columns(self, df: DataFrame) -> None:
        if self._order.is_pending:  # reading the columns may require a call to a server
            self._order.check_columns(df.columns)

    def _apply_read(
        self,
        df: DataFrame,
        table: pa.Table | None,
        committed: VersionSummary | None,
        batch_id: int,
        query_id: str | None,
        watch: Stopwatch,
    ) -> BatchResult:
        """Read the rows of a micro-batch, unless ``table`` has them, and apply or check it."""
        reader = self._feed_reader()
        if table is None:
            with watch.phase("read", "rows of the micro-batch"):
                self._check_order_columns(df)
                table = reader.collect(df)
        if self._feed is None:
            self._order.check_rows(table)
        with watch.phase("decode", f"{table.num_rows:,} rows"):
            changes = reader.decode(table, df.sparkSession)
        if committed is None:
            with self._versions.guard_reads():
                return self._step(df, changes, batch_id, query_id, watch)
        self._engine.check_replay(committed, changes.tables)
        rows_in = {name: rows.num_rows for name, rows in changes.tables.items()}
        return BatchResult(committed, rows_in, is_replay=True)

    def _step(
        self,
        df: DataFrame,
        changes: Changes,
        batch_id: int,
        query_id: str | None,
        watch: Stopwatch,
    ) -> BatchResult:
        """Apply a new micro-batch: prepare it, write it, make it the state in memory."""
        circuit = self._circuit
        apply_policy(changes.dead_letters, bad_rows=self._bad_rows, batch_id=batch_id)
        watermarks = self._query.watermarks(circuit.inputs, circuit.input_options, batch_id)
        now = self._clock() if circuit.reads_now else None
        modes = self._output_modes()
        batch = MicroBatch(batch_id, query_id, changes, df, watermarks, now, modes)
        staged = self._engine.prepare(batch, bad_rows=self._bad_rows, timer=watch)
        return self._commit(staged, watch)

    def _commit(self, staged: StagedBatch, watch: Stopwatch) -> BatchResult:
        """Write a prepared micro-batch, and make it the state in memory."""
        previous = self._versions.last_batch_id
        try:
            publishing = self._changes.publishing
            with watch.phase("write", "state and deltas"):
                tables = self._routing.tables(staged.deltas, staged.after)
                if publishing is not None:
                    tables |= publishing.tables
                summary = staged.write(
                    tables, () if publishing is None else publishing.first_slices
                )
            with watch.phase("merge", "the step into the state"):
                staged.commit()
                if publishing is not None:
                    publishing.confirm_tables()
        except BaseException:
            staged.abandon()
            raise
        if self._changes.follows_batches:
            with watch.phase("backfill", "new views"):
                self._changes.advance(staged, previous, self._microseconds_now)
        return BatchResult(
            summary,
            staged.rows_in,
            dead_letters=len(staged.dead_letters),
            missing_deletions=staged.missing_deletions,
            late_rows=staged.late_rows,
            cell_counts=staged.cell_counts,
        )

    def _publish_left_out(self, df: DataFrame, watch: Stopwatch) -> None:
        """Publish the last micro-batch to views that its replay left out, if there are any."""
        unpublished = self._versions.unpublished
        if unpublished is not None:
            with watch.phase("publish", "targets"):
                self._publish(df, unpublished, watch, is_repeated=True)
            self._versions.confirm_published()

    def _publish(
        self, df: DataFrame, summary: VersionSummary, watch: Stopwatch, *, is_repeated: bool
    ) -> None:
        further = self._changes.routing  # of new views that are published in slices
        routing = self._routing.with_further(further)
        seconds_of_slices = 0.0
        for view in summary.outputs:
            table = summary.outputs.unread(view)
            start = perf_counter()
            target = routing.output_of(view).target_name
            watch.set_subject(f"{target} of view {view}, {table.num_rows:,} rows")
            routing.publish(
                view,
                summary.batch_id,
                table,
                state_id=self._versions.id,
                files=summary.files.get(view, ()),
                previous=summary.previous.get(view),
                session=df.sparkSession,
                is_repeated=is_repeated,
            )
            if view not in self._circuit.outputs:
                seconds_of_slices += perf_counter() - start
        if seconds_of_slices:
            self._changes.record_publication(seconds_of_slices)

    def last_batch_of_target(self, view: str) -> int | None:
        """The last micro-batch of a view in its target, see `OutputRouting.last_batch`."""
        columns = self._circuit.schema(view).arrow
        return self._routing.last_batch(view, columns, self._versions.id)


def _log_whole_view(output: Output) -> None:
    """Warn if the first rows of a new view are published by one micro-batch, despite a limit."""
    if output.mode != "complete" and not output.accepts_slices:
        log.warning(
            "view %r: its state is computed in slices, but its first rows are published by one "
            "micro-batch, because its output, %s in mode %r, cannot replace rows that it has "
            "received: give a function the parameter is_whole, or a target replaces_views = True",
            output.view,
            output.target_name,
            output.mode,
        )


def _log_expiry(circuit: Circuit) -> None:
    """Warn that expired rows change published rows, for inputs without explicit ``on_expiry``."""
    for name, options in circuit.input_options.items():
        retain = options.retain
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
