"""Reads or generates a graph as two int64 arrays: from a Parquet file, or by the RMAT generator.

Invariant: edges are distinct, loop-free and sorted. The published counts are of such edges, and
sorted edges suit the peers best. The engine gets the same edges in random order, so that its time
includes the sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rmat import SKEWED, UNIFORM, Column, rmat

# Rows of e(a, b), e(b, c), e(a, c) over distinct loop-free edges, counted beforehand by two
# methods that share nothing with this project.
PUBLISHED = {
    "uk-2007-05-100000": 110_196_961,
    "cnr-2000": 37_940_446,
    "web-NotreDame": 44_487_591,
    "soc-Epinions1": 3_586_405,
    "wiki-Vote": 746_557,
    "email-Eu-core": 373_386,
}


@dataclass(frozen=True, eq=False)
class Graph:
    """A named graph: distinct loop-free directed edges."""

    name: str
    source: Column
    target: Column

    @property
    def edges(self) -> int:
        """The number of edges."""
        return len(self.source)

    @property
    def published(self) -> int | None:
        """The published count of triangles, if any."""
        return PUBLISHED.get(self.name)

    def shuffled(self, seed: int) -> Graph:
        """Return the same edges in random order."""
        return self.take(np.random.default_rng(seed).permutation(self.edges))

    def take(self, rows: Column | slice) -> Graph:
        """Return the edges with these row numbers, in this order."""
        return Graph(self.name, self.source[rows], self.target[rows])

    def write(self, path: Path) -> None:
        """Write the edges as Parquet with the columns src and dst."""
        pq.write_table(pa.table({"src": self.source, "dst": self.target}), path)


def read_graph(path: Path) -> Graph:
    """Read a graph from a Parquet file with integer columns src and dst; the file names it."""
    table = pq.read_table(path, columns=["src", "dst"])
    source, target = (table[column].to_numpy().astype(np.int64) for column in ("src", "dst"))
    edges = np.unique(np.stack([source, target], axis=1)[source != target], axis=0)
    return Graph(path.stem, np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1]))


def generate_graph(scale: int, samples: int, seed: int, *, uniform: bool = False) -> Graph:
    """Generate an RMAT graph; with ``uniform``, one without skew."""
    quadrants, kind = (UNIFORM, "uniform") if uniform else (SKEWED, "rmat")
    return Graph(f"{kind}-{scale}-{samples}", *rmat(scale, samples, seed=seed, quadrants=quadrants))


def read_graphs(
    paths: Sequence[Path], rmat_size: tuple[int, int] | None, seed: int
) -> Iterator[Graph]:
    """Yield the graphs of some files, and an RMAT graph of this scale and number of edges.

    Only one of them is in memory at a time.
    """
    for path in paths:
        yield read_graph(path)
    if rmat_size is not None:
        yield generate_graph(*rmat_size, seed)
