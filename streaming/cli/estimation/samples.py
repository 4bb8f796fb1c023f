"""Samples: the rows of all inputs for a fraction of the planned rows.

A sample has the same fraction of each large relation, so the rows that a row joins with stay the
same, in number: a foreign key with a million values in a hundred million rows has ten thousand
values in a million rows. A relation, or a column, with few rows or values is not reduced, because a
currency stays a currency. The views are measured over samples of several fractions (`growth`), so
those whose size grows with the square of the rows, or not at all, are recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming.cli.estimation.generated_rows import generate_rows
from streaming.errors import EventsError

__all__ = ["PlannedInput", "Samples"]


@dataclass(frozen=True)
class PlannedInput:
    """An input with the rows that it will have.

    Attributes:
        schema: Its columns.
        rows: The planned number of rows.
        table: Rows to take samples from; None to generate rows.
        distinct: The number of distinct values of columns, for generated rows.
        keys: The key of the relation, if it has one.
    """

    schema: pa.Schema
    rows: int
    table: pa.Table | None = None
    distinct: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[str, ...] = ()


class Samples:
    """Samples of several inputs.

    Args:
        inputs: The inputs by name.
        max_rows: The rows of the largest input in the largest sample.
        few: Relations and columns with at most this number of rows or values are not reduced.
        seed: The seed of generated rows.

    Attributes:
        max_fraction: The fraction of the planned rows in the largest sample, at most 1.
        sampled: The inputs of which a file has a sample.
    """

    def __init__(
        self, inputs: Mapping[str, PlannedInput], *, max_rows: int, few: int, seed: int = 0
    ) -> None:
        self._inputs = inputs
        self._few = few
        self._rng = np.random.default_rng(seed)
        fractions = [1.0, *(max_rows / planned.rows for planned in inputs.values() if planned.rows)]
        for planned in inputs.values():
            if planned.table is not None and planned.rows > few:
                fractions.append(planned.table.num_rows / planned.rows)
        self.max_fraction = min(fractions)
        self.sampled = [
            name
            for name, planned in inputs.items()
            if planned.table is not None and planned.rows > few
        ]

    def tables(self, fraction: float) -> dict[str, pa.Table]:
        """Return the rows of all inputs for a fraction of the planned rows."""
        return {
            name: self._rows(name, self._reduce(planned.rows, fraction), fraction)
            for name, planned in self._inputs.items()
        }

    def step(self, fraction: float, rows: int) -> dict[str, pa.Table]:
        """Return the rows of a step, divided among the inputs like the planned rows.

        The rows of a file are drawn again, each at most once if the input has a key.
        """
        total = max(1, sum(planned.rows for planned in self._inputs.values()))
        step = {}
        for name, planned in self._inputs.items():
            count = round(rows * planned.rows / total)
            if count and planned.table is not None:
                rows_of_file = planned.table.num_rows
                if planned.keys:
                    indices = self._rng.permutation(rows_of_file)[:count]
                else:
                    indices = self._rng.integers(0, rows_of_file, count)
                step[name] = planned.table.take(indices)
            elif count:
                step[name] = self._generate(planned, count, fraction)
        return step

    def _rows(self, name: str, count: int, fraction: float) -> pa.Table:
        planned = self._inputs[name]
        if planned.table is None:
            return self._generate(planned, count, fraction)
        rows_of_file = planned.table.num_rows
        if rows_of_file < count:
            raise EventsError(
                f"the file of {name!r} has {rows_of_file:,} rows, and {count:,} are needed, "
                f"because an input of at most {self._few:,} rows is not reduced: give "
                f"--rows {name}={rows_of_file}, or a larger file"
            )
        return planned.table.slice(0, count)

    def _generate(self, planned: PlannedInput, count: int, fraction: float) -> pa.Table:
        all_rows = self._reduce(planned.rows, fraction)
        distinct = {
            name: self._reduce(planned.distinct.get(name, planned.rows), fraction)
            for name in planned.schema.names
        }
        return generate_rows(
            planned.schema,
            count,
            distinct,
            planned.keys,
            self._rng,
            key_values=max(count, all_rows),
        )

    def _reduce(self, number: int, fraction: float) -> int:
        """Return a number of rows or values in a sample."""
        return number if number <= self._few else max(1, round(number * fraction))
