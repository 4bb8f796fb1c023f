"""Published tables in Parquet files: what is read again is what was written, with its types."""

from __future__ import annotations

from datetime import date, datetime, time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.errors import StateDamagedError
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
    ],
    ids=lambda column: str(column.type),
)
def test_a_replay_reads_the_types_that_were_written(column):
    table = pa.table({"v": column, "weight": pa.array([1, -1])})
    (data,) = encode_parquet(table)
    assert read_parquet(data, "v.parquet").equals(table)


def test_a_file_of_another_program_is_refused():
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"v": [1]}), sink, compression="none", use_dictionary=False, store_schema=False
    )
    with pytest.raises(StateDamagedError, match="not a Parquet file of this library"):
        read_parquet(sink.getvalue(), "v.parquet")
