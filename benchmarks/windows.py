"""Measures window functions on one partition of many rows, and percentiles of one group.

Claim: a step of 100 changes takes less than 10 CPU milliseconds for lag, running sums, minima and
maxima, ranks, bounded frames and percentiles over a partition of 10**6 rows. Changes are at random
times for functions of nearby rows. They are among the last 2,000 rows for functions whose results
change in all rows after a changed row. The results of `ntile` and `percent_rank` depend on the
number of rows, so these functions read the whole partition; they are measured on a tenth of the
rows, and have no target.

Each step inserts 50 rows and deletes 50. After the last step the view is compared with the view of
another circuit that gets the remaining rows in one step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import typer

from benchmarks.cost import Clock, Cost, median
from benchmarks.result import Result, Row
from benchmarks.verdict import Verdict
from circuits import compile_sql

CLAIM: Final = "A step of 100 changes in one partition of a million rows takes under 10 CPU ms"
TABLE: Final = "Window functions"
TARGET_MS: Final = 10.0
CHANGES: Final = 100  # rows of a step: half are deleted, half inserted
STEPS: Final = 20
WARM_UP: Final = 3  # steps that are not timed
LAST_ROWS: Final = 2000  # the rows at the end that may change, for functions in SUFFIX
SCHEMAS: Final = {"e": "t BIGINT NOT NULL, x BIGINT NOT NULL"}
# Functions of nearby rows; the changes are at random times.
NEAR: Final = {
    "lag": "lag(x) OVER (ORDER BY t)",
    "sum of 10 rows": "sum(x) OVER (ORDER BY t ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "max of a range": "max(x) OVER (ORDER BY t RANGE BETWEEN 100 PRECEDING AND CURRENT ROW)",
    "first value": "first_value(x) OVER (ORDER BY t)",
    "sum of 10 groups": "sum(x) OVER (ORDER BY t GROUPS BETWEEN 9 PRECEDING AND CURRENT ROW)",
}
# Functions whose results change in all later rows; the changes are near the end.
SUFFIX: Final = {
    "running sum": "sum(x) OVER (ORDER BY t)",
    "row number": "row_number() OVER (ORDER BY t)",
    "dense rank": "dense_rank() OVER (ORDER BY t)",
    "running min": "min(x) OVER (ORDER BY t)",
    "running max": "max(x) OVER (ORDER BY t)",
}
# Aggregates of all rows.
TOTAL: Final = {
    "median": "median(x)",
    "percentile": "quantile_disc(x, 0.99)",
}
# Functions that read their whole partition.
WHOLE: Final = {
    "ntile": "ntile(4) OVER (ORDER BY t)",
    "percent rank": "percent_rank() OVER (ORDER BY t)",
}


class Stream:
    """Rows with times 0, 10, 20, ..., and steps that each replace 50 of them.

    Args:
        rows: The number of rows of the load.
        first: The number of the first row that may change.
        seed: The seed of the random choices.
    """

    def __init__(self, rows: int, first: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.times = np.arange(rows) * 10
        self.values = self._random.integers(0, 1000, rows)
        self._unchanged = first + self._random.permutation(rows - first)

    def all_rows(self) -> pa.Table:
        """Return the rows after the changes so far."""
        return pa.table({"t": self.times, "x": self.values})

    def change(self) -> pa.Table:
        """Replace rows by rows at times nearby; return the deletes and inserts."""
        half = CHANGES // 2
        chosen, self._unchanged = self._unchanged[:half], self._unchanged[half:]
        old_times, old_values = self.times[chosen], self.values[chosen]
        self.times[chosen] += 5
        self.values[chosen] = self._random.integers(0, 1000, half)
        return pa.table(
            {
                "t": np.concatenate((old_times, self.times[chosen])),
                "x": np.concatenate((old_values, self.values[chosen])),
                "weight": np.repeat([-1, 1], half),
            }
        )


def measure(
    verdict: Verdict,
    name: str,
    call: str,
    rows: int,
    *,
    near_end: bool,
    seed: int,
    target: float | None = TARGET_MS,
) -> Row:
    """Measure the view of one function, and check its rows after the last step."""
    text = f"SELECT {'t, ' if 'OVER' in call else ''}{call} AS y FROM e"
    stream = Stream(rows, rows - LAST_ROWS if near_end else 0, seed)
    circuit = compile_sql(text, SCHEMAS, materialize=True, threads=1)
    clock = Clock()
    circuit.step({"e": stream.all_rows()})
    load = clock.read()
    costs: list[Cost] = []
    changed_results = 0
    for number in range(WARM_UP + STEPS):
        change = stream.change()
        clock = Clock()
        delta = circuit.step({"e": change})["view"]
        if number >= WARM_UP:
            costs.append(clock.read())
            changed_results += delta.num_rows
    recomputed = compile_sql(text, SCHEMAS, materialize=True, threads=1)
    recomputed.step({"e": stream.all_rows()})
    view, expected = (
        table.sort_by([(table.column_names[0], "ascending")])
        for table in (circuit.views["view"], recomputed.views["view"])
    )
    verdict.set_truth(f"equal rows of {name}", expected.num_rows)
    equal_rows = view.num_rows if view.equals(expected) else -1
    verdict.compare("the view after all steps", f"equal rows of {name}", equal_rows)
    milliseconds = 1000 * median(costs).cpu
    return {
        "function": name,
        "rows": rows,
        "changes": CHANGES,
        "changed results": round(changed_results / STEPS),
        "load CPU s": load.cpu,
        "CPU ms": milliseconds,
        "target": target,
        "met": None if target is None else milliseconds <= target,
    }


def main(
    seed: Annotated[int, typer.Option(help="The seed of the random rows.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="100,000 rows.")] = False,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure all functions; exit status 1 if an answer is wrong."""
    rows, verdict = (100_000 if quick else 1_000_000), Verdict()
    result = Result("windows", CLAIM, {TABLE: []})
    for calls, near_end in ((NEAR, False), (SUFFIX, True), (TOTAL, False)):
        for name, call in calls.items():
            row = measure(verdict, name, call, rows, near_end=near_end, seed=seed)
            result.tables[TABLE].append(row)
    for name, call in WHOLE.items():
        row = measure(verdict, name, call, rows // 10, near_end=False, seed=seed, target=None)
        result.tables[TABLE].append(row)
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
