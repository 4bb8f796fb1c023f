"""Compares the six delta formulas, and ``auto``, which chooses one: joins, work and time.

Claim: all formulas give the same deltas, with the number of joins that
`dbsp_wcoj.formulas.count_joins` returns; ``auto`` is never more than 10 % slower than the best one.

Inputs: stars, paths, cycles and cliques of 2 to 10 atoms over generated rows, uniform and skewed
(RMAT); one of n relations changed, all changed, self-joins; steps of 1 to 100,000 rows
(`benchmarks.formulas.matrix`). Views of all formulas take the same steps in turns
(`benchmarks.formulas.contest`).

Alternatives considered: a time for each formula in a run of its own. On a shared machine two runs
differ by more than two formulas do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.formulas import tables
from benchmarks.formulas.aggregates import aggregate
from benchmarks.formulas.claim import compare_claims
from benchmarks.formulas.contest import FORMULAS, run_contest
from benchmarks.formulas.matrix import ALL, cases
from benchmarks.formulas.shape import SHAPES
from benchmarks.options import check_names
from benchmarks.result import Result, Row, terminal
from benchmarks.verdict import Verdict
from dbsp_wcoj import warm_up

CLAIM = (
    "All six formulas give the same deltas, each with as many joins as its definition says. "
    "Target of `auto`: at most 10 % slower than the best of them in every case"
)


def main(
    quick: Annotated[bool, typer.Option(help="A few tiny cases.")] = False,
    shape: Annotated[list[str] | None, typer.Option(help="Only these shapes; repeatable.")] = None,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Compare the formulas; exit status 1 if their deltas or joins are wrong."""
    check_names(shape or [], SHAPES, "shape")
    result = Result("formulas", CLAIM, {})
    warm_up()
    verdict = Verdict()
    rows: list[Row] = []
    chosen_cases = [case for case in cases(quick=quick) if not shape or case.shape in shape]
    console = terminal()
    for number, case in enumerate(chosen_cases, 1):
        rows += run_contest(case, FORMULAS, verdict, seed=seed)
        console.print(f"{number} of {len(chosen_cases)}: {case.name}, {case.rows:,} rows")
    tables_of_rows = {
        "Verdict": compare_claims(rows),
        "Choice": tables.choice_table(rows),
        "Worst choices": tables.worst_choices(rows),
        "Joins": tables.joins_by_n(rows),
        "Crossover": tables.crossover_table(rows),
        "Times": tables.times_table(rows),
    }
    result.tables.update(tables_of_rows)
    verdict.close(result, None)
    # The cases with all batch sizes are recognized by the number of rows of a relation.
    sizes_of_batch_cases = {case.rows for case in chosen_cases if case.batches == ALL}
    result.tables.update(
        aggregate(
            [row for row in rows if row["rows"] not in sizes_of_batch_cases],
            [row for row in rows if row["rows"] in sizes_of_batch_cases],
        )
    )
    if json is not None:
        result.write(json)
        console.print(f"wrote {json}")


if __name__ == "__main__":
    typer.run(main)
