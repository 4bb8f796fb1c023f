"""The rows of a profile: an initial load, and steps that insert and delete the remaining rows.

A step has ``batch`` rows; each relation has the same share of them as of all rows. For every step
that inserts there is one that deletes the same rows. Therefore a profile ends with the state that
it began with, and can run again over the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.errors import EventsError

__all__ = ["Stream", "generate_graph", "split_stream"]

#: At most this share of a relation is streamed, so that rows remain to join with.
MAX_STREAMED_SHARE: Final = 0.5
EDGES_PER_NODE: Final = 8


@dataclass(frozen=True)
class Stream:
    """The initial load, and the steps by relation; steps that insert come first."""

    load: dict[str, pa.Table]
    steps: list[dict[str, pa.Table]]

    @property
    def rows(self) -> int:
        """The number of rows of the load."""
        rows: list[int] = [table.num_rows for table in self.load.values()]
        return sum(rows)

    @property
    def batch(self) -> float:
        """The mean number of rows of a step."""
        rows: list[int] = [sum(t.num_rows for t in step.values()) for step in self.steps]
        return sum(rows) / len(rows)


def generate_graph(rows: int, skew: float, seed: int) -> pa.Table:
    """Generate distinct edges (src, dst), 8 for each node; degrees follow a power law.

    >>> generate_graph(100, 0.5, 1).num_rows
    100
    """
    nodes = max(rows // EDGES_PER_NODE, 20)
    generator = np.random.default_rng(seed)
    keys = np.empty(0, np.int64)
    while len(keys) < rows:
        ends = (nodes * generator.random((2, 2 * rows)) ** (1.0 / (1.0 - skew))).astype(np.int64)
        source, target = ends[:, ends[0] != ends[1]]
        keys = np.unique(np.concatenate([keys, source * nodes + target]))
    keys = np.sort(generator.choice(keys, rows, replace=False))
    columns = [pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")]
    return pa.table([keys // nodes, keys % nodes], schema=pa.schema(columns))


def split_stream(tables: Mapping[str, pa.Table], *, batch: int, steps: int, seed: int) -> Stream:
    """Cut shuffled tables into a load and steps.

    Raises:
        EventsError: There are too few rows for the steps.
    """
    total = sum(table.num_rows for table in tables.values())
    load: dict[str, pa.Table] = {}
    streamed: list[dict[str, pa.Table]] = [{} for _ in range(steps)]
    for name, table in tables.items():
        rows = table.num_rows
        order = np.random.default_rng(seed).permutation(rows)
        step_rows = round(batch * rows / total) if total else 0
        step_rows = min(step_rows, int(rows * MAX_STREAMED_SHARE) // steps)
        for number, step in enumerate(streamed):
            if step_rows:
                step[name] = table.take(order[number * step_rows : (number + 1) * step_rows])
        load[name] = table.take(order[steps * step_rows :])
    if not any(streamed):
        raise EventsError(
            f"{total:,} rows are too few for {steps} steps of {batch:,}: "
            "use more rows, a smaller --batch or fewer --steps"
        )
    deletions = [
        {name: _with_weight(table, -1) for name, table in step.items()}
        for step in reversed(streamed)
    ]
    return Stream(load, [*streamed, *deletions])


def _with_weight(table: pa.Table, weight: int) -> pa.Table:
    return table.append_column("weight", pa.array(np.full(table.num_rows, weight, np.int64)))
