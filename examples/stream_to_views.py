"""A stream that is written into views by a data source, and read by another part of the program.

Orders arrive as files. A query with ``writeStream.format("dbsp_wcoj")`` writes them into the input
of a view, without a function of Python. It is stopped and started again. A reader sees the view,
and the changes of each version.

::

    pip install '.[spark]'    # in the checkout
    python examples/stream_to_views.py
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streaming import ViewDataSource, start_session

VIEWS = """
CREATE TABLE orders (nr BIGINT, city STRING);
CREATE VIEW cities AS SELECT city, count(*) AS orders FROM orders GROUP BY city;
"""
CITIES = ["Aachen", "Basel", "Ghent", "Lyon", "Turin"]


def main() -> None:
    """Write two parts of a stream, and compare the view with counts in Python."""
    spark = start_session("stream to views")
    spark.dataSource.register(ViewDataSource)
    rng = random.Random(3)
    expected: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(2):
            cities = [rng.choice(CITIES) for _ in range(100)]
            expected.update(cities)
            orders = pa.table({"nr": list(range(100)), "city": cities})
            pq.write_table(orders, folder / "in" / f"{number}.parquet")
            write(spark, folder)
            assert read(spark, folder) == expected
        changes = spark.read.format("dbsp_wcoj").option("readChangeFeed", "true")
        changes.option("view", "cities").load(str(folder / "state")).show()
    print(f"The view has the counts of {sum(expected.values())} orders.")


def write(spark: SparkSession, folder: Path) -> None:
    """Write the new files into the input, then stop."""
    stream = spark.readStream.schema("nr long, city string").parquet(str(folder / "in"))
    writer = stream.writeStream.format("dbsp_wcoj").option("state", str(folder / "state"))
    writer = writer.option("views", VIEWS).option("dialect", "spark")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def read(spark: SparkSession, folder: Path) -> Counter[str]:
    """Return the rows of the view."""
    rows = spark.read.format("dbsp_wcoj").option("view", "cities").load(str(folder / "state"))
    return Counter({row.city: row.orders for row in rows.collect()})


if __name__ == "__main__":
    main()
