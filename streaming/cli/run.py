"""The sub-command ``run``: views over live sources, until it is stopped."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from circuits import Circuit
from streaming.cli.dashboard import Dashboard
from streaming.cli.frames import frame_of, schema_of, stream_of
from streaming.cli.inspection import writer_of
from streaming.cli.limits import limits_of
from streaming.cli.query import interval_of, run_query
from streaming.cli.sink import Sink, routes_of_sinks, sinks_of
from streaming.cli.source import Source, sources_of
from streaming.cli.terminal import console, print_json, ready_kernels
from streaming.cli.views import circuit_of, name_of, without_weight
from streaming.errors import EventsError, StateError, StateLockedError
from streaming.letters import check_policy
from streaming.session import start_session
from streaming.state.files import files_of
from streaming.state.identity import identity_of
from streaming.ui.page import Page, check_servable, serve
from streaming.view_sink import ViewSink

__all__ = ["check_free", "run"]

#: Without checksum files beside each file of the checkpoint; the state has checksums of its own.
SETTINGS: Final = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}

#: A location of another file system; as a path, its slashes are one.
REMOTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def run(
    *,
    query: str,
    source: list[str],
    sink: list[str] | None,
    state: Path | None,
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
    ui_token: str | None,
    json: bool,
) -> None:
    """Keep views of a query up to date while its sources change."""
    sources = sources_of(source)
    _check_words(state, every, once, bad_rows, cells)
    interval = None if every is None else interval_of(every)
    limits = limits_of(max_step_rows, max_step_bytes, max_seconds)
    _check_before(query, sources, sink or [], formula)
    if ui:
        check_servable(host=ui_host, port=ui_port, token=ui_token)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    remarks = console(stderr=True)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dbsp-wcoj-")))
        if state is not None:
            state.mkdir(parents=True, exist_ok=True)
        executor = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        remarks.print("Starting Spark ...", style="says")
        session = start_session(
            "dbsp-wcoj", memory=memory, log=work / "spark.log", settings=SETTINGS
        )
        stack.callback(session.stop)
        session.sparkContext.setLogLevel("ERROR")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's calls Java from within
        frames = {name: frame_of(session, one) for name, one in sources.items()}
        schemas = {name: schema_of(one, frames[name]) for name, one in sources.items()}
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
        targets, outputs = routes_of_sinks(sinks_of(sink or [], circuit), json=json)
        view_sink = ViewSink(
            circuit,
            targets,
            outputs=outputs,
            state_dir=state,
            bad_rows=bad_rows,  # type: ignore[arg-type]
            mode="embedded" if cells is None else "distributed",
            cells=cells,
            **options,
        )
        stack.callback(view_sink.close)
        page = None
        if ui:
            name = name_of(query)
            page = serve(view_sink, name=name, host=ui_host, port=ui_port, token=ui_token)
            stack.callback(page.stop)
            remarks.print(f"Live page: [name]{page.address}[/]", soft_wrap=True)
        ready_kernels(remarks)
        prints = any(one.startswith("console") or "=console" in one for one in sink or [])
        is_live = remarks.is_terminal and not (prints and console().is_terminal)
        dashboard = Dashboard(remarks, circuit, is_live=is_live)
        view_sink.watch(dashboard.take)
        with _ending(page), dashboard:
            ended = run_query(
                stream,
                view_sink,
                checkpoint=(state or work) / "checkpoint",
                name=name_of(query),
                every=interval,
                once=once,
            )
        remarks.print(f"[says]{dashboard.summary()}.[/]", soft_wrap=True)
        if json and not prints:
            print_json(_told(view_sink, dashboard))
        if page is not None and ended:
            page.end("all has been read")
            page.stay(remarks)


def _check_before(
    query: str, sources: Mapping[str, Source], sinks: Sequence[str], formula: str
) -> None:
    """Say what is wrong with files, query and sinks, as far as they tell, before Spark starts."""
    for source in sources.values():
        _ = source.format, source.feed  # either may be an error
    schemas = {name: source.schema() for name, source in sources.items()}
    rules = {name: rules for name, one in sources.items() if (rules := one.rules()) is not None}
    for sink in sinks:
        Sink.parse(sink)
    if any(schema is None or "select" in sources[name].own for name, schema in schemas.items()):
        return
    columns = {n: without_weight(s) for n, s in schemas.items() if s}
    sinks_of(sinks, circuit_of(query, columns, rules=rules, formula=formula))


def _check_words(
    state: Path | None, every: str | None, once: bool, bad_rows: str, cells: int | None
) -> None:
    """Say what does not go together."""
    check_policy(bad_rows)
    for word, value in (("--bad-rows dead_letter", bad_rows == "dead_letter"), ("--cells", cells)):
        if value and state is None:
            raise StateError(f"{word} needs a place for files: add --state DIR")
    if every is not None and once:
        raise EventsError("--once reads what is there as fast as it can: leave --every out")
    if state is None:
        return
    if REMOTE.match(str(state)):
        raise StateError(
            f"--state {state}: the command keeps state on a local disk; for other file systems "
            "write a job with ViewSink(state_dir=...)"
        )
    if state.exists() and not state.is_dir():
        raise StateError(f"--state {state}: is a file; name a folder")


def check_free(state: Path, circuit: Circuit) -> None:
    """Refuse a state directory of other views, or of another process.

    The sink does so too, but only when there are rows, and Spark's checkpoint lies there as well.

    Raises:
        StateMismatchError, StateDamagedError: It belongs to other views, or cannot tell.
        StateLockedError: It is in use.
    """
    identity_of(files_of(str(state)), circuit)
    writer = writer_of(state)
    if writer is not None:
        raise StateLockedError(
            f"--state {state}: process {writer or 'unknown'} writes to it: stop that one, or name "
            "another folder"
        )


@contextmanager
def _ending(page: Page | None) -> Iterator[None]:
    """Tell a page how the run within has ended."""
    try:
        yield
    except Exception as error:
        if page is not None:
            page.end(" ".join(str(error).split())[:500], failed=True)
        raise
    if page is not None:
        page.end("stopped")


def _to_materialize(query: str, schemas: Any, sinks: list[str]) -> list[str]:
    """The views that sinks need whole."""
    plain = circuit_of(query, schemas)
    return [view for view, one in sinks_of(sinks, plain).items() if one.output.needs_view]


def _told(sink: ViewSink, dashboard: Dashboard) -> dict[str, Any]:
    last = sink.metrics[-1] if sink.metrics else None
    return {
        "micro_batches": dashboard.batches,
        "rows": dashboard.rows,
        "last_batch": None if last is None else last.batch_id,
        "bad_rows": 0 if last is None else last.letters_total,
        "views": dashboard.numbers(),
    }
