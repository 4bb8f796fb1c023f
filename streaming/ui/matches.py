"""Matches: the newest rows of a view with a pattern, as long as they are there.

A match that is retracted leaves, so what is drawn is true. At most ``MOST`` are kept, of any delta
the first few: a picture of more shows nothing. Of large deltas the rows that may be among those
kept are found in Arrow, not row by row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.ui.pattern import Pattern
from streaming.ui.shown import Int64Array, Row, as_text, texts_at

__all__ = ["MOST", "Matches"]

MOST: Final = 24


class Matches:
    """The newest matches of a view.

    Args:
        pattern: Which columns are nodes.
        names: The names of the view's columns.
    """

    def __init__(self, pattern: Pattern, names: list[str]) -> None:
        self.pattern = pattern
        self.names = [names[place] for place in pattern.nodes]
        self._kept: dict[Row, int] = {}

    def take(
        self, table: pa.Table, weights: Int64Array, batch_id: int, *, is_whole: bool = False
    ) -> None:
        """Take in what a view gave out; the whole view if it ``is_whole``, else changes.

        Complexity:
            O(rows) in numpy, and in Arrow where more than a few leave; O(MOST) beyond that.
        """
        if is_whole:
            self._kept.clear()
        elif self._kept:
            for row in self._gone(table, np.flatnonzero(weights < 0)):
                self._kept.pop(row, None)
        comes = np.flatnonzero(weights > 0)[:MOST]
        for row in texts_at([table.column(name) for name in self.names], comes):
            self._kept.pop(row, None)
            self._kept[row] = batch_id
        for row in list(self._kept)[:-MOST]:
            del self._kept[row]

    def shown(self) -> list[dict[str, Any]]:
        """The matches, oldest first, for JSON."""
        return [{"nodes": row, "batch": batch_id} for row, batch_id in self._kept.items()]

    def _gone(self, table: pa.Table, places: Int64Array) -> list[Row]:
        """The rows that leave, as far as they may be among those kept."""
        columns = [table.column(name) for name in self.names]
        for number, column in enumerate(columns):
            texts = as_text(column) if len(places) > MOST else None
            if texts is None:
                break
            known = {row[number] for row in self._kept}
            found = pc.is_in(
                texts, pa.array([one for one in known if one is not None], pa.string())
            )
            is_known = found.to_numpy(zero_copy_only=False)
            places = places[is_known[places]]
        return texts_at(columns, places)
