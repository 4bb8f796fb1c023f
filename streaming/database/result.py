"""Result: the rows of a view or query.

The circuit returns each different row once, with the number of its occurrences as ``weight``. A
`Result` has the rows as SQL has them: a row that occurs three times is there three times, and there
is no column ``weight``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from circuits import CircuitError
from circuits.schema import WEIGHT

__all__ = ["Result"]

#: The rows that the text and the HTML of a result show.
SHOWN_ROWS: Final = 20


class Result:
    """The rows of a view or query at one moment; later steps do not change them.

    Any library that reads Arrow streams accepts a result, for example ``polars.DataFrame(result)``
    or ``duckdb.from_arrow(result.to_arrow())``.

    Args:
        name: The name of the view, or "query", for messages.
        weighted: The rows with a column ``weight``.

    Raises:
        CircuitError: A row has a negative weight, which happens if rows were deleted that did not
            exist.

    >>> rows = Result("v", pa.table({"a": [1, 2], "weight": [2, 1]}))
    >>> rows.to_pylist()
    [{'a': 1}, {'a': 1}, {'a': 2}]
    >>> len(rows)
    3
    """

    def __init__(self, name: str, weighted: pa.Table) -> None:
        weights = weighted.column(WEIGHT).to_numpy()
        table = weighted.drop_columns([WEIGHT])
        if len(weights) and weights.min() < 0:
            row = table.slice(int(weights.argmin()), 1).to_pylist()[0]
            raise CircuitError(
                f"{name}: row {row} occurs {weights.min()} times, because a row was deleted that "
                "did not exist; insert it again"
            )
        if (weights != 1).any():
            table = table.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
        self._table = table
        self._name = name

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, without a copy."""
        return self._table

    def to_pandas(self, **options: Any) -> Any:
        """Return the rows as a pandas DataFrame; options as for `pa.Table.to_pandas`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return self._table.to_pandas(**options)

    def to_polars(self) -> Any:
        """Return the rows as a polars DataFrame.

        Raises:
            ModuleNotFoundError: polars is not installed.
        """
        import polars

        return polars.from_arrow(self._table)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dict for each row."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return self._table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as an Arrow stream (the Arrow PyCapsule interface)."""
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self._table.schema)
        return f"<Result of {self._name}: {len(self):,} row{'s' * (len(self) != 1)} of {columns}>"
