"""Converts Python rows to Arrow tables of changed rows, and back to bags (rows with weights)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from circuits import Circuit
from tests.oracles.naive_plan import Row, sum_weights

INT = pa.int64()
EDGE = pa.schema([("src", INT), ("dst", INT)])
MARK = pa.schema([("node", INT)])


def whole(*names: str) -> pa.Schema:
    """Columns of integers without NULL."""
    return pa.schema([pa.field(name, INT, nullable=False) for name in names])


def table_of(
    schema: pa.Schema, rows: Iterable[Row], weights: Iterable[int] | None = None
) -> pa.Table:
    """The rows as a table; with a column of weights, if there are any."""
    listed = list(rows)
    arrays = [pa.array([row[i] for row in listed], f.type) for i, f in enumerate(schema)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if weights is None:
        return table
    return table.append_column("weight", pa.array(list(weights), INT))


def edges(*rows: Row, weights: Iterable[int] | None = None) -> pa.Table:
    return table_of(EDGE, rows, weights)


def marks(*nodes: int | None, weights: Iterable[int] | None = None) -> pa.Table:
    return table_of(MARK, [(node,) for node in nodes], weights)


def bag_of(table: pa.Table) -> Counter[Row]:
    """The rows with their weights; NaN and zero in one form, weights of equal rows added up."""
    *columns, weight = (column.to_pylist() for column in table.columns)
    rows = zip(*columns, strict=True) if columns else [()] * len(weight)
    return sum_weights(zip(rows, weight, strict=True))


class Totals:
    """The sums of the deltas of a circuit's views, step by step."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.bags: dict[str, Counter[Row]] = {name: Counter() for name in circuit.outputs}

    def step(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        outputs = self.circuit.step(tables)
        for name, table in outputs.items():
            pairs = [*self.bags[name].items(), *bag_of(table).items()]
            self.bags[name] = sum_weights(pairs)
        return outputs
