"""View changes: views are added to a sink, or dropped from it, while its query runs.

::

    add_view, drop_view     edit the program and check it; from any thread
    between micro-batches   a circuit of the edited program takes over the state
    next micro-batch        its manifest commits the change; the targets receive the new views

============== ================== ================= =======================================
state          class              held by           ended by
============== ================== ================= =======================================
requested      `RequestedChange`  ``_requests``     `make_all`, or ``cancel()``
computed       `ComputedChange`   nobody: one call  the same call makes it
in slices      `RunningBackfill`  ``_running``      `finish`, ``cancel()``, or an error
made           `MadeChange`       ``_uncommitted``  `confirm`, after the commit
============== ================== ================= =======================================

A change has three stages. The caller *requests* it. The sink *makes* it when no micro-batch runs:
the circuit of the edited program takes over the state. The sink does this at once, in the thread of
the caller, if it has loaded its state; otherwise when the next micro-batch has loaded it. The next
micro-batch *commits* the change (`streaming.state.program_change`). If the job crashes before the
commit, the state directory has the views from before the change, and the caller requests the change
again.

With a limit of rows or seconds (`ChangeOptions`), the state of new views is computed in slices
(`circuits.state.sliced_backfill`): after the commit of each micro-batch, one slice with a limit of
rows, and with a limit of seconds as many as fit. When all rows are read, the rows of the new views
are published in slices as well. Each micro-batch then publishes the next slice of each new view,
with the rows as of the previous micro-batch, and the changes of the old views. The change is made
when only the last slices are left, and the next micro-batch commits it. So the program of the state
directory contains a view only when its target has all rows. The state of the new views is written
with each slice, to files that no manifest names until the commit
(`streaming.state.records.early_state`). If the backfill begins again, its first published slice
replaces the rows that the target has (`ViewDelta.previous` is `NO_BATCH`). Views whose targets
cannot replace rows (`streaming.targets.target.ReplacingTarget`) are published by one micro-batch.
So are views in mode ``complete``, which every micro-batch publishes whole.

The backfill begins again if the state has to be loaded again before the commit, after an error or
`ViewSink.close`, or if a slice is interrupted (Ctrl-C). An interrupt while a change is made takes
effect after it (`streaming.uninterrupted`), because this takes little time. If the job stops
before the commit, the change is lost, and the caller requests it again.

A change that is not made at once may fail later, in a micro-batch. The error is then set on the
future of the change instead of raised to the caller, and the query continues with the old views.

The errors of some changes are raised by the micro-batch in which they fail
(`streaming.sink.sliced_start`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from circuits import Circuit, ProgramChangeError
from circuits.circuit_spec import CircuitSpec
from circuits.program_edits import add_views, remove_view
from circuits.runtime.graph import GraphStep
from circuits.user_functions import UserFunction
from dbsp_wcoj.storage.trace import TraceStep
from streaming.engine.engine import StagedBatch, ViewBackfill
from streaming.errors import TargetError
from streaming.sink.given_inputs import GivenInputs
from streaming.sink.output import Output, OutputRouting, Outputs, list_outputs, route_outputs
from streaming.state.program_change import ChangeOptions
from streaming.state.records.early_state import EarlyState
from streaming.uninterrupted import run_uninterrupted

__all__ = [
    "AddViews",
    "BackfillProgress",
    "ChangeableSink",
    "DropView",
    "ReplaceViews",
    "RequestedChange",
    "RunningBackfill",
    "ViewChanges",
]

FIRST_SLICE_ROWS: Final = 1000
# The next slice has half as many rows if a slice takes more than this share of `seconds_per_batch`,
# and twice as many if it takes less than a fourth of this share.
MAX_SLICE_SHARE: Final = 0.25

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackfillProgress:
    """The progress of a backfill in slices.

    Attributes:
        views: The new views.
        rows_read: The number of rows of the state that the backfill has read.
        rows: The number of rows of the state that it reads in total; it changes with the state.
        rows_published: The number of rows of the new views that micro-batches have published.
    """

    views: tuple[str, ...]
    rows_read: int
    rows: int
    rows_published: int = 0


@dataclass(frozen=True)
class AddViews:
    """Views to add; the arguments of `streaming.ViewSink.add_view`."""

    text: str
    outputs: Outputs = None
    name: str | None = None
    materialize: Collection[str] = ()
    functions: dict[str, UserFunction] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def apply(self, circuit: Circuit, routing: OutputRouting) -> tuple[Circuit, OutputRouting]:
        """Return an empty circuit that also has the new views, and all outputs.

        Raises:
            TextError, ProgramChangeError: As `circuits.program_edits.add_views`.
            UnknownViewError, TargetError: An output does not fit the new views.
        """
        spec = add_views(
            circuit.spec,
            self.text,
            name=self.name,
            materialize=self.materialize,
            functions=self.functions,
        )
        edited = circuit.with_spec(spec)
        new = [view for view in edited.outputs if view not in circuit.outputs]
        outputs = list_outputs(new, self.outputs)
        for output in outputs:
            if output.view in circuit.outputs:
                raise TargetError(
                    f"outputs: view {output.view!r} is not new; new views are {', '.join(new)}"
                )
        return edited, route_outputs(edited, [*routing.outputs.values(), *outputs])


@dataclass(frozen=True)
class DropView:
    """A view to drop."""

    view: str

    @property
    def dropped(self) -> tuple[str, ...]:
        """The views to drop: only this one."""
        return (self.view,)

    def apply(self, circuit: Circuit, routing: OutputRouting) -> tuple[Circuit, OutputRouting]:
        """Return an empty circuit without the view, and the remaining outputs.

        Raises:
            UnknownViewError, ProgramChangeError: As `circuits.program_edits.remove_view`.
        """
        edited = circuit.with_spec(remove_view(circuit.spec, self.view))
        outputs: list[Output] = [o for o in routing.outputs.values() if o.view != self.view]
        return edited, route_outputs(edited, outputs)


@dataclass(frozen=True)
class ReplaceViews:
    """A whole program with its outputs, with which a sink was started.

    Attributes:
        spec: The program.
        outputs: Its outputs.
        dropped: Empty: the program has all earlier views.
    """

    spec: CircuitSpec
    outputs: Sequence[Output]
    dropped: ClassVar[tuple[str, ...]] = ()

    def apply(self, circuit: Circuit, _: OutputRouting) -> tuple[Circuit, OutputRouting]:
        """Return an empty circuit of the program, and its outputs.

        Raises:
            UnknownViewError, TargetError: As `streaming.sink.output.route_outputs`.
        """
        edited = circuit.with_spec(self.spec)
        return edited, route_outputs(edited, self.outputs)


Edit: TypeAlias = AddViews | DropView | ReplaceViews


@dataclass(frozen=True)
class RequestedChange:
    """A change that was requested and is not committed yet.

    Attributes:
        edit: The edit of the program.
        given: The options of the change, such as the limits of a slice, and the rows that the
            caller gives.
        raises_errors: True if the micro-batch in which the change fails raises the error, and the
            next one tries it again; otherwise the query goes on with the earlier views.
        committed: Receives the id of the micro-batch that commits the change, or an error.
    """

    edit: Edit
    given: GivenInputs
    raises_errors: bool = False
    committed: Future[int] = field(default_factory=Future)

    @property
    def options(self) -> ChangeOptions:
        """The options, with the given rows as of the last micro-batch."""
        return self.given.options


@dataclass
class RunningBackfill:
    """A change whose new views are computed in slices.

    Attributes:
        request: The change.
        circuit: The circuit of the edited program.
        routing: The outputs of this circuit.
        backfill: The backfill.
        early: Writes the state of the new views; None without a state directory.
        clock: Returns the time in seconds.
        rows_published: The number of rows of the new views that micro-batches have published.
        undo: Goes back to the views before the change; None until the sink begins to make it.
        tables: The next slice of each new view that is published in slices, as its target gets it.
    """

    request: RequestedChange
    circuit: Circuit
    routing: OutputRouting
    backfill: ViewBackfill
    early: EarlyState | None = None
    clock: Callable[[], float] = perf_counter
    rows_published: int = 0
    undo: Callable[[], None] | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    _slice_rows: int = FIRST_SLICE_ROWS
    _publication_rows: int = FIRST_SLICE_ROWS

    @property
    def first_slices(self) -> Collection[str]:
        """The views whose next slice is their first one, which replaces the rows of the target."""
        return {*self.backfill.sliced_views} - {*self.backfill.emitted_views}

    def confirm_tables(self) -> None:
        """Record that the micro-batch that published `tables` is committed."""
        self.backfill.confirm_slices()
        self.rows_published = self.backfill.rows_emitted

    def record_publication(self, seconds: float) -> None:
        """Set the size of the next published slice from the seconds that the last one took."""
        limit = self.request.options.seconds_per_batch
        if limit is not None:
            self._publication_rows = _next_slice_rows(self._publication_rows, seconds, limit)

    def advance(self, changes: Iterable[TraceStep], now: int | None) -> None:
        """After a commit, compute slices up to the limit of the change, and set `tables`.

        Args:
            changes: The changed traces of the step that was committed.
            now: The time in microseconds since 1970, if the new circuit reads it.

        Raises:
            DbspWcojError: The new views fail for the rows.
            TargetError: A view in mode ``upsert`` does not have one row per key.
        """
        options = self.request.options
        rows = options.rows_per_batch
        if options.seconds_per_batch is None:
            assert rows is not None
            self.backfill.advance(changes, rows, now, on_step=self._on_step)
            self.backfill.emit(rows)
        else:
            self._advance_for(options.seconds_per_batch, changes, rows, now)
            emitted_rows = self._publication_rows
            self.backfill.emit(emitted_rows if rows is None else min(rows, emitted_rows))
        self.tables = self.routing.tables(self.backfill.slices, self.backfill.emitted_part)

    @property
    def _on_step(self) -> Callable[[GraphStep], None] | None:
        return None if self.early is None else self.early.write

    def _advance_for(
        self, limit: float, changes: Iterable[TraceStep], rows: int | None, now: int | None
    ) -> None:
        """Compute slices until ``limit`` seconds have passed or ``rows`` rows have been read."""
        end = self.clock() + limit
        while True:
            start = self.clock()
            slice_rows = self._slice_rows if rows is None else min(rows, self._slice_rows)
            read = self.backfill.advance(changes, slice_rows, now, on_step=self._on_step)
            changes = ()
            seconds = self.clock() - start
            self._slice_rows = _next_slice_rows(self._slice_rows, seconds, limit)
            if rows is not None:
                rows -= read
            is_at_limit = rows is not None and rows <= 0
            # The next slice may take twice as long as this one.
            if self.backfill.has_all_rows or is_at_limit or self.clock() + 2 * seconds > end:
                return


@dataclass(frozen=True)
class ComputedChange:
    """A change whose new rows were computed in one call, not in slices.

    Attributes:
        request: The change.
        circuit: The circuit of the edited program.
        routing: The outputs of this circuit.
        make: Lets the new circuit take over the state.
        discard: Removes what was written for the change, if it is not made.
    """

    request: RequestedChange
    circuit: Circuit
    routing: OutputRouting
    make: Callable[[], None]
    discard: Callable[[], None]


class ChangeableSink(Protocol):
    """A sink whose views can be changed."""

    @property
    def circuit(self) -> Circuit:
        """The circuit with the current views."""
        ...

    @property
    def must_commit_change(self) -> bool:
        """True if a change that is made must be committed before the next one is made."""
        ...

    def begin_change(self, request: RequestedChange) -> RunningBackfill | ComputedChange:
        """Compute the rows of a change, or begin its backfill."""
        ...

    def remember_views(self) -> Callable[[], None]:
        """Return a function that restores the current views; their state is then loaded again."""
        ...

    def finish_change(self, change: RunningBackfill | ComputedChange) -> None:
        """Make a change whose rows are computed: its circuit takes over the state."""
        ...

    def report_views(self) -> None:
        """Tell the observers if the views have changed, which may call the sink."""
        ...


class MadeChange(NamedTuple):
    """A change that is made and not committed yet.

    Attributes:
        request: The change.
        undo: Goes back to the views before the change.
        is_sliced: True if its rows were computed in slices.
    """

    request: RequestedChange
    undo: Callable[[], None]
    is_sliced: bool


class ViewChanges:
    """The requested changes of a sink, in their order.

    The caller of each method must hold the lock of the sink, which each micro-batch holds too.

    Args:
        sink: The sink whose views change.
    """

    def __init__(self, sink: ChangeableSink) -> None:
        self._sink = sink
        self._requests: deque[RequestedChange] = deque()
        self._running: RunningBackfill | None = None
        self._uncommitted: list[MadeChange] = []  # the next commit commits them

    @property
    def is_pending(self) -> bool:
        """True if a requested change is not committed yet."""
        return bool(self._requests or self._uncommitted or self._running)

    @property
    def follows_batches(self) -> bool:
        """True if `advance` has to be called after a commit."""
        return self._running is not None or bool(self._requests)

    @property
    def progress(self) -> BackfillProgress | None:
        """The progress of the running backfill; None if none runs."""
        running = self._running
        if running is None:
            return None
        backfill = running.backfill
        views = tuple(view.view for view in backfill.change.views if view.kind == "new")
        return BackfillProgress(views, backfill.rows_read, backfill.rows, running.rows_published)

    @property
    def publishing(self) -> RunningBackfill | None:
        """The running backfill, if micro-batches publish the new views in slices."""
        running = self._running
        if running is None or not running.backfill.is_valid or not running.backfill.has_all_rows:
            return None
        return running if running.backfill.sliced_views else None

    def record_publication(self, seconds: float) -> None:
        """Record how long a slice of a new view took to publish."""
        if self._running is not None:
            self._running.record_publication(seconds)

    @property
    def routing(self) -> OutputRouting | None:
        """The outputs of the circuit of the running backfill; None if none runs."""
        return None if self._running is None else self._running.routing

    def request(
        self, request: RequestedChange, circuit: Circuit, routing: OutputRouting, *, at_once: bool
    ) -> None:
        """Make a change or begin its backfill: at once if possible, else in `make_all`.

        Args:
            request: The change.
            circuit: The circuit of the sink.
            routing: The outputs of this circuit.
            at_once: True if the state is loaded and no micro-batch runs. The change still waits if
                a backfill runs, or an earlier change waits or must be committed first.

        Raises:
            DbspWcojError: The edit does not fit the program with all earlier changes, or a change
                that is made at once fails. Nothing has changed.
        """
        is_free = self._running is None and not self._sink.must_commit_change
        if at_once and is_free and not self._requests:
            try:
                self._make(request)
            except BaseException:
                if self._running is not None:
                    self._end_backfill(self._running)
                raise
            return
        if self._running is not None:
            circuit, routing = self._running.circuit, self._running.routing
        self._remove_ended_requests()
        for earlier in self._requests:
            circuit, routing = earlier.edit.apply(circuit, routing)
        request.edit.apply(circuit, routing)
        self._requests.append(request)

    def make_all(self, batch_id: int | None) -> None:
        """Make the requested changes in order, until one has to be computed in slices.

        An error is set on the future of its change; the views stay as they were.

        Args:
            batch_id: The last micro-batch of the state; None before the first one.
        """
        running = self._running
        if running is not None and not running.backfill.is_valid:
            self.restart_backfill()
        self._remove_ended_requests()
        for request in self._requests:  # also those that wait, before a micro-batch adds its rows
            try:
                request.given.assign_batch(batch_id)
            except ProgramChangeError as error:
                self._report_failure(request, error)
        while self._next_request() is not None and self._running is None:
            if self._sink.must_commit_change:
                return
            request = self._requests[0]  # it is removed later, so that an interrupt keeps it
            try:
                self._make(request)
            except Exception as error:
                self._report_failure(request, error)

    def advance(self, staged: StagedBatch, previous: int | None, now: Callable[[], int]) -> None:
        """Compute the next slices of the running backfill, after the commit of a micro-batch.

        An error is set on the future of its change, and ends the backfill.

        Args:
            staged: The micro-batch.
            previous: The micro-batch before it; None if it is the first one.
            now: Returns the time in microseconds since 1970.
        """
        self._remove_ended_requests()
        for request in self._requests:
            self._add_given(request, staged, previous)
        running = self._running
        if running is None:
            return
        if running.request.committed.cancelled():
            self._end_backfill(running)
            return
        try:
            given = running.request.given.add(staged, previous)
            changes = [*staged.changes, *given]
            running.advance(changes, now() if running.circuit.reads_now else None)
        except Exception as error:
            if running.request.raises_errors:
                self._request_again(running.request)
            self._end_backfill(running)
            self._report_failure(running.request, error)

    def _add_given(
        self, request: RequestedChange, staged: StagedBatch, previous: int | None
    ) -> None:
        """Add the rows of a micro-batch to the given rows of a change that waits."""
        try:
            request.given.add(staged, previous)
        except Exception as error:
            self._report_failure(request, error)

    def finish(self) -> None:
        """Make the change of the running backfill if it is complete; no micro-batch may run."""
        running = self._running
        if running is None or not (running.backfill.is_valid and running.backfill.is_complete):
            return
        if running.request.committed.cancelled():
            self._end_backfill(running)
            return
        try:
            self._finish(running)
        except Exception as error:
            self._report_failure(running.request, error)

    def restart_backfill(self) -> None:
        """End the running backfill; the next micro-batch begins it again."""
        running = self._running
        if running is None:
            return
        if self._sink.circuit is running.circuit:  # interrupted just after the change was made
            if not self._is_made(running.request):
                assert running.undo is not None
                self._add_made(running, running.undo)
            self._running = None
            return
        self._request_again(running.request)
        self._end_backfill(running)

    @property
    def has_made_slices(self) -> bool:
        """True if a change whose rows were computed in slices is made and not committed."""
        return any(made.is_sliced for made in self._uncommitted)

    def undo_slices(self) -> None:
        """Go back to the views before the first change that was computed in slices.

        This change and the later ones are requested again. Otherwise, the next micro-batch would
        compute and publish all rows of the new views at once, because the state in memory is lost.
        """
        first = next((i for i, made in enumerate(self._uncommitted) if made.is_sliced), None)
        if first is None:
            return
        lost = self._uncommitted[first:]

        def undo() -> None:
            lost[0].undo()
            del self._uncommitted[first:]
            self._requests.extendleft(made.request for made in reversed(lost))

        try:
            run_uninterrupted(undo)
        finally:
            self._sink.report_views()

    def confirm(self, batch_id: int) -> None:
        """Set the futures of the changes that a micro-batch has committed."""
        while self._uncommitted:
            committed = self._uncommitted[0].request.committed
            if _can_be_set(committed):
                committed.set_result(batch_id)
            del self._uncommitted[0]

    def _next_request(self) -> RequestedChange | None:
        """Return the next request that waits."""
        self._remove_ended_requests()
        return self._requests[0] if self._requests else None

    def _remove_ended_requests(self) -> None:
        """Remove the requests that do not wait: made, begun, failed or cancelled ones."""
        begun = None if self._running is None else self._running.request
        self._requests = deque(
            request
            for request in self._requests
            if not (request is begun or request.committed.done() or self._is_made(request))
        )

    def _make(self, request: RequestedChange) -> None:
        """Make a change, or begin its backfill."""
        change = self._sink.begin_change(request)
        if isinstance(change, ComputedChange):
            self._finish(change)
            return
        self._running = change
        if change.backfill.is_complete:
            self._finish(change)

    def _finish(self, change: RunningBackfill | ComputedChange) -> None:
        """Make a change whose rows are computed, without interruption, unless it was cancelled."""
        undo = self._sink.remember_views()
        if isinstance(change, RunningBackfill):
            change.undo = undo

        def finish() -> None:
            if not _can_be_set(change.request.committed):
                if isinstance(change, RunningBackfill):
                    self._end_backfill(change)
                else:
                    change.discard()
                return
            try:
                self._sink.finish_change(change)
            except Exception:
                if isinstance(change, RunningBackfill):
                    self._end_backfill(change)
                raise
            self._add_made(change, undo)
            self._running = None

        try:
            run_uninterrupted(finish)
        finally:
            self._sink.report_views()  # in this thread, which has the lock of the sink

    def _add_made(self, change: RunningBackfill | ComputedChange, undo: Callable[[], None]) -> None:
        is_sliced = isinstance(change, RunningBackfill)
        self._uncommitted.append(MadeChange(change.request, undo, is_sliced))

    def _is_made(self, request: RequestedChange) -> bool:
        return any(made.request is request for made in self._uncommitted)

    def _report_failure(self, request: RequestedChange, error: Exception) -> None:
        """Set the error of a change on its future, or request it again and raise the error."""
        if request.raises_errors:
            self._request_again(request)
            raise error
        log.warning("a change of the views failed, and they stay as they are: %s", error)
        if _can_be_set(request.committed):
            request.committed.set_exception(error)

    def _request_again(self, request: RequestedChange) -> None:
        if not any(waiting is request for waiting in self._requests):
            self._requests.appendleft(request)

    def _end_backfill(self, running: RunningBackfill) -> None:
        self._running = None
        running.backfill.abandon()
        if running.early is not None:
            running.early.discard()


def _next_slice_rows(rows: int, seconds: float, limit: float) -> int:
    """Return the number of rows of the next slice: half or twice as many, or the same.

    Args:
        rows: The number of rows of the last slice.
        seconds: The time that it took.
        limit: The limit of seconds for the slices of one micro-batch (`seconds_per_batch`).
    """
    if seconds > limit * MAX_SLICE_SHARE:
        return max(1, rows // 2)
    return rows * 2 if seconds < limit * MAX_SLICE_SHARE / 4 else rows


def _can_be_set(future: Future[int]) -> bool:
    """Set a future running, so that its result can be set; return False if it is done.

    An earlier call may have set it running and then been interrupted, so running counts, too.
    """
    return future.running() or (not future.done() and future.set_running_or_notify_cancel())
