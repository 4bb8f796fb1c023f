"""A version of the package that computes the views by another plan goes on with their state."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from circuits import InputOptions, Lateness, ProgramChangeError, circuit_spec, compile_sql
from circuits.plan.rewrite import pipeline
from streaming import ChangeOptions, Output, ViewSink, stored_circuit
from streaming.state.local_files import LocalFiles
from streaming.state.program_change import newest_version
from tests.streaming.cli.test_commands import run
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import E, Target, table_of
from tests.support.tables import bag_of

PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
STARTS = (
    "CREATE VIEW starts AS SELECT x.src, count(*) AS n, sum(y.dst) AS s "
    "FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src;"
)
COUNTS = (
    "CREATE VIEW counts AS SELECT * FROM (SELECT src, count(*) AS n FROM e GROUP BY src) t "
    "WHERE src > 1;"
)
KEEP = {"e": InputOptions(keep="all")}


@contextmanager
def earlier_version(change: str):
    """Compile views as an earlier version does: its plans, or also its fingerprints, differ."""
    with (
        patch.object(pipeline, "aggregate_partially", lambda *_: None),
        patch.object(pipeline, "filter_before_groups", lambda *_: None),
    ):
        if change == "plan":
            yield
            return
        digest = circuit_spec._digest
        with patch.object(circuit_spec, "_digest", lambda text: digest(f"earlier {text}")):
            yield


class Job:
    def __init__(self, place, options=KEEP) -> None:
        self.place, self.options = place, options
        self.targets = {view: Target() for view in ("paths", "starts", "counts")}

    def sink(self, text, change=None) -> ViewSink:
        circuit = compile_sql(text, E, input_options=self.options)
        outputs = [Output(view, self.targets[view]) for view in circuit.outputs]
        return ViewSink(circuit, outputs, state_dir=self.place, change=change)

    def run(self, text, *numbers, change=None) -> None:
        sink = self.sink(text, change)
        for number in numbers:
            sink(Frame(table_of(number), "q"), number)
        sink.close()

    def check(self, text, *numbers) -> None:
        tables = compile_sql(text, E).step({"e": table_of(*numbers)})
        for view, table in tables.items():
            assert self.targets[view].rows == bag_of(table), view


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_the_state_is_computed_again_from_kept_rows(change, replay, tmp_path, caplog):
    job = Job(tmp_path)
    with earlier_version(change):
        job.run(PATHS + STARTS, 0, 1, 2)
    old = newest_version(LocalFiles(str(tmp_path)))
    job.run(PATHS + STARTS, *([2] if replay else []), 3)
    assert "computes the views by another plan" in caplog.text
    job.check(PATHS + STARTS, *range(4))
    assert old.traces.keys() != newest_version(LocalFiles(str(tmp_path))).traces.keys()
    caplog.clear()
    job.run(PATHS + STARTS, 3, 4)
    assert "another plan" not in caplog.text
    job.check(PATHS + STARTS, *range(5))


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_before_the_commit_the_earlier_version_can_go_on(change, tmp_path):
    job = Job(tmp_path)
    with earlier_version(change):
        job.run(PATHS + STARTS, 0, 1)
    job.run(PATHS + STARTS, 1)  # a replay, which commits nothing
    with earlier_version(change):
        job.run(PATHS + STARTS, 2)
    job.run(PATHS + STARTS, 3)
    job.check(PATHS + STARTS, *range(4))


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_views_can_change_with_the_version(change, tmp_path):
    job = Job(tmp_path)
    with earlier_version(change):
        job.run(PATHS + STARTS, 0, 1)
    counts = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"
    changed = STARTS.replace("count(*)", "count(*) + 1")
    job.run(counts + changed, 2, change=ChangeOptions(allow_drop=True))
    job.check(counts + changed, 0, 1, 2)


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_rows_that_are_not_kept_are_named_with_the_remedies(change, tmp_path):
    job = Job(tmp_path, {})
    with earlier_version(change):
        job.run(COUNTS, 0, 1)
    with pytest.raises(ProgramChangeError) as error:
        job.run(COUNTS, 2)
    assert "computes the views by another plan" in str(error.value)
    assert "ChangeOptions(backfill={'e': frame}, backfill_batch_id=1)" in str(error.value)
    assert 'InputOptions(keep="all")' in str(error.value)
    job.run(COUNTS, 2, change=ChangeOptions(backfill={"e": table_of(0, 1)}, backfill_batch_id=1))
    job.check(COUNTS, 0, 1, 2)


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_rows_that_a_watermark_has_dropped_are_computed_from_the_kept_ones(change, tmp_path):
    late = {"e": InputOptions(keep="all", lateness=Lateness("dst", 1))}
    near = (
        "CREATE VIEW starts AS SELECT x.dst, count(*) AS n FROM e x JOIN e y "
        "ON x.src = y.src AND y.dst BETWEEN x.dst AND x.dst + 2 GROUP BY x.dst;"
    )
    job = Job(tmp_path, late)
    fresh, total = compile_sql(near, E, input_options=late), Counter()
    for number in range(5):
        total.update(bag_of(fresh.step({"e": table_of(number)})["starts"]))
    with earlier_version(change):
        job.run(near, 0, 1, 2)
    job.run(near, 3, 4)
    assert job.targets["starts"].rows == Counter({row: n for row, n in total.items() if n})


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_plan_change_and_the_stored_views_accept_another_plan(change, tmp_path):
    job = Job(tmp_path / "state")
    with earlier_version(change):
        job.run(PATHS + STARTS, 0, 1)
    status, out, errors = run("plan-change", job.place, PATHS + STARTS, "--json")
    assert (status, errors) == (0, "")
    assert json.loads(out)["views"] == {"paths": "unchanged", "starts": "unchanged"}
    assert {"reuse", "backfill"} <= {entry["action"] for entry in json.loads(out)["state"]}
    circuit = stored_circuit(job.place)
    outputs = [Output(view, job.targets[view]) for view in circuit.outputs]
    sink = ViewSink(circuit, outputs, state_dir=job.place)
    sink(Frame(table_of(2), "q"), 2)
    sink.close()
    job.check(PATHS + STARTS, 0, 1, 2)
