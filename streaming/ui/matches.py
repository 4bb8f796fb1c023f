"""Matches: the newest rows of a view that the page draws as a pattern.

A match is removed when its row is deleted, so the drawing is always correct. At most
``MAX_MATCHES`` matches are retained, because a drawing of more would be unreadable: the newest, and
of a delta with more insertions than that, the first ones. In a large delta, Arrow finds the rows
that delete a retained match, not a Python loop over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.ui.pattern import Pattern
from streaming.ui.row_texts import Int64Array, Row, keys_of, make_takeable, row_texts

__all__ = ["MAX_MATCHES", "Matches"]

MAX_MATCHES: Final = 24


@dataclass
class _Match:
    """A retained match.

    Attributes:
        nodes: The values of the nodes, as texts.
        batch: The last micro-batch that inserted the match.
        weight: The sum of the row's weights in all deltas since the match was first retained.
        columns: Short Arrow arrays, one for each column that identifies a match.
        index: The index of the match's values in ``columns``.
    """

    nodes: Row
    batch: int
    weight: int
    columns: Sequence[pa.Array]
    index: int


class Matches:
    """The newest matches of a view.

    Args:
        pattern: The columns that are nodes, and the edges between them.
        names: The names of the view's columns.
    """

    def __init__(self, pattern: Pattern, names: list[str]) -> None:
        self.pattern = pattern
        self.names = [names[column] for column in pattern.nodes]
        self._retained: dict[tuple[str, ...], _Match] = {}

    def update(
        self,
        table: pa.Table,
        weights: Int64Array,
        batch_id: int,
        *,
        mode: str = "delta",
        keys: Sequence[str] = (),
    ) -> None:
        """Update the matches with a published table.

        Args:
            table: The rows.
            weights: The weights of the rows.
            batch_id: The micro-batch.
            mode: ``delta``: the rows are changes. ``complete``: they are the whole view.
                ``upsert``: each row replaces the one with the same ``keys``.
            keys: The key columns of mode ``upsert``.

        Complexity:
            O(rows) in numpy, and in Arrow for more than a few rows; O(MAX_MATCHES) beyond that.
        """
        key_columns = list(keys) if mode == "upsert" else self.names
        if mode == "complete":
            self._retained.clear()
        elif self._retained:
            self._apply(table, weights, key_columns, is_upsert=mode == "upsert")
        row_numbers = np.flatnonzero(weights > 0)[:MAX_MATCHES]
        # The weights of the matches retained so far already include the changes of this table.
        already_counted = frozenset(self._retained)
        columns = [_take(table, name, row_numbers).combine_chunks() for name in key_columns]
        nodes = row_texts([_take(table, name, row_numbers) for name in self.names])
        for index, (key, match_nodes) in enumerate(zip(keys_of(columns), nodes, strict=True)):
            weight = int(weights[row_numbers[index]])
            previous = self._retained.pop(key, None)
            if previous is not None:  # it becomes the newest
                weight = previous.weight if key in already_counted else previous.weight + weight
            self._retained[key] = _Match(match_nodes, batch_id, weight, columns, index)
        for key in list(self._retained)[:-MAX_MATCHES]:
            del self._retained[key]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the matches as JSON values, oldest first."""
        distinct = {match.nodes: match.batch for match in self._retained.values()}
        return [{"nodes": nodes, "batch": batch_id} for nodes, batch_id in distinct.items()]

    def _apply(
        self, table: pa.Table, weights: Int64Array, key_columns: Sequence[str], *, is_upsert: bool
    ) -> None:
        """Add changes to the weights of the retained matches; remove the deleted matches."""
        row_numbers = self._candidates(table, key_columns)
        row_keys = keys_of([_take(table, name, row_numbers) for name in key_columns])
        for key, weight in zip(row_keys, weights[row_numbers].tolist(), strict=True):
            match = self._retained.get(key)
            if match is not None:
                match.weight = 0 if is_upsert else match.weight + weight
        self._retained = {key: match for key, match in self._retained.items() if match.weight > 0}

    def _candidates(self, table: pa.Table, key_columns: Sequence[str]) -> Int64Array:
        """Return the indices of all rows that may be rows of retained matches."""
        row_numbers = np.arange(table.num_rows)
        for number, name in enumerate(key_columns):
            if len(row_numbers) <= MAX_MATCHES:
                break
            column = _take(table, name, row_numbers)
            retained_values = [  # arrays of length 1
                match.columns[number].slice(match.index, 1) for match in self._retained.values()
            ]
            try:
                value_set = pa.concat_arrays([v.cast(column.type) for v in retained_values])
                is_candidate = pc.is_in(column, value_set)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a type that Arrow cannot hash
                continue
            row_numbers = row_numbers[is_candidate.to_numpy()]
        return row_numbers


def _take(table: pa.Table, name: str, row_numbers: Int64Array) -> pa.ChunkedArray:
    """Return some rows of a column, in a layout that Arrow's ``take`` supports."""
    column = make_takeable(table.column(name))
    return column if len(row_numbers) == table.num_rows else column.take(pa.array(row_numbers))
