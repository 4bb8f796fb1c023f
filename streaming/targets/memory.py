"""MemoryTarget: views in the memory of this process, for notebooks and tests.

::

    target.table("waiting")     the view: the sum of all deltas
    target.deltas("waiting")    the latest deltas

Deltas are added up when the view is read, or when they have more rows than the view; so a delta
costs O(its rows), amortized. The target is not durable: after a restart of the process it is empty,
like views without a state directory.

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
from streaming.errors import TargetError
from streaming.targets.output_mode import fold_upserts
from streaming.targets.target import ViewDelta

__all__ = ["MemoryTarget"]


@dataclass(frozen=True)
class _View:
    """What is kept of a view: its rows so far, deltas not yet added to them, the latest deltas."""

    total: pa.Table
    pending: tuple[pa.Table, ...]
    latest: tuple[ViewDelta, ...]

    def contents(self) -> pa.Table:
        last = self.latest[-1]
        if not self.pending:
            return self.total
        if last.mode == "complete":
            return self.pending[-1]
        tables = [self.total, *self.pending]
        if last.mode == "upsert":
            return fold_upserts(tables, last.keys)
        schema = Schema.of(last.view, self.total.drop_columns([WEIGHT]).schema)
        codecs = Codecs()
        return schema.to_table(schema.to_zset(pa.concat_tables(tables), codecs), codecs)


class MemoryTarget:
    """Keeps views and their latest deltas.

    Args:
        keep: How many deltas of each view are kept for ``deltas``.

    >>> target = MemoryTarget()
    >>> target.write(ViewDelta("n", 0, pa.table({"n": [1], "weight": [1]})))
    >>> target.write(ViewDelta("n", 1, pa.table({"n": [1, 2], "weight": [-1, 1]})))
    >>> target.table("n").to_pylist(), len(target.deltas("n"))
    ([{'n': 2, 'weight': 1}], 2)
    """

    def __init__(self, keep: int = 100) -> None:
        if keep < 1:
            raise TargetError(f"keep={keep} deltas of each view; at least 1 is kept")
        self.keep = keep
        self._views: dict[str, _View] = {}
        self._totals: dict[str, tuple[_View, pa.Table]] = {}  # as they were last asked for

    def write(self, delta: ViewDelta) -> None:
        """Add the micro-batch, unless it is there.

        Raises:
            TargetError: Another state directory was here before.
        """
        kept = self._views.get(delta.view)
        if kept is None:
            kept = _View(delta.table.slice(0, 0), (), ())
        else:
            last = kept.latest[-1]
            asked, total = self._totals.get(delta.view, (None, None))
            if asked is kept:
                kept = replace(kept, total=total, pending=())
            if last.state_id != delta.state_id:
                raise delta.foreign("this MemoryTarget")
            if last.batch_id >= delta.batch_id:
                return
        pending = (delta.table,) if delta.mode == "complete" else (*kept.pending, delta.table)
        latest = (*kept.latest, delta)[-self.keep :]
        new = replace(kept, pending=pending, latest=latest)
        if sum(table.num_rows for table in pending) > new.total.num_rows + 1000:
            new = replace(new, total=new.contents(), pending=())
        self._views[delta.view] = new

    def table(self, view: str) -> pa.Table:
        """The rows of the view, with ``weight``.

        Raises:
            TargetError: Nothing of it was written so far.

        Complexity:
            O(view) if it changed since the last call.
        """
        kept = self._view(view)
        asked, total = self._totals.get(view, (None, None))
        if asked is not kept:
            total = kept.contents()
            self._totals[view] = kept, total
        return total

    def deltas(self, view: str) -> Sequence[ViewDelta]:
        """The latest deltas, oldest first.

        Raises:
            TargetError: Nothing of it was written so far.
        """
        return self._view(view).latest

    @property
    def views(self) -> list[str]:
        """The names of the views that were written."""
        return list(self._views)

    def _view(self, view: str) -> _View:
        if view not in self._views:
            raise TargetError(
                f"view {view!r} was not written here so far; there are: "
                f"{', '.join(self._views) or 'none'}"
            )
        return self._views[view]
