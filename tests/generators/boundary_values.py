"""Boundary values of every type, and the SQL that is evaluated with them, here and in DuckDB.

The values are those at which arithmetic overflows, rounds or changes its sign: the limits of the
integers, the infinities, -0.0, the greatest and the least floats, decimals of 38 digits, the first
and the last representable days, midnights around 1970, leap days, texts with combining characters
and characters of four bytes, NULL and empty lists.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["FAMILIES", "VALUES", "BoundaryCase", "boundary_table"]

MAX = 2**63 - 1
DAY = 86_400_000_000
LAST_DAY = 106_751_991  # of timestamps in microseconds
NINES = Decimal("9" * 38)


def _times(data_type: pa.DataType, *ticks: int) -> pa.Array:
    integers = pa.int32() if data_type == pa.date32() else pa.int64()
    return pa.array([None, *ticks], integers).view(data_type)


def _values(data_type: pa.DataType, *values: Any) -> pa.Array:
    return pa.array([None, *values], data_type)


_TICKS = (
    *(0, -1, 1, -DAY // 2, 499, -1500, 951_782_400_000_000, 951_868_799_999_999),
    *(253_402_300_799_999_999, -62_135_596_800_000_001, 2_530_000_000_000_000),
    *(MAX, -MAX, MAX - 1, -LAST_DAY * DAY, 9 * 10**18, -9 * 10**18),
)
#: By a short name of the type: NULL and the boundary values.
VALUES: dict[str, pa.Array] = {
    "i32": _values(pa.int32(), 0, 1, -1, 3, -7, 31, 2**31 - 1, -(2**31)),
    "i64": _values(
        *(pa.int64(), 0, 1, -1, 2, -3, 63, 64, 2**31, -(2**31), 2**32, 10**18, 2**62, -(2**62)),
        *(MAX, -MAX, MAX - 1, 2**53 + 1),
    ),
    "big": _values(pa.int64(), MAX, -MAX, MAX - 1, 2**62, -(2**62), 10**18, -5 * 10**18),
    "tiny": _values(pa.int8(), 0, 1, -1, 2, -5, 12),
    "u64": _values(pa.uint64(), 0, 1, 2**63 - 1, 2**63, 2**64 - 2),
    "f64": _values(
        *(pa.float64(), 0.0, -0.0, 0.5, -0.5, 2.5, -1.0, math.nan, math.inf, -math.inf, 5e-324),
        *(1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 2.0**63),
        *(-(2.0**63), 2.0**53, 1e15 + 0.5, 0.49999999999999994),
    ),
    "money": _values(pa.decimal128(18, 3), *map(Decimal, ("999999999999999.999", "-0.001", "0.5"))),
    "wide": _values(
        pa.decimal128(38, 0), NINES, NINES.copy_negate(), *map(Decimal, (0, 1, -1, 2**63, 10**37))
    ),
    "share": _values(
        pa.decimal128(38, 38), *(Decimal(f"{sign}0.{'9' * 38}") for sign in ("", "-")), Decimal(0)
    ),
    "text": _values(
        *(pa.string(), "", "a", "abc", " a ", "0", "-1", "1e400", "é", "e\u0301", "ß", "日本"),
        *("🙂a🙂", "a\x00b", "a,b,,c", "%_\\", "\n", "infinity", "9223372036854775808"),
    ),
    "bytes": _values(pa.binary(), b"", b"\x00", b"a", b"\xff\x00", "é".encode()),
    "day": _times(
        *(pa.date32(), 0, -1, 1, 11_016, 19_782, -719_162, -719_528, 2_932_896, 12_000_000),
        *(2**31 - 1, 1 - 2**31, LAST_DAY, -LAST_DAY, -25_567),
    ),
    "far": _times(pa.date32(), LAST_DAY + 1, -LAST_DAY - 1, 2**31 - 2, -(2**31) + 700),
    "time": _times(pa.timestamp("us"), *_TICKS),
    "zoned": _times(pa.timestamp("us", "UTC"), *_TICKS),
    "seconds": _times(pa.timestamp("s"), 0, -1, 9_223_372_036_854, -9_223_372_022_400, MAX, -MAX),
    "nanos": _times(pa.timestamp("ns"), 0, -1, 499, 500_000, MAX, -MAX, MAX - 1, 2 - MAX),
    "clock": _times(pa.time64("us"), 0, 1, DAY - 1, DAY // 2),
    "span": _times(pa.duration("us"), 0, 1, -1, DAY, -DAY - 1, MAX, -MAX, 2**62, -(2**62)),
    "list": _values(
        *(pa.list_(pa.int64()), [], [None], [0], [1, 2, 3], [MAX, 1], [-MAX, -1, None]),
        *([MAX, -MAX], [2**62, 2**62]),
    ),
    "floats": _values(
        *(pa.list_(pa.float64()), [], [None], [0.0, -0.0], [math.nan, 1.0], [math.inf, -math.inf]),
        *([1.7976931348623157e308] * 2, [5e-324, 5e-324], [1e16, 1.0, -1e16]),
    ),
    "texts": _values(pa.list_(pa.string()), [], [None], [""], ["a", "b", "a"], ["é", "🙂", None]),
    "json": _values(
        *(pa.string(), "", "null", "{}", "[]", '{"a": 9223372036854775808}', "[1, [2]]", "nope"),
        *('"\\ud83d\\ude42"', "1e400", '{"": 1, "a": {"b": []}}'),
    ),
}


class BoundaryCase(NamedTuple):
    """SQL over the columns a, b and c, and the types of these columns."""

    sql: str
    types: tuple[str, ...]


def boundary_table(types: Sequence[str], max_rows: int) -> pa.Table:
    """Return combinations of the values of these types, in columns a, b, …

    With more than ``max_rows`` combinations, these are combinations at equal distances; every value
    is in about as many of them.
    """
    columns = [VALUES[name] for name in types]
    rows = list(itertools.product(*(range(len(column)) for column in columns)))
    if len(rows) > max_rows:
        step = len(rows) // max_rows
        while any(step % len(column) == 0 for column in columns) or step % 2 == 0:
            step += 1
        rows = rows[::step]
    arrays = [
        column.take(pa.array([row[i] for row in rows], pa.int64()))
        for i, column in enumerate(columns)
    ]
    return pa.table(dict(zip("abc", arrays, strict=False)))


def _cases(types: str, *texts: str) -> Iterator[BoundaryCase]:
    return (BoundaryCase(text, tuple(types.split())) for text in texts)


def _calls(types: str, functions: str) -> Iterator[BoundaryCase]:
    names = types.split()
    arguments = ", ".join("abc"[: len(names)])
    return _cases(types, *(f"{function}({arguments})" for function in functions.split()))


def _numbers() -> Iterator[BoundaryCase]:
    for pair in ("i64 i64", "i64 i32", "u64 u64", "f64 f64", "i64 f64", "money money", "wide wide"):
        yield from _cases(pair, "a = b", "a < b", "a >= b", "a IS DISTINCT FROM b")
        yield from _calls(pair, "greatest least coalesce nullif")
    for pair in ("i64 i64", "i64 i32", "f64 f64", "i64 f64", "wide wide"):
        yield from _cases(pair, "a + b", "a - b")
        yield from _cases(pair, *(("a * b", "a % b") if pair != "wide wide" else ()))
    yield from _cases("i64 i64", "a // b", "a / b", "a & b", "a | b", "xor(a, b)", "a << b")
    yield from _cases("i64 i64", "a >> b", "a BETWEEN -1 AND b", "a IN (b, 1)", "gcd(a, b)")
    yield from _calls("i64 i64", "lcm power")
    yield from _cases("i64 wide", "a = b", "a < b")
    yield from _cases("i64 u64", "a = b", "a < b", "greatest(a, b)")
    for name in ("i64", "f64", "money", "wide", "share"):
        # To fewer digits than a decimal has before the point, DuckDB rounds NULL to 0.
        digits = (1, 20) if name in ("money", "share") else (-19, -1, 1, 20)
        yield from _cases(name, "-a", *(f"round(a, {count})" for count in digits))
        yield from _calls(name, "abs sign floor ceil trunc")
    for name in ("i64", "f64"):
        yield from _calls(name, "sqrt exp ln log2 log10 cbrt atan degrees radians tanh asinh")
    yield from _calls("f64", "isnan isinf isfinite signbit even")
    yield from _calls("f64 f64", "atan2 power nextafter")
    yield from _calls("i64", "bit_count hex bin")
    yield from _calls("i32", "chr")
    yield from _calls("tiny", "factorial")


def _casts() -> Iterator[BoundaryCase]:
    targets = {
        "i64 u64 f64 money wide text": (
            "TINYINT SMALLINT INTEGER BIGINT UTINYINT UINTEGER UBIGINT FLOAT DOUBLE VARCHAR BOOLEAN"
        ),
        "i64 u64 money wide": "DECIMAL(4,2) DECIMAL(18,3) DECIMAL(38,0)",
        "text": "DATE TIMESTAMP TIME TIMESTAMPTZ DECIMAL(18,3) BLOB",
        "day time zoned seconds nanos": "DATE TIMESTAMP VARCHAR",
        "day seconds": "TIMESTAMP_S TIMESTAMP_MS",
        "time seconds nanos": "TIME TIMESTAMP_NS",
        "clock bytes share": "VARCHAR",
    }
    for sources, names in targets.items():
        for source in sources.split():
            yield from _cases(source, *(f"CAST(a AS {name})" for name in names.split()))


def _texts() -> Iterator[BoundaryCase]:
    yield from _calls("text", "length strlen bit_length lower upper trim ascii unicode md5 sha256")
    yield from _calls("text", "hex encode url_encode nfc_normalize regexp_escape")
    # DuckDB takes no count of more than 32 bits.
    for count in (1 - 2**31, -2, 0, 1, 2, 2**31):
        yield from _cases("text", f"left(a, {count})", f"right(a, {count})")
        yield from _cases("text", f"substring(a, {count})", f"substring(a, 2, {count})")
        yield from _cases("text", f"a[{count}]", f"a[{count}:]", f"a[:{count}]")
    yield from _cases("text tiny", "repeat(a, b)", "lpad(a, b, 'é')", "rpad(a, b, '🙂')")
    yield from _cases("text tiny", "left(a, b)", "right(a, b)", "substring(a, b)")
    yield from _cases("text tiny", "split_part(a, ',', b)")
    yield from _calls("text text", "contains starts_with ends_with strpos concat levenshtein")
    yield from _cases("text text", "a || b", "a LIKE b", "a ILIKE b", "a < b", "replace(a, b, 'x')")
    yield from _cases(
        "text", "regexp_replace(a, '.', '<\\0>', 'g')", "a LIKE '_'", "a SIMILAR TO '.'"
    )
    yield from _cases("text", "string_split(a, '')", "translate(a, 'aé🙂', 'xy')")


def _dates() -> Iterator[BoundaryCase]:
    units = "century decade year quarter month week day hour minute second millisecond microsecond"
    fields = "year quarter month day dayofweek dayofyear week isoyear isodow yearweek"
    for name in ("day", "time", "zoned"):
        # Of a time with a zone before year 1, DuckDB counts the years backwards.
        yield from _calls(name, fields if name != "zoned" else "month day week isodow dayofyear")
        yield from _calls(name, "dayname monthname hour second")
        yield from _calls(name, "epoch epoch_ms epoch_us")
    yield from _calls("far", fields + " century dayname")
    for name in ("day", "time"):
        yield from _calls(name, "last_day julian decade century millennium era")
    for unit in units.split():
        is_before_year = unit in ("century", "decade")
        if not is_before_year:
            yield from _cases("day", f"date_trunc('{unit}', a)")
            yield from _cases("time", f"date_trunc('{unit}', a)")
            # DuckDB counts no boundary of quarters between two dates before year 1.
            if unit != "quarter":
                yield from _cases("time time", f"datediff('{unit}', a, b)")
                yield from _cases("day day", f"datediff('{unit}', a, b)")
        yield from _cases("time time", f"datesub('{unit}', a, b)")
        yield from _cases("time i32", f"a + INTERVAL (b) {unit}", f"a - INTERVAL (b) {unit}")
        for count in (1, -1, 1_000_000):
            yield from _cases("time", f"a + INTERVAL ({count}) {unit}")
    for width in ("1 MONTH", "1 DAY", "3 HOUR", "5 YEAR"):
        yield from _cases("time", f"time_bucket(INTERVAL {width}, a)")
    yield from _cases("time span", "a + b", "a - b")
    yield from _cases("span span", "a + b", "a - b", "a < b")
    yield from _cases("day tiny", "a + b", "a - b")
    yield from _cases("day day", "a - b", "a = b")
    yield from _cases("time time", "a < b", "a = b", "greatest(a, b)")
    yield from _cases("day time", "a = b", "a < b")
    yield from _cases("time seconds", "a = b", "a < b")
    for zone in ("Europe/Berlin", "America/New_York", "UTC"):
        yield from _cases("time", f"a AT TIME ZONE '{zone}'")
        yield from _cases("zoned", f"a AT TIME ZONE '{zone}'")
    yield from _cases("i64", "make_timestamp(a)", "epoch_ms(a)")
    yield from _cases("tiny tiny", "make_date(2024, a, b)", "make_time(a, b, 59.999999)")


def _lists() -> Iterator[BoundaryCase]:
    for name in ("list", "floats", "texts"):
        yield from _calls(name, "len list_min list_max list_first list_last")
        yield from _calls(name, "list_sort list_reverse list_unique list_any_value")
        yield from _cases(name, "list_sort(list_distinct(a))")
    for name in ("list", "floats"):
        yield from _calls(name, "list_avg list_product list_median")
    # The sum of integers has 64 bits, in DuckDB 128.
    yield from _calls("floats", "list_sum")
    yield from _calls("list", "list_bit_and list_bit_or list_bit_xor")
    for bound in (-MAX, -(2**31), -2, 0, 1, 2, 2**31, MAX):
        yield from _cases("list", f"a[{bound}]", f"a[{bound}:]", f"a[:{bound}]", f"a[{bound}:-1]")
        if bound:
            yield from _cases("list", f"a[1:2:{bound}]", f"a[:-:{bound}]", f"a[{bound}:2:1]")
    yield from _cases("list i64", "a[b]", "a[b:]", "a[1:b]", "list_select(a, [b])")
    yield from _cases("list i64 i64", "a[b:c]", "a[b:c:1]")
    yield from _cases("list i64", "list_contains(a, b)", "list_position(a, b)", "list_append(a, b)")
    yield from _calls("list list", "list_concat list_intersect list_has_any list_has_all")
    yield from _cases("list list", "a = b", "a < b", "a IS DISTINCT FROM b")
    yield from _cases("floats floats", "a = b", "a < b", "list_has_any(a, b)")
    yield from _calls("big big big", "range generate_series")
    for step in (2**62, -(2**62), MAX, -MAX):
        yield from _cases("i64 i64", f"range(a, b, {step})", f"generate_series(a, b, {step})")
    yield from _cases("tiny tiny", "range(a, b)", "generate_series(a, b, -2)")


def _documents() -> Iterator[BoundaryCase]:
    for path in ("$", "$.a", "$[0]", "$[9223372036854775807]"):
        yield from _cases(
            "json", *(f"json_{f}(a, '{path}')" for f in ("extract", "extract_string", "type"))
        )
    for value in ("i64", "f64", "text", "list", "floats"):
        yield from _cases(value, "to_json(a)")
    yield from _cases("i64", "printf('%d', a)", "format('{:,}', a)", "format('{:x}', abs(a))")
    yield from _cases("f64", "format('{:e}', a)")


#: By the name of a family of functions, its cases.
FAMILIES: dict[str, tuple[BoundaryCase, ...]] = {
    "numbers": tuple(_numbers()),
    "casts": tuple(_casts()),
    "texts": tuple(_texts()),
    "dates": tuple(_dates()),
    "lists": tuple(_lists()),
    "documents": tuple(_documents()),
}
