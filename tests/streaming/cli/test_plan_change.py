"""The commands plan-change and clone, and the option --allow-drop of run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuits import compile_sql
from streaming import ChangeOptions, StateMismatchError, ViewSink
from streaming.cli.arguments.checks import check_usable
from streaming.cli.arguments.state_location import StateLocation
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.directory_identity import IDENTITY_FILE, READABLE_FORMATS
from tests.streaming.cli.test_commands import run, run_error
from tests.streaming.state.test_program_change import COUNTS, PATHS, Job, expected, feed
from tests.streaming.state.test_program_change import run as run_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "state")
    run_job(job, PATHS, 0, 1)
    return job


def plan(job: Job, query: str, *options: object) -> tuple[int, dict]:
    status, out, errors = run("plan-change", job.state_dir, query, "--json", *options)
    assert not errors
    return status, json.loads(out)


def test_plan_change_shows_what_is_kept_computed_and_dropped_and_changes_nothing(job: Job) -> None:
    before = {p: p.read_bytes() for p in job.state_dir.rglob("*") if p.is_file()}
    status, contents = plan(job, PATHS + COUNTS)
    assert status == 0
    assert contents["views"] == {"paths": "unchanged", "counts": "new"}
    assert {entry["action"] for entry in contents["state"]} == {"reuse", "backfill"}
    assert all(entry["rows"] == 3 for entry in contents["state"] if entry["action"] == "reuse")
    assert contents["rows_to_read"] == 3
    assert (contents["losses"], contents["missing"], contents["batch"]) == ([], [], 1)
    assert {p: p.read_bytes() for p in job.state_dir.rglob("*") if p.is_file()} == before
    run_job(job, PATHS + COUNTS, 2)
    assert job.rows("counts") == expected(COUNTS, 0, 1, 2)["counts"]


@pytest.mark.parametrize(("name", "language"), [("v3.sql", "SQL"), ("v3.dl", "Datalog")])
def test_plan_change_names_the_order_of_its_arguments(
    job: Job, tmp_path: Path, name: str, language: str
) -> None:
    (tmp_path / name).write_text(PATHS)
    error = run_error("plan-change", tmp_path / name, job.state_dir)
    assert f"{name} is a file of {language}, not a state directory" in error
    assert "plan-change state/ views.sql" in error


def test_plan_change_fails_if_the_change_would_be_refused(job: Job) -> None:
    status, contents = plan(job, COUNTS)
    assert status == 1
    assert contents["views"] == {"counts": "new", "paths": "removed"}
    assert contents["losses"][0] == "view 'paths', which is not published any more"
    status, contents = plan(job, PATHS + "CREATE VIEW names AS SELECT name FROM e")
    assert status == 1
    assert "input 'e'" in contents["missing"][0]
    assert contents["missing"][0].endswith("give them once with run --backfill e=FILE")
    text = "CREATE VIEW more AS SELECT f.t FROM e JOIN f ON e.src = f.id"
    status, contents = plan(job, PATHS + text, "--source", "f=schema=id long not null, t string")
    assert (status, contents["views"]["more"]) == (0, "new")


def test_plan_change_prints_tables(job: Job) -> None:
    status, out, _ = run("plan-change", job.state_dir, PATHS + COUNTS)
    assert status == 0
    for text in ("counts", "new", "backfill", "reuse", "for views", "nothing was changed"):
        assert text in out
    assert "they can be computed in slices" in out
    status, out, _ = run("plan-change", job.state_dir, PATHS)
    assert (status, "new views" in out) == (0, False)
    status, out, _ = run("plan-change", job.state_dir, COUNTS)
    assert status == 1
    assert "drops view 'paths'" in out
    assert "run needs --allow-drop" in out


def test_plan_change_says_why_new_views_are_not_computed_in_slices(job: Job) -> None:
    changed = PATHS.rstrip().rstrip(";") + " WHERE x.src > 0;"
    _, contents = plan(job, changed + COUNTS)
    assert contents["slices"].endswith(
        "slices are not possible: paths: a view that was published before changes"
    )


def test_a_source_replaces_the_input_whose_name_differs_in_case_only(job: Job) -> None:
    source = "E=schema=src long not null, dst long not null, name string"
    status, contents = plan(job, PATHS, "--source", source)
    assert status == 1
    assert contents["losses"][-1].startswith("the rows of input 'e'")
    assert not any(entry["action"] == "reuse" for entry in contents["state"])


def test_plan_change_needs_a_version_and_a_query(tmp_path: Path, job: Job) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no version" in run_error("plan-change", tmp_path / "empty", PATHS)
    assert "error" in run_error("plan-change", job.state_dir, "SELECT x FROM unknown")


def test_plan_change_refuses_a_directory_of_another_format(job: Job) -> None:
    path = job.state_dir / IDENTITY_FILE
    body = decode_checked(path.read_bytes(), str(path))
    path.write_bytes(encode_checked({**body, "format": READABLE_FORMATS[0] - 1}))
    message = run_error("plan-change", job.state_dir, PATHS + COUNTS)
    assert f"has format {READABLE_FORMATS[0] - 1}, this version reads" in message


def test_a_run_that_drops_state_needs_the_option(job: Job) -> None:
    dropping = compile_sql(COUNTS, {"e": "src bigint not null, dst bigint not null, name string"})
    state = StateLocation.parse(str(job.state_dir))
    with pytest.raises(StateMismatchError, match="--allow-drop"):
        check_usable(state, dropping)
    check_usable(state, dropping, change=ChangeOptions(allow_drop=True))


def test_clone_makes_a_directory_that_other_views_start_from(job: Job, tmp_path: Path) -> None:
    (job.state_dir / "checkpoint").mkdir()
    status, out, _ = run("clone", job.state_dir, tmp_path / "copy")
    assert status == 0
    assert "version 1" in out and "copy Spark's checkpoint" not in out
    assert (tmp_path / "copy" / "checkpoint").is_dir()
    (job.state_dir / "checkpoint").rmdir()  # the job keeps its checkpoint elsewhere
    _, out, _ = run("clone", job.state_dir, tmp_path / "without checkpoint")
    assert "copy Spark's checkpoint, too" in " ".join(out.split())
    copy = Job(tmp_path / "copy")
    run_job(copy, PATHS + COUNTS, 2)
    for view, bag in expected(PATHS + COUNTS, 0, 1, 2).items():
        assert copy.rows(view) == bag, view
    status, out, _ = run("clone", job.state_dir, tmp_path / "second", "--json")
    assert json.loads(out)["batch"] == 1
    assert "not an empty folder" in run_error("clone", job.state_dir, tmp_path / "second")


def test_a_state_that_a_sink_writes_to_is_not_cloned(job: Job, tmp_path: Path) -> None:
    sink: ViewSink = job.sink(PATHS)
    feed(sink, 2)
    assert "is written to by another sink" in run_error("clone", job.state_dir, tmp_path / "copy")
    sink.close()
