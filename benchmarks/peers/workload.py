"""Workload: which patterns on which graphs, from the folder of real data or without it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.graph import Graph, generated, read
from benchmarks.peers.bulk import Case
from benchmarks.peers.pattern import CLIQUES, TRIANGLES
from benchmarks.peers.truth import CLIQUES_PUBLISHED

SHARED = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[3] / "shared"))
GRAPHS = SHARED / "data" / "graphs"

WEB = ("web-NotreDame", "uk-2007-05-100000", "cnr-2000")
UNION = "union of the web graphs"
BULK_TRIANGLES = ("email-Eu-core", "wiki-Vote", "soc-Epinions1", *WEB)
BULK_CLIQUES = ("email-Eu-core", "NR-ca-HepPh", "web-NotreDame")
RMAT = (20, 8_000_000)


def bulk_cases(chosen: Sequence[str], *, quick: bool, seed: int) -> Iterator[Case]:
    """Cases by pattern and size, one graph in memory at a time.

    Args:
        chosen: Names of graphs, or paths of Parquet files; none means all that are there.
        quick: Only a generated graph.
        seed: Of the RMAT graph.
    """
    if quick:
        small = generated(9, 4_000, seed)
        yield Case(TRIANGLES, small)
        yield Case(CLIQUES, small)
        return
    paths = [Path(name) for name in chosen if name.endswith(".parquet")]
    for name in BULK_TRIANGLES:
        if _wanted(name, chosen):
            yield from _triangles([read(_path(name))])
    yield from _triangles([read(path) for path in paths])
    if _wanted(UNION, chosen, *WEB):
        yield from _triangles([disjoint([read(_path(name)) for name in WEB])])
    if not chosen or "rmat" in chosen:
        yield from _triangles([generated(*RMAT, seed)])
    for path in [_path(name) for name in BULK_CLIQUES if _wanted(name, chosen)] + paths:
        graph = read(path)
        yield Case(CLIQUES, graph, CLIQUES_PUBLISHED.get(graph.name))


def missing() -> str | None:
    """What is said where the real graphs are not."""
    if GRAPHS.is_dir():
        return None
    return (
        f"no real graphs at {GRAPHS}: only generated ones are measured "
        "(DBSP_WCOJ_SHARED names the folder that has them)"
    )


def disjoint(graphs: Sequence[Graph]) -> Graph:
    """All edges of the graphs, which share no node.

    >>> one = Graph("one", np.array([0, 1]), np.array([1, 2]))
    >>> disjoint([one, one]).source.tolist()
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
        yield Case(TRIANGLES, graph, graph.published)


def _wanted(name: str, chosen: Sequence[str], *files: str) -> bool:
    there = all(_path(file).is_file() for file in files or (name,))
    return there and (not chosen or name in chosen or (name == UNION and "union" in chosen))


def _path(name: str) -> Path:
    return GRAPHS / f"{name}.parquet"
