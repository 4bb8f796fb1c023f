"""Deletions of rows that were never inserted: a sink counts them and warns once."""

from __future__ import annotations

import json
import logging

from circuits import compile_sql
from streaming import ViewSink
from tests.circuits.inputs.test_missing_deletions import JOINED, E, table_of
from tests.streaming.sink.test_view_sink import Frame


def test_a_sink_counts_missing_deletions_in_its_metrics_and_warns_once(tmp_path, caplog):
    sink = ViewSink(compile_sql(JOINED, E), None, state_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        sink(Frame(table_of([(1, 2, 1)]), "q"), 0)
        assert "more often" not in caplog.text
        for number in (1, 2):
            sink(Frame(table_of([(7, number, -1), (8, number, -1)]), "q"), number)
        sink(Frame(table_of([(7, 2, -1)]), "q"), 2 + 1)
    assert [metric.missing_deletions["e"] for metric in sink.metrics] == [0, 2, 2, 1]
    assert caplog.text.count("input 'e': micro-batch 1 deletes 2 rows more often") == 1
    assert caplog.text.count("more often than they were inserted") == 1
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["missing_deletions"] == {"e": 2}
    sink(Frame(table_of([(7, 2, -1)]), "q"), 3)
    assert sink.metrics[-1].replayed and sink.metrics[-1].missing_deletions == {}
