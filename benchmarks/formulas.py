"""The six delta formulas on three shapes of query: joins run, and CPU time of a step.

Claim: joins are those of the formulas (n = 3, 4, 5 atoms, all changed); on cyclic queries the
one-join-per-term formulas (`collapsed`, `flipped`) are fastest, because the recursions fix a
left-deep order with binary intermediates; on long paths the recursions run fewer joins.

Inputs: an RMAT graph of modest size, 90 % of it as the first step, then steps of ``--batch`` rows
inserted and deleted again. All formulas must give the same deltas, and the joins of each step must
be those of `dbsp_wcoj.formulas.joins`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cost import Cost
from benchmarks.engine import warm_up
from benchmarks.graph import Graph, graphs
from benchmarks.result import Result, Row
from benchmarks.stream import Phase, delete, insert
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery, Formula, Query
from dbsp_wcoj.formulas import joins

CLAIM = "All six formulas give the same deltas; their joins are those of the textbook"

QUERIES = {
    "triangle": "n() :- e(a, b), e(b, c), e(a, c)",
    "4-cycle": "n() :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "path of 5": "n() :- e(a, b), e(b, c), e(c, d), e(d, f), e(f, g)",
}


def main(
    graph: Annotated[list[Path] | None, typer.Option(help="Parquet with src, dst.")] = None,
    rmat: Annotated[
        tuple[int, int] | None, typer.Option(metavar="SCALE EDGES", help="An RMAT graph.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows in a step.")] = 10,
    steps: Annotated[int, typer.Option(help="Steps there, and as many back.")] = 10,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Compare the formulas; exit status 1 when their deltas or joins are not as they should be."""
    if not graph and rmat is None:
        rmat = (12, 16_000)
    verdict = Verdict()
    rows: list[Row] = []
    result = Result("formulas", CLAIM, {"Formulas": rows})
    warm_up(1)
    for one in graphs(graph or [], rmat, seed):
        for shape in QUERIES:
            rows += compare(one, shape, batch=batch, steps=steps, seed=seed, verdict=verdict)
    verdict.close(result, json)


def compare(
    graph: Graph, shape: str, *, batch: int, steps: int, seed: int, verdict: Verdict
) -> list[Row]:
    """A row for each formula on one shape of query."""
    query = Query.parse(QUERIES[shape])
    shuffled = graph.shuffled(seed + 1)
    streamed = min(batch * steps, graph.edges // 10)
    changed, kept = shuffled.take(slice(0, streamed)), shuffled.take(slice(streamed, None))
    rows: list[Row] = []
    for formula in Formula:
        view = DeltaQuery(query, formula=formula)
        backfill = insert(view, kept, kept.edges)
        before = view.stats
        there = insert(view, changed, batch)
        back = delete(view, changed, batch)
        after = view.stats
        ran = len(there.steps) + len(back.steps)
        case = f"{graph.name}, {shape}"
        for what, phase in (("backfill", backfill), ("inserts", there), ("deletes", back)):
            _agree(verdict, f"{case}: {what}", formula, phase)
        verdict.truths[f"joins of {formula}"] = ran * joins(formula, len(query.body))
        verdict.compare(case, f"joins of {formula}", after.joins - before.joins)
        cost: Cost = there.cost + back.cost
        rows.append(
            {
                "graph": graph.name,
                "query": shape,
                "formula": str(formula),
                "joins/step": (after.joins - before.joins) / ran,
                "proposals/step": (after.proposals - before.proposals) / ran,
                "CPU ms/step": 1000 * cost.cpu / ran,
                "p50 ms": (there.quantile(0.5) + back.quantile(0.5)) / 2,
                "change of the count": there.change,
            }
        )
    fastest = min(float(row["CPU ms/step"] or 0) for row in rows)
    return [{**row, "by the fastest": float(row["CPU ms/step"] or 0) / fastest} for row in rows]


def _agree(verdict: Verdict, case: str, formula: Formula, phase: Phase) -> None:
    """The first formula that comes sets what the others must give."""
    if case in verdict.truths:
        verdict.compare(f"{formula}", case, phase.change)
    else:
        verdict.truth(case, phase.change)


if __name__ == "__main__":
    typer.run(main)
