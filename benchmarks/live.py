"""Measures LIVE: the count of triangles, maintained under inserts and deletes.

Target: 20 times the edges per CPU second of dogsdogsdogs, one thread, at every batch size and graph
of its published figures; 15 times in steps of one edge. Other goals: deletes within 15 % of
inserts; loading 90 % of the edges in one step takes at most a twentieth of the CPU time of
dogsdogsdogs, and on the RMAT graph of scale 20 at most 3 ns per candidate, that is, per value that
the joins propose; at most 18 bytes per edge; a step of one row on 8 million edges takes 0.3 ms
(median), 2 ms (99 %) and never 50 ms, and 10 µs more if it is an edge between hubs
(`benchmarks.toggles`); its cost follows the delta, not the state (`benchmarks.growth`).

Recorded inputs: web and social graphs, an RMAT graph of scale 20 with 8 million samples, and with
``--place`` one of scale 18 with 2 million; distinct loop-free edges in random order by seed. One
step loads 90 % of the edges (the backfill). For each batch size B the next rows are inserted in
steps of B and then deleted in another random order, so every B starts from the same state. Small B
use only a part of the stream (``--rows``, but at least 20 steps); the last step may be shorter.
Both phases are repeated, and their rates are medians of the repetitions: at least 5, and as many as
take 2 CPU seconds, but at most 15; so is the ratio of deletes to inserts, of each repetition. The
quantiles of a step are over all repetitions. After each phase the view's count is compared with an
independent one. The table "Parts of a step" says what the CPU time of a step is used for
(`benchmarks.step_parts`).

The published figures come from another machine. ``--place`` times Kùzu here, before and after each
graph, because a virtual machine is not always as fast. The figures of the graph are scaled to this
machine by the mean of both times (`benchmarks.dogsdogsdogs`). Without it, the tables have no ratios
to the published figures.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.counter import count
from benchmarks.dogsdogsdogs import BATCHES, KUZU_GRAPH, PUBLISHED, relative_speed
from benchmarks.engine import QUERY, open_workers, warm_up
from benchmarks.graph import Graph, generate_graph, read_graphs
from benchmarks.peers.bulk import time_kuzu
from benchmarks.result import Result, Row, terminal
from benchmarks.step_parts import BATCHES as BATCHES_OF_PARTS
from benchmarks.step_parts import measure_parts
from benchmarks.stream import Phase, combine, delete, insert
from benchmarks.toggles import toggle_edges
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery

CLAIM = (
    "LIVE: one thread maintains the count of triangles. Target: 20 times the edges per CPU second "
    "of dogsdogsdogs at every batch size and graph of its published figures (15 times in steps of "
    "one edge), scaled to this machine by the time of Kùzu on both"
)

_TARGET = 20.0
_TARGET_OF_ONE_ROW = 15.0
_MIN_STEPS = 20  # of each batch size
_MIN_REPETITIONS, _MAX_REPETITIONS = 5, 15  # of inserts and deletes
REPEATED_SECONDS = 2.0  # CPU seconds of the repetitions of both phases


def main(
    graph: Annotated[list[Path] | None, typer.Option(help="Parquet with src, dst.")] = None,
    rmat: Annotated[
        tuple[int, int] | None, typer.Option(metavar="SCALE EDGES", help="An RMAT graph.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Rows in a step; repeatable.")] = None,
    rows: Annotated[int, typer.Option(help="Rows streamed for small batches.")] = 20_000,
    threads: int = 1,
    place: Annotated[
        bool,
        typer.Option(help="Time Kùzu, and scale the published figures to this machine."),
    ] = False,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Maintain the count; exit status 1 if it is wrong."""
    if not graph and rmat is None:
        rmat = (16, 500_000)
    verdict = Verdict()
    tables: dict[str, list[Row]] = {"LIVE": [], "Backfill and state": [], "Parts of a step": []}
    result = Result("live", CLAIM, tables)
    progress = terminal()
    warm_up(threads)
    kuzu_graphs = [generate_graph(*KUZU_GRAPH, seed)] if place else []
    kuzu_seconds = [time_kuzu(kuzu_graph).cpu for kuzu_graph in kuzu_graphs]
    if place:
        tables["Speed of this machine"] = []
    for measured in chain(read_graphs(graph or [], rmat, seed), kuzu_graphs):
        progress.print(f"{measured.name}: {measured.edges:,} edges ...")
        steps, state, parts = measure_graph(
            measured,
            tuple(batch or BATCHES),
            rows=rows,
            threads=threads,
            seed=seed,
            verdict=verdict,
        )
        if place:
            kuzu_seconds.append(time_kuzu(kuzu_graphs[0]).cpu)
            before, after = kuzu_seconds[-2:]
            machine_speed = relative_speed((before + after) / 2)
            tables["Speed of this machine"].append(
                {
                    "graph": measured.name,
                    "Kùzu before, CPU s": before,
                    "Kùzu after, CPU s": after,
                    "times as fast as the other": machine_speed,
                }
            )
            compare_with_published(steps, state, machine_speed)
        tables["LIVE"] += steps
        tables["Backfill and state"].append(state)
        tables["Parts of a step"] += parts
    verdict.close(result, json)


def measure_graph(
    graph: Graph,
    batches: tuple[int, ...],
    *,
    rows: int,
    threads: int,
    seed: int,
    verdict: Verdict,
) -> tuple[list[Row], Row, list[Row]]:
    """Return the rows of the three tables: two for each batch size, one, and some."""
    shuffled = graph.shuffled(seed + 1)
    loaded = graph.edges * 9 // 10  # number of edges
    loaded_edges, unloaded = shuffled.take(slice(0, loaded)), shuffled.take(slice(loaded, None))
    verdict.set_truth(_truth_name(graph, 0), count(loaded_edges.source, loaded_edges.target))
    table: list[Row] = []
    with open_workers(threads):
        view = DeltaQuery(QUERY)
        backfill = insert(view, loaded_edges, loaded)
        triangles = backfill.change
        verdict.compare("after the backfill", _truth_name(graph, 0), triangles)
        bytes_loaded = view.stats.bytes / loaded
        max_bytes = bytes_loaded
        _warm_up_view(view, unloaded)
        for batch in batches:
            streamed = min(unloaded.edges, max(rows, _MIN_STEPS * batch))
            edges = unloaded.take(slice(0, streamed))
            _count_independently(verdict, graph, shuffled, loaded, streamed)
            phases: list[tuple[Phase, Phase]] = []
            while _is_to_be_repeated(phases):
                inserts = insert(view, edges, batch)
                triangles += inserts.change
                verdict.compare(f"{batch} inserted", _truth_name(graph, streamed), triangles)
                max_bytes = max(max_bytes, view.stats.bytes / (loaded + streamed))
                deletes = delete(view, edges.shuffled(seed + 2), batch)
                triangles += deletes.change
                verdict.compare(f"{batch} deleted", _truth_name(graph, 0), triangles)
                phases.append((inserts, deletes))
            delete_speed = median(
                deletes.cpu_rate / inserts.cpu_rate for inserts, deletes in phases
            )
            inserts, deletes = (combine(repetitions) for repetitions in zip(*phases, strict=True))
            table.append(_row(graph, batch, "insert", inserts, None))
            table.append(_row(graph, batch, "delete", deletes, delete_speed))
        bytes_after_deletes = view.stats.bytes / loaded
        parts = [
            measure_parts(view, graph.name, unloaded.take(slice(0, max(rows, batch))), batch)
            for batch in BATCHES_OF_PARTS
            if batch <= max(batches)
        ]
        toggles = toggle_edges(view, loaded_edges)
    state: Row = {
        "graph": graph.name,
        "edges": graph.edges,
        "loaded": loaded,
        "threads": threads,
        "seconds": backfill.cost.wall,
        "CPU seconds": backfill.cost.cpu,
        "candidates": backfill.candidates,
        "ns/candidate": backfill.nanoseconds_per_candidate,
        "bytes/edge": bytes_loaded,
        "bytes/edge at most": max_bytes,
        "bytes/edge after deletes": bytes_after_deletes,
        "count": triangles,
        **toggles,
    }
    return table, state, parts


def _is_to_be_repeated(phases: list[tuple[Phase, Phase]]) -> bool:
    """Return whether to measure once more, after these pairs of inserts and deletes."""
    seconds = sum(inserts.cost.cpu + deletes.cost.cpu for inserts, deletes in phases)
    return len(phases) < _MIN_REPETITIONS or (
        len(phases) < _MAX_REPETITIONS and seconds < REPEATED_SECONDS
    )


def _warm_up_view(view: DeltaQuery, unloaded: Graph) -> None:
    """Insert and delete a few edges, not timed."""
    edges = unloaded.take(slice(0, 200))
    insert(view, edges, 10)
    delete(view, edges, 10)


def _count_independently(
    verdict: Verdict, graph: Graph, shuffled: Graph, loaded: int, streamed: int
) -> None:
    """Count the triangles after ``streamed`` inserts, once for each such number."""
    name = _truth_name(graph, streamed)
    if name not in verdict.truths:
        edges = shuffled.take(slice(0, loaded + streamed))
        published_count = graph.published if edges.edges == graph.edges else None
        verdict.set_truth(name, published_count, count(edges.source, edges.target))


def _truth_name(graph: Graph, streamed: int) -> str:
    return f"{graph.name}, 90 % and {streamed}"


def _row(
    graph: Graph,
    batch: int,
    change: str,
    phase: Phase,
    delete_speed: float | None,
) -> Row:
    """Return the row of a phase.

    Args:
        graph: The graph.
        batch: The number of edges in a step.
        change: "insert" or "delete".
        phase: The steps.
        delete_speed: For deletes, the median of their edges per CPU second over those of inserts.
    """
    return {
        "graph": graph.name,
        "batch": batch,
        "change": change,
        "repetitions": len(phase.step_seconds) // phase.steps,
        "edges/CPU s": phase.cpu_rate,
        "ns/candidate": phase.nanoseconds_per_candidate,
        "p50 ms": phase.quantile(0.5),
        "p99 ms": phase.quantile(0.99),
        "largest ms": phase.quantile(1.0),
        "deletes/inserts": delete_speed,
    }


def compare_with_published(steps: list[Row], state: Row, machine_speed: float) -> None:
    """Add the ratios to the published figures of a graph to its rows, if there are such figures.

    Args:
        steps: The rows of batch sizes.
        state: The row of backfill and state.
        machine_speed: How many times faster this machine is than that of the published figures.
    """
    published = PUBLISHED.get(str(state["graph"]))
    if published is None:
        return
    seconds = published.backfill / machine_speed
    state["dogsdogsdogs here"] = seconds
    state["times faster"] = seconds / float(state["CPU seconds"] or 0)
    for row in steps:
        batch = int(row["batch"] or 0)
        if batch in published.rates:
            rate = published.rates[batch] * machine_speed
            target = _TARGET_OF_ONE_ROW if batch == 1 else _TARGET
            times_faster = float(row["edges/CPU s"] or 0) / rate
            row["dogsdogsdogs here"] = rate
            row["times faster"] = times_faster
            row["met"] = times_faster >= target


if __name__ == "__main__":
    typer.run(main)
