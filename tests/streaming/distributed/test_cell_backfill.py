"""New views are computed in cells in slices while the sink runs; the cells run in this process."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from circuits import InputOptions, Lateness, ProgramChangeError, Retention, compile_sql
from streaming import ChangeOptions, Output, ViewSink, stored_circuit
from streaming.distributed.cell_state import divide_circuit
from streaming.distributed.execution.executor_cache import CACHE
from streaming.distributed.rescaling import rescale_state
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_cell_manifest, read_manifest
from streaming.state.offline_compaction import compact_state
from tests.support.changing_sink import ReplacingTarget
from tests.support.local_cells import LocalFrame, local_cells
from tests.support.tables import bag_of

SCHEMA = pa.schema([("src", pa.string()), ("dst", pa.string())])
KEEP = {"e": InputOptions(keep="all")}
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
COUNTS = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"
# Before `counts` and `paths` in the order of the stages, so that these get other numbers.
AGES = (
    "CREATE VIEW ages AS SELECT x.dst, count(*) AS n, max(y.dst) AS m FROM e x JOIN e y "
    "ON x.src = y.dst GROUP BY x.dst;"
)
# The join is that of `paths`.
ENDS = "CREATE VIEW ends AS SELECT DISTINCT y.dst FROM e x JOIN e y ON x.dst = y.src;"


@pytest.fixture(autouse=True)
def cells():
    with local_cells():
        yield


class Job:
    """A sink of some views, or of the views that its state directory has, and all targets."""

    def __init__(self, place, text=PATHS + COUNTS, input_options=KEEP) -> None:
        self.place = place
        self.targets: dict[str, ReplacingTarget] = {}
        self.rows: Counter = Counter()
        self.number = 0
        self.start(compile_sql(text, {"e": SCHEMA}, input_options=input_options))

    def start(self, circuit=None) -> None:
        circuit = circuit or stored_circuit(self.place)
        outputs = [self.output(view) for view in circuit.outputs]
        self.sink = ViewSink(circuit, outputs, state_dir=self.place, mode="distributed", cells=3)

    def output(self, view) -> Output:
        return Output(view, self.targets.setdefault(view, ReplacingTarget()))

    def add(self, text, *views, **options):
        outputs = [self.output(view) for view in views]
        return self.sink.add_view(text, outputs, change=ChangeOptions(**options))

    def feed(self) -> None:
        n = self.number
        changes = [(f"{n % 7}", f"{(n * 3) % 7}", 1), (f"{n % 5}", f"{n % 3}", 1)]
        if n % 3 == 2:
            changes.append((*sorted(self.rows.elements())[n], -1))
        for src, dst, weight in changes:
            self.rows[src, dst] += weight
        names = ["src", "dst", "weight"]
        table = pa.Table.from_pylist([dict(zip(names, c, strict=True)) for c in changes])
        self.sink(LocalFrame(table), n)
        self.number += 1
        assert self.number < 90

    def check(self, text) -> None:
        """Check that the targets have the rows of these views, as one process computes them."""
        table = pa.Table.from_pylist(
            [{"src": s, "dst": d} for s, d in self.rows.elements()], SCHEMA
        )
        deltas = compile_sql(text, {"e": SCHEMA}).step({"e": table})
        for view, delta in deltas.items():
            assert self.targets[view].rows == bag_of(delta), view

    def check_files(self) -> None:
        """Check that the directory has the files of its versions and no others."""
        numbers = range(max(0, self.number - 3), self.number)
        files = LocalFiles(self.place)
        names = {name for n in numbers for name in read_manifest(files, n).all_files}
        present = {
            f"{folder}/{path.name}"
            for folder in ("data", "outputs")
            for path in (self.place / folder).iterdir()
        }
        assert present == names


@pytest.mark.parametrize("text", [AGES, ENDS, AGES + ENDS])
def test_new_views_are_computed_and_published_in_slices_beside_the_cells_of_the_old(text, tmp_path):
    job = Job(tmp_path)
    for _ in range(12):
        job.feed()
    views = [view for view in ("ages", "ends") if f"VIEW {view}" in text]
    committed = job.add(text, *views, rows_per_batch=6)
    read = []
    while not committed.done():
        job.feed()
        job.check(PATHS + COUNTS)
        if job.sink.backfill is not None:
            read.append(job.sink.backfill.rows_read)
    assert read[:2] == [6, 12]
    assert all(bag.total() <= 12 for view in views for bag in job.targets[view].batches.values())
    for _ in range(3):
        job.check(PATHS + COUNTS + text)
        job.feed()
    job.check_files()
    job.sink.close()
    job.start()
    job.feed()
    job.check(PATHS + COUNTS + text)


def test_the_cell_of_a_recursion_goes_on_beside_new_views(tmp_path):
    reach = """CREATE VIEW reach AS WITH RECURSIVE tc(src, dst) AS (
        SELECT src, dst FROM e UNION SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst
    ) SELECT src, dst FROM tc;"""
    job = Job(tmp_path, text=PATHS + reach)
    for _ in range(12):
        job.feed()
    committed = job.add(AGES, "ages", rows_per_batch=6)
    while not committed.done():
        job.feed()
        job.check(PATHS + reach)
    for _ in range(4):
        job.feed()
        job.check(PATHS + reach + AGES)
    job.check_files()
    job.sink.close()


@pytest.mark.parametrize("mode", ["upsert", "complete"])
def test_a_new_materialized_view_is_computed_in_slices(tmp_path, mode):
    job = Job(tmp_path)
    for _ in range(12):
        job.feed()
    output = Output("ages", None, mode, ["dst"] if mode == "upsert" else ())
    options = ChangeOptions(rows_per_batch=6)
    committed = job.sink.add_view(AGES, [output], materialize=["ages"], change=options)
    while not committed.done():
        job.feed()
        job.check(PATHS + COUNTS)
    for _ in range(3):
        job.feed()
        table = pa.Table.from_pylist([{"src": s, "dst": d} for s, d in job.rows.elements()], SCHEMA)
        expected = bag_of(compile_sql(AGES, {"e": SCHEMA}).step({"e": table})["ages"])
        assert bag_of(job.sink.table("ages")) == expected
        assert job.sink.last is not None
        published = bag_of(job.sink.last.outputs["ages"])
        if mode == "complete":
            assert published == expected
        else:
            assert {row for row, n in published.items() if n > 0} <= expected.keys()
    job.sink.close()


@pytest.mark.parametrize("convert", ["steps", "compact", "rescale"])
def test_the_parts_of_cells_with_new_names_are_read_merged_and_converted(convert, tmp_path):
    job = Job(tmp_path)
    for _ in range(12):
        job.feed()
    committed = job.add(AGES, "ages", rows_per_batch=6)
    while not committed.done():
        job.feed()
    version = read_manifest(LocalFiles(tmp_path), job.number - 1)
    assert version.cells is not None
    parts = [
        part
        for manifest in map(read_cell_manifest, version.cells.manifests.values())
        for orders in manifest.traces.values()
        for parts in orders.values()
        for part in parts
    ]
    assert any(part.stored_name for part in parts)
    if convert == "steps":
        for _ in range(20):
            CACHE.clear()  # another worker steps the cells
            job.feed()
    else:
        job.sink.close()
        files = LocalFiles(tmp_path)
        if convert == "compact":
            compact_state(files, divide=divide_circuit)
        else:
            for count in (None, 2, 3):
                rescale_state(files, cells=count)
        job.start()
        job.feed()
    job.check(PATHS + COUNTS + AGES)


def test_a_job_that_stops_between_the_slices_begins_again(tmp_path):
    job = Job(tmp_path)
    for _ in range(12):
        job.feed()
    for _ in range(2):
        job.add(AGES, "ages", rows_per_batch=2)
        while job.sink.backfill is None or job.sink.backfill.rows_published < 3:
            job.feed()
        assert 0 < job.targets["ages"].rows.total() < 7
        job.sink.close()
        job.start()
    job.feed()
    job.check(PATHS + COUNTS)
    job.check_files()
    committed = job.add(AGES, "ages", rows_per_batch=50)
    while not committed.done():
        job.feed()
    job.check(PATHS + COUNTS + AGES)


def test_a_backfill_that_is_cancelled_leaves_no_files(tmp_path):
    job = Job(tmp_path)
    for _ in range(6):
        job.feed()
    committed = job.add(AGES, "ages", rows_per_batch=4)
    job.feed()
    assert committed.cancel()
    job.feed()
    assert job.sink.backfill is None
    for _ in range(3):
        job.feed()
    job.check(PATHS + COUNTS)
    job.check_files()


@pytest.mark.parametrize("calls", [1, 5, 20, 60])
def test_a_failed_write_at_the_change_begins_the_backfill_again(calls, tmp_path, monkeypatch):
    job = Job(tmp_path)
    for _ in range(9):
        job.feed()
    committed = job.add(AGES + ENDS, "ages", "ends", rows_per_batch=30)
    while job.sink.backfill is not None:
        job.feed()
    assert not committed.done()  # the next micro-batch commits the change
    write, left = LocalFiles.write, [calls]

    def fail(self, name, chunks):
        left[0] -= 1
        if not left[0]:
            raise OSError("no space")
        write(self, name, chunks)

    monkeypatch.setattr(LocalFiles, "write", fail)
    rows = Counter(job.rows)
    try:
        job.feed()
    except Exception:
        job.rows = rows
    monkeypatch.undo()
    while not committed.done():
        job.feed()
    job.check(PATHS + COUNTS + AGES + ENDS)
    job.feed()
    job.check(PATHS + COUNTS + AGES + ENDS)


def test_further_changes_wait_until_the_change_is_committed(tmp_path):
    job = Job(tmp_path)
    for _ in range(6):
        job.feed()
    futures = [job.add(AGES, "ages", rows_per_batch=50)]
    while job.sink.backfill is not None:
        job.feed()
    futures.append(job.add(ENDS, "ends"))
    futures.append(job.sink.drop_view("counts"))
    for _ in range(4):
        job.feed()
    assert all(future.done() for future in futures)
    job.check(PATHS + AGES + ENDS)


def test_a_view_that_is_added_before_the_first_micro_batch_has_all_rows(tmp_path):
    job = Job(tmp_path)
    committed = job.add(AGES, "ages", rows_per_batch=1)
    job.feed()
    assert committed.result(0) == 0
    job.feed()
    job.check(PATHS + COUNTS + AGES)


def test_rows_that_the_driver_does_not_keep_are_refused(tmp_path):
    job = Job(tmp_path, input_options={})
    job.feed()
    with pytest.raises(ProgramChangeError, match=r"input 'e'.* only rows that the driver keeps"):
        job.add(AGES, "ages", rows_per_batch=1)
    job.add(AGES, "ages")
    job.feed()
    job.check(PATHS + COUNTS + AGES)


def test_rows_that_are_given_are_read_in_slices(tmp_path):
    job = Job(tmp_path, input_options={})
    for _ in range(12):
        job.feed()
    rows = [{"src": s, "dst": d} for s, d in job.rows.elements()]
    given = {"e": pa.Table.from_pylist(rows, SCHEMA)}
    committed = job.add(AGES, "ages", rows_per_batch=6, backfill=given)
    read = []
    while not committed.done():
        job.feed()
        job.check(PATHS + COUNTS)
        if job.sink.backfill is not None:
            read.append(job.sink.backfill.rows_read)
    assert read[:3] == [6, 12, 18]
    job.check(PATHS + COUNTS + AGES)
    job.sink.close()
    job.start()
    job.feed()
    job.check(PATHS + COUNTS + AGES)
    job.check_files()


OPTIONS = {
    "keys": InputOptions(keys=("k",)),
    "late": InputOptions(keep="all", lateness=Lateness("ts", 8)),
    "retained": InputOptions(retain=Retention("ts", 25), lateness=Lateness("ts", 8)),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_slices_have_the_upserts_expirations_and_late_rows_of_their_inputs(options, tmp_path):
    columns = {"a": "k bigint not null, ts bigint not null"}
    input_options = {"a": OPTIONS[options]}
    first = "CREATE VIEW counts AS SELECT ts % 4 AS m, count(*) AS n FROM a GROUP BY 1;"
    second = (
        "CREATE VIEW pairs AS SELECT x.k, y.ts FROM a x JOIN a y ON x.k = y.k;"
        "CREATE VIEW best AS SELECT k, max(ts) AS m FROM a GROUP BY k;"
    )
    every = compile_sql(first + second, columns, input_options=input_options)
    expected = {view: Counter() for view in every.outputs}
    targets = {view: ReplacingTarget() for view in every.outputs}
    sink = ViewSink(
        compile_sql(first, columns, input_options=input_options),
        [Output("counts", targets["counts"])],
        state_dir=tmp_path,
        mode="distributed",
        cells=3,
    )
    random = Random(options)
    committed = None
    for number in range(20):
        keys = random.sample(range(30), 5)  # an upsert has one row per key
        rows = [{"k": k, "ts": 6 * number + random.randrange(-12, 6)} for k in keys]
        table = pa.Table.from_pylist(rows)
        sink(LocalFrame(table), number)
        for view, delta in every.step({"a": table}).items():
            expected[view].update(bag_of(delta))
        if number == 7:
            outputs = [Output(view, targets[view]) for view in ("pairs", "best")]
            committed = sink.add_view(second, outputs, change=ChangeOptions(rows_per_batch=30))
        published = targets if committed is not None and committed.done() else ["counts"]
        for view in published:
            rows_of_view = {row: n for row, n in expected[view].items() if n}
            assert targets[view].rows == rows_of_view, view
    assert committed is not None and committed.result(0) < 19
