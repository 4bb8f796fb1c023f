"""Views are added to a running sink, and dropped from it, between two micro-batches."""

from __future__ import annotations

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from circuits import (
    ProgramChangeError,
    SqlError,
    UnknownViewError,
    compile_sql,
)
from streaming import (
    ChangeOptions,
    Output,
    SinkObserver,
    StateMismatchError,
    StreamingError,
    TargetError,
    ViewSink,
    heartbeat,
    stored_circuit,
)
from streaming.sink.frozen_objects import FROZEN_OBJECTS
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from tests.support.changing_sink import (
    COUNTS,
    KEEP,
    PATHS,
    E,
    Target,
    expected,
    feed,
    make_sink,
    table_of,
)
from tests.support.tables import bag_of


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


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


@pytest.mark.parametrize("change", [None, ChangeOptions(rows_per_batch=99)])
def test_a_change_that_is_cancelled_while_it_is_computed_is_not_made(
    state_dir, monkeypatch, change
):
    sink, counts, begin = make_sink(state_dir=state_dir), Target(), ViewSink.begin_change
    feed(sink, 0)
    sink.close()

    def begin_and_cancel(sink, request):
        made = begin(sink, request)
        assert request.committed.cancel()
        return made

    committed = sink.add_view(COUNTS, counts, change=change)
    with monkeypatch.context() as patch:
        patch.setattr(ViewSink, "begin_change", begin_and_cancel)
        feed(sink, 1)
    feed(sink, 2, 3, 4)
    assert committed.cancelled()
    assert not counts.batches
    assert not sink.is_changing
    assert list(sink.last.outputs) == ["paths"]
    sink.close()


def test_a_running_sink_renames_no_view(state_dir):
    sink = make_sink(state_dir=state_dir)
    with pytest.raises(ProgramChangeError, match="a view is renamed by a start"):
        sink.add_view(COUNTS, change=ChangeOptions(renames={"counts": "paths"}))
    feed(sink, 0)
    assert list(sink.last.outputs) == ["paths"]
    sink.close()


def test_an_observer_may_change_the_views_when_they_have_changed(state_dir):
    sink, ends = make_sink(state_dir=state_dir), Target()

    class Adder(SinkObserver):
        def views_changed(self, circuit):
            if "ends" not in circuit.outputs:
                sink.add_view("SELECT dst FROM e", ends, name="ends")

    sink.add_observer(Adder())
    feed(sink, 0)

    def change_views():
        sink.add_view(COUNTS, Target())
        feed(sink, 1)

    thread = Thread(target=change_views, daemon=True)
    thread.start()
    thread.join(100)
    assert not thread.is_alive()
    assert ends.rows == Counter({(2,): 1, (3,): 1, (1,): 1})
    assert list(sink.last.outputs) == ["paths", "counts", "ends"]
    sink.close()


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
