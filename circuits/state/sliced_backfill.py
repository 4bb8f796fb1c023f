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

The new views become visible all at once, with the sum of their changes in all slices.

Not possible in slices:

- views if an input has lateness: rows before the watermark are dropped from the state, and emitted
  rows are final, which is correct only if all rows arrive in the order of time;
- rows that the caller gives, because `ProgramChange.apply` reads them at once;
- a change of a view that was published before.

Alternatives considered: read a snapshot in slices, and then the deltas that were queued meanwhile.
It keeps the runs of the snapshot and all deltas in memory, and the queue may grow faster than it is
read. A part of the rows that is chosen by a hash of them would need a pass over all rows for each
slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from circuits.errors import ProgramChangeError
from circuits.runtime.graph import NOW
from circuits.runtime.operators.integrate import Integrate
from circuits.state.program_change import ProgramChange
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.storage.trace_cursor import TraceCursor

__all__ = ["SlicedBackfill"]

# The number of reads of one trace in a slice: a read may return fewer rows than its limit, or none.
MAX_READS: Final = 8


class SlicedBackfill:
    """The backfill of a change of a program, in slices.

    Call `advance` after every commit of the old circuit, so that no delta is missed, and `finish`
    once `is_complete` is True, before the next step. Begin a new backfill if `is_valid` is False.

    Args:
        change: The change; it must only add and remove views.

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

    def __init__(self, change: ProgramChange) -> None:
        self.change = change
        self.rows_read = 0
        self.rows = change.rows_to_read
        self._check_possible()
        change.begin()
        change.old.keep_values(True)
        self._old_graph = change.old.graph
        # The last step whose delta the slices have; None while a slice is computed.
        self._step: int | None = self._old_graph.steps
        graph = change.graph
        watermarks = self._old_graph.watermarks
        graph.watermarks = {name: time for name, time in watermarks.items() if name != NOW}
        self._cursors = {
            position: TraceCursor(stored.trace)
            for position, stored in change.backfill.stored.items()
        }
        self._new_views = {
            view.view: Integrate(change.new.schema(view.view).arity)
            for view in change.views
            if view.kind == "new"
        }

    @property
    def is_valid(self) -> bool:
        """True if the slices have all deltas since the backfill began.

        False if the old circuit has loaded another state, if it has committed a step without a call
        of `advance`, or if a call was interrupted. Then abandon the backfill and begin a new one.
        """
        return self._is_same_graph and self._step == self._old_graph.steps

    @property
    def is_complete(self) -> bool:
        """True if the new views have all rows."""
        has_constants = self.change.graph.steps > 0 or self.change.backfill.is_empty
        return has_constants and all(cursor.is_complete for cursor in self._cursors.values())

    def advance(self, changes: Iterable[TraceStep], max_rows: int, now: int | None = None) -> int:
        """Compute the next slice.

        Args:
            changes: The changed traces of the step that the old circuit has committed; none for a
                further slice after the same step.
            max_rows: The limit on the rows that are read in addition to the changes, at least 1.
            now: The time in microseconds since 1970, if the new views read ``now()`` and the old
                ones do not.

        Returns:
            The number of rows that were read in addition to the changes.

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
        for position, stored in self.change.backfill.stored.items():
            cursor, delta = self._cursors[position], deltas.get(id(stored.trace))
            rows = ZSet.empty(stored.trace.arity) if delta is None else cursor.passed(delta.delta)
            reads = 0
            while not cursor.is_complete and read < max_rows and reads < MAX_READS:
                next_rows = cursor.next_rows(max_rows - read)
                rows = rows + next_rows
                read += len(next_rows)
                reads += 1
            if len(rows):
                contents[position] = stored.decode(rows)
        if contents or not graph.steps or graph.reads_now:
            stored_now = old.graph.watermarks.get(NOW)
            now = stored_now if stored_now is not None else now
            step = self.change.backfill.run_slice(
                contents, old.codecs, now if graph.reads_now else None
            )
            step.commit()
            for view, integral in self._new_views.items():
                integral.step(step.deltas[graph.views[view]])
            old.keep_codes()
        self.rows_read += read
        self.rows = max(self.change.rows_to_read, self.rows_read)
        self._step = self._old_graph.steps
        return read

    def finish(self) -> dict[str, pa.Table]:
        """Give the new circuit its state; the old one accepts no more steps.

        Returns:
            The rows of the new views, as `ProgramChange.apply`.
        """
        assert self.is_complete
        self._step = None  # an interrupted call is not repeated
        graph = self.change.graph
        deltas = {view: integral.total for view, integral in self._new_views.items()}
        now = graph.watermarks.get(NOW)
        return self.change.finish(deltas, {}, now, keep_orders=True)

    def abandon(self) -> None:
        """Give up the backfill; the old circuit goes on."""
        if self._is_same_graph:
            self.change.old.keep_values(False)

    @property
    def _is_same_graph(self) -> bool:
        return self.change.old.graph is self._old_graph

    def _check_possible(self) -> None:
        change = self.change
        inputs = [name for name, options in change.new.input_options.items() if options.lateness]
        if inputs:
            raise ProgramChangeError(
                f"input {inputs[0]!r} has lateness, so new views cannot be computed in slices: "
                "leave out the limit of the slices, so that they are computed at once"
            )
        if change.given_inputs:
            raise ProgramChangeError(
                f"the rows of {', '.join(sorted(change.given_inputs))} are given and not kept, and "
                "such rows are read at once: leave out the limit of the slices"
            )
        changed = [view.view for view in change.views if view.kind not in ("new", "unchanged")]
        if changed:
            raise ProgramChangeError(
                f"{', '.join(changed)}: a view that was published before changes, which is not "
                "possible in slices: leave out the limit of the slices"
            )
