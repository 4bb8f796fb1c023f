"""Matches: the newest rows of a view that the page draws as a pattern.

A match is removed when its row is deleted, so the drawing is always correct. At most
``MAX_MATCHES`` matches are retained, the first ones of each delta, because a drawing of more would
be unreadable. In a large delta, Arrow finds the rows that delete a retained match, not a Python
loop over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.ui.pattern import Pattern
from streaming.ui.row_texts import Int64Array, Row, keys_of, row_texts, without_views

__all__ = ["MAX_MATCHES", "Matches"]

MAX_MATCHES: Final = 24


@dataclass
class _Match:
    """A retained match.

    Attributes:
        nodes: The values of the nodes, as texts.
        batch: The last micro-batch that inserted the match.
        weight: The known weight: the sum of the changes since the match is retained.
        columns: Short Arrow arrays, one for each column that identifies a match.
        place: The index of the match's values in ``columns``.
    """

    nodes: Row
    batch: int
    weight: int
    columns: Sequence[pa.Array]
    place: int


class Matches:
    """The newest matches of a view.

    Args:
        pattern: The columns that are nodes, and the edges between them.
        names: The names of the view's columns.
    """

    def __init__(self, pattern: Pattern, names: list[str]) -> None:
        self.pattern = pattern
        self.names = [names[place] for place in pattern.nodes]
        self._kept: dict[tuple[str, ...], _Match] = {}

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
        identity = list(keys) if mode == "upsert" else self.names
        if mode == "complete":
            self._kept.clear()
        elif self._kept:
            self._apply(table, weights, identity, is_upsert=mode == "upsert")
        places = np.flatnonzero(weights > 0)[:MAX_MATCHES]
        counted = frozenset(self._kept)  # their weights include the changes of this table
        columns = [_at(table, name, places).combine_chunks() for name in identity]
        nodes = row_texts([_at(table, name, places) for name in self.names])
        for number, (row, match) in enumerate(zip(keys_of(columns), nodes, strict=True)):
            weight = int(weights[places[number]])
            before = self._kept.pop(row, None)
            if before is not None:  # it becomes the newest
                weight = before.weight if row in counted else before.weight + weight
            self._kept[row] = _Match(match, batch_id, weight, columns, number)
        for row in list(self._kept)[:-MAX_MATCHES]:
            del self._kept[row]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the matches as JSON values, oldest first."""
        distinct = {match.nodes: match.batch for match in self._kept.values()}
        return [{"nodes": nodes, "batch": batch_id} for nodes, batch_id in distinct.items()]

    def _apply(
        self, table: pa.Table, weights: Int64Array, identity: Sequence[str], *, is_upsert: bool
    ) -> None:
        """Add changes to the weights of the retained matches; remove the deleted matches."""
        places = self._candidates(table, identity)
        rows = keys_of([_at(table, name, places) for name in identity])
        for row, weight in zip(rows, weights[places].tolist(), strict=True):
            match = self._kept.get(row)
            if match is not None:
                match.weight = 0 if is_upsert else match.weight + weight
        self._kept = {row: match for row, match in self._kept.items() if match.weight > 0}

    def _candidates(self, table: pa.Table, identity: Sequence[str]) -> Int64Array:
        """Return the indices of all rows that may be rows of retained matches."""
        places = np.arange(table.num_rows)
        for number, name in enumerate(identity):
            if len(places) <= MAX_MATCHES:
                break
            column = _at(table, name, places)
            kept = [one.columns[number].slice(one.place, 1) for one in self._kept.values()]
            try:
                found = pc.is_in(column, pa.concat_arrays([one.cast(column.type) for one in kept]))
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a type that Arrow cannot hash
                continue
            places = places[found.to_numpy()]
        return places


def _at(table: pa.Table, name: str, places: Int64Array) -> pa.ChunkedArray:
    """Return some rows of a column, in a layout that Arrow supports."""
    column = without_views(table.column(name))
    return column if len(places) == table.num_rows else column.take(pa.array(places))
