"""Which columns of a table are validated before a circuit reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from circuits import SchemaError, compile_sql

SCHEMA = "k bigint, a text, b text"
QUERY = "SELECT k, a FROM t"


def not_utf8(type, offset) -> pa.Array:
    """Return two texts, one of which is not UTF-8; ``offset`` is the integer type of offsets."""
    offsets = pa.py_buffer(np.array([0, 1, 2], offset))
    return pa.Array.from_buffers(type, 2, [None, offsets, pa.py_buffer(b"x\xff")])


def step(**columns: pa.Array) -> list[dict]:
    rows = {"k": [1, 2], "a": ["m", "n"], "b": ["o", "p"], **columns}
    circuit = compile_sql(QUERY, {"t": SCHEMA})
    return circuit.step({"t": pa.table(rows)})["view"].to_pylist()


def test_texts_that_no_view_reads_are_not_validated():
    assert step(b=not_utf8(pa.string(), np.int32)) == step()


@pytest.mark.parametrize(
    "columns",
    [
        {"a": not_utf8(pa.string(), np.int32)},
        {"b": not_utf8(pa.large_string(), np.int64)},  # a cast reads them
    ],
    ids=["read", "cast"],
)
def test_other_damaged_texts_are_refused(columns):
    with pytest.raises(SchemaError, match="relation 't': the table is damaged"):
        step(**columns)
