"""Measures when a refresh should recompute a view in Spark instead of maintaining it.

Claim: the policy "auto" maintains each view that the engine supports, and recomputes only the
others. That is the right choice in at least 95 % of a grid of views and sizes of change: the step
takes less time than the recomputation, which reads all rows of the relations below the view, runs
in a Spark session that is already there, and computes the difference from the old rows.

Input: the silver and gold views of `benchmarks.medallion`. The changes are events for 0.1 % to
100 % of the rows of the five tables, most of them updates. All rows are in memory, as in a refresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer

import dbsp_wcoj
from benchmarks.cost import Clock
from benchmarks.medallion.comparison import count_differences
from benchmarks.medallion.events import Shop
from benchmarks.medallion.lakehouse import KEYS, SQL
from benchmarks.medallion.recompute import read_views
from benchmarks.parts import PartsRun, open_run
from benchmarks.result import Result, Row
from circuits import Circuit, compile_sql
from circuits.schema import WEIGHT
from circuits.sql import ViewStatement
from streaming.pipeline.recomputation import ViewComputer, relations_read
from streaming.pipeline.spark_views import SparkViews
from streaming.pipeline.sql_files import read_sql_files

CLAIM: Final = (
    "A view that the engine supports is refreshed faster by a step than by recomputation in Spark, "
    "in at least 95 % of a grid of views and sizes of change"
)
GRID: Final = "A step against recomputation, by the size of the change"
SUMMARY: Final = "Right choices of the policy auto"
FRACTIONS: Final = (0.001, 0.01, 0.1, 0.5, 1.0)
TARGET_PERCENT: Final = 95.0
COMPUTED: Final = "computed"


def main(
    scale: Annotated[float, typer.Option(help="1.0 for 292,000 rows at first.")] = 1.0,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure; exit status 1 if a view is wrong."""
    result = Result("policies", CLAIM, {})
    dbsp_wcoj.warm_up()
    with open_run("policies", (), seed=seed, json=json) as run:
        computer = SparkViews(run.start_spark)
        measure(run, computer, scale=0.01, fractions=FRACTIONS[-1:])  # warms Spark and the kernels
        rows = measure(run, computer, scale=scale, fractions=FRACTIONS)
        right = 100 * sum(row["times faster"] >= 1 for row in rows) / len(rows)
        summary: Row = {
            "cells": len(rows),
            "right choices %": right,
            "target %": TARGET_PERCENT,
            "met": right >= TARGET_PERCENT,
        }
        result.tables.update({SUMMARY: [summary], GRID: rows})
        run.verdict.close(result, json)


def measure(
    run: PartsRun, computer: ViewComputer, *, scale: float, fractions: tuple[float, ...]
) -> list[Row]:
    """Return a row for each view and fraction of changed rows."""
    rows: list[Row] = []
    text = read_sql_files([SQL]).text
    views = {name: v for name, v in read_views().items() if not name.startswith("bronze_")}
    for fraction in fractions:
        shop = Shop(run.seed)
        first = shop.open(scale)
        schemas = {name: table.schema for name, table in first.items()}
        circuit = compile_sql(text, schemas, dialect="spark", materialize=True)
        circuit.step(first)
        old = dict(circuit.views)
        changes = circuit.step(shop.change(fraction))
        new = dict(circuit.views)
        for name, view in views.items():
            reads = relations_read(view, KEYS)
            step = _time_step(circuit, view, {read: (old[read], changes[read]) for read in reads})
            recomputed, rows_of_view = _time_recomputation(
                circuit, view, {read: new[read] for read in reads}, old[name], computer
            )
            run.verdict.set_truth(f"{name} at {fraction}", 0)
            for subject, table in (("step", step[1]), ("recomputed", rows_of_view)):
                differences = count_differences(table, new[name])
                run.verdict.compare(subject, f"{name} at {fraction}", differences)
            rows.append(
                {
                    "view": name,
                    "changed %": 100 * fraction,
                    "changed rows": sum(changes[read].num_rows for read in reads),
                    "rows below": sum(new[read].num_rows for read in reads),
                    "step s": step[0],
                    "recomputation s": recomputed,
                    "times faster": recomputed / step[0],
                }
            )
        run.report(f"{100 * fraction:g} % changed: done")
    return rows


def _time_step(
    whole: Circuit, view: ViewStatement, tables: Mapping[str, tuple[pa.Table, pa.Table]]
) -> tuple[float, pa.Table]:
    """Return the seconds of a step of one view, and its rows."""
    schemas = {name: whole.schema(name).arrow_columns for name in tables}
    text = f"CREATE VIEW {view.name} AS {view.query}"
    circuit = compile_sql(text, schemas, dialect="spark", materialize=[view.name])
    circuit.step({name: old for name, (old, _) in tables.items()})
    changes = {name: change for name, (_, change) in tables.items()}
    clock = Clock()
    circuit.step(changes)
    return clock.read().wall, circuit.views[view.name]


def _time_recomputation(
    whole: Circuit,
    view: ViewStatement,
    relations: Mapping[str, pa.Table],
    old: pa.Table,
    computer: ViewComputer,
) -> tuple[float, pa.Table]:
    """Return the seconds to compute a view and its changes, and its rows."""
    columns = whole.schema(view.name).arrow_columns
    names = ", ".join(columns.names)
    text = f"CREATE VIEW {view.name} AS SELECT {names} FROM {COMPUTED}"
    circuit = compile_sql(text, {COMPUTED: columns}, materialize=[view.name])
    circuit.step({COMPUTED: old})
    clock = Clock()
    computed = computer.rows_of(view, relations).cast(columns)
    computed = computed.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), len(computed)))
    circuit.step(
        {COMPUTED: pa.concat_tables([computed, _negated(old).select(computed.column_names)])}
    )
    return clock.read().wall, circuit.views[view.name]


def _negated(table: pa.Table) -> pa.Table:
    """Return a table with negated weights."""
    index = table.column_names.index(WEIGHT)
    return table.set_column(index, WEIGHT, pc.negate(table.column(WEIGHT)))


if __name__ == "__main__":
    typer.run(main)
