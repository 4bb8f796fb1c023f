"""Runs a query in Spark Connect: a client process, and a server that runs the sink.

    python -m tests.support.connect_driver PLACE [FEED]

It runs the files of ``PLACE/in`` through a durable sink that is pickled to the server, and then the
events in ``FEED/in``, if it is given, because a server takes long to start. It prints, as a line of
JSON, what the client sees: the rows of a view, read from the state directory, and the error of a
query, if any.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming import Output, ParquetTarget, ViewSink
from streaming.java import use_java
from streaming.session import SETTINGS
from tests.support.connect_feed_driver import run_feed
from tests.support.crash_driver import changes_in, views
from tests.support.spark_queries import start_query
from tests.support.spark_settings import SMALL_JVM


def session_of(place: Path) -> SparkSession:
    """Start a server and a client on this machine."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.remote("local[1]")
    static = ("spark.driver.", "spark.ui.", "spark.sql.streaming.checkpointFileManagerClass")
    for key, value in {**SETTINGS, **SMALL_JVM}.items():
        if key.startswith(static):
            builder = builder.config(key, value)
    return builder.config("spark.local.dir", str(place / "spark")).getOrCreate()


def main(place: Path, feed_place: Path | None = None) -> None:
    session = session_of(place)
    sink = ViewSink(
        views(),
        [
            Output("paths", ParquetTarget(place / "lake" / "{view}")),
            Output(
                "far",
                lambda frame, batch_id: frame.write.mode("overwrite").parquet(
                    str(place / "far" / str(batch_id))
                ),
            ),
        ],
        state_dir=place / "state",
        checkpoint=str(place / "checkpoint"),
    )
    error = ""
    try:
        start_query(changes_in(place, session), sink, place / "checkpoint").awaitTermination()
    except PySparkException as raised:
        error = str(raised)
    rows = [] if error else [list(row) for row in sink.view("cities", session).collect()]
    try:
        if feed_place is not None:
            run_feed(feed_place, session)
    except PySparkException as raised:
        error += str(raised)
    print(json.dumps({"cities": rows, "error": error}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
