"""Runs a query in a process with its own JVM, which kills itself at a given point.

    python -m tests.support.crash_driver PLACE

It starts Spark, prints ``ready``, and reads a line with the point at which to die; an empty line
means never. Then it prints ``running`` and runs the files of ``PLACE/in`` through a durable sink,
one micro-batch for each file. At the end it prints ``done``. ``PLACE`` has the state, the
checkpoint and the targets, so the next process continues where this one stopped.

A point is ``call when batch``: before, during or after the first such call of that micro-batch,
where ``call`` is one of

::

    sink             the function of foreachBatch
    write_outputs    the files of the deltas
    write_data       a file of the state
    rename           the commit: the manifest gets its name
    target_<view>    the target of a view
    spark            the entry in Spark's commit log: before it, and when its file exists

At the point the whole process group receives SIGKILL, as from a kernel that is out of memory.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, compile_sql
from streaming import Output, ParquetTarget, SqlTarget, Target, ViewDelta, ViewSink, start_session
from streaming.state.files import Bytes
from streaming.state.local_files import LocalFiles
from tests.support.spark_queries import start_query
from tests.support.spark_settings import SMALL_JVM

SCHEMA = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("city", pa.string())])
VIEWS = """
    CREATE VIEW paths AS SELECT x.src, y.dst FROM link x JOIN link y ON y.src = x.dst;
    CREATE VIEW cities AS SELECT city, count(*) AS n, sum(src) AS total FROM link GROUP BY city;
    CREATE VIEW far AS SELECT dst, city FROM link WHERE src > 4;
"""


class Point:
    """The point at which this process dies, if any."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self.call, self.when = (words[0], words[1]) if words else ("", "")
        self.death_batch = int(words[2]) if words else -1
        self.batch = -1  # the current micro-batch

    def is_here(self, call: str, when: str) -> bool:
        return (call, when, self.batch) == (self.call, self.when, self.death_batch)

    def reach(self, call: str, when: str) -> None:
        if self.is_here(call, when):
            die()


def die() -> None:
    os.killpg(0, signal.SIGKILL)
    time.sleep(60)  # until the signal arrives, this thread must do nothing


class DyingFiles(LocalFiles):
    """A state directory in which a given call kills the process."""

    def __init__(self, location: Path, point: Point) -> None:
        super().__init__(location)
        self._point = point

    def write(self, name: str, chunks: Sequence[Bytes]) -> None:
        call = f"write_{name.partition('/')[0]}"
        self._point.reach(call, "before")
        if self._point.is_here(call, "during"):
            (chunk,) = chunks
            super().write(name, [memoryview(chunk)[: memoryview(chunk).nbytes // 2]])
            die()
        super().write(name, chunks)
        self._point.reach(call, "after")

    def rename_new(self, old: str, new: str) -> None:
        is_commit = new.startswith("manifests/")
        if is_commit:
            self._point.reach("rename", "before")
        super().rename_new(old, new)
        if is_commit:
            self._point.reach("rename", "after")


class DyingTarget:
    """Writes a delta to several targets; the process dies before, between or after them."""

    def __init__(self, targets: Sequence[Target], point: Point) -> None:
        self._targets = targets
        self._point = point

    def write(self, delta: ViewDelta) -> None:
        self._point.reach(f"target_{delta.view}", "before")
        for target in self._targets:
            target.write(delta)
            self._point.reach(f"target_{delta.view}", "during")
        self._point.reach(f"target_{delta.view}", "after")


def changes_in(place: Path, session: SparkSession) -> DataFrame:
    """The files of ``in``, one in a micro-batch."""
    return (
        session.readStream.schema("src long, dst long, city string, weight long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(place / "in"))
    )


def views(**options: Any) -> Circuit:
    return compile_sql(VIEWS, {"link": SCHEMA}, materialize=True, **options)


def sink_of(place: Path, point: Point) -> ViewSink:
    lake = ParquetTarget(place / "lake" / "{view}")
    database = SqlTarget(lambda: sqlite3.connect(place / "views.db"))

    def on_delta(frame: Any, batch_id: int) -> None:
        point.reach("target_far", "before")
        line = json.dumps([batch_id, sorted(map(list, frame.collect()), key=str)])
        with (place / "calls.jsonl").open("a") as file:
            file.write(f"\n{line}\n")
        point.reach("target_far", "after")

    dying_target = DyingTarget([lake, database], point)
    return ViewSink(
        views(),
        [
            Output("paths", dying_target),
            Output("cities", dying_target, mode="upsert", keys=["city"]),
            Output("far", on_delta),
        ],
        state_dir=DyingFiles(place / "state", point),
    )


def with_points(sink: Callable[[Any, int], None], point: Point) -> Callable[[Any, int], None]:
    """Return the function of foreachBatch: the sink, with a point before and after it."""

    def run(df: Any, batch_id: int) -> None:
        point.batch = batch_id
        point.reach("sink", "before")
        sink(df, batch_id)
        point.reach("spark", "before")

    return run


def watch_commits(place: Path, point: Point) -> None:
    """Die when Spark has written the micro-batch to its commit log."""
    if (point.call, point.when) != ("spark", "after"):
        return
    entry = place / "checkpoint" / "commits" / str(point.death_batch)

    def watch() -> None:
        while not entry.exists():
            time.sleep(0.0005)
        die()

    threading.Thread(target=watch, daemon=True).start()


def main(place: Path) -> None:
    session = start_session(
        "crash",
        cores=1,
        memory="512m",
        log=place / f"spark-{os.getpid()}.log",
        settings=SMALL_JVM,
    )
    print("ready", flush=True)
    point = Point(sys.stdin.readline())
    watch_commits(place, point)
    sink = sink_of(place, point)
    query = start_query(changes_in(place, session), with_points(sink, point), place / "checkpoint")
    print("running", flush=True)
    query.awaitTermination()
    sink.close()
    print("done", flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
