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


def not_null_integers(*names: str) -> pa.Schema:
    """Return a schema of integer columns that are not null."""
    return pa.schema([pa.field(name, INT, nullable=False) for name in names])


def table_of(
    schema: pa.Schema, rows: Iterable[Row], weights: Iterable[int] | None = None
) -> pa.Table:
    """Return the rows as a table, with a column of weights if weights are given."""
    rows = list(rows)
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if weights is None:
        return table
    return table.append_column("weight", pa.array(list(weights), INT))


def edges(*rows: Row, weights: Iterable[int] | None = None) -> pa.Table:
    return table_of(EDGE, rows, weights)


def marks(*nodes: int | None, weights: Iterable[int] | None = None) -> pa.Table:
    return table_of(MARK, [(node,) for node in nodes], weights)


def bag_of(table: pa.Table) -> Counter[Row]:
    """Return the weight of each row, summed over equal rows; NaN and zero have one form."""
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
