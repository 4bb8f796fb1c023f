"""Runs a query in Spark Connect whose sink decodes change events.

    python -m tests.support.connect_feed_driver PLACE

It runs the lines of the files in ``PLACE/in`` as events of Debezium, and prints, as a line of JSON,
the rows of the view, the number of dead letters, and the error of the query, if any.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException

from circuits import Circuit, compile_sql
from streaming import ViewSink
from tests.support.connect_driver import session_of
from tests.support.spark_queries import start_query

ORDERS = pa.schema([pa.field("nr", pa.int64(), nullable=False), ("city", pa.string())])
VIEW = "CREATE VIEW cities AS SELECT city, count(*) AS n FROM orders GROUP BY city"


def feed_views() -> Circuit:
    return compile_sql(VIEW, {"orders": ORDERS}, materialize=True)


def main(place: Path) -> None:
    session = session_of(place)
    sink = ViewSink(
        feed_views(),
        state_dir=place / "state",
        feed="debezium",
        bad_rows="dead_letter",
        checkpoint=str(place / "checkpoint"),
    )
    error = ""
    try:
        lines = session.readStream.text(str(place / "in"))
        start_query(lines, sink, place / "checkpoint").awaitTermination()
    except PySparkException as raised:
        error = str(raised)
    session.stop()
    with closing(ViewSink(feed_views(), state_dir=place / "state")) as reader:
        rows = [] if error else reader.table("cities").select(["city", "n"]).to_pylist()
    print(json.dumps({"cities": rows, "error": error}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
