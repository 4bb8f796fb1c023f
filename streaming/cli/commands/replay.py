"""The sub-command ``replay``: apply a file of changes to views step by step, without Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from circuits import Circuit, CircuitStep
from circuits.inputs.rejected_rows import LATE
from circuits.schema import WEIGHT
from dbsp_wcoj import DbspWcojError
from streaming.cli.arguments.changes_file import OP, RELATION, ChangesFile, relation_of_file
from streaming.cli.arguments.limits import parse_limits
from streaming.cli.arguments.source import SourceArgument, read_rows
from streaming.cli.arguments.views import compile_query, dialect_of, view_name
from streaming.cli.terminal.display import (
    amount,
    console,
    duration,
    milliseconds,
    plain_table,
    plural,
    prepare_kernels,
    print_json,
)
from streaming.cli.terminal.page import announce, check_no_page, page_title
from streaming.errors import EventsError, FailedError, RowError
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published
from streaming.targets.column_types import convert_columns, parquet_type
from streaming.targets.folder_checks import check_writable
from streaming.targets.target import file_name
from streaming.ui.access import find_token
from streaming.ui.page import Page
from streaming.ui.row_texts import weights_of
from streaming.ui.view_counts import ViewCounts

__all__ = ["replay"]

_NAME_PREFIX: Final = re.compile(r"[A-Za-z_]\w*=")


def replay(
    *,
    query: str,
    source: list[str],
    columns: str | None,
    by: str | None,
    batch: int,
    output: Path | None,
    pause: float,
    dialect: str,
    functions: str | None,
    formula: str,
    threads: int | None,
    max_step_rows: int | None,
    max_step_bytes: str | None,
    max_seconds: float | None,
    ui: bool,
    ui_port: int,
    ui_host: str,
    ui_token_file: Path | None,
    json: bool,
) -> None:
    """Replay a file of changes through views, step by step."""
    remarks = console(stderr=True)
    if output is not None and output.exists():
        raise EventsError(f"--output {output}: exists already; name a new folder")
    if output is not None:
        check_writable(output)
    if not ui:
        check_no_page(ui_host=ui_host, ui_port=ui_port, ui_token_file=ui_token_file)
    limits = parse_limits(max_step_rows, max_step_bytes, max_seconds)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    changes, changes_source = _read_changes(source, by=by, columns=names)
    options = changes_source.input_options()
    with ExitStack() as stack:
        try:
            circuit = compile_query(
                query,
                changes.relations,
                dialect=dialect,
                functions=functions,
                formula=formula,
                threads=threads,
                materialize=output is not None,
                input_options={} if options is None else {changes_source.name: options},
                limits=limits,
            )
        except DbspWcojError as error:
            # A file without a column of relation names is one relation.
            if not _names_relation(source[0]) and changes.relation_names is None:
                error.add_note(
                    f"the rows of {changes_source.path} are relation {changes_source.name!r}; "
                    "--source NAME=FILE names them otherwise"
                )
            raise
        page = None
        if ui:
            name = page_title(view_name(query), dialect_of(circuit))
            token = find_token(ui_token_file)
            secret = None if token is None else token.value
            page = stack.enter_context(
                Page(circuit, name=name, host=ui_host, port=ui_port, token=secret)
            )
            announce(remarks, page, token)
        prepare_kernels(remarks)
        run = _ReplayRun(circuit, page)
        try:
            _replay_steps(run, changes, batch, pause, remarks)
        except DbspWcojError as error:
            if page is not None:
                page.end(str(error), failed=True)
            raise FailedError(f"after {run.rows:,} changes: {error}") from error
        if output is not None:
            output.mkdir(parents=True)
            for view in circuit.outputs:
                _write_view(circuit.views[view], view, output)
        if json:
            print_json({"dialect": dialect_of(circuit), **run.to_json()})
        else:
            if dialect_of(circuit) is not None:
                console().print(f"SQL dialect: {dialect}", style="note")
            _show(run, console())
        if page is not None:
            page.end("all changes are replayed")
            page.wait_for_interrupt(remarks)


def _write_view(table: pa.Table, view: str, folder: Path) -> None:
    """Write the rows of a view as a Parquet file, whose name is that of the view.

    Raises:
        FailedError: Parquet cannot store a column, or the file cannot be written.
    """
    path = folder / f"{file_name(view)}.parquet"
    try:
        pq.write_table(convert_columns(table, parquet_type, subject=f"view {view!r}"), path)
    except (OSError, pa.ArrowException, DbspWcojError) as error:
        raise FailedError(f"--output {path}: view {view!r} cannot be written: {error}") from error


def _names_relation(text: str) -> bool:
    """Return whether a source is NAME=FILE; otherwise the relation is named after the file."""
    return _NAME_PREFIX.match(text) is not None


def _read_changes(
    texts: Sequence[str], *, by: str | None, columns: Sequence[str] | None
) -> tuple[ChangesFile, SourceArgument]:
    """Read the file of a replay; return its changes, and the source with its options.

    Raises:
        EventsError: There is no file or more than one, or the file cannot be read.
    """
    if len(texts) != 1:
        raise EventsError(
            f"{len(texts)} times --source: a replay reads one file of changes, in order; a column "
            "named relation distinguishes the rows of several relations"
        )
    (text,) = texts
    is_named_after_file = not _names_relation(text)
    if is_named_after_file:
        text = f"{relation_of_file(text)}={text}"
    source = SourceArgument.parse(text)
    source.check_without_spark("a replay")
    files = source.files()
    if len(files) != 1:
        raise EventsError(
            f"--source {source.name}={source.path}: a replay reads one file of changes, in order, "
            f"and there are {len(files)}: name a file"
        )
    (file,) = files
    table = read_rows(source, keep_others=True)
    if (
        is_named_after_file
        and RELATION in table.column_names
        and source.input_options() is not None
    ):
        raise EventsError(
            f"--source {file}: keys, strict and retain apply to one relation, and the file has "
            f"several, by its column {RELATION!r}: name one relation, NAME=FILE, or leave them out"
        )
    name = None if is_named_after_file else source.name
    declared = source.schema() if columns is None and source.is_declared else None
    if declared is not None:
        roles = (WEIGHT, OP) if name is not None else (WEIGHT, OP, RELATION)
        columns = [column for column in declared.names if column not in roles]
    changes = ChangesFile.of(table, file, relation=name, by=by, columns=columns)
    return changes, source


class _ReplayRun:
    """Runs the steps of a replay, and collects their times and the counts of the views."""

    def __init__(self, circuit: Circuit, page: Page | None) -> None:
        self.circuit, self.page = circuit, page
        self.counts = {view: ViewCounts(circuit, view) for view in circuit.outputs}
        # For each view, its row count, or the values of its only row (`ViewCounts.names`).
        self.numbers: dict[str, list[float | None]] = {}
        self.changed = dict.fromkeys(circuit.outputs, 0)
        self.seconds: list[float] = []
        self.total_seconds = 0.0
        self.rows = 0
        self.late_rows = 0

    def __call__(self, tables: dict[str, Any]) -> None:
        """Run one step.

        Raises:
            RowError: The options of the input reject a row, and not because it is late. The rows of
                the step are not applied.
        """
        number = len(self.seconds)
        started = time.perf_counter()
        step = self.circuit.prepare(tables, now=datetime.now(UTC))
        prepared = time.perf_counter()
        try:
            self.late_rows += _count_late_rows(step)
        except BaseException:
            step.abandon()
            raise
        step.commit()
        committed = time.perf_counter()
        self.seconds.append(committed - started)
        self.total_seconds += committed - started
        self.rows += sum(table.num_rows for table in tables.values())
        for view, table in step.outputs.items():
            weights, counts = weights_of(table), self.counts[view]
            numbers = counts.update(table, weights, "delta", batch_id=number, replayed=False)
            self.numbers[view] = list(numbers)
            self.changed[view] += table.num_rows
        if self.page is None:
            return
        seconds = {**step.seconds, "merge": committed - prepared, "all": committed - started}
        self.page.batch_completed(
            Published(None, number, step.outputs),
            BatchMetrics(
                batch_id=number,
                replayed=False,
                rows_in={name: table.num_rows for name, table in tables.items()},
                rows_out={view: table.num_rows for view, table in step.outputs.items()},
                dead_letters=0,
                dead_letters_total=0,
                seconds={name: round(value, 6) for name, value in seconds.items()},
                bytes_written=0,
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "changes": self.rows,
            "late_rows": self.late_rows,
            "steps": len(self.seconds),
            "seconds": round(self.total_seconds, 6),
            "median_ms": round(1000 * median(self.seconds), 4),
            "views": {
                view: {
                    "changed_rows": self.changed[view],
                    **dict(zip(self.counts[view].names, numbers, strict=True)),
                }
                for view, numbers in self.numbers.items()
            },
        }


def _count_late_rows(step: CircuitStep) -> int:
    """Return the number of late rows that a step leaves out.

    Raises:
        RowError: The options of the input reject a row for another reason.
    """
    late_rows = 0
    for groups in step.rejected.values():
        for rejected in groups:
            if rejected.reason != LATE:
                raise RowError(rejected.message)
            late_rows += rejected.table.num_rows
    return late_rows


def _replay_steps(
    run: _ReplayRun, changes: ChangesFile, batch: int, pause: float, remarks: Console
) -> None:
    progress = Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(bar_width=40),
        TextColumn("{task.completed:,} of {task.total:,} changes"),
        TextColumn("[note]{task.fields[rate]}[/]"),
        TimeRemainingColumn(compact=True),
        console=remarks,
        transient=True,
        disable=not remarks.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(changes), rate="")
        for tables in changes.steps(batch):
            run(tables)
            rate = run.rows / run.total_seconds
            progress.update(task, completed=run.rows, rate=f"{amount(round(rate))}/s")
            if pause:
                time.sleep(pause)


def _show(run: _ReplayRun, terminal: Console) -> None:
    total = run.total_seconds
    times = sorted(run.seconds)
    terminal.print(
        f"[total]{plural(run.rows, 'change')}[/] in {plural(len(times), 'step')} and "
        f"[total]{duration(total)}[/]: {amount(round(run.rows / total))} a second, "
        f"{milliseconds(median(times))} ms for the median step, {milliseconds(times[-1])} for the "
        "longest."
    )
    if run.late_rows:
        are = "is late and was" if run.late_rows == 1 else "are late and were"
        terminal.print(f"{plural(run.late_rows, 'row')} {are} left out (lateness= or retain=).")
    terminal.print()
    table = plain_table()
    table.add_column("view", style="name")
    table.add_column("at the end", justify="right")
    table.add_column("rows changed", justify="right", style="note")
    for view, numbers in run.numbers.items():
        names = run.counts[view].names
        is_named = len(names) > 1 or names == ["rows"]
        counts = ", ".join(
            ("–" if number is None else amount(number)) + (f" {name}" if is_named else "")
            for name, number in zip(names, numbers, strict=True)
        )
        table.add_row(view, counts, amount(run.changed[view]))
    terminal.print(table)
