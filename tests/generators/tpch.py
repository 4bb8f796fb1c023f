"""TPC-H data of scale 0.01, and a stream of changes in the style of its refresh functions.

The data is made by ``tpchgen-cli`` (a package of the extra ``test``), the same rows every time.
The stream goes beyond the two refresh functions. Orders are inserted and deleted with their
lineitems, in separate steps and in one. Customers, suppliers, parts and offers change too, even if
other rows refer to them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tpch.queries import SCHEMAS

__all__ = ["GENERATOR", "Change", "changes", "generate"]

GENERATOR: Final = Path(sys.executable).with_name("tpchgen-cli")

RowNumbers = npt.NDArray[np.int64]
# By relation: the numbers of the rows that are inserted, and of those that are deleted.
Change = dict[str, tuple[RowNumbers, RowNumbers]]

_FIXED: Final = ("nation", "region")
_OTHERS: Final = ("customer", "part", "partsupp", "supplier")


def generate(folder: Path) -> dict[str, pa.Table]:
    """Generate the eight relations."""
    command = [str(GENERATOR), "parquet", "-s", "0.01", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    return {
        name: pq.read_table(folder / f"{name}.parquet").cast(_required(schema))
        for name, schema in SCHEMAS.items()
    }


def _required(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all columns not null, as in the specification and the generator."""
    return pa.schema([field.with_nullable(False) for field in schema])


def changes(relations: Mapping[str, pa.Table], seed: int) -> Iterator[tuple[str, Change]]:
    """Yield a load, refreshes and changes of all tables; then all rows exist, and then none."""
    stream = _Stream(relations, seed)
    load = {name: 0.9 for name in (*_OTHERS, "orders")}
    yield "load", stream.change(insert=load | dict.fromkeys(_FIXED, 1.0))
    yield "insert orders", stream.change(insert={"orders": 0.5})
    yield "delete orders", stream.change(delete={"orders": 0.1})
    yield "insert and delete orders", stream.change({"orders": 0.5}, {"orders": 0.05})
    yield "change the others", stream.change({"customer": 0.5}, dict.fromkeys(_OTHERS, 0.2))
    yield "change all", stream.change(dict.fromkeys(load, 0.4), dict.fromkeys(load, 0.02))
    yield "insert what is missing", stream.change(insert=dict.fromkeys(load, 1.0))
    yield "delete all", stream.change(delete=dict.fromkeys(relations, 1.0))


class _Stream:
    """The rows that are present; a lineitem is present if its order is."""

    def __init__(self, relations: Mapping[str, pa.Table], seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._present = {name: np.zeros(t.num_rows, bool) for name, t in relations.items()}
        self._orders = relations["orders"]["o_orderkey"].to_numpy()
        self._lineitems = relations["lineitem"]["l_orderkey"].to_numpy()

    def change(
        self,
        insert: Mapping[str, float] | None = None,
        delete: Mapping[str, float] | None = None,
    ) -> Change:
        """Insert these shares of the absent rows, and delete those of the present ones."""
        inserts, deletes = insert or {}, delete or {}
        change = {
            name: (
                self._draw_rows(~self._present[name], inserts.get(name, 0.0)),
                self._draw_rows(self._present[name], deletes.get(name, 0.0)),
            )
            for name in {**inserts, **deletes}
            if name != "lineitem"
        }
        if "orders" in change:
            inserted, deleted = (self._lineitems_of(orders) for orders in change["orders"])
            change["lineitem"] = inserted, deleted
        for name, (inserted, deleted) in change.items():
            self._present[name][inserted], self._present[name][deleted] = True, False
        return change

    def _draw_rows(self, mask: npt.NDArray[np.bool_], share: float) -> RowNumbers:
        rows = self._random.permutation(np.flatnonzero(mask))
        return rows[: round(len(rows) * share)]

    def _lineitems_of(self, orders: RowNumbers) -> RowNumbers:
        return np.flatnonzero(np.isin(self._lineitems, self._orders[orders]))
