"""``dbsp-wcoj run`` in a process of its own: views over files, sinks, restarts, signals, errors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from streaming import ViewSink
from streaming.cli.arguments.frames import read_stream, relation_schema
from streaming.cli.arguments.source import SourceArgument
from streaming.cli.batch_request import accepts_requests
from streaming.cli.stop_signals import defer_signals
from streaming.cli.streaming_query import parse_interval, run_query
from streaming.errors import EventsError, FailedError, StateError
from tests.support.tables import bag_of

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
QUERY = """
CREATE VIEW rings AS
    SELECT x.src AS a, y.src AS b, z.src AS c
    FROM e x JOIN e y ON y.src = x.dst JOIN e z ON z.src = y.dst AND z.dst = x.src
    WHERE x.src < y.src AND x.src < z.src;
CREATE VIEW degrees AS SELECT src, count(*) AS n FROM e GROUP BY src;
"""

SLOW_FUNCTION = """
import time
from pathlib import Path
from circuits import udf

FOLDER = Path(__file__).parent

def slow(dst: int) -> int:
    if (FOLDER / "is_slow").exists():
        (FOLDER / "has_begun").touch()
        time.sleep(600)
    return dst

FUNCTIONS = {"slow": udf(slow, returns="bigint")}
"""


def write_rows(folder: Path, number: int, *rows: tuple[int, int], weight: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    columns = {"src": [a for a, _ in rows], "dst": [b for _, b in rows]}
    table = pa.table({**columns, "weight": [weight] * len(rows)})
    pq.write_table(table, folder / f"{number}.parquet")


def write_file(path: Path, columns: dict[str, list[int]]) -> None:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "streaming.cli", "run", *map(str, arguments)]


def run(*arguments: object) -> tuple[str, str]:
    completed = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout, completed.stderr


@pytest.mark.spark
@pytest.mark.parametrize(("every", "once"), [(None, False), ("50ms", False), (None, True)])
def test_a_query_ends_by_a_signal_or_when_all_has_been_read(spark, tmp_path, every, once):
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3))
    stream = spark.readStream.schema("src long, dst long, weight long").parquet(f"{tmp_path}/in")
    handler, batches = signal.getsignal(signal.SIGTERM), []

    def take(frame, batch_id):
        batches.append((batch_id, frame.count()))
        if not once:
            os.kill(os.getpid(), signal.SIGTERM)

    interval = None if every is None else parse_interval(every)
    ended = run_query(stream, take, checkpoint=tmp_path / "c", name="q", every=interval, once=once)
    assert (ended, batches) == (once, [(0, 2)])
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.spark
@pytest.mark.parametrize("has_second_signal", [False, True])
def test_a_signal_waits_for_the_micro_batch_only_for_a_limited_time(
    spark, tmp_path, has_second_signal
):
    write_rows(tmp_path / "in", 0, (1, 2))
    stream = spark.readStream.schema("src long").parquet(f"{tmp_path}/in")
    may_end, events = threading.Event(), []

    def take(frame, batch_id):
        os.kill(os.getpid(), signal.SIGTERM)
        events.append("waiting")
        if has_second_signal:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGTERM)
        assert may_end.wait(60)
        events.append("ended")

    def on_late_stop():
        events.append("late")
        may_end.set()

    timeout = 3600.0 if has_second_signal else 0.3
    has_ended = run_query(
        stream,
        take,
        checkpoint=tmp_path / "c",
        name="q",
        stop_timeout=timeout,
        on_late_stop=on_late_stop,
    )
    assert (has_ended, events) == (False, ["waiting", "late", "ended"])


@pytest.mark.spark
def test_an_error_of_a_query_is_that_of_its_first_cause(spark, tmp_path):
    write_rows(tmp_path / "in", 0, (1, 2))
    stream = spark.readStream.schema("src long").parquet(f"{tmp_path}/in")

    def take(frame, batch_id):
        raise EventsError(f"micro-batch {batch_id} is no good")

    with pytest.raises(FailedError, match=r"^micro-batch 0 is no good$"):
        run_query(stream, take, checkpoint=tmp_path / "c", name="q")


@pytest.mark.spark
def test_columns_of_types_that_spark_does_not_have_are_read(spark, tmp_path):
    (tmp_path / "e.csv").write_text('m,v\nok,1\nsad,2\nok,"[1]"\n')
    text = """CREATE TABLE e (m ENUM('sad', 'ok'), v VARIANT);
        CREATE VIEW best AS SELECT max(m) AS m, count(DISTINCT v) AS n FROM e"""
    declared = compile_sql(text).inputs["e"].arrow_columns
    source = replace(SourceArgument.parse(f"e={tmp_path}/e.csv"), declared=declared)
    frame = read_stream(spark, source)
    circuit = compile_sql(text, {"e": relation_schema(source, frame)}, materialize=True)
    with closing(ViewSink(circuit, relation="e")) as sink:
        run_query(frame, sink, checkpoint=tmp_path / "c", name="q", once=True)
        assert sink.table("best").drop_columns("weight").to_pylist() == [{"m": "ok", "n": 3}]


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("is_in_schema", [False, True])
def test_declared_columns_do_not_hide_the_weights_of_a_stream(
    spark, tmp_path, format, is_in_schema
):
    folder = tmp_path / "in"
    folder.mkdir()
    write_file(folder / f"1.{format}", {"src": [1, 3], "dst": [2, 4], "weight": [1, 1]})
    write_file(folder / f"2.{format}", {"src": [1], "dst": [2], "weight": [-1]})
    if format != "csv":
        write_file(folder / f"0.{format}", {"src": [5], "dst": [6]})
    text = "CREATE TABLE e (src BIGINT, dst BIGINT); CREATE VIEW v AS SELECT * FROM e"
    source = SourceArgument.parse(f"e={folder}" + ",schema=src long, dst long" * is_in_schema)
    if not is_in_schema:
        source = replace(source, declared=compile_sql(text).inputs["e"].arrow_columns)
    frame = read_stream(spark, source)
    circuit = compile_sql(text, {"e": relation_schema(source, frame)}, materialize=True)
    with closing(ViewSink(circuit, relation="e")) as sink:
        run_query(frame, sink, checkpoint=tmp_path / "c", name="q", once=True)
        rows = sink.table("v").sort_by("src").to_pylist()
    kept = [(3, 4)] if format == "csv" else [(3, 4), (5, 6)]
    assert [(row["src"], row["dst"], row["weight"]) for row in rows] == [(*k, 1) for k in kept]


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_declared_columns_do_not_hide_the_changes_of_a_delta_table(spark, tmp_path, format):
    folder = tmp_path / "in"
    folder.mkdir()
    kinds = ["delete", "insert", "insert", "update_preimage", "update_postimage"]
    changes = {"_change_type": kinds, "_commit_version": [2, 1, 1, 3, 3]}
    write_file(folder / f"1.{format}", {"src": [1, 1, 3, 3, 5], "dst": [2, 2, 4, 4, 6]} | changes)
    text = "CREATE TABLE e (src BIGINT, dst BIGINT); CREATE VIEW v AS SELECT * FROM e"
    source = SourceArgument.parse(f"e={folder},feed=delta")
    source = replace(source, declared=compile_sql(text).inputs["e"].arrow_columns)
    assert source.stream_schema().names == ["src", "dst", "_change_type", "_commit_version"]
    frame = read_stream(spark, source)
    assert relation_schema(source, frame).names == ["src", "dst"]
    circuit = compile_sql(text, {"e": relation_schema(source, frame)}, materialize=True)
    with closing(ViewSink(circuit, relation="e", feed="delta")) as sink:
        run_query(frame, sink, checkpoint=tmp_path / "c", name="q", once=True)
        assert bag_of(sink.table("v")) == {(5, 6): 1}


@pytest.mark.spark
@pytest.mark.parametrize("has_weight", [False, True])
def test_csv_files_with_and_without_weights_are_refused(spark, tmp_path, has_weight):
    write_file(tmp_path / "1.csv", {"a": [1], **({"weight": [1]} if has_weight else {})})
    write_file(tmp_path / "2.csv", {"a": [1], **({} if has_weight else {"weight": [-1]})})
    source = SourceArgument.parse(f"e={tmp_path},schema=a long")
    frame = read_stream(spark, source)
    with pytest.raises(FailedError):
        run_query(
            frame, lambda rows, _: rows.toArrow(), checkpoint=tmp_path / "c", name="q", once=True
        )


@pytest.mark.spark
def test_an_error_of_spark_is_one_short_line(spark, tmp_path):
    (tmp_path / "e.csv").write_text("src,dst\n1,2\nx,3\n")
    source = SourceArgument.parse(f"e={tmp_path}/e.csv,schema=src long, dst long")

    def take(frame, batch_id):
        frame.toArrow()

    with pytest.raises(FailedError) as failed:
        run_query(read_stream(spark, source), take, checkpoint=tmp_path / "c", name="q")
    text = str(failed.value)
    assert text.startswith("Spark says: [MALFORMED_RECORD") and "\n" not in text
    assert 'For input string: "x"' in text and len(text) < 400


@pytest.mark.spark
def test_a_missing_package_of_a_source_is_named_with_the_option(spark):
    kafka = "e=format=kafka,subscribe=e,kafka.bootstrap.servers=none:9092,schema=src long"
    source = SourceArgument.parse(kafka)
    hint = f"--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}$"
    with pytest.raises(EventsError, match=f"Failed to find data source: kafka.*{hint}"):
        read_stream(spark, source)
    with pytest.raises(EventsError, match=r"spark\.jars\.packages=GROUP:NAME:VERSION$"):
        read_stream(spark, SourceArgument.parse("e=format=unknown,schema=src long"))


def test_only_the_first_signal_waits_until_spark_has_started():
    handler, events = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), defer_signals(lambda: events.append("reported")):
        os.kill(os.getpid(), signal.SIGTERM)
        events.append("ended")
    assert events == ["reported", "ended"]
    with pytest.raises(KeyboardInterrupt), defer_signals(lambda: events.append("reported")):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        events.append("not reached")
    assert events == ["reported", "ended", "reported"]
    with defer_signals(lambda: events.append("no")):
        pass
    assert signal.getsignal(signal.SIGINT) is handler and len(events) == 3


def test_a_signal_ends_the_context_at_a_check_and_replaces_errors_of_a_lost_jvm():
    with pytest.raises(KeyboardInterrupt), defer_signals(list) as signals:
        signals.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signals.check()
        with pytest.raises(KeyboardInterrupt), signals.interrupt_at_once():
            raise AssertionError("not reached")
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(ConnectionRefusedError), defer_signals(list):
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_signal_can_interrupt_a_part_without_java_and_end_only_this_part():
    with defer_signals(list) as signals:
        with pytest.raises(KeyboardInterrupt), signals.interrupt_at_once():
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("not reached")
        assert not signals.has_arrived


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_that_code_in_c_drops_is_not_lost(fails):
    with pytest.raises(KeyboardInterrupt), defer_signals(list) as signals:
        with signals.interrupt_at_once():
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                raise AssertionError("not reached")
            if fails:
                raise RuntimeError("no compiled object")
        raise AssertionError("not reached")


@pytest.mark.slow
def test_a_jvm_that_is_killed_is_one_line_and_status_1(tmp_path: Path) -> None:
    write_rows(tmp_path / "in", 0, (1, 2))
    arguments = ("SELECT src FROM e", "--source", f"e={tmp_path}/in", "--state", tmp_path / "state")
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True)
    while "micro-batch 0" not in process.stderr.readline():
        assert process.poll() is None
    (jvm,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 1
    (error,) = [line for line in rest.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: Spark's JVM has ended") and "Traceback" not in rest


@pytest.mark.slow
@pytest.mark.parametrize("is_for_group", [False, True])
@pytest.mark.parametrize("line", ["Starting Spark", "SQL dialect", "micro-batch 0"])
def test_sigterm_ends_a_run_in_its_start_without_an_error(tmp_path, line, is_for_group):
    write_rows(tmp_path / "in", 0, (1, 2))
    arguments = ("SELECT src FROM e", "--source", f"e={tmp_path}/in", "--state", tmp_path / "state")
    process = subprocess.Popen(
        command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = []
    while line not in "".join(lines[-1:]):
        lines.append(process.stderr.readline())
        assert lines[-1]
    send = os.killpg if is_for_group else os.kill
    send(process.pid, signal.SIGTERM)
    _, rest = process.communicate(timeout=120)
    text = "".join(lines) + rest
    # 130: the signal arrived before the query, or Spark ended before it.
    assert process.returncode in ((130,) if line != "micro-batch 0" else (0, 130)), text
    for word in ("Traceback", "Errno", "error", "WARN", "py4j"):
        assert word not in text


@pytest.mark.slow
def test_a_run_continues_from_its_state(tmp_path: Path) -> None:
    """Takes about 25 seconds, as each run starts Spark."""
    (tmp_path / "rings.sql").write_text(QUERY)
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3), (3, 1))
    options = (
        *(tmp_path / "rings.sql", "--source", f"e={tmp_path}/in", "--state", tmp_path / "state"),
        *("--sink", f"degrees=sqlite:{tmp_path}/d.db,keys=src", "--sink", "rings=console"),
        *("--once", "--json"),
    )
    out, _ = run(*options)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"view": "rings", "batch": 0, "weight": 1, "row": {"a": 1, "b": 2, "c": 3}}
    ]
    write_rows(tmp_path / "in", 1, (2, 3), weight=-1)
    write_rows(tmp_path / "in", 2, (3, 2))
    (tmp_path / "job.toml").write_text(
        'query = "rings.sql"\ninputs.e.path = "in"\nstate.path = "state"\nrun.once = true\n'
        '[[outputs]]\nview = "rings"\ntarget = "console"\n'
        '[[outputs]]\nview = "degrees"\ntarget = "sqlite"\npath = "d.db"\nkeys = ["src"]\n'
    )
    out, errors = run(tmp_path / "job.toml", "--json")
    assert [json.loads(line)["weight"] for line in out.splitlines()] == [-1]
    assert "1 micro-batch with 2 rows" in errors
    database = sqlite3.connect(tmp_path / "d.db")
    assert sorted(database.execute("SELECT src, n FROM degrees")) == [(1, 1), (3, 2)]
    database.close()


@pytest.mark.slow
def test_a_run_with_other_views_publishes_them_without_new_rows(tmp_path: Path) -> None:
    """Takes about 40 seconds, as each run starts Spark."""
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3), (3, 1))

    def run_once(query: str, view: str) -> list[int]:
        sink = f"{view}=console"
        out, errors = run(
            *(query, "--source", f"e={tmp_path}/in,keep=all", "--state", tmp_path / "state"),
            *("--sink", sink, "--once", "--json"),
        )
        assert "not in" not in errors
        return [json.loads(line)["batch"] for line in out.splitlines()]

    old = "CREATE VIEW srcs AS SELECT src FROM e;"
    assert run_once(old, "srcs") == [0, 0, 0]
    assert run_once(old, "srcs") == []
    new = old + "CREATE VIEW dsts AS SELECT dst FROM e;"
    assert run_once(new, "dsts") == [1, 1, 1]
    assert run_once(new, "dsts") == []
    write_rows(tmp_path / "in", 1, (7, 8))
    assert run_once(new, "dsts") == [2]


@pytest.mark.slow
def test_new_views_in_slices_are_published_without_new_rows(tmp_path: Path) -> None:
    """Takes about 30 seconds, as each run starts Spark."""
    write_rows(tmp_path / "in", 0, *((n, n + 1) for n in range(20_000)))
    arguments = ("--source", f"e={tmp_path}/in,keep=all", "--state", tmp_path / "state")
    old = "CREATE VIEW srcs AS SELECT src FROM e WHERE src < 3;"
    run(old, *arguments, "--once")
    new = old + "CREATE VIEW dsts AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
    sink = ("--sink", f"dsts=sqlite:{tmp_path}/v.db,keys=dst", "--slice-seconds", 0.2)
    process = subprocess.Popen(
        command(new, *arguments, *sink, "--log-format", "json"), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        batches = []
        for line in process.stderr:
            fields = json.loads(line)
            if fields.get("event") == "micro_batch":
                batches.append(fields)
            if any("dsts" in batch["views"] for batch in batches):
                break
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(60) in (0, 130)
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
    assert len(batches) > 2 and not any(batch["rows_in"] for batch in batches)
    with closing(sqlite3.connect(tmp_path / "v.db")) as database:
        assert database.execute("SELECT count(*), sum(n) FROM v").fetchone() == (20_000, 20_000)


def test_the_first_run_after_an_upgrade_goes_on_with_its_sources(tmp_path: Path) -> None:
    assert accepts_requests(tmp_path, 1)
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / ".9.crc").write_text("")
    (offsets / "9").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":2}\n{"logOffset":0}')
    (offsets / "10").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":3}')
    assert not accepts_requests(tmp_path, 1)
    (offsets / "11").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n-')
    assert accepts_requests(tmp_path, 1)
    (tmp_path / "requests").mkdir()
    assert accepts_requests(tmp_path, 1)


def test_a_checkpoint_of_other_sources_is_refused(tmp_path):
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n{"logOffset":0}')
    (tmp_path / "requests").mkdir()
    with pytest.raises(StateError, match="is that of a query with 1 sources, and this one has 2"):
        accepts_requests(tmp_path, 2)
    (offsets / "1").write_text('v1\n{"batchTimestampMs":1}\n{}\n{}\n{}')
    with pytest.raises(StateError, match="is that of a query with 2 sources, and this one has 1"):
        accepts_requests(tmp_path, 1)


@pytest.mark.slow
def test_a_run_with_a_page_shows_it_and_ends_with_a_signal(tmp_path: Path) -> None:
    """Takes about 15 seconds, as it starts Spark."""
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3), (3, 1))
    (tmp_path / "rings.sql").write_text(QUERY)
    arguments = command(
        tmp_path / "rings.sql", "--source", f"e={tmp_path}/in", "--ui", "--ui-port", 0
    )
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = None
        for line in process.stderr:
            if "Live page: " in line:
                address = line.partition("Live page: ")[2].strip()
            if re.match(TIME + "micro-batch 0:", line):
                break
        write_rows(tmp_path / "in", 1, (1, 2), weight=-1)
        end = time.monotonic() + 60
        result: dict = {"timeline": []}
        while len(result["timeline"]) < 2 and time.monotonic() < end:
            time.sleep(0.2)
            with urllib.request.urlopen(f"{address}snapshot", timeout=10) as answer:
                result = json.load(answer)
        assert [point["values"]["rings"] for point in result["timeline"]] == [[1], [0]]
        process.send_signal(signal.SIGTERM)
        remaining_log = process.stderr.read()
        assert process.wait(30) == 0, remaining_log
        assert "2 micro-batches with 4 rows" in remaining_log
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


@pytest.mark.slow
def test_sigterm_ends_a_run_in_the_middle_of_a_micro_batch_and_loses_nothing(tmp_path) -> None:
    """Takes about 40 seconds, as it starts Spark three times."""
    (tmp_path / "slow.py").write_text(SLOW_FUNCTION)
    source = ("--source", f"e={tmp_path}/in,maxFilesPerTrigger=1")
    arguments = (
        *("CREATE VIEW v AS SELECT src, slow(dst) AS d FROM e", *source, "--state"),
        *(tmp_path / "state", "--functions", f"{tmp_path}/slow.py:FUNCTIONS"),
        *("--sink", f"v=sqlite:{tmp_path}/v.db,keys=src", "--log-format", "json"),
    )
    write_rows(tmp_path / "in", 0, (1, 2))
    run(*arguments, "--once")
    write_rows(tmp_path / "in", 1, (3, 4))
    (tmp_path / "is_slow").touch()
    process = subprocess.Popen(
        command(*arguments, "--stop-timeout", 1, "--metrics-port", 0),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        address = ""
        while not (tmp_path / "has_begun").exists():
            line = process.stderr.readline() if not address else ""
            if "Metrics: " in line:
                address = json.loads(line)["message"].partition("Metrics: ")[2]
            time.sleep(0.01)
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert 'dbsp_wcoj_running_seconds{phase="step"}' in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert process.wait(60) == 130
        assert "micro-batch 1: computing the views" in lines[-1]["message"]
        assert lines[-1]["message"].startswith("Stopped without waiting longer")
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
    (tmp_path / "is_slow").unlink()
    run(*arguments, "--once")
    database = sqlite3.connect(tmp_path / "v.db")
    assert sorted(database.execute("SELECT src, d FROM v")) == [(1, 2), (3, 4)]
    database.close()


@pytest.mark.slow
def test_a_run_in_json_logs_one_object_per_line_also_for_the_error(tmp_path: Path) -> None:
    """Takes about 15 seconds, as it starts Spark."""
    write_rows(tmp_path / "in", 0, (1, 2), (2, 3))
    write_rows(tmp_path / "in", 1, (7, 7), weight=-1)
    arguments = command(
        *("SELECT src FROM e", "--source", f"e={tmp_path}/in,strict=true,maxFilesPerTrigger=1"),
        *("--once", "--verbose", "--log-format", "json", "--state", tmp_path / "state"),
    )
    completed = subprocess.run(
        arguments, capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert completed.returncode == 1, completed.stderr
    lines = [json.loads(line) for line in completed.stderr.splitlines()]
    assert all({"time", "level", "event", "message"} <= set(line) for line in lines)
    by_event = {line["event"]: line for line in lines}
    assert {"note", "phase", "metrics", "micro_batch", "offsets", "error"} <= set(by_event)
    phases = {line["phase"] for line in lines if line["event"] == "phase"}
    assert {"load", "read", "decode", "step", "write", "merge", "publish"} <= phases
    assert by_event["micro_batch"]["rows_in"] == {"e": 2}
    assert by_event["offsets"]["batch_id"] == 0 and by_event["offsets"]["sources"]
    assert (lines[-1]["event"], lines[-1]["status"]) == ("error", 1)
    assert lines[-1]["message"].startswith("micro-batch 1: row")


@pytest.mark.slow
def test_a_run_that_fails_is_one_line_and_status_1(tmp_path: Path) -> None:
    """Takes about 12 seconds, as it starts Spark."""
    write_rows(tmp_path / "in", 0, (1, 2), weight=-1)
    arguments = command(
        *("SELECT src FROM e", "--source", f"e={tmp_path}/in,strict=true"),
        *("--once", "--bad-rows", "fail"),
    )
    completed = subprocess.run(
        arguments, capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert completed.returncode == 1
    lines = completed.stderr.splitlines()
    assert lines[-1].startswith("error: micro-batch 0: row")
    assert not any("Traceback" in line for line in lines)
