"""MemoryTarget: views in the memory of this process, for notebooks and tests.

::

    target.table("waiting")     the view: the sum of all deltas
    target.deltas("waiting")    the latest deltas

The target adds new deltas to the sum of the older ones when the view is read, or when they have
more rows than this sum; so a delta costs O(its rows), amortized. The target is not durable: after a
restart of the process it is empty. With a state directory it then receives later deltas only, so
``deltas`` returns them, and ``table`` raises an error (except in mode ``complete``).

Only ``write`` changes a view, by replacing one value, so any thread can read it at any time. In
Spark Connect the sink runs in another process, whose memory cannot be read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from circuits import Schema
from circuits.schema import WEIGHT
from circuits.types.codecs.codec import Codecs
from streaming.errors import MissedBatchesError, TargetError
from streaming.targets.output_mode import fold_upserts
from streaming.targets.target import ViewDelta

__all__ = ["MemoryTarget"]


@dataclass(frozen=True)
class _View:
    """The contents of a view.

    Attributes:
        total: The sum of the older deltas.
        pending: The deltas that are not yet part of the sum.
        latest: The latest deltas.
        missed: The error of the first delta, if it is not the whole view.
    """

    total: pa.Table
    pending: tuple[pa.Table, ...]
    latest: tuple[ViewDelta, ...]
    missed: MissedBatchesError | None = None

    def contents(self) -> pa.Table:
        last = self.latest[-1]
        if not self.pending:
            return self.total
        if last.mode == "complete":
            return self.pending[-1]  # the whole view, not a change
        tables = [self.total, *self.pending]
        if last.mode == "upsert":
            return fold_upserts(tables, last.keys)
        schema = Schema.of(last.view, self.total.drop_columns([WEIGHT]).schema)
        codecs = Codecs()
        # A Z-set adds the weights of equal rows.
        return schema.to_table(schema.to_zset(pa.concat_tables(tables), codecs), codecs)


class MemoryTarget:
    """Keeps views and their latest deltas.

    Args:
        keep: The number of deltas of each view that ``deltas`` returns.

    >>> target = MemoryTarget()
    >>> target.write(ViewDelta("n", 0, pa.table({"n": [1], "weight": [1]})))
    >>> target.write(ViewDelta("n", 1, pa.table({"n": [1, 2], "weight": [-1, 1]})))
    >>> target.table("n").to_pylist(), len(target.deltas("n"))
    ([{'n': 2, 'weight': 1}], 2)
    """

    replaces_views = True

    def __init__(self, keep: int = 100) -> None:
        if keep < 1:
            raise TargetError(f"keep={keep}: give 1 or more deltas per view")
        self.keep = keep
        self._views: dict[str, _View] = {}
        # The last result of `table` for each view, after the contents that it was computed from.
        self._last_results: dict[str, tuple[_View, pa.Table]] = {}

    def write(self, delta: ViewDelta) -> None:
        """Add the micro-batch, unless the view contains it.

        Raises:
            MissedBatchesError: The view lacks an earlier micro-batch.
            TargetError: The view contains deltas of another state directory or output mode.
        """
        current = self._views.get(delta.view)
        if current is None:
            current = _View(delta.table.slice(0, 0), (), (), _missed_error(delta))
        else:
            last = current.latest[-1]
            computed_from, result = self._last_results.get(delta.view, (None, None))
            if computed_from is current:
                current = replace(current, total=result, pending=())
            if last.state_id != delta.state_id:
                raise delta.foreign_rows_error("this MemoryTarget")
            if last.batch_id >= delta.batch_id:
                return
            if last.output_mode != delta.output_mode:
                raise TargetError(
                    f"{delta}: this MemoryTarget holds the view in mode {last.output_mode}, and "
                    f"rows in mode {delta.output_mode} do not fit it: make a new MemoryTarget"
                )
            delta.check_follows(last.batch_id, "this MemoryTarget")
            if delta.is_whole:
                current = replace(current, total=delta.table.slice(0, 0), pending=(), missed=None)
        pending = (delta.table,) if delta.mode == "complete" else (*current.pending, delta.table)
        latest = (*current.latest, delta)[-self.keep :]
        new = replace(current, pending=pending, latest=latest)
        if sum(table.num_rows for table in pending) > new.total.num_rows + 1000:
            new = replace(new, total=new.contents(), pending=())
        self._views[delta.view] = new

    def table(self, view: str) -> pa.Table:
        """Return the rows of the view, with ``weight``.

        Raises:
            MissedBatchesError: The first delta since the process started is not the whole view.
            TargetError: No micro-batch of the view has been written.

        Complexity:
            O(view) if the view changed since the last call.
        """
        current = self._view(view)
        if current.missed is not None:
            raise current.missed
        computed_from, result = self._last_results.get(view, (None, None))
        if computed_from is not current:
            result = current.contents()
            self._last_results[view] = current, result
        return result

    def deltas(self, view: str) -> Sequence[ViewDelta]:
        """Return the latest deltas of the view, oldest first.

        Raises:
            TargetError: No micro-batch of the view has been written.
        """
        return self._view(view).latest

    @property
    def views(self) -> list[str]:
        """The names of the views of which a micro-batch has been written."""
        return list(self._views)

    def _view(self, view: str) -> _View:
        if view not in self._views:
            raise TargetError(
                f"no micro-batch of view {view!r} has been written to this target; views are: "
                f"{', '.join(self._views) or 'none'}"
            )
        return self._views[view]


def _missed_error(delta: ViewDelta) -> MissedBatchesError | None:
    """Return the error of a first delta that is not the whole view; None if it is."""
    if delta.is_whole or delta.previous is None:
        return None
    return MissedBatchesError(
        f"view {delta.view!r}: this MemoryTarget has received only the deltas since micro-batch "
        f"{delta.batch_id}, when the process started, so it cannot return the whole view: read it "
        "with ViewSink.table from a materialized view, or use mode='complete' or a durable target"
    )
