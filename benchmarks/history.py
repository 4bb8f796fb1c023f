"""Reads or generates a graph that changes in transactions: the import edges of a project.

The real history is Kafka's: which class imports which, a transaction for each commit, with inserts
and deletes (``git-imports-kafka`` of the data beside the checkout). The generated history has
modules in layers that import from deeper layers; a few import from a higher one, which makes
cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_UPWARD_SHARE = 0.02  # of the generated edges go to a higher layer
_DELETE_SHARE = 0.3  # of the generated changes are deletes


@dataclass(frozen=True, eq=False)
class History:
    """Changes of edges in order of time: the edges, as two nodes, with weight 1 or -1.

    Transaction i has the rows from ``bounds[i]`` to ``bounds[i + 1]`` of the three arrays.
    """

    name: str
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.int64]
    bounds: Sequence[int]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def change(self, number: int) -> pa.Table:
        """Return the edges that a transaction inserts (weight 1) and deletes (-1)."""
        rows = slice(self.bounds[number], self.bounds[number + 1])
        columns = [self.source[rows], self.target[rows], self.weight[rows]]
        return pa.table(columns, names=["src", "dst", "weight"])

    def edges(self, transactions: int) -> pa.Table:
        """Return the edges after the first ``transactions`` transactions."""
        stop = self.bounds[transactions]
        pairs = np.stack((self.source[:stop], self.target[:stop]))
        edges, edge_numbers = np.unique(pairs, axis=1, return_inverse=True)
        exists = np.bincount(edge_numbers.reshape(-1), self.weight[:stop]) > 0
        return pa.table(list(edges[:, exists]), names=["src", "dst"])

    def prefix(self, transactions: int) -> History:
        """Return the history of the first ``transactions`` transactions."""
        bounds = self.bounds[: transactions + 1]
        return History(self.name, self.source, self.target, self.weight, bounds)


def read_history(folder: Path) -> History:
    """Read the history in a folder of the data."""
    events = pq.read_table(folder / f"{folder.name}-events.parquet")
    source, target, weight, transaction = (
        events[name].to_numpy().astype(np.int64) for name in ("src", "dst", "op", "tx")
    )
    cuts = np.flatnonzero(np.diff(transaction)) + 1
    return History(folder.name, source, target, weight, [0, *cuts.tolist(), len(weight)])


def generate_history(modules: int, transactions: int, seed: int) -> History:
    """Generate a history of layered modules; the layer of a module is its number.

    >>> history = generate_history(30, 20, seed=1)
    >>> len(history), history.edges(20).num_rows > 0
    (20, True)
    """
    random = np.random.default_rng(seed)
    edges: set[tuple[int, int]] = set()
    rows: list[tuple[int, int, int]] = []
    bounds = [0]
    for _ in range(transactions):
        changed: set[tuple[int, int]] = set()
        for _ in range(int(random.integers(1, 9))):
            if edges and random.random() < _DELETE_SHARE:
                edge = sorted(edges)[int(random.integers(len(edges)))]
            else:
                low, high = sorted(random.integers(modules, size=2).tolist())
                edge = (high, low) if random.random() < _UPWARD_SHARE else (low, high)
            if edge[0] != edge[1] and edge not in changed:
                changed.add(edge)
                rows.append((*edge, -1 if edge in edges else 1))
        edges ^= changed
        bounds.append(len(rows))
    source, target, weight = np.array(rows, np.int64).reshape(-1, 3).T
    return History(f"{modules:,} generated modules", source, target, weight, bounds)
