"""Edge: what encoding and decoding take of a step, where Arrow tables enter and leave a circuit.

The view joins three relations and has one row for each changed one, so nothing hides the edge: a
line has a customer and a product, whose names and sizes the view shows. Each step brings ``rows``
lines that were never seen, and another takes them away. Every key and name is an int, or a string.

Encoding is all of `Schema.to_zset` (values to codes, and the sort that makes a Z-set of them),
decoding all of `Schema.to_table`; both are timed from outside.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.cost import Clock
from benchmarks.result import Row
from benchmarks.verdict import Verdict
from circuits.compile import compile_sql
from circuits.schema import Schema

VIEW = """
    SELECT line.line, line.day, customer.name, customer.city, product.label
    FROM line
    JOIN customer ON customer.customer = line.customer
    JOIN product ON product.product = line.product"""

_CUSTOMERS, _PRODUCTS = 20_000, 5_000

Column = Callable[[str, Any], pa.Array]


def measure_edge(values: str, *, rows: int, steps: int, seed: int, verdict: Verdict) -> Row:
    """The row of one type of values: "int" or "string"."""
    random = np.random.default_rng(seed)
    column = {"int": _ints, "string": _strings}[values]
    customers, products = np.arange(_CUSTOMERS), np.arange(_PRODUCTS)
    fixed = {
        "customer": pa.table(
            {
                "customer": column("customer", customers),
                "name": column("name", customers + 7),
                "city": column("city", customers % 300),
            }
        ),
        "product": pa.table(
            {"product": column("product", products), "label": column("label", products + 3)}
        ),
    }

    def lines(first: int) -> pa.Table:
        return pa.table(
            {
                "line": column("line", random.permutation(rows) + first),
                "day": column("day", random.integers(0, 365, rows)),
                "customer": column("customer", random.integers(0, _CUSTOMERS, rows)),
                "product": column("product", random.integers(0, _PRODUCTS, rows)),
            }
        )

    held = lines(0)
    schemas = {name: table.schema for name, table in {**fixed, "line": held}.items()}
    circuit = compile_sql(VIEW, schemas)
    circuit.step({**fixed, "line": held})
    verdict.set_truth("rows of a step of lines", rows)
    whole, encoding, decoding = [], [], []
    for step in range(steps + 1):
        fresh = lines((step + 1) * rows)
        for weight in (1, -1):
            change = {"line": fresh.append_column("weight", pa.array(np.full(rows, weight)))}
            gc.collect()
            with _timed(Schema, "to_zset") as encode, _timed(Schema, "to_table") as decode:
                clock = Clock()
                output = circuit.step(change)["view"]
                spent = clock.read().wall
            verdict.compare(
                f"{values}s, step {step}", "rows of a step of lines", _sum(output) * weight
            )
            if step:
                whole.append(spent)
                encoding.append(sum(encode))
                decoding.append(sum(decode))
    step_time, in_, out = (statistics.median(times) for times in (whole, encoding, decoding))
    return {
        "values": values,
        "rows/step": rows,
        "steps": len(whole),
        "step ms": step_time * 1000,
        "encode ms": in_ * 1000,
        "decode ms": out * 1000,
        "encode and decode %": 100 * (in_ + out) / step_time,
        "rows/s": rows / step_time,
    }


def _sum(table: pa.Table) -> int:
    return int(table["weight"].to_numpy().sum())


def _ints(kind: str, numbers: Any) -> pa.Array:
    return pa.array(np.asarray(numbers, np.int64))


def _strings(kind: str, numbers: Any) -> pa.Array:
    return pa.array([f"{kind}-{number:09d}" for number in np.asarray(numbers).tolist()])


@contextmanager
def _timed(owner: type, method: str) -> Iterator[list[float]]:
    """The wall seconds of each call of a method."""
    seconds: list[float] = []
    called = getattr(owner, method)

    def timed(*arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return called(*arguments)
        finally:
            seconds.append(time.perf_counter() - begun)

    with patch.object(owner, method, timed):
        yield seconds
