"""The command ``dbsp-wcoj-demo``: live triangle counts over a stream of changes.

Exit status 0: all comparisons are equal. 1: some differ. 2: the input cannot be used, or the stream
failed. 130: interrupted.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from streaming.cli.arguments.options import OldToken, TokenFile
from streaming.cli.command import report_errors
from streaming.cli.terminal.display import print_json
from streaming.cli.terminal.page import announce, check_no_page
from streaming.cli.terminal.usage import PlainCommand
from streaming.demo.checks import Checks, choose_recounts
from streaming.demo.display import Display
from streaming.demo.events import (
    DEFAULT_WINDOW,
    ChangeStream,
    college_messages,
    parse_window,
    read_events,
    replay_messages,
)
from streaming.demo.oracle import read_oracle
from streaming.demo.plot import plot
from streaming.demo.run import History, run
from streaming.demo.triangles import triangle_circuit
from streaming.errors import EventsError
from streaming.java import use_java
from streaming.session import start_session
from streaming.ui.access import find_token
from streaming.ui.page import PORT, Page, check_servable

__all__ = ["app"]

#: The number of recounts, without the one at the end.
MAX_RECOUNTS: Final = 20
#: Published counts of CollegeMsg without a window.
PUBLISHED: Final = {"undirected": 14_319, "triangles": 39_982, "cycles": 10_932}
DIFFERENT, INTERRUPTED = 1, 130
#: The number of differences that are listed.
MAX_DIFFERENCES: Final = 10

#: For a run of a minute on a local disk, the JVM's second compiler and a checksum file beside each
#: file cost more time than they save.
SPARK_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(cls=PlainCommand, epilog="Example: dbsp-wcoj demo --window 36h --ui")
@report_errors
def demo(
    window: Annotated[
        str | None,
        typer.Option(
            help="How long a message is live: 7d, 36h, none. For messages only; "
            f"{DEFAULT_WINDOW} by default.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file of changes (src, dst, ts, op 1 or -1, and optionally tx) or of "
            "messages (src, dst, ts); CollegeMsg by default.",
            show_default=False,
        ),
    ] = None,
    oracle: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file with the expected live counts of --events.", show_default=False
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file with the name of each node (id, name).", show_default=False
        ),
    ] = None,
    picture: Annotated[Path, typer.Option("--plot", help="Where to write the plot, a PNG.")] = Path(
        "triangles.png"
    ),
    batches: Annotated[int, typer.Option(min=1, help="Approximate number of micro-batches.")] = 240,
    formula: Annotated[
        str, typer.Option(help="Delta formula of the joins, or auto.")
    ] = "collapsed",
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="New directory for the replayed files, the checkpoint and Spark's log; "
            "a temporary one by default.",
            show_default=False,
        ),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve a live page on this machine.")] = False,
    ui_port: Annotated[
        int, typer.Option("--ui-port", min=0, max=65535, help="Port of the live page; 0 for any.")
    ] = PORT,
    ui_token_file: TokenFile = None,
    ui_token: OldToken = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON, and all else to stderr.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Replay a stream through Spark and maintain its triangles and 3-cycles, live.

    The default is 59,835 messages among 1,899 people (CollegeMsg); a message is deleted after seven
    days. All counts are compared with recounts from scratch; the exit status is 0 only if all are
    equal.
    """
    console = Console(stderr=json)
    begin = time.perf_counter()
    if not picture.resolve().parent.is_dir():
        raise EventsError(f"--plot: no directory {str(picture.resolve().parent)!r}: create it")
    if not ui:
        check_no_page(ui_port=ui_port, ui_token_file=ui_token_file)
    token = find_token(ui_token_file) if ui else None
    secret = None if token is None else token.value
    if ui:
        check_servable(port=ui_port, token=secret)
    directory = _new_directory(work_dir)
    try:
        circuit = triangle_circuit(formula, is_drawn=ui)
        stream, title, published = _stream(events, window, oracle)
        node_names = _read_names(names)
        cuts = stream.cuts(batches)
        expected = read_oracle(oracle, stream) if oracle else None
        checks = Checks(stream, choose_recounts(cuts, MAX_RECOUNTS), expected, published)
        history = History(stream, cuts, checks)
        console.print(
            f"{title}: {len(stream):,} changes, {int((stream.weight < 0).sum()):,} of them "
            f"retractions, in {len(cuts)} micro-batches.",
            highlight=False,
            soft_wrap=True,
        )
        page = Page(circuit, name="triangles", port=ui_port, token=secret) if ui else None
        if page is not None:
            announce(console, page, token)
        console.print(f"Starting Spark on {use_java()} ...", highlight=False, soft_wrap=True)
        session = start_session(
            "dbsp-wcoj-demo", log=directory / "spark.log", settings=SPARK_SETTINGS
        )
        session.sparkContext.setLogLevel("ERROR")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler calls Java
        try:
            started = time.perf_counter()
            with Display(console, history, node_names) as display:
                run(
                    session,
                    history,
                    circuit=circuit,
                    directory=directory,
                    observe=display.update,
                    observers=[] if page is None else [page],
                )
            stream_seconds = time.perf_counter() - started
        finally:
            session.stop()
        console.print(display.summary(), highlight=False, soft_wrap=True)
        plot(history, picture, title)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; nothing is left behind.\n")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if work_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    median_s = statistics.median(history.seconds)
    console.print(
        f"{len(stream):,} changes in {stream_seconds:.1f} s, {1000 * median_s:.0f} ms for the "
        f"median micro-batch; {time.perf_counter() - begin:.1f} s in all. Plot: {picture}",
        highlight=False,
        soft_wrap=True,
    )
    status = _report_checks(console, checks)
    if json:
        print_json(
            {
                "stream": title,
                "changes": len(stream),
                "micro_batches": len(cuts),
                "seconds": round(stream_seconds, 3),
                "median_ms": round(1000 * median_s, 3),
                "counts": asdict(history.counts[-1]),
                "comparisons": checks.compared,
                "differences": [str(difference) for difference in checks.differences],
                "plot": str(picture),
            }
        )
    if page is not None:
        page.end("all has been replayed")
        page.wait_for_interrupt(console)
    raise typer.Exit(status)


def _stream(
    events: Path | None, window: str | None, oracle: Path | None
) -> tuple[ChangeStream, str, Mapping[str, int]]:
    """Return the changes, their title, and the published totals at their end."""
    if events is not None:
        return read_events(events, window), events.name, {}
    if oracle is not None:
        raise EventsError("--oracle goes with --events: name the file of changes too")
    duration = window or DEFAULT_WINDOW
    length = parse_window(duration)
    stream = replay_messages(college_messages(), length)
    if length is None:
        return stream, "CollegeMsg, messages do not expire", PUBLISHED
    return stream, f"CollegeMsg, messages expire after {duration}", {}


def _read_names(path: Path | None) -> dict[int, str]:
    if path is None:
        return {}
    try:
        table = pq.read_table(path, columns=["id", "name"])
    except (pa.ArrowInvalid, OSError) as error:
        raise EventsError(
            f"--names: {str(path)!r} cannot be read as Parquet with columns id and name: {error}"
        ) from error
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def _new_directory(path: Path | None) -> Path:
    if path is None:
        return Path(tempfile.mkdtemp(prefix="dbsp-wcoj-demo-"))
    if path.exists():
        raise EventsError(
            f"--work-dir: {str(path)!r} exists; the views start empty, so an old checkpoint cannot "
            "be continued: name a new directory"
        )
    path.mkdir(parents=True)
    return path


def _report_checks(console: Console, checks: Checks) -> int:
    """Print the comparisons and their results; return the exit status."""
    count = checks.recount_count
    descriptions = {
        "recount": f"with recounts by sparse matrix products after {count} micro-batches",
        "oracle": "with the oracle after micro-batches",
        "published figure": "with published figures",
    }
    parts = [
        f"{checks.compared[key]:,} {text}"
        for key, text in descriptions.items()
        if key in checks.compared
    ]
    differences = checks.differences
    console.print(
        f"Checked: {checks.total:,} comparisons: {', '.join(parts)}.",
        highlight=False,
        soft_wrap=True,
    )
    if not differences and checks.total:
        console.print("All equal.", highlight=False, soft_wrap=True)
        return 0
    for difference in differences[:MAX_DIFFERENCES]:
        console.print(f"DIFFERENT: {difference}", highlight=False, soft_wrap=True)
    console.print(f"{len(differences):,} comparisons differ.", highlight=False, soft_wrap=True)
    return DIFFERENT
