"""Measures the 22 queries of TPC-H as views.

    python -m benchmarks.tpch [--part loading] [--query 6] [--scale 0.1] [--check] [--json FILE]

Claim: see `CLAIM`. Inputs: the tables of TPC-H, and the rows of `benchmarks.tpch.openivm`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.options import check_names
from benchmarks.result import Result, copy_missing_tables, terminal
from benchmarks.tpch import loading, openivm, small_steps
from benchmarks.tpch.data import write_files

CLAIM: Final = (
    "TPC-H as views. Loading: at least 2 million lineitems per CPU second into queries 1 and 6, "
    "and 1 million into queries 3, 5, 9 and 18; the peak memory is at most 1.5 times the input "
    "plus the state. Small steps: one order with its lineitems through all 22 views in at most "
    "4 ms, and at most 10 us for an operator without input. Against OpenIVM (incremental views on "
    "DuckDB): at most 5 ms for 6,000 lineitems into 6 million"
)
LOADING: Final = "LOADING"
SMALL_STEPS: Final = "SMALL STEPS"
OPENIVM: Final = "OPENIVM"
PARTS: Final = ("loading", "small steps", "openivm")
MAX_SMALL_SCALE: Final = 0.1  # one circuit of all views has to fit into memory


def main(
    part: Annotated[list[str], typer.Option(help="What to measure.")] = list(PARTS),  # noqa: B006
    query: Annotated[
        list[str] | None, typer.Option(help="A query to load, or `all` for one circuit of all.")
    ] = None,
    scale: Annotated[float, typer.Option(help="The scale factor of TPC-H.")] = 1.0,
    slice_rows: Annotated[
        list[int] | None, typer.Option(help="Load also in steps of this many rows of a table.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep the tables in this folder for other runs.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Compare each answer with DuckDB.")] = False,
    orders: Annotated[int, typer.Option(help="The orders of the small steps.")] = 200,
    lineitems: Annotated[int, typer.Option(help="The lineitems of OpenIVM's queries.")] = 6_000_000,
    batch: Annotated[int, typer.Option(help="The lineitems of a step into them.")] = 6_000,
    steps: Annotated[int, typer.Option(help="The steps of each of them.")] = 30,
    seed: int = 0,
    json: Annotated[
        Path | None,
        typer.Option(help="Write the result here; tables of other parts that it has stay."),
    ] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    queries = query or list(loading.CASES)
    check_names(part, PARTS, "part")
    check_names(queries, loading.CASES, "query")
    result = Result("tpch", CLAIM, {})
    console = terminal()
    with tempfile.TemporaryDirectory(prefix="dbsp-wcoj-tpch-") as folder:
        if "loading" in part:
            files = write_files(data or Path(folder), scale)
            rows = result.tables[LOADING] = []
            for case in queries:
                for size in (None, *(slice_rows or ())):
                    rows.append({"scale": scale} | loading.measure(files, case, size, check))
                    console.print(rows[-1])
        if "small steps" in part:
            small = min(scale, MAX_SMALL_SCALE)
            result.tables[SMALL_STEPS] = small_steps.measure(
                write_files(data or Path(folder), small), small, orders, seed, check
            )
    if "openivm" in part:
        rows = result.tables[OPENIVM] = []
        for case in openivm.QUERIES:
            rows.append(openivm.measure(case, lineitems, batch, steps))
            console.print(rows[-1])
    result.show()
    wrong = [
        row.get("query") or row.get("step")
        for rows in result.tables.values()
        for row in rows
        if row["as DuckDB"] is False
    ]
    if wrong:
        console.print(f"[red]differ from DuckDB[/]: {', '.join(map(str, wrong))}")
        raise typer.Exit(1)
    if json is not None:
        if json.exists():
            copy_missing_tables(result, Result.read(json))
        result.write(json)


if __name__ == "__main__":
    typer.run(main)
