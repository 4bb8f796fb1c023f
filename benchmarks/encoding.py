"""Measures the encoding of a step's rows as integer codes, and the decoding of its result.

The view joins lines of orders with their customer and their product. It has one result row for each
changed line, so the join itself is cheap. Each step inserts ``rows`` new lines, and the next
step deletes them. All keys and names are ints, or all are strings.

Encoding is all of `Schema.encode_table`: values to integer codes, and the sort that makes a Z-set
of them. Decoding is all of `Schema.to_table`. Both methods are timed.
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

# Makes a column of values from a name and an array of integers.
Column = Callable[[str, Any], pa.Array]


def measure_encoding(values: str, *, rows: int, steps: int, seed: int, verdict: Verdict) -> Row:
    """Measure one type of values, "int" or "string"; return its row of the table."""
    random = np.random.default_rng(seed)
    make_column: Column = {"int": _ints, "string": _strings}[values]
    customers, products = np.arange(_CUSTOMERS), np.arange(_PRODUCTS)
    dimensions = {
        "customer": pa.table(
            {
                "customer": make_column("customer", customers),
                "name": make_column("name", customers + 7),
                "city": make_column("city", customers % 300),
            }
        ),
        "product": pa.table(
            {
                "product": make_column("product", products),
                "label": make_column("label", products + 3),
            }
        ),
    }

    def draw_lines(first: int) -> pa.Table:
        """Draw lines of orders, numbered from ``first`` on."""
        return pa.table(
            {
                "line": make_column("line", random.permutation(rows) + first),
                "day": make_column("day", random.integers(0, 365, rows)),
                "customer": make_column("customer", random.integers(0, _CUSTOMERS, rows)),
                "product": make_column("product", random.integers(0, _PRODUCTS, rows)),
            }
        )

    relations = {**dimensions, "line": draw_lines(0)}
    circuit = compile_sql(VIEW, {name: table.schema for name, table in relations.items()})
    circuit.step(relations)
    verdict.set_truth("rows of a step of lines", rows)
    step_seconds, encode_seconds, decode_seconds = [], [], []
    for step in range(steps + 1):
        new_lines = draw_lines((step + 1) * rows)
        for weight in (1, -1):
            change = {"line": new_lines.append_column("weight", pa.array(np.full(rows, weight)))}
            gc.collect()
            with (
                _timed(Schema, "encode_table") as encode_calls,
                _timed(Schema, "to_table") as decode_calls,
            ):
                clock = Clock()
                output = circuit.step(change)["view"]
                seconds = clock.read().wall
            assert encode_calls and decode_calls, "a step does not call the timed methods"
            inserted = _sum_weights(output) * weight
            verdict.compare(f"{values}s, step {step}", "rows of a step of lines", inserted)
            if step:  # the first step is a warm-up
                step_seconds.append(seconds)
                encode_seconds.append(sum(encode_calls))
                decode_seconds.append(sum(decode_calls))
    step_median = statistics.median(step_seconds)
    encode_median = statistics.median(encode_seconds)
    decode_median = statistics.median(decode_seconds)
    return {
        "values": values,
        "rows/step": rows,
        "steps": len(step_seconds),
        "step ms": step_median * 1000,
        "encode ms": encode_median * 1000,
        "decode ms": decode_median * 1000,
        "encode and decode %": 100 * (encode_median + decode_median) / step_median,
        "rows/s": rows / step_median,
    }


def _sum_weights(table: pa.Table) -> int:
    return int(table["weight"].to_numpy().sum())


def _ints(name: str, numbers: Any) -> pa.Array:
    return pa.array(np.asarray(numbers, np.int64))


def _strings(name: str, numbers: Any) -> pa.Array:
    return pa.array([f"{name}-{number:09d}" for number in np.asarray(numbers).tolist()])


@contextmanager
def _timed(owner: type, method: str) -> Iterator[list[float]]:
    """Collect the wall seconds of each call of a method."""
    seconds: list[float] = []
    original = getattr(owner, method)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    with patch.object(owner, method, timed):
        yield seconds
