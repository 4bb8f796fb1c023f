"""Measures refreshes of the 22 views of TPC-H, against Spark that computes them again.

Claim: after a refresh function of TPC-H, which inserts or deletes 0.1 % of the orders with their
lineitems, a refresh of the 22 views takes less time than their recomputation by Spark, with durable
state, from Delta tables to Delta tables.

Input: the tables of ``tpchgen-cli``; orders and lineitems are in files by ranges of keys. The first
refresh function (RF1) appends orders that were left out at first, and the second one (RF2) deletes
as many consecutive orders [1]. RF2 rewrites the files of these orders, because ``deltalake`` does
not read tables with deletion vectors, so a refresh reads the old and the new files. After each
refresh, Spark computes all views from all tables, and the rows of the 22 target tables are compared
with its rows. Spark writes Parquet files, not Delta tables.

References:
    [1] Transaction Processing Performance Council. TPC Benchmark H, revision 3, section 2.5.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable, write_deltalake

import dbsp_wcoj
from benchmarks.medallion.lakehouse import RefreshCost, RefreshedLake
from benchmarks.medallion.measurement import compare_targets, medians_of
from benchmarks.medallion.recompute import Recomputation, SparkRecomputation
from benchmarks.parts import PartsRun, open_run
from benchmarks.result import Result, Row
from benchmarks.tpch.data import program, read_tables, write_files
from benchmarks.tpch.queries import QUERIES, SCHEMAS

CLAIM: Final = (
    "After 0.1 % of the orders of TPC-H were inserted or deleted, a refresh of its 22 views takes "
    "less time than their recomputation by Spark, from Delta tables to Delta tables"
)
REFRESHES: Final = "Refreshes of the 22 views of TPC-H"
#: The column of the orders in the tables that change.
ORDER_KEYS: Final = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
#: The orders of a refresh function are 1 / REFRESH_SHARE of all orders.
REFRESH_SHARE: Final = 1_000
MIN_FILES: Final = 32


class TpchLake(RefreshedLake):
    """The tables of TPC-H as Delta tables, of which some orders are left out at first.

    Args:
        folder: An empty folder.
        files: The folder with the tables of TPC-H.
        refreshes: The number of refresh functions of each kind.
        queries: The numbers of the queries that are views.
    """

    def __init__(self, folder: Path, files: Path, refreshes: int, queries: Sequence[int]) -> None:
        super().__init__(folder, "tpch.toml")
        self._queries = queries
        self._tables = read_tables(files)
        keys = np.sort(self._tables["orders"].column("o_orderkey").to_numpy())
        self._size = max(1, len(keys) // REFRESH_SHARE)
        left_out = keys[:: max(1, len(keys) // (refreshes * self._size))]
        self._left_out = left_out[: refreshes * self._size]
        self._deleted = np.setdiff1d(keys, self._left_out)[: refreshes * self._size]

    def open(self) -> None:
        """Write the first rows and the pipeline file."""
        (self.folder / "views.sql").write_text(program(self._queries))
        lines = ['query = "views.sql"', '[state]\npath = "state"', '[run]\ndialect = "spark"']
        lines += [f'[inputs.{name}]\npath = "tables/{name}"' for name in SCHEMAS]
        lines.append('[[outputs]]\ntarget = "delta"\npath = "lake/{view}"')
        self.pipeline_file.write_text("\n".join(lines))
        for name, table in self._tables.items():
            if name not in ORDER_KEYS:
                write_deltalake(self.folder / "tables" / name, table)
                continue
            rows = self._rows(name, self._left_out, is_in=False)
            rows = rows.sort_by(ORDER_KEYS[name])
            size = -(-rows.num_rows // MIN_FILES)
            for start in range(0, rows.num_rows, size):
                part = rows.slice(start, size)
                write_deltalake(self.folder / "tables" / name, part, mode="append")

    def insert(self, number: int) -> int:
        """Append the orders of a refresh function (RF1); return the number of changed rows."""
        keys = self._left_out[number * self._size : (number + 1) * self._size]
        inserted = 0
        for name in ORDER_KEYS:
            rows = self._rows(name, keys)
            write_deltalake(self.folder / "tables" / name, rows, mode="append")
            inserted += rows.num_rows
        return inserted

    def delete(self, number: int) -> int:
        """Delete the orders of a refresh function (RF2); return the number of changed rows."""
        keys = self._deleted[number * self._size : (number + 1) * self._size]
        deleted = 0
        for name, column in ORDER_KEYS.items():
            numbers = ", ".join(map(str, keys))
            table = DeltaTable(self.folder / "tables" / name)
            between = f"{column} >= {keys[0]} AND {column} <= {keys[-1]}"
            report = table.delete(f"{between} AND {column} IN ({numbers})")
            deleted += int(report["num_deleted_rows"])
        return deleted

    def _rows(self, name: str, keys: npt.NDArray[np.int64], *, is_in: bool = True) -> pa.Table:
        """Return the rows of some orders, or those of all others."""
        table = self._tables[name]
        chosen = pc.is_in(table.column(ORDER_KEYS[name]), pa.array(keys))
        return table.filter(chosen if is_in else pc.invert(chosen))


def main(
    scale: Annotated[float, typer.Option(help="1.0 for 6 million lineitems.")] = 0.1,
    refreshes: Annotated[int, typer.Option(min=1, help="Refresh functions of each kind.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure; exit status 1 if a table is wrong."""
    result = Result("tpch_refresh", CLAIM, {})
    dbsp_wcoj.warm_up()
    files = write_files(Path(tempfile.gettempdir()) / "dbsp-wcoj-tpch", scale)
    with open_run("tpch_refresh", (), seed=0, json=json) as run:
        queries = {f"q{number}": query for number, query in QUERIES.items()}
        spark = SparkRecomputation(run.start_spark(), run.folder / "spark", queries)
        result.tables[REFRESHES] = measure(run, spark, files, refreshes=refreshes)
        run.verdict.close(result, json)


def measure(
    run: PartsRun,
    recomputation: Recomputation,
    files: Path,
    *,
    refreshes: int,
    queries: Sequence[int] = tuple(QUERIES),
) -> list[Row]:
    """Refresh the views after each refresh function; return the table."""
    (run.folder / "lake").mkdir()
    lake = TpchLake(run.folder / "lake", files, refreshes, queries)
    lake.open()
    costs: dict[str, list[tuple[int, RefreshCost, float]]] = {}
    with lake.open_pipeline() as pipeline:
        first = lake.refresh(pipeline)
        recomputed = compare_targets(run, lake, recomputation, tuple(SCHEMAS), "first")
        costs["the first: all rows"] = [(first.rows_read, first, recomputed)]
        for number in range(refreshes):
            for name, change in (
                ("RF1: orders are inserted", lake.insert),
                ("RF2: orders are deleted", lake.delete),
            ):
                changed = change(number)
                cost = lake.refresh(pipeline)
                recomputed = compare_targets(
                    run, lake, recomputation, tuple(SCHEMAS), f"{name} {number}"
                )
                costs.setdefault(name, []).append((changed, cost, recomputed))
    return [_row(name, measured) for name, measured in costs.items()]


def _row(name: str, measured: list[tuple[int, RefreshCost, float]]) -> Row:
    """Return the medians of some refreshes."""
    changed, refreshes, recomputations = zip(*measured, strict=True)
    medians = medians_of(refreshes, recomputations)
    met = median(recomputations) > median(cost.whole.wall for cost in refreshes)
    return {"refresh": name, "rows changed": int(median(changed)), **medians, "met": met}


if __name__ == "__main__":
    typer.run(main)
