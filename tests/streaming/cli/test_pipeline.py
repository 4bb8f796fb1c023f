"""The command ``pipeline``."""

from __future__ import annotations

import json
import shutil
from random import Random

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from streaming.cli.app import app
from streaming.errors import TargetError
from streaming.pipeline.definition import PipelineDefinition
from streaming.targets.delta import DeltaTarget
from tests.support.pipeline_world import PipelineWorld

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")


@pytest.fixture
def world(tmp_path):
    created = PipelineWorld(tmp_path)
    created.create()
    return created


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["pipeline", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_refresh_reads_and_writes_what_has_changed(world):
    world.change(Random(1))
    assert "read     customers: 2 rows (the whole table)" in run("refresh", world.file)
    assert world.actual() == world.expected()
    assert "nothing has changed" in run("refresh", world.file)
    assert json.loads(run("refresh", world.file, "--json"))["refresh"] is None


def test_explain_shows_how_each_view_is_refreshed(world):
    text = run("explain", world.file)
    assert "cities: incremental\n  aggregate count(*), sum(worth) by city\n  view lines" in text
    plans = json.loads(run("explain", world.file, "--json"))
    assert plans.keys() == {"cities", "lines", "strangers"}
    assert "arrangements" in run("explain", world.file, "--plan")


def test_check_reports_every_problem(world):
    assert "3 views; no problem" in run("check", world.file)
    result = json.loads(run("check", world.file, "--json"))
    assert result["ok"] and len(result["files"]) == 2
    assert result["tables"] == ["customers", "orders"]
    assert sorted(result["views"]) == ["cities", "lines", "strangers"]
    (world.folder / "sql" / "x.sql").write_text("CREATE VIEW x AS SELECT y, z FROM customers")
    text = run("check", world.file, status=2)
    assert text.count("error:") == 2
    assert "x.sql, line 1, column 25, x: unknown column 'y'" in text


@pytest.mark.parametrize("action", ["refresh", "explain"])
def test_every_action_reports_every_problem(world, action):
    (world.folder / "sql" / "x.sql").write_text("CREATE VIEW x AS SELECT y, z FROM customers")
    text = run(action, world.file, status=2)
    assert text.count("error:") == 2
    assert "x.sql, line 1, column 28, x: unknown column 'z'" in text


def test_a_correct_pipeline_is_not_searched_for_problems(world, monkeypatch):
    monkeypatch.setattr(PipelineDefinition, "find_problems", None)
    run("refresh", world.file)
    (world.folder / "state").rename(world.folder / "moved")
    (world.folder / "state").write_text("")
    monkeypatch.undo()
    assert "state" in run("refresh", world.file, status=2)


def test_a_refresh_that_fails_after_its_commit_has_the_status_of_a_failed_run(world, monkeypatch):
    def fail(self, delta):
        raise TargetError("no space")

    world.change(Random(1))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTarget, "write", fail)
        assert "no space" in run("refresh", world.file, status=1)
        assert "no space" in run("refresh", world.file, status=1)  # publishes the same step
    run("refresh", world.file)
    assert world.actual() == world.expected()


def test_a_refresh_that_fails_before_its_commit_has_done_nothing(world):
    world.change(Random(1))
    run("refresh", world.file)
    shutil.rmtree(world.folder / "customers")
    deltalake.write_deltalake(world.folder / "customers", pa.table({"id": [1], "city": ["Bari"]}))
    assert "is not the table of the last refresh" in run("refresh", world.file, status=2)


@pytest.mark.spark
def test_a_view_that_the_engine_lacks_is_computed_by_spark(world, spark):
    text = world.file.read_text()
    world.file.write_text(f'{text}[run]\ndialect = "spark"\n')
    (world.folder / "sql" / "x.sql").write_text(
        "CREATE VIEW x AS SELECT id, xpath_int(concat('<a>', id, '</a>'), 'a') AS y FROM customers"
    )
    assert "4 views; no problem" in run("check", world.file)
    explained = run("explain", world.file)
    assert "x: recomputed by Spark\n  because of " in explained
    assert "x.sql, line 1: function xpath_int() is not supported" in explained
    assert "computed x: by Spark" in run("refresh", world.file)
    world.change(Random(1))
    run("refresh", world.file)
    rows = deltalake.DeltaTable(world.folder / "lake" / "x").to_pyarrow_table().to_pylist()
    customers = deltalake.DeltaTable(world.folder / "customers").to_pyarrow_table().to_pylist()
    assert sorted(row["y"] for row in rows) == sorted(row["id"] for row in customers)


def test_options_of_other_actions_are_refused(world):
    for action in ("refresh", "check", "run"):
        assert "--plan is for pipeline explain" in run(action, world.file, "--plan", status=2)
    for action in ("refresh", "check", "explain"):
        text = run(action, world.file, "--every", "5 seconds", status=2)
        assert "--every is the pause of pipeline run" in text


def test_an_unknown_action_is_refused(world):
    assert "refresh, run, explain, check" in run("restart", world.file, status=2)
