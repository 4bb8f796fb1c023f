"""Emitted views: the rows of new views while a backfill computes them, and slices of these rows.

::

    slice of a view  =  delta of the view up to its cursor  +  next rows of its trace

The slices that were emitted always add up to the rows of the view at or before its cursor: each of
them is a row of the view as it is now (`circuits.state.sliced_backfill`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa

from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.post_step_view import PostStepView, column_order
from circuits.schema import Schema
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.storage.trace_cursor import TraceCursor

__all__ = ["MAX_READS", "EmittedViews", "lookup_order"]

#: The number of reads of one trace in a slice: a read may return fewer rows than its limit.
MAX_READS: Final = 8


class EmittedViews:
    """The rows of new views.

    Args:
        schemas: The columns of each view.
        codecs: The codes of the rows.
        sliced_views: The views that are emitted in slices, each with the columns by which
            `emitted_part` looks its rows up; often none. The rows of the other views are returned
            at the end.

    Attributes:
        rows_emitted: The number of rows in slices, including those in ``slices``.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        codecs: Codecs,
        sliced_views: Mapping[str, Sequence[str]],
    ) -> None:
        self.rows_emitted = 0
        self._schemas = schemas
        self._codecs = codecs
        self._integrals = {}
        for view, schema in schemas.items():
            columns = sliced_views.get(view)
            order = lookup_order(schema, columns) if columns else None
            self._integrals[view] = Integrate(schema.arity, order)
        self._emissions = {
            view: ViewEmission(integral)
            for view, integral in self._integrals.items()
            if view in sliced_views and schemas[view].arity
        }

    @property
    def names(self) -> Collection[str]:
        """The views."""
        return self._integrals.keys()

    @property
    def is_complete(self) -> bool:
        """True if all slices are emitted but the last."""
        return all(emission.is_complete for emission in self._emissions.values())

    @property
    def slices(self) -> dict[str, pa.Table]:
        """The next slice of each view that is emitted in slices."""
        return {
            view: self._schemas[view].to_table(emission.pending, self._codecs)
            for view, emission in self._emissions.items()
        }

    @property
    def remaining_rows(self) -> dict[str, ZSet]:
        """The rows of each view that are not emitted: the next slice, or the whole view."""
        return {
            view: self._emissions[view].pending if view in self._emissions else integral.total
            for view, integral in self._integrals.items()
        }

    @property
    def sliced_views(self) -> frozenset[str]:
        """The views that are emitted in slices."""
        return frozenset(self._emissions)

    @property
    def begun_views(self) -> frozenset[str]:
        """The views of which a slice is confirmed."""
        return frozenset(view for view, e in self._emissions.items() if e.is_begun)

    def add(self, deltas: Mapping[str, ZSet]) -> None:
        """Add a delta to each view."""
        for view, delta in deltas.items():
            self._integrals[view].step(delta)
            if view in self._emissions:
                self._emissions[view].add_passed_rows(delta)

    def emit(self, max_rows: int) -> int:
        """Add the next rows to the ``slices``; return their number, at most ``max_rows``."""
        count = 0
        for emission in self._emissions.values():
            count += emission.add_next_rows(max_rows - count)
        self.rows_emitted += count
        return count

    def confirm(self) -> None:
        """Record that the ``slices`` are emitted."""
        for emission in self._emissions.values():
            emission.confirm()

    def emitted_part(self, view: str) -> PostStepView:
        """Return a reader of the rows that the slices of a view add up to, with the next slice."""
        emission = self._emissions[view]
        return PostStepView(
            self._schemas[view],
            self._codecs,
            emission.integral,
            part=emission.cursor.passed,
        )


def lookup_order(schema: Schema, columns: Sequence[str]) -> ColumnOrder:
    """Return the order of a trace in which rows are looked up by columns."""
    return column_order([schema.columns.index(name) for name in columns], schema.arity)


class ViewEmission:
    """The slices of a view.

    Args:
        integral: The rows of the view, at least one column; the caller adds the deltas.

    Attributes:
        integral: As given.
        cursor: The end of the rows that are in slices.
        is_begun: True if a slice is confirmed.
        pending: The rows of the next slice so far.
    """

    def __init__(self, integral: Integrate) -> None:
        self.integral = integral
        self.cursor = TraceCursor(integral.trace)
        self.is_begun = False
        self.pending = ZSet.empty(integral.trace.arity)

    @property
    def is_complete(self) -> bool:
        """True if all rows are in slices."""
        return self.cursor.is_complete or self.integral.trace.is_empty

    def add_passed_rows(self, delta: ZSet) -> None:
        """Add the rows of a delta of the view that are at or before the cursor."""
        self.pending = self.pending + self.cursor.passed(delta)

    def add_next_rows(self, max_rows: int) -> int:
        """Add the next rows of the view; return their number."""
        count = reads = 0
        while not self.is_complete and count < max_rows and reads < MAX_READS:
            rows = self.cursor.next_rows(max_rows - count)
            self.pending = self.pending + rows
            count += len(rows)
            reads += 1
        return count

    def confirm(self) -> None:
        """Record that the slice so far is emitted."""
        self.is_begun = True
        self.pending = ZSet.empty(self.integral.trace.arity)
