"""LIVE: the count of ``e(a, b), e(b, c), e(a, c)`` maintained under inserts and deletes.

Bar: 10 times the edges per CPU second of dogsdogsdogs, one thread, at every batch size and graph of
its figures. Besides: deletes within 15 % of inserts; loading 90 % at once at least 20 times faster;
at most 40 bytes per edge; a step of one row on 8 million edges takes 0.3 ms (median), 2 ms (99 %)
and never 50 ms; its cost follows the delta, not the state (`benchmarks.growth`).

Inputs: web and social graphs, an RMAT of scale 20 with 8 million samples, and with ``--place`` one
of scale 18 with 2 million; distinct loop-free edges in random order by seed. 90 % are one step (the
backfill). For each batch size B
the next rows are inserted in steps of B and then deleted in another random order, so every B
starts from the same state. Small B see a part of the stream only (``--rows``, but at least 20
steps); a last step may be shorter. After each phase the view's count is compared with an
independent one. With ``--place`` Kùzu places this machine beside the one of the peer's figures
(`benchmarks.dogsdogsdogs`), which gives the ratios.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.counter import count
from benchmarks.dogsdogsdogs import BATCHES, PLACE, PUBLISHED, speed
from benchmarks.engine import QUERY, part_count, thread_pool, warm_up
from benchmarks.graph import Graph, generate_graph, read_graphs
from benchmarks.peers.bulk import time_kuzu
from benchmarks.result import Result, Row, terminal
from benchmarks.stream import Phase, delete, insert
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery

CLAIM = (
    "LIVE: one thread maintains the count of triangles. Target: 10 times the edges per CPU second "
    "of dogsdogsdogs at every batch size and graph of its published figures, which Kùzu, measured "
    "in both places, brings to this machine"
)

_TARGET = 10.0

_LEAST_STEPS = 20


def main(
    graph: Annotated[list[Path] | None, typer.Option(help="Parquet with src, dst.")] = None,
    rmat: Annotated[
        tuple[int, int] | None, typer.Option(metavar="SCALE EDGES", help="An RMAT graph.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Rows in a step; repeatable.")] = None,
    rows: Annotated[int, typer.Option(help="Rows streamed for small batches.")] = 20_000,
    threads: int = 1,
    place: Annotated[bool, typer.Option(help="Place this machine by Kùzu.")] = False,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Maintain the count; exit status 1 when it is ever wrong."""
    if not graph and rmat is None:
        rmat = (16, 500_000)
    verdict = Verdict()
    tables: dict[str, list[Row]] = {"LIVE": [], "Backfill and state": []}
    result = Result("live", CLAIM, tables)
    progress = terminal()
    warm_up(threads)
    faster = None
    if place:
        kuzu = time_kuzu(generate_graph(*PLACE, seed))
        faster = speed(kuzu.cpu)
        tables["Place"] = [{"Kùzu CPU seconds": kuzu.cpu, "times faster": faster}]
    placing = [generate_graph(*PLACE, seed)] if place else []
    for one in chain(read_graphs(graph or [], rmat, seed), placing):
        progress.print(f"{one.name}: {one.edges:,} edges ...")
        steps, state = measure_graph(
            one,
            tuple(batch or BATCHES),
            rows=rows,
            threads=threads,
            seed=seed,
            verdict=verdict,
            faster=faster,
        )
        tables["LIVE"] += steps
        tables["Backfill and state"].append(state)
    verdict.close(result, json)


def measure_graph(
    graph: Graph,
    batches: tuple[int, ...],
    *,
    rows: int,
    threads: int,
    seed: int,
    verdict: Verdict,
    faster: float | None = None,
) -> tuple[list[Row], Row]:
    """Two rows for each batch size (inserts, deletes), and the row of the backfill and state."""
    shuffled = graph.shuffled(seed + 1)
    held = graph.edges * 9 // 10
    preload, rest = shuffled.take(slice(0, held)), shuffled.take(slice(held, None))
    verdict.set_truth(_name(graph, 0), count(preload.source, preload.target))
    table: list[Row] = []
    with thread_pool(threads) as executor:
        view = DeltaQuery(QUERY, executor=executor, parts=part_count(threads))
        backfill = insert(view, preload, held)
        now = backfill.change
        verdict.compare("after the backfill", _name(graph, 0), now)
        at_rest = view.stats.bytes / held
        most = at_rest
        _warm_up_view(view, rest)
        for batch in batches:
            streamed = min(rest.edges, max(rows, _LEAST_STEPS * batch))
            inserts = rest.take(slice(0, streamed))
            _learn(verdict, graph, shuffled, held, streamed)
            there = insert(view, inserts, batch)
            now += there.change
            verdict.compare(f"{batch} at once inserted", _name(graph, streamed), now)
            most = max(most, view.stats.bytes / (held + streamed))
            back = delete(view, inserts.shuffled(seed + 2), batch)
            now += back.change
            verdict.compare(f"{batch} at once deleted", _name(graph, 0), now)
            ratio = back.cpu_rate / there.cpu_rate
            table.append(_row(graph, threads, batch, "insert", there, None, faster))
            table.append(_row(graph, threads, batch, "delete", back, ratio, faster))
        after = view.stats.bytes / held
    published = PUBLISHED.get(graph.name)
    here = None if published is None or faster is None else published.backfill / faster
    state: Row = {
        "graph": graph.name,
        "edges": graph.edges,
        "loaded": held,
        "threads": threads,
        "seconds": backfill.cost.wall,
        "CPU seconds": backfill.cost.cpu,
        "dogsdogsdogs here": here,
        "times faster": None if here is None else here / backfill.cost.cpu,
        "bytes/edge": at_rest,
        "bytes/edge at most": most,
        "bytes/edge after deletes": after,
        "count": now,
    }
    return table, state


def _warm_up_view(view: DeltaQuery, rest: Graph) -> None:
    """A few small steps there and back, not counted."""
    few = rest.take(slice(0, 200))
    insert(view, few, 10)
    delete(view, few, 10)


def _learn(verdict: Verdict, graph: Graph, shuffled: Graph, held: int, streamed: int) -> None:
    """Count what is there after ``streamed`` inserts, once for each such number."""
    name = _name(graph, streamed)
    if name not in verdict.truths:
        there = shuffled.take(slice(0, held + streamed))
        known = graph.published if there.edges == graph.edges else None
        verdict.set_truth(name, known, count(there.source, there.target))


def _name(graph: Graph, streamed: int) -> str:
    return f"{graph.name}, 90 % and {streamed}"


def _row(
    graph: Graph,
    threads: int,
    batch: int,
    kind: str,
    phase: Phase,
    deletes: float | None,
    faster: float | None,
) -> Row:
    published = PUBLISHED.get(graph.name)
    rate = None if published is None else published.rates.get(batch)
    here = None if rate is None or faster is None else rate * faster
    return {
        "graph": graph.name,
        "threads": threads,
        "batch": batch,
        "change": kind,
        "steps": len(phase.steps),
        "edges/s": phase.rate,
        "edges/CPU s": phase.cpu_rate,
        "p50 ms": phase.quantile(0.5),
        "p99 ms": phase.quantile(0.99),
        "largest ms": phase.quantile(1.0),
        "deletes by inserts": deletes,
        "dogsdogsdogs here": here,
        "times faster": None if here is None else phase.cpu_rate / here,
        "target": None if here is None else _TARGET,
        "met": None if here is None else phase.cpu_rate / here >= _TARGET,
    }


if __name__ == "__main__":
    typer.run(main)
