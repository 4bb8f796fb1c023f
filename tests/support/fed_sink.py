"""Runs a sink on the real disk without Spark, and computes the expected views."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from circuits import Circuit, compile_sql
from streaming import ViewSink
from tests.oracles.naive_plan import sum_weights
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of, table_of

LINK = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("city", pa.string())])
VIEWS = """
    CREATE VIEW paths AS SELECT x.src, y.dst FROM link x JOIN link y ON y.src = x.dst;
    CREATE VIEW cities AS SELECT city, count(*) AS n FROM link GROUP BY city;
"""
# Each micro-batch has a new city, so each adds to the dictionary of strings as well.
ROWS = [[(n % 5, (3 * n + 1) % 5, f"city {n}"), (n % 3, n % 4, "Ulm")] for n in range(12)]


def views(**options: Any) -> Circuit:
    return compile_sql(VIEWS, {"link": LINK}, materialize=True, **options)


def batch(number: int) -> pa.Table:
    return table_of(LINK, ROWS[number], [1] * len(ROWS[number]))


def expected(batches: int) -> dict[str, Counter]:
    """Compute the views after the first ``batches`` micro-batches, by loops over rows."""
    rows = [row for batch in ROWS[:batches] for row in batch]
    return {
        "paths": Counter((a, d) for a, b, _ in rows for c, d, _ in rows if b == c),
        "cities": Counter(Counter(city for _, _, city in rows).items()),
    }


def delta(number: int, view: str) -> Counter:
    new, old = expected(number + 1)[view], expected(number)[view]
    return sum_weights([*new.items(), *((row, -n) for row, n in old.items())])


class CheckingTarget:
    """A target that checks each delta, and records the numbers of the micro-batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def write(self, written: Any) -> None:
        assert bag_of(written.table) == delta(written.batch_id, written.view), written
        self.batches.append(written.batch_id)


def sink_on(state_dir: Any, circuit: Circuit | None = None, **options: Any) -> ViewSink:
    return ViewSink(circuit or views(), CheckingTarget(), state_dir=state_dir, **options)


def feed(sink: ViewSink, *numbers: int, query: str | None = "q") -> None:
    for number in numbers:
        sink(Frame(batch(number), query), number)


def check(sink: ViewSink, batches: int) -> None:
    for view, bag in expected(batches).items():
        assert bag_of(sink.table(view)) == bag, view


def write_state(state_dir: Path, batches: int, **options: Any) -> None:
    """Write a state directory with the first ``batches`` micro-batches."""
    sink = sink_on(state_dir, **options)
    feed(sink, *range(batches))
    sink.close()
