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
    """Fail if Spark is started, and pretend that Java is installed."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streaming.cli.commands.run.start_session", start)
    monkeypatch.setattr("streaming.cli.commands.run.find_java", lambda: "Java 21")
    (tmp_path / "in").mkdir()
    pq.write_table(edges((1, 2)), tmp_path / "in" / "0.parquet")


def run_check(tmp_path: Path, *options: object, query: str = QUERY) -> tuple[int, str, str]:
    source = (
        ()
        if any("--source" in str(option) for option in options)
        else (f"--source=e={tmp_path}/in",)
    )
    arguments = ["run", query, *source, "--check", *map(str, options)]
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def paths_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def check_error(tmp_path: Path, *options: object, **others: str) -> str:
    """Return the errors of a check that fails and changes no file."""
    before = paths_in(tmp_path)
    status, out, errors = run_check(tmp_path, *options, **others)
    assert (status, out) == (2, ""), errors
    assert all(line.startswith("error: ") for line in errors.splitlines())
    assert paths_in(tmp_path) == before
    return errors


def write_state(tmp_path: Path, *, batches: int = 1, is_materialized: bool = False) -> Path:
    """Write a state directory with a checkpoint, as a run does."""
    state = tmp_path / "state"
    views = compile_sql(QUERY, {"e": EDGE}, materialize=["n"] if is_materialized else [])
    sink = ViewSink(views, state_dir=state)
    commits = state / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    for batch in range(batches):
        sink(Frame(edges((batch, 1))), batch)
        (commits / str(batch)).write_text("v1")
    sink.close()
    return state


def test_a_check_of_a_valid_run_prints_a_summary_and_changes_nothing(
    tmp_path: Path,
) -> None:
    before = paths_in(tmp_path)
    options = ("--state", tmp_path / "new" / "state", f"--sink=sqlite:{tmp_path}/d.db#n,keys=src")
    status, out, errors = run_check(tmp_path, *options)
    assert (status, errors) == (0, "")
    for text in ("1 view: n", "source e", "src int64, dst int64", "upsert('src')", "new", "Java"):
        assert text in out
    assert "nothing was started or changed" in out
    assert paths_in(tmp_path) == before
    status, out, _ = run_check(tmp_path, *options, "--json")
    result = json.loads(out)
    assert result["ok"] and {check["what"] for check in result["checks"]} >= {
        "query",
        "source e",
        "state",
    }


def test_a_state_of_the_same_views_can_be_continued(tmp_path: Path) -> None:
    state = write_state(tmp_path, batches=3)
    before = paths_in(tmp_path)
    status, out, errors = run_check(tmp_path, "--state", state)
    assert status == 0, errors
    assert "at micro-batch 2" in out
    assert paths_in(tmp_path) == before


def test_a_state_with_a_view_that_a_sink_materializes_can_be_continued(tmp_path: Path) -> None:
    state = write_state(tmp_path, is_materialized=True)
    status, _, errors = run_check(
        tmp_path, "--state", state, f"--sink=sqlite:{tmp_path}/d,keys=src"
    )
    assert status == 0, errors
    message = check_error(tmp_path, "--state", state)
    assert "would drop the materialized rows of view 'n'" in message
    status, _, errors = run_check(tmp_path, "--state", state, "--allow-drop")
    assert status == 0, errors


def test_a_run_is_checked_before_spark_also_without_the_option(tmp_path: Path) -> None:
    arguments = ["run", QUERY, f"--source=e={tmp_path}/in", f"--sink=parquet:{tmp_path}/in"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "which a source reads: name another folder" in result.stderr


def test_all_problems_are_reported_and_each_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = check_error(
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


def test_slices_have_a_positive_limit_and_earlier_views_and_no_end(tmp_path: Path) -> None:
    message = check_error(tmp_path, "--slice-seconds=0", "--once")
    assert "--slice-seconds 0: give a positive number of seconds" in message
    assert "--slice-seconds: without --state, there are no earlier views" in message
    assert "--once ends after the existing rows, before the slices of new views" in message


def test_a_change_that_is_not_possible_in_slices_is_reported(tmp_path: Path) -> None:
    state = write_state(tmp_path, is_materialized=True)
    changed = QUERY.replace("count(*)", "count(*) + 1")
    options = ("--state", state, "--allow-drop", "--slice-seconds=1")
    status, _, errors = run_check(tmp_path, *options[:3], query=changed)
    assert status == 0, errors
    message = check_error(tmp_path, *options, query=changed)
    assert "so the new views cannot be computed in slices" in message


def test_a_state_of_other_views_or_input_options_is_reported(tmp_path: Path) -> None:
    state = write_state(tmp_path)
    message = check_error(tmp_path, "--state", state, query=QUERY.replace("count(*)", "sum(dst)"))
    assert "input 'e': new or changed views need the rows of its columns (src, dst)" in message
    assert "--backfill e=FILE --backfill-batch-id 0" in message
    pq.write_table(edges((1, 2)), tmp_path / "rows.parquet")
    status, _, errors = run_check(
        tmp_path,
        *("--state", state, f"--backfill=e={tmp_path}/rows.parquet", "--backfill-batch-id=0"),
        query=QUERY.replace("count(*)", "max(dst)"),
    )
    assert status == 0, errors
    message = check_error(tmp_path, "--state", state, f"--source=e={tmp_path}/in,keys=src")
    assert "input 'e'" in message
    message = check_error(
        tmp_path, "--state", state, "--source=e=format=rate,schema=src int,dst int"
    )
    assert "the published rows of view 'n', which has other columns now" in message


def test_a_checkpoint_that_does_not_belong_to_the_state_is_reported(tmp_path: Path) -> None:
    state = write_state(tmp_path, batches=2)
    commits = state / "checkpoint" / "commits"
    (commits / "1").unlink()
    assert run_check(tmp_path, "--state", state)[0] == 0  # as after a crash before Spark's commit
    (commits / "0").unlink()
    message = check_error(tmp_path, "--state", state)
    assert "the state is at micro-batch 1 and Spark's checkpoint at -1" in message
    (commits / "7").write_text("")
    assert "Spark's checkpoint at 7" in check_error(tmp_path, "--state", state)


def test_a_state_in_use_or_with_another_number_of_cells_is_reported(tmp_path: Path) -> None:
    state = write_state(tmp_path)
    assert "dbsp-wcoj rescale" in check_error(tmp_path, "--state", state, "--cells", 2)
    sink = ViewSink(compile_sql(QUERY, {"e": EDGE}), state_dir=state)
    sink(Frame(edges((0, 1))), 0)
    try:
        assert "writes to it" in check_error(tmp_path, "--state", state)
    finally:
        sink.close()


def test_an_unwritable_location_is_reported(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    message = check_error(
        tmp_path, f"--state={tmp_path}/file/state", f"--sink=parquet:{tmp_path}/file"
    )
    assert "file is a file, not a folder" in message
    message = check_error(tmp_path, f"--sink=sqlite:{tmp_path}/in")
    assert "is a folder; name a file" in message
    message = check_error(tmp_path, f"--sink=sqlite:{tmp_path}/file/x.db")
    assert "is a file, not a folder" in message
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write" in check_error(tmp_path, f"--state={tmp_path}/state")


def table_check_error(database, statements: str, *options: str) -> str:
    """Check a table that SQL statements create, and return the error; empty without one."""
    table = new_table_name()
    for statement in statements.split(";"):
        database.run(statement.format(table))
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


LOG_COLUMNS = "batch_id BIGINT, row_number BIGINT, src BIGINT, n BIGINT, weight BIGINT"


@pytest.mark.parametrize(
    ("statements", "options", "message"),
    [
        (f"CREATE TABLE {{}} ({LOG_COLUMNS})", (), ""),
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
            f"CREATE TABLE {{0}} ({LOG_COLUMNS}); INSERT INTO {{0}} VALUES (0, 0, 1, 1, 1)",
            (),
            "are not from view 'n' of this state directory",
        ),
    ],
)
def test_an_unsuitable_table_is_reported_and_not_changed(database, statements, options, message):
    error = table_check_error(database, statements, *options)
    assert message in error and bool(message) == bool(error), error


def test_a_table_that_this_state_directory_wrote_is_accepted(database) -> None:
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
    assert "lacks the column 'n'; its columns are src" in check_error(
        tmp_path, f"--sink=sqlite:{tmp_path}/d.db,keys=src"
    )
    (tmp_path / "text.db").write_text("no database " * 100)
    message = check_error(tmp_path, f"--sink=sqlite:{tmp_path}/text.db#t")
    assert f"SQLite at {tmp_path}/text.db: DatabaseError: file is not a database" in message


def test_files_of_other_programs_in_the_folder_of_a_sink_are_reported(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(ROW, tmp_path / "out" / "other.parquet")
    message = check_error(tmp_path, f"--sink=parquet:{tmp_path}/out")
    assert "other.parquet, holds rows that are not from view 'n'" in message
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "lake"), pa.table({"x": [1]}))
    message = check_error(tmp_path, f"--sink=delta:{tmp_path}/lake")
    assert "its columns are x, and those of the view src, n, weight" in message
    assert "deltalake" in message or "Delta table" in message


def test_an_error_for_an_unreachable_database_names_it_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    dsn = "host=127.0.0.1 port=1 user=anna password=hunter2 dbname=shop"
    message = check_error(tmp_path, f"--sink=postgres:{dsn}#t,keys=src")
    assert "PostgreSQL at 127.0.0.1:1, database shop" in message and "Connection refused" in message
    assert "hunter2" not in message
    for invalid_sink in (f"{dsn}#t,kyes=src", f"{dsn}#t,mode=upsert", f"{dsn}#t,retry_attempts=no"):
        message = check_error(tmp_path, f"--sink=postgres:{invalid_sink}")
        assert "hunter2" not in message and "password=***" in message
    status, _, errors = run_check(tmp_path, f"--sink=postgres:{dsn}", "--debug")
    assert status == 2 and "Traceback" in errors and "hunter2" not in errors
    status, out, _ = run_check(tmp_path, f"--sink=sqlite:{tmp_path}/password=hunter2.db")
    assert "hunter2" not in out


def test_two_sinks_with_one_location_are_reported(tmp_path: Path) -> None:
    query = f"{QUERY}; CREATE VIEW m AS SELECT dst FROM e"
    for location in (
        f"sqlite:{tmp_path}/d.db#t",
        f"parquet:{tmp_path}/out",
        f"delta:{tmp_path}/out",
    ):
        message = check_error(tmp_path, f"--sink=n={location}", f"--sink=m={location}", query=query)
        assert "views 'n' and 'm' share one location" in message
    options = (f"--sink=n=sqlite:{tmp_path}/d.db", f"--sink=m=sqlite:{tmp_path}/d.db")
    assert run_check(tmp_path, *options, query=query)[0] == 0


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert str(port) in check_error(tmp_path, "--ui", "--ui-port", port)


def test_missing_java_is_reported(tmp_path: Path, monkeypatch) -> None:
    def missing() -> None:
        raise JavaMissingError("Spark needs Java 17 or newer")

    monkeypatch.setattr("streaming.cli.commands.run.find_java", missing)
    assert "Spark needs Java 17" in check_error(tmp_path)


def test_a_query_whose_columns_only_spark_knows_is_reported_as_not_compiled(tmp_path: Path) -> None:
    status, out, errors = run_check(tmp_path, "--source=e=format=rate", query="SELECT x FROM e")
    assert status == 0, errors
    assert "not compiled, as only Spark knows the columns of e" in out
