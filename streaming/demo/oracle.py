"""Oracle: read the expected counts of the demo from a Parquet file.

Each row of the file has the counts after a transaction of a change stream. The columns are:

====================== ========================================================================
column of the file     total of the demo
====================== ========================================================================
live_edges,            ``edges``: distinct pairs, including loops (links from a node to itself)
live_directed_edges
live_triangles         ``undirected``: triangles, each once; direction, repeated links and loops are
                       ignored. Not the directed ``triangles``
live_directed_3cycles  ``cycles``: directed 3-cycles, each once (the join finds each three times)
====================== ========================================================================

A row is valid after a certain number of changes. Column ``events_applied`` contains this number. A
file without that column names the last transaction of these changes, in column ``tx`` or else
``ts``. If several transactions share a micro-batch, only the row of the last one is compared,
because the demo counts once per micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming.demo.events import ChangeStream, Integers, integers
from streaming.errors import EventsError

__all__ = ["Oracle", "read_oracle"]

COLUMNS: Final[Mapping[str, str]] = {
    "live_edges": "edges",
    "live_directed_edges": "edges",
    "live_triangles": "undirected",
    "live_directed_3cycles": "cycles",
}


@dataclass(frozen=True)
class Oracle:
    """Expected totals by position in the change stream.

    Attributes:
        positions: The number of changes before each row of totals, ascending.
        expected: The totals at these positions, by name of the total.
    """

    positions: Integers
    expected: Mapping[str, Integers]

    def at(self, position: int) -> dict[str, int]:
        """Return the expected totals after ``position`` changes; empty if the oracle has none."""
        row = int(np.searchsorted(self.positions, position))
        if row == len(self.positions) or self.positions[row] != position:
            return {}
        return {total: int(values[row]) for total, values in self.expected.items()}


def read_oracle(path: Path, stream: ChangeStream) -> Oracle:
    """Read the expected totals of a change stream.

    Raises:
        EventsError: The file is missing or cannot be read, has none of the columns above, or
            belongs to another stream.
    """
    if not path.is_file():
        raise EventsError(f"no file {str(path)!r}: name the Parquet file with the live counts")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise EventsError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    expected = {
        total: integers(table, column, str(path))
        for column, total in COLUMNS.items()
        if column in table.column_names
    }
    if not expected:
        raise EventsError(
            f"{str(path)!r} has columns {', '.join(table.column_names)} and none of "
            f"{', '.join(COLUMNS)}: it is not an oracle"
        )
    if "events_applied" in table.column_names:
        positions = integers(table, "events_applied", str(path))
    else:
        key = "tx" if "tx" in table.column_names else "ts"
        last = integers(table, key, str(path))
        positions = np.searchsorted(stream.transaction, last, side="right").astype(np.int64)
        unmatched = np.flatnonzero(stream.transaction[np.maximum(positions, 1) - 1] != last)
        if len(unmatched):
            raise EventsError(
                f"{str(path)!r} has a row for {key} {last[unmatched[0]]}, which no change has: it "
                "belongs to another stream"
            )
    if len(positions) == 0 or positions[-1] != len(stream) or (np.diff(positions) <= 0).any():
        raise EventsError(
            f"{str(path)!r} is not ascending, or does not end after the {len(stream)} changes of "
            "the events: it belongs to another stream"
        )
    return Oracle(positions, expected)
