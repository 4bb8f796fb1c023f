"""SMALL STEPS: one order with its lineitems through all 22 views in one circuit.

Some orders are left out of the load. Each of them is inserted with its lineitems, then updated (a
deletion and an insertion of the order and each lineitem, with other prices, quantities and dates),
then deleted, each in one step. A step without rows gives the cost of the operators that have
nothing to do. The steps are timed without an observer, and then counted: the operators that are run
and the Python functions that are called.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.result import Row
from benchmarks.tpch.data import program, read_tables, schemas_of
from benchmarks.tpch.loading import is_exact
from benchmarks.tpch.queries import QUERIES
from circuits import Circuit, compile_sql
from dbsp_wcoj import warm_up

IDLE: Final = "no rows"
TARGET_MS: Final = 4.0
TARGET_IDLE_US: Final = 10.0  # per operator of the circuit
WARM_UP_ORDERS: Final = 10
COUNTED_ORDERS: Final = 3

Delta = dict[str, pa.Table]


class SmallSteps:
    """All views over the tables of a folder, and the changes of single orders.

    Args:
        files: The folder with the tables.
        orders: The number of orders that are left out of the load.
        seed: Which orders these are.
    """

    def __init__(self, files: Path, orders: int, seed: int) -> None:
        self.tables = read_tables(files)
        self.circuit: Circuit = compile_sql(
            program(list(QUERIES)), schemas_of(list(QUERIES)), threads=1
        )
        keys = self.tables["orders"]["o_orderkey"].to_numpy()
        self._keys = np.random.default_rng(seed).permutation(keys)[:orders]
        self.loaded = dict(self.tables)
        for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            is_held = pc.is_in(self.tables[name][column], pa.array(self._keys))
            self.loaded[name] = self.tables[name].filter(pc.invert(is_held))
            self.tables[name] = self.tables[name].filter(is_held)
        self.outputs = [self.circuit.step(self.loaded)]

    def orders(self, number: int) -> Iterator[dict[str, Delta]]:
        """Yield the steps of the first orders by name: "insert", "update" and "delete"."""
        for key in self._keys[:number]:
            rows = {
                name: self.tables[name].filter(pc.equal(self.tables[name][column], int(key)))
                for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
            }
            updated = {name: update_rows(name, table) for name, table in rows.items()}
            yield {
                "insert": {name: weighted(table, 1) for name, table in rows.items()},
                "update": {
                    name: pa.concat_tables([weighted(table, -1), weighted(updated[name], 1)])
                    for name, table in rows.items()
                },
                "delete": {name: weighted(table, -1) for name, table in updated.items()},
            }

    def step(self, delta: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Apply a step and keep its outputs for `is_exact`."""
        outputs = self.circuit.step(delta)
        self.outputs.append(outputs)
        return outputs

    def is_exact(self, inserted: Mapping[str, pa.Table]) -> bool:
        """Return whether the views are those of the load and of the inserted rows."""
        tables = {
            name: pa.concat_tables([table, inserted[name]]) if name in inserted else table
            for name, table in self.loaded.items()
        }
        return is_exact(list(QUERIES), self.outputs, tables)


def measure(files: Path, scale: float, orders: int, seed: int, is_checked: bool) -> list[Row]:
    """Return a row for each kind of step."""
    warm_up()
    steps = SmallSteps(files, orders + WARM_UP_ORDERS, seed)
    times: dict[str, list[float]] = {}
    for number, changes in enumerate(steps.orders(orders + WARM_UP_ORDERS)):
        for kind, delta in {**changes, IDLE: {}}.items():
            begin = time.process_time()
            outputs = steps.circuit.step(delta)
            seconds = time.process_time() - begin
            steps.outputs.append(outputs)
            if number >= WARM_UP_ORDERS:
                times.setdefault(kind, []).append(seconds)
    counts = count(steps, COUNTED_ORDERS)
    operators = len(steps.circuit.graph.nodes)
    exact: bool | None = None
    if is_checked:
        *_, last = steps.orders(1)
        steps.step(last["insert"])
        inserted = {name: table.drop_columns(["weight"]) for name, table in last["insert"].items()}
        exact = steps.is_exact(inserted)
    rows: list[Row] = []
    for kind, seconds in times.items():
        milliseconds = 1e3 * median(seconds)
        idle_us = 1e3 * milliseconds / operators if kind == IDLE else None
        rows.append(
            {
                "scale": scale,
                "step": kind,
                "operators": operators,
                "operators run": counts[kind][0],
                "Python calls": counts[kind][1],
                "median CPU ms": milliseconds,
                "p99 CPU ms": 1e3 * float(np.percentile(seconds, 99)),
                "target ms": None if kind == IDLE else TARGET_MS,
                "idle operator us": idle_us,
                "target us": TARGET_IDLE_US if kind == IDLE else None,
                "met": milliseconds <= TARGET_MS if idle_us is None else idle_us <= TARGET_IDLE_US,
                "as DuckDB": exact,
            }
        )
    return rows


def count(steps: SmallSteps, orders: int) -> dict[str, tuple[int, int]]:
    """Return the operators that a step runs and the Python functions that it calls, by step."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for changes in steps.orders(orders):
        for kind, delta in {**changes, IDLE: {}}.items():
            counts.setdefault(kind, []).append(count_step(steps, delta))
    return {
        kind: (
            round(median(operators for operators, _ in pairs)),
            round(median(calls for _, calls in pairs)),
        )
        for kind, pairs in counts.items()
    }


def count_step(steps: SmallSteps, delta: Mapping[str, pa.Table]) -> tuple[int, int]:
    """Apply a step; return the operators that it runs and the Python functions that it calls."""
    run: list[str] = []
    calls = count_calls(lambda: steps.step(delta))
    steps.circuit.observe(lambda name, kind, views: run.append(name))
    negated = {
        name: table.set_column(
            table.column_names.index("weight"), "weight", pc.negate(table["weight"])
        )
        for name, table in delta.items()
    }
    steps.step(negated)  # this has the same operators, without the calls of the observer above
    steps.circuit.observe(None)
    steps.step(delta)
    return len(run), calls


def count_calls(function: Callable[[], object]) -> int:
    """Return how many Python functions a function calls."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.collect()
    gc.disable()  # it would call finalizers of other objects
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls - 1  # without the call of the function itself


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return rows with a column ``weight``."""
    weights: npt.NDArray[np.int64] = np.full(rows.num_rows, weight, np.int64)
    return rows.append_column("weight", pa.array(weights))


def update_rows(name: str, rows: pa.Table) -> pa.Table:
    """Return rows of orders or lineitems with other prices, quantities and dates."""
    if name == "orders":
        return _changed(rows, "o_totalprice", pc.add(rows["o_totalprice"], pa.scalar(1)))
    day = pc.add(rows["l_shipdate"].cast(pa.int32()), pa.scalar(1, pa.int32())).cast(pa.date32())
    rows = _changed(rows, "l_quantity", pc.add(rows["l_quantity"], pa.scalar(1)))
    return _changed(rows, "l_shipdate", day)


def _changed(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.column_names.index(column)
    field = rows.schema.field(column)
    return rows.set_column(place, field, values.cast(field.type))
