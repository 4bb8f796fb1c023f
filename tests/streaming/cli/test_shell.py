"""The shell: statements and commands, line by line, from a terminal or a script."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from typer.testing import CliRunner

from dbsp_wcoj import DbspWcojError
from streaming import Database
from streaming.cli.app import app
from streaming.cli.commands import shell as command
from streaming.cli.shell import COMMANDS, Shell
from streaming.cli.terminal.display import THEME

SETUP = """
-- orders and their totals
CREATE TABLE orders (nr INT PRIMARY KEY, item TEXT,
  price DOUBLE);
CREATE VIEW totals AS SELECT item, sum(price) AS worth FROM orders GROUP BY item;
INSERT INTO orders VALUES (1, 'desk; big', 250), (2, 'lamp', NULL);
"""


@pytest.fixture
def shell():
    with Database("") as database:
        output = Console(file=io.StringIO(), width=120, theme=THEME)
        shell = Shell(database, "duckdb", output)
        feed(shell, SETUP)
        yield shell


def feed(shell: Shell, text: str) -> str:
    """Feed lines; return what they print."""
    file = shell.output.file
    before = file.tell()
    for line in text.splitlines():
        shell.feed(line)
    file.seek(before)
    return file.read()


def test_a_statement_prints_the_changed_rows_of_views(shell):
    lines = feed(shell, "UPDATE orders\n SET price = 7 WHERE nr = 1;").splitlines()
    assert lines[0].strip() == "totals"
    assert [line.split() for line in lines[3:5]] == [
        ["+1", "desk;", "big", "7"],
        ["-1", "desk;", "big", "250"],
    ]
    assert lines[5].startswith("1 row, ")


def test_a_query_prints_its_rows_in_order(shell):
    lines = feed(shell, "SELECT nr, price FROM orders ORDER BY nr DESC;").splitlines()
    assert [line.split() for line in lines[2:4]] == [["2", "NULL"], ["1", "250"]]


def test_statements_on_one_line_and_over_several(shell):
    text = feed(shell, "SELECT 1 AS a; SELECT 2 AS b;")
    assert text.count("1 row, ") == 2
    shell.feed("SELECT ';")
    assert shell.is_in_statement
    shell.feed("' AS x -- ;")
    assert shell.is_in_statement
    assert "1 row" in feed(shell, ";")
    assert not shell.is_in_statement


def test_the_last_statement_needs_no_semicolon(shell):
    shell.feed("DELETE FROM orders")
    shell.finish()
    shell.finish()
    assert len(shell.database.view("orders")) == 0


def test_long_results_are_cut(shell):
    text = feed(shell, "SELECT * FROM range(50);")
    assert "... and 10 more rows" in text
    assert "50 rows" in text


def test_tables_and_schema(shell):
    lines = feed(shell, ".tables").splitlines()
    assert lines[2].split()[:3] == ["orders", "table", "2"]
    assert lines[3].split()[:3] == ["totals", "view", "2"]
    assert feed(shell, ".schema").startswith("CREATE TABLE orders (nr INT PRIMARY KEY, item TEXT,")
    assert feed(shell, ".schema orders").splitlines()[0] == "nr int32 NOT NULL"
    assert {"orders", "totals", "worth"} <= set(shell.names())


def test_explain_and_profile(shell):
    assert "aggregate" in feed(shell, ".explain")
    text = feed(shell, ".profile DELETE FROM orders WHERE nr = 1;")
    assert "aggregate" in text
    assert "share" in text


def test_import_and_read(shell, tmp_path):
    file = tmp_path / "more orders.parquet"
    pq.write_table(pa.table({"nr": [7, 8], "item": ["a", "a"], "price": [1.0, 2.0]}), file)
    assert "2 rows" in feed(shell, f".import orders '{file}'")
    script = tmp_path / "script.sql"
    script.write_text("SELECT count(*) AS n FROM orders;\n.tables\nSELECT 5 AS five")
    text = feed(shell, f".read {script}")
    assert "five" in text
    assert "totals" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (".nothing", r"\.nothing is not a command; commands are \.tables"),
        (".profile", "needs a statement"),
        (".import orders", "a table and a file"),
        (".import orders missing.parquet", "missing.parquet"),
        (".import nothing missing.parquet", "missing|nothing"),
        (".read missing.sql", r"missing\.sql"),
        (".schema nothing", "nothing"),
        ("SELECT c FROM orders;", "unknown column 'c'"),
    ],
)
def test_errors_leave_the_shell_usable(shell, line, message):
    with pytest.raises(DbspWcojError, match=message):
        shell.feed(line)
    assert not shell.is_in_statement
    assert "1 row" in feed(shell, "SELECT 1 AS a;")


def test_help_names_every_command(shell):
    text = feed(shell, ".help")
    assert all(name in text for name in COMMANDS)
    shell.feed(".quit")
    assert shell.is_ended


def run(*arguments: object, script: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["shell", *map(str, arguments)], input=script)
    return result.exit_code, result.stdout, result.stderr


def test_a_script_is_read_from_standard_input_and_its_state_kept(tmp_path):
    status, out, errors = run("--state", tmp_path / "state", script=SETUP + ".quit\nSELEC")
    assert (status, errors) == (0, "")
    assert "desk; big" in out
    status, out, _ = run("--state", tmp_path / "state", script="SELECT count(*) AS n FROM orders")
    assert status == 0
    assert out.split()[:3] == ["n", "─", "2"]


def test_a_script_stops_at_its_first_error(tmp_path):
    script = SETUP + "SELECT c FROM orders;\nDELETE FROM orders;"
    status, _, errors = run("--state", tmp_path / "state", script=script)
    assert status == 1
    assert errors.startswith("error: line 7 of the script: line 1, column 8: unknown column 'c'")
    with Database(path=tmp_path / "state") as database:
        assert len(database.view("orders")) == 2


def test_a_file_of_views_is_the_beginning(tmp_path):
    file = tmp_path / "shop.sql"
    file.write_text(SETUP.partition("INSERT")[0])
    status, out, errors = run(file, script=".tables")
    assert (status, errors) == (0, "")
    assert "totals" in out
    assert run(tmp_path / "missing.sql")[0] == 2


def test_the_prompt_goes_on_after_an_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)
    keys = (
        "CREATE TABLE t (a INT);\nSELEC 1;\nINSERT INTO t\n\x03SELECT count(*) AS n FROM t;\n\x04"
    )
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        command.shell(views=None, state=None, dialect="duckdb", functions=None)
    captured = capsys.readouterr()
    assert "error: line 1, column 7" in captured.err
    assert "0\n1 row" in captured.out
    history = (tmp_path / "dbsp-wcoj" / "shell-history").read_text()
    assert "+CREATE TABLE t (a INT);" in history
