"""Measures how long a change of the views takes, against the estimate of ``plan-change``.

Claim: the estimate, `ProgramChange.estimated_seconds`, is within a factor of `TARGET_FACTOR` of the
CPU time. It is the rows that are read, times one more than the arrangements that are computed,
times `SECONDS_PER_ROW`; this benchmark measures that factor.

Inputs: a random graph of edges with a weight, which a join of the old program keeps. Each change
adds or changes one view.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import typer

from benchmarks.cost import Clock
from benchmarks.result import Result, Row
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from circuits.state.program_change import SECONDS_PER_ROW, ProgramChange

CLAIM: Final = "The estimated time of a change of the views is near its CPU time"
CHANGES: Final = "Changes of the views"
TARGET_FACTOR: Final = 4.0
SCHEMAS: Final = {"e": "src bigint not null, dst bigint not null, w bigint not null"}
OLD: Final = (
    "CREATE VIEW paths AS SELECT x.src, y.dst, x.w FROM e x JOIN e y ON x.dst = y.src "
    "WHERE x.w = 1 AND y.w = 1;"
    "CREATE VIEW rows AS SELECT x.src, x.dst, x.w FROM e x JOIN e y ON x.src = y.dst AND "
    "x.dst = y.src AND x.w = y.w;"
)
#: The view that each change adds.
VIEWS: Final = {
    "a filter": "SELECT src, dst FROM e WHERE w > 50",
    "a count per group": "SELECT src, count(*) AS n FROM e GROUP BY src",
    "a maximum per group": "SELECT src, max(w) AS m FROM e GROUP BY src",
    "DISTINCT": "SELECT DISTINCT dst FROM e",
    "a join in another order": "SELECT x.src, y.src AS other FROM e x JOIN e y "
    "ON x.w = y.w AND x.dst = y.dst AND x.src < y.src",
    "a triangle": "SELECT count(*) AS n FROM e a JOIN e b ON a.dst = b.src "
    "JOIN e c ON b.dst = c.src AND c.dst = a.src",
}


def graph(rows: int, seed: int = 7) -> pa.Table:
    """Return a random graph with four edges per node."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "src": random.integers(0, rows // 4, rows),
            "dst": random.integers(0, rows // 4, rows),
            "w": random.integers(0, 100, rows),
        }
    )


def old_circuit(table: pa.Table) -> Circuit:
    """Return the circuit of the old program with its state."""
    circuit = compile_sql(OLD, SCHEMAS)
    circuit.step({"e": table})
    return circuit


def measure(verdict: Verdict, rows: int, repetitions: int) -> list[Row]:
    """Apply each change several times; return a row for each."""
    table = graph(rows)
    results: list[Row] = []
    for name, view in VIEWS.items():
        text = f"{OLD}CREATE VIEW added AS {view}"
        fresh = compile_sql(text, SCHEMAS)
        verdict.set_truth(name, fresh.step({"e": table})["added"].num_rows)
        seconds = []
        for _ in range(repetitions):
            change = ProgramChange(old_circuit(table), compile_sql(text, SCHEMAS))
            read, estimate = change.rows_to_read, change.estimated_seconds
            computed = sum(trace.action == "backfill" for trace in change.traces)
            clock = Clock()
            outputs = change.apply()
            seconds.append(clock.read().cpu)
            verdict.compare(f"change: {name}", name, outputs["added"].num_rows)
        measured = median(seconds)
        ratio = estimate / measured
        results.append(
            {
                "added view": name,
                "rows read": read,
                "arrangements computed": computed,
                "CPU s": measured,
                "ns per row and arrangement": 1e9 * measured / (read * (1 + computed)),
                "estimate s": estimate,
                "estimate / CPU": ratio,
                "target": TARGET_FACTOR,
                "met": 1 / TARGET_FACTOR <= ratio <= TARGET_FACTOR,
            }
        )
    return results


def main(
    rows: Annotated[int, typer.Option(help="The rows of the input.")] = 1_000_000,
    repetitions: Annotated[int, typer.Option(help="How often each change is made.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure the changes; exit status 1 if a view is wrong."""
    result, verdict = Result("program_change", CLAIM, {}), Verdict()
    measure(Verdict(), 10_000, 1)  # the first use of each kernel
    result.tables[CHANGES] = measure(verdict, rows, repetitions)
    verdict.close(result, json)
    typer.echo(f"SECONDS_PER_ROW is {SECONDS_PER_ROW}")


if __name__ == "__main__":
    typer.run(main)
