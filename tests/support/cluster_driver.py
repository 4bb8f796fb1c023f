"""Runs a distributed sink on a cluster, in a process that prints when each micro-batch begins.

    python -m tests.support.cluster_driver PLACE MASTER

It runs the files of ``PLACE/in`` through a distributed sink, one micro-batch for each file, and
writes the delta of each view to ``PLACE/out/<batch id>-<view>.parquet``. It prints ``batch <id>``
before each call of the sink, and ``done`` at the end. The driver assigns rows to cells; in every
third micro-batch executors route them. Executors are separate processes, whose Python finds the
packages by ``PYTHONPATH``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from circuits import Circuit, compile_sql
from streaming import ViewDelta, ViewSink
from streaming.distributed import pipeline
from streaming.java import use_java
from streaming.session import SETTINGS
from tests.support.spark_queries import start_query
from tests.support.spark_settings import SMALL_JVM

ROOT = Path(__file__).parents[2]
MAX_DRIVER_ROWS = pipeline.MAX_DRIVER_ROWS
SCHEMA = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
VIEWS = """
    CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW degrees AS SELECT src, count(DISTINCT dst) AS n FROM e GROUP BY src;
"""


def views() -> Circuit:
    return compile_sql(VIEWS, {"e": SCHEMA})


class FileTarget:
    """A target that writes a file for each delta."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir(exist_ok=True)

    def write(self, delta: ViewDelta) -> None:
        pq.write_table(delta.table, self._place / f"{delta.batch_id}-{delta.view}.parquet")


def session_of(
    master: str, place: Path, further: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("cluster")
    settings = {
        **SETTINGS,
        **SMALL_JVM,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "8",
        "spark.local.dir": str(place / "scratch"),
        **further,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(place: Path, master: str) -> None:
    session = session_of(master, place)
    sink = ViewSink(
        views(), FileTarget(place / "out"), state_dir=place / "state", mode="distributed", cells=4
    )

    def process_batch(frame: Any, batch_id: int) -> None:
        pipeline.MAX_DRIVER_ROWS = -1 if batch_id % 3 == 2 else MAX_DRIVER_ROWS
        print(f"batch {batch_id}", flush=True)
        sink(frame, batch_id)

    stream = (
        session.readStream.schema("src long, dst long, weight long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(place / "in"))
    )
    start_query(stream, process_batch, place / "checkpoint").awaitTermination()
    sink.close()
    print("done", flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
