"""Post-step view: the rows of a materialized view after a step that is not yet committed.

::

    post-step view  =  I(view) before the step  +  delta of the view

A sink that publishes the current rows of changed keys, or the whole view, needs these rows before
the step is committed. ``I(view)``, the integral, is the stored sum of the view's deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from circuits.runtime.operators.integrate import Integrate
from circuits.schema import Schema
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows, to_storable

__all__ = ["PostStepView", "column_order"]


class PostStepView:
    """A materialized view after a step.

    Args:
        schema: The columns of the view.
        codecs: Encode values as int64 codes.
        integral: The view before the step.
        delta: The delta of the view in the step; None if there is no step.
        part: Selects the rows that are read; by default all rows of the view.
    """

    def __init__(
        self,
        schema: Schema,
        codecs: Codecs,
        integral: Integrate,
        delta: ZSet | None = None,
        *,
        part: Callable[[ZSet], ZSet] = lambda rows: rows,
    ) -> None:
        self._schema = schema
        self._codecs = codecs
        self._integral = integral
        self._delta = ZSet.empty(schema.arity) if delta is None else delta
        self._part = part

    def rows(self) -> pa.Table:
        """Return the whole view with the column ``weight``; O(view)."""
        rows = self._part(self._integral.total + self._delta)
        return self._schema.to_table(rows, self._codecs)

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows whose key is among ``keys``, with the column ``weight``.

        Args:
            keys: Distinct rows of some columns of the view. NULL equals NULL.

        Complexity:
            O(log N) per key and run; O(N) once, to arrange the view by these columns.
        """
        columns = [self._schema.columns.index(name) for name in keys.column_names]
        codes = np.empty((len(columns), keys.num_rows), np.int64)
        for row, (column, values) in enumerate(zip(columns, keys.columns, strict=True)):
            codec = self._codecs.codec(self._schema.fields[column].type)
            codes[row] = codec.find(values)  # a lookup must not assign codes to unknown keys
        prefixes = consolidated_rows(codes, np.ones(codes.shape[1], np.int64)).row_array
        order = column_order(columns, self._schema.arity)
        trace = self._integral.trace
        step = trace.prepare(to_storable(self._delta)) if len(self._delta) else None
        if len(columns) == self._schema.arity:
            # The key is the whole row, so only its weight is looked up.
            rows = np.empty_like(prefixes)
            rows[list(order)] = prefixes
            requested = consolidated_rows(rows, np.ones(rows.shape[1], np.int64))
            delta_trace = Trace(self._schema.arity)
            delta_trace.update(self._delta)
            weights = trace.weights_of(requested) + delta_trace.weights_of(requested)
            return self._table(requested.row_array.copy(), weights)
        result = prefix_lookup(trace, prefixes, signed=True, step=step, order=order)
        rows = np.empty((self._schema.arity, len(result.new)), np.int64)
        rows[list(order[: len(columns)])] = prefixes[:, result.prefix_index]
        rows[list(order[len(columns) :])] = result.rows
        return self._table(rows, result.new.copy())

    def _table(self, rows: Int64Array, weights: Int64Array) -> pa.Table:
        selected = self._part(consolidated_rows(rows, weights))
        return self._schema.to_table(selected, self._codecs)


def column_order(columns: Sequence[int], arity: int) -> ColumnOrder:
    """Return all columns, beginning with these, as a column order of a trace."""
    return (*columns, *(column for column in range(arity) if column not in columns))
