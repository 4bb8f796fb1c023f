"""The oracle of whole queries: DuckDB recomputes them over a copy of a circuit's rows.

It shares no code with the engine. Each relation is a fixed table of rows, some of which are
present. A change names rows by their row numbers, so a delete always names a row that exists, and
equal rows stay different.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.oracles.shared_duckdb import connect_to_new_schema

__all__ = ["Mirror"]

RowNumbers = Mapping[str, npt.NDArray[np.int64]]


class Mirror:
    """All possible rows of the relations; none is present at first.

    Args:
        relations: The rows, by relation.
        views: Texts of views that queries read, in an order in which they can be made.
    """

    def __init__(
        self, relations: Mapping[str, pa.Table], views: Mapping[str, str] | None = None
    ) -> None:
        self.relations = dict(relations)
        self.present = {name: np.zeros(rows.num_rows, bool) for name, rows in relations.items()}
        self._database = connect_to_new_schema()
        for name in relations:
            self._store(name)
        for name, text in (views or {}).items():
            self._database.execute(f"CREATE VIEW {name} AS {text}")

    def insert(self, row_numbers: RowNumbers) -> dict[str, pa.Table]:
        """Make absent rows present; return the deltas for a circuit."""
        return self.change({name: (rows, rows[:0]) for name, rows in row_numbers.items()})

    def delete(self, row_numbers: RowNumbers) -> dict[str, pa.Table]:
        """Make present rows absent; return the deltas for a circuit."""
        return self.change({name: (rows[:0], rows) for name, rows in row_numbers.items()})

    def change(
        self, row_numbers: Mapping[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
    ) -> dict[str, pa.Table]:
        """Insert the rows with the first numbers and delete those with the second, by relation."""
        deltas = {}
        for name, (inserted, deleted) in row_numbers.items():
            present = self.present[name]
            assert not present[inserted].any(), f"{name}: a row is inserted twice"
            assert present[deleted].all(), f"{name}: a row is deleted that is not there"
            present[inserted], present[deleted] = True, False
            weights = np.repeat([1, -1], [len(inserted), len(deleted)])
            rows = self.relations[name].take(np.concatenate([inserted, deleted]))
            deltas[name] = rows.append_column("weight", pa.array(weights, pa.int64()))
            self._store(name)
        return deltas

    def answer(self, text: str) -> list[tuple[object, ...]]:
        """Return DuckDB's answer over the present rows."""
        return self._database.execute(text).fetchall()

    def _store(self, name: str) -> None:
        rows = self.relations[name].filter(pa.array(self.present[name]))
        self._database.register("rows_of", rows)
        self._database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM rows_of")
        self._database.unregister("rows_of")
