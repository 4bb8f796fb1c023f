"""Casts between all types, for values at their limits, give what Spark gives.

Each text, number, date and moment is cast to each type by TRY_CAST. A cast that Spark refuses is
refused, and every other value is that of Spark, except for the differences of `is_known`.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from circuits import SqlError, compile_sql

TEXTS = """
1|-1|+1| 1 |1.5|1.|1e3|1E-3|.5|-.5|0.05|1_000|nan|NaN|Infinity|-inf|+infinity|1d|1f|0x1p3
9223372036854775807|9223372036854775808|-9223372036854775807|2147483648|128|1e38|1e400|-1e-400|0.1e1
99999999999999999999999999999999999999|true|T|yes|n|0|TRUE |on|off|TrUe|t |ab|1 2|--1|1L|e1|1e|Inf
2024|2024-02|2024-02-30|2024-2-3|+2024-02-03|2024-02-03 10:11:12|2024-02-03T10:11
2024-02-03 25:00:00|2024-02-03 10:11:12.1234567|2024-02-03 10:11:12+01:00
2024-02-03 10:11:12 Europe/Paris
9999-12-31|10000-01-01|+10000-01-01|-0001-01-01|0000-01-01|0001-01-01|epoch|now|today
2024-01-01Z|2024-01-01 00:00:00Z|2024-01-01T00:00:00.000001Z|2024-001
12345.678901234567890123|20240101|2024/01/01|2024-01-01T|2024-01-01 |2024-01-01T1
1-1-1|12-31-1999|2024-13-01|2024-01-01 1:2:3|2024-01-01 10:60:00
2024-02-03 10:11:12 UTC|2024-02-03 10:11:12 GMT+1
""".strip("\n").replace("\n", "|")
NAN, INFINITY = math.nan, math.inf
DAYS = [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10)]
MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2024, 2, 29, 1, 2, 3, 400_000),
]
FLOATS = [0.0, 1.5, -1.5, 2.5, 0.1, 1e7, 1e-3, 9e-4, 127.9, -128.9, NAN, INFINITY, -INFINITY]

LARGE = [2**53 + 2.0, 1e16, 2.0**63, 1e22, 1e37, 1e38, 3.4028235677973366e38, 3.5e38, 1e300]


def decimal_column(precision: int, scale: int, *texts: str) -> tuple[pa.DataType, list[Any]]:
    return pa.decimal128(precision, scale), [Decimal(text) for text in texts]


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "STRING": (pa.string(), ["", "\t2024-01-01\n", "1\x00", "\x01true", "٣", *TEXTS.split("|")]),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "TINYINT": (pa.int8(), [0, 1, -1, 127, -128]),
    "SMALLINT": (pa.int16(), [0, 1, -1, 128, 32767, -32768]),
    "INT": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 86400]),
    "BIGINT": (pa.int64(), [0, 1, -1, 2**63 - 1, 1 - 2**63, 2**31, 10**12]),
    "FLOAT": (pa.float32(), [*FLOATS, 1e10, 1e38, 3.4e38, 1e-45, 16777217.0, 9.3e18, 2.0**63]),
    "DOUBLE": (
        pa.float64(),
        [*FLOATS, *LARGE, 5e-324, 2e-45, 1.005, 2**31 - 0.5, 123456789.123456789],
    ),
    "DECIMAL(2,2)": decimal_column(2, 2, "0.05", "-0.99", "0"),
    "DECIMAL(5,2)": decimal_column(5, 2, "127.99", "-128.99", "0", "1.50", "2.50", "-0.50"),
    "DECIMAL(10,0)": decimal_column(10, 0, "0", "1", "2147483648", "-9999999999"),
    "DECIMAL(13,3)": decimal_column(13, 3, "1700000000.123", "-0.001", "-6213559680"),
    "DECIMAL(18,6)": decimal_column(18, 6, "1700000000.123456", "253402300799.999999"),
    "DECIMAL(20,10)": decimal_column(20, 10, "1E-10", "-1E-7", "9999999999.9999999999", "1.1"),
    "DECIMAL(38,0)": decimal_column(38, 0, 38 * "9", str(2**63), str(2**63 - 1)),
    "DECIMAL(38,38)": decimal_column(38, 38, "0." + 38 * "9", "0.1", "-0.5", "1E-38"),
    "DECIMAL(38,18)": decimal_column(38, 18, "12345678901234567890.123456789012345678", "1E-18"),
    "DATE": (pa.date32(), DAYS),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), MOMENTS),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), MOMENTS),
    "BINARY": (pa.binary(), [b"", b"abc", b"1", b"\x00"]),
}
TARGETS = [*COLUMNS, "DECIMAL(3,1)", "DECIMAL(38,6)", "DECIMAL(10,10)"]
NUMBERS = [name for name in TARGETS if name.endswith(("INT", "FLOAT", "DOUBLE", ")"))]


def is_known(source: str, target: str, found: Any, of_spark: Any) -> bool:
    """Return whether a difference is intended.

    Dates and moments end with the year 9999, as in Python. Spark goes on to the year 294247, and
    its casts of larger decimals overflow. Its optimizer casts an INT to a DOUBLE if the cast is
    INT to FLOAT to DOUBLE. Texts of floats have the fewest digits that name the number; Java 17
    writes some more.
    """
    if target == "TIMESTAMP" and source == "DECIMAL(38,0)":
        return found is None
    if target in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return found is None and not (of_spark[:4].isdigit() and of_spark[4] == "-")
    if target == "FLOAT" and None not in (found, of_spark):
        return bool(np.float32(found) == np.float32(of_spark))
    if target == "STRING" and source in ("FLOAT", "DOUBLE"):
        return bool(found is not None and float(found) == float(of_spark))
    return False


def expression(target: str) -> str:
    """Return a cast whose values Python can compare: texts, except for floats and bytes."""
    if target in ("FLOAT", "DOUBLE"):
        return f"CAST(TRY_CAST(x AS {target}) AS DOUBLE)"
    if target == "BINARY":
        return "hex(TRY_CAST(x AS BINARY))"
    return f"CAST(TRY_CAST(x AS {target}) AS STRING)"


def as_comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.spark
@pytest.mark.parametrize("source", COLUMNS)
def test_a_cast_is_that_of_spark(spark, tmp_path, source):
    errors = pytest.importorskip("pyspark.errors")
    type_, values = COLUMNS[source]
    rows = [*values, None]
    table = pa.table({"i": pa.array(range(len(rows)), pa.int32()), "x": pa.array(rows, type_)})
    parquet.write_table(table, tmp_path / "t.parquet")
    spark.read.parquet(str(tmp_path / "t.parquet")).createOrReplaceTempView("t")
    targets = []
    for target in TARGETS:
        try:
            spark.sql(f"SELECT {expression(target)} FROM t")
        except errors.AnalysisException:
            if source == "TIMESTAMP_NTZ" and target in NUMBERS:
                continue  # the seconds since 1970, as for TIMESTAMP
            with pytest.raises(SqlError):
                compile_sql(
                    f"SELECT {expression(target)} AS a FROM t",
                    {"t": table.schema},
                    dialect="spark",
                )
        else:
            targets.append(target)
    columns = [f"{expression(target)} AS c{k}" for k, target in enumerate(targets)]
    query = f"SELECT i, {', '.join(columns)} FROM t"
    view = compile_sql(query, {"t": table.schema}, dialect="spark").step({"t": table})["view"]
    found, of_spark = (
        sorted(rows, key=lambda row: row["i"])
        for rows in (view.to_pylist(), spark.sql(query).toArrow().to_pylist())
    )
    different = {}
    for k, target in enumerate(targets):
        for row, expected in zip(found, of_spark, strict=True):
            ours, theirs = as_comparable(row[f"c{k}"]), as_comparable(expected[f"c{k}"])
            if ours != theirs and not is_known(source, target, ours, theirs):
                different[target, rows[row["i"]]] = ours, theirs
    assert not different
