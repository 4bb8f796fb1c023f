"""Merges of large runs are written one per step."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

from circuits import compile_sql
from streaming import ViewSink
from streaming.state import writer
from streaming.state.manifest import Manifest, manifest_name
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

LINK = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
SQL = "SELECT x.src, y.dst FROM link x JOIN link y ON y.src = x.dst WHERE x.src < 0"
BATCHES = 200
ROWS = 4
LARGE = 30 * ROWS


def test_arrangements_that_are_due_together_are_summed_one_after_another(tmp_path):
    sink = ViewSink(compile_sql(SQL, {"link": LINK}, materialize=True), state_dir=tmp_path)
    most, longest, sums = 0, 0, 0
    before: dict = {}
    with patch.object(writer, "MAX_SHARED_MERGE_ROWS", LARGE):
        for batch in range(BATCHES):
            sources = [ROWS * batch + n for n in range(ROWS)]
            sink(Frame(pa.table({"src": sources, "dst": sources}), "q"), batch)
            name = manifest_name(batch)
            traces = Manifest.decode((tmp_path / name).read_bytes(), name).traces
            pieces = {(trace, order): p for trace, o in traces.items() for order, p in o.items()}
            summed = [key for key, p in pieces.items() if _summed(before.get(key, ()), p)]
            before = pieces
            sums += len(summed)
            most = max(most, len(summed))
            longest = max(longest, *map(len, pieces.values()))
    assert sums > len(pieces)
    assert most == 1
    assert longest <= 7 * 4 + len(pieces)
    sink.close()
    sink = ViewSink(compile_sql(SQL, {"link": LINK}, materialize=True), state_dir=tmp_path)
    assert bag_of(sink.table("link")) == {(n, n): 1 for n in range(ROWS * BATCHES)}


def _summed(before, now):
    """Return whether a piece was made of older ones with so many rows."""
    return sum(p.rows for p in before if p not in now) > LARGE
