"""Published tables in Parquet files: what is read again is what was written, with its types."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.errors import StateDamagedError, StateError
from streaming.state.parquet import encode_parquet, read_parquet

NOON = datetime(2020, 1, 2, 12)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOON, None], pa.timestamp("s")),
        pa.array([NOON, None], pa.timestamp("s", "UTC")),
        pa.array([NOON, None], pa.timestamp("ns")),
        pa.array([time(12, 30), None], pa.time32("s")),
        pa.array([date(2020, 1, 2), None], pa.date64()),
        pa.array([[NOON], None], pa.list_(pa.timestamp("s"))),
        pa.array([{"t": NOON}, None], pa.struct({"t": pa.timestamp("s")})),
        pa.array(["a", None], pa.large_string()),
        pa.array([Decimal(12300), None], pa.decimal128(5, -2)),
        pa.array([Decimal(12300), None], pa.decimal32(5, -2)),
        pa.array([[Decimal(12300)], None], pa.list_(pa.decimal128(5, -2))),
        pa.array([Decimal("1E10"), None], pa.decimal256(76, -10)),
        pa.array([b"", None], pa.binary(0)),
        pa.array([{"b": [b""]}, None], pa.struct({"b": pa.list_(pa.binary(0))})),
    ],
    ids=lambda column: str(column.type),
)
def test_a_replay_reads_the_types_that_were_written(column):
    table = pa.table({"v": column, "weight": pa.array([1, -1])})
    table = table.replace_schema_metadata({"key": "value"})
    (data,) = encode_parquet(table)
    assert read_parquet(data, "v.parquet").equals(table, check_metadata=True)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([None], pa.struct([])), "no structs without fields: leave the column out"),
        (pa.array([[None]], pa.list_(pa.struct([]))), "no structs without fields"),
        (
            pa.Array.from_buffers(
                pa.decimal256(76, -10), 1, [None, pa.py_buffer((10**70).to_bytes(32, "little"))]
            ),
            r"cannot be stored as decimal256\(76, 0\).*cast it in the view",
        ),
    ],
    ids=["struct", "list of structs", "decimal"],
)
def test_values_that_parquet_cannot_store_are_refused_by_column(column, reason):
    with pytest.raises(StateError, match=f"column 'v' of type .*{reason}"):
        list(encode_parquet(pa.table({"v": column})))


def test_a_file_of_another_program_is_refused():
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"v": [1]}), sink, compression="none", use_dictionary=False, store_schema=False
    )
    with pytest.raises(StateDamagedError, match="not a Parquet file of this library"):
        read_parquet(sink.getvalue(), "v.parquet")
