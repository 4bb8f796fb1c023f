"""Sliced backfill: compute the state of new views a slice at a time, while the old circuit runs.

::

    step t of the old circuit     changes the traces that have the rows for the new views
    after its commit              slice of step t  =  delta of step t up to the cursor  +  next rows
                                  new state        :=  new state, stepped with the slice

The new views read rows that traces of the old circuit keep (`circuits.state.backfill`). A cursor
goes through each of these traces (`dbsp_wcoj.storage.trace_cursor`). The graph of the new program
gets the rows behind the cursor, and the part of each later delta that is at or before the cursor.
Both are ordinary deltas to its operators, so by the chain rule it always has the state that belongs
to the rows behind the cursors. When all cursors are at the end, these are all rows: the new graph
takes over the traces of equal operators of the old one, and goes on in its place.

So each slice has at most the given number of rows in addition to the delta of the step. No copy of
the traces and no queue of deltas are needed. If an operator is in both
programs and its rows are needed, its state is computed a second time; the second copy is dropped at
the end.

When the new graph has all rows, the rows of each new view are emitted: all at once, or also in
slices, if the caller names the view in ``sliced_views``. For this, the rows of the view are kept in
a trace, and a cursor goes through this trace in the same way::

    slice of the view  =  delta of the view up to its cursor  +  next rows of its trace

So the slices that were emitted always add up to the rows of the view at or before its cursor: each
of them is a row of the view as it is now, and never an intermediate result such as the count of a
part of a group. The backfill goes on with each step meanwhile, and is complete when the cursors of
these views are at the end, too. The last slice is emitted with the next step of the new circuit.

A target that keeps a row per key needs the current row of each key of a slice
(`SlicedBackfill.emitted_part`). The trace of such a view is arranged by the key, so that no step
has to arrange all of its rows.

The slices do not read the rows in the order of time. So the new graph has no watermarks until the
cursors are at the end, and drops no rows of its state. Then its watermarks advance to those of the
old circuit, in steps that drop about the given number of rows. Late rows are not among the rows
that are read, and by the law of `circuits.runtime.state_bounds`, dropped rows change no output.
Rows that are emitted when a window closes are emitted by these steps.

Rows that the caller gives are first added to a trace, in slices as well, and then read as a trace
of the old circuit (`circuits.state.given_rows`).

Not possible in slices:

- a change of a view that was published before;
- given rows of an input with keys, ``strict`` or retention, which are checked as a whole.

Alternatives considered: read a snapshot in slices, and then the deltas that were queued meanwhile.
It keeps the runs of the snapshot and all deltas in memory, and the queue may grow faster than it is
read. A part of the rows that is chosen by a hash of them would need a pass over all rows for each
slice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from circuits.errors import ProgramChangeError
from circuits.runtime.graph import NOW, Graph, GraphStep
from circuits.runtime.post_step_view import PostStepView
from circuits.state.emitted_views import MAX_READS, EmittedViews, lookup_order
from circuits.state.given_rows import GivenRows
from circuits.state.program_change import ComputedRows, ProgramChange
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.storage.trace_cursor import TraceCursor

__all__ = ["SlicedBackfill", "check_slices", "find_slice_obstacle"]


class SlicedBackfill:
    """The backfill of a change of a program, in slices.

    Call `advance` after every commit of the old circuit, so that no delta is missed, and `finish`
    once `is_complete` is True, before the next step. Begin a new backfill if `is_valid` is False.

    Args:
        change: The change; it must only add and remove views.
        sliced_views: The new views that are emitted in slices, each with the columns by which
            `emitted_part` looks its rows up; often none.
        unread_views: The new views of which `finish` returns no rows, because the caller reads the
            materialized views instead.
        given: The rows of the inputs in ``change.given_inputs``, as of the last step of the old
            circuit. The caller adds the delta of each later step to them, and passes it to
            `advance`.

    Attributes:
        change: As given.
        rows_read: The number of rows that slices have read.
        rows: The number of rows to read in all slices, as it was known after the last one.

    Raises:
        ProgramChangeError: The change is not possible in slices, or rows are not kept.

    >>> from circuits import InputOptions, compile_sql
    >>> schemas, keep = {"e": "src bigint, dst bigint"}, {"e": InputOptions(keep="all")}
    >>> old = compile_sql("CREATE VIEW v AS SELECT src FROM e", schemas, input_options=keep)
    >>> step = old.step({"e": [{"src": n % 2, "dst": n} for n in range(6)]})
    >>> counts = "CREATE VIEW c AS SELECT src, count(*) AS n FROM e GROUP BY src"
    >>> text = f"CREATE VIEW v AS SELECT src FROM e; {counts}"
    >>> new = compile_sql(text, schemas, input_options=keep)
    >>> backfill = SlicedBackfill(ProgramChange(old, new))
    >>> [backfill.advance((), 4), backfill.advance((), 4), backfill.is_complete]
    [4, 2, True]
    >>> backfill.finish()["c"].to_pylist()
    [{'src': 0, 'n': 3, 'weight': 1}, {'src': 1, 'n': 3, 'weight': 1}]
    """

    def __init__(
        self,
        change: ProgramChange,
        sliced_views: Mapping[str, Sequence[str]] = MappingProxyType({}),
        unread_views: Collection[str] = (),
        given: Mapping[str, GivenRows] = MappingProxyType({}),
    ) -> None:
        self.change = change
        self.rows_read = 0
        check_slices(change)
        change.begin()
        self._old_graph = change.old.graph
        # The last step whose delta the slices have; None while a slice is computed.
        self._step: int | None = self._old_graph.steps
        # False until the watermarks of the new graph have caught up with those of the old one.
        # Before the first step there are no rows, and the backfill is complete at once.
        self._has_all_watermarks = change.graph.state_bounds is None or change.backfill.is_empty
        # The number of rows that remain to be dropped until then, without those of later steps of
        # the old circuit; None until all rows have been read.
        self._rows_to_drop: int | None = None
        change.graph.watermarks = {}
        if change.graph.state_bounds is not None:
            change.graph.state_bounds.arrange_empty_traces()
        absent = change.given_inputs - given.keys()
        if absent:
            raise ProgramChangeError(
                f"the rows of {', '.join(sorted(absent))} are to be given: pass their GivenRows"
            )
        self._given = {position: given[name] for position, name in change.backfill.tables.items()}
        self._sources = {
            **change.backfill.stored,
            **{
                position: rows.stored_rows(change.backfill.tables[position], change.old.codecs)
                for position, rows in self._given.items()
            },
        }
        self._cursors = {
            position: TraceCursor(source.trace) for position, source in self._sources.items()
        }
        # Given rows are read twice: from the table, and from their trace.
        self._rows_to_load = sum(rows.rows_to_load for rows in self._given.values())
        self.rows = self._count_rows()
        new = [view.view for view in change.views if view.kind == "new"]
        self._new_views = EmittedViews(
            {view: change.new.schema(view) for view in new if view not in unread_views},
            change.old.codecs,
            sliced_views,
        )
        self._arrange_materialized(sliced_views)
        self._unread_views = set(unread_views)
        change.old.keep_values(True)  # after everything that can fail

    @property
    def is_valid(self) -> bool:
        """True if the slices have all deltas since the backfill began.

        False if the old circuit has loaded another state, if it has committed a step without a call
        of `advance`, or if a call was interrupted. Then abandon the backfill and begin a new one.
        """
        return self._is_same_graph and self._step == self._old_graph.steps

    @property
    def is_complete(self) -> bool:
        """True if the new views have all rows, and all slices of them are emitted but the last."""
        return self.has_all_rows and self._new_views.is_complete

    @property
    def has_all_rows(self) -> bool:
        """True if the new views have all rows, so that `emit` can begin."""
        has_constants = self.change.graph.steps > 0 or self.change.backfill.is_empty
        has_read_all = all(cursor.is_complete for cursor in self._cursors.values())
        return has_constants and has_read_all and self._has_all_watermarks

    @property
    def slices(self) -> dict[str, pa.Table]:
        """The next slice of each view that is emitted in slices, once all rows have been read.

        Emit it with the next step of the old circuit, and call `confirm_slices` when that step is
        committed, before `advance`.

        Complexity:
            O(rows of the slices): each call decodes them.
        """
        if not self.has_all_rows:
            return {}
        return self._new_views.slices

    def emitted_part(self, view: str) -> PostStepView:
        """Return a reader of the rows of a view that its slices add up to, with the next slice."""
        return self._new_views.emitted_part(view)

    @property
    def rows_emitted(self) -> int:
        """The number of rows of the slices of new views, including those in ``slices``."""
        return self._new_views.rows_emitted

    @property
    def sliced_views(self) -> frozenset[str]:
        """The views that are emitted in slices."""
        return self._new_views.sliced_views

    @property
    def emitted_views(self) -> frozenset[str]:
        """The views of which `confirm_slices` has confirmed a slice."""
        return self._new_views.begun_views

    def confirm_slices(self) -> None:
        """Record that the `slices` were emitted."""
        if self.has_all_rows:
            self._new_views.confirm()

    def advance(
        self,
        changes: Iterable[TraceStep],
        max_rows: int,
        now: int | None = None,
        *,
        on_step: Callable[[GraphStep], None] | None = None,
    ) -> int:
        """Compute the next slice.

        Args:
            changes: The changed traces of the step that the old circuit has committed, and those of
                given rows; none for a further slice after the same step.
            max_rows: The limit on the rows that are read in addition to the changes, at least 1.
            now: The time in microseconds since 1970, if the new views read ``now()`` and the old
                ones do not.
            on_step: Receives the step of the new operators, before its commit.

        Returns:
            The number of rows that were read in addition to the changes, or that the state of the
            new views has dropped because a watermark advances. It can be above ``max_rows`` only
            for rows that are dropped: an event time is dropped as a whole.

        Raises:
            DbspWcojError: The new views fail for the rows. The backfill cannot go on; call
                `abandon`.

        Complexity:
            That of a step of the new operators over these rows.
        """
        old, graph = self.change.old, self.change.graph
        self._step = None
        deltas = {id(change.trace): change for change in changes}
        read = 0
        contents: dict[int, ZSet] = {}
        for given in self._given.values():
            if read < max_rows:
                read += given.load(max_rows - read)
        for position, source in self._sources.items():
            cursor, delta = self._cursors[position], deltas.get(id(source.trace))
            rows = ZSet.empty(source.trace.arity) if delta is None else cursor.passed(delta.delta)
            if position in self._given and not self._given[position].is_loaded:
                continue
            reads = 0
            while not cursor.is_complete and read < max_rows and reads < MAX_READS:
                next_rows = cursor.next_rows(max_rows - read)
                rows = rows + next_rows
                read += len(next_rows)
                reads += 1
            if len(rows):
                contents[position] = source.decode(rows)
        dropped = self._advance_watermarks(max_rows - read)
        if contents or dropped is not None or not graph.steps or graph.reads_now:
            stored_now = old.graph.watermarks.get(NOW)
            now = stored_now if stored_now is not None else now
            step = self.change.backfill.run_slice(
                contents, old.codecs, now if graph.reads_now else None
            )
            if on_step is not None:
                on_step(step)
            step.commit()
            self._new_views.add({v: step.deltas[graph.views[v]] for v in self._new_views.names})
            old.keep_codes()
        self.rows_read += read
        self.rows = max(self._count_rows(), self.rows_read)
        self._step = self._old_graph.steps
        return read + (dropped or 0)

    def _count_rows(self) -> int:
        """Return the number of rows to read in all slices."""
        in_traces = sum(rows.trace.rows + rows.rows_to_load for rows in self._given.values())
        return self.change.rows_to_read + self._rows_to_load + in_traces

    def _advance_watermarks(self, max_rows: int) -> int | None:
        """Set the watermarks of the next step of the new graph, once all rows have been read.

        Until they have caught up, a step drops about ``max_rows`` rows, in addition to those that
        later steps of the old circuit drop: whole event times, and at least one. After that, they
        are those of the old circuit.

        Returns:
            About the number of rows that the step drops; None if no watermark has changed.
        """
        graph = self.change.graph
        watermarks, dropped = self.change.watermarks, 0
        if not all(cursor.is_complete for cursor in self._cursors.values()):
            return None
        if not self._has_all_watermarks and watermarks:
            if max_rows < 1:
                return None
            pending = graph.count_rows_to_drop(watermarks)
            new_rows = 0 if self._rows_to_drop is None else max(pending - self._rows_to_drop, 0)
            self._rows_to_drop = max(pending - new_rows - max_rows, 0)
            watermarks, dropped = next_watermarks(graph, watermarks, max_rows + new_rows)
            dropped = max(dropped - new_rows, 0)
        self._has_all_watermarks = watermarks == self.change.watermarks
        if watermarks == {k: v for k, v in graph.watermarks.items() if k != NOW}:
            return None
        graph.watermarks = {**graph.watermarks, **watermarks}
        return dropped

    def emit(self, max_rows: int) -> int:
        """Add the next rows of the new views to their `slices`, after `advance`.

        Args:
            max_rows: The limit on these rows, at least 1.

        Returns:
            The number of rows; 0 until all rows have been read.
        """
        return self._new_views.emit(max_rows) if self.has_all_rows else 0

    def finish(self) -> dict[str, pa.Table]:
        """Give the new circuit its state; the old one accepts no more steps.

        Raises:
            ProgramChangeError: The backfill is not complete, or not valid.

        Returns:
            The rows of the new views, as `ProgramChange.apply`; of a view that is emitted in
            slices, those that no step has emitted.

        Complexity:
            O(traces + joins + rows to return): the traces keep their runs.
        """
        if not self.is_complete:
            raise ProgramChangeError("the new views do not have all rows yet: call advance again")
        if not self.is_valid:
            raise ProgramChangeError(
                "the new views lack the rows of a later step: abandon this backfill and begin again"
            )
        self._step = None  # an interrupted call is not repeated
        graph = self.change.graph
        deltas = self._new_views.remaining_rows
        for view in self._unread_views:
            deltas[view] = ZSet.empty(self.change.new.schema(view).arity)
        now = graph.watermarks.get(NOW)
        return self.change.finish(ComputedRows(deltas, {}, now), keep_orders=True)

    def abandon(self) -> None:
        """Give up the backfill; the old circuit goes on."""
        if self._is_same_graph:
            self.change.old.keep_values(False)

    def _arrange_materialized(self, sliced_views: Mapping[str, Sequence[str]]) -> None:
        """Arrange materialized views as their rows, because the new circuit looks rows up as well.

        Args:
            sliced_views: The columns by which rows are looked up, by view.
        """
        for view, lookup_columns in sliced_views.items():
            materialized = self.change.integrals.get(view)
            if lookup_columns and materialized is not None and materialized.trace.is_empty:
                schema = self.change.new.schema(view)
                materialized.trace.arrange(lookup_order(schema, lookup_columns))

    @property
    def _is_same_graph(self) -> bool:
        return self.change.old.graph is self._old_graph


def find_slice_obstacle(change: ProgramChange) -> str | None:
    """Return the reason why a change is not possible in slices; None if it is possible.

    >>> from circuits import InputOptions, compile_sql
    >>> schemas, keep = {"e": "at bigint"}, {"e": InputOptions(keep="all")}
    >>> texts = [f"CREATE VIEW v AS SELECT at + {n} AS x FROM e" for n in (1, 2)]
    >>> circuits = [compile_sql(text, schemas, input_options=keep) for text in texts]
    >>> find_slice_obstacle(ProgramChange(*circuits))
    'v: a view that was published before changes'
    """
    changed = [view.view for view in change.views if view.kind not in ("new", "unchanged")]
    if changed:
        return f"{', '.join(changed)}: a view that was published before changes"
    checked = [
        name
        for name in sorted(change.given_inputs)
        if name in change.graph.checked_inputs and change.graph.checked_inputs[name].reads_rows
    ]
    if checked:
        return (
            f"the rows of {', '.join(checked)} are given and not kept, and the rows of an input "
            "with keys, strict or retention are checked as a whole"
        )
    return None


def check_slices(change: ProgramChange) -> None:
    """Raise `ProgramChangeError` if a change is not possible in slices."""
    obstacle = find_slice_obstacle(change)
    if obstacle is not None:
        raise ProgramChangeError(
            f"{obstacle}, so the new views cannot be computed in slices: leave out the limit "
            "of the slices, so that they are computed at once"
        )


def next_watermarks(
    graph: Graph, watermarks: Mapping[str, int], max_rows: int
) -> tuple[dict[str, int], int]:
    """Return watermarks with which the next step of a graph drops at most so many rows.

    Args:
        graph: A graph whose state drops rows by watermarks.
        watermarks: The watermarks to advance to.
        max_rows: The limit on the rows, at least 1. A single event time may have more rows.

    Returns:
        The watermarks, and the number of rows that the step drops. One of them advances, unless the
        graph has all of them. Rows of sessions that are not closed yet do not count.

    Complexity:
        O(log(times) * bounds * log N).
    """
    current = {name: time for name, time in graph.watermarks.items() if name != NOW}
    dropped = 0
    for name, target in watermarks.items():
        if current.get(name) == target:
            continue

        def count(time: int, name: str = name) -> int:
            return graph.count_rows_to_drop({**current, name: time})

        if count(target) <= max_rows:
            current[name] = target
            dropped = count(target)
            continue
        first = current.get(name)
        low, width = target - 1, 1
        while (first is None or low > first) and count(low) > max_rows:
            width *= 2
            low = target - width
        low = low if first is None else max(low, first)
        high = low + width  # more than max_rows rows are before it
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count(middle) <= max_rows else (low, middle)
        # At least the rows of the first event time, also if they are more.
        current[name] = low if count(low) > 0 else high
        return current, count(current[name])
    return current, dropped
