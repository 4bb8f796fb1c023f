"""The sub-command ``run``: views over live sources, until it is stopped."""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from dbsp_wcoj.limits import DEFAULT_LIMITS
from streaming.cli.arguments.checks import (
    CHECKPOINT,
    Checks,
    check_free,
    check_memory,
    check_state,
    check_targets,
    check_views,
    views_kept,
)
from streaming.cli.arguments.frames import frame_of, schema_of, stream_of
from streaming.cli.arguments.limits import limits_of
from streaming.cli.arguments.sink import outputs_of_sinks, sinks_of
from streaming.cli.arguments.views import circuit_of, name_of
from streaming.cli.streaming_query import interval_of, run_query, signals_deferred
from streaming.cli.terminal.dashboard import Dashboard
from streaming.cli.terminal.display import console, print_json, ready_kernels
from streaming.cli.terminal.logs import Logs, check_format
from streaming.cli.terminal.page import announce
from streaming.errors import EventsError, StateError
from streaming.java import find_java
from streaming.redacted import redacted
from streaming.session import start_session
from streaming.sink.dead_letters import check_policy
from streaming.sink.output import Output
from streaming.sink.view_sink import ViewSink
from streaming.state.files import check_mode, make_folder
from streaming.targets.sql import SqlTarget
from streaming.ui.access import find_token
from streaming.ui.page import Page, check_servable, serve

__all__ = ["run"]

log = logging.getLogger(__name__)

#: Without checksum files beside each file of the checkpoint; the state has checksums of its own.
SETTINGS: Final = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}


def run(
    *,
    query: str,
    source: list[str],
    sink: list[str] | None,
    state: Path | None,
    state_mode: str,
    once: bool,
    every: str | None,
    bad_rows: str,
    cells: int | None,
    formula: str,
    threads: int,
    max_step_rows: int | None,
    max_step_bytes: str | None,
    max_seconds: float | None,
    memory: str,
    ui: bool,
    ui_port: int,
    ui_host: str,
    ui_token_file: Path | None,
    json: bool,
    check: bool,
    verbose: bool,
    log_format: str,
) -> None:
    """Keep views of a query up to date while its sources change."""
    check_format(log_format)
    checks = Checks()
    _check_words(checks, state, every, once, bad_rows, cells, memory)
    mode = 0
    with checks.check():
        mode = _mode_of(state_mode)
    limits = DEFAULT_LIMITS
    with checks.check():
        limits = limits_of(max_step_rows, max_step_bytes, max_seconds)
    interval = None
    with checks.check():
        interval = None if every is None else interval_of(every)
    sources, checked = check_views(checks, query, source, sink or [], formula=formula, cells=cells)
    state_id, newest = "", -1
    if state is not None:
        state_id, newest = check_state(checks, state, checked, cells)
    if checked is not None and not checks.problems:
        sinks = sinks_of(sink or [], checked)
        check_targets(checks, sinks, checked, state_id=state_id, newest=newest)
    token = secret = None
    if ui:
        with checks.check("live page", f"{ui_host}, port {ui_port or 'any'}"):
            if not check or ui_token_file is None or ui_token_file.exists():  # else it is made
                token = find_token(ui_token_file)
                secret = None if token is None else token.value
                check_servable(host=ui_host, port=ui_port, token=secret)
    if not checks.problems:  # it takes a while
        with checks.check():
            checks.passed.append(("Java", str(find_java())))
    checks.end()
    if check:
        _show_checks(checks, json=json)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    logs = Logs(log_format, verbose=verbose)
    remarks = logs.remarks
    with ExitStack() as stack:
        stack.enter_context(logs.shown())
        for warning in checks.warnings:
            log.warning("%s", warning)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dbsp-wcoj-")))
        if state is not None:
            try:
                make_folder(state, mode)
            except OSError as error:
                raise StateError(
                    f"--state {state}: it cannot be made: {error.strerror}: name another folder"
                ) from None
        executor = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        remarks.print("Starting Spark ...", style="says")
        spark_log = work / "spark.log"
        stack.enter_context(logs.spark_log(spark_log))
        with (
            _error_output() as errors,
            signals_deferred(
                lambda: os.write(errors, logs.note("Stopping when Spark has started ..."))
            ),
        ):
            session = start_session("dbsp-wcoj", memory=memory, log=spark_log, settings=SETTINGS)
            stack.callback(session.stop)
        session.sparkContext.setLogLevel("WARN" if verbose else "ERROR")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's calls Java from within
        frames = {name: frame_of(session, one) for name, one in sources.items()}
        schemas = {name: schema_of(one, frames[name]) for name, one in sources.items()}
        for name, one in sources.items():
            one.check_sequence(schemas[name])
        rules = {name: one.rules() for name, one in sources.items()}
        circuit = circuit_of(
            query,
            schemas,
            formula=formula,
            executor=executor,
            threads=threads,
            rules={name: rule for name, rule in rules.items() if rule is not None},
            materialize=_to_materialize(query, schemas, sink or []),
            limits=limits,
        )
        if state is not None:
            check_free(state, circuit)
        stream, options = stream_of(sources, frames, schemas)
        outputs = outputs_of_sinks(sinks_of(sink or [], circuit), json=json)
        view_sink = ViewSink(
            circuit,
            outputs,
            state_dir=state,
            state_mode=mode,
            bad_rows=bad_rows,  # type: ignore[arg-type]
            mode="embedded" if cells is None else "distributed",
            cells=cells,
            **options,
        )
        stack.callback(view_sink.close)
        page = None
        if ui:
            name = name_of(query)
            page = serve(view_sink, name=name, host=ui_host, port=ui_port, token=secret)
            stack.callback(page.stop)
            announce(remarks, page, token)
        ready_kernels(remarks)
        prints = any(one.startswith("console") or "=console" in one for one in sink or [])
        is_live = logs.is_plain and not (prints and console().is_terminal)
        dashboard = Dashboard(remarks, circuit, is_live=is_live)
        view_sink.watch(dashboard.take)
        with _ending(page), dashboard:
            ended = run_query(
                stream,
                view_sink,
                checkpoint=(state or work) / CHECKPOINT,
                name=name_of(query),
                every=interval,
                once=once,
                on_stop=lambda: _interrupt(outputs),
                on_progress=_tell_offsets if verbose else None,
            )
        dashboard.tell_summary()
        if json and not prints:
            print_json(_told(view_sink, dashboard))
        if page is not None and ended:
            page.end("all has been read")
            page.stay(remarks)


@contextmanager
def _error_output() -> Iterator[int]:
    """The error output as it is now; while Spark starts, that of the process is another one."""
    handle = os.dup(2)
    try:
        yield handle
    finally:
        os.close(handle)


def _interrupt(outputs: Iterable[Output]) -> None:
    """Have targets that wait for a database wait no longer."""
    for output in outputs:
        if isinstance(output.target, SqlTarget):
            output.target.interrupt()


def _tell_offsets(progress: Any) -> None:
    """Log where the sources were before and after a micro-batch, and Spark's times."""
    sources = [
        {"source": one.description, "start": one.startOffset, "end": one.endOffset}
        for one in progress.sources
    ]
    fields = {
        "event": "offsets",
        "batch_id": progress.batchId,
        "sources": sources,
        "duration_ms": dict(progress.durationMs),
    }
    ends = "; ".join(f"{one['source']} from {one['start']} to {one['end']}" for one in sources)
    log.debug(
        *("micro-batch %d: offsets: %s; Spark: %s", progress.batchId, ends),
        ", ".join(f"{part} {ms} ms" for part, ms in progress.durationMs.items()),
        extra={"fields": fields},
    )


def _check_words(
    checks: Checks,
    state: Path | None,
    every: str | None,
    once: bool,
    bad_rows: str,
    cells: int | None,
    memory: str,
) -> None:
    """Check options by themselves and with each other."""
    with checks.check():
        check_policy(bad_rows)
    with checks.check():
        check_memory(memory)
    for word, value in (("--bad-rows dead_letter", bad_rows == "dead_letter"), ("--cells", cells)):
        with checks.check():
            if value and state is None:
                raise StateError(f"{word} needs a place for files: add --state DIR")
    with checks.check():
        if every is not None and once:
            raise EventsError("--once reads what is there as fast as it can: leave --every out")


def _show_checks(checks: Checks, *, json: bool) -> None:
    """Say what was checked."""
    if json:
        passed = [{"what": what, "found": found} for what, found in checks.passed]
        print_json({"ok": True, "checks": passed, "warnings": checks.warnings})
        return
    terminal = console()
    width = max(len(what) for what, _ in checks.passed)
    for what, found in checks.passed:
        terminal.print(f"[name]{what:<{width}}[/]", end="  ")
        terminal.print(redacted(found), markup=False, soft_wrap=True)
    for warning in checks.warnings:
        terminal.print(f"[waits]warning[/]  {warning}", soft_wrap=True)
    terminal.print("[comes]ok[/], nothing was started or changed")


def _mode_of(text: str) -> int:
    """The permission bits that a text of octal digits names.

    >>> oct(_mode_of("0750"))
    '0o750'
    """
    if not re.fullmatch("[0-7]{3,5}", text):
        raise StateError(f"--state-mode {text!r}: write octal digits, as 700 or 750")
    return check_mode(int(text, 8))


@contextmanager
def _ending(page: Page | None) -> Iterator[None]:
    """Tell a page how the run within has ended."""
    try:
        yield
    except Exception as error:
        if page is not None:
            page.end(redacted(" ".join(str(error).split()))[:500], failed=True)
        raise
    if page is not None:
        page.end("stopped")


def _to_materialize(query: str, schemas: Any, sinks: list[str]) -> list[str]:
    """The views that sinks need whole."""
    return views_kept(sinks_of(sinks, circuit_of(query, schemas)))


def _told(sink: ViewSink, dashboard: Dashboard) -> dict[str, Any]:
    last = sink.metrics[-1] if sink.metrics else None
    return {
        "micro_batches": dashboard.batches,
        "rows": dashboard.rows,
        "last_batch": None if last is None else last.batch_id,
        "bad_rows": 0 if last is None else last.letters_total,
        "views": dashboard.numbers(),
    }
