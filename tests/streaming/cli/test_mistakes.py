"""Each mistake on the command line gives a one-line error and status 2, and does not start Spark.

A case is a command line and a part of its error. The arguments are separated by ``|``; IN means
``--source=e=in``, a folder with a CSV file. The tests of the commands have more cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from typer.testing import CliRunner

from streaming.cli.app import app
from streaming.cli.terminal.spark_error import is_lost_connection

MISTAKES = """
run => Missing argument 'QUERY'; see dbsp-wcoj run --help
run|q.sql => no --source: give a source for each relation
run|q.sql|--source => Option '--source' requires an argument
run|q.sql|--source= => write NAME=PATH, as in e=in/edges
run|q.sql|--sorce=e=in => No such option: --sorce
run|q.sql|--input=e=in => it is --source NAME=PATH
run|q.sql|IN|--source=e=in => relation 'e' has a source already
run|q.sql|IN|--source=f=in => --source f: no view reads 'f'; views read e: correct its name, remove
run|SELECT 1 AS x|IN => --source e: no view reads 'e'; views read nothing: correct
run|q.sql|--source=f=in => unknown table 'e'; tables: f
run|q.sql|--source=1e=in => write NAME=PATH
run|q.sql|--source=e=in,schema=src foo => unknown type 'foo'
run|q.sql|--source=e=in,format=xml => in/a.csv is not a readable
run|q.sql|--source=e=in,keys=nokey => keys=nokey is not a column; columns: src, dst
run|q.sql|--source=e=in,keys=src,keys=dst => keys is given twice
run|q.sql|--source=e=in,kyes=src => unknown option kyes=; did you mean keys=?
run|q.sql|--source=e=in,shcema=src int => unknown option shcema=; did you mean schema=?
run|q.sql|--source=e=in,strict=maybe => strict='maybe' must be true or false
run|q.sql|--source=e=in,retain=dst => write COLUMN LENGTH
run|q.sql|--source=e=in,retain=dst 7 parsecs => invalid duration '7 parsecs'
run|q.sql|--source=e=in,feed=debzium => unknown feed 'debzium'
run|q.sql|--source=e=empty => no file ends in
run|q.sql|--source=e=file => no file ends in
run|none.sql|IN => none.sql: No such file or directory
run|none|IN => no file has this name
run|empty|IN => empty is a folder: name a file
run|file|IN => must end in .sql or .dl
run|SELECT nocol FROM e|IN => unknown column 'nocol'
run|q.sql|IN|more => unexpected extra argument
run|q.sql|IN|--every => Option '--every' requires an argument
run|q.sql|IN|--every=5 => write a number and a unit
run|q.sql|IN|--state= => name a folder of its own
run|q.sql|IN|--state=file => is a file; name a folder
run|q.sql|IN|--state=file/x => is a file, not a folder
run|q.sql|IN|--sink= => unknown sink ''
run|q.sql|IN|--sink=console: => the console has no location
run|q.sql|IN|--sink=sqlite: => name the location
run|q.sql|IN|--sink=sqlite:none/x.db => none: the folder does not exist
run|q.sql|IN|--sink=sqlite:file#t => file is not a database
run|q.sql|IN|--sink=duckdb:file#t => not a valid DuckDB database file
run|q.sql|IN|--sink=duckdb:none/x.db => none: the folder does not exist
run|q.sql|IN|--sink=sqlite:in#t => in: is a folder; name a file
run|q.sql|IN|--sink=v=console => unknown view 'v'; views: q
run|q.sql|IN|--sink=sqlite:x.db,keys=nokey => the output key 'nokey' is not a column
run|q.sql|IN|--sink=sqlite:x.db,keys= => the output key '' is not a column
run|q.sql|IN|--sink=sqlite:x.db,kyes=src => unknown option kyes=; options: keys=, mode=
run|q.sql|IN|--sink=sqlite:x.db,mode=upsert => keys=COLUMN for one row per key
run|q.sql|IN|--sink=sqlite:x.db,retry_attempts=0 => write retry_attempts=N, 1 or more
run|q.sql|IN|--sink=parquet:out,retry_seconds=1 => retry_seconds is for sqlite, duckdb, postgres
run|q.sql|IN|--sink=console|--sink=console => 2 sinks name no view, and only one may
run|q.sql|IN|--sink=q=console|--sink=q=console => view 'q' has a sink already
run|q.sql|IN|--sink=parquet:in => which a source reads
run|q.sql|IN|--sink=parquet:file => file, not a folder
run|q.sql|IN|--cells=0 => greater than or equal to 1
run|q.sql|IN|--cells=two => Invalid value for '--cells'
run|q.sql|IN|--threads=0 => Invalid value for '--threads'
run|q.sql|IN|--memory=lots => --memory 'lots': write a number and a unit
run|q.sql|IN|--conf => Option '--conf' requires an argument
run|q.sql|IN|--conf= => --conf : write KEY=VALUE, as in spark.jars.packages=
run|q.sql|IN|--conf=spark.jars => --conf spark.jars: write KEY=VALUE, as in spark.jars.packages=
run|q.sql|IN|--conf=jars=a => --conf jars: Spark ignores a setting whose name does not begin
run|q.sql|IN|--conf=spark.=a => --conf spark.: Spark ignores a setting
run|q.sql|IN|--conf=spark.jars=a|--conf=spark.jars=b => --conf spark.jars is given twice
run|q.sql|IN|--conf=spark.master=yarn => --conf spark.master cannot be set: the command runs
run|q.sql|IN|--conf=spark.driver.memory=4g => --conf spark.driver.memory cannot be set: give --mem
run|q.sql|IN|--conf=spark.driver.host=a => cannot be set: only this machine may connect
run|q.sql|IN|--conf=spark.sql.session.timeZone=CET => cannot be set: it is UTC
run|q.sql|IN|--ui-port=99999 => Invalid value for '--ui-port'
run|q.sql|IN|--log-format=xml => --log-format 'xml' must be one of text, json
run|q.sql|IN|--json=yes => Option '--json' does not take a value
replay => Missing argument 'QUERY'
replay|q.sql => the file of changes is --source NAME=FILE
replay|in/a.csv|q.sql => the file of changes is --source NAME=FILE
replay|q.sql|--source=e=empty => and there are 0: name a file
replay|q.sql|--source=in/a.csv => the rows of in/a.csv are relation 'a'
replay|q.sql|--source=e=in/a.csv,feed=debezium => which does not support feed=
replay|q.sql|--source=e=in/a.csv|--by=nocol => unknown column 'nocol'
replay|q.sql|--source=e=in/a.csv|--batch=0 => Invalid value for '--batch'
replay|q.sql|--source=e=in/a.csv|--pause=-1 => Invalid value for '--pause'
replay|q.sql|--source=e=in/a.csv|--output=in => --output in: exists already; name a new folder
replay|q.sql|--source=e=in/a.csv|--output=file/x => file: is a file, not a folder
explain|q.sql => unknown table 'e'; tables: none
explain|q.sql|IN|--analyse => (Possible options: --analyze)
explain|q.sql|--source=e=schema=src int|--analyze => no files to read
explain|q.sql|IN|--formula=fast => unknown formula 'fast'
inspect|none => none is not a state directory
inspect|file => file is a file: name the folder
inspect|in|--letters=-1 => Invalid value for '--letters'
rescale|none|--cells=2 => so there is nothing to rescale
compact|none => so there is nothing to compact
rescale|in|--cells=2|--embedded => give either --cells with a number, or --embedded
rescale|s4://x|--cells=2 => Unrecognized filesystem type in URI
profile|q.sql|IN|--batch=100 => 2 rows are too few
profile|q.sql|--skew=2 => Invalid value for '--skew'
profile|q.sql|--input=e=in => No such option: --input: it is --source NAME=FILE
bench|q.sql|--formula=fast => --formula 'fast' must be one of auto
bench|--seed=x => Invalid value for '--seed'
bench|--input=e=in => No such option: --input: it is --source NAME=FILE
nosuch => No such command 'nosuch'
--nosuch => No such option: --nosuch
"""


def cases() -> list[tuple[str, ...]]:
    return [tuple(line.split(" => ")) for line in MISTAKES.strip().splitlines()]


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streaming.cli.commands.run.start_session", start)
    monkeypatch.setattr("streaming.cli.commands.run.find_java", lambda: "Java 21")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.sql").write_text("SELECT src, count(*) AS n FROM e GROUP BY src")
    (tmp_path / "file").write_text("no database, but text\n" * 100)
    (tmp_path / "empty").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("src,dst\n1,2\n2,3\n")


@pytest.mark.parametrize(("command_line", "message"), cases())
def test_a_mistake_is_a_one_line_error_and_changes_nothing(command_line: str, message: str) -> None:
    before = sorted(Path().rglob("*"))
    arguments = [word if word != "IN" else "--source=e=in" for word in command_line.split("|")]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr and "Errno" not in result.stderr
    assert sorted(Path().rglob("*")) == before


def test_an_exception_of_java_is_not_a_lost_connection():
    # Its constructor needs a running JVM.
    assert not is_lost_connection(Py4JJavaError.__new__(Py4JJavaError))
    assert is_lost_connection(Py4JNetworkError("Answer from Java side is empty"))
