"""``dbsp-wcoj run`` with its state on an object store."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from streaming.cli.app import app
from streaming.cli.arguments.checks import Checks, check_state
from streaming.state.manifest import list_batch_ids
from streaming.state.object_store.object_files import ObjectFiles
from tests.streaming.cli.test_run import run, write_rows
from tests.support.fed_sink import feed, sink_on, views

QUERY = "SELECT src, count(*) AS n FROM e GROUP BY src"


@pytest.mark.slow
def test_a_run_and_the_run_of_its_clone_continue_from_a_state_on_an_object_store(
    location, tmp_path
):
    """Takes about a minute, as each run starts Spark."""
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3))
    options = ("--source", f"e={tmp_path}/in,keep=all", "--once", "--memory-limit", "1")
    checkpoint = tmp_path / "checkpoint"
    first = (QUERY, *options, "--state", location, "--checkpoint", checkpoint)
    run(*first, "--sink", f"parquet:{tmp_path}/out")
    assert list_batch_ids(ObjectFiles(location)) == [0]
    copy = f"{location}-copy"
    result = CliRunner().invoke(app, ["clone", location, copy, "--json"])
    assert json.loads(result.output)["batch"] == 0
    shutil.copytree(checkpoint, tmp_path / "checkpoint-copy")
    write_rows(tmp_path / "in", 1, (1, 2), (1, 3))
    out, _ = run(*first, "--sink", "console", "--json")
    rows = [(line["weight"], line["row"]) for line in map(json.loads, out.splitlines())]
    assert (1, {"src": 1, "n": 3}) in rows
    second = ("--state", copy, "--checkpoint", tmp_path / "checkpoint-copy")
    out, _ = run(QUERY, *options, *second, "--sink", "console", "--json")
    rows = [(line["weight"], line["row"]) for line in map(json.loads, out.splitlines())]
    assert sorted((w, row["src"], row["n"]) for w, row in rows) == [(1, 1, 3), (1, 2, 1)]


def problems_of(location, circuit, checkpoint):
    checks = Checks()
    check_state(checks, location, circuit, None, checkpoint=checkpoint)
    return "; ".join(checks.problems)


def test_problems_are_found_before_spark_starts(location, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    assert not problems_of(location, views(), checkpoint)
    feed(sink_on(location), 0)
    assert not problems_of(location, views(), checkpoint)  # Spark has not recorded micro-batch 0
    feed(sink_on(location), 0, 1)
    assert f"at micro-batch 1 and {checkpoint} at -1" in problems_of(location, views(), checkpoint)
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "commits" / "0").touch()
    assert not problems_of(location, views(), checkpoint)
    assert "cannot be read" in problems_of("s3://no-such-bucket/state", views(), checkpoint)
