"""A target that holds nothing of a view receives the whole view once, and then its changes."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import InputOptions, ProgramChangeError, compile_sql
from circuits.types.arrow_types import VARIANT
from streaming import (
    ChangeOptions,
    MemoryTarget,
    MissedBatchesError,
    Output,
    ParquetTarget,
    SqlTarget,
    StateMismatchError,
    TargetError,
    ViewSink,
)
from tests.streaming.sink.test_view_sink import Frame

INPUTS = {"e": "src bigint not null, dst bigint not null"}
VIEWS = """
    CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;
    CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;
"""
BATCHES = [[(1, 2), (2, 3)], [(3, 1)], [(2, 4), (1, 2)], [(4, 4)], [(2, 3)], [(7, 1), (1, 7)]]
MODES = {"delta": {}, "upsert": {"counts": {"mode": "upsert", "keys": ["src"]}}}


class Job:
    """Sinks on one state directory, with targets that are tables of one SQLite file."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.file = folder / "t.db"

    def connect(self):
        return sqlite3.connect(self.file)

    def sql(self, name="{view}"):
        return SqlTarget(self.connect, name)

    def run(self, targets, *batches, modes=None, text=VIEWS, stop=True, **options) -> ViewSink:
        views = {"counts"} if modes is MODES["upsert"] else ()
        circuit = compile_sql(text, INPUTS, materialize=list(views))
        outputs = [
            Output(view, target, **(modes or {}).get(view, {})) for view, target in targets.items()
        ]
        sink = ViewSink(circuit, outputs, state_dir=self.folder / "state", keep=5, **options)
        try:
            for batch in batches:
                feed(sink, batch)
        finally:
            if stop:
                sink.close()
        return sink

    def rows(self, table: str) -> Counter:
        total: Counter = Counter()
        with contextlib.closing(self.connect()) as connection:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            columns = [name for name in names if name not in ("batch_id", "row_number", "weight")]
            weight = "weight" if "weight" in names else "1"
            for *row, number in connection.execute(
                f"SELECT {', '.join(columns)}, {weight} FROM {table}"
            ):
                total[tuple(row)] += number
        return Counter({row: number for row, number in total.items() if number})


@pytest.mark.parametrize("mode", ["delta", "upsert", "complete"])
def test_a_view_with_lists_of_variants_has_steps_without_rows(tmp_path, mode):
    types = {"id": pa.int64(), "v": VARIANT}
    rows = pa.table([[1, 2], pa.array(['{"a":1}', "2"], VARIANT)], pa.schema(types))
    batches = [(rows, 1), (rows.slice(2), 1), (rows.slice(1), -1)]
    for number, (table, weight) in enumerate(batches):
        circuit = compile_sql(
            "SELECT id, array(v) AS vs FROM e", {"e": types}, dialect="spark", materialize=True
        )
        keys = {"keys": ["id"]} if mode == "upsert" else {}
        outputs = [Output("view", ParquetTarget(tmp_path / "files"), mode=mode, **keys)]
        weights = pa.array([weight] * len(table), pa.int64())
        sink = ViewSink(circuit, outputs, state_dir=tmp_path / "state")
        with contextlib.closing(sink):
            sink(Frame(table.append_column("weight", weights), "q"), number)
    total: Counter = Counter()
    for row in pq.read_table(tmp_path / "files").to_pylist():
        total[row["id"]] += row["weight"] if mode != "complete" else 1
    assert +total == Counter({1: 1})


def feed(sink, batch):
    sources, targets = zip(*BATCHES[batch], strict=True)
    sink(Frame(pa.table({"src": sources, "dst": targets}), "q"), batch)


def expected(view: str, batch_count: int) -> Counter:
    rows = [row for batch in BATCHES[:batch_count] for row in batch]
    if view == "paths":
        return Counter((a, d) for a, b in rows for c, d in rows if b == c)
    return Counter(Counter(src for src, _ in rows).items())


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_an_added_output_of_an_old_view_writes_the_whole_view_once(job, mode, caplog):
    modes = MODES[mode]
    job.run({"paths": job.sql()}, 0, 1, 2, modes=modes)
    both = {"paths": job.sql(), "counts": job.sql()}
    job.run(both, 3, 4, modes=modes)
    assert "view 'counts': its target holds none of its rows" in caplog.text
    caplog.clear()
    job.run(both, 5, modes=modes)
    assert "holds none" not in caplog.text
    for view in both:
        assert job.rows(view) == expected(view, 6), view


def test_a_replay_leaves_out_the_added_output_until_the_whole_view_is_written(job):
    job.run({"paths": job.sql()}, 0, 1, 2)
    both = {"paths": job.sql(), "counts": job.sql()}
    sink = job.run(both, 2, stop=False)  # Spark replays the last micro-batch
    with contextlib.closing(job.connect()) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    assert "counts" not in names
    feed(sink, 3)
    sink.close()
    assert job.rows("counts") == expected("counts", 4)


class Broken(RuntimeError):
    pass


class BreakingTarget:
    """A target that fails once, before or after the write of one micro-batch."""

    def __init__(self, target, batch_id, after):
        self.target, self.batch_id, self.after = target, batch_id, after

    def last_batch(self, delta):
        return self.target.last_batch(delta)

    def write(self, delta):
        is_broken = delta.batch_id == self.batch_id
        if is_broken and not self.after:
            raise Broken
        self.target.write(delta)
        if is_broken:
            raise Broken


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_at_the_write_of_the_whole_view_leaves_it_once(job, mode, after):
    modes = MODES[mode]
    job.run({"paths": job.sql()}, 0, 1, 2, modes=modes)
    broken = {"paths": job.sql(), "counts": BreakingTarget(job.sql(), 3, after)}
    with pytest.raises(Broken):
        job.run(broken, 3, modes=modes)
    job.run({"paths": job.sql(), "counts": job.sql()}, 3, 4, modes=modes)
    for view in broken:
        assert job.rows(view) == expected(view, 5), view


def test_the_first_micro_batches_are_replayed_to_an_empty_target_without_a_change(job, caplog):
    with pytest.raises(Broken):
        job.run({"paths": job.sql(), "counts": BreakingTarget(job.sql(), 0, False)}, 0)
    job.run({"paths": job.sql(), "counts": job.sql()}, 0, 1)
    assert job.rows("counts") == expected("counts", 2)
    assert "holds none" not in caplog.text


def test_a_view_moves_to_another_table(job):
    job.run({"counts": job.sql("one")}, 0, 1)
    job.run({"counts": job.sql("two")}, 2, 3)
    assert job.rows("two") == expected("counts", 4)


def test_a_view_moves_to_another_folder(job):
    job.run({"counts": ParquetTarget(job.folder / "one")}, 0, 1)
    job.run({"counts": ParquetTarget(job.folder / "two")}, 2)
    job.run({"counts": ParquetTarget(job.folder / "two")}, 3)
    total: Counter = Counter()
    for row in pq.read_table(job.folder / "two").to_pylist():
        total[row["src"], row["n"]] += row["weight"]
    assert Counter({row: n for row, n in total.items() if n}) == expected("counts", 4)


def test_a_renamed_view_writes_the_whole_view_to_the_table_of_its_new_name(job):
    job.run({"counts": job.sql()}, 0, 1)
    renamed = VIEWS.replace("VIEW counts", "VIEW degrees")
    change = ChangeOptions(renames={"degrees": "counts"})
    job.run({"degrees": job.sql()}, 2, text=renamed, change=change)
    job.run({"degrees": job.sql()}, 3, text=renamed)
    assert job.rows("degrees") == expected("counts", 4)


def test_a_renamed_view_in_the_table_of_its_old_name_is_refused_until_it_is_dropped(job):
    job.run({"counts": job.sql("t")}, 0, 1)
    renamed = VIEWS.replace("VIEW counts", "VIEW degrees")
    change = ChangeOptions(renames={"degrees": "counts"})
    with pytest.raises(TargetError, match=r"receives view 'counts'.*drop the table"):
        job.run({"degrees": job.sql("t")}, 2, text=renamed, change=change)
    with contextlib.closing(job.connect()) as connection:
        connection.execute("DROP TABLE t")
    job.run({"degrees": job.sql("t")}, 2, 3, text=renamed)
    assert job.rows("t") == expected("counts", 4)


def test_a_restored_table_is_refused_and_written_again_after_it_is_dropped(job):
    counts = {"counts": job.sql()}
    job.run(counts, 0)
    shutil.copy(job.file, job.folder / "copy")
    job.run(counts, 1, 2)
    shutil.copy(job.folder / "copy", job.file)
    sink = job.run(counts, stop=False)
    for _ in range(2):  # the same sink, which Spark may call again
        with pytest.raises(MissedBatchesError, match="holds the micro-batches up to 0, and must"):
            feed(sink, 3)
    with contextlib.closing(job.connect()) as connection:
        connection.execute("DROP TABLE counts")
    feed(sink, 3)
    feed(sink, 4)
    sink.close()
    assert job.rows("counts") == expected("counts", 5)


def test_a_view_whose_rows_are_not_kept_is_refused_until_they_are_given(job):
    text = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e WHERE dst > 2 GROUP BY src"
    job.run({}, 0, 1, text=text)
    with pytest.raises(
        ProgramChangeError, match=r"targets of 'counts' hold none.*backfill=\{'e': frame\}"
    ):
        job.run({"counts": job.sql()}, 2, text=text)
    rows = [row for batch in BATCHES[:2] for row in batch]
    given = pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]})
    with pytest.raises(ProgramChangeError, match="backfill_batch_id=1"):
        job.run({"counts": job.sql()}, 2, text=text, change=ChangeOptions(backfill={"e": given}))
    change = ChangeOptions(backfill={"e": given}, backfill_batch_id=1)
    job.run({"counts": job.sql()}, 2, text=text, change=change)
    job.run({"counts": job.sql()}, 3, text=text)
    large = [row for batch in BATCHES[:4] for row in batch if row[1] > 2]
    assert job.rows("counts") == Counter(Counter(src for src, _ in large).items())


@pytest.mark.parametrize("starts_again", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_given_rows_are_not_used_again_after_their_change_is_committed(job, starts_again, is_new):
    text = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e WHERE dst > 2 GROUP BY src"
    old = "CREATE VIEW others AS SELECT dst FROM e WHERE src > 5;"
    if is_new:
        job.run({}, 0, 1, text=old)
        text, batch_id = old + text, None
    else:
        job.run({}, 0, 1, text=text)
        batch_id = 1
    tables = {"counts": job.sql()}
    first = ChangeOptions(backfill={"e": edges(2)}, backfill_batch_id=batch_id)
    sink = job.run(tables, 2, text=text, change=first, stop=False)
    feed(sink, 3)
    with contextlib.closing(job.connect()) as connection:
        connection.execute("DROP TABLE counts")
    with pytest.raises(MissedBatchesError):
        feed(sink, 4)
    if starts_again:
        sink = job.run(tables, text=text, change=first, stop=False)
    for _ in range(2):
        with pytest.raises(ProgramChangeError, match="backfill_batch_id=4"):
            feed(sink, 5)
    sink.close()
    job.run(
        tables, 5, text=text, change=ChangeOptions(backfill={"e": edges(5)}, backfill_batch_id=4)
    )
    large = [row for batch in BATCHES[:6] for row in batch if row[1] > 2]
    assert job.rows("counts") == Counter(Counter(src for src, _ in large).items())


def edges(batches: int) -> pa.Table:
    rows = [row for batch in BATCHES[:batches] for row in batch]
    return pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]})


def test_a_renamed_view_whose_table_is_dropped_is_written_again(job):
    job.run({"counts": job.sql("t")}, 0, 1)
    text = VIEWS.replace("VIEW counts", "VIEW numbers")
    change = ChangeOptions(renames={"numbers": "counts"})
    job.run({"numbers": MemoryTarget()}, 2, text=text, change=change)
    job.run({"numbers": job.sql("u")}, 3, text=text, change=change)
    job.run({"numbers": job.sql("u")}, 4, text=text)
    assert job.rows("u") == expected("counts", 5)


def test_a_committed_change_permits_no_later_one(job):
    sink = job.run({}, 0, text=VIEWS, stop=False)
    sink.drop_view("counts")
    feed(sink, 1)
    sink.close()
    job.run({}, 2, text=VIEWS)
    with pytest.raises(StateMismatchError, match="would drop view 'counts'"):
        feed(sink, 3)
    sink.close()


def test_a_target_in_memory_does_not_stop_a_job_that_starts_again(job):
    job.run({"counts": MemoryTarget()}, 0, 1)
    target = MemoryTarget()
    job.run({"counts": target}, 2)
    assert [delta.batch_id for delta in target.deltas("counts")] == [2]
    with pytest.raises(MissedBatchesError, match=r"ViewSink\.table"):
        target.table("counts")


def test_without_a_state_directory_the_first_micro_batch_is_the_whole_view(job):
    circuit = compile_sql(VIEWS, INPUTS, input_options={"e": InputOptions()})
    target = MemoryTarget()
    sink = ViewSink(circuit, target)
    for batch in range(3):
        feed(sink, batch)
    assert [delta.previous for delta in target.deltas("paths")] == [-1, 0, 1]


EVENTS = st.sampled_from(["none", "restart", "drop", "move", "add", "fail before", "fail after"])


@given(
    st.lists(EVENTS, min_size=len(BATCHES), max_size=len(BATCHES)),
    st.sampled_from(list(MODES)),
)
@settings(max_examples=25, deadline=None)
def test_targets_have_the_whole_views_whatever_happens_to_them(events, mode):
    """Before each micro-batch, one event happens to the sink or to the table of ``counts``."""
    modes = MODES[mode]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        tables = {"counts": "counts"}
        sink = None
        for batch, event in enumerate(events):
            if event != "none" and sink is not None:
                sink.close()
                sink = None
            if event == "drop":
                with contextlib.closing(job.connect()) as connection:
                    connection.execute(f"DROP TABLE IF EXISTS {tables['counts']}")
            elif event == "move":
                tables["counts"] = f"counts_{batch}"
            elif event == "add":
                tables.setdefault("paths", "paths")
            targets = {view: job.sql(table) for view, table in tables.items()}
            if event.startswith("fail"):
                broken = BreakingTarget(targets["counts"], batch, event == "fail after")
                with pytest.raises(Broken):
                    job.run({**targets, "counts": broken}, batch, modes=modes)
            sink = sink or job.run(targets, modes=modes, stop=False)
            feed(sink, batch)  # after a failure, a replay
            for view, table in tables.items():
                assert job.rows(table) == expected(view, batch + 1), (view, batch)
        sink.close()
