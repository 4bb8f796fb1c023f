"""Log lines of a run: times, JSON, and the phases of a slow micro-batch."""

from __future__ import annotations

import json
import logging
import re
import threading
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
import typer

from circuits import compile_sql
from streaming import ViewSink
from streaming.cli.command import print_error, report_errors
from streaming.cli.terminal.logs import Logs, check_format, error_line
from streaming.errors import EventsError
from streaming.sink import metrics
from streaming.sink.metrics import Stopwatch
from streaming.sink.progress import PHASES
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, edges

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
log = logging.getLogger("streaming.cli.commands.run")


def test_lines_have_a_time_and_warnings_are_marked(capsys) -> None:
    logs = Logs()
    with logs.show_records():
        logs.remarks.print("[note]Starting Spark ...[/]")
        log.info("a line\nwith a break and [brackets]")
        logging.getLogger("streaming.sink.view_sink").info("not shown")
        logging.getLogger("streaming.sink.view_sink").warning("3 rows; password=hunter2")
    log.info("after the run")
    out, errors = capsys.readouterr()
    assert out == ""
    lines = errors.splitlines()
    assert [re.sub(TIME, "T", line) for line in lines] == [
        "T Starting Spark ...",
        "T a line with a break and [brackets]",
        "T warning: 3 rows; password=***",
    ]


def test_json_has_one_object_per_line_with_the_same_keys(capsys) -> None:
    logs = Logs("json")
    with logs.show_records(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.remarks.print("Live page: [name]http://x[/]", soft_wrap=True)
        log.info("m", extra={"fields": {"event": "micro_batch", "batch_id": 3}})
        log.warning("away", extra={"fields": {"event": "retry"}})
        logging.getLogger("circuits").warning("odd \N{SNOWMAN}")
        warnings.warn("old", stacklevel=1)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(re.fullmatch(TIME, line.pop("time")) for line in lines)
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "note"),
        ("info", "micro_batch"),
        ("warning", "retry"),
        ("warning", "warning"),
        ("warning", "warning"),
    ]
    assert lines[0]["message"] == "Live page: http://x"
    assert lines[1] == {"level": "info", "event": "micro_batch", "message": "m", "batch_id": 3}
    assert lines[3]["message"] == "odd \N{SNOWMAN}"


def test_an_error_is_json_as_well_and_has_the_exit_status(capsys) -> None:
    print_error("no\n place, token=abc", as_json=True, status=2)
    result = json.loads(capsys.readouterr().err)
    assert re.fullmatch(TIME, result.pop("time"))
    assert result == {
        "level": "error",
        "event": "error",
        "message": "no place, token=***",
        "status": 2,
    }
    assert json.loads(error_line("x", 1))["status"] == 1


def test_an_interrupt_is_json_as_well(monkeypatch, capsys) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    command = report_errors(interrupt)
    with pytest.raises(typer.Exit) as ended:
        command(log_format="json")
    result = json.loads(capsys.readouterr().err)
    assert (result["message"], result["status"], ended.value.exit_code) == ("interrupted", 130, 130)
    with pytest.raises(typer.Exit):
        command(log_format="text")
    assert capsys.readouterr().err == "interrupted\n"
    assert json.loads(Logs("json").note("a"))["message"] == "a"
    assert re.fullmatch(f"{TIME} a\n", Logs().note("a").decode())


@pytest.mark.parametrize(
    ("name", "message"), [("pyspark.sql", "pip install pyspark"), ("psycopg", "dbsp-wcoj[sinks]")]
)
def test_a_missing_package_is_one_line_that_names_its_installation(name, message, capsys) -> None:
    def missing(**_: object) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with pytest.raises(typer.Exit) as ended:
        report_errors(missing)()
    assert ended.value.exit_code == 2
    assert message in capsys.readouterr().err


def test_only_verbose_logs_have_phases(capsys) -> None:
    for verbose in (False, True):
        with Logs("json", verbose=verbose).show_records():
            sink = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
            sink(Frame(edges((1, 2))), 0)
        events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        phases = {event["phase"] for event in events if event["event"] == "phase"}
        assert phases == ({*PHASES} - {"start", "backfill"} if verbose else set())
        assert ("metrics" in {event["event"] for event in events}) == verbose


def test_the_log_of_spark_is_logged_line_by_line(tmp_path: Path, capsys) -> None:
    logs = Logs("json", verbose=True)
    with logs.show_records(), logs.spark_log(tmp_path / "spark.log"):
        (tmp_path / "spark.log").write_text("WARN a\nWARN b\n")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["message"]) for line in lines] == [
        ("spark", "WARN a"),
        ("spark", "WARN b"),
    ]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(EventsError, match="'xml' must be one of text, json"):
        check_format("xml")


class SlowTarget:
    """A target whose ``write`` waits for an event."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def write(self, delta) -> None:
        assert self.may_end.wait(60)


class ProgressRecorder(logging.Handler):
    """Records progress messages, and releases a target after ``expected`` of them."""

    def __init__(self, target: SlowTarget, expected: int) -> None:
        super().__init__()
        self.lines: list[dict] = []
        self._target, self._expected = target, expected

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        if fields.get("event") == "progress":
            self.lines.append(fields)
            if len(self.lines) >= self._expected:
                self._target.may_end.set()


def test_a_slow_micro_batch_logs_its_progress(monkeypatch, caplog) -> None:
    target = SlowTarget()
    recorder = ProgressRecorder(target, expected=3)
    logger = logging.getLogger("streaming.sink.metrics")
    caplog.set_level(logging.INFO, logger.name)
    monkeypatch.setattr(metrics.Stopwatch.__init__, "__defaults__", (0.01,))
    logger.addHandler(recorder)
    try:
        views = compile_sql("CREATE VIEW n AS SELECT src FROM e", {"e": EDGE})
        ViewSink(views, target)(Frame(edges((1, 2))), 0)
    finally:
        logger.removeHandler(recorder)
    last = recorder.lines[-1]
    assert (last["batch_id"], last["phase"]) == (0, "publish")
    assert last["subject"] == "SlowTarget of view n, 1 rows"
    assert 0 < last["phase_seconds"] <= last["seconds"]
    times = [line["seconds"] for line in recorder.lines]
    assert times[-1] >= 1.9 * times[-2]  # the pauses grow


def test_the_observer_knows_the_operator_under_evaluation() -> None:
    views = compile_sql(
        "CREATE VIEW p AS SELECT x.src FROM e x JOIN e y ON x.dst = y.src;"
        "CREATE VIEW n AS SELECT src, count(*) AS n FROM e GROUP BY src",
        {"e": EDGE},
    )
    watch, subjects = Stopwatch(5), []
    with watch.phase("step", "2 rows"):
        assert watch.progress.subject == "2 rows"
        views.observe(
            lambda *text: (watch.operator(*text), subjects.append(watch.progress.subject))
        )
        views.step({"e": edges((1, 2), (2, 3))})
        views.observe(None)
        views.step({"e": edges((3, 4))})
    plan = views.explain()
    assert any(re.fullmatch(r"operator #\w+ join, of view p", subject) for subject in subjects)
    assert any(re.fullmatch(r"operator #\w+ aggregate, of view n", subject) for subject in subjects)
    assert subjects[0] == "operator e input, of view p, n"
    for subject in subjects[1:]:
        assert subject.split()[1] in plan
    assert len(subjects) == len({*subjects})
    assert watch.progress.batch_id == 5


def test_an_observer_does_not_change_the_result_of_a_step() -> None:
    text = "CREATE VIEW n AS SELECT src, count(*) AS n FROM e GROUP BY src"
    plain, observed = (compile_sql(text, {"e": EDGE}) for _ in range(2))
    observed.observe(lambda *_: None)
    for table in (edges((1, 2)), edges((1, 3), (2, 2)), edges((1, 2), weights=[-1])):
        assert plain.step({"e": table})["n"] == observed.step({"e": table})["n"]
        assert isinstance(table, pa.Table)
