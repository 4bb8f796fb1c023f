"""The commands that need no Spark: their results, output and errors."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from circuits import compile_sql
from circuits.runtime.state_names import arrangement_sizes
from dbsp_wcoj import Formula, warm_up
from streaming import StateLockedError, StateMismatchError, ViewSink
from streaming.cli.app import EXAMPLES, app
from streaming.cli.arguments import declarations as declared
from streaming.cli.arguments.checks import check_usable
from streaming.cli.arguments.options import FORMULAS, PAGE_PORT
from streaming.cli.arguments.run_options import RunOptions
from streaming.cli.arguments.state_location import StateLocation
from streaming.cli.command import REMOVED_OPTIONS, report_errors
from streaming.cli.commands import bench as bench_module
from streaming.cli.terminal.spark_error import is_lost_connection
from streaming.demo.command import app as demo
from streaming.state.local_files import LOCK_FILE
from streaming.ui.access import TOKEN_VARIABLE
from streaming.ui.page import PORT
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import batch, feed, views, write_state
from tests.support.tables import EDGE, edges

TRIANGLES = (
    "SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src "
    "JOIN e z ON z.src = x.src AND z.dst = y.dst"
)
RUN = ["run", "SELECT a FROM e", "--source=e=format=rate,schema=a int"]
DEBEZIUM_SOURCE = "--source=e=format=kafka,feed=debezium"


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def run_error(*arguments: object, status: int = 2) -> str:
    """Return the one-line error of a command that fails with an exit status."""
    actual_status, out, errors = run(*arguments)
    assert (actual_status, out) == (status, ""), errors
    assert errors.startswith("error: ") and errors.count("\n") == 1
    return errors


@pytest.fixture
def changes_path(tmp_path: Path) -> Path:
    path = tmp_path / "e.parquet"
    rows = [(1, 2), (2, 3), (1, 3), (3, 4), (2, 4), (1, 2)]
    table = pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]})
    pq.write_table(table.append_column("weight", pa.array([1, 1, 1, 1, 1, -1])), path)
    return path


def test_every_command_has_help_with_an_example_that_can_be_parsed() -> None:
    status, out, _ = run("--help")
    assert status == 0
    for name, example in EXAMPLES.items():
        assert re.search(rf"\b{name}\b", out)
        if name == "demo":
            continue
        status, text, _ = run(name, "--help")
        assert status == 0
        assert "Example: dbsp-wcoj" in text
        assert " ".join(text.replace("│", " ").split()).find(example) >= 0, text
        words = shlex.split(example)
        assert words[:2] == ["dbsp-wcoj", name]
        options = {word for word in words if word.startswith("--")}
        assert all(option in text for option in options)


def test_a_replay_gives_the_counts_at_the_end(changes_path: Path, tmp_path: Path) -> None:
    warm_up()  # the first command that needs a kernel says on standard error that it is compiled
    status, out, errors = run(
        "replay",
        TRIANGLES,
        "--source",
        changes_path,
        "--batch",
        2,
        "--output",
        tmp_path / "out",
        "--json",
    )
    assert (status, errors) == (0, "")
    result = json.loads(out)
    assert (result["changes"], result["steps"]) == (6, 3)
    assert result["views"] == {"view": {"changed_rows": 3, "n": 1}}
    assert pq.read_table(tmp_path / "out" / "view.parquet").to_pylist() == [{"n": 1, "weight": 1}]


def test_a_replay_shows_a_table_with_a_line_for_each_view(changes_path: Path) -> None:
    query = (
        "CREATE VIEW far AS SELECT src, dst FROM e WHERE dst > src + 1; CREATE VIEW n AS "
        + TRIANGLES
    )
    status, out, _ = run("replay", query, "--source", changes_path)
    assert status == 0
    assert "6 changes in 1 step and" in out
    assert re.search(r"far +2 rows", out) and re.search(r"\bn +1 ", out)


def test_a_replay_in_transactions_names_its_relation(tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    path.write_text("src,dst,tx\n1,2,a\n2,3,a\n1,3,a\n3,4,b\n")
    options = ("--by", "tx", "--columns", "src,dst", "--batch", 1)
    status, out, _ = run("replay", TRIANGLES, f"--source=e={path}", *options, "--json")
    assert status == 0
    assert json.loads(out)["steps"] == 2
    errors = run_error("replay", TRIANGLES, "--source", path)
    assert "changes.csv are relation 'changes'; --source NAME=FILE names them otherwise" in errors


@pytest.mark.parametrize("role", ["weight", "op"])
def test_a_replay_reads_deletions_also_if_it_declares_the_columns(
    tmp_path: Path, role: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"tx,src,{role},dst\n1,1,1,2\n2,2,1,3\n2,1,-1,2\n")
    query = "CREATE VIEW v AS SELECT * FROM e"
    source = f"e={path},schema=src long, dst long"
    status, out, errors = run(
        *("replay", query, "--source", source, "--by", "tx", "--batch", 1),
        *("--output", tmp_path / "out", "--json"),
    )
    assert status == 0, errors
    assert json.loads(out)["steps"] == 2
    rows = pq.read_table(tmp_path / "out" / "v.parquet").to_pylist()
    assert rows == [{"src": 2, "dst": 3, "weight": 1}]


def test_a_replay_of_several_relations_may_declare_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "moves.csv"
    path.write_text("relation,a,b,op\nr,1,,i\ns,,2,i\nr,1,,d\n")
    query = "CREATE VIEW v AS SELECT a FROM r UNION ALL SELECT b FROM s"
    status, _, errors = run(
        *("replay", query, "--source", f"{path},schema=a long, b long"),
        *("--output", tmp_path / "out", "--json"),
    )
    assert status == 0, errors
    rows = pq.read_table(tmp_path / "out" / "v.parquet").to_pylist()
    assert rows == [{"a": 2, "weight": 1}]


def test_a_replay_refuses_the_deletion_of_a_row_that_a_strict_input_lacks(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,weight\n1,1\n2,1\n3,-1\n")
    arguments = ("replay", "SELECT src FROM e", "--batch", 2, "--source")
    errors = run_error(*arguments, f"{path},strict=true", status=1)
    assert "after 2 changes:" in errors and "3" in errors.split("changes:")[1]
    assert run(*arguments, path)[0] == 0


def test_a_replay_counts_late_rows(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("ts\n100\n200\n100\n101\n")
    arguments = ("replay", "SELECT ts FROM e", "--batch", 2, "--source", f"{path},lateness=ts 10")
    result = json.loads(run(*arguments, "--json")[1])
    assert (result["changes"], result["late_rows"]) == (4, 2)
    assert result["views"]["view"]["rows"] == 2
    status, out, _ = run(*arguments)
    assert status == 0 and "2 rows are late and were left out (lateness= or retain=)." in out


def test_a_replay_writes_views_of_any_name_and_type(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("a\n1\n")
    query = """CREATE VIEW "../x" AS SELECT a, INTERVAL 3 DAY AS i FROM e"""
    arguments = ("replay", query, "--source", path, "--output", tmp_path / "out")
    status, _, errors = run(*arguments)
    assert status == 0, errors
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == "%2E.%2Fx.parquet"
    assert pq.read_table(file).to_pylist() == [{"a": 1, "i": "3 days", "weight": 1}]


def test_an_error_during_a_replay_gives_the_number_of_changes_so_far(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("t\n1\n2\nx\n")
    errors = run_error(
        *("replay", "SELECT CAST(t AS int) AS n FROM r", "--source", path, "--batch", 2), status=1
    )
    assert "after 2 changes:" in errors


def test_an_error_for_too_many_rows_names_the_view(changes_path: Path, tmp_path: Path) -> None:
    query = tmp_path / "pairs.sql"
    query.write_text("\ufeffSELECT x.src AS a, y.src AS b FROM e x, e y", encoding="utf-8")
    errors = run_error(
        "replay", query, "--source", f"e={changes_path}", "--max-step-rows", 3, status=1
    )
    assert "view 'pairs': " in errors and "max_step_rows=3 allows" in errors
    assert (
        run(
            "replay",
            query,
            "--source",
            f"e={changes_path}",
            "--max-step-rows",
            0,
            "--max-step-bytes",
            "1G",
        )[0]
        == 0
    )
    errors = run_error(
        "replay", query, "--source", f"e={changes_path}", "--max-step-bytes", "8", status=1
    )
    assert "max_step_bytes=8 allows" in errors


@pytest.mark.parametrize("command", ["replay", "explain", "run"])
def test_a_query_file_that_is_not_utf_8_is_named(
    command: str, changes_path: Path, tmp_path: Path
) -> None:
    query = tmp_path / "q.sql"
    query.write_bytes("SELECT 'Zürich' AS a FROM e".encode("latin-1"))
    words = {"replay": [query, "--source", changes_path]}
    errors = run_error(
        command, *words.get(command, [query, "--source", "e=schema=src long,format=rate"])
    )
    assert "q.sql, line 1: byte 0xfc is not UTF-8 text: save the file as UTF-8" in errors


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("e.csv", 2, "column 't' is not UTF-8 text"),
        ("e.json", 1, "UTF8"),
        ("e.parquet", 2, "e.parquet is not a readable"),
    ],
)
def test_a_file_of_rows_that_is_not_utf_8_is_refused(
    name: str, status: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"t": "Z\xfcrich"}\n' if name == "e.json" else b"t\nZ\xfcrich\n")
    errors = run_error(*("replay", "SELECT t || 'x' AS t FROM e", "--source", path), status=status)
    assert message in errors


def test_explain_needs_no_rows_and_with_rows_shows_work(changes_path: Path) -> None:
    declared = ("--source", "e=schema=src long, dst long")
    status, out, _ = run("explain", TRIANGLES, *declared)
    assert status == 0
    assert "D3 += d1 N2 N3" in out and "aggregate count(*)" in out
    assert "rows 0" not in out and "ran 0 times" not in out
    status, out, _ = run("explain", TRIANGLES, "--source", f"e={changes_path}", "--analyze")
    assert status == 0
    assert re.search(r"join.*\[rows 1, ", out)
    status, out, _ = run("explain", TRIANGLES, *declared, "--format", "mermaid")
    assert out.startswith("flowchart TD")
    status, out, _ = run("explain", TRIANGLES, *declared, "--json")
    result = json.loads(out)
    assert result["views"] == {"view": result["operators"][-1]["name"]}
    assert {operator["kind"] for operator in result["operators"]} >= {"input", "join", "aggregate"}


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (["explain", "SELECT x FROM e", "--source", "e=schema=src long"], "unknown column 'x'"),
        (["explain", "q.sql", "--source", "e=schema=src long"], "q.sql: No such file"),
        (["explain", "SELECT 1", "--source", "e=format=rate"], "only Spark knows its columns"),
        (["explain", "SELECT 1", "--source", "e=schema=a int", "--format", "x"], "--format 'x'"),
        (["inspect", "."], "is not a state directory"),
        (["inspect"], "Missing argument 'DIR'; see"),
        (["nonsense"], "No such command 'nonsense'"),
        (["demo", "--windw", "7d"], "No such option: --windw"),
        (["bench", "--rows", "1"], "greater than or equal to 10; see"),
        (
            ["replay", "SELECT 1", "--source", "none.parquet"],
            "none.parquet: file or folder not found",
        ),
        (["replay", "a.parquet", "SELECT 1"], "the file of changes is --source NAME=FILE"),
        (["replay", "SELECT 1", "--relation", "e"], "name the relation in --source NAME=FILE"),
        (["replay", "SELECT 1", "--source", "a", "--source", "b"], "2 times --source"),
        (["replay", "SELECT 1", "--source", "e=format=kafka"], "reads files without Spark"),
        (["bench", "--rows", "100", "--formula", "best"], "--formula 'best' must be one of auto"),
        (["bench", "--rows", "100", "--batch", "200"], "too few for"),
        (["run", "SELECT 1", "--source", "e=none"], "file or folder not found"),
        (["run", "SELECT 1", "--source", "e"], "write NAME=PATH"),
        (["run", "SELECT a FROM e", "--source", "e=schema=a int"], "name the location of its rows"),
        (["run", "SELECT 1", "--source", "e=s3a://b/in"], "add format=... and schema=..."),
        ([*RUN, "--bad-rows", "skip"], "bad_rows='skip'"),
        ([*RUN, "--bad-rows", "dead_letter"], "add --state DIR"),
        ([*RUN, "--cells", "2"], "--cells needs a folder for files"),
        ([*RUN, "--max-step-bytes", "much"], "--max-step-bytes 'much': write a number"),
        ([*RUN, "--max-step-rows", "-1"], "greater than or equal to 0; see"),
        ([*RUN, "--every", "often"], "write a number and a unit"),
        ([*RUN, "--every", "5 s", "--once"], "remove --every"),
        ([*RUN, "--state", "mock://state"], "keeps state on a local disk or on S3"),
        ([*RUN, "--state", "s3://bucket/state"], "--checkpoint is missing, and Spark cannot keep"),
        (
            [*RUN, "--state", "s3://bucket/state", "--checkpoint", "s3://bucket/checkpoint"],
            "name a folder on a local disk, or a mounted one",
        ),
        (
            [*RUN, "--state", "s3://bucket/state", "--checkpoint", "README.md"],
            "--checkpoint README.md: is a file; name a folder",
        ),
        ([*RUN, "--checkpoint", "there"], "--checkpoint there: without --state"),
        ([*RUN, "--state", "pyproject.toml"], "is a file; name a folder"),
        ([*RUN, "--sink", "v=console"], "unknown view 'v'; views: view"),
        ([*RUN, "--sink", "kafka:t"], "unknown sink 'kafka'"),
        (
            [*RUN, "--ui", "--ui-host", "0.0.0.0"],
            "could open the page on 0.0.0.0: require a token",
        ),
        ([*RUN, "--ui-port", "9"], "--ui-port applies only to the live page: add --ui"),
        ([*RUN, "--ui-host", "0.0.0.0"], "--ui-host applies only to the live page: add --ui"),
        ([*RUN, "--ui-token-file", "t"], "--ui-token-file applies only to the live page: add --ui"),
        (["replay", "q", "--source", "f", "--ui-port", "9"], "--ui-port applies only to the live"),
        ([*RUN, "--max-commit-age", "9"], "--max-commit-age needs --metrics-port or --ui"),
        ([*RUN, "--metrics-host", "0.0.0.0"], "--metrics-host needs --metrics-port"),
        ([*RUN, "--ui", "--ui-token", "a-secret"], "give --ui-token-file FILE"),
        ([*RUN, "--ui", "--ui-token=a-secret"], "or set the variable DBSP_WCOJ_UI_TOKEN"),
        (["replay", "f", "q", "--ui", "--ui-token", "a-secret"], "give --ui-token-file FILE"),
        (
            [*RUN, "--ui", "--ui-token-file", "README.md"],
            "other users can read or change it",
        ),
        ([*RUN, "--formula", "best"], "unknown formula 'best'"),
        (["run", "SELECT b FROM e", *RUN[2:]], "unknown column 'b'"),
        (
            ["run", "SELECT a FROM e", f"{RUN[2]},feed=nonsense"],
            "unknown feed 'nonsense'",
        ),
        (["run", "SELECT a FROM e", DEBEZIUM_SOURCE], "add schema=nr long"),
        (["run", "SELECT a FROM f", *RUN[2:]], "'f'"),
    ],
)
def test_invalid_arguments_give_one_line_and_status_2_without_spark(
    arguments: list[str], expected_message: str
) -> None:
    result = run_error(*arguments)
    assert expected_message in result
    assert "a-secret" not in result


def test_an_unexpected_exception_is_one_line_that_calls_it_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "streaming.cli.commands.inspect.inspect_state", lambda *_, **__: {}["versions"]
    )
    errors = run_error("inspect", ".", status=1)
    assert "KeyError: 'versions': this is a bug of this program" in errors
    status, _, errors = run("inspect", ".", "--debug")
    assert status == 1 and "Traceback" in errors


def test_compact_shows_the_sizes_before_and_after(tmp_path: Path) -> None:
    sink = ViewSink(compile_sql(TRIANGLES, {"e": EDGE}), state_dir=tmp_path)
    for batch_id, weight in enumerate((1, 1, -1)):
        sink(Frame(edges((1, 2), (2, 3), (1, 3), weights=[weight] * 3)), batch_id)
    sink.close()
    status, out, errors = run("compact", tmp_path, "--json")
    assert status == 0, errors
    result = json.loads(out)
    assert result["batch_id"] == 2
    assert result["after"]["bytes"] < result["before"]["bytes"]
    assert result["after"]["files"] < result["before"]["files"]
    _, out, _ = run("compact", tmp_path)
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["before", "after"]
    assert "version 2 is the only one now" in out
    run("rescale", tmp_path, "--cells", 2)
    status, out, errors = run("compact", tmp_path)
    assert status == 0, errors
    assert "is the only one now" in out
    assert "nothing to compact" in run_error("compact", tmp_path / "none")


def test_rescale_reports_in_json(tmp_path: Path) -> None:
    sink = ViewSink(compile_sql(TRIANGLES, {"e": EDGE}), state_dir=tmp_path)
    sink(Frame(edges((1, 2), (2, 3), (1, 3))), 0)
    sink.close()
    status, out, errors = run("rescale", tmp_path, "--cells", 2, "--json")
    assert status == 0, errors
    result = json.loads(out)
    assert (result["batch_id"], result["before"], result["after"]) == (0, None, 2)
    assert "--embedded" in run_error("rescale", tmp_path)


def test_the_option_debug_shows_the_traceback() -> None:
    status, _, errors = run("inspect", ".", "--debug")
    assert status == 2
    assert "Traceback" in errors and errors.splitlines()[-1].startswith("error: ")


def arrangement_name(name: str, order: list[int] | None) -> str:
    return name if order is None else f"{name}[{','.join(map(str, order))}]"


def test_inspect_shows_versions_arrangements_and_sizes(tmp_path: Path) -> None:
    write_state(tmp_path, 4)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    status, out, _ = run("inspect", tmp_path, "--json", "--check")
    assert status == 0
    result = json.loads(out)
    assert [version["batch"] for version in result["versions"]] == [1, 2, 3]
    assert all(version["damage"] is None for version in result["versions"])
    assert result["views"] == ["paths", "cities"]
    assert result["inputs"] == {"link": "src int64, dst int64, city string"}
    assert result["writer"] is None
    rows = {
        (arrangement["name"], tuple(arrangement["order"] or ())): arrangement["rows"]
        for arrangement in result["arrangements"]
    }
    assert rows["text", ()] == 5  # four cities and Ulm
    names = {
        arrangement_name(arrangement["name"], arrangement["order"])
        for arrangement in result["arrangements"]
    }
    assert names == set(result["last_batch"]["arrangements"])
    circuit = views()
    circuit.step({"link": batch(0)})
    in_memory = {size.name: list(size.views) for size in arrangement_sizes(circuit.committed)}
    for arrangement in result["arrangements"]:
        if arrangement["kind"] == "arrangement":
            name = arrangement_name(arrangement["name"], arrangement["order"])
            assert in_memory[name] == arrangement["views"] != []
    assert result["last_batch"]["batch_id"] == 3
    status, out, _ = run("inspect", tmp_path)
    assert status == 0
    for text in (
        "Versions",
        "intact",
        "State of the newest intact version",
        "map src, dst",
        "for views",
        "no dead letters",
    ):
        assert text in out
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_inspect_shows_a_writer_and_damage(tmp_path: Path) -> None:
    sink = ViewSink(views(), state_dir=tmp_path)
    feed(sink, 0, 1)
    assert json.loads(run("inspect", tmp_path, "--json")[1])["writer"] > 0
    state = StateLocation.parse(str(tmp_path))
    with pytest.raises(StateLockedError, match=r"process \d+ writes to it"):
        check_usable(state, views())
    sink.close()
    check_usable(state, views())
    with pytest.raises(StateMismatchError, match="would drop"):
        check_usable(state, compile_sql(TRIANGLES, {"e": EDGE}))
    file = max((tmp_path / "data").iterdir(), key=lambda path: path.name)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    assert run("inspect", tmp_path)[0] == 0
    status, out, _ = run("inspect", tmp_path, "--check")
    assert status == 1
    assert file.name in out
    file.unlink()
    status, out, _ = run("inspect", tmp_path, "--json")
    assert status == 1
    assert "is missing" in json.loads(out)["versions"][-1]["damage"]


def test_a_start_waits_for_the_lock_of_a_process_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers that share a volume, both processes may have the id 1."""
    sink = ViewSink(views(), state_dir=tmp_path)
    feed(sink, 0, 1)
    sink.close()
    with open(tmp_path / LOCK_FILE, "r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(f"{os.getpid()}\n")
        other.flush()
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(other, fcntl.LOCK_UN))
        check_usable(StateLocation.parse(str(tmp_path)), views())
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr("streaming.cli.arguments.checks.LOCK_TIMEOUT_S", -1.0)
        with pytest.raises(StateLockedError, match=f"process {os.getpid()} writes to it"):
            check_usable(StateLocation.parse(str(tmp_path)), views())


def test_inspect_counts_dead_letters_by_reason(tmp_path: Path) -> None:
    sink = ViewSink(views(), state_dir=tmp_path, bad_rows="dead_letter")
    sources = pa.array([1, 2**63, 2**64 - 1], pa.uint64())
    table = pa.table({"src": sources, "dst": [1, 2, 3], "city": ["Ulm"] * 3})
    sink(Frame(table), 0)
    sink.close()
    result = json.loads(run("inspect", tmp_path, "--json")[1])["dead_letters"]
    assert result["total"] == 2
    assert sum(reason["rows"] for reason in result["reasons"]) == 2
    assert result["newest"][0]["relation"] == "link"
    status, out, _ = run("inspect", tmp_path)
    assert status == 0 and "Dead letters: 2" in out


def test_bench_compares_formulas_that_agree(changes_path: Path) -> None:
    options = ("--rows", 300, "--batch", 1, "--batch", 20, "--steps", 3)
    status, out, errors = run("bench", *options, "--json")
    assert (status, errors) == (0, "")
    result = json.loads(out)["median_ms"]
    assert len(result) == 7
    assert all(ms > 0 for times in result.values() for ms in times.values())
    status, out, _ = run(
        "bench", TRIANGLES, *options, "--formula", "auto", "--formula", "recursive"
    )
    assert status == 0
    assert "all formulas gave the same deltas" in out
    assert "flipped" not in out


def test_bench_refuses_formulas_whose_deltas_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = iter(range(100))
    monkeypatch.setattr(bench_module, "_checksum_of_delta", lambda delta: next(sums))
    errors = run_error("bench", "--rows", 300, "--batch", 5, "--steps", 1, status=1)
    assert "the formulas do not give the same deltas" in errors


def test_a_checksum_counts_rows_of_zeros() -> None:
    deltas = [pa.table({"n": [0] * rows, "weight": [1] * rows}) for rows in range(3)]
    assert len(set(map(bench_module._checksum_of_delta, deltas))) == 3


def test_checksums_distinguish_deltas_and_ignore_the_order_of_rows() -> None:
    delta = edges((1, 2), (2, 1), weights=[1, 1])
    assert bench_module._checksum_of_delta(delta) == bench_module._checksum_of_delta(
        edges((2, 1), (1, 2), weights=[1, 1])
    )
    assert bench_module._checksum_of_delta(delta) != bench_module._checksum_of_delta(
        edges((1, 1), (2, 2), weights=[1, 1])
    )
    assert bench_module._checksum_of_delta(delta) != bench_module._checksum_of_delta(
        edges((1, 2), (2, 1), weights=[1, -1])
    )


def test_declared_options_are_the_parameters_of_each_command() -> None:
    assert tuple(FORMULAS) == ("auto", *map(str, Formula))
    assert PAGE_PORT == PORT
    for name in (
        *("run", "replay", "explain", "inspect", "rescale", "profile", "bench"),
        *("plan_change", "clone", "compact"),
    ):
        options = set(signature(getattr(declared, name)).parameters) - {"debug", *REMOVED_OPTIONS}
        function = getattr(import_module(f"streaming.cli.commands.{name}"), name)
        expected = set(signature(function).parameters)
        if name == "run":  # it passes the other options on
            run_options = {field.name for field in fields(RunOptions)}
            expected |= run_options - {"sources", "sinks", "labels", "spark_settings"} | {"context"}
            expected -= {"explicit", "other_options"}
        assert options == expected, name


def test_a_page_with_a_token_names_the_file_of_the_token_only(
    changes_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["replay", TRIANGLES, "--source", changes_path, "--ui", "--ui-port", 0]
    path = tmp_path / "token"
    status, _, errors = run(*arguments, "--ui-token-file", path)
    assert status == 0, errors
    token = path.read_text().strip()
    assert re.search(r"^Live page: http://127\.0\.0\.1:\d+/$", errors, re.MULTILINE)
    assert f"Sign in there with the token in the file {path}" in errors
    assert token not in errors
    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-of-many-characters")
    status, _, errors = run(*arguments)
    assert status == 0, errors
    assert f"with the token in the variable {TOKEN_VARIABLE}" in errors
    assert "a-secret" not in errors
    assert TOKEN_VARIABLE not in os.environ
    monkeypatch.setenv(TOKEN_VARIABLE, "few")
    assert "the token has 3 characters" in run_error(*arguments)


def test_the_demo_refuses_a_token_as_an_argument() -> None:
    result = CliRunner().invoke(demo, ["--ui", "--ui-token", "a-secret"])
    assert result.exit_code == 2
    assert "give --ui-token-file FILE" in result.stderr and "a-secret" not in result.stderr


def test_the_demo_refuses_settings_of_a_page_that_it_does_not_serve() -> None:
    result = CliRunner().invoke(demo, ["--ui-port", "9"])
    assert result.exit_code == 2
    assert "--ui-port applies only to the live page: add --ui" in result.stderr


def test_help_imports_no_slow_package() -> None:
    code = (
        "import sys; from streaming.cli.app import app\n"
        "try: app(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numba', 'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.splitlines()[-1] == "[]"


def test_only_the_process_of_a_command_leaves_its_imports_out_of_garbage_collection() -> None:
    code = (
        "import gc, sys; from typer.testing import CliRunner; from streaming.cli.app import app; {}"
        "CliRunner().invoke(app, ['inspect', 'nowhere']); "
        "print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    for first, printed in (
        ("", "True True\n"),
        ("gc.disable(); ", "False True\n"),
        ("import circuits; ", "True False\n"),
        ("sys.modules['circuits.sql'] = None; ", "True False\n"),  # the import fails
    ):
        command = [sys.executable, "-c", code.format(first)]
        assert subprocess.run(command, capture_output=True, text=True).stdout == printed


def test_an_error_whose_message_is_in_a_jvm_that_has_ended_is_one_line(capsys) -> None:
    class Py4JJavaError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    @report_errors
    def command() -> None:
        raise Py4JJavaError

    with pytest.raises(typer.Exit):
        command()
    assert "error: Spark's JVM has ended" in capsys.readouterr().err
    assert is_lost_connection(Py4JJavaError())
