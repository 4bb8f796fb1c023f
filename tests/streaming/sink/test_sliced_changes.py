"""New views are computed and published in slices while the sink runs."""

from __future__ import annotations

from unittest.mock import Mock

import pyarrow as pa
import pytest

from circuits import (
    Circuit,
    EvaluationError,
    ProgramChangeError,
    SqlError,
    compile_sql,
)
from circuits.state.sliced_backfill import SlicedBackfill
from dbsp_wcoj.storage.trace_cursor import TraceCursor
from streaming import (
    BatchOrderError,
    ChangeOptions,
    Output,
    StateError,
    ViewSink,
    stored_circuit,
)
from streaming.engine.engine import Engine
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from streaming.state.memory_store import InMemoryStore
from streaming.state.records.early_state import EarlyState
from streaming.state.store import Store
from streaming.state.writable_directory import WritableDirectory
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import (
    COUNTS,
    PATHS,
    SCHEMA,
    E,
    ReplacingTarget,
    Target,
    expected,
    feed,
    feed_more,
    make_sink,
    more_rows,
    table_of,
)
from tests.support.tables import bag_of


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


def test_a_view_in_slices_is_published_when_it_has_all_rows(state_dir):
    paths, counts = Target(), Target()
    sink = make_sink(target=paths, state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, counts, change=ChangeOptions(rows_per_batch=2))
    assert (sink.backfill.views, sink.backfill.rows_read) == (("counts",), 0)
    feed(sink, 2)
    assert sink.backfill.rows_read == 2
    assert sink.last.outputs.keys() == {"paths"}
    feed(sink, 3)
    assert sink.backfill.rows_read == 4
    number = 4
    while sink.backfill is not None:
        feed_more(sink, number)
        number += 1
    assert not committed.done()
    assert not counts.batches
    feed_more(sink, number)
    feed_more(sink, number + 1)
    assert committed.result(0) == number
    assert min(counts.batches) == number
    tables = [*(table_of(n) for n in range(4)), *map(more_rows, range(4, number + 2))]
    rows = {"e": pa.concat_tables(tables)}
    for view, table in compile_sql(PATHS + COUNTS, E).step(rows).items():
        assert {"paths": paths, "counts": counts}[view].rows == bag_of(table), view


def test_a_limit_of_seconds_gives_at_least_one_slice_to_each_micro_batch(state_dir):
    counts = Target()
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    sink.add_view(COUNTS, counts, change=ChangeOptions(seconds_per_batch=1e-9))
    feed(sink, 2)
    assert sink.backfill is None  # the first slice has more rows than there are
    feed(sink, 3)
    assert counts.rows == expected(COUNTS, *range(4))["counts"]


def test_other_changes_wait_for_the_slices(state_dir):
    counts, ends = Target(), Target()
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    slow = ChangeOptions(rows_per_batch=2)
    futures = [
        sink.add_view(COUNTS, counts, change=slow),
        sink.add_view("SELECT name FROM counts", ends, name="names"),
        sink.drop_view("paths"),
    ]
    with pytest.raises(SqlError):
        sink.add_view("SELECT nothing FROM names", name="bad")
    number = 2
    while sink.backfill is not None:
        feed_more(sink, number)
        number += 1
    feed_more(sink, number)
    assert [future.result(0) for future in futures] == [number] * 3
    assert list(sink.circuit.plans) == ["counts", "names"]


def test_cancelling_the_future_ends_the_slices(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, change=ChangeOptions(rows_per_batch=1))
    feed(sink, 2)
    assert committed.cancel()
    feed(sink, 3)
    assert sink.backfill is None
    assert list(sink.circuit.plans) == ["paths"]
    sink.add_view(COUNTS)
    feed(sink, 4)
    assert list(sink.last.outputs) == ["paths", "counts"]


def test_an_error_in_a_slice_leaves_the_views_as_they_are(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0)
    text = "SELECT 9223372036854775805 + src AS x FROM e"
    committed = sink.add_view(text, name="x", change=ChangeOptions(rows_per_batch=10))
    feed(sink, 1, 2)
    with pytest.raises(EvaluationError):
        committed.result(0)
    assert sink.backfill is None
    feed(sink, 3)
    assert list(sink.last.outputs) == ["paths"]


def test_the_slices_begin_again_if_the_state_is_loaded_again(tmp_path):
    counts, paths = Target(), Target()
    sink = make_sink(target=paths, state_dir=tmp_path)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, counts, change=ChangeOptions(rows_per_batch=2))
    feed(sink, 2)
    sink.close()
    assert sink.backfill is None
    feed(sink, 3)  # loads the state again
    assert 0 < sink.backfill.rows_read <= 2
    paths.fails = 1
    with pytest.raises(OSError, match="no answer"):
        feed(sink, 4)  # is committed, and its slice is done
    feed(sink, 4)
    number = 5
    while sink.backfill is not None:
        feed_more(sink, number)
        number += 1
    feed_more(sink, number)
    assert committed.result(0) == number
    tables = [*(table_of(n) for n in range(5)), *map(more_rows, range(5, number + 1))]
    (table,) = compile_sql(COUNTS, E).step({"e": pa.concat_tables(tables)}).values()
    assert counts.rows == bag_of(table)


def test_the_slices_begin_again_after_an_interrupt_in_a_slice(state_dir, monkeypatch):
    counts = Target()
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, counts, change=ChangeOptions(rows_per_batch=1))
    feed(sink, 2)
    next_rows = TraceCursor.next_rows

    def interrupt(cursor, max_rows):
        next_rows(cursor, max_rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TraceCursor, "next_rows", interrupt)
        feed(sink, 3)  # is committed, and its slice is lost
    feed(sink, 3)
    number = 4
    while sink.backfill is not None:
        sink(Frame(table_of()), number)
        number += 1
    feed_more(sink, number)
    assert committed.result(0) == number
    tables = [*map(table_of, range(4)), more_rows(number)]
    (table,) = compile_sql(COUNTS, E).step({"e": pa.concat_tables(tables)}).values()
    assert counts.rows == bag_of(table)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (SlicedBackfill, "finish"),
        (Circuit, "end"),
        (Circuit, "adopt"),
        (Engine, "finish_backfill"),
        (Store, "change_views"),
        (InMemoryStore, "change_views"),
        (ViewSink, "finish_change"),
    ],
)
def test_an_interrupt_while_the_views_change_loses_nothing(
    owner, name, after, state_dir, monkeypatch
):
    if owner is (Store if state_dir is None else InMemoryStore):
        return
    counts, paths = Target(), Target()
    sink = make_sink(target=paths, state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, counts, change=ChangeOptions(rows_per_batch=100))
    call = getattr(owner, name)

    def interrupt(*args, **options):
        if after:
            call(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, interrupt)
        feed(sink, 2)  # is committed
    try:
        feed(sink, 2)
    except BatchOrderError as error:
        assert state_dir is None
        assert "change of the views failed" in str(error)
        return
    number = 3
    while not committed.done():
        assert number < 8
        feed_more(sink, number)
        number += 1
    assert committed.result(0) == number - 1
    tables = [*map(table_of, range(3)), *map(more_rows, range(3, number))]
    rows = {"e": pa.concat_tables(tables)}
    for view, table in compile_sql(PATHS + COUNTS, E).step(rows).items():
        assert {"paths": paths, "counts": counts}[view].rows == bag_of(table), view


def test_an_error_of_a_change_at_once_is_raised_to_the_caller(monkeypatch):
    sink = make_sink()
    empty = Frame(table_of())
    sink(empty, 0)
    slow = ChangeOptions(rows_per_batch=1)
    text = "CREATE VIEW named AS SELECT src FROM paths;"

    def fail(backfill):
        raise ProgramChangeError("the rows do not fit")

    with monkeypatch.context() as patch:
        patch.setattr(SlicedBackfill, "is_complete", True)
        patch.setattr(SlicedBackfill, "finish", fail)
        with pytest.raises(ProgramChangeError, match="do not fit"):
            sink.add_view(text, change=slow)
    assert sink.backfill is None
    sink(empty, 1)
    assert list(sink.last.outputs) == ["paths"]


@pytest.mark.parametrize("way", ["close", "kill", "before", "after", "interrupt", "two changes"])
def test_the_slices_begin_again_if_the_change_is_made_but_not_committed(way, tmp_path, monkeypatch):
    edges, names = ReplacingTarget(), ReplacingTarget()
    sink = make_sink(state_dir=tmp_path)
    feed(sink, *range(4))
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    futures = [sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))]
    number = 4
    while sink.backfill is not None:
        feed_more(sink, number)
        number += 1
    assert not futures[0].done()
    if way == "two changes":
        futures.append(sink.add_view("CREATE VIEW names AS SELECT name FROM edges, e", names))
    if way == "kill":
        del sink  # without `close`; the program of the directory has no new view
        assert list(stored_circuit(tmp_path).plans) == ["paths"]
        sink = make_sink(state_dir=tmp_path)
        sink(Frame(more_rows(number - 1)), number - 1)  # a replay
        futures = [sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))]
    elif way in ("close", "two changes"):
        sink.close()
        assert sink.table("e").num_rows == 5 + number - 4
    else:
        commit = WritableDirectory.commit

        def fail(*arguments):
            if way == "after":
                commit(*arguments)
            raise KeyboardInterrupt if way == "interrupt" else OSError("no answer")

        with monkeypatch.context() as patch, pytest.raises((StateError, KeyboardInterrupt)):
            patch.setattr(WritableDirectory, "commit", fail)
            feed_more(sink, number)
    last = number
    feed_more(sink, number)
    while not all(future.done() for future in futures):
        number += 1
        assert number < 60
        sink(Frame(table_of()), number)
    assert all(bag.total() <= 4 for bag in edges.batches.values()), edges.batches
    assert len(edges.batches) > 3
    tables = [*map(table_of, range(4)), *map(more_rows, range(4, last + 1))]
    rows = {"e": pa.concat_tables(tables)}
    assert edges.rows == bag_of(*compile_sql(text, E).step(rows).values())
    if way == "two changes":
        both = f"{text}; CREATE VIEW names AS SELECT name FROM edges, e;"
        assert names.rows == bag_of(compile_sql(both, E).step(rows)["names"])
    sink.close()


def test_the_bytes_of_a_micro_batch_include_those_of_its_slice(tmp_path, monkeypatch):
    written = []
    write = LocalFiles.write

    def count(files, name, chunks):
        chunks = list(chunks)
        if name.startswith(("data/", "outputs/", "manifests/")):
            written.append(sum(memoryview(chunk).nbytes for chunk in chunks))
        write(files, name, chunks)

    monkeypatch.setattr(LocalFiles, "write", count)
    text = "CREATE VIEW twos AS SELECT x.name, y.src FROM e x JOIN e y ON x.dst = y.dst"
    sink = make_sink(COUNTS, state_dir=tmp_path)
    rows = [{"src": n, "dst": n // 2, "name": f"name {n}"} for n in range(300)]
    sink(Frame(pa.Table.from_pylist(rows, SCHEMA)), 0)
    committed = sink.add_view(text, change=ChangeOptions(rows_per_batch=100))
    number = 0
    while not committed.done():
        number += 1
        assert number < 40
        written.clear()
        sink(Frame(table_of()), number)
        assert sink.metrics[-1].bytes_written == sum(written), number
        assert sink.metrics[-1].bytes_added <= sum(written), number
    assert number > 3


def test_the_state_of_the_new_view_is_written_in_slices(tmp_path):
    text = "CREATE VIEW twos AS SELECT x.name, y.src FROM e x JOIN e y ON x.dst = y.dst"
    sink = make_sink(COUNTS, state_dir=tmp_path)
    rows = [{"src": n, "dst": n // 2, "name": f"name {n}"} for n in range(3000)]
    sink(Frame(pa.Table.from_pylist(rows, SCHEMA)), 0)
    edges = ReplacingTarget()
    committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=500))
    number = 1
    while not committed.done():
        assert number < 40
        sink(Frame(table_of()), number)
        number += 1
    manifest = read_manifest(LocalFiles(str(tmp_path)), number - 1)
    new_bytes = sum(
        reference.size
        for orders in manifest.traces.values()
        for references in orders.values()
        for reference in references
    )
    assert sink.metrics[-1].bytes_written < new_bytes / 4
    sink.close()
    again = ViewSink(stored_circuit(tmp_path), [Output("twos", edges)], state_dir=tmp_path)
    feed_more(again, number)
    tables = {"e": pa.concat_tables([pa.Table.from_pylist(rows, SCHEMA), more_rows(number)])}
    (table,) = compile_sql(text, E).step(tables).values()
    assert edges.rows == bag_of(table)
    again.close()


def test_a_disk_that_is_full_in_a_slice_delays_the_state_to_the_change(tmp_path, monkeypatch):
    edges = ReplacingTarget()
    sink = make_sink(state_dir=tmp_path)
    feed(sink, *range(4))
    text = "CREATE VIEW loops AS SELECT x.src FROM e x JOIN e y ON x.dst = y.dst"
    committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=3))
    monkeypatch.setattr(EarlyState, "_state_of", Mock(side_effect=OSError(28, "full")))
    number = 4
    while not committed.done():
        assert number < 40
        feed_more(sink, number)
        number += 1
    sink.close()
    tables = [*map(table_of, range(4)), *map(more_rows, range(4, number))]
    (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
    assert edges.rows == bag_of(table)


def test_limits_are_positive():
    for limit in (0, -3, 2.5, "7", True, float("nan")):
        with pytest.raises(StateError, match=r"rows_per_batch=.*: give a positive whole number"):
            ChangeOptions(rows_per_batch=limit)
    with pytest.raises(StateError, match="seconds_per_batch"):
        ChangeOptions(seconds_per_batch=-1)
    with pytest.raises(StateError, match="seconds_per_batch='1 s': give a positive number"):
        ChangeOptions(seconds_per_batch="1 s")
