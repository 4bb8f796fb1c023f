"""A graph that grows and shrinks commit by commit: the import edges of a project, or made ones.

The real one is Kafka's: which class imports which, a transaction for each commit, deletes among
them (``git-imports-kafka`` of the data beside the checkout). The made one has modules in layers
that import from deeper layers, now and then from a higher one, so that there are cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_BACK = 0.02  # of the made edges go to a higher layer
_LOST = 0.3  # of the made changes are deletes


@dataclass(frozen=True, eq=False)
class History:
    """Changes of edges in their order; ``bounds`` are where transactions begin, and the end."""

    name: str
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.int64]
    bounds: Sequence[int]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def change(self, number: int) -> pa.Table:
        """The edges that come (weight 1) and go (-1) in a transaction."""
        rows = slice(self.bounds[number], self.bounds[number + 1])
        columns = [self.source[rows], self.target[rows], self.weight[rows]]
        return pa.table(columns, names=["src", "dst", "weight"])

    def edges(self, transactions: int) -> pa.Table:
        """The edges that are there after so many transactions."""
        stop = self.bounds[transactions]
        pairs = np.stack((self.source[:stop], self.target[:stop]))
        found, places = np.unique(pairs, axis=1, return_inverse=True)
        there = np.bincount(places.reshape(-1), self.weight[:stop]) > 0
        return pa.table(list(found[:, there]), names=["src", "dst"])

    def first(self, transactions: int) -> History:
        """The history until so many transactions are done."""
        bounds = self.bounds[: transactions + 1]
        return History(self.name, self.source, self.target, self.weight, bounds)


def read_history(folder: Path) -> History:
    """The history in a folder of the data."""
    events = pq.read_table(folder / f"{folder.name}-events.parquet")
    source, target, weight, transaction = (
        events[name].to_numpy().astype(np.int64) for name in ("src", "dst", "op", "tx")
    )
    cuts = np.flatnonzero(np.diff(transaction)) + 1
    return History(folder.name, source, target, weight, [0, *cuts.tolist(), len(weight)])


def generate_history(modules: int, transactions: int, seed: int) -> History:
    """A history of layered modules.

    >>> history = generate_history(30, 20, seed=1)
    >>> len(history), history.edges(20).num_rows > 0
    (20, True)
    """
    random = np.random.default_rng(seed)
    there: set[tuple[int, int]] = set()
    rows: list[tuple[int, int, int]] = []
    bounds = [0]
    for _ in range(transactions):
        changed: set[tuple[int, int]] = set()
        for _ in range(int(random.integers(1, 9))):
            if there and random.random() < _LOST:
                edge = sorted(there)[int(random.integers(len(there)))]
            else:
                low, high = sorted(random.integers(modules, size=2).tolist())
                edge = (high, low) if random.random() < _BACK else (low, high)
            if edge[0] != edge[1] and edge not in changed:
                changed.add(edge)
                rows.append((*edge, -1 if edge in there else 1))
        there ^= changed
        bounds.append(len(rows))
    source, target, weight = np.array(rows, np.int64).reshape(-1, 3).T
    return History(f"{modules:,} made modules", source, target, weight, bounds)
