"""The sub-command ``run``: keep views over live sources up to date until it is stopped.

1. Combine the options of the command line and of the job file.
2. Check everything that can be checked without Spark, and report all problems at once.
3. Start Spark, compile the query, start the streaming query and wait for its end.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.text import Text

from circuits import Circuit
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.cli.arguments.checks import (
    Checks,
    check_memory,
    check_state,
    check_targets,
    check_unread_sources,
    check_usable,
    check_views,
    materialized_views,
)
from streaming.cli.arguments.frames import merge_streams, read_stream, relation_schema
from streaming.cli.arguments.limits import (
    parse_dead_letter_retention,
    parse_limits,
    parse_memory_limit,
)
from streaming.cli.arguments.options import LOCAL_HOST
from streaming.cli.arguments.run_options import RunOptions
from streaming.cli.arguments.sink import assign_sinks, build_outputs
from streaming.cli.arguments.state_location import CHECKPOINT, StateLocation
from streaming.cli.arguments.views import compile_query, dialect_of, view_name
from streaming.cli.batch_request import (
    SliceRequests,
    accepts_requests,
    add_request_source,
    has_other_views,
    request_batch,
)
from streaming.cli.command import INTERRUPTED
from streaming.cli.stop_signals import defer_signals
from streaming.cli.streaming_query import parse_interval, run_query
from streaming.cli.terminal.dashboard import Dashboard
from streaming.cli.terminal.display import console, prepare_kernels, print_json
from streaming.cli.terminal.logs import Logs, check_format
from streaming.cli.terminal.page import announce, check_no_page, page_title
from streaming.cli.terminal.spark_error import is_lost_connection
from streaming.errors import EventsError, StateError
from streaming.java import find_java
from streaming.monitoring.monitor import SinkMonitor
from streaming.monitoring.server import MetricsServer, check_metrics_address
from streaming.redaction import redact
from streaming.session import start_session
from streaming.sink.output import Output
from streaming.sink.view_sink import ViewSink
from streaming.sources.dead_letters import check_policy
from streaming.state.local_files import check_mode, make_folder
from streaming.state.program_change import ChangeOptions
from streaming.state.records.dead_letter_files import DEFAULT_RETENTION, DeadLetterRetention
from streaming.targets.sql import SqlTarget
from streaming.ui.access import Token, find_token
from streaming.ui.page import Page, check_servable, serve

__all__ = ["run"]

log = logging.getLogger(__name__)

#: No checksum file beside each file of the checkpoint, because the state has its own checksums.
SPARK_SETTINGS: Final = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}


def run(
    *,
    explicit: Collection[str],
    query: str,
    source: list[str] | None,
    sink: list[str] | None,
    conf: list[str] | None,
    log_format: str,
    **other_options: Any,
) -> None:
    """Keep views of a query up to date while its sources change.

    Args:
        explicit: The options that are given on the command line; others have their defaults.
        query: The query, or a job file.
        source: The values of ``--source``.
        sink: The values of ``--sink``.
        conf: The values of ``--conf``.
        log_format: The format of the log.
        other_options: The other options, as in `RunOptions`.
    """
    check_format(log_format)
    checks = Checks()
    options = RunOptions.of(
        query,
        source or [],
        sink or [],
        explicit=explicit,
        checks=checks,
        conf=conf or [],
        log_format=log_format,
        **other_options,
    )
    parsed_options = _check(options, checks)
    checks.end()
    if options.check:
        _show_checks(checks, json=options.json)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: clean up, then end
    logs = Logs(options.log_format, verbose=options.verbose)
    with ExitStack() as stack:
        stack.enter_context(logs.show_records())
        for warning in checks.warnings:
            log.warning("%s", warning)
        _run(options, parsed_options, logs, stack)


@dataclass(frozen=True)
class _ParsedOptions:
    """Options of a run, converted to the types that they are used with.

    Attributes:
        state_mode: Permission bits of the state directory.
        limits: Limits of a step.
        interval: Spark's notation of the time between two micro-batches; None for no pause.
        token: The token of the live page; None if it needs none.
        change: What a change of the views may do.
        dead_letters: Which dead letters to keep.
        memory_limit: The number of bytes of the state that may be in memory; None for no limit.
    """

    state_mode: int = 0
    limits: StepLimits = DEFAULT_LIMITS
    interval: str | None = None
    token: Token | None = None
    change: ChangeOptions = field(default_factory=ChangeOptions)
    dead_letters: DeadLetterRetention = DEFAULT_RETENTION
    memory_limit: int | None = None

    @property
    def secret(self) -> str | None:
        """The value of the token."""
        return None if self.token is None else self.token.value


def _check(options: RunOptions, checks: Checks) -> _ParsedOptions:
    """Run all checks that are possible without Spark, and convert the options."""
    is_complete = not checks.problems  # all sources and sinks have been parsed
    _check_options(checks, options)
    parsed_options = _ParsedOptions()
    with checks.check():
        mode = _parse_mode(options.state_mode, options.label("state_mode"))
        parsed_options = replace(parsed_options, state_mode=mode)
    with checks.check():
        limits = parse_limits(
            options.max_step_rows,
            options.max_step_bytes,
            options.max_seconds,
            label=options.label("max_step_bytes"),
        )
        parsed_options = replace(parsed_options, limits=limits)
    with checks.check():
        retention = parse_dead_letter_retention(
            options.dead_letter_days,
            options.dead_letter_size,
            label=options.label("dead_letter_size"),
        )
        parsed_options = replace(parsed_options, dead_letters=retention)
    with checks.check():
        memory_limit = _parse_memory_limit(options)
        parsed_options = replace(parsed_options, memory_limit=memory_limit)
    if options.every is not None:
        with checks.check():
            interval = parse_interval(options.every, options.label("every"))
            parsed_options = replace(parsed_options, interval=interval)
    circuit = check_views(
        checks,
        options.query,
        options.sources,
        options.sinks,
        formula=options.formula,
        is_complete=is_complete,
        dialect=options.dialect,
        functions=options.functions,
    )
    with checks.check():
        parsed_options = replace(parsed_options, change=options.change())
    state_id, newest_batch = "", -1
    if options.state is not None:
        label = options.label("state")
        state_id, newest_batch = check_state(
            checks,
            options.state,
            circuit,
            options.cells,
            label,
            change=parsed_options.change,
            checkpoint=options.checkpoint,
            checkpoint_label=options.label("checkpoint"),
        )
    if circuit is not None:
        check_unread_sources(checks, circuit, options.sources, is_continued=newest_batch >= 0)
    if circuit is not None and not checks.problems:
        sinks = assign_sinks(options.sinks, circuit)
        check_targets(checks, sinks, circuit, state_id=state_id, newest=newest_batch)
    if options.ui:
        with checks.check("live page", f"{options.ui_host}, port {options.ui_port or 'any'}"):
            file = options.ui_token_file
            if not options.check or file is None or file.exists():  # otherwise it is created
                parsed_options = replace(parsed_options, token=find_token(file))
                check_servable(
                    host=options.ui_host, port=options.ui_port, token=parsed_options.secret
                )
    if options.metrics_port is not None:
        place = f"{options.metrics_host}, port {options.metrics_port or 'any'}"
        with checks.check("metrics", place):
            check_metrics_address(options.metrics_host, options.metrics_port)
    if not checks.problems:  # last, because it takes about a second
        with checks.check():
            checks.passed.append(("Java", str(find_java())))
    return parsed_options


def _parse_memory_limit(options: RunOptions) -> int | None:
    """Return the number of bytes of the state that may be in memory; None for no limit.

    Raises:
        EventsError: It is not a size, or the state is not in files that can be mapped.
    """
    label = options.label("memory_limit")
    limit = parse_memory_limit(options.memory_limit, label=label)
    if limit is not None and (options.state is None or options.cells is not None):
        raise EventsError(
            f"{label} {options.memory_limit}: the rest of the state is read from its files, so "
            f"give {options.label('state')} as well, and no {options.label('cells')}"
        )
    return limit


def _run(options: RunOptions, parsed_options: _ParsedOptions, logs: Logs, stack: ExitStack) -> None:
    """Start Spark, and run the views until the sources or a signal end the run."""
    remarks, state = logs.remarks, None
    work_folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dbsp-wcoj-")))
    checkpoint = work_folder / CHECKPOINT
    if options.state is not None:
        state = StateLocation.parse(options.state, options.label("state"))
        checkpoint = state.checkpoint(options.checkpoint, options.label("checkpoint"))
        if state.folder is not None:
            _make_folder(state.folder, parsed_options.state_mode, options.label("state"))
        if options.checkpoint is not None:
            mode = parsed_options.state_mode
            _make_folder(options.checkpoint, mode, options.label("checkpoint"))
    # Before Spark starts, and until it has ended, no signal interrupts a call to Java.
    error_output = stack.enter_context(_error_output())
    signals = stack.enter_context(
        defer_signals(
            lambda: os.write(error_output, logs.note("Stopping when Spark has answered ..."))
        )
    )
    session = _start_spark(options, logs, stack, log_file=work_folder / "spark.log")
    signals.check()
    sources = options.sources
    frames = {name: read_stream(session, source) for name, source in sources.items()}
    schemas = {name: relation_schema(source, frames[name]) for name, source in sources.items()}
    for name, source in sources.items():
        source.check_sequence(schemas[name])
    circuit = _compile(options, parsed_options, schemas, stack)
    if state is not None:
        check_usable(state, circuit, options.label("state"), change=parsed_options.change)
    dialect = dialect_of(circuit)
    if dialect is not None:
        log.info("SQL dialect: %s", dialect)
    stream, stream_options = merge_streams(options.sources, frames, schemas)
    has_requests = state is not None and accepts_requests(checkpoint, len(frames))
    has_change = state is not None and has_other_views(state.files, circuit)
    if has_requests:
        stream = add_request_source(stream, checkpoint)
        if has_change:
            request_batch(checkpoint)
    elif has_change:
        log.warning(
            "the checkpoint is that of an earlier release: the change of the views waits for rows"
        )
    sinks = assign_sinks(options.sinks, circuit)
    outputs = build_outputs(sinks, json=options.json)
    view_sink = ViewSink(
        circuit,
        outputs,
        state_dir=options.state,
        state_mode=parsed_options.state_mode,
        bad_rows=options.bad_rows,  # type: ignore[arg-type]
        dead_letters=parsed_options.dead_letters,
        memory_limit=parsed_options.memory_limit,
        mode="embedded" if options.cells is None else "distributed",
        cells=options.cells,
        change=parsed_options.change,
        **stream_options,
    )
    stack.callback(view_sink.close)
    name = view_name(options.query)
    monitor = SinkMonitor(view_sink, max_commit_age=options.max_commit_age)
    if options.metrics_port is not None:
        server = MetricsServer(monitor, host=options.metrics_host, port=options.metrics_port)
        stack.callback(server.stop)
        remarks.print(Text.assemble("Metrics: ", (server.address, "name")), soft_wrap=True)
    page = None
    if options.ui:
        page = serve(
            view_sink,
            name=page_title(name, dialect),
            host=options.ui_host,
            port=options.ui_port,
            token=parsed_options.secret,
            monitor=monitor,
        )
        stack.callback(page.stop)
        announce(remarks, page, parsed_options.token)
    with signals.interrupt_at_once():
        prepare_kernels(remarks)
    has_console = any(sink.kind == "console" for sink in options.sinks)
    is_live = logs.is_plain and not (has_console and console().is_terminal)
    on_progress = None
    if options.verbose or options.ui or options.metrics_port is not None:
        on_progress = partial(_report_progress, monitor, verbose=options.verbose)
    dashboard = Dashboard(remarks, view_sink.circuit, is_live=is_live)
    view_sink.add_observer(dashboard)
    if options.slice_seconds is not None and has_requests:
        view_sink.add_observer(SliceRequests(view_sink, checkpoint))
    with _report_end(page, monitor), dashboard:
        signals.check()
        has_ended = run_query(
            stream,
            view_sink,
            checkpoint=checkpoint,
            name=name,
            every=parsed_options.interval,
            once=options.once,
            on_stop=lambda: _interrupt(outputs),
            on_progress=on_progress,
            stop_timeout=options.stop_timeout,
            on_late_stop=lambda: _end_at_once(logs, view_sink),
        )
    dashboard.log_summary()
    if state is not None and has_other_views(state.files, circuit):
        reason = "because no row has arrived: the next rows commit them"
        if options.slice_seconds is not None:
            reason = "because the run has ended before: the next one computes them from the start"
        log.warning(
            "the new views are not in %s yet, or not completely in their targets, %s",
            state.text,
            reason,
        )
    if options.json and not has_console:
        print_json(_summary(view_sink, dashboard))
    if page is not None and has_ended:
        page.end("all rows have been read")
        with signals.interrupt_at_once():
            page.wait_for_interrupt(remarks)


def _make_folder(folder: Path, mode: int, label: str) -> None:
    """Make the folder of an option, unless it exists."""
    try:
        make_folder(folder, mode)
    except OSError as error:
        raise StateError(
            f"{label} {folder}: it cannot be created: {error.strerror}: name another folder"
        ) from None


def _start_spark(
    options: RunOptions, logs: Logs, stack: ExitStack, *, log_file: Path
) -> SparkSession:
    """Start Spark, with its own log in a file; ``stack`` stops it."""
    logs.remarks.print("Starting Spark ...", style="note")
    stack.enter_context(logs.spark_log(log_file))
    handler = signal.getsignal(signal.SIGINT)
    session = start_session(
        "dbsp-wcoj",
        memory=options.memory,
        log=log_file,
        settings={**SPARK_SETTINGS, **options.spark_settings},
    )
    stack.callback(_stop_spark, session)
    signal.signal(signal.SIGINT, handler)  # instead of Spark's own handler, which calls Java
    session.sparkContext.setLogLevel("WARN" if options.verbose else "ERROR")
    return session


def _stop_spark(session: SparkSession) -> None:
    """Stop Spark; its JVM may have ended already, after a signal to the whole process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM")
        try:
            session.stop()
        except Exception as error:
            if not is_lost_connection(error):
                raise


def _compile(
    options: RunOptions,
    parsed_options: _ParsedOptions,
    schemas: Mapping[str, pa.Schema],
    stack: ExitStack,
) -> Circuit:
    """Compile the query; materialize the views whose whole contents a sink needs."""
    input_options = {name: source.input_options() for name, source in options.sources.items()}
    compile_views = partial(
        compile_query,
        options.query,
        schemas,
        dialect=options.dialect,
        functions=options.functions,
    )
    sinks = assign_sinks(options.sinks, compile_views())
    return compile_views(
        formula=options.formula,
        threads=options.threads,
        input_options={name: value for name, value in input_options.items() if value is not None},
        materialize=materialized_views(sinks),
        limits=parsed_options.limits,
    )


@contextmanager
def _error_output() -> Iterator[int]:
    """Duplicate standard error, because the process has a different one while Spark starts."""
    handle = os.dup(2)
    try:
        yield handle
    finally:
        os.close(handle)


def _interrupt(outputs: Iterable[Output]) -> None:
    """Interrupt the targets that wait for a database."""
    for output in outputs:
        if isinstance(output.target, SqlTarget):
            output.target.interrupt()


def _end_at_once(logs: Logs, view_sink: ViewSink) -> NoReturn:
    """End the process during a micro-batch; the next run repeats the micro-batch.

    A step runs to its end, and Spark waits for it. The state directory and the targets are
    consistent at any moment, as after a crash. Spark's JVM ends with this process.
    """
    progress = view_sink.progress
    activity = "Spark was stopping" if progress is None else str(progress)
    text = f"Stopped without waiting longer ({activity}); the next run repeats what is missing."
    os.write(2, logs.note(text))
    os._exit(INTERRUPTED)


def _report_progress(monitor: SinkMonitor, progress: Any, *, verbose: bool) -> None:
    """Report the progress of a micro-batch to the monitor, and with ``verbose`` to the log."""
    monitor.spark_progressed(progress)
    if verbose:
        _log_offsets(progress)


def _log_offsets(progress: Any) -> None:
    """Log the offsets of the sources before and after a micro-batch, and Spark's times."""
    sources = [
        {"source": source.description, "start": source.startOffset, "end": source.endOffset}
        for source in progress.sources
    ]
    fields = {
        "event": "offsets",
        "batch_id": progress.batchId,
        "sources": sources,
        "duration_ms": dict(progress.durationMs),
    }
    ends = "; ".join(
        f"{source['source']} from {source['start']} to {source['end']}" for source in sources
    )
    times = ", ".join(f"{part} {ms} ms" for part, ms in progress.durationMs.items())
    message = "micro-batch %d: offsets: %s; Spark: %s"
    log.debug(message, progress.batchId, ends, times, extra={"fields": fields})


def _check_options(checks: Checks, options: RunOptions) -> None:
    """Check options alone, and together with each other."""
    with checks.check():
        check_policy(options.bad_rows)
    with checks.check():
        check_memory(options.memory, options.label("memory"))
    if options.state is None:
        if options.bad_rows == "dead_letter":
            label = options.label("bad_rows")
            checks.problems.append(f"{label} dead_letter needs a folder for files: add --state DIR")
        if options.cells:
            checks.problems.append(
                f"{options.label('cells')} needs a folder for files: add --state DIR"
            )
        if options.checkpoint is not None:
            checks.problems.append(
                f"{options.label('checkpoint')} {options.checkpoint}: without --state, the state "
                "of the views ends with the run: add --state DIR, or give no checkpoint"
            )
    if options.slice_seconds is not None:
        label = options.label("slice_seconds")
        if not options.slice_seconds > 0:
            checks.problems.append(
                f"{label} {options.slice_seconds:g}: give a positive number of seconds"
            )
        if options.state is None:
            checks.problems.append(f"{label}: without --state, there are no earlier views")
        if options.once:
            checks.problems.append(
                f"{options.label('once')} ends after the existing rows, before the slices of new "
                f"views: remove {label}, so that they are computed at once"
            )
    if not options.ui:
        with checks.check():
            # A job file may keep the settings of a page that it disables.
            names = ("ui_host", "ui_port", "ui_token_file")
            check_no_page(**{n: getattr(options, n) for n in names if n not in options.labels})
    if options.metrics_port is None:
        if options.max_commit_age is not None and not options.ui:
            checks.problems.append(
                f"{options.label('max_commit_age')} needs {options.label('metrics_port')} or "
                f"{options.label('ui')}, which serve /healthz"
            )
        if options.metrics_host != LOCAL_HOST:
            checks.problems.append(
                f"{options.label('metrics_host')} needs {options.label('metrics_port')}"
            )
    if options.every is not None and options.once:
        checks.problems.append(
            f"{options.label('once')} reads the existing rows as fast as possible: remove "
            f"{options.label('every')}"
        )


def _show_checks(checks: Checks, *, json: bool) -> None:
    """Print the checks that passed, and the warnings."""
    if json:
        passed = [{"what": subject, "found": result} for subject, result in checks.passed]
        print_json({"ok": True, "checks": passed, "warnings": checks.warnings})
        return
    terminal = console()
    width = max(len(subject) for subject, _ in checks.passed)
    for subject, result in checks.passed:
        terminal.print(f"[name]{subject:<{width}}[/]", end="  ")
        terminal.print(redact(result), markup=False, soft_wrap=True)
    for warning in checks.warnings:
        terminal.print(f"[warning]warning[/]  {warning}", soft_wrap=True)
    terminal.print("[good]ok[/], nothing was started or changed")


def _parse_mode(text: str, label: str = "--state-mode") -> int:
    """Convert octal digits to permission bits.

    >>> oct(_parse_mode("0750"))
    '0o750'
    """
    if not re.fullmatch("[0-7]{3,5}", text):
        raise StateError(f"{label} {text!r}: write octal digits, as 700 or 750")
    return check_mode(int(text, 8))


@contextmanager
def _report_end(page: Page | None, monitor: SinkMonitor) -> Iterator[None]:
    """Show on the page, and in the metrics, how the run in the context has ended."""
    try:
        yield
    except Exception as error:
        monitor.end("the query has failed")
        if page is not None:
            page.end(redact(" ".join(str(error).split()))[:500], failed=True)
        raise
    monitor.end()
    if page is not None:
        page.end("stopped")


def _summary(sink: ViewSink, dashboard: Dashboard) -> dict[str, Any]:
    """Return the outcome of the run as JSON values."""
    last = sink.metrics[-1] if sink.metrics else None
    return {
        "micro_batches": dashboard.batches,
        "rows": dashboard.rows,
        "last_batch": None if last is None else last.batch_id,
        "bad_rows": 0 if last is None else last.dead_letters_total,
        "views": dashboard.numbers(),
    }
