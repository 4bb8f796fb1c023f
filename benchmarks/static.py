"""BULK: the count of ``e(a, b), e(b, c), e(a, c)`` from arrays in memory to the number.

Claim: at least 8 times faster than Kùzu's worst-case-optimal plan and at least 30 times faster
than a binary-join plan (DuckDB's hash joins, Kùzu's WITH variant), with as many threads.

Inputs: web graphs with hubs (uk-2007-05-100000, web-NotreDame) and an RMAT of scale 20 with
8 million samples. The engine gets the edges in random order and pays for sorting and for its
index; a peer gets them sorted and its loading is not counted. Engine and peers take turns in one
run, after a warm-up; medians; a peer's count is stopped at ``--limit`` seconds, and then the
ratio is a lower bound. All answers are compared, with each other and with the published ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cost import Cost, median
from benchmarks.counter import count
from benchmarks.engine import Counted, count_once, warm_up
from benchmarks.graph import Graph, graphs
from benchmarks.peers import PEERS
from benchmarks.race import race
from benchmarks.result import Result, Row, terminal
from benchmarks.verdict import Verdict

CLAIM = (
    "BULK, from arrays in memory to the number: at least 8 times faster than Kùzu's worst-case-"
    "optimal plan, at least 30 times faster than binary-join plans; where a peer was stopped, the "
    "ratios are lower bounds"
)


def main(
    graph: Annotated[list[Path] | None, typer.Option(help="Parquet with src, dst.")] = None,
    rmat: Annotated[
        tuple[int, int] | None, typer.Option(metavar="SCALE EDGES", help="An RMAT graph.")
    ] = None,
    threads: Annotated[list[int] | None, typer.Option(help="Threads; default 1 and 2.")] = None,
    peers: Annotated[str, typer.Option(help=f"Of {', '.join(PEERS)}.")] = ",".join(PEERS),
    repeat: Annotated[int, typer.Option(help="Counts by the engine.")] = 5,
    peer_repeat: Annotated[int, typer.Option(help="Counts by each peer.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds for one count by a peer.")] = 600.0,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Count once, against peers; exit status 1 on any difference between the answers."""
    names = [name for name in peers.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise typer.BadParameter(f"no peer {name!r}; choose from {', '.join(PEERS)}")
    if not graph and rmat is None:
        rmat = (16, 500_000)
    verdict = Verdict()
    rows: list[Row] = []
    result = Result("static", CLAIM, {"BULK": rows})
    progress = terminal()
    for one in graphs(graph or [], rmat, seed):
        verdict.truth(one.name, one.published, count(one.source, one.target))
        for used in threads or [1, 2]:
            progress.print(f"{one.name}: {one.edges:,} edges, threads: {used} ...")
            rows += compare(
                one,
                used,
                names,
                repeat=repeat,
                peer_repeat=peer_repeat,
                limit=limit,
                seed=seed,
                verdict=verdict,
            )
    verdict.close(result, json)


def compare(
    graph: Graph,
    threads: int,
    peers: list[str],
    *,
    repeat: int,
    peer_repeat: int,
    limit: float,
    seed: int,
    verdict: Verdict,
) -> list[Row]:
    """The engine's row, then one for each peer with its ratios."""
    warm_up(threads)
    shuffled = graph.shuffled(seed + 1)
    before = [_count(shuffled, threads, verdict) for _ in range((repeat + 1) // 2)]
    raced = {name: race(name, graph, threads, repeat=peer_repeat, limit=limit) for name in peers}
    # The second half comes after the peers, so that a change of the machine's load hits both.
    counted = before + [_count(shuffled, threads, verdict) for _ in range(repeat // 2)]
    engine = median([one.total for one in counted])
    index = median([one.index for one in counted])
    rows = [_row(graph, "dbsp_wcoj", threads, engine, counted[0].answer, index=index)]
    for name, found in raced.items():
        if found.answer is not None:
            verdict.compare(f"{graph.name} by {name}", graph.name, found.answer)
        rows.append(_row(graph, name, threads, found.cost, found.answer, engine=engine))
    return rows


def _count(graph: Graph, threads: int, verdict: Verdict) -> Counted:
    counted = count_once(graph, threads)
    verdict.compare(f"{graph.name}, {threads} threads", graph.name, counted.answer)
    return counted


def _row(
    graph: Graph,
    system: str,
    threads: int,
    cost: Cost,
    answer: int | None,
    *,
    index: Cost | None = None,
    engine: Cost | None = None,
) -> Row:
    return {
        "graph": graph.name,
        "edges": graph.edges,
        "system": system,
        "threads": threads,
        "seconds": cost.wall,
        "of which index": None if index is None else index.wall,
        "CPU seconds": cost.cpu,
        "count": "stopped" if answer is None else answer,
        "times faster": None if engine is None else cost.wall / engine.wall,
        "by CPU": None if engine is None else cost.cpu / engine.cpu,
    }


if __name__ == "__main__":
    typer.run(main)
