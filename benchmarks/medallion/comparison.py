"""Compares the rows of a view with the rows that another system has computed."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SIGN: Final = "sign of the table"


def count_differences(actual: pa.Table, expected: pa.Table) -> int:
    """Return the number of distinct rows that two tables do not have equally often.

    Complexity:
        O(N) time, where N is the number of rows of both tables.

    >>> count_differences(pa.table({"n": [1, 2, 2]}), pa.table({"n": [2, 1, 2]}))
    0
    >>> count_differences(pa.table({"n": [1, 2, 2]}), pa.table({"n": [1, 2, 3]}))
    2
    """
    signed = [
        table.append_column(SIGN, pa.array(np.full(table.num_rows, sign)))
        for table, sign in ((actual, 1), (expected, -1))
    ]
    sums = pa.concat_tables(signed).group_by(expected.column_names).aggregate([(SIGN, "sum")])
    return sums.filter(pc.field(f"{SIGN}_sum") != 0).num_rows
