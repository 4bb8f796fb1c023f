"""Measures the counts of patterns in a labelled graph, maintained while edges are inserted.

Target: at least 1.5 times the edges per second of the best C++ engine of continuous subgraph
matching in steps of 100 edges and 3 times in steps of 1,000, on each named pattern; 60,000 edges
per CPU second in steps of 1 on the labelled triangle. The figures of the C++ engines are constants
from another run (`benchmarks.patterns.measured_elsewhere`), so the ratios are approximate.

Inputs: the undirected edges of soc-Epinions1 with one of 6 random labels per vertex; without the
folder of real graphs, a generated RMAT graph, for which there are no figures of other engines. One
step loads 90 % of the edges. For each step size the next edges are inserted, and then deleted in
steps of 10,000, not timed. Besides the named patterns, dense, sparse and tree-shaped patterns of 4
to 8 vertices are generated, with 24 labels; each has at least one answer. ``--files`` writes the
graphs, the streams and the patterns as text files, in the format that engines of continuous
subgraph matching read.

The counts of each pattern in the densest part of the graph are compared with DuckDB's, before and
after the stream. On the whole graph all step sizes must give the same count, and the deletes its
negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer

from benchmarks.engine import warm_up
from benchmarks.graph import Graph, generate_graph, read_graph
from benchmarks.options import check_names
from benchmarks.patterns.labelled_graph import LabelledGraph, both_directions, label_graph
from benchmarks.patterns.measured_elsewhere import BEST, GRAPH, ORIGIN
from benchmarks.patterns.pattern import NAMED, SHAPES, Pattern, generate_pattern
from benchmarks.result import Result, Row, terminal
from benchmarks.shared_data import SHARED
from benchmarks.stream import Phase, delete, insert
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery, ZSet

CLAIM = (
    "Patterns: one thread maintains the number of homomorphisms of a pattern in a labelled graph. "
    "Target: 1.5 times the best C++ engine of continuous subgraph matching in steps of 100 edges, "
    "3 times in steps of 1,000; 60,000 edges per CPU second in steps of 1 on the labelled triangle"
)

_BATCHES = (1, 100, 1_000, 10_000)
_TARGET_RATIOS = {100: 1.5, 1_000: 3.0}
_TARGET_RATES = {("triangle", 1): 60_000.0}
_SIZES = (4, 5, 6, 7, 8)
_DELETE_BATCH = 10_000
# Vertices of the graph in which DuckDB counts, for patterns of this many vertices at most.
_CORE_VERTICES = {5: 150, 8: 50}
_GENERATED_LABELS = 24
_CORE_BATCH = 37  # not a divisor of the stream


def main(
    pattern: Annotated[list[str] | None, typer.Option(help="A named pattern; repeatable.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Edges in a step; repeatable.")] = None,
    rows: Annotated[int | None, typer.Option(help="Edges of the stream, at most.")] = None,
    generated: Annotated[bool, typer.Option(help="Generate patterns, too.")] = True,
    generated_rows: Annotated[int, typer.Option(help="Edges of the stream for these.")] = 1_000,
    quick: Annotated[bool, typer.Option("--quick", help="A small generated graph.")] = False,
    files: Annotated[Path | None, typer.Option(help="Write text files to this folder.")] = None,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Maintain the counts; exit status 1 if one is wrong."""
    names = [named.name for named in NAMED]
    check_names(pattern or (), names, "pattern")
    verdict, tables = Verdict(), dict[str, list[Row]]()
    result = Result("patterns", CLAIM, tables)
    path = SHARED / "data" / "graphs" / f"{GRAPH}.parquet"
    if quick:
        source = generate_graph(10, 8_000, seed)
    else:
        source = read_graph(path) if path.exists() else generate_graph(16, 500_000, seed)
    graph = label_graph(source, seed)
    progress = terminal()
    warm_up(1)
    chosen = [named for named in NAMED if named.name in (pattern or names)]
    tables["Named patterns"] = []
    for named in chosen:
        progress.print(f"{named.name} ...")
        tables["Named patterns"] += measure_pattern(graph, named, batch or _BATCHES, rows, verdict)
    patterns = list(chosen)
    graph_of_generated = label_graph(source, seed, _GENERATED_LABELS)
    if generated and not pattern:
        tables["Generated patterns"] = []
        for size in _SIZES:
            for shape in SHAPES:
                made = generate_pattern(graph_of_generated, size, shape, seed)
                progress.print(f"{made.name} ...")
                patterns.append(made)
                tables["Generated patterns"] += measure_pattern(
                    graph_of_generated, made, (100, 1_000), generated_rows, verdict
                )
    if files is not None:
        graph.write(files, "named")
        graph_of_generated.write(files, "generated")
        for written in patterns:
            (files / f"{written.name.replace(', ', ' ').replace(' ', '-')}.query").write_text(
                written.text
            )
    verdict.close(result, json)


def measure_pattern(
    graph: LabelledGraph,
    pattern: Pattern,
    batches: Sequence[int],
    limit: int | None,
    verdict: Verdict,
) -> list[Row]:
    """Return a row for each step size; compare all counts."""
    core_vertices = next(n for most, n in _CORE_VERTICES.items() if pattern.vertices <= most)
    _check_core(graph.core(core_vertices), pattern, verdict)
    edges = graph.stream(limit)
    view = load(graph, pattern)
    _warm_up_view(view, edges)
    table: list[Row] = []
    truth = f"{pattern.name}, change"
    for batch in batches:
        before = view.stats.proposals
        phase = insert(view, edges, 2 * batch)
        candidates = view.stats.proposals - before
        if truth not in verdict.truths:
            verdict.set_truth(truth, phase.change)
        verdict.compare(f"steps of {batch}", truth, phase.change)
        table.append(_row(graph, pattern, batch, phase, candidates))
        deletes = delete(view, edges, 2 * _DELETE_BATCH)
        verdict.compare(f"deletes after steps of {batch}", truth, -deletes.change)
    return table


def load(graph: LabelledGraph, pattern: Pattern) -> DeltaQuery:
    """Return a view of the pattern after a step that loads the labels and 90 % of the edges."""
    view = DeltaQuery(pattern.query)
    edges = ZSet.from_columns([graph.loaded.source, graph.loaded.target])
    view.step({"e": edges, **graph.vertices_by_label(pattern.labels)})
    return view


def count_by_duckdb(graph: LabelledGraph, pattern: Pattern, edges: int) -> int:
    """Count the homomorphisms of a pattern in the first ``edges`` edges of a graph."""
    both = both_directions(graph.edges.take(slice(0, edges)))
    labels = graph.labels
    with duckdb.connect() as connection:
        for position, (a, b) in enumerate(pattern.edges):
            kept = np.ones(both.edges, np.bool_)
            if pattern.labels:
                kept &= labels[both.source] == pattern.labels[a]
                kept &= labels[both.target] == pattern.labels[b]
            table = pa.table({"src": both.source[kept], "dst": both.target[kept]})
            connection.register(f"e{position}", table)
        row = connection.execute(pattern.sql).fetchone()
    assert row is not None
    return int(row[0])


def _check_core(core: LabelledGraph, pattern: Pattern, verdict: Verdict) -> None:
    """Compare the change of a small graph's count with DuckDB's, for inserts and for deletes."""
    counts = [count_by_duckdb(core, pattern, n) for n in (core.loaded_count, core.edges.edges)]
    truth = f"{pattern.name}, change in {core.name}"
    verdict.set_truth(truth, counts[1] - counts[0])
    view, edges = load(core, pattern), core.stream()
    verdict.compare("inserts", truth, insert(view, edges, 2 * _CORE_BATCH).change)
    verdict.compare("deletes", truth, -delete(view, edges, 2 * _CORE_BATCH).change)


def _warm_up_view(view: DeltaQuery, edges: Graph) -> None:
    """Insert and delete a few edges, not timed."""
    few = edges.take(slice(0, 400))
    insert(view, few, 20)
    delete(view, few, 20)


def _row(graph: LabelledGraph, pattern: Pattern, batch: int, phase: Phase, candidates: int) -> Row:
    """Return the row of a step size."""
    rate = phase.cpu_rate / 2  # each edge is two rows
    best = BEST.get(pattern.name) if graph.name == GRAPH else None
    target = _TARGET_RATES.get((pattern.name, batch)) if best is not None else None
    if best is not None and batch in _TARGET_RATIOS:
        target = _TARGET_RATIOS[batch] * best.rate
    return {
        "pattern": pattern.name,
        "graph": graph.name,
        "batch": batch,
        "edges": phase.rows // 2,
        "matches": phase.change,
        "edges/CPU s": rate,
        "candidates/match": candidates / max(phase.change, 1),
        "best C++ engine": best and best.engine,
        "its edges/s": best and best.rate,
        "its origin": best and ORIGIN,
        "times faster": best and rate / best.rate,
        "target edges/s": target,
        "met": target and rate >= target,
    }


if __name__ == "__main__":
    typer.run(main)
