"""New views over inputs with lateness are computed and published in slices while the sink runs."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from circuits import InputOptions, Lateness, compile_sql
from streaming import ChangeOptions, Output, ViewSink, stored_circuit
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import ReplacingTarget
from tests.support.tables import bag_of

A = {"a": "k bigint not null, ts bigint not null"}
SCHEMA = pa.schema({"k": pa.int64(), "ts": pa.int64()})
LATE = {"a": InputOptions(lateness=Lateness("ts", 5), keep="all")}
COUNTS = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM a GROUP BY k;"
WINDOWS = "CREATE VIEW windows AS SELECT ts // 10 AS s, count(*) AS n FROM a GROUP BY 1"
CLOSED = WINDOWS.replace("windows", "closed") + " EMIT ON WINDOW CLOSE"
BOTH = f"{WINDOWS}; {CLOSED};"


def rows_of(number: int) -> pa.Table:
    times = [10 * number + n for n in (3, 6, -4, -9)]  # the last one may be late
    return pa.Table.from_pylist([{"k": n, "ts": ts} for n, ts in enumerate(times)], SCHEMA)


def expected(count: int) -> dict[str, Counter]:
    circuit = compile_sql(COUNTS + BOTH, A, input_options=LATE)
    total: dict[str, Counter] = {"counts": Counter(), "windows": Counter(), "closed": Counter()}
    for number in range(count):
        for view, table in circuit.step({"a": rows_of(number)}).items():
            total[view].update(bag_of(table))
    return {v: Counter({r: n for r, n in rows.items() if n}) for v, rows in total.items()}


class Job:
    """A sink of `COUNTS`, or of the views that its state directory has, and all targets."""

    def __init__(self, state_dir) -> None:
        self.state_dir = state_dir
        self.targets = {view: ReplacingTarget() for view in ("counts", "windows", "closed")}
        self.number = 0
        self.start()

    def start(self) -> None:
        is_new = self.state_dir is None or not self.state_dir.exists()
        circuit = (
            compile_sql(COUNTS, A, input_options=LATE) if is_new else stored_circuit(self.state_dir)
        )
        outputs = [Output(view, self.targets[view]) for view in circuit.outputs]
        self.sink = ViewSink(circuit, outputs, state_dir=self.state_dir)

    def add(self, text=BOTH, **options):
        views = [v for v in ("windows", "closed") if f"VIEW {v}" in text]
        outputs = [Output(view, self.targets[view]) for view in views]
        return self.sink.add_view(text, outputs, change=ChangeOptions(**options))

    def feed(self) -> None:
        self.sink(Frame(rows_of(self.number)), self.number)
        self.number += 1
        assert self.number < 90

    def check(self, *views: str) -> None:
        wanted = expected(self.number)
        for view in views:
            assert self.targets[view].rows == wanted[view], view


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


def test_views_that_are_added_before_the_first_micro_batch_have_its_rows(state_dir):
    job = Job(state_dir)
    committed = job.add(rows_per_batch=6)
    job.feed()
    assert committed.result(0) == 0
    for _ in range(3):
        job.feed()
        job.check("counts", "windows", "closed")


def test_late_rows_are_in_no_slice_and_closed_windows_are_published_once(state_dir):
    job = Job(state_dir)
    for _ in range(12):
        job.feed()
    committed = job.add(rows_per_batch=6)
    while not committed.done():
        job.feed()
    assert job.number > 16
    for _ in range(3):
        job.check("counts", "windows", "closed")
        job.feed()
    assert all(bag.total() <= 8 for bag in job.targets["windows"].batches.values())


@pytest.mark.parametrize("kills", [1, 3, 9])
def test_a_job_that_is_killed_in_the_slices_starts_them_again(kills, tmp_path):
    job = Job(tmp_path / "state")
    for _ in range(10):
        job.feed()
    job.add(rows_per_batch=8)
    for _ in range(kills):
        if job.sink.backfill is not None:
            job.feed()
    job.sink = None  # without `close`
    job.start()
    job.number -= 1
    job.feed()  # a replay
    if "windows" not in job.sink.circuit.outputs:
        committed = job.add(rows_per_batch=8)
        while not committed.done():
            job.feed()
    job.feed()
    job.check("counts", "windows", "closed")


def test_views_are_dropped_and_added_in_the_middle_of_the_slices(state_dir):
    job = Job(state_dir)
    for _ in range(8):
        job.feed()
    futures = [job.add(WINDOWS, rows_per_batch=9)]
    job.feed()
    futures.append(job.add(CLOSED, rows_per_batch=30))
    futures.append(job.sink.drop_view("counts"))
    while not all(future.done() for future in futures):
        job.feed()
    job.feed()
    job.check("windows", "closed")
    assert list(job.sink.circuit.plans) == ["windows", "closed"]


def test_the_state_that_drops_rows_is_written_in_slices(tmp_path):
    job = Job(tmp_path / "state")
    rows = [{"k": n, "ts": n} for n in range(3000)]
    job.sink(Frame(pa.Table.from_pylist(rows, SCHEMA)), 0)
    text = "CREATE VIEW windows AS SELECT x.k, y.ts FROM a x JOIN a y ON x.k = y.k"
    committed = job.sink.add_view(
        text, [Output("windows", job.targets["windows"])], change=ChangeOptions(rows_per_batch=500)
    )
    number = 1
    while not committed.done():
        assert number < 40
        job.sink(Frame(pa.Table.from_pylist([], SCHEMA)), number)
        number += 1
    manifest = read_manifest(LocalFiles(str(tmp_path / "state")), number - 1)
    new_bytes = sum(
        reference.size
        for orders in manifest.traces.values()
        for references in orders.values()
        for reference in references
    )
    assert job.sink.metrics[-1].bytes_written < new_bytes / 4
    job.sink.close()
    job.start()
    more = pa.Table.from_pylist([{"k": 7, "ts": 3001}], SCHEMA)
    job.sink(Frame(more), number)
    wanted = Counter({(n, n): 1 for n in range(3000)})
    wanted.update({(7, 7): 1, (7, 3001): 2})
    assert job.targets["windows"].rows == wanted
