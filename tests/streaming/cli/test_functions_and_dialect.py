"""``--dialect`` and ``--functions`` of the commands, and in a state directory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from circuits import compile_sql, udf
from streaming import MemoryTarget, StateMismatchError, ViewSink
from streaming.cli.app import app
from streaming.distributed.rescaling import rescale_state
from streaming.state.local_files import LocalFiles
from streaming.state.view_definitions import (
    check_definition,
    read_definition,
    write_definition,
)
from tests.streaming.sink.test_view_sink import Frame

SCHEMAS = {"t": "x bigint"}
MODULE = """
from circuits import udf
FUNCTIONS = {"twice": udf(lambda x: 2 * x, returns="bigint")}
half = udf(lambda x: x / 2, returns="double")
nothing = 5
bad = {"my name": half}
"""


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "scoring_of_a_test.py"
    path.write_text(MODULE)
    return path


def test_a_query_calls_functions_of_a_file_or_a_module(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "t.csv"
    rows.write_text("x\n1\n2\n")
    query = "SELECT twice(x) AS v FROM t"
    status, out, errors = invoke(
        "replay", query, "--source", f"t={rows}", "--functions", f"{module}:FUNCTIONS"
    )
    assert status == 0, errors
    assert out.startswith("SQL dialect: duckdb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    query = "SELECT half(x) AS v FROM t"
    status, out, errors = invoke(
        "explain", query, "--source", f"t={rows}", "--functions", "scoring_of_a_test:half"
    )
    assert status == 0, errors
    assert "call user-defined function half(x)" in out
    assert "SQL dialect: duckdb" in out
    status, out, errors = invoke(
        *("explain", query, "--check", "--source", f"t={rows}"),
        *("--functions", "scoring_of_a_test:half"),
    )
    assert (status, out) == (0, "no obstacle in SQL dialect duckdb\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}", "write MODULE:NAME"),
        ("{}:missing", "has no missing"),
        ("{}:nothing", "is a int"),
        ("{}:bad", "letters, digits"),
        ("no_such_module:f", "cannot be imported (ModuleNotFoundError"),
        ("no_such_file.py:f", "no file no_such_file.py"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(module: Path, name: str, message: str) -> None:
    text = name.format(module)
    status, _, errors = invoke("explain", "SELECT 1 AS x", "--functions", text)
    assert status == 2
    assert text in errors and message in errors


def test_commands_use_the_given_dialect(tmp_path: Path) -> None:
    query = "SELECT shiftright(x, 1) AS v FROM t"
    source = ["--source", "t=schema=x long"]
    status, out, _ = invoke("explain", query, *source, "--dialect", "spark")
    assert status == 0 and "SQL dialect: spark" in out
    status, out, _ = invoke("explain", query, *source, "--dialect", "spark", "--json")
    assert json.loads(out)["dialect"] == "spark"
    status, _, errors = invoke("explain", query, *source)
    assert status != 0 and "shiftright" in errors
    status, _, errors = invoke("explain", query, *source, "--dialect", "klingon")
    assert status != 0 and "unknown dialect 'klingon'" in errors


def test_a_run_checks_the_dialect_and_the_functions_of_its_state(
    module: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "t"
    rows.mkdir()
    (rows / "a.csv").write_text("x\n1\n")
    state = tmp_path / "state"
    circuit = compile_sql(
        "SELECT twice(x) AS v FROM t",
        {"t": pa.schema([("x", pa.int64())])},
        functions={"twice": udf(lambda x: 2 * x, returns="double")},
    )
    state.mkdir()
    write_definition(LocalFiles(state), circuit.spec)
    job = tmp_path / "job.toml"
    job.write_text(
        f'query = "SELECT twice(x) AS v FROM t"\n[inputs.t]\npath = "{rows}"\nschema = "x long"\n'
        f'[run]\ndialect = "spark"\nfunctions = "{module.name}:FUNCTIONS"\n'
        '[state]\npath = "state"\n'
    )
    status, _, errors = invoke("run", job, "--check")
    assert status == 2
    assert (
        "views in SQL dialect 'duckdb'" in errors and "these views are in dialect 'spark'" in errors
    )
    status, _, errors = invoke("run", job, "--check", "--dialect", "duckdb")
    assert "twice was declared as (...) -> double and is now (...) -> int64" in errors
    status, _, errors = invoke(
        "run", job, "--check", "--dialect", "duckdb", "--state", tmp_path / "n"
    )
    assert status == 0, errors


def test_a_state_directory_records_the_functions_of_its_views(tmp_path: Path) -> None:
    functions = {"f": udf(lambda x: x, returns="bigint"), "unused": udf(abs, returns="bigint")}
    spec = compile_sql("SELECT f(x) AS v FROM t", SCHEMAS, functions=functions).spec
    files = LocalFiles(tmp_path)
    write_definition(files, spec)
    text = (tmp_path / "views.json").read_text()
    assert '"functions":{"f":"(...) -> int64"}' in text and "unused" not in text
    assert read_definition(files, functions).fingerprint == spec.fingerprint
    with pytest.raises(StateMismatchError, match=r"functions f\(\.\.\.\) -> int64, which are not"):
        read_definition(files)
    with pytest.raises(StateMismatchError, match=r"is now \(\.\.\.\) -> int64, version '2'"):
        read_definition(files, {"f": udf(abs, returns="bigint", version="2")})
    check_definition(files, spec)
    with pytest.raises(StateMismatchError, match="not given"):
        check_definition(files, compile_sql("SELECT x AS v FROM t", SCHEMAS).spec)


def test_a_new_sink_compares_dialect_and_functions_with_its_state(tmp_path: Path) -> None:
    query = "SELECT f(x) AS v FROM t"
    functions = {"f": udf(abs, returns="bigint")}
    write_definition(LocalFiles(tmp_path), compile_sql(query, SCHEMAS, functions=functions).spec)
    ViewSink(compile_sql(query, SCHEMAS, functions=functions), MemoryTarget(), state_dir=tmp_path)
    spark = compile_sql(query, SCHEMAS, functions=functions, dialect="spark")
    with pytest.raises(
        StateMismatchError, match="dialect 'duckdb', and these views are in dialect"
    ):
        ViewSink(spark, MemoryTarget(), state_dir=tmp_path)
    other = compile_sql(query, SCHEMAS, functions={"f": udf(abs, returns="double")})
    with pytest.raises(StateMismatchError, match="was declared as"):
        ViewSink(other, MemoryTarget(), state_dir=tmp_path)


def test_rescaling_needs_the_functions(tmp_path: Path) -> None:
    functions = {"f": udf(abs, returns="bigint")}
    circuit = compile_sql("SELECT f(x) AS v FROM t", SCHEMAS, functions=functions)
    sink = ViewSink(circuit, state_dir=tmp_path)
    sink(Frame(pa.table({"x": [1]}), "q"), 0)
    sink.close()
    with pytest.raises(StateMismatchError, match=r"functions f.*not given"):
        rescale_state(LocalFiles(tmp_path), cells=2)
