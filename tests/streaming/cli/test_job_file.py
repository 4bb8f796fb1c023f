"""Job files of ``dbsp-wcoj run job.toml``: their keys, and the errors of an invalid file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from circuits import InputOptions, Retention
from streaming.cli.app import app
from streaming.cli.arguments import job_file
from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.job_file import OPTIONS, read_job
from streaming.cli.arguments.run_options import RunOptions
from streaming.cli.arguments.sink import SinkArgument
from streaming.cli.commands.run import SPARK_SETTINGS
from streaming.errors import EventsError, StreamingError
from streaming.targets.output_mode import OutputMode
from tests.support.tables import edges

JOB = """
query = "n.sql"

[inputs.e]
path = "in"

[[outputs]]
target = "sqlite"
path = "d.db"
table = "n"
keys = ["src"]

[state]
path = "state"
mode = "750"
"""
#: The options of `RunOptions` without a default.
MANDATORY = (
    *("state", "state_mode", "once", "every", "bad_rows", "cells", "formula", "threads"),
    *("max_step_rows", "max_step_bytes", "max_seconds", "memory", "ui", "ui_port", "ui_host"),
    *("ui_token_file", "check", "verbose", "log_format", "json"),
)
QUERY = "CREATE VIEW n AS SELECT src, count(*) AS n FROM e GROUP BY src"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streaming.cli.commands.run.start_session", start)
    monkeypatch.setattr("streaming.cli.commands.run.find_java", lambda: "Java 21")


def write_job(folder: Path, text: str = JOB) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(edges((1, 2)), folder / "in" / "0.parquet")
    (folder / "n.sql").write_text(QUERY)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def problems_of(folder: Path, text: str) -> list[str]:
    """The problems of a job file, without the name of the file."""
    checks = Checks()
    read_job(write_job(folder, text), checks)
    prefix = f"{folder}/job.toml: "
    assert all(problem.startswith(prefix) for problem in checks.problems)
    return [problem.removeprefix(prefix) for problem in checks.problems]


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["run", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_check_reads_a_job_and_reports_its_parts(tmp_path: Path) -> None:
    status, out, errors = invoke(write_job(tmp_path), "--check", "--json")
    assert (status, errors) == (0, "")
    result = {check["what"]: check["found"] for check in json.loads(out)["checks"]}
    assert result["query"] == "1 view: n"
    assert result["source e"] == f"parquet in {tmp_path}/in: src int64, dst int64"
    assert result["sink n"] == f"sqlite:{tmp_path}/d.db#n, upsert('src')"
    assert result["state"] == f"{tmp_path}/state, new"
    assert not (tmp_path / "state").exists() and not (tmp_path / "d.db").exists()


def test_a_job_has_the_same_options_as_the_command_line(tmp_path: Path) -> None:
    text = """
    query = "SELECT 1"
    [inputs.pay]
    path = "in/*.parquet"
    schema = "src long, ts timestamp"
    keys = ["ts", "a column, with a comma"]
    sequence = "ts"
    strict = true
    retain = "ts 7 days"
    on_expiry = "keep"
    options = { maxFilesPerTrigger = 1, latestFirst = true }
    [inputs.lake]
    path = "s3://lake/e"
    format = "delta"
    schema = "src long"
    feed = "delta"
    [inputs.orders]
    format = "kafka"
    schema = "nr long"
    feed = "debezium"
    [inputs.orders.options]
    subscribe = "orders"
    kafka.bootstrap.servers = "a:1,b:2"
    [[outputs]]
    view = "a"
    target = "postgres"
    dsn = "host=db"
    mode = "complete"
    retry_attempts = 3
    retry_seconds = 60
    [[outputs]]
    target = "parquet"
    path = "out/{view}"
    [run]
    once = true
    every = "5 seconds"
    bad_rows = "dead_letter"
    cells = 4
    formula = "auto"
    threads = 2
    memory = "4g"
    [limits]
    max_step_rows = 0
    max_step_bytes = "4G"
    max_seconds = 60
    [ui]
    port = 0
    host = "localhost"
    token_file = "token"
    """
    checks = Checks()
    job = read_job(write_job(tmp_path, text), checks)
    assert checks.problems == []
    assert job.query == "SELECT 1"
    pay, lake, orders = job.sources.values()
    assert pay.path == tmp_path / "in/*.parquet"
    assert pay.options == {"maxFilesPerTrigger": "1", "latestFirst": "true"}
    assert pay.input_options() == InputOptions(
        keys=["ts", "a column, with a comma"],
        strict=True,
        sequence="ts",
        retain=Retention("ts", "7 days", on_expiry="keep"),
    )
    assert (lake.path, lake.options) == (None, {"path": "s3://lake/e"})
    assert orders.options == {"subscribe": "orders", "kafka.bootstrap.servers": "a:1,b:2"}
    assert (orders.format, orders.feed) == ("kafka", "debezium")
    postgres, parquet = job.sinks
    assert postgres == SinkArgument.parse(
        "a=postgres:host=db,mode=complete,retry_attempts=3,retry_seconds=60"
    )
    assert (postgres.output_mode, parquet.location) == (
        OutputMode("complete"),
        f"{tmp_path}/out/{{view}}",
    )
    assert job.options == {
        **{"once": True, "every": "5 seconds", "bad_rows": "dead_letter", "cells": 4},
        **{"formula": "auto", "threads": 2, "memory": "4g"},
        **{"max_step_rows": 0, "max_step_bytes": "4G", "max_seconds": 60.0},
        **{"ui": True, "ui_port": 0, "ui_host": "localhost", "ui_token_file": tmp_path / "token"},
    }


@pytest.mark.parametrize("source", ["docstring", "docs/how-to/job-file.md"])
def test_the_documented_jobs_are_valid(tmp_path: Path, source: str) -> None:
    if source == "docstring":
        lines = job_file.__doc__.partition("::\n")[2].partition("\n====")[0].splitlines()
        text = "\n".join(line.removeprefix("    ") for line in lines)
    else:
        page = (Path(__file__).parents[3] / source).read_text()
        text = page.partition("```toml\n")[2].partition("```")[0]
    assert problems_of(tmp_path, text) == []


def test_the_limits_of_dead_letters_are_checked_before_the_run(tmp_path: Path) -> None:
    job = write_job(tmp_path, f'{JOB}dead_letter_days = 7\ndead_letter_size = "500 apples"')
    status, _, errors = invoke(job, "--check")
    assert status == 2
    assert "job.toml: state.dead_letter_size '500 apples': write a number of bytes" in errors
    assert invoke(job, "--check", "--dead-letter-size", 0)[0] == 0


def test_the_memory_limit_is_checked_before_the_run(tmp_path: Path) -> None:
    job = write_job(tmp_path, f'{JOB}memory_limit = "4 apples"')
    status, _, errors = invoke(job, "--check")
    assert status == 2
    assert "job.toml: state.memory_limit '4 apples': write a number of bytes" in errors
    assert invoke(job, "--check", "--memory-limit", "4G")[0] == 0
    status, _, errors = invoke(job, "--check", "--memory-limit", "4G", "--cells", 4)
    assert status == 2 and "--memory-limit 4G" in errors and "no --cells" in errors


def test_every_option_of_a_job_is_an_option_of_run() -> None:
    names = {option for keys in OPTIONS.values() for option, _ in keys.values()}
    assert names <= set(RunOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ['query: the key is missing: add query = "views.sql", or the text of a query']),
        ("query = 1", ['query = 1: write text, as "..."']),
        ('qeury = "n.sql"', ["qeury: unknown key; keys: query, inputs, outputs"]),
        ("[inputs.e]\nkyes = []", ["inputs.e.kyes: unknown key", "did you mean keys?"]),
        ("[inputs.e]\nkeys = []", ['inputs.e.keys = []: write names of columns, as ["a", "b"]']),
        ('[inputs.e]\nstrict = "yes"', ['inputs.e.strict = "yes": write true or false']),
        ('[inputs."1e"]\npath = "in"', ["inputs.1e: is not a name"]),
        ("[inputs.e]\nkeys = ['a']", ["inputs.e: give a path, or format="]),
        ("[inputs.e]\npath = 's3://a'", ["only Spark can read s3://a: add format=... and schema="]),
        ("[inputs.e]\npath = 'in'\noptions = {a = []}", ["inputs.e.options.a: write text"]),
        ("inputs = 1", ["inputs = 1: write a table, as [inputs]"]),
        ("outputs = 1", ["outputs = 1: write an array of tables, as [[outputs]]"]),
        (
            "[[outputs]]\npath = 'a'",
            ["outputs[1].target: the key is missing: write one of console"],
        ),
        ("[[outputs]]\ntarget = 'kafka'", ['outputs[1].target = "kafka": write one of "console"']),
        ("[[outputs]]\ntarget = 'sqlite'", ["outputs[1]: name the location, sqlite:LOCATION"]),
        (
            "[[outputs]]\ntarget = 'console'\ntable = 'a'",
            ["outputs[1].table: unknown key"],
        ),
        (
            "[[outputs]]\ntarget = 'console'\npath = 'a'",
            ["outputs[1]: the console has no location"],
        ),
        ("[[outputs]]\ntarget = 'console'\nmode = 'upsert'", ["outputs[1]: write mode=delta"]),
        (
            "[[outputs]]\ntarget = 'console'\nretry_attempts = 0",
            ["outputs[1].retry_attempts = 0: write an integer, 1 or more"],
        ),
        (
            "[[outputs]]\ntarget = 'console'\nretry_attempts = 1",
            ["outputs[1]: retry_attempts is for sqlite, duckdb, postgres only"],
        ),
        ("[run]\ncells = 0", ["run.cells = 0: write an integer, 1 or more"]),
        ("[run]\nthreads = true", ["run.threads = true: write an integer, 1 or more"]),
        ("[limits]\nmax_seconds = -1", ["limits.max_seconds = -1: write a number of seconds"]),
        ("[limits]\nmax_step_bytes = 1.5", ["limits.max_step_bytes = 1.5: write bytes"]),
        ("[ui]\nport = 70000", ["ui.port = 70000: write an integer, 0 to 65535"]),
        ("[state]\nmode = 750", ['state.mode = 750: write text, as "..."']),
    ],
)
def test_a_key_or_value_that_is_not_valid_is_reported(tmp_path, text, problems) -> None:
    result = problems_of(tmp_path, text if "query" in text or not text else f'query = "q"\n{text}')
    assert all(any(part in problem for problem in result) for part in problems), result


def test_all_problems_of_a_job_and_its_parts_are_reported_at_once(tmp_path: Path) -> None:
    text = JOB.replace('path = "in"', 'path = "none"').replace('"750"', '"9"') + (
        '[run]\nmemory = "much"\nevery = "often"\nthreads = 0\n[limits]\nmax_step_bytes = "huge"\n'
    )
    status, out, errors = invoke(write_job(tmp_path, text), "--check")
    assert (status, out) == (2, "")
    for part in (
        "run.threads = 0: write an integer",
        "run.memory 'much': write a number and a unit",
        "run.every 'often': write a number and a unit",
        "state.mode '9': write octal digits",
        "limits.max_step_bytes 'huge': write a number",
        f"inputs.e: {tmp_path}/none: file or folder not found",
    ):
        assert errors.count(f"error: {tmp_path}/job.toml: {part}") == 1, errors
    assert errors.count("\n") == 6


def test_a_state_that_cannot_be_used_is_reported_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    _, _, errors = invoke(write_job(tmp_path), "--check")
    assert f"job.toml: state.path {tmp_path}/state: is a file; name a folder" in errors


def test_settings_of_spark_are_those_of_the_job_and_of_the_command_line(tmp_path: Path) -> None:
    text = """
    [spark]
    spark.jars.packages = "a:b:1,c:d:2"
    spark.ui.enabled = true
    "spark.default.parallelism" = 4
    """
    checks, command_line = Checks(), dict.fromkeys(MANDATORY)
    options = RunOptions.of(
        str(write_job(tmp_path, JOB + text)),
        *([], []),
        **{"explicit": set(), "checks": checks},
        conf=["spark.ui.enabled=false", "spark.hadoop.fs.s3a.secret.key=a=b"],
        **command_line,
    )
    assert checks.problems == []
    assert options.spark_settings == {
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.ui.enabled": "false",
        "spark.default.parallelism": "4",
        "spark.hadoop.fs.s3a.secret.key": "a=b",
    }


def test_settings_of_spark_that_are_not_valid_are_reported_without_values(tmp_path: Path) -> None:
    text = '[spark]\njars.packages = "x"\nspark.master = "x"\nspark.jars = ["x"]'
    status, out, errors = invoke(
        write_job(tmp_path, JOB + text),
        *("--check", "--conf", "spark.password", "--conf", "token=x", "--conf", "spark.a=1"),
        *("--conf", "spark.a=x", "--conf", "spark.b.key: hidden"),
    )
    assert (status, out) == (2, "")
    for part in (
        "job.toml: spark: jars.packages: Spark ignores a setting whose name does not begin",
        "job.toml: spark: spark.master cannot be set: the command runs Spark in one process",
        "job.toml: spark.spark.jars: write text, a number, true or false",
        "--conf spark.password: write KEY=VALUE",
        "--conf token: Spark ignores a setting whose name does not begin with spark.",
        "--conf spark.a is given twice",
        "--conf spark.b.key: write KEY=VALUE",
    ):
        assert errors.count(part) == 1, errors
    assert errors.count("\n") == 7
    assert "=x" not in errors and "hidden" not in errors


def test_spark_starts_with_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(name: str, **options: object) -> None:
        started.append(options["settings"])
        raise StreamingError("Spark did not start")

    monkeypatch.setattr("streaming.cli.commands.run.start_session", start)
    status, _, errors = invoke(
        *(write_job(tmp_path), "--conf", "spark.jars=a,b=c", "--conf", "spark.x=")
    )
    assert (status, "Spark did not start" in errors) == (2, True), errors
    (settings,) = started
    assert settings == {**SPARK_SETTINGS, "spark.jars": "a,b=c", "spark.x": ""}


def test_explicit_options_override_those_of_the_job(tmp_path: Path) -> None:
    checks = Checks()
    command_line = {
        **{"state": Path("other"), "state_mode": "700", "once": True, "every": None},
        **{"bad_rows": "fail", "cells": None, "formula": "collapsed", "threads": 1},
        **{"max_step_rows": None, "max_step_bytes": None, "max_seconds": None, "memory": "2g"},
        **{"ui": False, "ui_port": 1, "ui_host": "h", "ui_token_file": None, "check": True},
        **{"verbose": False, "log_format": "text", "json": False},
    }
    result = RunOptions.of(
        str(write_job(tmp_path)),
        ["e=elsewhere", "f=in"],
        ["console"],
        explicit={"state", "once"},
        checks=checks,
        **command_line,
    )
    assert checks.problems == []
    assert {name: str(source.path) for name, source in result.sources.items()} == {
        "e": "elsewhere",
        "f": "in",
    }
    assert [sink.kind for sink in result.sinks] == ["console"]
    assert (result.state, result.state_mode, result.once) == (Path("other"), "750", True)
    assert result.label("state") == "--state"
    assert result.label("state_mode") == f"{tmp_path}/job.toml: state.mode"


def test_the_command_line_overrides_state_and_outputs_of_a_job(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    _, out, _ = invoke(job, "--check", f"--state={tmp_path}/new", "--sink=console")
    assert f"{tmp_path}/new, new" in out and "console" in out and "sqlite" not in out


def test_an_output_with_keys_has_the_mode_upsert(tmp_path: Path) -> None:
    job = read_job(write_job(tmp_path), Checks())
    assert job.sinks[0].output_mode == OutputMode("upsert", ["src"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"query = ", "is not a TOML file: Invalid value"),
        (b"query = '\xff'", "is not UTF-8 text"),
        (b"#" * (5 << 20), "has more than 4,194,304 bytes"),
    ],
)
def test_a_file_that_is_not_toml_is_refused(tmp_path, data, message) -> None:
    (tmp_path / "job.toml").write_bytes(data)
    with pytest.raises(EventsError, match=message):
        read_job(tmp_path / "job.toml", Checks())


def test_a_job_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    status, _, errors = invoke(tmp_path / "job.toml")
    assert status == 2 and "job.toml: No such file or directory" in errors
    (tmp_path / "job.toml").mkdir()
    assert "is not a regular file" in invoke(tmp_path / "job.toml")[2]


def test_other_commands_refuse_a_job(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", str(write_job(tmp_path)), "--source=e=in"])
    assert result.exit_code == 2


def test_an_output_to_iceberg_names_its_table(tmp_path: Path) -> None:
    text = JOB.replace('"sqlite"', '"iceberg"').replace('path = "d.db"\n', "")
    text = text.replace('table = "n"', 'table = "shop.{view}"')
    (sink,) = read_job(write_job(tmp_path, text), Checks()).sinks
    assert sink == SinkArgument.parse("iceberg:shop.{view},keys=src")
