"""The writer without a compactor, as cells use it, merges at most one large run in a step."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

from circuits import compile_sql
from streaming import StateDamagedError, ViewSink
from streaming.state import store, writer
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import Manifest, manifest_name
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

LINK = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
SQL = "SELECT x.src, y.dst FROM link x JOIN link y ON y.src = x.dst WHERE x.src < 0"
BATCHES = 200
ROWS = 4
LARGE = 30 * ROWS


def test_large_merges_that_are_due_together_are_done_in_different_steps(tmp_path):
    sink = ViewSink(compile_sql(SQL, {"link": LINK}, materialize=True), state_dir=tmp_path)
    max_merges, max_parts, merges = 0, 0, 0
    before: dict = {}
    with (
        patch.object(writer, "MAX_SMALL_MERGE_ROWS", LARGE),
        patch.object(store, "Writer", without_compactor),
    ):
        for batch in range(BATCHES):
            sources = [ROWS * batch + n for n in range(ROWS)]
            sink(Frame(pa.table({"src": sources, "dst": sources}), "q"), batch)
            name = manifest_name(batch)
            traces = Manifest.decode((tmp_path / name).read_bytes(), name).traces
            parts = {(trace, order): p for trace, o in traces.items() for order, p in o.items()}
            merged = [key for key, p in parts.items() if has_large_merge(before.get(key, ()), p)]
            before = parts
            merges += len(merged)
            max_merges = max(max_merges, len(merged))
            max_parts = max(max_parts, *map(len, parts.values()))
    assert merges > len(parts)
    assert max_merges == 1
    assert max_parts <= 7 * 4 + len(parts)
    sink.close()
    sink = ViewSink(compile_sql(SQL, {"link": LINK}, materialize=True), state_dir=tmp_path)
    assert bag_of(sink.table("link")) == {(n, n): 1 for n in range(ROWS * BATCHES)}


def without_compactor(files, before, stem, compactor):
    return writer.Writer(files, before, stem)


def has_large_merge(before, after):
    """Return whether the parts that a step replaced have more rows than ``LARGE``."""
    return sum(part.rows for part in before if part not in after) > LARGE


def test_undo_removes_all_files_that_it_can(tmp_path):
    class DamagedFiles(LocalFiles):
        def remove(self, name):
            if name == "outputs/a":
                raise StateDamagedError("outputs is a file")
            super().remove(name)

    files = DamagedFiles(tmp_path)
    attempt = writer.Writer(files, None, "data/0")
    for name in ("data/a", "outputs/a", "data/b"):
        attempt.write(name, b"content")
    attempt.undo()
    assert files.names("data") == [] and files.names("outputs") == ["outputs/a"]
