"""Chooses the patterns and graphs of BULK, LIVE and LSQB, with or without the folder of real data.

The inputs are chosen so that all parts take about 40 minutes on two cores. So the RMAT graph of
BULK has scale 18: at scale 20, one count by each peer takes four minutes. The union of the web
graphs has as many edges as an RMAT graph of scale 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import lsqb
from benchmarks.graph import Graph, generate_graph, read_graph
from benchmarks.peers.bulk import Case
from benchmarks.peers.live import Stream
from benchmarks.peers.pattern import CLIQUES, DIAMONDS, TRIANGLES, ring
from benchmarks.peers.truth import CLIQUES_PUBLISHED
from benchmarks.shared_data import SHARED

GRAPHS = SHARED / "data" / "graphs"
LSQB = SHARED / "data" / "lsqb" / "ldbc-snb-sample"
PAYMENTS = SHARED / "data" / "fraud" / "20K_cycle200.parquet"

WEB = ("web-NotreDame", "uk-2007-05-100000", "cnr-2000")
UNION = "union of the web graphs"
BULK_TRIANGLES = ("email-Eu-core", "wiki-Vote", "soc-Epinions1", *WEB)
BULK_CLIQUES = ("email-Eu-core", "NR-ca-HepPh", "web-NotreDame")
RMAT = (18, 2_000_000)
PLANS = ("email-Eu-core", "uk-2007-05-100000")  # graphs with forced plans of binary joins


def bulk_cases(chosen: Sequence[str], *, quick: bool, seed: int) -> Iterator[Case]:
    """Yield the cases by pattern and size, with one graph in memory at a time.

    Args:
        chosen: Names of graphs, or paths of Parquet files; empty for all graphs that exist.
        quick: Only a generated graph.
        seed: The seed of the RMAT graph.
    """
    if quick:
        small = generate_graph(9, 4_000, seed)
        yield Case(TRIANGLES, small)
        yield Case(CLIQUES, small)
        return
    paths = [Path(name) for name in chosen if name.endswith(".parquet")]
    for name in BULK_TRIANGLES:
        if _is_selected(name, chosen):
            yield from _triangles([read_graph(_path(name))])
    yield from _triangles([read_graph(path) for path in paths])
    if _is_selected(UNION, chosen, *WEB):
        yield from _triangles([disjoint_union([read_graph(_path(name)) for name in WEB])])
    if not chosen or "rmat" in chosen:
        yield from _triangles([generate_graph(*RMAT, seed)])
    for path in [_path(name) for name in BULK_CLIQUES if _is_selected(name, chosen)] + paths:
        graph = read_graph(path)
        yield Case(CLIQUES, graph, CLIQUES_PUBLISHED.get(graph.name), binary=False)


# The peers of LIVE, by the size of the work that they can complete.
ALL = (
    "duckdb-delta",
    "duckdb-recompute",
    "pathway",
    "pydbsp",
    "spark-delta",
    "spark-recompute",
    "spark-streams",
    "igraph-live",
    "networkx-live",
)
INCREMENTAL = ("duckdb-delta", "pathway", "pydbsp", "spark-delta")
RINGS = ("duckdb-delta", "pathway", "pydbsp")
BATCHES = (1, 100, 1_000)
SMALL, MIDDLE, LARGE = "email-Eu-core", "wiki-Vote", "uk-2007-05-100000"
#: The number of loaded edges; fewer for cliques, because their intermediate results are larger.
SMALL_LOADED, CLIQUES_LOADED = 20_000, 10_000
PAYMENTS_LOADED, PAYMENTS_ALL = 40_000, 44_000


def live_streams(chosen: Sequence[str], *, quick: bool, seed: int) -> Iterator[Stream]:
    """Yield small streams for all peers first, then larger ones for fewer peers.

    Args:
        chosen: Names of graphs, ``rmat`` or ``payments``; empty for all that exist.
        quick: Only a generated graph.
        seed: The seed of generated graphs and of the order of edges.
    """
    if quick:
        small = generate_graph(8, 1_500, seed).shuffled(seed + 1)
        for pattern in (TRIANGLES, CLIQUES):
            yield Stream(pattern, small, small.edges * 8 // 10, (10, 100), ALL, pattern.name)
        return
    if (not GRAPHS.is_dir() and not chosen) or "rmat" in chosen:
        small = generate_graph(10, 14_000, seed).shuffled(seed + 1)
        loaded = small.edges * 8 // 10
        yield Stream(TRIANGLES, small, loaded, BATCHES, ALL, "triangles")
        yield Stream(CLIQUES, small, loaded, (100,), INCREMENTAL, "cliques")
    if _is_selected(SMALL, chosen):
        small = read_graph(_path(SMALL)).shuffled(seed + 1)
        yield Stream(TRIANGLES, small, SMALL_LOADED, BATCHES, ALL, "triangles")
        yield Stream(CLIQUES, small, CLIQUES_LOADED, (100,), INCREMENTAL, "cliques")
    if PAYMENTS.is_file() and (not chosen or "payments" in chosen):
        payments = read_payments()
        yield Stream(DIAMONDS, payments, PAYMENTS_LOADED, (100,), INCREMENTAL, "diamonds")
        for length in (3, 4, 5, 6):
            yield Stream(ring(length), payments, PAYMENTS_LOADED, (100,), RINGS, "rings")
    if _is_selected(MIDDLE, chosen):
        middle = read_graph(_path(MIDDLE)).shuffled(seed + 1)
        peers = ("duckdb-delta", "pathway", "spark-delta")
        loaded = middle.edges * 9 // 10
        yield Stream(TRIANGLES, middle, loaded, (100,), peers, "triangles, middle")
    if _is_selected(LARGE, chosen):
        large = read_graph(_path(LARGE)).shuffled(seed + 1)
        loaded = large.edges * 9 // 10
        yield Stream(TRIANGLES, large, loaded, (100, 1_000), ("duckdb-delta",), "triangles, large")


def lsqb_network(*, quick: bool, seed: int) -> lsqb.Network:
    """Read the LSQB sample; generate a network if it is missing or the run is quick."""
    return lsqb.load_network(None if quick else LSQB, people=100 if quick else 2_000, seed=seed)


def read_payments() -> Graph:
    """Read pairs of payer and payee, each once, in the order of their first payment."""
    table = pq.read_table(PAYMENTS, columns=["src", "dst"])
    pairs = np.stack([table[name].to_numpy().astype(np.int64) for name in ("src", "dst")])
    pairs = pairs[:, pairs[0] != pairs[1]]
    _, first = np.unique(pairs, axis=1, return_index=True)
    source, target = pairs[:, np.sort(first)[:PAYMENTS_ALL]]
    return Graph("payments", np.ascontiguousarray(source), np.ascontiguousarray(target))


def note_missing_graphs() -> str | None:
    """Return a note if the folder of real graphs is missing."""
    if GRAPHS.is_dir():
        return None
    return (
        f"no real graphs at {GRAPHS}: only generated ones are measured "
        "(DBSP_WCOJ_SHARED names the folder that has them)"
    )


def disjoint_union(graphs: Sequence[Graph]) -> Graph:
    """Return all edges of the graphs, renumbered so that the graphs share no node.

    >>> path = Graph("path", np.array([0, 1]), np.array([1, 2]))
    >>> disjoint_union([path, path]).source.tolist()
    [0, 1, 3, 4]
    """
    sources, targets, first = [], [], 0
    for graph in graphs:
        sources.append(graph.source + first)
        targets.append(graph.target + first)
        first += int(max(graph.source.max(), graph.target.max())) + 1
    return Graph(UNION, np.concatenate(sources), np.concatenate(targets))


def _triangles(graphs: Sequence[Graph]) -> Iterator[Case]:
    for graph in graphs:
        yield Case(TRIANGLES, graph, graph.published, binary=graph.name in PLANS)


def _is_selected(name: str, chosen: Sequence[str], *files: str) -> bool:
    has_files = all(_path(file).is_file() for file in files or (name,))
    return has_files and (not chosen or name in chosen or (name == UNION and "union" in chosen))


def _path(name: str) -> Path:
    return GRAPHS / f"{name}.parquet"
