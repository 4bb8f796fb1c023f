"""Memory limit: large runs are maps of the files of the state directory, with the same results."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from streaming import StateDamagedError, StateError, ViewSink
from streaming.state.local_files import LocalFiles
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import check, feed, sink_on
from tests.support.tables import bag_of, table_of

EDGE = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.int64(), False)])
TRIANGLES = (
    "SELECT x.a, y.a AS b, z.a AS c FROM e x JOIN e y ON y.a = x.b JOIN e z ON z.a = y.b "
    "AND z.b = x.a"
)
# Every part of the state is mapped.
NOTHING = 1


def arrangements(sink):
    return [
        arrangement
        for trace in sink.circuit.graph.traces.values()
        for arrangement in trace.arrangements
    ]


def edge_sink(place, **options):
    circuit = compile_sql(TRIANGLES, {"e": EDGE}, materialize=True)
    return ViewSink(circuit, state_dir=place, **options)


def count_triangles(edges):
    found = Counter()
    for (a, b), w in edges.items():
        for (c, d), v in edges.items():
            if c == b:
                found[a, b, d] += w * v * edges.get((d, a), 0)
    return Counter({row: weight for row, weight in found.items() if weight})


def test_every_run_is_mapped_after_each_commit_under_the_least_limit(tmp_path):
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    for number in range(8):
        feed(sink, number)
        check(sink, number + 1)
        runs = [run for arrangement in arrangements(sink) for run in arrangement.spine.runs]
        assert runs and all(run.is_mapped for run in runs)
        metrics = sink.metrics[-1]
        assert metrics.mapped_bytes == sum(run.nbytes for run in runs)
    sink.close()


def test_all_state_stays_in_memory_below_the_limit(tmp_path):
    sink = sink_on(tmp_path, memory_limit="1 GB")
    feed(sink, *range(6))
    check(sink, 6)
    assert not any(run.is_mapped for a in arrangements(sink) for run in a.spine.runs)
    metrics = sink.metrics[-1]
    assert metrics.mapped_bytes == 0 < metrics.heap_bytes


def test_a_restart_continues_from_files_that_were_mapped(tmp_path):
    for first in range(0, 12, 3):
        sink = sink_on(tmp_path, memory_limit=NOTHING)
        feed(sink, *range(first, first + 3))
        check(sink, first + 3)
        sink.close()


EDGES = st.tuples(st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.dictionaries(EDGES, st.sampled_from([-1, 1, 2]), max_size=6), max_size=7))
def test_views_over_mapped_runs_equal_recomputation(steps, tmp_path_factory):
    sink = edge_sink(tmp_path_factory.mktemp("state"), memory_limit=NOTHING)
    total = Counter()
    for number, step in enumerate([{(0, 1): 1, (1, 2): 1, (2, 0): 1}, *steps]):
        rows, weights = list(step), list(step.values())
        sink(Frame(table_of(EDGE, rows, weights), "q"), number)
        for row, weight in step.items():
            total[row] += weight
        assert not any(
            run.rows and not run.is_mapped for a in arrangements(sink) for run in a.spine.runs
        )
        (view,) = sink.circuit.outputs
        assert bag_of(sink.table(view)) == count_triangles(total)
    sink.close()


def test_merged_files_are_mapped_in_place_of_their_parts(tmp_path):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    random = np.random.default_rng(0)
    for number in range(40):
        rows = [tuple(row) for row in random.integers(0, 1000, (50, 2)).tolist()]
        sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
    # A level has fewer than 8 parts, so about 2,000 rows have at most 7 parts in each of 4 levels.
    assert all(len(arrangement.spine.runs) <= 28 for arrangement in arrangements(sink))
    mapped = mapped_files(tmp_path / "data")
    assert mapped
    assert not any(name.endswith("(deleted)") for name in mapped), "its space is not free"
    sink.close()


def mapped_files(folder):
    """Return the files of a folder that this process maps, as the system names them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[-1] for line in lines if str(folder) in line}


def test_a_mapped_file_that_was_cut_short_is_named_before_it_is_read(tmp_path):
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    feed(sink, *range(4))
    for path in (tmp_path / "data").iterdir():
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StateDamagedError, match="bytes, it was written with"):
        feed(sink, 4)
    sink.close()


def test_a_file_of_another_size_is_not_mapped(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"12345678")
    files = LocalFiles(tmp_path)
    assert files.map("data/a", 8).memory.tobytes() == b"12345678"
    with pytest.raises(StateDamagedError, match="8 bytes, it was written with 9"):
        files.map("data/a", 9)


def test_a_map_stays_readable_after_its_file_is_removed(tmp_path):
    (tmp_path / "a").write_bytes(b"12345678")
    memory = LocalFiles(tmp_path).map("a", 8).memory
    (tmp_path / "a").unlink()
    assert memory.tobytes() == b"12345678"


def test_runs_stay_in_memory_if_files_cannot_be_mapped(tmp_path, monkeypatch, caplog):
    def refuse(self, name, size):
        raise OSError(24, "Too many open files", name)

    monkeypatch.setattr(LocalFiles, "map", refuse)
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    feed(sink, *range(4))
    check(sink, 4)
    assert "Too many open files" in caplog.text
    sink.close()


@pytest.mark.parametrize("limit", [0, -1, "much", 1.5, True, "0"])
def test_a_limit_that_is_not_a_size_is_refused(tmp_path, limit):
    with pytest.raises(StateError, match="memory_limit="):
        sink_on(tmp_path, memory_limit=limit)


def test_a_limit_needs_files_on_a_local_disk():
    with pytest.raises(StateError, match="state_dir"):
        sink_on(None, memory_limit="1 GB")
    with pytest.raises(StateError, match="local disk"):
        sink_on("mock://bucket/state", memory_limit="1 GB")
