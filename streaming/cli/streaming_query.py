"""Run one streaming query of Spark until it ends or is interrupted, and report why it ended.

Spark wraps an error of the sink (the function that processes each micro-batch) into a page of
plans; this module keeps the original error. A signal must not interrupt a call to Java, because
that breaks the connection, so another thread waits for Spark.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from streaming.cli.terminal.spark_error import (
    is_lost_connection,
    is_spark_error,
    spark_reason,
)
from streaming.errors import EventsError, FailedError

__all__ = ["parse_interval", "run_query"]

POLL_INTERVAL_S: Final = 0.1
#: Seconds between two reads of Spark's progress.
PROGRESS_INTERVAL_S: Final = 1
_INTERVAL: Final = re.compile(r"(\d+)\s*([a-z]+)")
_UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "milliseconds"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "seconds"),
    **dict.fromkeys(("min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
}


def parse_interval(text: str, label: str = "--every") -> str:
    """Convert a duration to Spark's notation.

    Raises:
        EventsError: The text is not a duration.

    >>> parse_interval("500ms"), parse_interval("5 Seconds")
    ('500 milliseconds', '5 seconds')
    """
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise EventsError(f"{label} {text!r}: write a number and a unit, as in '5 seconds'")
    return f"{match[1]} {_UNITS[match[2]]}"


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
    stop_timeout: float | None = None,
    on_late_stop: Callable[[], object] = lambda: None,
) -> bool:
    """Run a query; return True if it ended by itself, and False if a signal ended it.

    Args:
        stream: A streaming DataFrame.
        function: The function for ``foreachBatch``.
        checkpoint: The directory of Spark's checkpoint.
        name: The query's name.
        every: The time between two micro-batches, as in ``5 seconds``. If None, a micro-batch
            begins as soon as there are rows.
        once: True to end the query when it has read all existing rows.
        on_stop: Called after a signal to end, while the current micro-batch still runs.
        on_progress: Called with each progress report of Spark, in a separate thread.
        stop_timeout: Seconds that the current micro-batch may take after a signal; None for any.
        on_late_stop: Called if it takes longer, or at a second signal. It should end the process:
            Spark waits for the micro-batch.

    Raises:
        FailedError: The query failed; the message is that of the first cause.
        KeyboardInterrupt: After a signal, Spark's JVM has ended before the query. The next run
            repeats what is missing.
    """
    failures: list[Exception] = []

    def call(df: DataFrame, batch_id: int) -> None:
        try:
            function(df, batch_id)
        except Exception as error:
            failures.append(error)
            raise

    stop_event = threading.Event()
    hurry_event = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop_event.is_set():
            hurry_event.set()
        stop_event.set()

    trigger: dict[str, Any] = (
        {"availableNow": True} if once else {"processingTime": every or "0 seconds"}
    )
    previous_handlers = {
        number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        query = (
            stream.writeStream.foreachBatch(call)
            .option("checkpointLocation", str(checkpoint))
            .trigger(**trigger)
            .queryName(name)
            .start()
        )
        query_errors: list[StreamingQueryException] = []
        lost_connections: list[Exception] = []

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
                query_errors.append(error)
            except Exception as error:
                lost_connections.append(error)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        while waiter.is_alive() and not stop_event.is_set():
            waiter.join(POLL_INTERVAL_S)
        if stop_event.is_set():
            on_stop()
        if lost_connections:
            raise lost_connections[0]
        if query.isActive:
            end = None if stop_timeout is None else time.monotonic() + stop_timeout
            with ThreadPoolExecutor(1) as executor:
                stop = executor.submit(query.stop)
                while not stop.done():
                    wait_for([stop], timeout=POLL_INTERVAL_S)
                    if hurry_event.is_set() or (end is not None and time.monotonic() > end):
                        on_late_stop()
                        end = None
                        hurry_event.clear()
                stop.result()
    except Exception as error:
        if not is_lost_connection(error):
            raise
        if stop_event.is_set():
            raise KeyboardInterrupt from error
        raise FailedError(
            "Spark's JVM has ended, for example because the memory of the machine was exhausted: "
            "start again, and the run continues after its last micro-batch"
        ) from error
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    if query_errors and not stop_event.is_set():
        cause = failures[-1] if failures else query_errors[0]
        raise FailedError(spark_reason(cause) if is_spark_error(cause) else str(cause)) from cause
    return not stop_event.is_set()


def _report_progress(query: Any, last_batch_id: int, on_progress: Callable[[Any], object]) -> int:
    """Report the progress of later micro-batches; return the id of the last one.

    Reading one report is cheap; reading the recent ones takes Spark and Python some milliseconds.
    """
    newest = query.lastProgress
    if newest is None or newest.batchId <= last_batch_id:
        return last_batch_id
    is_next = newest.batchId == last_batch_id + 1
    for progress in [newest] if is_next else query.recentProgress:
        if progress.batchId > last_batch_id:
            last_batch_id = progress.batchId
            on_progress(progress)
    return last_batch_id
