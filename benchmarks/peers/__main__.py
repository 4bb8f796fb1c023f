"""The command ``python -m benchmarks.peers``: BULK, LIVE and LSQB (see `benchmarks.peers`).

Claim: BULK triangles and 4-cliques at least 10 times faster than Kùzu's worst-case-optimal plan on
every graph, with 1 and 2 threads; LIVE triangles and 4-cliques in steps of 100 rows at least 100
times faster than Pathway, 1,000 times faster than pydbsp and than delta SQL on Spark. The column
``met`` says whether a row meets its target; nothing is claimed of other rows. LSQB has no target.

All parts take about 40 minutes on two cores, LSQB takes five of them. If a peer exceeds its limit
of time or memory, the tables show the limit. A run of one part keeps the tables of the other parts
in the result file, and records their origin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.engine import warm_up
from benchmarks.options import check_names
from benchmarks.peers.bulk import Bulk, plans
from benchmarks.peers.live import Live
from benchmarks.peers.lsqb import Lsqb
from benchmarks.peers.roster import BULK, LIVE, LSQB, SYSTEMS
from benchmarks.peers.systems import System
from benchmarks.peers.workload import bulk_cases, live_streams, lsqb_network, note_missing_graphs
from benchmarks.result import Result, Row, copy_missing_tables, terminal
from benchmarks.verdict import Verdict

CLAIM = (
    "Targets: BULK triangles and 4-cliques are counted 10 times faster than by Kùzu's "
    "worst-case-optimal plan; the time of this engine includes building its index from arrays in "
    "memory. LIVE triangles and 4-cliques, in steps of 100 rows, are maintained 100 times faster "
    "than by Pathway, and 1,000 times faster than by pydbsp and by delta SQL on Spark. LSQB, steps "
    "of 100 rows of nine SQL views, has no target. Where a system was stopped, the ratios are "
    "lower bounds. igraph and networkx count undirected patterns, which are fewer"
)
QUICK = ("kuzu", "duckdb", "duckdb-delta", "kuzu-recompute")
PARTS = ("bulk", "live", "lsqb", "all")


def main(
    part: Annotated[str, typer.Option(help="bulk, live, lsqb or all.")] = "all",
    graph: Annotated[
        list[str] | None, typer.Option(help="A graph by its name or Parquet file; repeatable.")
    ] = None,
    peers: Annotated[str, typer.Option(help="Names, with commas between; all by default.")] = "",
    threads: Annotated[
        list[int] | None, typer.Option(help="Threads of BULK; 1 and 2 by default.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds for one count of BULK.")] = 100.0,
    plan_limit: Annotated[
        float, typer.Option(help="Seconds for one count by a forced plan of binary joins.")
    ] = 400.0,
    allowance: Annotated[
        float, typer.Option(help="Seconds for a pattern of BULK, for DuckDB and each library.")
    ] = 20.0,
    seconds: Annotated[float, typer.Option(help="Seconds for a phase of LIVE.")] = 0.5,
    step_limit: Annotated[
        float,
        typer.Option(help="Seconds that a phase of LIVE may take in addition to --seconds."),
    ] = 60.0,
    loading: Annotated[float, typer.Option(help="Seconds for loading in LIVE.")] = 90.0,
    view_seconds: Annotated[
        float, typer.Option(help="Seconds for the steps of a query of LSQB.")
    ] = 2.0,
    view_loading: Annotated[
        float,
        typer.Option(help="Seconds for loading and the first count of LSQB, and for one step."),
    ] = 20.0,
    memory: Annotated[float, typer.Option(help="GB that a system may use.")] = 20.0,
    quick: Annotated[bool, typer.Option(help="Tiny graphs, peers that start fast.")] = False,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Compare the systems; exit status 1 on any wrong answer."""
    names = tuple(peers.split(",")) if peers else (QUICK if quick else ())
    check_names(names, SYSTEMS, "peer")
    check_names([part], PARTS, "part")
    progress = terminal()
    note = note_missing_graphs()
    if note is not None and not quick:
        progress.print(note)
    verdict = Verdict()
    tables: dict[str, list[Row]] = {}
    result = Result("peers", CLAIM, tables)
    memory_bytes = int(memory * (1 << 30))
    warm_up(1)  # the drivers then find the kernels in the cache
    if part in ("bulk", "all"):
        bulk = Bulk(
            peers=_select(BULK, names),
            threads=threads or ([1] if quick else [1, 2]),
            limit=limit,
            plan_limit=plan_limit,
            allowance=allowance,
            memory=memory_bytes,
            verdict=verdict,
            progress=progress.print,
            runs_engine_twice=not quick,
        )
        tables["BULK"] = bulk.run(bulk_cases(graph or [], quick=quick, seed=seed))
        tables["Plans"] = plans(tables["BULK"])
    if part in ("live", "all"):
        live = Live(
            peers=_select(LIVE, names),
            threads=1,
            seconds=seconds if not quick else 0.2,
            limit=step_limit,
            loading=loading,
            memory=memory_bytes,
            verdict=verdict,
            progress=progress.print,
        )
        tables["LIVE"] = live.run(live_streams(graph or [], quick=quick, seed=seed))
    if part in ("lsqb", "all"):
        lsqb = Lsqb(
            peers=_select(LSQB, names),
            threads=1,
            rows=100 if not quick else 10,
            deletes=12 if not quick else 4,
            seconds=view_seconds,
            limit=view_loading,
            loading=view_loading,
            memory=memory_bytes,
            verdict=verdict,
            progress=progress.print,
            runs_engine_twice=not quick,
        )
        tables["LSQB"] = lsqb.run(lsqb_network(quick=quick, seed=seed), seed)
    if part != "all" and json is not None and json.exists():
        copy_missing_tables(result, Result.read(json))
    verdict.close(result, json)


def _select(systems: tuple[System, ...], names: tuple[str, ...]) -> list[System]:
    return [system for system in systems if not names or system.name in names]


if __name__ == "__main__":
    typer.run(main)
