"""``dbsp-wcoj profile``: its tables and JSON, and its one-line errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from circuits import compile_datalog
from streaming.cli import main
from streaming.cli.app import app
from streaming.cli.arguments.source import read_file
from streaming.cli.profiling import measure
from streaming.cli.profiling.rows import generate_graph, split_stream
from streaming.errors import EventsError

TRIANGLES = "tri(a, b, c) :- e(a, b), e(b, c), e(a, c)."
SMALL_OPTIONS = ("--rows", "400", "--batch", "20", "--steps", "2")


@pytest.fixture(autouse=True)
def no_minimum_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MIN_PROFILE_S", 0.0)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["profile", *arguments])
    return result.exit_code, result.stdout, result.stderr


def profile_json(*arguments: str) -> dict:
    status, out, errors = run(*arguments, "--json")
    assert (status, errors) == (0, "")
    return json.loads(out)


def test_a_profile_has_phases_terms_levels_and_state() -> None:
    result = profile_json(TRIANGLES, *SMALL_OPTIONS)

    phases = {part["phase"]: part for part in result["parts"]}
    assert {"encode", "build runs", "join", "merge", "decode", "other"} <= set(phases)
    assert sum(part["share"] for part in result["parts"]) == pytest.approx(1.0)
    assert phases["encode"]["rows"] == result["batch"] == 20
    assert [len(term["levels"]) for term in result["terms"]] == [3, 3, 3]
    assert sum(term["ms"] for term in result["terms"]) == pytest.approx(phases["join"]["ms"])
    assert {arrangement["name"] for arrangement in result["state"]} >= {
        "e[0,1]",
        "e[1,0]",
    }
    assert result["loaded"] == 360


def test_the_tables_show_phases_and_the_bound_of_each_level() -> None:
    status, out, _ = run("SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src", *SMALL_OPTIONS)

    assert status == 0
    assert "4 steps of 20 rows over 360 rows" in out
    for text in ("Where a step's time goes", "build runs", "AGM bound", "State", "(summed)"):
        assert text in out


@pytest.mark.parametrize("extra", [("--formula", "recursive"), ("--threads", "2"), ("--write",)])
def test_formulas_threads_and_durable_writes_are_profiled(extra: tuple[str, ...]) -> None:
    result = profile_json(TRIANGLES, *SMALL_OPTIONS, *extra)

    has_write_phase = "write" in {part["phase"] for part in result["parts"]}
    assert result["median_ms"] > 0
    assert has_write_phase == ("--write" in extra) == (result["written"] is not None)


def test_relations_and_query_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,x\n" + "".join(f"{n % 9},{n}\n" for n in range(60)))
    pq.write_table(pa.table({"k": list(range(9)) * 4, "y": range(36)}), tmp_path / "b.parquet")
    (tmp_path / "q.sql").write_text("SELECT x, y FROM a JOIN b USING (k)")
    inputs = [
        f"--source={name}={tmp_path / file}" for name, file in (("a", "a.csv"), ("b", "b.parquet"))
    ]

    result = profile_json(str(tmp_path / "q.sql"), *inputs, "--batch", "8", "--steps", "3")

    assert result["loaded"] == 96 - 3 * 8
    assert result["rows_out"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT x FROM e"], "unknown column 'x'"),
        (["q(x) :- f(x)."], "unknown relation 'f'"),
        (["none.sql"], "none.sql: No such file"),
        ([TRIANGLES, "--source", "e"], "write NAME=PATH"),
        ([TRIANGLES, "--source", "e=no.parquet"], "no.parquet: file or folder not found"),
        ([TRIANGLES, "--input", "e=a.csv"], "No such option: --input: it is --source NAME=FILE"),
        ([TRIANGLES, "--source", "e=format=kafka"], "reads files without Spark"),
        ([TRIANGLES, "--source", "e=README.md,feed=maxwell"], "which does not support feed="),
        ([TRIANGLES, "--source", "e=README.md,keys=src,schema=a int"], "remove keys="),
        ([TRIANGLES, "--rows", "10"], "too few for 20 steps of 1,000"),
        ([TRIANGLES, "--formula", "best"], "unknown formula 'best'"),
        ([TRIANGLES, "--state-dir", "."], "not empty; name a new directory"),
    ],
)
def test_invalid_arguments_give_one_line_and_status_2(arguments: list[str], message: str) -> None:
    status, out, errors = run(*arguments)

    assert (status, out) == (2, "")
    assert errors.startswith("error: ") and errors.count("\n") == 1
    assert message in errors


def test_steps_restore_the_state_and_change_each_relation_in_proportion(tmp_path: Path) -> None:
    tables = {"e": generate_graph(300, 0.0, 1), "f": generate_graph(100, 0.8, 2)}

    stream = split_stream(tables, batch=40, steps=3, seed=0)

    circuit = compile_datalog(
        "q(a, c) :- e(a, b), f(b, c).", {n: t.schema for n, t in tables.items()}, materialize=True
    )
    circuit.step(stream.load)
    before = circuit.views["q"]
    for step in stream.steps:
        assert {name: table.num_rows for name, table in step.items()} == {"e": 30, "f": 10}
        circuit.step(step)
    assert circuit.views["q"] == before
    assert stream.rows == 400 - 120


def test_a_generated_graph_is_distinct_and_without_loops() -> None:
    table = generate_graph(1_000, 0.9, 5)

    pairs = set(zip(*table.to_pydict().values(), strict=True))
    assert len(pairs) == table.num_rows == 1_000
    assert all(source != target for source, target in pairs)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no table")

    with pytest.raises(EventsError, match=r"a\.parquet is not a readable Parquet, CSV or JSON"):
        read_file(tmp_path / "a.parquet")


def test_a_missing_package_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "streaming.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)

    with pytest.raises(SystemExit) as stop:
        main()

    assert stop.value.code == 2
    assert "pip install 'dbsp-wcoj[cli]'" in capsys.readouterr().err
