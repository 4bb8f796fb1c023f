"""The sub-command ``replay``: a file of changes through views, without Spark."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from circuits import Circuit
from dbsp_wcoj import DbspWcojError
from streaming.cli.changes_file import ChangesFile
from streaming.cli.limits import limits_of
from streaming.cli.terminal import (
    amount,
    console,
    duration,
    milliseconds,
    plain_table,
    plural,
    print_json,
    ready_kernels,
)
from streaming.cli.views import circuit_of, name_of
from streaming.errors import EventsError, FailedError
from streaming.metrics import BatchMetrics
from streaming.ui.page import Page
from streaming.ui.shown import weights_of
from streaming.ui.tally import Tally
from streaming.view_sink import Published

__all__ = ["replay"]


def replay(
    *,
    file: Path,
    query: str,
    relation: str | None,
    columns: str | None,
    by: str | None,
    batch: int,
    output: Path | None,
    pause: float,
    formula: str,
    threads: int,
    max_step_rows: int | None,
    max_step_bytes: str | None,
    max_seconds: float | None,
    ui: bool,
    ui_port: int,
    ui_host: str,
    ui_token: str | None,
    json: bool,
) -> None:
    """Replay a file of changes through views, step by step."""
    remarks = console(stderr=True)
    if output is not None and output.exists():
        raise EventsError(f"--output {output}: is there; name a new folder")
    limits = limits_of(max_step_rows, max_step_bytes, max_seconds)
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    changes = ChangesFile.read(file, relation=relation, by=by, columns=wanted)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        try:
            circuit = circuit_of(
                query,
                changes.relations,
                formula=formula,
                executor=executor,
                threads=threads,
                materialize=output is not None,
                limits=limits,
            )
        except DbspWcojError as error:
            if relation is None and changes.tags is None:
                (name,) = changes.relations
                error.add_note(f"the rows of {file.name} are relation {name!r}; --relation renames")
            raise
        page = None
        if ui:
            name = name_of(query)
            page = stack.enter_context(
                Page(circuit, name=name, host=ui_host, port=ui_port, token=ui_token)
            )
            remarks.print(f"Live page: [name]{page.address}[/]", soft_wrap=True)
        ready_kernels(remarks)
        played = _Played(circuit, page)
        try:
            _play(played, changes, batch, pause, remarks)
        except DbspWcojError as error:
            if page is not None:
                page.end(str(error), failed=True)
            raise FailedError(f"after {played.rows:,} changes: {error}") from error
        if output is not None:
            output.mkdir(parents=True)
            for view in circuit.outputs:
                pq.write_table(circuit.views[view], output / f"{view}.parquet")
        if json:
            print_json(played.told())
        else:
            _show(played, console())
        if page is not None:
            page.end("all changes are replayed")
            page.stay(remarks)


class _Played:
    """Steps of a circuit, and what they came to."""

    def __init__(self, circuit: Circuit, page: Page | None) -> None:
        self.circuit, self.page = circuit, page
        self.tallies = {view: Tally(circuit, view) for view in circuit.outputs}
        self.numbers: dict[str, list[float | None]] = {}
        self.changed = dict.fromkeys(circuit.outputs, 0)
        self.seconds: list[float] = []
        self.rows = 0

    def __call__(self, tables: dict[str, Any]) -> None:
        """Do one."""
        number = len(self.seconds)
        begun = time.perf_counter()
        step = self.circuit.prepare(tables)
        prepared = time.perf_counter()
        step.commit()
        ended = time.perf_counter()
        self.seconds.append(ended - begun)
        self.rows += sum(table.num_rows for table in tables.values())
        for view, table in step.outputs.items():
            weights, tally = weights_of(table), self.tallies[view]
            found = tally.take(table, weights, "delta", batch_id=number, replayed=False)
            self.numbers[view] = list(found)
            self.changed[view] += table.num_rows
        if self.page is None:
            return
        seconds = {**step.seconds, "merge": ended - prepared, "all": ended - begun}
        self.page.take(
            Published(None, number, step.outputs),
            BatchMetrics(
                number,
                False,
                {name: table.num_rows for name, table in tables.items()},
                {view: table.num_rows for view, table in step.outputs.items()},
                letters=0,
                letters_total=0,
                seconds={name: round(value, 6) for name, value in seconds.items()},
                bytes_written=0,
            ),
        )

    def told(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "changes": self.rows,
            "steps": len(self.seconds),
            "seconds": round(sum(self.seconds), 6),
            "median_ms": round(1000 * median(self.seconds), 4),
            "views": {
                view: {
                    "changed_rows": self.changed[view],
                    **dict(zip(self.tallies[view].names, numbers, strict=True)),
                }
                for view, numbers in self.numbers.items()
            },
        }


def _play(
    played: _Played, changes: ChangesFile, batch: int, pause: float, remarks: Console
) -> None:
    progress = Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(bar_width=40),
        TextColumn("{task.completed:,} of {task.total:,} changes"),
        TextColumn("[says]{task.fields[rate]}[/]"),
        TimeRemainingColumn(compact=True),
        console=remarks,
        transient=True,
        disable=not remarks.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(changes), rate="")
        for tables in changes.steps(batch):
            played(tables)
            rate = played.rows / sum(played.seconds)
            progress.update(task, completed=played.rows, rate=f"{amount(round(rate))}/s")
            if pause:
                time.sleep(pause)


def _show(played: _Played, terminal: Console) -> None:
    spent = sum(played.seconds)
    times = sorted(played.seconds)
    worst = times[-1]
    terminal.print(
        f"[total]{plural(played.rows, 'change')}[/] in {plural(len(times), 'step')} and "
        f"[total]{duration(spent)}[/]: {amount(round(played.rows / spent))} a second, "
        f"{milliseconds(median(times))} ms for the median step, {milliseconds(worst)} for the "
        "longest."
    )
    terminal.print()
    table = plain_table()
    table.add_column("view", style="name")
    table.add_column("at the end", justify="right")
    table.add_column("rows changed", justify="right", style="says")
    for view, numbers in played.numbers.items():
        names = played.tallies[view].names
        is_named = len(names) > 1 or names == ["rows"]
        now = ", ".join(
            ("–" if number is None else amount(number)) + (f" {name}" if is_named else "")
            for name, number in zip(names, numbers, strict=True)
        )
        table.add_row(view, now, amount(played.changed[view]))
    terminal.print(table)
