"""Recursive views in a durable sink: crashes, restarts and replays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from streaming import RowError, ViewSink
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, bag_of, table_of

VIEWS = """
    CREATE VIEW reach AS
        WITH RECURSIVE tc(src, dst) AS (
            SELECT src, dst FROM e UNION SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst
        ) SELECT src, dst FROM tc;
    CREATE VIEW many AS SELECT src, count(*) AS n FROM reach GROUP BY src;
"""
# Each edge is deleted four micro-batches after its insertion, also those of cycles.
EDGES = [(n % 5, (3 * n + 1) % 7) for n in range(16)]


def circuit(**options: Any) -> Circuit:
    return compile_sql(VIEWS, {"e": EDGE}, materialize=True, **options)


def batch(number: int) -> pa.Table:
    rows = [(EDGES[number], 1), *([(EDGES[number - 4], -1)] if number >= 4 else [])]
    return table_of(EDGE, [row for row, _ in rows], [weight for _, weight in rows])


def expected(batches: int) -> Counter:
    graph = nx.DiGraph(EDGES[max(0, batches - 4) : batches])
    return Counter((a, b) for a in graph for c in graph[a] for b in {c} | nx.descendants(graph, c))


class RecordingTarget:
    """A target that adds up the deltas of each view; a replay must repeat its delta."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[str, Counter]] = {}

    def write(self, delta: Any) -> None:
        bags = self.batches.setdefault(delta.batch_id, {})
        assert bags.setdefault(delta.view, bag_of(delta.table)) == bag_of(delta.table)

    def total(self, view: str) -> Counter:
        total: Counter = Counter()
        for bags in self.batches.values():
            total.update(bags.get(view, {}))
        return Counter({row: n for row, n in total.items() if n})


def test_a_recursive_view_survives_restarts_and_replays(tmp_path):
    target = RecordingTarget()
    for number in range(len(EDGES)):
        sink = ViewSink(circuit(), target, state_dir=tmp_path)
        for batch_id in (max(0, number - 1), number):  # first a replay of the last one
            sink(Frame(batch(batch_id), "q"), batch_id)
        assert bag_of(sink.table("reach")) == expected(number + 1) == target.total("reach")
        sink.close()


def test_a_recursion_without_end_is_refused_and_the_state_stays_usable(tmp_path):
    text = VIEWS.replace("UNION SELECT", "UNION ALL SELECT")
    circuit_with_limit = compile_sql(text, {"e": EDGE}, materialize=True, max_iterations=30)
    sink = ViewSink(circuit_with_limit, RecordingTarget(), state_dir=tmp_path)
    sink(Frame(table_of(EDGE, [(1, 2), (2, 3)], [1, 1]), "q"), 0)
    with pytest.raises(RowError, match=r"view .reach.: the recursion of .tc. still changes"):
        sink(Frame(table_of(EDGE, [(3, 1)], [1]), "q"), 1)
    sink(Frame(table_of(EDGE, [(3, 4)], [1]), "q"), 1)
    result = bag_of(sink.table("reach"))
    sink.close()
    restarted = ViewSink(
        compile_sql(text, {"e": EDGE}, materialize=True), RecordingTarget(), state_dir=tmp_path
    )
    restarted(Frame(table_of(EDGE, [(3, 4)], [1]), "q"), 1)
    assert bag_of(restarted.table("reach")) == result
    assert result == Counter({(a, b): 1 for a in range(1, 5) for b in range(a + 1, 5)})
    restarted.close()
