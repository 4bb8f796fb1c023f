"""``dbsp-wcoj run --check`` reports all problems before Spark starts, and changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from circuits import compile_sql
from streaming import ViewSink
from streaming.cli.app import app
from streaming.errors import JavaMissingError
from streaming.targets.sql import SqlTarget
from streaming.targets.target import ViewDelta
from tests.streaming.sink.test_view_sink import Frame
from tests.support.databases import new_table_name
from tests.support.tables import EDGE, edges

QUERY = "CREATE VIEW n AS SELECT src, count(*) AS n FROM e GROUP BY src"
ROW = pa.table({"src": [1], "n": [1], "weight": [1]})


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark is not started, and Java is taken for granted."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streaming.cli.commands.run.start_session", start)
    monkeypatch.setattr("streaming.cli.commands.run.find_java", lambda: "Java 21")
    (tmp_path / "in").mkdir()
    pq.write_table(edges((1, 2)), tmp_path / "in" / "0.parquet")


def checked(tmp_path: Path, *options: object, query: str = QUERY) -> tuple[int, str, str]:
    source = (
        ()
        if any("--source" in str(option) for option in options)
        else (f"--source=e={tmp_path}/in",)
    )
    words = ["run", query, *source, "--check", *map(str, options)]
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def tree(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def refused(tmp_path: Path, *options: object, **others: str) -> str:
    before = tree(tmp_path)
    status, out, errors = checked(tmp_path, *options, **others)
    assert (status, out) == (2, ""), errors
    assert all(line.startswith("error: ") for line in errors.splitlines())
    assert tree(tmp_path) == before
    return errors


def stated(tmp_path: Path, *, batches: int = 1, kept: bool = False) -> Path:
    """A state directory with a checkpoint, as a run leaves it."""
    state = tmp_path / "state"
    views = compile_sql(QUERY, {"e": EDGE}, materialize=["n"] if kept else [])
    sink = ViewSink(views, state_dir=state)
    commits = state / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    for batch in range(batches):
        sink(Frame(edges((batch, 1))), batch)
        (commits / str(batch)).write_text("v1")
    sink.close()
    return state


def test_a_run_that_can_start_is_summarized_in_a_few_lines_and_changes_nothing(
    tmp_path: Path,
) -> None:
    before = tree(tmp_path)
    options = ("--state", tmp_path / "new" / "state", f"--sink=sqlite:{tmp_path}/d.db#n,keys=src")
    status, out, errors = checked(tmp_path, *options)
    assert (status, errors) == (0, "")
    for text in ("1 view: n", "source e", "src int64, dst int64", "upsert('src')", "new", "Java"):
        assert text in out
    assert "nothing was started or changed" in out
    assert tree(tmp_path) == before
    status, out, _ = checked(tmp_path, *options, "--json")
    result = json.loads(out)
    assert result["ok"] and {one["what"] for one in result["checks"]} >= {
        "query",
        "source e",
        "state",
    }


def test_a_state_of_these_views_may_be_continued(tmp_path: Path) -> None:
    state = stated(tmp_path, batches=3)
    before = tree(tmp_path)
    status, out, errors = checked(tmp_path, "--state", state)
    assert status == 0, errors
    assert "at micro-batch 2" in out
    assert tree(tmp_path) == before


def test_a_state_with_a_view_that_a_sink_needs_whole_may_be_continued(tmp_path: Path) -> None:
    state = stated(tmp_path, kept=True)
    status, _, errors = checked(tmp_path, "--state", state, f"--sink=sqlite:{tmp_path}/d,keys=src")
    assert status == 0, errors
    assert "materialized has changed" in refused(tmp_path, "--state", state)


def test_without_check_the_same_is_checked_before_spark(tmp_path: Path) -> None:
    words = ["run", QUERY, f"--source=e={tmp_path}/in", f"--sink=parquet:{tmp_path}/in"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "which a source reads: name another folder" in result.stderr


def test_all_problems_are_reported_and_each_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refused(
        tmp_path,
        *(f"--source=e={tmp_path}/none", f"--source=f={tmp_path}/in,keys=x", "--bad-rows=skip"),
        *("--memory=much", "--every=often", f"--state={tmp_path}/file", "--sink=kafka:t"),
    )
    for text in (
        *("file or folder not found", "keys=x is not a column; columns: src, dst", "'skip'"),
        *("--memory 'much'", "--every 'often'", "is a file; name a folder", "unknown sink 'kafka'"),
    ):
        assert message.count(text) == 1
    assert message.count("\n") == 7


def test_a_state_of_other_views_or_rules_is_reported(tmp_path: Path) -> None:
    state = stated(tmp_path)
    message = refused(tmp_path, "--state", state, query=QUERY.replace("count(*)", "sum(dst)"))
    assert "belongs to another circuit: view n has changed" in message
    message = refused(tmp_path, "--state", state, f"--source=e={tmp_path}/in,keys=src")
    assert "belongs to another circuit" in message and "e" in message
    message = refused(tmp_path, "--state", state, "--source=e=format=rate,schema=src long,dst int")
    assert "input e was (src int64, dst int64) and is (src int64, dst int32)" in message


def test_a_checkpoint_that_is_not_of_the_state_is_reported(tmp_path: Path) -> None:
    state = stated(tmp_path, batches=2)
    commits = state / "checkpoint" / "commits"
    (commits / "1").unlink()
    assert checked(tmp_path, "--state", state)[0] == 0  # stopped before Spark noted it
    (commits / "0").unlink()
    message = refused(tmp_path, "--state", state)
    assert "the state is at micro-batch 1 and Spark's checkpoint at -1" in message
    (commits / "7").write_text("")
    assert "Spark's checkpoint at 7" in refused(tmp_path, "--state", state)


def test_a_state_in_use_or_in_cells_is_reported(tmp_path: Path) -> None:
    state = stated(tmp_path)
    assert "dbsp-wcoj rescale" in refused(tmp_path, "--state", state, "--cells", 2)
    sink = ViewSink(compile_sql(QUERY, {"e": EDGE}), state_dir=state)
    sink(Frame(edges((0, 1))), 0)
    try:
        assert "writes to it" in refused(tmp_path, "--state", state)
    finally:
        sink.close()


def test_a_place_that_cannot_be_written_to_is_reported(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    message = refused(tmp_path, f"--state={tmp_path}/file/state", f"--sink=parquet:{tmp_path}/file")
    assert "file is a file, not a folder" in message
    message = refused(tmp_path, f"--sink=sqlite:{tmp_path}/in")
    assert "is a folder; name a file" in message
    message = refused(tmp_path, f"--sink=sqlite:{tmp_path}/file/x.db")
    assert "is a file, not a folder" in message
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write" in refused(tmp_path, f"--state={tmp_path}/state")


def shaped(database, statement: str, *options: str) -> str:
    """The result of checking a table of a database."""
    table = new_table_name()
    for one in statement.split(";"):
        database.run(one.format(table))
    target = SqlTarget(database.connect, table)
    mode, keys = ("upsert", ("src",)) if "keys" in options else ("delta", ())
    delta = ViewDelta("n", 0, ROW.slice(0, 0), mode, keys, "s")
    before = database.columns(table), database.rows(f"SELECT count(*) FROM {table}")
    try:
        target.check(delta)
    except Exception as error:
        return str(error)
    finally:
        assert (database.columns(table), database.rows(f"SELECT count(*) FROM {table}")) == before
        target.close()
    return ""


LOG = "batch_id BIGINT, row_number BIGINT, src BIGINT, n BIGINT, weight BIGINT"


@pytest.mark.parametrize(
    ("statement", "options", "message"),
    [
        (f"CREATE TABLE {{}} ({LOG})", (), ""),
        ("CREATE TABLE {} (src BIGINT PRIMARY KEY, n BIGINT, note TEXT)", ("keys",), ""),
        ("CREATE TABLE {} (src INT UNIQUE, n NUMERIC(9, 2))", ("keys",), ""),
        (
            "CREATE TABLE {} (src BIGINT, n BIGINT)",
            (),
            "lacks the column 'batch_id'; its columns are src, n",
        ),
        ("CREATE TABLE {} (src BIGINT, n BIGINT)", ("keys",), "no unique constraint on (src)"),
        (
            "CREATE TABLE {} (src BIGINT UNIQUE, m INT)",
            ("keys",),
            "lacks the column 'n'; its columns are src, m",
        ),
        ("CREATE TABLE {} (src BIGINT UNIQUE, n DATE)", ("keys",), "'n' is"),
        (
            "CREATE TABLE {} (src BIGINT UNIQUE, n BIGINT, x INT NOT NULL)",
            ("keys",),
            "'x' needs a value",
        ),
        (
            f"CREATE TABLE {{0}} ({LOG}); INSERT INTO {{0}} VALUES (0, 0, 1, 1, 1)",
            (),
            "are not from view 'n' of this state directory",
        ),
    ],
)
def test_a_table_of_another_shape_is_reported_and_not_changed(
    database, statement, options, message
):
    result = shaped(database, statement, *options)
    assert message in result and bool(message) == bool(result), result


def test_a_table_that_was_written_by_this_state_is_taken_again(database) -> None:
    table = new_table_name()
    target = SqlTarget(database.connect, table)
    target.check(ViewDelta("n", 0, ROW.slice(0, 0), state_id="s"))
    target.write(ViewDelta("n", 0, ROW, state_id="s"))
    target.check(ViewDelta("n", 1, ROW.slice(0, 0), state_id="s"))
    with pytest.raises(Exception, match="are not from"):
        target.check(ViewDelta("n", 1, ROW.slice(0, 0), state_id="other"))
    target.close()


def test_a_table_of_sqlite_is_checked_by_the_command(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "d.db")) as database:
        database.execute("CREATE TABLE n (src INT)")
    assert "lacks the column 'n'; its columns are src" in refused(
        tmp_path, f"--sink=sqlite:{tmp_path}/d.db,keys=src"
    )
    (tmp_path / "text.db").write_text("no database " * 100)
    message = refused(tmp_path, f"--sink=sqlite:{tmp_path}/text.db#t")
    assert f"SQLite at {tmp_path}/text.db: DatabaseError: file is not a database" in message


def test_files_of_others_in_the_folder_of_a_sink_are_reported(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(ROW, tmp_path / "out" / "other.parquet")
    message = refused(tmp_path, f"--sink=parquet:{tmp_path}/out")
    assert "other.parquet, holds rows that are not from view 'n'" in message
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "lake"), pa.table({"x": [1]}))
    message = refused(tmp_path, f"--sink=delta:{tmp_path}/lake")
    assert "its columns are x, and those of the view src, n, weight" in message
    assert "deltalake" in message or "Delta table" in message


def test_a_database_that_does_not_answer_is_named_and_no_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    dsn = "host=127.0.0.1 port=1 user=anna password=hunter2 dbname=shop"
    message = refused(tmp_path, f"--sink=postgres:{dsn}#t,keys=src")
    assert "PostgreSQL at 127.0.0.1:1, database shop" in message and "Connection refused" in message
    assert "hunter2" not in message
    for wrong in (f"{dsn}#t,kyes=src", f"{dsn}#t,mode=upsert", f"{dsn}#t,retry_attempts=no"):
        message = refused(tmp_path, f"--sink=postgres:{wrong}")
        assert "hunter2" not in message and "password=***" in message
    status, _, errors = checked(tmp_path, f"--sink=postgres:{dsn}", "--debug")
    assert status == 2 and "Traceback" in errors and "hunter2" not in errors
    status, out, _ = checked(tmp_path, f"--sink=sqlite:{tmp_path}/password=hunter2.db")
    assert "hunter2" not in out


def test_two_sinks_of_one_place_are_reported(tmp_path: Path) -> None:
    query = f"{QUERY}; CREATE VIEW m AS SELECT dst FROM e"
    for place in (f"sqlite:{tmp_path}/d.db#t", f"parquet:{tmp_path}/out", f"delta:{tmp_path}/out"):
        message = refused(tmp_path, f"--sink=n={place}", f"--sink=m={place}", query=query)
        assert "views 'n' and 'm' share one location" in message
    options = (f"--sink=n=sqlite:{tmp_path}/d.db", f"--sink=m=sqlite:{tmp_path}/d.db")
    assert checked(tmp_path, *options, query=query)[0] == 0


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert str(port) in refused(tmp_path, "--ui", "--ui-port", port)


def test_without_java_the_check_says_so(tmp_path: Path, monkeypatch) -> None:
    def missing() -> None:
        raise JavaMissingError("Spark needs Java 17 or newer")

    monkeypatch.setattr("streaming.cli.commands.run.find_java", missing)
    assert "Spark needs Java 17" in refused(tmp_path)


def test_what_only_spark_can_check_is_reported_as_unchecked(tmp_path: Path) -> None:
    status, out, errors = checked(tmp_path, "--source=e=format=rate", query="SELECT x FROM e")
    assert status == 0, errors
    assert "not compiled, as only Spark knows the columns of e" in out
