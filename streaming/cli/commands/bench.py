"""The sub-command ``bench``: compare delta formulas and step sizes on a query of the user.

A delta formula is the way in which the change of a join is expanded into terms. The command
compiles the query once per formula, each time to its own circuit (a compiled set of views), and all
circuits run the same steps. A step is a set of inserted or deleted rows of all relations.

For every step that inserts rows, a later step deletes them. So all formulas begin and end with the
same state, and the steps can be repeated until the median of their times is precise
(`streaming.cli.benchmark.repetition`). The command compares the deltas of each step, so that a
wrong answer is never reported as a fast one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from circuits import Circuit
from dbsp_wcoj import CustomFormula, Formula, FormulaError
from streaming.cli.arguments.query_text import read_query
from streaming.cli.arguments.source import parse_sources
from streaming.cli.arguments.views import compile_query, dialect_of
from streaming.cli.benchmark.plot import check_plot, draw
from streaming.cli.benchmark.repetition import Measurement, RepetitionLimits, StopReason, repeat
from streaming.cli.benchmark.report import (
    FORMATS,
    add_environment,
    check_writable,
    result_of,
    summary,
    write_report,
)
from streaming.cli.commands.profile import read_tables
from streaming.cli.profiling.rows import Stream, split_stream
from streaming.cli.terminal.display import (
    amount,
    console,
    milliseconds,
    plain_table,
    plural,
    prepare_kernels,
    print_json,
)
from streaming.errors import EventsError, FailedError

__all__ = ["bench"]

ALL_FORMULAS = ("auto", *map(str, Formula))
MAX_STREAMED_SHARE = 0.5  # the largest fraction of the rows that the steps insert and delete
DEFAULT_BATCHES = (1, 100, 10_000)

_Results = dict[tuple[str, int], Measurement]


@dataclass(frozen=True)
class _StepPlan:
    """The steps of each size, and remarks on how they differ from the requested steps."""

    streams: dict[int, Stream]
    remarks: list[str]


def bench(
    *,
    query: str,
    source: list[str] | None,
    rows: int,
    skew: float,
    batch: list[int] | None,
    formula: list[str] | None,
    dialect: str,
    functions: str | None,
    steps: int,
    precision: float,
    max_repetitions: int,
    max_seconds: float,
    seed: int,
    export: list[Path] | None,
    plot: Path | None,
    json: bool,
) -> None:
    """Compare delta formulas and step sizes."""
    formulas = dict(map(_read_formula, formula or ALL_FORMULAS))
    for path in export or []:
        check_writable("--export", path, FORMATS)
    if plot is not None:
        check_plot(plot)
    tables = read_tables(source or [], rows=rows, skew=skew, seed=seed)
    step_plan = _plan_steps(tables, batch, steps, seed)
    schemas = {name: table.schema for name, table in tables.items()}
    circuits = {
        name: compile_query(query, schemas, dialect=dialect, functions=functions, formula=text)
        for name, text in formulas.items()
    }
    for name, circuit in circuits.items():
        if formulas[name] not in ALL_FORMULAS:
            _check_applies(name, CustomFormula.parse(formulas[name]).atoms, circuit)
    stderr = console(stderr=True)
    prepare_kernels(stderr)
    limits = RepetitionLimits(
        precision / 100, max_repetitions, max_seconds / (len(formulas) * len(step_plan.streams))
    )
    measurements = _compare(circuits, step_plan.streams, limits, stderr)
    document = add_environment(
        {
            "query": read_query(query).text,
            "dialect": dialect_of(next(iter(circuits.values()))),
            "inputs": _describe_inputs(source or [], tables, rows, skew),
            "seed": seed,
            "precision": limits.precision,
            "max_repetitions": max_repetitions,
            "max_seconds": max_seconds,
            "loaded": {size: stream.rows for size, stream in step_plan.streams.items()},
            "steps": steps,
            "remarks": step_plan.remarks,
            "median_ms": {
                name: {
                    size: round(1000 * measurements[name, size].median, 5)
                    for size in step_plan.streams
                }
                for name in formulas
            },
            "results": [
                result_of(name, size, measurement)
                for (name, size), measurement in measurements.items()
            ],
        }
    )
    if json:
        print_json(summary(document))
    else:
        _show(measurements, step_plan, limits)
    for path in export or []:
        write_report(document, path)
    if plot is not None:
        draw(document, plot)
    if not json:
        for path in [*(export or []), *([] if plot is None else [plot])]:
            stderr.print(f"Wrote {path}", style="note", soft_wrap=True, markup=False)


def _read_formula(value: str) -> tuple[str, str]:
    """Return the name and the text of a formula.

    If the value is the name of a built-in formula, it is also the text. Otherwise the value is the
    path of a file: the name of the file becomes the name of the formula, and the text is the terms
    in the file.

    Raises:
        EventsError: The value is neither a formula nor a file, or the terms in the file are not an
            exact delta formula.
    """
    if value in ALL_FORMULAS:
        return value, value
    path = Path(value)
    if not path.is_file():
        raise EventsError(
            f"--formula {value!r} must be one of {', '.join(ALL_FORMULAS)}, or a file of terms"
        )
    try:
        return path.name, str(CustomFormula.parse(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, FormulaError) as error:
        raise EventsError(f"--formula {value!r}: {error}") from None


def _check_applies(name: str, atoms: int, circuit: Circuit) -> None:
    """Check that a join of the query uses the user's formula.

    A join uses the formula if it has as many atoms (occurrences of relations) as the formula.

    Raises:
        EventsError: No join has as many atoms as the formula.
    """
    joins = circuit.graph.joins.values()
    if any(isinstance(join.formula, CustomFormula) for join in joins):
        return
    sizes = ", ".join(map(str, sorted({len(join.query.body) for join in joins}))) or "no"
    raise EventsError(
        f"--formula {name!r} is for joins of {atoms} atoms; the query has joins of {sizes} atoms"
    )


def _plan_steps(
    tables: Mapping[str, pa.Table], batch: list[int] | None, steps: int, seed: int
) -> _StepPlan:
    """Plan the steps of each size.

    A default size is omitted with a remark if the tables have too few rows for it.

    Raises:
        EventsError: The tables have too few rows for a requested size, or for every default size.
    """
    total = sum(table.num_rows for table in tables.values())
    streams: dict[int, Stream] = {}
    remarks: list[str] = []
    for size in sorted(set(batch or DEFAULT_BATCHES)):
        reason = _infeasibility_reason(tables, size)
        if reason is None:
            max_steps = int(MAX_STREAMED_SHARE * total) // size
            streams[size] = split_stream(tables, batch=size, steps=min(steps, max_steps), seed=seed)
            remarks += _plan_remarks(streams[size], tables, size, steps)
        elif batch or (size == DEFAULT_BATCHES[-1] and not streams):  # no size is possible
            raise EventsError(f"--batch {size}: {reason}")
        else:
            remarks.append(f"Steps of {plural(size, 'row')} are left out: {reason}.")
    return _StepPlan(streams, remarks)


def _infeasibility_reason(tables: Mapping[str, pa.Table], size: int) -> str | None:
    """Return why steps of this size are impossible and how to fix it; None if they are possible."""
    total = sum(table.num_rows for table in tables.values())
    if int(MAX_STREAMED_SHARE * total) < size:
        return (
            f"{total:,} rows are too few for a step of {size:,}, because the steps take at "
            "most half of them: give more rows, or a smaller --batch"
        )
    if not any(round(size * table.num_rows / total) for table in tables.values()):
        return (
            "a step has rows of each relation in proportion to the size of the relation, and "
            f"{plural(size, 'row')} for {len(tables)} relations is less than one for each: give a "
            "larger --batch"
        )
    return None


def _plan_remarks(
    stream: Stream, tables: Mapping[str, pa.Table], size: int, steps: int
) -> list[str]:
    """Return remarks on how a stream differs from the requested steps."""
    remarks = []
    inserts = len(stream.steps) // 2
    if inserts < steps:
        remarks.append(
            f"Steps of {plural(size, 'row')}: {plural(inserts, 'step')} instead of {steps:,}, "
            "because the steps take at most half of the rows."
        )
    if round(stream.batch) != size:
        remarks.append(
            f"Steps of {plural(size, 'row')} have {amount(stream.batch)} rows, because each "
            "relation gives a whole number of rows."
        )
    unchanged = [name for name in tables if not any(name in step for step in stream.steps)]
    if unchanged:
        remarks.append(
            f"Steps of {plural(size, 'row')} do not change {', '.join(unchanged)}, whose share of "
            "a step is less than one row."
        )
    return remarks


def _compare(
    circuits: Mapping[str, Circuit],
    streams: Mapping[int, Stream],
    limits: RepetitionLimits,
    stderr: Console,
) -> _Results:
    """Measure each formula with steps of each size.

    Raises:
        FailedError: Two formulas gave different deltas for the same steps.
    """
    measurements: _Results = {}
    checksums: dict[int, dict[str, int]] = {size: {} for size in streams}
    progress = Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=40),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(circuits) * len(streams))
        for name, circuit in circuits.items():
            for size, stream in streams.items():
                progress.update(task, description=f"{name}, {plural(size, 'row')}")
                measurements[name, size], checksums[size][name] = _measure(circuit, stream, limits)
                progress.advance(task)
    for size, by_formula in checksums.items():
        if len(set(by_formula.values())) > 1:
            raise FailedError(
                f"steps of {size:,} rows: the formulas do not give the same deltas: "
                f"{', '.join(f'{name} {value:x}' for name, value in by_formula.items())}; please "
                "report this with the query and the data"
            )
    return {(name, size): measurements[name, size] for size in streams for name in circuits}


def _measure(circuit: Circuit, stream: Stream, limits: RepetitionLimits) -> tuple[Measurement, int]:
    """Measure the steps; return their times and a checksum of their deltas.

    The steps are executed once before the measurement, to warm the caches. The checksum is computed
    from the deltas of that execution.
    """
    circuit.step(stream.load)
    checksum = _checksum_of_steps([circuit.step(tables) for tables in stream.steps])

    def run_steps() -> list[float]:
        seconds = []
        for tables in stream.steps:
            started = perf_counter()
            circuit.step(tables)
            seconds.append(perf_counter() - started)
        return seconds

    measurement = repeat(run_steps, limits)
    unload = {
        name: table.append_column("weight", pa.array(np.full(table.num_rows, -1, np.int64)))
        for name, table in stream.load.items()
    }
    circuit.step(unload)
    return measurement, checksum


def _checksum_of_steps(steps: Sequence[Mapping[str, pa.Table]]) -> int:
    """Return a checksum of a sequence of deltas; equal sequences have equal checksums.

    The checksum depends on the position of each step. A sum over the steps would not detect errors:
    the deltas of a step that inserts rows and of the step that deletes them add up to zero, even if
    both are wrong.
    """
    total = 0
    for deltas in steps:
        for name, delta in sorted(deltas.items()):
            total = zlib.crc32(f"{name}={_checksum_of_delta(delta)};".encode(), total)
        total = zlib.crc32(b"/", total)
    return total


def _checksum_of_delta(delta: pa.Table) -> int:
    """Return a checksum of a delta that does not depend on the order of its rows."""
    if not delta.num_rows:
        return 0
    columns = [column.combine_chunks() for column in delta.columns]
    if all(pa.types.is_integer(column.type) and not column.null_count for column in columns):
        row_hashes = np.ones(delta.num_rows, np.uint64)  # from 0, a row of zeros would not count
        with np.errstate(over="ignore"):
            for column in columns[:-1]:  # the last column is the weight
                values = column.cast(pa.int64()).to_numpy().view(np.uint64)
                row_hashes = (row_hashes ^ values) * np.uint64(0x9E3779B97F4A7C15)
                row_hashes ^= row_hashes >> np.uint64(29)
            weighted = row_hashes * columns[-1].to_numpy().view(np.uint64)
        return int(weighted.sum(dtype=np.uint64))
    rows = delta.to_pylist()
    return sum(row.pop("weight") * zlib.crc32(repr(row).encode()) for row in rows)


def _describe_inputs(
    texts: list[str], tables: Mapping[str, pa.Table], rows: int, skew: float
) -> list[dict[str, Any]]:
    """Describe the sources of the rows. Files are named without their folders."""
    if not texts:
        return [{"name": name, "generated": {"rows": rows, "skew": skew}} for name in tables]
    return [
        {
            "name": name,
            "files": [path.name for path in source.files()],
            "rows": tables[name].num_rows,
        }
        for name, source in parse_sources(texts).items()
    ]


_STOP_REASONS: Final = {
    StopReason.repetitions: "--max-repetitions was reached",
    StopReason.seconds: "--max-seconds was used up",
}


def _show(measurements: _Results, step_plan: _StepPlan, limits: RepetitionLimits) -> None:
    """Print the times as a table, then the remarks."""
    terminal = console()
    loaded = sorted({stream.rows for stream in step_plan.streams.values()})
    state_rows = (
        amount(loaded[-1]) if len(loaded) == 1 else f"{amount(loaded[0])} to {amount(loaded[-1])}"
    )
    terminal.print(
        f"Milliseconds of a step, over {state_rows} rows; all formulas gave the same deltas."
    )
    terminal.print()
    table = plain_table()
    table.add_column("rows", justify="right")
    table.add_column("formula", style="name", no_wrap=True)
    for name in ("median", "± %", "quartiles"):
        table.add_column(name, justify="right")
    for name in ("of best", "runs"):
        table.add_column(name, justify="right", style="note")
    for size in step_plan.streams:
        measurements_of_size = {
            name: measurement
            for (name, step_rows), measurement in measurements.items()
            if step_rows == size
        }
        best = min(measurements_of_size.values(), key=lambda measurement: measurement.median)
        for number, (name, measurement) in enumerate(measurements_of_size.items()):
            time_ms = milliseconds(measurement.median)
            percent = f"{100 * measurement.precision:.1f}"
            table.add_row(
                "" if number else amount(size),
                name,
                f"[good]{time_ms}[/]" if measurement.interval[0] <= best.interval[1] else time_ms,
                percent if measurement.stop is StopReason.precise else f"[warning]{percent}[/]",
                " to ".join(map(milliseconds, measurement.quartiles)),
                f"{measurement.median / best.median:.2f}",
                f"{len(measurement.repetitions):,}",
                end_section=number == len(measurements_of_size) - 1,
            )
    terminal.print(table)
    terminal.print()
    for line in (*step_plan.remarks, *_imprecision_remarks(measurements, limits)):
        terminal.print(line, style="warning", soft_wrap=True, markup=False)
    largest = max(step_plan.streams)
    best_seconds = min(
        measurement.median for (_, size), measurement in measurements.items() if size == largest
    )
    rate = step_plan.streams[largest].batch / best_seconds
    terminal.print(f"Up to {amount(round(rate))} rows a second.", style="note")


def _imprecision_remarks(measurements: _Results, limits: RepetitionLimits) -> list[str]:
    """Return a remark for each reason why medians are less precise than requested."""
    lines = []
    for stop, reason in _STOP_REASONS.items():
        names = [
            f"{name} ({amount(size)})"
            for (name, size), measurement in measurements.items()
            if measurement.stop is stop
        ]
        if names:
            lines.append(
                f"The 95 % interval is wider than ±{100 * limits.precision:g} % of the median, "
                f"because {reason}: {', '.join(names)}."
            )
    return lines
