"""Views are added to a running sink, and dropped from it, between two micro-batches."""

from __future__ import annotations

import pickle
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pytest

from circuits import (
    Circuit,
    EvaluationError,
    InputOptions,
    ProgramChangeError,
    SqlError,
    UnknownViewError,
    compile_sql,
)
from circuits.state.sliced_backfill import SlicedBackfill
from dbsp_wcoj.storage.trace_cursor import TraceCursor
from streaming import (
    BatchOrderError,
    ChangeOptions,
    DeltaTarget,
    Output,
    SqlTarget,
    StateError,
    StateMismatchError,
    StreamingError,
    TargetError,
    ViewSink,
    heartbeat,
    stored_circuit,
)
from streaming.engine.engine import Engine
from streaming.sink.frozen_objects import FROZEN_OBJECTS
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from streaming.state.memory_store import InMemoryStore
from streaming.state.records.early_state import EarlyState
from streaming.state.store import Store
from tests.oracles.naive_plan import sum_weights
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


def test_the_metrics_name_the_state_of_the_old_views_after_a_change_that_failed(
    tmp_path, monkeypatch
):
    sink = make_sink(PATHS + COUNTS, state_dir=tmp_path)
    feed(sink, 0)
    names = sink.metrics[-1].arrangements.keys()

    def fail(objects, owner):
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
        patch.setattr(type(FROZEN_OBJECTS), "release", fail)  # after the switch of the circuit
        sink.drop_view("counts")
    feed(sink, 1)
    assert sink.metrics[-1].arrangements.keys() == names
    assert list(sink.last.outputs) == ["paths", "counts"]
    sink.close()


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


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


def test_an_added_view_writes_its_rows_with_the_next_micro_batch(state_dir):
    paths, counts = Target(), Target()
    sink = make_sink(target=paths, state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, [Output("counts", counts)])
    assert not committed.done()
    feed(sink, 2)
    assert committed.result(0) == 2
    feed(sink, 3, 4)
    assert counts.batches.keys() == {2, 3, 4}
    for view, bag in expected(PATHS + COUNTS, *range(5)).items():
        assert {"paths": paths, "counts": counts}[view].rows == bag, view
    assert sink.explain().count("counts")


def test_a_dropped_view_receives_nothing_more(state_dir):
    target = Target()
    sink = make_sink(PATHS + COUNTS, [Output("counts", target)], state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.drop_view("counts")
    feed(sink, 2)
    assert committed.result(0) == 2
    assert target.batches.keys() == {0, 1}
    assert sink.last.outputs.keys() == {"paths"}
    assert sink.outputs == ()


def test_several_changes_are_committed_with_one_micro_batch(state_dir):
    targets = {name: Target() for name in ("counts", "ends")}
    sink = make_sink(PATHS + COUNTS, [Output("counts", targets["counts"])], state_dir=state_dir)
    feed(sink, 0, 1)
    futures = [
        sink.add_view("CREATE VIEW ends AS SELECT dst FROM paths", targets["ends"]),
        sink.add_view("SELECT dst FROM ends WHERE dst > 2", name="far"),
        sink.drop_view("counts"),
        sink.drop_view("far"),
    ]
    feed(sink, 2)
    assert [future.result(0) for future in futures] == [2] * 4
    feed(sink, 3)
    assert list(sink.circuit.plans) == ["paths", "ends"]
    text = PATHS + "CREATE VIEW ends AS SELECT dst FROM paths"
    assert targets["ends"].rows == expected(text, *range(4))["ends"]


def test_a_view_before_the_first_micro_batch_is_there_from_the_beginning(state_dir):
    target = Target()
    sink = make_sink(state_dir=state_dir)
    committed = sink.add_view(COUNTS, target)
    feed(sink, 0, 1)
    assert committed.result(0) == 0
    assert target.rows == expected(COUNTS, 0, 1)["counts"]
    if state_dir is not None:
        sink.close()
        assert stored_circuit(state_dir).fingerprint == sink.circuit.fingerprint


def test_a_dropped_view_can_be_added_again(state_dir):
    first, second = Target(), Target()
    sink = make_sink(PATHS + COUNTS, [Output("counts", first)], state_dir=state_dir)
    feed(sink, 0, 1)
    sink.drop_view("counts")
    sink.add_view(COUNTS, second)
    feed(sink, 2)
    assert second.rows == expected(COUNTS, 0, 1, 2)["counts"]


def test_the_job_starts_again_with_the_views_of_the_directory(tmp_path):
    counts = Target()
    sink = make_sink(state_dir=tmp_path)
    feed(sink, 0, 1)
    sink.add_view(COUNTS, counts)
    feed(sink, 2)
    sink.close()
    again = ViewSink(stored_circuit(tmp_path), [Output("counts", counts)], state_dir=tmp_path)
    feed(again, 2, 3)
    assert counts.rows == expected(COUNTS, *range(4))["counts"]
    again.close()
    old = make_sink(state_dir=tmp_path)
    with pytest.raises(StateMismatchError, match="would drop view 'counts'"):
        feed(old, 4)


def test_a_job_that_dies_before_the_next_micro_batch_has_the_old_views(tmp_path):
    sink = make_sink(state_dir=tmp_path)
    feed(sink, 0, 1)
    sink.add_view(COUNTS, Target())
    sink.close()
    assert list(stored_circuit(tmp_path).plans) == ["paths"]
    again = make_sink(state_dir=tmp_path)
    feed(again, 2)
    assert again.last.outputs.keys() == {"paths"}


def test_a_replay_before_the_commit_publishes_the_old_views_only(state_dir):
    paths, counts = Target(), Target()
    sink = make_sink(target=paths, state_dir=state_dir)
    feed(sink, 0, 1)
    committed = sink.add_view(COUNTS, counts)
    feed(sink, 1)
    assert not committed.done()
    assert not counts.batches
    feed(sink, 2)
    assert committed.result(0) == 2
    assert counts.rows == expected(COUNTS, 0, 1, 2)["counts"]
    assert paths.rows == expected(PATHS, 0, 1, 2)["paths"]


def test_the_change_is_confirmed_after_a_target_has_failed(state_dir):
    counts = Target(fails=1)
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0)
    committed = sink.add_view(COUNTS, counts)
    with pytest.raises(OSError, match="no answer"):
        feed(sink, 1)
    assert not committed.done()
    feed(sink, 1)
    assert committed.result(0) == 1
    feed(sink, 2)
    assert counts.rows == expected(COUNTS, 0, 1, 2)["counts"]


def test_a_change_is_made_again_if_its_micro_batch_cannot_be_written(tmp_path, monkeypatch):
    counts = Target()
    sink = make_sink(PATHS + "CREATE VIEW one AS SELECT 1 AS x", state_dir=tmp_path)
    feed(sink, 0)
    committed = sink.add_view(COUNTS, counts)
    sink.drop_view("one")
    with monkeypatch.context() as patch:

        def full(*args):
            raise OSError(28, "No space left on device")

        patch.setattr(LocalFiles, "rename_new", full)
        with pytest.raises(StreamingError, match="outcome of the commit"):
            feed(sink, 1)
    feed(sink, 1, 2)
    assert committed.result(0) == 1
    assert counts.rows == expected(COUNTS, 0, 1, 2)["counts"]
    assert sink.last.outputs.keys() == {"paths", "counts"}


def test_a_request_while_the_state_is_not_loaded_waits_for_it(tmp_path):
    first = make_sink(state_dir=tmp_path)
    feed(first, 0, 1)
    first.close()
    counts, sink = Target(), make_sink(state_dir=tmp_path)
    committed = sink.add_view(COUNTS, counts)
    with pytest.raises(pickle.PicklingError, match="not committed"):
        pickle.dumps(sink)
    with pytest.raises(SqlError):
        sink.add_view("CREATE VIEW bad AS SELECT nothing FROM counts")
    feed(sink, 2)
    assert committed.result(0) == 2
    assert counts.rows == expected(COUNTS, 0, 1, 2)["counts"]


def test_an_error_that_depends_on_the_state_leaves_the_views_as_they_are(tmp_path):
    def start() -> ViewSink:
        text = "CREATE VIEW srcs AS SELECT src, count(*) AS n FROM e GROUP BY src"
        return ViewSink(compile_sql(text, E), state_dir=tmp_path)

    sink = start()
    feed(sink, 0)
    with pytest.raises(ProgramChangeError, match="'e': new or changed views need the rows"):
        sink.add_view(COUNTS)
    feed(sink, 1)
    assert sink.last.outputs.keys() == {"srcs"}
    sink.close()
    again = start()
    committed = again.add_view(COUNTS)
    feed(again, 2)
    with pytest.raises(ProgramChangeError, match="need the rows"):
        committed.result(0)
    assert again.last.outputs.keys() == {"srcs"}
    given = ChangeOptions(backfill={"e": table_of(0, 1, 2)})
    counts = Target()
    again.add_view(COUNTS, counts, change=given)
    feed(again, 3)
    assert counts.rows == expected(COUNTS, *range(4))["counts"]


def test_rows_that_make_the_new_view_fail_leave_the_views_as_they_are(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    before = sink.circuit
    with pytest.raises(Exception, match=r"(?i)overflow|zero|out of"):
        sink.add_view(
            "CREATE VIEW bad AS SELECT 9223372036854775807 + src AS x, upper(name) FROM e"
        )
    assert sink.circuit is before
    feed(sink, 2)
    assert list(sink.last.outputs) == ["paths"]


def test_wrong_outputs_and_names_are_refused(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0)
    with pytest.raises(TargetError, match="'paths' is not new"):
        sink.add_view(COUNTS, [Output("paths", Target())])
    with pytest.raises(UnknownViewError, match="not an output"):
        sink.add_view(COUNTS, [Output("other", Target())])
    with pytest.raises(TargetError, match="needs the whole view"):
        sink.add_view(COUNTS, [Output("counts", Target(), mode="complete")])
    with pytest.raises(UnknownViewError, match="views are paths"):
        sink.drop_view("counts")
    with pytest.raises(ProgramChangeError, match="only view"):
        sink.drop_view("paths")
    assert list(sink.circuit.plans) == ["paths"]


def test_rows_of_an_input_are_dropped_only_if_that_is_allowed(state_dir):
    text = PATHS + "CREATE VIEW srcs AS SELECT src, count(*) AS n FROM e GROUP BY src"
    sink = ViewSink(compile_sql(text, E), state_dir=state_dir)
    feed(sink, 0)
    with pytest.raises(StateMismatchError, match="would drop the rows of input 'e'"):
        sink.drop_view("paths")
    sink.drop_view("paths", change=ChangeOptions(allow_drop=True))
    feed(sink, 1)
    assert list(sink.last.outputs) == ["srcs"]


def test_a_materialized_view_can_be_added_and_read(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1)
    target = Target()
    outputs = [Output("counts", target, mode="complete")]
    sink.add_view(COUNTS, outputs, materialize=["counts"])
    assert bag_of(sink.table("counts")) == expected(COUNTS, 0, 1)["counts"]
    feed(sink, 2)
    assert target.batches[2] == expected(COUNTS, 0, 1, 2)["counts"]
    sink.drop_view("counts")
    feed(sink, 3)
    with pytest.raises(UnknownViewError):
        sink.table("counts")


def test_other_threads_may_change_views_while_micro_batches_run(state_dir):
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0)
    targets = [Target() for _ in range(6)]

    def add(number: int):
        return sink.add_view(
            f"SELECT src, {number} AS k FROM e", targets[number], name=f"v{number}"
        )

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(add, number) for number in range(6)]
        feed(sink, 1, 2)
        committed = [future.result() for future in futures]
    feed(sink, 3)
    for number, (target, future) in enumerate(zip(targets, committed, strict=True)):
        assert future.result(0) in (1, 2, 3)
        view = f"CREATE VIEW v AS SELECT src, {number} AS k FROM e"
        assert target.rows == expected(view, *range(4))["v"]


def test_a_target_that_changes_the_views_does_so_after_its_micro_batch(state_dir):
    counts, futures = Target(), []

    class Adding(Target):
        def write(self, delta) -> None:
            super().write(delta)
            if delta.batch_id == 1:
                futures.append(sink.add_view(COUNTS, counts))

    sink = make_sink(target=Adding(), state_dir=state_dir)
    feed(sink, 0, 1)
    assert not futures[0].done()
    feed(sink, 2)
    assert futures[0].result(0) == 2
    assert counts.rows == expected(COUNTS, 0, 1, 2)["counts"]


def test_a_sink_that_runs_in_another_process_cannot_change_its_views_here(tmp_path):
    sink = make_sink(state_dir=tmp_path)
    copy = pickle.loads(pickle.dumps(sink))
    with pytest.raises(StreamingError, match="copied to another process"):
        sink.add_view(COUNTS)
    feed(copy, 0)
    counts = Target()
    copy.add_view(COUNTS, counts)
    feed(copy, 1)
    assert counts.rows == expected(COUNTS, 0, 1)["counts"]


def test_views_in_cells_cannot_change_while_they_run(tmp_path):
    circuit = compile_sql(PATHS, E)
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)
    with pytest.raises(StreamingError, match="start it with the changed views"):
        sink.add_view(COUNTS)
    with pytest.raises(StreamingError, match="cannot change while the query runs"):
        sink.drop_view("paths")


def test_a_sink_with_a_memory_limit_changes_its_views(tmp_path):
    counts = Target()
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    sink = ViewSink(circuit, state_dir=tmp_path, memory_limit=1)
    feed(sink, 0, 1)
    sink.add_view(COUNTS, counts)
    feed(sink, 2)
    sink.drop_view("paths")
    feed(sink, 3, 4)
    assert counts.rows == expected(COUNTS, *range(5))["counts"]
    assert sink.metrics[-1].mapped_bytes


def test_the_state_of_the_other_views_is_not_written_again(tmp_path):
    sink = make_sink(state_dir=tmp_path)
    feed(sink, 0, 1)
    before = read_manifest(LocalFiles(str(tmp_path)), 1)
    sink.add_view(COUNTS)
    feed(sink, 2)
    after = read_manifest(LocalFiles(str(tmp_path)), 2)
    assert set(before.data_files) & set(after.files)
    assert after.link is not None and after.link.views == {"paths": "paths"}


@pytest.mark.spark
def test_a_heartbeat_commits_a_change_while_no_row_arrives(spark, tmp_path):
    spark.createDataFrame([(1, 2, "a")], "src long, dst long, name string").write.parquet(
        str(tmp_path / "in")
    )
    stream = spark.readStream.schema("src long, dst long, name string").parquet(
        str(tmp_path / "in")
    )
    counts, sink = Target(), make_sink(state_dir=tmp_path / "state")
    query = (
        heartbeat(stream)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        for _ in range(120):
            if sink.metrics:
                break
            query.awaitTermination(0.5)
        committed = sink.add_view(COUNTS, counts)
        assert committed.result(timeout=60) > 0
    finally:
        query.stop()
    assert counts.rows == Counter({("a", 1): 1})


class TestSlices:
    """New views are computed in slices, and published when they have all rows."""

    def test_a_view_in_slices_is_published_when_it_has_all_rows(self, state_dir):
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

    def test_a_limit_of_seconds_gives_at_least_one_slice_to_each_micro_batch(self, state_dir):
        counts = Target()
        sink = make_sink(state_dir=state_dir)
        feed(sink, 0, 1)
        sink.add_view(COUNTS, counts, change=ChangeOptions(seconds_per_batch=1e-9))
        feed(sink, 2)
        assert sink.backfill is None  # the first slice has more rows than there are
        feed(sink, 3)
        assert counts.rows == expected(COUNTS, *range(4))["counts"]

    def test_other_changes_wait_for_the_slices(self, state_dir):
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

    def test_cancelling_the_future_ends_the_slices(self, state_dir):
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

    def test_an_error_in_a_slice_leaves_the_views_as_they_are(self, state_dir):
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

    def test_the_slices_begin_again_if_the_state_is_loaded_again(self, tmp_path):
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

    def test_the_slices_begin_again_after_an_interrupt_in_a_slice(self, state_dir, monkeypatch):
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
        self, owner, name, after, state_dir, monkeypatch
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

    def test_an_error_of_a_change_at_once_is_raised_to_the_caller(self, monkeypatch):
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

    def test_the_initial_content_is_published_in_slices_to_a_target_that_replaces_it(
        self, state_dir
    ):
        edges = ReplacingTarget()
        sink = make_sink(state_dir=state_dir)
        feed(sink, *range(4))
        text = "CREATE VIEW edges AS SELECT src, dst FROM e"
        committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))
        number = 4
        while not committed.done():
            feed_more(sink, number)
            if number > 6:
                feed_more(sink, number)  # a replay
            number += 1
        assert all(bag.total() <= 4 for bag in edges.batches.values())
        assert len(edges.batches) > 3
        assert committed.result(0) == max(edges.batches) == number - 1
        assert edges.previous[min(edges.batches)] == -1
        for earlier, later in pairwise(sorted(edges.batches)):
            assert edges.previous[later] == earlier
        feed_more(sink, number)
        tables = [*map(table_of, range(4)), *map(more_rows, range(4, number + 1))]
        (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
        assert edges.rows == bag_of(table)

    def test_the_bytes_of_a_micro_batch_include_those_of_its_slice(self, tmp_path, monkeypatch):
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

    def test_the_state_of_the_new_view_is_written_in_slices(self, tmp_path):
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

    def test_a_disk_that_is_full_in_a_slice_delays_the_state_to_the_change(
        self, tmp_path, monkeypatch
    ):
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

    @pytest.mark.parametrize("mode", ["upsert", "complete"])
    def test_other_modes_publish_the_whole_view_once(self, mode, state_dir):
        target = ReplacingTarget()
        sink = make_sink(state_dir=state_dir)
        feed(sink, 0, 1, 2)
        keys = ["name"] if mode == "upsert" else []
        committed = sink.add_view(
            COUNTS,
            [Output("counts", target, mode, keys)],
            materialize=["counts"],
            change=ChangeOptions(rows_per_batch=1),
        )
        number = 3
        while not committed.done():
            sink(Frame(table_of()), number)
            number += 1
        assert list(target.batches) == [number - 1]

    def test_a_job_that_stops_between_the_slices_publishes_the_view_from_the_beginning(
        self, tmp_path
    ):
        edges, sizes = ReplacingTarget(), []
        text = "CREATE VIEW edges AS SELECT src, dst FROM e"
        number = 4
        for attempt in range(2):
            sink = make_sink(state_dir=tmp_path)
            if attempt:
                sink(Frame(table_of()), number - 1)  # a replay
            else:
                feed(sink, *range(4))
            sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=1))
            while sink.backfill.rows_published < 2:
                sink(Frame(table_of()), number)
                number += 1
                assert number < 40
            assert edges.previous[min(edges.batches)] == -1
            sizes.append(edges.rows.total())
            sink.close()
        assert sizes == [3, 3]  # two rows, one of them twice
        sink = make_sink(state_dir=tmp_path)
        committed = sink.add_view(text, edges)
        feed_more(sink, number)
        assert committed.result(0) == number
        tables = [*map(table_of, range(4)), more_rows(number)]
        (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
        assert edges.rows == bag_of(table)

    @pytest.mark.parametrize("kind", ["sqlite", "delta"])
    def test_slices_replace_the_rows_of_a_job_that_stopped_between_them(self, kind, tmp_path):
        if kind == "sqlite":
            target = SqlTarget(lambda: sqlite3.connect(tmp_path / "db"), "edges")
        else:
            target = DeltaTarget(str(tmp_path / "edges"))
        text = "CREATE VIEW edges AS SELECT src, dst FROM e"
        change = ChangeOptions(rows_per_batch=2)
        sink = make_sink(state_dir=tmp_path / "state")
        feed(sink, *range(4))
        sink.add_view(text, target, change=change)
        number = 4
        while sink.backfill.rows_published < 2:
            sink(Frame(table_of()), number)
            number += 1
        sink.close()
        sink = make_sink(state_dir=tmp_path / "state")
        sink(Frame(table_of()), number - 1)  # a replay
        committed, first = sink.add_view(text, target, change=change), number
        while not committed.done():
            assert number < 40
            feed_more(sink, number)
            number += 1
        sink.close()
        if kind == "sqlite":
            with closing(sqlite3.connect(tmp_path / "db")) as connection:
                rows = connection.execute("SELECT src, dst, weight FROM edges").fetchall()
        else:
            table = deltalake.DeltaTable(str(tmp_path / "edges")).to_pyarrow_table()
            rows = [(row["src"], row["dst"], row["weight"]) for row in table.to_pylist()]
        total = sum_weights([((src, dst), weight) for src, dst, weight in rows])
        tables = [table_of(*range(4)), *map(more_rows, range(first, number))]
        (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
        assert total == bag_of(table)

    @pytest.mark.parametrize("again", [False, True])
    def test_a_target_that_fails_between_the_slices_receives_them_once(self, again, state_dir):
        edges = ReplacingTarget()
        sink = make_sink(state_dir=state_dir)
        feed(sink, 0, 1, 2)
        text = "CREATE VIEW edges AS SELECT src, dst FROM e"
        committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))
        number = 3
        while not committed.done():
            edges.fails = number % 2
            try:
                feed_more(sink, number)
            except OSError:
                if again and state_dir is not None and number == 7:
                    sink.close()  # loads the state again, and begins from the beginning
                feed_more(sink, number)
            number += 1
            assert number < 40
        tables = [*map(table_of, range(3)), *map(more_rows, range(3, number))]
        (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
        assert edges.rows == bag_of(table)

    def test_the_slices_that_are_published_adapt_to_a_limit_of_seconds(self):
        edges = ReplacingTarget()
        sink = make_sink()
        table = pa.Table.from_pylist([{"src": n, "dst": n} for n in range(5000)], SCHEMA)
        sink(Frame(table), 0)
        text = "CREATE VIEW edges AS SELECT src, dst FROM e"
        committed = sink.add_view(text, edges, change=ChangeOptions(seconds_per_batch=60.0))
        number = 1
        while not committed.done():
            sink(Frame(table_of()), number)
            number += 1
        sizes = [bag.total() for bag in edges.batches.values()]
        assert sizes == [1000, 1000, 2000, 1000]

    def test_limits_are_positive_and_only_for_running_sinks(self):
        with pytest.raises(StateError, match="rows_per_batch=0: give a positive number"):
            ChangeOptions(rows_per_batch=0)
        with pytest.raises(StateError, match="seconds_per_batch"):
            ChangeOptions(seconds_per_batch=-1)
        with pytest.raises(StateError, match="add_view"):
            ViewSink(compile_sql(PATHS, E), change=ChangeOptions(rows_per_batch=1))


def more_rows(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"src": number, "dst": number + 1, "name": "m"}], SCHEMA)


def feed_more(sink: ViewSink, number: int) -> None:
    sink(Frame(more_rows(number)), number)
