"""The sub-command ``bench``: delta formulas and sizes of steps compared, on one's own query.

The same steps go through one circuit for each formula. Every step that inserts rows is followed
later by one that deletes them, so all formulas begin and end with the same state; and the sums of
what they give are compared, so that a wrong answer is never shown as a fast one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from rich.progress import BarColumn, Progress, TextColumn

from circuits import Circuit
from dbsp_wcoj import Formula
from streaming.cli.profile import tables_of
from streaming.cli.terminal import (
    amount,
    console,
    milliseconds,
    plain_table,
    print_json,
    ready_kernels,
)
from streaming.cli.views import circuit_of
from streaming.errors import EventsError, FailedError
from streaming.profiling.rows import Stream, stream_of

__all__ = ["bench"]

EVERY = ("auto", *map(str, Formula))
SHARE = 0.5  # of the rows may be streamed, for the largest batch
BATCHES = (1, 100, 10_000)


def bench(
    *,
    query: str,
    source: list[str] | None,
    rows: int,
    skew: float,
    batch: list[int] | None,
    formula: list[str] | None,
    steps: int,
    seed: int,
    json: bool,
) -> None:
    """Compare delta formulas and sizes of steps."""
    formulas = list(dict.fromkeys(formula or EVERY))
    for one in formulas:
        if one not in EVERY:
            raise EventsError(f"--formula {one!r} is none of {', '.join(EVERY)}")
    tables = tables_of(source or [], rows=rows, skew=skew, seed=seed)
    most = int(SHARE * sum(table.num_rows for table in tables.values()))
    batches = sorted(set(batch or [size for size in BATCHES if size <= most] or BATCHES[:1]))
    streams = {size: _stream(tables, size, steps, seed) for size in batches}
    schemas = {name: table.schema for name, table in tables.items()}
    circuits = {one: circuit_of(query, schemas, formula=one) for one in formulas}
    remarks = console(stderr=True)
    ready_kernels(remarks)
    found: dict[str, dict[int, float]] = {one: {} for one in formulas}
    sums: dict[int, dict[str, int]] = {size: {} for size in batches}
    progress = Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=40),
        console=remarks,
        transient=True,
        disable=not remarks.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(formulas) * len(batches))
        for name, circuit in circuits.items():
            for size, stream in streams.items():
                progress.update(task, description=f"{name}, {amount(size)} rows")
                found[name][size], sums[size][name] = _measured(circuit, stream)
                progress.advance(task)
    for size, by_formula in sums.items():
        if len(set(by_formula.values())) > 1:
            raise FailedError(
                f"steps of {size:,} rows: the formulas do not give the same deltas: "
                f"{', '.join(f'{name} {value:x}' for name, value in by_formula.items())}; please "
                "report this with the query and the data"
            )
    loaded = {size: stream.rows for size, stream in streams.items()}
    if json:
        print_json(_told(found, loaded, steps))
    else:
        _show(found, loaded, steps)


def _stream(tables: Mapping[str, pa.Table], size: int, steps: int, seed: int) -> Stream:
    """Steps of a size; fewer of them where the rows would not do for all."""
    total = sum(table.num_rows for table in tables.values())
    most = int(SHARE * total) // size
    if not most:
        raise EventsError(
            f"--batch {size}: {total:,} rows are too few for a step of {size:,}, for at most half "
            "of them are streamed: give more rows, or a smaller --batch"
        )
    return stream_of(tables, batch=size, steps=min(steps, most), seed=seed)


def _measured(circuit: Circuit, stream: Stream) -> tuple[float, int]:
    """Seconds of the median step, and the sum of all that the steps gave."""
    circuit.step(stream.load)
    for tables in stream.steps:  # to be warm
        circuit.step(tables)
    seconds, total = [], 0
    for tables in stream.steps:
        begun = perf_counter()
        deltas = circuit.step(tables)
        seconds.append(perf_counter() - begun)
        total += sum(map(_checksum, deltas.values()))
    gone = {
        name: table.append_column("weight", pa.array(np.full(table.num_rows, -1, np.int64)))
        for name, table in stream.load.items()
    }
    circuit.step(gone)
    return median(seconds), total


def _checksum(delta: pa.Table) -> int:
    """A number that equal deltas have, in whatever order their rows come."""
    if not delta.num_rows:
        return 0
    columns = [column.combine_chunks() for column in delta.columns]
    if all(pa.types.is_integer(column.type) and not column.null_count for column in columns):
        mixed = np.zeros(delta.num_rows, np.uint64)
        with np.errstate(over="ignore"):
            for column in columns[:-1]:
                values = column.cast(pa.int64()).to_numpy().view(np.uint64)
                mixed = (mixed ^ values) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            weighted = mixed * columns[-1].to_numpy().view(np.uint64)
        return int(weighted.sum(dtype=np.uint64))
    rows = delta.to_pylist()
    return sum(row.pop("weight") * zlib.crc32(repr(row).encode()) for row in rows)


def _told(
    found: Mapping[str, Mapping[int, float]], loaded: Mapping[int, int], steps: int
) -> dict[str, Any]:
    return {
        "loaded": loaded,
        "steps": steps,
        "median_ms": {
            name: {size: round(1000 * seconds, 5) for size, seconds in times.items()}
            for name, times in found.items()
        },
    }


def _show(found: Mapping[str, Mapping[int, float]], loaded: Mapping[int, int], steps: int) -> None:
    terminal = console()
    rows = sorted(set(loaded.values()))
    over = amount(rows[-1]) if len(rows) == 1 else f"{amount(rows[0])} to {amount(rows[-1])}"
    table = plain_table()
    table.add_column("formula", style="name")
    best = {size: min(times[size] for times in found.values()) for size in loaded}
    for size in loaded:
        table.add_column(f"{amount(size)} rows, ms", justify="right")
        table.add_column("of best", justify="right", style="says")
    for name, times in found.items():
        cells = []
        for size in loaded:
            ratio = times[size] / best[size]
            shown = milliseconds(times[size])
            cells += [f"[comes]{shown}[/]" if ratio < 1.1 else shown, f"{ratio:.2f}"]
        table.add_row(name, *cells)
    terminal.print(f"The median step, over {over} rows; all formulas gave the same deltas.")
    terminal.print()
    terminal.print(table)
    sizes = list(loaded)
    rate = sizes[-1] / best[sizes[-1]]
    terminal.print()
    terminal.print(f"Up to {amount(round(rate))} rows a second.", style="says")
