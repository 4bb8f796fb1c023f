"""Logs: write the messages of a run as lines of text for people or of JSON for machines.

Each message that is logged or printed during a run becomes one line on standard error::

    text    2026-11-22T10:37:33.123Z micro-batch 7: 120 rows in 3.1 ms; rings 4 rows
    json    {"time": "2026-11-22T10:37:33.123Z", "level": "info", "event": "micro_batch", ...}

Each JSON line has the keys ``time`` (UTC), ``level`` (debug, info, warning, error), ``event`` and
``message``. These are the events, and the keys that they add:

============  ================================================================================
note          any other message, without further keys, such as the start of Spark or the
              address of the live page
micro_batch   ``batch_id``, ``replayed``, ``rows_in`` and ``rows_out``, ``seconds``, ``phases``
              with the seconds of each, ``bytes_written``, ``views``, ``bad_rows``
progress      a micro-batch takes long: ``batch_id``, ``phase``, ``subject`` of the phase,
              ``phase_seconds``, ``seconds``
retry         a database does not answer: ``view``, ``batch_id``, ``target``, ``reason``,
              ``attempt``, ``pause_seconds``
warning       any other warning
summary       the run ends: ``micro_batches``, ``rows``, ``seconds``
error         the run failed, and this is its last line: ``status``, the exit status
phase         only with ``--verbose``: ``batch_id``, ``phase``, ``subject``, ``seconds``
metrics       only with ``--verbose``: ``metrics``, as in ``metrics.jsonl``
offsets       only with ``--verbose``: ``batch_id``, ``sources`` with start and end offsets,
              ``duration_ms`` for each part of Spark's micro-batch
spark         only with ``--verbose``: a line that Spark logged
============  ================================================================================

Later versions may add keys, but do not rename or remove any.
"""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from streaming.cli.terminal.display import THEME, console
from streaming.errors import EventsError
from streaming.redaction import redact

__all__ = ["FORMATS", "Logs", "check_format", "error_line", "utc"]

FORMATS: Final = ("text", "json")
PACKAGES: Final = ("streaming", "circuits", "dbsp_wcoj", "py.warnings")
#: Loggers whose messages of level INFO are shown even without ``--verbose``.
INFO_LOGGERS: Final = ("streaming.cli", "streaming.sink.metrics")
LINE_WIDTH: Final = 10_000
#: Seconds between two reads of Spark's log file.
TAIL_INTERVAL_S: Final = 0.5

log = logging.getLogger(__name__)


def check_format(name: str) -> None:
    """Raise an error unless ``name`` is the name of a log format.

    Raises:
        EventsError: ``name`` is not one of ``FORMATS``.
    """
    if name not in FORMATS:
        raise EventsError(f"--log-format {name!r} must be one of {', '.join(FORMATS)}")


def utc(seconds: float) -> str:
    """Format a time in seconds since 1970 as ISO 8601, in UTC, with milliseconds.

    >>> utc(0.0015)
    '1970-01-01T00:00:00.001Z'
    """
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def error_line(text: str, status: int) -> str:
    """Format an error as a line of JSON, with the current time."""
    now = datetime.now(UTC).timestamp()
    return _json_line(now, "error", {"event": "error", "message": text, "status": status})


class Logs:
    """The log output of a run.

    Args:
        format: One of ``FORMATS``.
        verbose: True if phases, metrics, offsets and Spark's log are logged, too.

    Attributes:
        remarks: The console to print to. It is the terminal itself, if standard error is a
            terminal, the format is text, and ``verbose`` is off. Otherwise each printed line
            becomes a line of the log.
        is_plain: True if ``remarks`` is the terminal itself.
    """

    def __init__(self, format: str = "text", *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.is_json = format == "json"
        terminal = console(stderr=True)
        self.is_plain = not (self.is_json or verbose) and terminal.is_terminal
        self.remarks = terminal
        self._terminal = terminal
        if not self.is_plain:
            self.remarks = Console(
                file=_Lines(), theme=THEME, highlight=False, emoji=False, width=LINE_WIDTH
            )

    @contextmanager
    def show_records(self) -> Iterator[None]:
        """Write the records of ``PACKAGES`` and Python warnings while the context is open."""
        handler = _Handler(self)
        levels = {name: logging.getLogger(name).level for name in (*PACKAGES, *INFO_LOGGERS)}
        logging.captureWarnings(True)
        try:
            for name in PACKAGES:
                logger = logging.getLogger(name)
                logger.addHandler(handler)
                logger.setLevel(logging.DEBUG if self.verbose else logging.WARNING)
            for name in INFO_LOGGERS:
                logging.getLogger(name).setLevel(logging.DEBUG if self.verbose else logging.INFO)
            yield
        finally:
            logging.captureWarnings(False)
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
            for name in PACKAGES:
                logging.getLogger(name).removeHandler(handler)

    @contextmanager
    def spark_log(self, path: Path) -> Iterator[None]:
        """With ``--verbose``, log what Spark writes to a file while the context is open."""
        if not self.verbose:
            yield
            return
        done = threading.Event()
        tail = threading.Thread(target=_follow_file, args=(path, done), daemon=True)
        tail.start()
        try:
            yield
        finally:
            done.set()
            tail.join()

    def note(self, text: str) -> bytes:
        """Format a message as the bytes of a line for standard error; for signal handlers."""
        now = datetime.now(UTC).timestamp()
        if self.is_json:
            return f"{_json_line(now, 'info', {'event': 'note', 'message': text})}\n".encode()
        return f"{text if self.is_plain else f'{utc(now)} {text}'}\n".encode()

    def write(self, record: logging.LogRecord) -> None:
        """Write a log record as one line."""
        fields = getattr(record, "fields", {})
        message = redact(record.getMessage())
        level = record.levelname.lower()
        if self.is_json:
            event = "warning" if record.levelno >= logging.WARNING else "note"
            line = _json_line(
                record.created, level, {"event": event, "message": message} | dict(fields)
            )
            self._terminal.file.write(f"{line}\n")
            self._terminal.file.flush()
            return
        prefix = f"{level}: " if record.levelno >= logging.WARNING else ""
        message = " ".join(message.split("\n"))
        self._terminal.print(
            f"{utc(record.created)} {prefix}{message}", markup=False, soft_wrap=True, style=None
        )


class _Handler(logging.Handler):
    """Passes log records to `Logs`; `logging` itself reports errors in writing a record."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._logs.write(record)
        except BrokenPipeError:
            pass
        except Exception:
            self.handleError(record)


class _Lines(io.StringIO):
    """A text stream that logs each line written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._incomplete_line = ""

    def write(self, text: str) -> int:
        *lines, self._incomplete_line = (self._incomplete_line + text).split("\n")
        for line in lines:
            if line.strip():
                log.info("%s", line.strip())
        return len(text)


def _json_line(seconds: float, level: str, fields: dict[str, Any]) -> str:
    line = {"time": utc(seconds), "level": level, **fields}
    return json.dumps(line, ensure_ascii=False, default=str)


def _follow_file(path: Path, done: threading.Event) -> None:
    """Log the lines appended to a file, until ``done`` is set; then read it one last time."""
    position, incomplete_line = 0, ""
    while True:
        is_last = done.wait(TAIL_INTERVAL_S)
        try:
            with path.open(errors="replace") as file:
                file.seek(position)
                *lines, incomplete_line = (incomplete_line + file.read()).split("\n")
                position = file.tell()
        except OSError:
            lines = []
        for line in filter(str.strip, lines):
            log.debug("%s", line, extra={"fields": {"event": "spark"}})
        if is_last:
            return
