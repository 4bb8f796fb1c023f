"""A job that starts with other views goes on: state is taken over, targets get every row once."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import InputOptions, ProgramChangeError, compile_sql
from streaming import (
    ChangeOptions,
    MemoryTarget,
    Output,
    SchemaError,
    StateError,
    StateMismatchError,
)
from streaming.cli.state_inspection import inspect_state
from streaming.distributed.rescaling import rescale_state
from streaming.sink.view_sink import ViewSink
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, manifest_name, read_manifest
from streaming.state.records.unpublished import UNPUBLISHED_FILE
from tests.streaming.sink.test_view_sink import Frame
from tests.support.program_schedules import play
from tests.support.tables import bag_of

E = {"e": "src bigint not null, dst bigint not null, name string"}
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
COUNTS = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"
SCHEMA = pa.schema({"src": pa.int64(), "dst": pa.int64(), "name": pa.string()})
BATCHES = [
    [(1, 2, "a"), (2, 3, "b")],
    [(3, 1, "c")],
    [(2, 4, "d"), (1, 2, "a")],
    [(4, 4, None)],
    [(9, 9, "z")],
]


class Job:
    """Sinks on one state directory, and the rows that each target has received."""

    def __init__(self, state_dir) -> None:
        self.state_dir = state_dir
        self.batches: dict[str, dict[int, Counter]] = {}

    def sink(self, text: str, schemas=E, modes=None, change=None, **options) -> ViewSink:
        circuit = compile_sql(text, schemas, **options)
        outputs = [
            Output(view, self.target(view), **(modes or {}).get(view, {}))
            for view in circuit.outputs
        ]
        return ViewSink(circuit, outputs, state_dir=self.state_dir, change=change)

    def target(self, view: str):
        batches = self.batches.setdefault(view, {})

        class Target:
            def write(self, delta) -> None:
                bag = bag_of(delta.table)
                assert batches.setdefault(delta.batch_id, bag) == bag, f"{delta} has changed"

        return Target()

    def rows(self, view: str) -> Counter:
        total: Counter = Counter()
        for bag in self.batches[view].values():
            total.update(bag)
        return Counter({row: weight for row, weight in total.items() if weight})


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "state")


def feed(sink: ViewSink, *numbers: int) -> None:
    for number in numbers:
        columns = list(zip(*BATCHES[number], strict=True))
        arrays = [pa.array(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)]
        sink(Frame(pa.Table.from_arrays(arrays, schema=SCHEMA), "q"), number)


def run(job: Job, text: str, *numbers: int, **options) -> None:
    sink = job.sink(text, **options)
    feed(sink, *numbers)
    sink.close()


def expected(text: str, *numbers: int, schemas=E) -> dict[str, Counter]:
    circuit = compile_sql(text, schemas)
    rows = [row for number in numbers for row in BATCHES[number]]
    tables = {"e": pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows])}
    return {name: bag_of(table) for name, table in circuit.step(tables).items()}


def files(job: Job) -> LocalFiles:
    return LocalFiles(str(job.state_dir))


def test_a_new_view_publishes_its_rows_with_the_next_micro_batch(job):
    run(job, PATHS, 0, 1)
    run(job, PATHS + COUNTS, 2, 3)
    assert job.batches["paths"].keys() == {0, 1, 2, 3}
    assert job.batches["counts"].keys() == {2, 3}
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2, 3).items():
        assert job.rows(view) == bag, view
    run(job, PATHS + COUNTS, 3, 4)
    assert job.rows("counts") == expected(COUNTS, 0, 1, 2, 3, 4)["counts"]


def test_a_backfill_of_an_unknown_input_is_an_error_although_the_views_are_the_same(job):
    run(job, PATHS, 0, 1)
    unknown = ChangeOptions(backfill={"lonk": pa.table({"src": [1]})})
    with pytest.raises(ProgramChangeError, match="'lonk' is not an input; inputs are e"):
        run(job, PATHS, 2, change=unknown)


def test_rows_of_a_backfill_that_are_no_table_are_an_error_that_says_so():
    options = ChangeOptions(backfill={"e": [{"src": 1}]})
    with pytest.raises(ProgramChangeError, match="backfill of 'e' is a list: give a batch"):
        options.with_tables()


def test_the_state_that_is_taken_over_is_not_written_again(job):
    run(job, PATHS, 0, 1)
    before = read_manifest(files(job), 1)
    run(job, PATHS + COUNTS, 2)
    after = read_manifest(files(job), 2)
    assert after.traces.keys() > before.traces.keys()
    assert after.link is not None and after.link.views == {"paths": "paths"}
    assert set(before.data_files) & set(after.files)


def test_the_last_micro_batch_of_the_old_views_is_replayed_by_the_new_ones(job):
    run(job, PATHS, 0, 1)
    job.batches["paths"].pop(1)  # the job stopped before the target had received it
    run(job, PATHS + COUNTS, 1, 2)
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2).items():
        assert job.rows(view) == bag, view


def test_a_view_that_a_replay_left_out_is_published_when_the_old_views_come_back(job):
    both = PATHS + COUNTS
    run(job, both, 0, 1)
    job.batches["paths"].pop(1)  # the job stopped before the targets had received it
    job.batches["counts"].pop(1)
    run(job, PATHS, 1, change=ChangeOptions(allow_drop=True))
    assert 1 in job.batches["paths"]
    assert 1 not in job.batches["counts"]
    run(job, both, 2)  # the change was not committed, and Spark does not replay micro-batch 1
    assert job.batches["counts"].keys() == {0, 1, 2}
    for view, bag in expected(both, 0, 1, 2).items():
        assert job.rows(view) == bag, view
    assert files(job).size(UNPUBLISHED_FILE) is None


def test_a_committed_change_does_not_publish_removed_views_again(job):
    both = PATHS + COUNTS
    run(job, both, 0, 1)
    job.batches["counts"].pop(1)
    run(job, PATHS, 1, 2, change=ChangeOptions(allow_drop=True))
    run(job, both, 3)  # a new view, whose target was emptied
    assert job.batches["counts"].keys() == {0, 3}
    assert files(job).size(UNPUBLISHED_FILE) is None


def test_a_damaged_record_of_unpublished_views_publishes_all_views_again(job):
    both = PATHS + COUNTS
    run(job, both, 0, 1)
    job.batches["counts"].pop(1)
    run(job, PATHS, 1, change=ChangeOptions(allow_drop=True))
    files(job).write(UNPUBLISHED_FILE, [b"{"])
    run(job, both, 2)
    assert job.batches["counts"].keys() == {0, 1, 2}


def test_a_replay_after_the_change_publishes_only_views_that_go_on(job):
    changed = PATHS + "CREATE VIEW counts AS SELECT name, count(*) AS n FROM e GROUP BY name"
    run(job, PATHS + COUNTS, 0, 1)
    allowed = ChangeOptions(allow_drop=True)
    job.batches["counts"].clear()  # the new target of the view, which has other columns now
    job.batches["paths"].pop(1)
    sink = job.sink(changed, change=allowed, materialize=["e"], modes={})
    with pytest.raises(ProgramChangeError, match="do not have name"):
        feed(sink, 1)
    given = {
        "e": pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, r, strict=True)) for b in BATCHES[:2] for r in b]
        )
    }
    run(job, changed, 2, change=ChangeOptions(allow_drop=True, backfill=given))
    run(job, changed, 1, 2)  # Spark has lost its last commit
    assert job.batches["counts"].keys() == {2}
    assert job.rows("paths") == expected(PATHS, 0, 1, 2)["paths"]


def test_a_renamed_view_goes_on_in_its_target(job):
    run(job, PATHS, 0, 1)
    renamed = PATHS.replace("VIEW paths", "VIEW ways")
    job.batches["ways"] = job.batches["paths"]
    missing = job.batches["paths"].pop(1)
    with pytest.raises(StateMismatchError, match=r"renames=\{'new name': 'old name'\}"):
        run(job, renamed, 2)
    run(job, renamed, 1, 2, change=ChangeOptions(renames={"ways": "paths"}))
    assert job.batches["ways"][1] == missing
    assert job.rows("ways") == expected(PATHS, 0, 1, 2)["paths"]
    run(job, renamed, 1, 2, 3)
    assert job.rows("ways") == expected(PATHS, 0, 1, 2, 3)["paths"]


def test_a_removed_view_needs_permission_and_frees_its_files(job):
    run(job, PATHS + COUNTS, 0, 1)
    with pytest.raises(StateMismatchError, match="would drop view 'counts'"):
        run(job, PATHS, 2)
    assert list_batch_ids(files(job)) == [0, 1]
    run(job, PATHS, 2, 3, 4, change=ChangeOptions(allow_drop=True))
    assert job.rows("paths") == expected(PATHS, 0, 1, 2, 3, 4)["paths"]
    assert not any(name.startswith("operator") for name in read_manifest(files(job), 4).traces)


def test_the_old_views_go_on_if_the_new_ones_never_commit(job):
    run(job, PATHS, 0)
    run(job, PATHS + COUNTS)  # no micro-batch
    sink = job.sink(PATHS + COUNTS)
    with pytest.raises(SchemaError):
        sink(Frame(pa.table({"src": [1]}), "q"), 1)
    sink.close()
    run(job, PATHS, 1)
    assert job.rows("paths") == expected(PATHS, 0, 1)["paths"]


def test_views_change_back(job):
    run(job, PATHS, 0)
    run(job, PATHS + COUNTS, 1)
    run(job, PATHS, 2, change=ChangeOptions(allow_drop=True))
    job.batches["counts"].clear()
    run(job, PATHS + COUNTS, 3)
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2, 3).items():
        assert job.rows(view) == bag, view
    names = files(job).names("programs")
    run(job, PATHS + COUNTS, 4)
    assert files(job).names("programs") == names
    assert len(names) == 2


def test_a_damaged_version_of_the_new_views_falls_back_to_the_old_ones(job):
    run(job, PATHS, 0, 1)
    run(job, PATHS + COUNTS, 2)
    path = job.state_dir / manifest_name(2)
    path.write_bytes(path.read_bytes()[:-9])
    run(job, PATHS + COUNTS, 2, 3)
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2, 3).items():
        assert job.rows(view) == bag, view


@pytest.mark.parametrize("lost", ["views.json", "state.json"])
def test_files_that_a_crash_left_behind_the_version_are_written_again(job, lost):
    run(job, PATHS, 0)
    old = (job.state_dir / lost).read_bytes()
    run(job, PATHS + COUNTS, 1)
    new = (job.state_dir / lost).read_bytes()
    assert new != old
    (job.state_dir / lost).write_bytes(old)
    run(job, PATHS + COUNTS, 2)
    assert (job.state_dir / lost).read_bytes() == new
    assert job.rows("counts") == expected(COUNTS, 0, 1, 2)["counts"]


def test_new_views_in_other_output_modes_publish_their_whole_contents(job):
    run(job, PATHS, 0, 1)
    text = f"{PATHS} {COUNTS} CREATE VIEW total AS SELECT count(*) AS n FROM e"
    modes = {"counts": {"mode": "upsert", "keys": ["src"]}, "total": {"mode": "complete"}}
    run(job, text, 2, modes=modes, materialize=["counts", "total"])
    assert job.batches["counts"][2] == expected(COUNTS, 0, 1, 2)["counts"]
    assert job.batches["total"][2] == Counter({(5,): 1})


def test_a_view_that_becomes_an_output_publishes_all_its_rows(job):
    options = {"materialize": ["counts"]}
    run(job, PATHS + COUNTS, 0, 1, outputs=["paths"], **options)
    run(job, PATHS + COUNTS, 2, **options)
    run(job, PATHS + COUNTS, 2, 3, **options)
    assert job.batches["counts"].keys() == {2, 3}
    assert job.rows("counts") == expected(COUNTS, 0, 1, 2, 3)["counts"]


def test_a_view_that_is_no_output_any_more_keeps_its_state_and_can_come_back(job):
    text = f"{PATHS} {COUNTS} CREATE VIEW total AS SELECT sum(n) AS n FROM counts"
    run(job, text, 0, 1)
    outputs = ["paths", "total"]
    run(job, text, 2, outputs=outputs)
    assert job.batches["counts"].keys() == {0, 1}
    assert job.rows("total") == expected(text, 0, 1, 2)["total"]
    del job.batches["counts"]  # a new target
    run(job, text, 3, 4)
    assert job.rows("counts") == expected(COUNTS, 0, 1, 2, 3, 4)["counts"]


@pytest.mark.parametrize("new_mode", ["upsert", "complete"])
def test_a_view_goes_on_in_a_function_in_another_output_mode(job, new_mode):
    keys = {"keys": ["src"]} if new_mode == "upsert" else {}
    modes = {"counts": {"mode": new_mode, **keys}}
    run(job, COUNTS, 0, 1, materialize=["counts"])
    run(job, COUNTS, 2, 3, materialize=["counts"], modes=modes)
    before, after = (expected(COUNTS, *range(n))["counts"] for n in (2, 3))
    if new_mode == "upsert":  # only the keys of the micro-batch
        after = Counter({row: n for row, n in after.items() if row not in before})
    assert {row for row, n in job.batches["counts"][2].items() if n > 0} == after.keys()


def test_rows_that_the_state_does_not_keep_are_read_once_from_a_backfill(job):
    run(job, COUNTS, 0, 1)
    text = COUNTS + "CREATE VIEW names AS SELECT name, count(*) AS n FROM e GROUP BY name"
    with pytest.raises(ProgramChangeError) as error:
        run(job, text, 2)
    assert "ChangeOptions(backfill={'e': frame}, backfill_batch_id=1)" in str(error.value)
    assert 'InputOptions(keep="all")' in str(error.value)
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for b in BATCHES[:2] for row in b]

    class Batch:
        reads = 0

        def toArrow(self) -> pa.Table:  # Spark's name
            self.reads += 1
            return pa.Table.from_pylist(rows)

    batch = Batch()
    run(job, text, 2, 3, change=ChangeOptions(backfill={"e": batch}))
    assert batch.reads == 1
    assert job.rows("names") == expected(text, 0, 1, 2, 3)["names"]
    run(job, text, 4, change=ChangeOptions(backfill={"e": batch}))
    assert batch.reads == 1, "the change is over"


def test_an_input_that_keeps_all_rows_needs_no_backfill(job):
    options = {"e": InputOptions(keep="all")}
    run(job, COUNTS, 0, 1, input_options=options)
    text = COUNTS + "CREATE VIEW names AS SELECT name, count(*) AS n FROM e GROUP BY name"
    run(job, text, 2, input_options=options)
    assert job.rows("names") == expected(text, 0, 1, 2)["names"]


def test_a_pickled_sink_changes_the_views(job):
    run(job, COUNTS, 0)
    text = COUNTS + "CREATE VIEW names AS SELECT DISTINCT name FROM e"
    given = {
        "e": pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in BATCHES[0]])
    }
    change = ChangeOptions(backfill=given)
    sink = ViewSink(compile_sql(text, E), MemoryTarget(), state_dir=job.state_dir, change=change)
    copy = pickle.loads(pickle.dumps(sink))
    feed(copy, 1)
    names = {(name,): 1 for name in "abc"}
    assert bag_of(copy.last.outputs["names"]) == Counter(names)


def test_the_views_of_a_directory_without_text_cannot_change(job):
    run(job, PATHS, 0)
    (job.state_dir / "views.json").unlink()
    with pytest.raises(StateMismatchError, match=r"cannot be compiled .*views.json is missing"):
        run(job, PATHS + COUNTS, 1)
    run(job, PATHS, 1)


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_targets_have_the_rows_of_a_fresh_load_after_changes_and_crashes(seed):
    play(seed)


# Seeds of schedules that have failed, or with many faults.
@pytest.mark.parametrize("seed", [*range(12), 1171])
def test_schedules_of_changes_and_crashes(seed):
    play(seed)


@pytest.mark.slow
def test_many_histories_of_changes_and_crashes():
    for seed in range(100, 400):
        play(seed)


def test_a_state_whose_views_have_changed_is_rescaled_and_inspected(job):
    run(job, PATHS, 0)
    old = (job.state_dir / "views.json").read_bytes()
    run(job, PATHS + COUNTS, 1)
    (job.state_dir / "views.json").write_bytes(old)  # as after a crash
    states = inspect_state(job.state_dir)["arrangements"]
    assert any("counts" in entry["views"] for entry in states)
    for cells in (2, None):
        assert rescale_state(files(job), cells=cells).after == cells
        manifest = read_manifest(files(job), 1)
        assert manifest.link is not None and manifest.outputs.keys() == {"paths", "counts"}
    run(job, PATHS + COUNTS, 1, 2)
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2).items():
        assert job.rows(view) == bag, view


def test_the_views_of_a_distributed_state_cannot_change(job):
    run(job, PATHS, 0)
    rescale_state(files(job), cells=2)
    sink = job.sink(PATHS + COUNTS)
    with pytest.raises(StateMismatchError, match=r"rescale .* --embedded"):
        feed(sink, 1)


@pytest.mark.parametrize(
    ("number", "rows", "message"),
    [
        (-1, {"e": None}, "give the number"),
        (True, {"e": None}, "give the number"),
        ("1", {"e": None}, "give the number"),
        (1, {}, "also give the rows"),
    ],
)
def test_a_batch_id_of_given_rows_is_a_number_and_needs_rows(number, rows, message):
    with pytest.raises(StateError, match=message):
        ChangeOptions(backfill=rows, backfill_batch_id=number)
