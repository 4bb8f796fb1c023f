"""LOADING: the first step of a view, with all rows in one step or in slices.

Each load runs in a process of its own, because the peak memory of a process never falls. The peak
includes the bytes of the input, and all that the load adds to the memory of the process. It does
not include what the process had before the load, beside the input: the interpreter, its libraries,
and what reading the files leaves after freed memory was returned to the system. The rows per CPU
second count the rows of all tables that the query reads; the column ``lineitems per CPU second``
counts those of ``lineitem`` only, which the targets are about.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from benchmarks.beyond_memory import Memory
from benchmarks.result import Row
from benchmarks.tpch.data import program, read_tables, relations_of, schemas_of
from benchmarks.tpch.queries import QUERIES
from circuits import Circuit, compile_sql
from dbsp_wcoj import warm_up
from streaming.state.mapped.freed_memory import free_unused_memory

#: The name of a load of all 22 views in one circuit.
ALL: Final = "all"
#: The loads: single queries, then all of them.
CASES: Final = (*map(str, QUERIES), ALL)
#: Lineitems per CPU second, by query.
TARGET_RATES: Final = {
    **dict.fromkeys(("1", "6"), 2_000_000),
    **dict.fromkeys(("3", "5", "9", "18"), 1_000_000),
}
TARGET_PEAK: Final = 1.5  # times the sum of the bytes of input and state
MEGABYTE: Final = 10**6
FLOAT_TOLERANCE: Final = 1e-9


def measure(files: Path, case: str, slice_rows: int | None, is_checked: bool) -> Row:
    """Load a query, or all of them, in a new process.

    Args:
        files: The folder with the tables.
        case: A member of `CASES`.
        slice_rows: The most rows of a table in a step; None loads all rows in one step.
        is_checked: Compare the views with DuckDB's; the peak memory is read before.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(load, (files, case, slice_rows, is_checked))


def load(files: Path, case: str, slice_rows: int | None, is_checked: bool) -> Row:
    """Load in this process; the arguments are those of `measure`."""
    numbers = list(QUERIES) if case == ALL else [int(case)]
    warm_up()
    circuit = compile_sql(program(numbers), schemas_of(numbers), threads=1)
    tables = read_tables(files, relations_of(numbers))
    input_bytes = sum(table.nbytes for table in tables.values())
    forget_peak()
    # The interpreter, the libraries, the kernels, and what reading the files leaves.
    base = Memory.now().resident - input_bytes
    outputs: list[dict[str, pa.Table]] = []
    wall, usage = time.perf_counter(), _cpu_seconds()
    for step in slices(tables, slice_rows):
        outputs.append(circuit.step(step))
    user, system = (after - before for after, before in zip(_cpu_seconds(), usage, strict=True))
    wall = time.perf_counter() - wall
    peak = Memory.now().peak_resident - base
    state = state_bytes(circuit)
    rows = sum(table.num_rows for table in tables.values())
    lineitems = tables["lineitem"].num_rows if "lineitem" in tables else 0
    rate = lineitems / (user + system) if lineitems else None
    target = TARGET_RATES.get(case)
    ratio = peak / (input_bytes + state)
    return {
        "query": case,
        "rows/step": slice_rows,
        "rows": rows,
        "user s": user,
        "system s": system,
        "wall s": wall,
        "rows per CPU second": round(rows / (user + system)),
        "lineitems per CPU second": None if rate is None else round(rate),
        "target": target,
        "met": None if target is None or rate is None else rate >= target,
        "input MB": input_bytes / MEGABYTE,
        "state MB": state / MEGABYTE,
        "peak MB": peak / MEGABYTE,
        "peak/(input + state)": ratio,
        "memory target": TARGET_PEAK,
        "memory met": ratio <= TARGET_PEAK,
        "as DuckDB": is_exact(numbers, outputs, tables) if is_checked else None,
    }


def forget_peak() -> None:
    """Return freed memory to the system, and let the peak of this process begin here.

    Otherwise the peak is that of reading the Parquet files.
    """
    free_unused_memory()
    Path("/proc/self/clear_refs").write_text("5")


def slices(tables: Mapping[str, pa.Table], size: int | None) -> Iterator[dict[str, pa.Table]]:
    """Yield the rows of all tables in steps with at most ``size`` rows of each table.

    >>> [step["t"].num_rows for step in slices({"t": pa.table({"n": range(5)})}, 2)]
    [2, 2, 1]
    """
    most = max(table.num_rows for table in tables.values())
    size = size or most
    for first in range(0, most, size):
        yield {
            name: table.slice(first, size)
            for name, table in tables.items()
            if first < table.num_rows
        }


def state_bytes(circuit: Circuit) -> int:
    """Return the bytes of all runs and dictionaries of a circuit."""
    dictionaries = circuit.graph.registry.dictionaries.values()
    traces = circuit.graph.traces.values()
    return sum(entry.spine.nbytes for trace in traces for entry in trace.arrangements) + sum(
        entry.nbytes for entry in dictionaries
    )


def is_exact(
    numbers: Sequence[int],
    outputs: Iterable[Mapping[str, pa.Table]],
    tables: Mapping[str, pa.Table],
) -> bool:
    """Return whether the sums of the deltas are DuckDB's answers over the tables."""
    sums = add_deltas(outputs)
    with duckdb.connect(config={"threads": 1}) as database:
        for name, table in tables.items():
            database.register(f"{name}_rows", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
            database.unregister(f"{name}_rows")
        return all(
            same_rows(sums[f"q{number}"], Counter(database.execute(QUERIES[number]).fetchall()))
            for number in numbers
        )


def add_deltas(
    outputs: Iterable[Mapping[str, pa.Table]],
) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return the sum of the deltas of each view."""
    sums: dict[str, Counter[tuple[Any, ...]]] = {}
    for output in outputs:
        for name, delta in output.items():
            answer = sums.setdefault(name, Counter())
            for row in zip(*(column.to_pylist() for column in delta.columns), strict=True):
                answer[row[:-1]] += row[-1]
    return sums


def same_rows(left: Mapping[tuple[Any, ...], int], right: Mapping[tuple[Any, ...], int]) -> bool:
    """Return whether two bags have the same rows; floats may differ by a relative 1e-9.

    >>> same_rows({(1, 0.5): 1, (2, 0.1): 0}, {(1, 0.5 + 1e-12): 1})
    True
    """
    first, second = (
        sorted((_sort_key(row), row, n) for row, n in rows.items() if n) for rows in (left, right)
    )
    return len(first) == len(second) and all(
        n == m and len(a) == len(b) and all(map(_same_value, a, b))
        for (_, a, n), (_, b, m) in zip(first, second, strict=True)
    )


def _sort_key(row: tuple[Any, ...]) -> tuple[str, tuple[float, ...]]:
    """Return a key of the exact values of a row, and after them of its floats."""
    exact = [
        str(v.normalize()) if isinstance(v, Decimal) else str(v)
        for v in row
        if not isinstance(v, float)
    ]
    return repr(exact), tuple(v for v in row if isinstance(v, float))


def _same_value(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=FLOAT_TOLERANCE)
    return left == right


def _cpu_seconds() -> tuple[float, float]:
    """Return the user and system seconds of all threads of this process."""
    times = os.times()
    return times.user, times.system
