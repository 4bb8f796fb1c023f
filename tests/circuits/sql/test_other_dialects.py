"""Functions that differ in Snowflake, BigQuery, MySQL and others, and the dialect of Athena.

The oracle is plain Python, written from the documentation of these systems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import SqlError

TABLE = {"t": "s TEXT, d TEXT, n INT, m INT, b BLOB, f FLOAT, x DOUBLE, a INT[]"}
TEXTS = ("", "a", "häß", "a,b,,c", None)
NUMBERS = (-7, -4, -3, -1, 0, 1, 2, 3, 9, None)


def first_of(expression: str, row: dict[str, Any], dialect: str) -> Any:
    """Return the value of an expression over one row."""
    circuit = compile_sql(f"SELECT {expression} AS r FROM t", TABLE, dialect=dialect)
    return circuit.step({"t": [row]})["view"]["r"][0].as_py()


def check(
    expression: str, dialect: str, expected: Callable[..., Any], **domains: tuple[Any, ...]
) -> None:
    """Compare an expression with a function of Python, after an insert and after a delete.

    Args:
        expression: An expression over the columns in ``domains``.
        dialect: The dialect of the expression.
        expected: A function of the columns; NULL in one of them gives NULL.
        domains: The values of each column, of which all combinations are rows.
    """
    rows = [dict(zip(domains, values, strict=True)) for values in product(*domains.values())]
    # An integer and an equal float are different answers.
    answers = [None if None in row.values() else expected(**row) for row in rows]
    typed = [(type(answer), answer) for answer in answers]
    circuit = compile_sql(f"SELECT {expression} AS r FROM t", TABLE, dialect=dialect)
    view: Counter[Any] = Counter()
    for changed, weight in ((rows, 1), (rows[::2], -1)):
        delta = circuit.step({"t": [{**row, "weight": weight} for row in changed]})["view"]
        for row in delta.to_pylist():
            view[type(row["r"]), row["r"]] += row["weight"]
        present = typed if weight == 1 else typed[1::2]
        assert {value: count for value, count in view.items() if count} == Counter(present)


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
def test_length_counts_the_characters_of_a_text_and_the_bytes_of_bytes(dialect):
    check("length(s)", dialect, lambda s: len(s), s=TEXTS)
    check("length(b)", dialect, lambda b: len(b), b=(b"", b"\xff\x00", None))


@pytest.mark.parametrize("dialect", ["clickhouse", "doris", "mysql", "starrocks"])
def test_length_counts_the_bytes_of_a_text(dialect):
    check("length(s)", dialect, lambda s: len(s.encode()), s=TEXTS)
    check("length(b)", dialect, lambda b: len(b), b=(b"", b"\xff\x00", None))
    check("char_length(s)", dialect, lambda s: len(s), s=TEXTS)


def test_length_of_a_list_in_clickhouse():
    assert first_of("length(a)", {"a": [5, 6]}, "clickhouse") == 2


def test_left_of_a_negative_length_is_empty_in_snowflake():
    check("left(s, n)", "snowflake", lambda s, n: s[: max(n, 0)], s=TEXTS, n=NUMBERS)
    check("left(s, -1)", "snowflake", lambda s: "", s=TEXTS)
    check("left(s, 1)", "snowflake", lambda s: s[:1], s=TEXTS)


def test_right_of_a_negative_length_is_empty_in_snowflake():
    expected = lambda s, n: s[-n:] if n > 0 else ""  # noqa: E731
    check("right(s, n)", "snowflake", expected, s=TEXTS, n=NUMBERS)
    check("right(s, -1)", "snowflake", lambda s: "", s=TEXTS)
    check("right(s, 1)", "snowflake", lambda s: s[-1:], s=TEXTS)


def substring_of_snowflake(s: str, n: int, m: int = 99) -> str:
    """Return a substring: position 0 is the first, one before the text gives an empty text."""
    start = len(s) + n if n < 0 else max(n - 1, 0)
    return "" if start < 0 else s[start : start + max(m, 0)]


@pytest.mark.parametrize("name", ["substr", "substring"])
def test_substring_in_snowflake(name):
    check(f"{name}(s, n, m)", "snowflake", substring_of_snowflake, s=TEXTS, n=NUMBERS, m=NUMBERS)
    check(f"{name}(s, n)", "snowflake", substring_of_snowflake, s=TEXTS, n=NUMBERS)
    for start, length in product((-4, -1, 0, 1, 2), (-1, 0, 2)):
        check(
            f"{name}(s, {start}, {length})",
            "snowflake",
            lambda s, n=start, m=length: substring_of_snowflake(s, n, m),
            s=TEXTS,
        )


def part_in_snowflake(s: str, d: str, n: int) -> str:
    """Return a part of a text: part 0 is the first, and nothing separates at an empty text."""
    parts = s.split(d) if d else [s]
    index = n if n < 0 else max(n - 1, 0)
    return parts[index] if -len(parts) <= index < len(parts) else ""


def test_split_part_in_snowflake():
    delimiters = ("", ",", "ä", ",b", None)
    check("split_part(s, d, n)", "snowflake", part_in_snowflake, s=TEXTS, d=delimiters, n=NUMBERS)
    for delimiter, part in product(("", ","), (-1, 0, 1, 2)):
        check(
            f"split_part(s, '{delimiter}', {part})",
            "snowflake",
            lambda s, d=delimiter, n=part: part_in_snowflake(s, d, n),
            s=TEXTS,
        )


def test_round_and_trunc_in_snowflake():
    values = (0.0, 2.5, -1.25, 12.75, None)
    check(
        "round(x, 1)",
        "snowflake",
        lambda x: math.copysign(math.floor(abs(x) * 10 + 0.5) / 10, x),
        x=values,
    )
    check("trunc(x, 1)", "snowflake", lambda x: math.trunc(x * 10) / 10, x=values)
    check("truncate(x)", "snowflake", lambda x: float(math.trunc(x)), x=values)
    with pytest.raises(SqlError, match=r"round\(.*the digits to round to are an integer literal"):
        compile_sql("SELECT round(x, 1.5) AS r FROM t", TABLE, dialect="snowflake")


@pytest.mark.parametrize("dialect", ["postgres", "redshift"])
def test_trunc_to_many_digits_in_the_dialects_of_postgres(dialect):
    values = (0.0, 2.5, -12.75, math.inf, None)
    check("trunc(x, 400)", dialect, lambda x: x, x=values)
    check("trunc(x, -400)", dialect, lambda x: x if math.isinf(x) else 0.0, x=values)


def test_trunc_of_a_float_is_a_float():
    circuit = compile_sql(
        "SELECT trunc(f) AS a, trunc(f, 1) AS b, trunc(f, 99) AS c, trunc(f, NULL) AS d FROM t",
        TABLE,
    )
    view = circuit.step({"t": [{"f": 1.29}]})["view"]
    assert view.schema.types[:4] == [pa.float32()] * 4
    [row] = view.to_pylist()
    assert [round(row[name], 6) if row[name] else row[name] for name in "abcd"] == [
        1,
        1.2,
        1.29,
        None,
    ]


@pytest.mark.parametrize("dialect", ["duckdb", "snowflake", "mysql"])
@pytest.mark.parametrize(
    "call",
    [
        *("length(s, true)", "left(s, 1, true)", "right(s, 1, true)", "trunc(x, 1, true)"),
        *("substring(s, 1, 2, true)", "split_part(s, d, 1, true)", "split_part(s, d, 1, true, 1)"),
        *("round(x, 1, true)", "round(x, 1, true, true)"),
    ],
)
def test_an_argument_too_many_is_an_error(call, dialect):
    with pytest.raises(SqlError, match=r"arguments or fewer|TRUNCATE in round\(\)|number of prov"):
        compile_sql(f"SELECT {call} AS r FROM t", TABLE, dialect=dialect)


def test_replicate_in_sql_server():
    assert first_of("replicate(s, 2)", {"s": "ab"}, "tsql") == "abab"


def test_athena_reads_a_query_as_trino_does():
    row = {"a": [5, 6], "x": 8.0, "s": '{"k": 1}'}
    for expression in ("a[1]", "log(2, x)", "log2(x)", "json_value(s, '$.k')"):
        expected = first_of(expression, row, "trino")
        assert expected is not None
        assert first_of(expression, row, "athena") == expected
    text = "CREATE TABLE u (k INT); CREATE VIEW v AS SELECT k FROM u"
    view = compile_sql(text, {}, dialect="athena").step({"u": [{"k": 7}]})["v"]
    assert view.to_pylist() == [{"k": 7, "weight": 1}]


NATURAL = ["bigquery", "clickhouse", "doris", "hive", "mysql", "starrocks", "tsql"]


@pytest.mark.parametrize("dialect", [*NATURAL, "snowflake", "trino", "duckdb"])
def test_a_logarithm_without_a_base_has_the_base_of_the_dialect(dialect):
    logarithm = math.log if dialect in NATURAL else math.log10
    check("round(log(x), 9)", dialect, lambda x: round(logarithm(x), 9), x=(0.5, 1.0, 100.0, None))


@pytest.mark.parametrize("dialect", ["duckdb", "mysql", "presto", "snowflake", "bigquery", "tsql"])
def test_the_base_of_a_logarithm_comes_first_except_in_bigquery_and_tsql(dialect):
    arguments = "x, 2.0" if dialect in ("bigquery", "tsql") else "2.0, x"
    expected = {0.5: -1.0, 8.0: 3.0}
    check(f"round(log({arguments}), 9)", dialect, lambda x: expected[x], x=(0.5, 8.0, None))


def test_a_logarithm_with_a_base_is_refused_in_clickhouse():
    with pytest.raises(SqlError, match=r"log\(\) takes 1 argument"):
        compile_sql("SELECT log(2.0, x) AS r FROM t", TABLE, dialect="clickhouse")
