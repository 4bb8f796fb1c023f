"""Shared by the parts of `benchmarks.sink`: the view of triangles, and a sink without Spark.

The view counts rows of ``e(a, b), e(b, c), e(a, c)``, so it keeps two arrangements of ``e``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits import Circuit, compile_sql

Integers = npt.NDArray[np.int64]

TRIANGLES: Final = """
    SELECT count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst
"""


def micro_batch_of(table: pa.Table) -> Any:
    """Wrap rows as a stand-in for the DataFrame of a micro-batch, so that no Spark is needed."""
    return SimpleNamespace(toArrow=lambda: table, sparkSession=SimpleNamespace())


def triangles_circuit(column_type: pa.DataType | None = None) -> Circuit:
    """Compile the view ``triangles`` over ``e(src, dst)`` of columns of this type, or of int64."""
    column_type = column_type or pa.int64()
    schema = pa.schema([pa.field("src", column_type, False), pa.field("dst", column_type, False)])
    return compile_sql(TRIANGLES, {"e": schema}, name="triangles")


def changes_table(source: Integers, target: Integers, weight: Integers | int = 1) -> pa.Table:
    """Return the table of changed edges with their weights."""
    weights = np.broadcast_to(np.asarray(weight, np.int64), len(source))
    return pa.table({"src": source, "dst": target, "weight": np.ascontiguousarray(weights)})


def count_change(table: pa.Table) -> int:
    """Return the change of the count: its delta deletes the old count and inserts the new one."""
    return int(table["n"].to_numpy() @ table["weight"].to_numpy())
