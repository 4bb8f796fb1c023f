"""Values of every type in SQLite, DuckDB and a real PostgreSQL server."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from streaming.errors import TargetError
from streaming.targets.sql import SqlTarget
from streaming.targets.target import ViewDelta
from tests.generators.view_histories import canonical
from tests.support.databases import new_table_name

UTC = datetime.UTC
MICROSECONDS = 1_700_000_000_123_456
TIMESTAMP = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
# Type, value, value that PostgreSQL and DuckDB return, value that SQLite returns
VALUES = [
    (pa.bool_(), True, True, 1),
    (pa.int8(), -128, -128, -128),
    (pa.uint8(), 255, 255, 255),
    (pa.uint16(), 2**16 - 1, 2**16 - 1, 2**16 - 1),
    (pa.uint32(), 2**32 - 1, 2**32 - 1, 2**32 - 1),
    (pa.int64(), -(2**63) + 1, -(2**63) + 1, -(2**63) + 1),
    (pa.uint64(), 2**63 - 1, Decimal(2**63 - 1), 2**63 - 1),
    (pa.uint64(), 2**64 - 2, Decimal(2**64 - 2), TargetError),
    (pa.float32(), 0.1, 0.10000000149011612, 0.10000000149011612),
    (pa.float64(), float("inf"), float("inf"), float("inf")),
    (pa.float64(), float("nan"), float("nan"), "NaN"),
    (pa.decimal128(9, 2), Decimal("-1.50"), Decimal("-1.50"), "-1.50"),
    (pa.decimal256(60, 3), Decimal(f"{10**50}.125"), Decimal(f"{10**50}.125"), f"{10**50}.125"),
    (pa.decimal128(5, -2), Decimal("1E+4"), Decimal(10000), "10000"),
    (pa.string(), "a\tb\\\n'é🎈", "a\tb\\\n'é🎈", "a\tb\\\n'é🎈"),
    (pa.string(), "", "", ""),
    (pa.string(), "\\N", "\\N", "\\N"),
    (pa.string_view(), "view", "view", "view"),
    (pa.dictionary(pa.int8(), pa.string()), "word", "word", "word"),
    (pa.string(), "nul\0", TargetError, "nul\0"),
    (pa.binary(), b"\0\xff\\", b"\0\xff\\", b"\0\xff\\"),
    (pa.binary(2), b"\0\n", b"\0\n", b"\0\n"),
    (pa.date32(), datetime.date(1, 1, 1), datetime.date(1, 1, 1), "0001-01-01"),
    (pa.date32(), datetime.date(9999, 12, 31), datetime.date(9999, 12, 31), "9999-12-31"),
    (pa.date32(), -719163, TargetError, TargetError),
    (pa.date64(), datetime.date(2024, 2, 29), datetime.date(2024, 2, 29), "2024-02-29"),
    (pa.time32("s"), datetime.time(1, 2, 3), datetime.time(1, 2, 3), "01:02:03"),
    (pa.time64("us"), datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4), "01:02:03.000004"),
    (pa.time64("ns"), 1001, TargetError, "00:00:00.000001001"),
    (pa.timestamp("us"), MICROSECONDS, TIMESTAMP, "2023-11-14 22:13:20.123456"),
    (pa.timestamp("us", "Europe/Vienna"), MICROSECONDS, TIMESTAMP.replace(tzinfo=UTC),
     "2023-11-14 22:13:20.123456+00:00"),
    (pa.timestamp("ns"), MICROSECONDS * 1000, TIMESTAMP, "2023-11-14 22:13:20.123456000"),
    (pa.timestamp("ns"), MICROSECONDS * 1000 + 1, TargetError, "2023-11-14 22:13:20.123456001"),
    (pa.timestamp("s"), 2**40, TargetError, TargetError),
    (pa.timestamp("us", "UTC"), -(2**62), TargetError, TargetError),
    (pa.duration("us"), datetime.timedelta(microseconds=-5), -5, -5),
    (pa.null(), None, None, None),
]  # fmt: skip
# Type, value, value that DuckDB returns if it differs; some are texts, as Python cannot hold them.
IN_DUCKDB = [
    (pa.decimal256(60, 3), Decimal(f"{10**50}.125"), TargetError),
    (pa.string(), "nul\0", "nul\0"),
    (pa.date32(), -719163, "0001-12-31 (BC)"),
    (pa.time64("ns"), 1001, datetime.time(0, 0, 0, 1)),
    (pa.timestamp("ns"), MICROSECONDS * 1000 + 1, TIMESTAMP),
    (pa.timestamp("s"), 2**40, "36812-02-20 00:36:16"),
    (pa.timestamp("us", "UTC"), -(2**62), "144170-06-28 (BC) 09:59:32.612096+00"),
]


@pytest.mark.parametrize(
    ("type_", "value", "in_postgres", "in_sqlite"), VALUES, ids=lambda value: str(value)[:30]
)
def test_values_of_every_type_are_written(database, type_, value, in_postgres, in_sqlite):
    expected = in_sqlite if database.name == "sqlite" else in_postgres
    if database.name == "duckdb":
        differing = [row[2] for row in IN_DUCKDB if row[:2] == (type_, value)]
        expected = differing[0] if differing else expected
    if pa.types.is_temporal(type_) and isinstance(value, int):
        column = pa.array([value, None], f"int{type_.bit_width}").view(type_)
    elif pa.types.is_dictionary(type_):
        column = pa.array([value, None]).dictionary_encode().cast(type_)
    else:
        column = pa.array([value, None], type_)
    rows = pa.table({"key": column, "n": [1, 2], "weight": [1, 1]})
    for mode in ("delta", "upsert", "complete"):
        if mode == "upsert" and pa.types.is_null(type_):
            continue  # both rows have the same key
        keys = ("key",) if mode == "upsert" else ()
        table = new_table_name()
        target = SqlTarget(database.connect, table)
        if expected is TargetError:
            with pytest.raises(TargetError):
                target.write(ViewDelta("v", 0, rows, mode, keys))
            continue

        target.write(ViewDelta("v", 0, rows, mode, keys))
        if mode == "upsert":  # the row is replaced by its key
            target.write(ViewDelta("v", 1, rows, mode, keys))
        actual = database.rows(f'SELECT key, n FROM "{table}" ORDER BY n')

        assert canonical(actual[0]) == canonical((expected, 1))
        assert actual[1:] == [(None, 2)]
        if mode == "upsert":
            deleted = rows.set_column(2, "weight", pa.array([-1, -1]))
            target.write(ViewDelta("v", 2, deleted, mode, keys))
            assert database.rows(f'SELECT * FROM "{table}"') == []
        target.close()
