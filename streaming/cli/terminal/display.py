"""The common look of all sub-commands: colours, tables, progress, numbers.

Results are written to standard output, everything else (progress, remarks, errors) to standard
error, so a pipe receives results only. There are few colours, each with one meaning: green for good
results, red for errors, yellow for warnings, cyan for names that the user chose, dim for
explanations. Without a terminal, or with ``NO_COLOR``, the output has no colours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.theme import Theme

from dbsp_wcoj import warm_up
from dbsp_wcoj.kernels.compilation import KERNELS, observe_compilation

__all__ = [
    "THEME",
    "amount",
    "console",
    "duration",
    "milliseconds",
    "plain_table",
    "plural",
    "prepare_kernels",
    "print_json",
    "show_compilation",
    "size",
]

THEME: Final = Theme(
    {
        "name": "cyan",
        "good": "green",
        "error": "bold red",
        "warning": "yellow",
        "note": "dim",
        "total": "bold",
        "repr.number": "none",
        "table.header": "dim",
        "table.title": "bold",
        "bar.back": "grey23",
        "bar.complete": "green",
        "bar.finished": "green",
        "progress.elapsed": "dim",
        "progress.remaining": "dim",
    }
)
PIPE_WIDTH: Final = 140
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def console(*, stderr: bool = False) -> Console:
    """Return a console for the terminal, or one that is wide enough for tables."""
    terminal = Console(stderr=stderr, theme=THEME, highlight=False, emoji=False)
    if terminal.is_terminal:
        return terminal
    return Console(stderr=stderr, theme=THEME, highlight=False, emoji=False, width=PIPE_WIDTH)


def plain_table(title: str | None = None) -> Table:
    """Return an empty table with a line below its head."""
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1),
    )


def prepare_kernels(remarks: Console) -> None:
    """Compile or load all kernels, so that no step of a stream waits for the compiler."""
    with show_compilation(remarks):
        warm_up()


@contextmanager
def show_compilation(remarks: Console) -> Iterator[None]:
    """Show the compilation of kernels in the context: one line, and on a terminal a bar.

    The bar is shown only while a kernel is compiled, so the context may print other things.
    """
    bar = _CompilationBar(remarks)
    previous_observer = observe_compilation(bar)
    try:
        yield
    finally:
        observe_compilation(previous_observer)
        bar.stop()


class _CompilationBar:
    """Prints a line when compilation starts, and on a terminal a bar of its progress."""

    def __init__(self, remarks: Console) -> None:
        self._remarks = remarks
        self._progress = Progress(
            TextColumn("[note]{task.description}[/]"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=remarks,
            transient=True,
            disable=not remarks.is_terminal,
        )
        self._task: TaskID | None = None  # the bar; None before the first kernel is compiled

    def on_start(self, kernel: str) -> None:
        if self._task is None:
            self._remarks.print(
                "[note]Compiling the kernels for this machine, once: one to two minutes.[/]"
            )
            self._task = self._progress.add_task("", total=len(KERNELS))
        self._progress.update(self._task, description=kernel)
        self._progress.start()

    def on_finish(self, kernel: str) -> None:
        if self._task is not None:
            self._progress.advance(self._task)
        self.stop()

    def stop(self) -> None:
        """Remove the bar, for example if a kernel could not be compiled."""
        self._progress.stop()


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output."""
    console().file.write(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


def size(count: float) -> str:
    """Format a number of bytes, in powers of 1,000.

    >>> size(0), size(999), size(12_345), size(9_999_999), size(10**13)
    ('0 B', '999 B', '12.3 kB', '10.0 MB', '10.0 TB')
    """
    unit = 0
    while count >= 999.95 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} {_UNITS[0]}"


def amount(count: float) -> str:
    """Format a number: an integer in full, others with three digits.

    >>> amount(59835), amount(0.12345), amount(1234567.8)
    ('59,835', '0.123', '1,234,568')
    """
    if count == int(count) or count >= 1000:
        return f"{round(count):,}"
    return f"{count:.3g}"


def plural(count: int, word: str, end: str = "s") -> str:
    """Format a count with its noun.

    >>> plural(1, "step"), plural(2000, "batch", "es")
    ('1 step', '2,000 batches')
    """
    return f"{count:,} {word}{'' if count == 1 else end}"


def milliseconds(seconds: float) -> str:
    """Format a time in milliseconds.

    >>> milliseconds(0.00012), milliseconds(0.0472), milliseconds(1.5)
    ('0.12', '47.2', '1,500')
    """
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(0.25), duration(75), duration(4000)
    ('250 ms', '1 min 15 s', '1 h 6 min')
    """
    if seconds < 1:
        return f"{milliseconds(seconds)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left} s"
    return f"{minutes // 60} h {minutes % 60} min"
