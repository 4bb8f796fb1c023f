"""Measures maintained SQL views against DuckDB's recomputation, and the cost of encoding rows.

Claim: a step of 100 changed rows of the LSQB queries q3 (triangles of a country), q6 (two hops) and
q9 (two hops without the direct one: an antijoin) is at least 2 (q3) and 10 times (q6, q9) faster
than DuckDB's query; the time in which DuckDB changes its tables is not counted. Encoding and
decoding take less than 30 % of a step of 100,000 rows of a join view whose join is cheap.

Inputs: the LSQB sample of a social network (``--lsqb``; without it, a small generated network). All
rows are loaded in one step. Then ``--steps`` steps each delete ``--rows`` random rows of the
relations that the query reads, in proportion to their sizes, and as many steps insert them again in
another order, so the state at the end is the state after the load. After each step the view's count
is compared with DuckDB's, which runs on as many threads as the engine. The input of
`benchmarks.encoding`, which measures encoding, is generated.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import dbsp_wcoj
from benchmarks import lsqb
from benchmarks.cost import Clock
from benchmarks.encoding import measure_encoding
from benchmarks.maintained import MaintainedQuery, with_weight
from benchmarks.recomputed import RecomputedQuery
from benchmarks.result import Result, Row, terminal
from benchmarks.shared_data import SHARED
from benchmarks.verdict import Verdict

CLAIM = (
    "Maintained SQL views: a step of 100 rows is at least 2 times (q3) and 10 times (q6, q9) "
    "faster than DuckDB's query; the time in which DuckDB changes its tables is not counted. "
    "Encoding and decoding take less than 30 % of a step of 100,000 rows"
)

QUERIES = ("q3", "q6", "q9")

_SAMPLE = SHARED / "data" / "lsqb" / "ldbc-snb-sample"


def main(
    lsqb_folder: Annotated[
        Path, typer.Option("--lsqb", help="Folder of the relations as Parquet.")
    ] = _SAMPLE,
    people: Annotated[int, typer.Option(help="People of the generated network.")] = 2_000,
    rows: Annotated[int, typer.Option(help="Rows in a step.")] = 100,
    steps: Annotated[int, typer.Option(help="Steps that delete; as many insert again.")] = 20,
    encoded_rows: Annotated[int, typer.Option(help="Rows in a step, for encoding.")] = 100_000,
    encoding_steps: Annotated[int, typer.Option(help="Steps that insert, for encoding.")] = 5,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Step the views; exit status 1 if an answer is wrong."""
    verdict = Verdict()
    views: list[Row] = []
    encoding: list[Row] = []
    result = Result("circuits", CLAIM, {"SQL views": views, "Encoding and decoding": encoding})
    progress = terminal()
    dbsp_wcoj.warm_up()
    network = lsqb.load_network(lsqb_folder, people=people, seed=seed)
    for query in QUERIES:
        progress.print(f"{query} on {network.name} ...")
        row = compare(query, network.relations, rows=rows, steps=steps, seed=seed, verdict=verdict)
        views.append({"network": network.name, **row})
    for values in ("int", "string"):
        progress.print(f"encoding and decoding, {values}s ...")
        encoding.append(
            measure_encoding(
                values, rows=encoded_rows, steps=encoding_steps, seed=seed, verdict=verdict
            )
        )
    verdict.close(result, json)


def compare(
    query: str,
    relations: lsqb.Relations,
    *,
    rows: int,
    steps: int,
    seed: int,
    verdict: Verdict,
) -> Row:
    """Run the same steps of one query in both engines; return its row of the table."""
    inputs = lsqb.select_relations(relations, query)
    peer = RecomputedQuery(inputs, lsqb.views_of(query), threads=1)
    view = MaintainedQuery(query, inputs)
    clock = Clock()
    count = view.step(inputs)
    load = clock.read().wall
    verdict.set_truth(f"{query} at first", peer.answer(lsqb.QUERIES[query]))
    verdict.compare("after the load", f"{query} at first", count)
    step_seconds, change_seconds, query_seconds = [], [], []
    warm_up_steps = 2
    changes = _delete_and_insert_again(inputs, rows, steps + warm_up_steps, seed)
    for number, (weight, changed_rows) in enumerate(changes):
        delta = with_weight(changed_rows, weight)
        gc.collect()
        clock = Clock()
        count = view.step(delta)
        seconds = clock.read().wall
        recomputed = peer.step(changed_rows, weight, lsqb.QUERIES[query])
        verdict.set_truth(f"{query} after step {number}", recomputed.answer)
        verdict.compare("the view", f"{query} after step {number}", count)
        if number % (steps + warm_up_steps) >= warm_up_steps:
            step_seconds.append(seconds)
            change_seconds.append(recomputed.change_seconds)
            query_seconds.append(recomputed.query_seconds)
    verdict.compare("after all steps", f"{query} at first", count)
    step, duckdb_query = statistics.median(step_seconds), statistics.median(query_seconds)
    duckdb_with_change = statistics.median(
        map(sum, zip(change_seconds, query_seconds, strict=True))
    )
    return {
        "query": query,
        "rows loaded": sum(table.num_rows for table in inputs.values()),
        "load s": load,
        "count": count,
        "rows/step": rows,
        "steps": len(step_seconds),
        "step ms": step * 1000,
        "largest ms": max(step_seconds) * 1000,
        "DuckDB query ms": duckdb_query * 1000,
        "DuckDB query and change ms": duckdb_with_change * 1000,
        "times faster": duckdb_query / step,
        "times faster than both": duckdb_with_change / step,
    }


def _delete_and_insert_again(
    relations: lsqb.Relations, rows: int, steps: int, seed: int
) -> Iterator[lsqb.Step]:
    """Yield steps that delete random rows, none twice, then steps that insert them again."""
    deleted = lsqb.choose_rows(relations, rows, steps, seed)
    inserted = np.random.default_rng(seed).permutation(deleted.ravel()).reshape(deleted.shape)
    for weight, row_numbers_by_step in ((-1, deleted), (1, inserted)):
        for row_numbers in row_numbers_by_step:
            yield weight, lsqb.take_rows(relations, row_numbers)


if __name__ == "__main__":
    typer.run(main)
