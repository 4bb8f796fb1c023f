"""Values to cast: the extremes and near ties of each SQL type, and texts that look like values.

The module also lists where a cast differs from DuckDB on purpose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

D = Decimal
DIGITS = [
    *[(1, 0), (1, 1), (4, 2), (9, 9), (18, 0), (18, 18), (19, 3)],
    *[(38, 0), (38, 1), (38, 10), (38, 19), (38, 29), (38, 37), (38, 38)],
]
INTEGERS = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
}
NUMBERS = {
    **INTEGERS,
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    **{f"DECIMAL({p},{s})": pa.decimal128(p, s) for p, s in DIGITS},
}
DATES_AND_TIMESTAMPS = {
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}
#: The types of columns by their names in SQL.
TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    **NUMBERS,
    **DATES_AND_TIMESTAMPS,
    "TIME": pa.time64("us"),
    "VARCHAR": pa.string(),
}
INFINITE = 2**63 - 1  # the timestamp 'infinity'
LAST_DAY = 106_751_991  # in days since 1970: the last one of a timestamp in microseconds

_FLOATS = [
    *[0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999999999994, 1e-10, 1e10, 123456.789],
    *[1.005, 2.675, 0.125, 127.5, 126.5, -128.5, -129.0, 255.5, 32767.5, 2147483647.5],
    *[4294967295.0, 2.0**53 + 2, 9.223372036854775e18, 2.0**63, -(2.0**63), 2.0**64],
    *[1e18, 1e19, 1e37, 1e38, 1e39, 9.99e37, 3.4028234e38, 1e300, -1e300, 5e-324],
    *[math.inf, -math.inf, math.nan, 0.1, 0.3, -0.3, 99.5, 9.5, 9.4, 0.95, 999.995, 1e15, 1e16],
]
_MICROS = [
    *[0, 1, -1, 499_999, 500_000, -500_000, 500_001, -499_999, -500_001, 499, 500, -500, 501],
    *[999, 1499, 1500, -1500, 2500, 1_500_000, -1_500_000, 2_500_000, 999_999, -999_999],
    *[1577836800999500, 1577836800999499, -62135596800000000, -62135596800000001],
    *[253402300799999999, 253402300800000000, 86399999999, 86399999500, 86400000000],
    *[-86400000000, -86399999501, 9223286399999999, 9223371331200000000],
    *[-9223372022399999999, INFINITE - 10**6, INFINITE, -INFINITE],
]
_TICKS = {
    "DATE": [
        *[0, 1, -1, 365, 11016, -719162, -719163, -719164, 2932896, 2932897, -2440588],
        *(sign * day for day in range(LAST_DAY - 1, LAST_DAY + 2) for sign in (1, -1)),
        *(sign * (2**31 - less) for less in (1, 2) for sign in (1, -1)),
    ],
    "TIMESTAMP": _MICROS,
    "TIMESTAMPTZ": _MICROS,
    # DuckDB itself crashes on greater ones.
    "TIMESTAMP_S": [0, 1, -1, 86400, -86401, -62135596801, 253402300800, 9223372036, -9223372037],
    "TIMESTAMP_MS": [
        *[0, 1, -1, 499, 500, -500, 501, -501, 1500, -1500, 2500, 86400000, -86400001],
        *[-62135596800001, 253402300800000, 9223372036854, 9223372036855],
    ],
    "TIMESTAMP_NS": [
        *[0, 1, -1, 499, 500, -500, 501, -501, 1500, -1500, 2500, 499_999, 500_000, -500_000],
        *[499_500, -499_500, 499_999_500, 500_000_000, -500_000_000, 1_500_000_000],
        *[INFINITE - 10**9, INFINITE, -INFINITE, -INFINITE + 10**9],
    ],
    "TIME": [0, 1, 499_999, 500_000, 86_399_999_999, 3_600_000_000, 123_456_789],
}


def _integers(data_type: pa.DataType) -> list[int]:
    bits, signed = data_type.bit_width, arrow.is_signed_integer(data_type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    numbers = {0, 1, 2, 5, 9, 10, 99, 100, 1000, 10**9, 10**18, 10**18 - 1}
    numbers |= {2**k + d for k in (7, 8, 15, 16, 31, 32) for d in (-1, 0)}
    numbers |= {-number for number in numbers} | {least, least + 1, most, most - 1}
    return sorted(number for number in numbers if least <= number <= most)


def _decimals(data_type: pa.DataType) -> list[Decimal]:
    precision, scale = data_type.precision, data_type.scale
    most, half = 10**precision - 1, 5 * 10 ** max(scale - 1, 0)
    numbers = {0, 1, 4, 5, 6, 49, 50, 51, most, most - 4, most // 2, half, 3 * half, 5 * half}
    numbers |= {10**scale, 4294967295 * 10**scale, 127 * 10**scale + half, 10 ** (precision - 1)}
    numbers |= {int("9" * max(precision - 1, 1) + "5")}
    with localcontext() as context:
        context.prec = 80
        return [
            D(sign * n).scaleb(-scale) for n in sorted(numbers) if n <= most for sign in (1, -1)
        ]


def column(name: str) -> pa.Array:
    """Return values of the type ``name``, and a NULL."""
    data_type = TYPES[name]
    if name in _TICKS:
        width = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.array([*_TICKS[name], None], width).view(data_type)
    if name == "BOOLEAN":
        return pa.array([True, False, None], data_type)
    if name == "VARCHAR":
        return pa.array(
            [*dict.fromkeys(t for texts in TEXTS.values() for t in texts), None], data_type
        )
    if arrow.is_floating(data_type):
        with np.errstate(over="ignore", under="ignore"):
            return pa.array(
                [*np.array(_FLOATS).astype(data_type.to_pandas_dtype()), None], data_type
            )
    values = _decimals(data_type) if arrow.is_decimal(data_type) else _integers(data_type)
    return pa.array([*values, None], data_type)


def python_values(values: pa.Array) -> list[Any]:
    """Return the values as Python numbers or texts; dates and times by their numbers."""
    data_type = values.type
    if arrow.is_date(data_type) or arrow.is_time(data_type) or arrow.is_timestamp(data_type):
        values = values.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    return [repr(value) if isinstance(value, float) else value for value in values.to_pylist()]


_NUMBERS = [
    *["0", "-0", "+0", "1", "-1", "+1", " 1", "1 ", "\t1\n", "1.", ".5", "-.5", "+.5", ".", "-"],
    *["+", "", "  ", "1e3", "1E3", "1e+3", "1e-3", "1.5e3", "1e", "e5", "1e1.5", "1_000", "1__0"],
    *["_1", "1_", "1,000", "0x10", "0b11", "0o17", "1 2", "--1", "+-1", "1-", "1.5.5", "1.4999"],
    *["1.5", "2.5", "-1.5", "-2.5", "0.5", "-0.5", "0.49999999999999999999", "127", "128"],
    *["127.4", "127.5", "-128", "-128.4", "-128.5", "-129", "255", "255.5", "256", "32767.5"],
    *["2147483647", "2147483648", "2147483647.5", "4294967295", "4294967296"],
    *["9223372036854775807", "9223372036854775808", "9223372036854775807.4"],
    *["9223372036854775807.5", "-9223372036854775808", "-9223372036854775808.4"],
    *["-9223372036854775808.5", "-9223372036854775809", "18446744073709551615"],
    *["18446744073709551616", "1e18", "1e19", "9.2e18", "1e2", "12e-1", "15e-1", "25e-1"],
    *["149e-2", "1e-400", "0e400", "0e5", "1e400", "1e100", "-1e100", "nan", "NaN", "-nan"],
    *["inf", "-inf", "+inf", "Infinity", "-infinity", "infinit", "9" * 38, "9" * 39],
    *["0.1234567890123456789012345678901234567890", "9.9", "9.95", "9.94", "0.05", "0.95"],
    *["99.994", "99.995", "99.996", "0." + "0" * 38 + "5", "0." + "0" * 37 + "1", "1e-38"],
    *["5e-39", "4e-39", "1e37", "9e37", "1e38", "0.1e1", "100e-2", "1.e5", ".e5", ".5e1"],
    *["4294967295.0", "12345678901234567890.5", "0" * 42 + "1", "00.5", "1." + "0" * 40],
    *["\uff11", "1\u00a0", "1f", "1d", "1L", "$1", "1%", "1/2", "5e-1", "-5e-1", "  -7.5  "],
    *["+ 1", "- 1", "3.4028235e38", "3.5e38", "1e39", "1e-46", "4.9e-324", "1.8e308"],
]
_BOOLEANS = [
    *["true", "false", "TRUE", "tRue", "t", "f", "T", "F", "yes", "no", "y", "n", "Y", "N", "on"],
    *["off", "1", "0", "2", "-1", "1.0", " true ", " t", "tr", "truee", "", "01", "+1"],
]
_DATES = [
    *["2020-01-01", "2020-1-1", "20-01-01", "2-1-1", "0-1-1", "0001-01-01", "0000-12-31"],
    *["-0001-01-01", "-44-03-15", "10000-01-01", "100000-01-01", "999999-01-01"],
    *["5881580-07-10", "5881580-07-11", "-5877641-06-25", "-5877641-06-24"],
    *["5877642-06-25 (BC)", "5877642-06-24 (BC)", "2020/01/01", "2020/1/1", "2020-01/01"],
    *["2020 01 01", "2020\\01\\01", "2020.01.01", "20200101", "2020-01", "2020", "2020-01-"],
    *[" 2020-01-01", "2020-01-01 ", "\t2020-01-01\n", "2020-01-01 garbage", "2020-01-01garbage"],
    *["2020-01-01T", "2020-01-01T10:00:00", "2020-01-01 10:00", "2020-01-01 10"],
    *["2020-01-01Z", "2020-01-01 Z", "2020-01-01 00:30:00+02", "2020-01-01 23:00:00-05:00"],
    *["2020-13-01", "2020-00-01", "2020-01-00", "2020-01-32", "2020-02-29", "2021-02-29"],
    *["2000-02-29", "1900-02-29", "0004-02-29", "0005-02-29 (BC)", "0004-02-29 (BC)"],
    *["2020-04-31", "2020-001-01", "2020-01-001", "02020-01-01", "+2020-01-01"],
    *["44-03-15 (BC)", "44-03-15 BC", "44-03-15(BC)", "44-03-15 (bc)", "44-03-15  (BC)"],
    *["44-03-15 (BC) ", "44-03-15 (BC) x", "0-01-01 (BC)", "-1-01-01 (BC)", "1-01-01 (BC)"],
    *["10-01-01 (BC) 10:00:00", "infinity", "-infinity", "INFINITY", "inf", "-inf", "+infinity"],
    *[
        " infinity ",
        "infinity x",
        "epoch",
        "EPOCH",
        "today",
        "now",
        "x",
        "",
        "  ",
        "2020-01-01\u00a0",
    ],
    *["01/02/2020", "1.5", "12", "2020--01-01", "290309-12-22 (BC)", "290309-12-21 (BC)"],
    *["294247-01-10", "294247-01-11", "1677-09-21", "1677-09-22", "2262-04-11", "2262-04-12"],
    *["9999-12-31", "0001-01-01 (BC)"],
]
_CLOCKS = [
    *["00:00:00", "0:0:0", "1:2:3", "01:02", "1:2", "01", "23:59:59", "24:00:00", "24:00:01"],
    *["24:00", "24:01", "25:00:00", "23:60:00", "23:59:60", "23:59:60.5", "12:00:00.5"],
    *["12:00:00.", "12:00:00.1234567", "12:00:00.123456789", "12:00:00.1234567891"],
    *["12:00:00.9999999", "23:59:59.9999999", "12:00:00x", "12:00:00 x", " 12:00:00"],
    *["12:00:00 ", "12:00:00 PM", "-1:00:00", "012:00:00", "12:000:00", "12:00:000", "1200"],
    *["12-00-00", "12:00:00,5", ":00:00", "12::00", "12:00:", "12:", "12:00:.5", "12:00:."],
    *["12:30 ", "12:30Z", "12:30+02", "12:30: ", "12: ", "12:+02", " 12:30", "12:30:15 +02"],
    *["12:30:15  +02", "12:30:15 +02:30 "],
]
_ZONES = [
    *["+00", "+0", "+02", "-02", "+02:00", "+02:30", "+0230", "+02:3", "+02:30:15", "+15:59"],
    *["+24", "-15:59:59", "+99", "Z", "z", " Z", " UTC", " utc", " GMT", " Europe/Berlin"],
    *[" +02", "+", "-", "+02 ", " x", "UTC", " EST", "ZZ", "+02Z"],
]
_MOMENTS = [
    *_DATES,
    *(f"2020-01-01 {clock}" for clock in _CLOCKS),
    *(f"2020-1-1T{clock}" for clock in _CLOCKS),
    *(f"2020-01-01 10:00:00.5{zone}" for zone in _ZONES),
    *(f"2020-01-01 10:00{zone}" for zone in _ZONES),
    *["2020-01-01  10:00:00", "2020-01-01\t10:00:00", "2020-01-01t10:00:00"],
    *["2020-01-01 T10:00:00", "2020-01-0110:00:00", "290309-12-22 (BC) 00:00:00.000001"],
    *["294247-01-10 04:00:54.775807", "294247-01-10 04:00:54", "294247-01-10 04:00:55"],
    *["1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.9999994", "1969-12-31 23:59:59.5"],
    *["1969-12-31 23:59:58.5", "1970-01-01 00:00:00.5", "1970-01-01 00:00:01.5"],
    *["1970-01-01 00:00:00.0005", "1969-12-31 23:59:59.9995", "1970-01-01 00:00:00.00049999"],
    *["2262-04-11 23:47:16.854775806", "2262-04-11 23:47:16.854775808"],
    *["0044-03-15 (BC) 10:00:00", "9999-12-31 23:59:59.9999999", "2020-12-31 24:00:00"],
    *["2020-12-31 23:59:60", "5881580-07-10 10:00:00", "2020-01-01 10:00:00.123456789+02:00"],
]
#: Texts by the type that they look like.
TEXTS = {
    **dict.fromkeys(NUMBERS, _NUMBERS),
    "BOOLEAN": _BOOLEANS,
    **dict.fromkeys(DATES_AND_TIMESTAMPS, _MOMENTS),
    "TIME": [*_CLOCKS, *(f"12:00:00{zone}" for zone in _ZONES), *_MOMENTS],
}

_WORD_AFTER_CLOCK = re.compile(r":\d*(\.\d*)?\s+(?!\s*$|Z$|(?i:utc|gmt)$|[+-]\d\d(:?\d\d)*\s*$)\S")


def deviates(source: str, target: str, value: Any, ours: Any) -> bool:
    """Return whether a cast differs from DuckDB on purpose.

    See `circuits.types.functions.casting.casts`, and `text_parsing` and `time_parsing` there.
    """
    data_type = TYPES[target]
    if source == "VARCHAR":
        if target in NUMBERS:
            exponent = arrow.is_decimal(data_type) and "e" in value.lower()
            return value in ("0b11", "+-1") or exponent
        if target == "TIME" and ours is None:
            return True  # DuckDB takes any words after a time, and 24:00
        has_word = _WORD_AFTER_CLOCK.search(value) is not None
        # A blank before Z or an offset, which DuckDB accepts in a TIMESTAMP only.
        has_blank = re.search(r" (Z|[+-]\d\d(:?\d\d)*)\s*$", value) is not None
        return (has_word and ours is None) or (target == "TIMESTAMPTZ" and has_blank)
    if source in ("FLOAT", "DOUBLE") and arrow.is_decimal(data_type):
        return bool(data_type.precision > 18)
    # DuckDB makes true the least decimal that there is.
    return (
        source == "BOOLEAN"
        and arrow.is_decimal(data_type)
        and data_type.precision == data_type.scale
    )


def cast_pairs() -> Iterator[tuple[str, str]]:
    """Sources and targets of casts that exist here and in DuckDB."""
    for target in TYPES:
        if target != "VARCHAR":
            yield "VARCHAR", target
    for source in ("BOOLEAN", *NUMBERS):
        yield from ((source, target) for target in ("BOOLEAN", *NUMBERS, "VARCHAR"))
    for source in DATES_AND_TIMESTAMPS:
        for target in (*DATES_AND_TIMESTAMPS, "VARCHAR"):
            if (source, target) != ("TIMESTAMP_NS", "TIMESTAMP_S"):  # DuckDB has no such cast
                yield source, target
        if source not in ("DATE", "TIMESTAMPTZ"):
            yield source, "TIME"
    yield "TIME", "VARCHAR"
