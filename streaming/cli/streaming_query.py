"""Run one streaming query of Spark until it ends or is interrupted, and report why it ended.

Spark wraps an error of the sink into a page of plans; this module keeps the original error. A
signal must not interrupt a call to Java, because that breaks the connection, so another thread
waits for Spark.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from streaming.cli.terminal.spark_error import is_spark_error, spark_reason
from streaming.errors import EventsError, FailedError

__all__ = ["parse_interval", "run_query", "signals_deferred"]

#: Time between two reads of Spark's progress.
PROGRESS_INTERVAL_S: Final = 1
_INTERVAL: Final = re.compile(r"(\d+)\s*([a-z]+)")
_UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "milliseconds"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "seconds"),
    **dict.fromkeys(("min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
}


def parse_interval(text: str, label: str = "--every") -> str:
    """Convert a length of time to Spark's notation.

    Raises:
        EventsError: The text is not a length of time.

    >>> parse_interval("500ms"), parse_interval("5 Seconds")
    ('500 milliseconds', '5 seconds')
    """
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise EventsError(f"{label} {text!r}: write a number and a unit, as in '5 seconds'")
    return f"{found[1]} {_UNITS[found[2]]}"


def run_query(
    stream: DataFrame,
    function: Callable[[DataFrame, int], object],
    *,
    checkpoint: Path,
    name: str,
    every: str | None = None,
    once: bool = False,
    on_stop: Callable[[], object] = lambda: None,
    on_progress: Callable[[Any], object] | None = None,
) -> bool:
    """Run a query; return whether it ended by itself, and not by a signal.

    Args:
        stream: A streaming DataFrame.
        function: For ``foreachBatch``.
        checkpoint: The directory of Spark's checkpoint.
        name: The query's name.
        every: How often a micro-batch begins, ``5 seconds``; as soon as there are rows, if None.
        once: True to end when all that is there has been read.
        on_stop: Called when a signal asks to end, before the micro-batch under way is waited for.
        on_progress: Called with each progress that Spark reports, in a thread of its own.

    Raises:
        FailedError: The query failed; the message is that of the first cause.
    """
    failures: list[Exception] = []

    def call(df: DataFrame, batch_id: int) -> None:
        try:
            function(df, batch_id)
        except Exception as error:
            failures.append(error)
            raise

    stop_event = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop_event.set()

    trigger: dict[str, Any] = (
        {"availableNow": True} if once else {"processingTime": every or "0 seconds"}
    )
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        query = (
            stream.writeStream.foreachBatch(call)
            .option("checkpointLocation", str(checkpoint))
            .trigger(**trigger)
            .queryName(name)
            .start()
        )
        stopped: list[StreamingQueryException] = []

        def wait() -> None:
            try:
                if on_progress is None:
                    query.awaitTermination()
                    return
                last = -1
                while not query.awaitTermination(PROGRESS_INTERVAL_S):
                    last = _report_progress(query, last, on_progress)
                _report_progress(query, last, on_progress)
            except StreamingQueryException as error:
                stopped.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        while waiting.is_alive() and not stop_event.is_set():
            waiting.join(0.1)
        if stop_event.is_set():
            on_stop()
        if query.isActive:
            query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped and not stop_event.is_set():
        cause = failures[-1] if failures else stopped[0]
        raise FailedError(spark_reason(cause) if is_spark_error(cause) else str(cause)) from cause
    return not stop_event.is_set()


@contextmanager
def signals_deferred(say: Callable[[], object]) -> Iterator[None]:
    """Defer signals that arrive in the context to its end.

    Spark's launcher leaves a JVM behind when it is interrupted, so it must finish its start.

    Args:
        say: Called at the first signal; a second one interrupts at once.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM arrived in the context.
    """
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        say()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt


def _report_progress(query: Any, last: int, on_progress: Callable[[Any], object]) -> int:
    """Report the progress of micro-batches after ``last``; return the number of the last one."""
    for one in query.recentProgress:
        if one.batchId > last:
            last = one.batchId
            on_progress(one)
    return last
