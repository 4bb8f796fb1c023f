"""A table in a data lake that follows a stream through a crash: Delta Lake, or else Parquet.

The sales are files; the view is the turnover of each shop. The target writes it in mode ``upsert``:
a Delta table is merged, so every reader sees the current row of each shop; Parquet files are a log
of upserts. After some micro-batches the job fails inside ``foreachBatch``. It starts again with the
same state directory and checkpoint, and no sale is lost or counted twice.

::

    pip install '.[sinks]'    # in the checkout; for Delta Lake
    python examples/lake_table.py
"""

from __future__ import annotations

import importlib.util
import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from circuits import compile_sql
from streaming import DeltaTarget, Output, ParquetTarget, ViewSink, start_session

SHOPS = ["Aachen", "Basel", "Ghent", "Lyon", "Turin"]
FILES, FAILING_BATCH = 12, 7


def main() -> None:
    """Run the stream, fail, start again, and compare the table with the files."""
    spark = start_session("lake table")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        expected = write_sales(directory / "in")
        try:
            run(spark, directory, fail_at=FAILING_BATCH)
        except StreamingQueryException:
            print(f"The job broke down in micro-batch {FAILING_BATCH}. The table then:")
            show(directory / "lake")
        run(spark, directory)
        print("Started again, to the end:")
        totals = show(directory / "lake")
        assert totals == expected, f"the table has {totals}, the files {expected}"
        print(f"Equal to the sum of all {FILES} files.")


def run(spark: SparkSession, directory: Path, fail_at: int | None = None) -> None:
    """Run the query until it has read all files, or it fails."""
    sales = pa.schema({"shop": pa.string(), "cents": pa.int64()})
    circuit = compile_sql(
        "SELECT shop, count(*) AS sales, sum(cents) AS cents FROM sales GROUP BY shop",
        {"sales": sales},
        name="turnover",
        materialize=["turnover"],
    )
    has_delta_lake = importlib.util.find_spec("deltalake") is not None
    location = str(directory / "lake")
    target = DeltaTarget(location) if has_delta_lake else ParquetTarget(location)
    sink = ViewSink(
        circuit,
        [Output("turnover", target, mode="upsert", keys=["shop"])],
        state_dir=directory / "state",
    )

    def step(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        if batch_id == fail_at:  # the worst time: all is written, but Spark has not committed it
            raise OSError("the power is gone")

    query = (
        spark.readStream.schema("shop string, cents long, weight long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / "in"))
        .writeStream.foreachBatch(step)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        sink.close()


def write_sales(directory: Path) -> dict[str, tuple[int, int]]:
    """Write sales, and later returns of some of them (weight -1); return the totals by shop."""
    rng = random.Random(2)
    directory.mkdir()
    sales: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    sold: list[tuple[str, int]] = []
    for number in range(FILES):
        rows = [(rng.choice(SHOPS), rng.randrange(100, 10_000), 1) for _ in range(200)]
        returned = [sold.pop(rng.randrange(len(sold))) for _ in range(20) if sold]
        sold += [(shop, price) for shop, price, _ in rows]
        rows += [(shop, price, -1) for shop, price in returned]
        for shop, price, weight in rows:
            sales[shop] += weight
            cents[shop] += weight * price
        columns = dict(zip(("shop", "cents", "weight"), zip(*rows, strict=True), strict=True))
        pq.write_table(pa.table(columns), directory / f"{number:03}.parquet")
        os.utime(directory / f"{number:03}.parquet", (number, number))
    return {shop: (sales[shop], cents[shop]) for shop in SHOPS}


def show(folder: Path) -> dict[str, tuple[int, int]]:
    """Print the table as other readers see it; return sales and cents by shop."""
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        table = DeltaTable(str(folder))
        rows = pa.table(table.to_pyarrow_table()).to_pylist()
        print(f"  Delta table, version {table.version()}")
    else:
        log = sorted(pq.read_table(folder).to_pylist(), key=lambda row: row["batch_id"])
        rows = list({row["shop"]: row for row in log}.values())  # the last of each key
        print(f"  Parquet log of {len(log)} upserts")
    for row in sorted(rows, key=lambda row: row["shop"]):
        print(f"  {row['shop']:8}{row['sales']:6,} sales {row['cents'] / 100:12,.2f}")
    return {row["shop"]: (row["sales"], row["cents"]) for row in rows}


if __name__ == "__main__":
    main()
