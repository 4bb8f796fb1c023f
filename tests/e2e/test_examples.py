from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.notebooks import NOTEBOOKS, execute, outputs, read_notebook

EXAMPLES = Path(__file__).parents[2] / "examples"

# A part of the output; then a part of the view, and a replacement that makes the answer wrong.
PLAIN = {
    "friend_triangles": ("42 triangles in all; 3 people's counts changed", "WHERE ab.b < bc.b", ""),
    "three_way_match": ("To be looked at: 39 orders", "i.cents <> o.cents", "i.cents > 9000"),
    "live_recommendation": ("recommendations now", "f2.whom > f1.whom", "f2.whom <> f1.whom"),
}
IN_SPARK = {
    "live_triangles": ["day 23 "],
    "payment_rings": ["ALERT", "12 rings planted, 12 found."],
    "stream_to_views": ["The view has the counts of 200 orders."],
    "lake_table": ["broke down in micro-batch 7", "Delta table, version", "Equal to the sum"],
}


def test_the_pipeline_of_a_lake_is_equal_to_its_views_after_each_refresh(capsys):
    pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")
    example("lake_pipeline").main()
    printed = capsys.readouterr().out
    assert "(difference of the files)" in printed
    assert "After each refresh, the tables were equal" in printed


def example(name):
    return importlib.import_module(f"examples.{name}")


@pytest.mark.parametrize("name", PLAIN)
def test_an_example_checks_its_answer_and_prints_it(name, capsys):
    example(name).main()
    assert PLAIN[name][0] in capsys.readouterr().out


@pytest.mark.parametrize("name", PLAIN)
def test_an_example_with_a_wrong_view_fails_its_check(name, monkeypatch):
    module, (_, right, wrong) = example(name), PLAIN[name]
    assert right in module.VIEWS
    monkeypatch.setattr(module, "VIEWS", module.VIEWS.replace(right, wrong))
    with pytest.raises(AssertionError):
        module.main()


def test_circular_imports_are_added_and_removed_with_their_packages(capsys):
    example("circular_imports").main(["sqlglot", "py4j", "lark"])
    printed = capsys.readouterr().out
    assert "+ sqlglot" in printed
    assert "- sqlglot" in printed
    assert "new circles of 2, for example" in printed
    assert "circles of 2 removed" in printed
    assert printed.endswith("Left: lark with 0 circles of two and 0 of three.\n")


def test_a_package_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match="nowhere is not an installed package"):
        example("circular_imports").main(["nowhere"])


@pytest.mark.spark
@pytest.mark.parametrize("name", IN_SPARK)
def test_an_example_in_spark_checks_its_answer_and_prints_it(name, spark, capsys):
    example(name).main()
    printed = capsys.readouterr().out
    for words in IN_SPARK[name]:
        assert words in printed


@pytest.mark.spark
def test_the_lake_is_a_log_of_parquet_where_delta_is_not_installed(spark, capsys, monkeypatch):
    module = example("lake_table")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    module.main()
    assert "Parquet log of" in capsys.readouterr().out


def test_every_example_is_run_here():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"}
    assert scripts == {*PLAIN, *IN_SPARK, "circular_imports", "lake_pipeline"}


def test_an_example_is_a_script_that_runs_alone_in_any_directory(tmp_path):
    root = EXAMPLES.parent
    completed = subprocess.run(
        [sys.executable, EXAMPLES / "friend_triangles.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith("The club")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.spark] * path.stem.endswith("_spark"))
        for path in NOTEBOOKS
    ],
)
def test_an_executed_notebook_prints_its_stored_outputs(path):
    assert outputs(execute(path)) == outputs(read_notebook(path))
