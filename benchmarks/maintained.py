"""Maintains the count of an LSQB query in a circuit; `benchmarks.recomputed` recomputes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from benchmarks import lsqb
from circuits.compile import compile_sql


class MaintainedQuery:
    """A circuit with the SQL view of a query and the views that it reads, empty at first.

    >>> relations = lsqb.generate_network(30, 0)
    >>> view = MaintainedQuery("q6", lsqb.select_relations(relations, "q6"))
    >>> count = view.step(lsqb.select_relations(relations, "q6"))
    >>> view.step(with_weight({"Person_hasInterest_Tag": relations["Person_hasInterest_Tag"]}, -1))
    0
    """

    def __init__(self, query: str, relations: lsqb.Relations) -> None:
        self._query, self._count = query, 0
        schemas = {name: rows.schema for name, rows in relations.items()}
        self._circuit = compile_sql(
            lsqb.view_statements(query), schemas, outputs=[query], threads=1
        )

    def step(self, delta: Mapping[str, pa.Table]) -> int:
        """Apply a delta and return the count; rows without a column ``weight`` are inserted."""
        output = self._circuit.step(delta)[self._query]
        self._count += int(np.dot(output["n"].to_numpy(), output["weight"].to_numpy()))
        return self._count


def with_weight(rows: Mapping[str, pa.Table], weight: int) -> dict[str, pa.Table]:
    """Add a column ``weight`` with the same value for all rows."""
    return {
        name: table.append_column("weight", pa.array(np.full(table.num_rows, weight)))
        for name, table in rows.items()
    }
