"""Tricky values of each type, and each function of them, as SQL and as an expression."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions import call

I8, I32, I64, U64 = pa.int8(), pa.int32(), pa.int64(), pa.uint64()
F32, F64, BOOL, TEXT = pa.float32(), pa.float64(), pa.bool_(), pa.string()
MONEY, SHARE, WIDE = pa.decimal128(15, 2), pa.decimal128(4, 3), pa.decimal128(38, 10)
DATE, STAMP, BYTES = pa.date32(), pa.timestamp("us"), pa.binary()
D, NAN, INF = Decimal, math.nan, math.inf

VALUES: dict[pa.DataType, list[Any]] = {
    I8: [None, 0, 1, -1, 7, -128, 127],
    I32: [None, 0, 3, -7, 2**31 - 1, -(2**31)],
    I64: [None, 0, 1, -1, 2, 15, -25, 10**15, 2**53 + 1, 2**63 - 1, 1 - 2**63],
    U64: [None, 0, 5, 2**63, 2**64 - 2],
    F32: [None, 0.0, 1.5, -2.5, NAN, INF],
    F64: [None, 0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 1e15, 1e300, -0.1, 1.005, NAN, INF, -INF],
    MONEY: [D("1.50"), None, D("-1.50"), D("2.25"), D("0.00"), D("-0.01"), D("9999999999999.99")],
    SHARE: [D("0.125"), None, D("-1.005"), D("9.999"), D("0.000")],
    WIDE: [None, D("0E-10"), D("1.5000000001"), D("-7.25"), D("9" * 28)],
    BOOL: [None, True, False],
    TEXT: [
        None,
        "",
        "a",
        "abc",
        "ABC",
        "  a b ",
        "häuser",
        "日本語🙂",
        "a%b_c",
        "\\a",
        "a\nb",
        "ß,b",
    ],
    BYTES: [None, b"", b"\x00", b"a", b"\xff"],
    DATE: [
        None,
        *map(dt.date.fromisoformat, ("1969-12-31", "1970-01-01", "2000-02-29")),
        *map(dt.date.fromisoformat, ("2020-12-31", "1600-01-01", "9000-02-28", "2023-01-01")),
    ],
    STAMP: [
        None,
        *map(dt.datetime.fromisoformat, ("1969-12-31T23:59:59.5", "1970-01-01")),
        *map(dt.datetime.fromisoformat, ("2000-02-29T12:30:00.000001", "1900-01-31T00:00:00")),
        *map(dt.datetime.fromisoformat, ("2020-12-31T23:00:00", "2021-01-01T01:02:03.25")),
    ],
}
INTEGERS, FLOATS, DECIMALS = (I8, I32, I64), (F32, F64), (MONEY, SHARE, WIDE)
NUMBERS = (*INTEGERS, *FLOATS, *DECIMALS)
FAILS = "fails"  # the result of a row for which the function fails
#: Functions that do as DuckDB does with floats by its default settings.
IEEE = ("power", "exp", "sqrt", "ln", "log10")


@dataclass(frozen=True)
class Case:
    """SQL over the columns a and b, a function that builds the same expression, and their types."""

    sql: str
    build: Callable[..., Expression]
    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        return f"{self.sql} of {', '.join(map(str, self.types))}"


def literal(value: Any, data_type: pa.DataType | None = None) -> Literal:
    return Literal(value, data_type or pa.scalar(value).type)


def cases(
    sql: str, name: str, *kinds: Sequence[pa.DataType], more: Sequence[Any] = ()
) -> list[Case]:
    """One case per combination of types; ``more`` are literals after the columns."""

    def build(*columns: Expression) -> Expression:
        return call(name, *columns, *map(literal, more))

    return [Case(sql, build, types) for types in itertools.product(*kinds)]


def pairs_within(*groups: Sequence[pa.DataType]) -> list[tuple[pa.DataType, ...]]:
    """Return all pairs of types of the same group."""
    return [pair for group in groups for pair in itertools.product(group, group)]


def cases_of_pairs(sql: str, name: str, pairs: Sequence[tuple[pa.DataType, ...]]) -> list[Case]:
    return [
        case for pair in pairs for case in cases(sql, name, *((data_type,) for data_type in pair))
    ]


ONE_TEXT, TWO_TEXTS = [TEXT], [[TEXT], [TEXT]]
SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARABLE = [
    *pairs_within((*INTEGERS, MONEY, SHARE, WIDE), FLOATS, (DATE, STAMP)),
    *((I64, F64), (F64, MONEY), (I32, F32), (U64, U64), (I8, U64)),
    *((TEXT, TEXT), (BYTES, BYTES), (BOOL, BOOL)),
]
EXACT = [pair for pair in pairs_within(INTEGERS, DECIMALS) if pair != (WIDE, WIDE)]
CASES: list[Case] = [
    *cases("a AND b", "and", [BOOL], [BOOL]),
    *cases("a OR b", "or", [BOOL], [BOOL]),
    *cases("NOT a", "not", [BOOL]),
    *(c for data_type in VALUES for c in cases("a IS NULL", "is_null", [data_type])),
    *cases("a IS TRUE", "is_true", [BOOL]),
    *(c for n, s in SIGNS.items() for c in cases_of_pairs(f"a {s} b", n, COMPARABLE)),
    *cases_of_pairs("a IS NOT DISTINCT FROM b", "same", COMPARABLE),
    *cases("a LIKE b", "like", *TWO_TEXTS),
    *cases("a LIKE 'a%'", "like", ONE_TEXT, more=["a%"]),
    *cases("a LIKE '%$%_$_%' ESCAPE '$'", "like", ONE_TEXT, more=["%$%_$_%", "$"]),
    *cases("a LIKE '_\\a' ESCAPE '$'", "like", ONE_TEXT, more=["_\\a", "$"]),
    *cases("a LIKE '_a'", "like", ONE_TEXT, more=["_a"]),
    *cases("a LIKE '\\a'", "like", ONE_TEXT, more=["\\a"]),
    *cases("a ILIKE 'HÄ%'", "ilike", ONE_TEXT, more=["HÄ%"]),
    *cases("a GLOB '*a?'", "glob", ONE_TEXT, more=["*a?"]),
    *cases("a GLOB '[!a-c]*'", "glob", ONE_TEXT, more=["[!a-c]*"]),
    *cases("a IN (1, 15, 7)", "in", INTEGERS, more=[1, 15, 7]),
    *cases("a IN ('a', '', 'ß,b')", "in", ONE_TEXT, more=["a", "", "ß,b"]),
    *cases("a IN ('nan'::DOUBLE, 0.0, 1.5)", "in", [F64], more=[NAN, 0.0, 1.5]),
    *cases("a IN (1.5, 2.25)", "in", [MONEY, SHARE], more=[D("1.50"), D("2.25")]),
    *(
        Case(
            "a IN (1, NULL)",
            lambda a: call("in", a, literal(1), Literal(None, pa.null())),
            (data_type,),
        )
        for data_type in (I8, I64)
    ),
    # Arithmetic
    *cases_of_pairs("a::BIGINT + b", "add", pairs_within(INTEGERS)),
    *cases_of_pairs("a::BIGINT - b", "subtract", pairs_within(INTEGERS)),
    *cases_of_pairs("a::BIGINT * b", "multiply", pairs_within(INTEGERS)),
    *cases_of_pairs("a + b", "add", [p for p in EXACT if p not in pairs_within(INTEGERS)]),
    *cases_of_pairs("a - b", "subtract", [p for p in EXACT if p not in pairs_within(INTEGERS)]),
    *cases_of_pairs(
        "a * b", "multiply", [(MONEY, MONEY), (MONEY, SHARE), (SHARE, WIDE), (I64, MONEY)]
    ),
    *cases_of_pairs(
        "a::DOUBLE + b::DOUBLE", "add", [(F64, F64), (F32, F64), (F64, I64), (F64, MONEY)]
    ),
    *cases_of_pairs("a::DOUBLE * b::DOUBLE", "multiply", [(F64, F64), (F64, I32), (MONEY, F64)]),
    *cases_of_pairs(
        "a::DOUBLE / b::DOUBLE", "divide", [*itertools.product(NUMBERS, (I64, F64, MONEY))]
    ),
    *cases_of_pairs("a::BIGINT // b::BIGINT", "int_divide", pairs_within(INTEGERS)),
    *cases_of_pairs("a::BIGINT % b::BIGINT", "modulo", pairs_within(INTEGERS)),
    *cases_of_pairs("a % b", "modulo", [(F64, F64), (MONEY, MONEY), (MONEY, SHARE), (I32, SHARE)]),
    *cases("-a::BIGINT", "negate", INTEGERS),
    *cases("-a", "negate", [*FLOATS, *DECIMALS]),
    *cases("abs(a::BIGINT)", "abs", INTEGERS),
    *cases("abs(a)", "abs", [*FLOATS, *DECIMALS]),
    *cases("sign(a)", "sign", NUMBERS),
    *cases("round(a)", "round", NUMBERS),
    *cases("floor(a)", "floor", [*FLOATS, *DECIMALS]),
    *cases("ceil(a)", "ceil", [*FLOATS, *DECIMALS]),
    *cases("trunc(a)", "trunc", NUMBERS),
    *(
        case
        for digits in (-2, -1, 1, 2, 5)
        for data_type in (I64, F64, *DECIMALS)
        if (data_type, digits) != (SHARE, -2)  # DuckDB says 0, even for NULL
        for case in cases(f"round(a, {digits})", "round", [data_type], more=[digits])
    ),
    *cases("power(a, b)", "power", [F64, I32], [F64, I8]),
    *cases("exp(a)", "exp", [F64, I8]),
    *cases("sqrt(a)", "sqrt", [I64, F64, MONEY]),
    *cases("ln(a)", "ln", [U64, I64, F64]),
    *cases("log10(a)", "log10", [I64, F64]),
    *cases_of_pairs(
        "greatest(a, b)", "greatest", pairs_within((I64, I8), FLOATS, DECIMALS, (TEXT,), (DATE,))
    ),
    *cases_of_pairs(
        "least(a, b)", "least", pairs_within((I64, I8), FLOATS, DECIMALS, (TEXT,), (STAMP,))
    ),
    # Text
    *cases("a || b", "concat", *TWO_TEXTS),
    *cases("a || '-' || 'x'", "concat", ONE_TEXT, more=["-", "x"]),
    *cases("a || b", "concat", [TEXT], [I64, DATE, BOOL, MONEY]),
    *(c for f in ("lower", "upper", "reverse", "length") for c in cases(f"{f}(a)", f, ONE_TEXT)),
    *(c for f in ("trim", "ltrim", "rtrim") for c in cases(f"{f}(a)", f, ONE_TEXT)),
    *(
        case
        for function in ("trim", "ltrim", "rtrim")
        for case in cases(f"{function}(a, 'ab ')", function, ONE_TEXT, more=["ab "])
    ),
    *cases("substring(a, b)", "substring", [TEXT], [I8]),
    *(
        case
        for start in (-9, -3, -2, -1, 0, 1, 2, 4, 9)
        for length in (-9, -2, -1, 0, 1, 2, 3, 9)
        for case in cases(
            f"substring(a, {start}, {length})", "substring", ONE_TEXT, more=[start, length]
        )
    ),
    *cases("left(a, b)", "left", [TEXT], [I8]),
    *cases("right(a, b)", "right", [TEXT], [I8]),
    *cases("replace(a, b, 'xy')", "replace", *TWO_TEXTS, more=["xy"]),
    *cases("starts_with(a, b)", "starts_with", *TWO_TEXTS),
    *cases("ends_with(a, b)", "ends_with", *TWO_TEXTS),
    *cases("contains(a, b)", "contains", *TWO_TEXTS),
    *cases("strpos(a, b)", "position", *TWO_TEXTS),
    *cases("lpad(a, b, 'xyz')", "lpad", [TEXT], [I8], more=["xyz"]),
    *cases("rpad(a, b, 'ß')", "rpad", [TEXT], [I8], more=["ß"]),
    Case("lpad(a, 4, b)", lambda a, b: call("lpad", a, literal(4), b), (TEXT, TEXT)),
    *cases("repeat(a, b)", "repeat", [TEXT], [I8]),
    *(
        case
        for index in (-3, -2, -1, 0, 1, 2, 3)
        for separator in (" ", ",", "", "a")
        for case in cases(
            f"split_part(a, '{separator}', {index})",
            "split_part",
            ONE_TEXT,
            more=[separator, index],
        )
    ),
    # Choices
    *cases_of_pairs(
        "coalesce(a, b)", "coalesce", [*pairs_within(INTEGERS, (MONEY, SHARE)), (TEXT, TEXT)]
    ),
    *cases_of_pairs("nullif(a, b)", "nullif", [(I64, I8), (F64, F64), (TEXT, TEXT), (DATE, DATE)]),
    *(
        Case(
            "CASE WHEN a > 0 THEN b WHEN a < 0 THEN a END",
            lambda a, b: call(
                "case",
                call("gt", a, literal(0)),
                b,
                call("lt", a, literal(0)),
                a,
                Literal(None, pa.null()),
            ),
            pair,
        )
        for pair in [(I64, I8), (F64, F32), (MONEY, SHARE)]
    ),
    # Dates
    *(
        case
        for part in ("year", "quarter", "month", "day", "week", "hour", "minute", "second")
        for case in cases(f"{part}(a)", part, [DATE, STAMP])
    ),
    *cases("dayofweek(a)", "day_of_week", [DATE, STAMP]),
    *cases("dayofyear(a)", "day_of_year", [DATE, STAMP]),
    *(
        Case(
            f"date_trunc('{unit}', a)",
            lambda a, u=unit: call("date_trunc", literal(u), a),
            (data_type,),
        )
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        for data_type in (DATE, STAMP)
    ),
    *(
        Case(
            f"date_diff('{unit}', a, b)",
            lambda a, b, u=unit: call("date_diff", literal(u), a, b),
            pair,
        )
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "millisecond")
        for pair in pairs_within((DATE, STAMP))
    ),
    *(
        Case(
            f"a + INTERVAL ({months}) MONTH + INTERVAL ({days}) DAY + INTERVAL ({us}) MICROSECOND",
            lambda a, m=months, d=days, u=us: call(
                "date_add", a, literal(m), literal(d), literal(u)
            ),
            (data_type,),
        )
        for months, days, us in [(1, 0, 0), (-13, 0, 0), (0, 31, 0), (2, -1, 0), (0, 0, 90_000_001)]
        for data_type in (DATE, STAMP)
    ),
    *cases("a + b", "add", [DATE], [I8]),
    *cases("a - b", "subtract", [DATE], [I8, DATE]),
    *cases("epoch_us(a) - epoch_us(b)", "subtract", [STAMP], [STAMP]),
]


def cast_case(source: pa.DataType, target: pa.DataType, name: str, function: str) -> Case:
    return Case(
        f"{function}(a AS {name})", lambda a: call(function.lower(), a, type=target), (source,)
    )


NUMERIC = {
    "TINYINT": I8,
    "INTEGER": I32,
    "BIGINT": I64,
    "UBIGINT": U64,
    "FLOAT": F32,
    "DOUBLE": F64,
    "DECIMAL(15,2)": MONEY,
    "DECIMAL(4,3)": SHARE,
    "DECIMAL(38,10)": WIDE,
}
CASES += [
    cast_case(source, target, name, function)
    for function in ("CAST", "TRY_CAST")
    for name, target in [*NUMERIC.items(), ("BOOLEAN", BOOL), ("VARCHAR", TEXT)]
    for source in (*NUMERIC.values(), BOOL)
    if (source, target) != (F64, WIDE)  # DuckDB says 1e15 is 1000000000000000.0905969664
]
CASES += [
    cast_case(source, target, name, "CAST")
    for source, pairs in {
        DATE: [("TIMESTAMP", STAMP), ("VARCHAR", TEXT)],
        STAMP: [("DATE", DATE), ("VARCHAR", TEXT), ("TIMESTAMP_S", pa.timestamp("s"))],
    }.items()
    for name, target in pairs
]


#: By the name of a type in SQL: the type, and texts to cast to it.
TEXTS = {
    "BIGINT": (
        I64,
        [
            "1",
            " -7 ",
            "+5",
            "1.5",
            "2.5",
            "-2.5",
            "1e3",
            "9223372036854775807",
            "9223372036854775808",
            "",
            "x",
            "1.",
            ".5",
            "1 2",
            "0x",
            "-",
            "1e",
            None,
            "99999999999999999999.5",
            "1e-1",
        ],
    ),
    "DOUBLE": (F64, ["1", " 1.5 ", "-1e300", "nan", "inf", "-inf", "1e400", "x", "", ".5", None]),
    "DECIMAL(15,2)": (
        MONEY,
        [
            "1",
            "1.5",
            "-1.005",
            "2.675",
            "0.125",
            "1e2",
            "9999999999999.994",
            "9999999999999.995",
            "x",
            "",
            None,
            " 7 ",
            "1e20",
            "1.50000000000000000000000000000000001",
            "+3",
        ],
    ),
    "BOOLEAN": (BOOL, ["true", "T", "no", "1", "0", "yes", "x", "", None, "FALSE"]),
    "DATE": (
        DATE,
        [
            "2020-02-29",
            "2021-02-29",
            "2020-1-5",
            " 2020-01-05 ",
            "1969-12-31",
            "2020-13-01",
            "x",
            "",
            None,
            "2020-01-00",
            "2020/01/05",
            "2020-01-05 10:00:00",
        ],
    ),
    "TIMESTAMP": (
        STAMP,
        [
            "2020-02-29",
            "2020-02-29 10:00",
            "2020-02-29T10:00:01.25",
            "1969-12-31 23:59:59.999999",
            "x",
            "",
            None,
            "2020-02-30 00:00:00",
            "2020-02-29 25:00:00",
        ],
    ),
}
