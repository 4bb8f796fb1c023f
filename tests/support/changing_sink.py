"""A sink of edges whose views are changed, and targets that record what they receive."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from circuits import InputOptions, compile_sql
from streaming import ViewSink
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

E = {"e": "src bigint not null, dst bigint not null, name string"}
SCHEMA = pa.schema({"src": pa.int64(), "dst": pa.int64(), "name": pa.string()})
KEEP = {"e": InputOptions(keep="all")}
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
COUNTS = "CREATE VIEW counts AS SELECT name, count(*) AS n FROM e GROUP BY name;"
BATCHES = [
    [(1, 2, "a"), (2, 3, "b")],
    [(3, 1, "c")],
    [(2, 4, "d"), (1, 2, "a")],
    [(4, 4, None)],
    [(9, 9, "z")],
]


class Target:
    """A target that records its micro-batches; the first ``fails`` writes raise an error."""

    def __init__(self, fails: int = 0) -> None:
        self.batches: dict[int, Counter] = {}
        self.fails = fails

    def write(self, delta) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("no answer")
        bag = bag_of(delta.table)
        assert self.batches.setdefault(delta.batch_id, bag) == bag

    @property
    def rows(self) -> Counter:
        total: Counter = Counter()
        for bag in self.batches.values():
            total.update(bag)
        return Counter({row: weight for row, weight in total.items() if weight})


class ReplacingTarget(Target):
    """A target in which a whole view replaces the earlier rows."""

    replaces_views = True

    def __init__(self) -> None:
        super().__init__()
        self.previous: dict[int, int | None] = {}

    def write(self, delta) -> None:
        if delta.is_whole and delta.batch_id not in self.batches and not self.fails:
            self.batches.clear()
        super().write(delta)
        self.previous[delta.batch_id] = delta.previous


def make_sink(text=PATHS, target=None, state_dir=None, **options) -> ViewSink:
    circuit = compile_sql(text, E, input_options=KEEP, **options)
    return ViewSink(circuit, target, state_dir=state_dir)


def table_of(*numbers: int) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for n in numbers for row in BATCHES[n]]
    return pa.Table.from_pylist(rows, SCHEMA)


def feed(sink: ViewSink, *numbers: int) -> None:
    for number in numbers:
        sink(Frame(table_of(number)), number)


def expected(text: str, *numbers: int) -> dict[str, Counter]:
    tables = compile_sql(text, E).step({"e": table_of(*numbers)})
    return {name: bag_of(table) for name, table in tables.items()}


def more_rows(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"src": number, "dst": number + 1, "name": "m"}], SCHEMA)


def feed_more(sink: ViewSink, number: int) -> None:
    sink(Frame(more_rows(number)), number)
