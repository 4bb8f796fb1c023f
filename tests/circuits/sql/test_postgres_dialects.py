"""The dialects of PostgreSQL and its followers: types and names that differ from DuckDB's.

Each view is compared with DuckDB after every step, in DuckDB's own words.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError
from circuits.sql.binding.clause import Clause
from tests.oracles.duckdb_mirror import Mirror

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.int64()), ("x", pa.decimal128(8, 2)), ("ts", pa.timestamp("us"))]
)
RELATIONS = {"t": SCHEMA}
FOLLOWERS = ("postgres", "risingwave", "materialize", "redshift")

# A query in the dialect, and the same in DuckDB's. Integers have an integer quotient if PostgreSQL
# has an integer type for both operands.
QUERIES = [
    (
        "SELECT a, b FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES",
        "SELECT a, b FROM t QUALIFY rank() OVER (ORDER BY a) <= 2",
    ),
    (
        "SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n DESC FETCH FIRST ROW WITH TIES",
        "SELECT a, count(*) FROM t GROUP BY a QUALIFY rank() OVER (ORDER BY count(*) DESC) <= 1",
    ),
    (
        "SELECT a FROM t UNION ALL SELECT a FROM t ORDER BY 1 OFFSET 1 FETCH NEXT 2 ROWS WITH TIES",
        "SELECT a FROM (SELECT a, rank() OVER (ORDER BY a) AS r, row_number() OVER (ORDER BY a) "
        "AS n FROM (SELECT a FROM t UNION ALL SELECT a FROM t)) WHERE r <= 3 AND n > 1",
    ),
    (
        "SELECT a, (SELECT sum(z.b) FROM (SELECT b FROM t y WHERE y.a = x.a ORDER BY b FETCH "
        "FIRST 1 ROW WITH TIES) z) AS s FROM t x",
        "SELECT a, (SELECT sum(b) FROM t y WHERE y.a = x.a AND b IS NOT DISTINCT FROM (SELECT "
        "min(b) FROM t w WHERE w.a = x.a)) FROM t x",
    ),
    (
        "SELECT twice(a, b) AS m, twice(1, 2) AS n, sum(twice(b, 1)) OVER (ORDER BY a, b, x, "
        "ts) FROM t",
        "SELECT a * 2 + b, 4, sum(b * 2 + 1) OVER (ORDER BY a, b, x, ts) FROM t",
    ),
    (
        "SELECT a, sum(difference_of(a, b)) FROM t GROUP BY a",
        "SELECT a, sum(b - a) FROM t GROUP BY a",
    ),
    (
        "SELECT f.m, t.a FROM rows_from(1) f JOIN t ON t.b = f.m",
        "SELECT f.b, t.a FROM t f JOIN t ON t.b = f.b WHERE f.a >= 1",
    ),
    (
        "SELECT q.a, greatest_of(q.b) AS m FROM t q",
        "SELECT q.a, (SELECT max(t.b) FROM t WHERE t.a = q.b) FROM t q",
    ),
    (
        "SELECT a, i, j FROM t, ROWS FROM (generate_series(1, t.a), unnest(ARRAY[t.b, 7])) AS "
        "r(i, j)",
        "SELECT a, unnest(generate_series(1, a)), unnest([b, 7]) FROM t",
    ),
    (
        "SELECT a, i, n FROM t CROSS JOIN ROWS FROM (generate_series(a, b)) WITH ORDINALITY AS "
        "r(i, n)",
        "SELECT a, unnest(generate_series(a, b)), unnest(generate_series(1, b - a + 1)) FROM t",
    ),
    (
        "SELECT a, i, j, n FROM t, unnest(ARRAY[a], ARRAY[b, a]) WITH ORDINALITY AS r(i, j, n)",
        "SELECT a, unnest([a]), unnest([b, a::BIGINT]), unnest([1, 2]) FROM t",
    ),
    ("SELECT a / b AS q, a FROM t", "SELECT a // b, a FROM t"),
    (
        "SELECT ~a + b, ~ a * 2 | 1, @ a + b, @ -a, |/ a * a + 9, ||/ a + b > 1.1, 2 * @ a - 1 "
        "FROM t",
        "SELECT ~(a + b), ~(a * 2) | 1, abs(a + b), abs(a), sqrt(a * a + 9), cbrt(a + b) > 1.1, "
        "2 * abs(a - 1) FROM t",
    ),
    (
        "SELECT to_char(ts, 'IYYY-IDDD') FROM t",
        "SELECT isoyear(ts) || '-' || lpad(CAST(date_diff('day', date_trunc('week', "
        "make_date(isoyear(ts), 1, 4)), ts) + 1 AS VARCHAR), 3, '0') FROM t",
    ),
    (
        "SELECT date_trunc('decade', day), date_trunc(u.day, MONTH) FROM (SELECT ts FROM t) u(day)",
        "SELECT date_trunc('decade', ts), date_trunc('month', ts) FROM t",
    ),
    ("SELECT a FROM t ORDER BY a OFFSET 1 ROW FETCH FIRST 0 ROWS WITH TIES", "FROM t LIMIT 0"),
    (
        "SELECT b FROM t WHERE (SELECT max(x) FROM t WHERE a IS NOT NULL) IS NOT NULL",
        "SELECT b FROM t WHERE (SELECT max(x) FROM t WHERE a IS NOT NULL) IS NOT NULL",
    ),
    # No alias of a list is known in WHERE, HAVING and other items of the list.
    (
        "SELECT a FROM t WHERE EXISTS (SELECT c + 1 AS b FROM (SELECT a FROM t) r(c) WHERE b > 1)",
        "SELECT a FROM t WHERE b > 1",
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT count(*) AS b FROM (SELECT a FROM t) r(c) GROUP BY c "
        "HAVING b > 1)",
        "SELECT a FROM t WHERE b > 1",
    ),
    (
        "SELECT a, (SELECT max(b) FROM (SELECT c AS b, c FROM (SELECT a FROM t) r(c)) s) FROM t",
        "SELECT a, (SELECT max(a) FROM t) FROM t",
    ),
    ("SELECT a, a / 2.0 FROM t", "SELECT a, a / 2.0 FROM t"),
    ("SELECT a, x / a, a / x FROM t", "SELECT a, x / a, a / x FROM t"),
    ("SELECT a, sum(a) / 3 FROM t GROUP BY a", "SELECT a, sum(a) // 3 FROM t GROUP BY a"),
    ("SELECT a, sum(b) / 3 FROM t GROUP BY a", "SELECT a, sum(b) / 3 FROM t GROUP BY a"),
    (
        "SELECT sum / 3 FROM (SELECT a, sum(b) FROM t GROUP BY a) q",
        "SELECT s / 3 FROM (SELECT a, sum(b) AS s FROM t GROUP BY a)",
    ),
    (
        "SELECT a, sum(b) OVER (PARTITION BY a) / 4 FROM t",
        "SELECT a, sum(b) OVER (PARTITION BY a) / 4 FROM t",
    ),
    ("SELECT count(*) / 2, min(a) / 2 FROM t", "SELECT count(*) // 2, min(a) // 2 FROM t"),
    (
        "SELECT extract(hour FROM ts) / 5, floor(a) / 2, round(a) / 2, sign(a) / 2 FROM t",
        "SELECT hour(ts) / 5, a / 2, a / 2, sign(a) / 2 FROM t",
    ),
    (
        "SELECT count, max, b FROM (SELECT count(*) FILTER (WHERE a > 0), max(a), b::text FROM t"
        " GROUP BY b) q",
        "SELECT count(*) FILTER (WHERE a > 0), max(a), b::VARCHAR FROM t GROUP BY b",
    ),
    (
        "SELECT row_number, a FROM (SELECT row_number() OVER (ORDER BY a, b, x, ts), a FROM t) q",
        "SELECT row_number() OVER (ORDER BY a, b, x, ts), a FROM t",
    ),
    (
        "SELECT a, last_value(b ORDER BY ts, b) - first_value(b ORDER BY ts, b) FROM t GROUP BY a",
        "SELECT a, last(b ORDER BY ts, b) - first(b ORDER BY ts, b) FROM t GROUP BY a",
    ),
    (
        "SELECT a, column1, v.column2 FROM t JOIN (VALUES (1, 'p'), (2, 'q')) v ON a = column1",
        "SELECT a, col0, v.col1 FROM t JOIN (VALUES (1, 'p'), (2, 'q')) v ON a = col0",
    ),
    (
        "SELECT a, x IS NOT NULL, b IS NULL FROM t WHERE a IS NOT NULL",
        "SELECT a, x IS NOT NULL, b IS NULL FROM t WHERE a IS NOT NULL",
    ),
    (
        "SELECT a, g FROM t, generate_series(1, b) g",
        "SELECT a, g FROM t, UNNEST(generate_series(1, b)) AS s(g)",
    ),
    (
        "SELECT a, generate_series FROM (SELECT a, generate_series(1, b) FROM t) q",
        "SELECT a, unnest(generate_series(1, b)) FROM t",
    ),
    (
        "SELECT a, count(*) OVER (ORDER BY ts RANGE BETWEEN '1 hour' PRECEDING AND CURRENT ROW)"
        " FROM t",
        "SELECT a, count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT"
        " ROW) FROM t",
    ),
    (
        "SELECT a, day FROM t, generate_series(ts, ts + interval '2 day', '1 day') AS day",
        "SELECT a, d FROM t, UNNEST(generate_series(ts, ts + INTERVAL 2 DAY, INTERVAL 1 DAY)) u(d)",
    ),
]

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, -7, -1, 1, 2, 7]),
        st.sampled_from([None, -3, 1, 2, 5]),
        st.sampled_from([None, "-2.50", "0.50", "3.25"]),
        st.sampled_from([None, 0, 1, 7, 23]),
    ),
    min_size=3,
    max_size=7,
)


def table(rows) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([], [], [], [])
    a, b, x, hours = (list(column) for column in columns)
    times = [None if h is None else datetime(2024, 2, 28) + timedelta(hours=h) for h in hours]
    texts = pa.array(x, pa.string()).cast(SCHEMA.field("x").type)
    return pa.table([pa.array(a, pa.int32()), pa.array(b, pa.int64()), texts, times], schema=SCHEMA)


FUNCTIONS = """
    CREATE FUNCTION twice(x BIGINT, y BIGINT) RETURNS BIGINT LANGUAGE SQL AS $$
        SELECT x * 2 + y;
    $$;
    CREATE FUNCTION difference_of(BIGINT, BIGINT) RETURNS BIGINT AS 'SELECT $2 - $1' LANGUAGE SQL;
    CREATE FUNCTION rows_from(k BIGINT) RETURNS TABLE (m BIGINT) LANGUAGE SQL STABLE AS $q$
        SELECT b FROM t WHERE t.a >= k
    $q$;
    CREATE FUNCTION greatest_of(k BIGINT) RETURNS BIGINT LANGUAGE SQL AS $$
        SELECT max(t.b) FROM t WHERE t.a = k
    $$;
"""
PROGRAM = FUNCTIONS + ";\n".join(
    f"CREATE VIEW v{number} AS {text}" for number, (text, _) in enumerate(QUERIES)
)


@settings(max_examples=10)
@given(data=st.data(), rows=ROWS, dialect=st.sampled_from(FOLLOWERS))
def test_the_views_are_those_of_duckdb_after_every_step(data, rows, dialect):
    circuit = compile_sql(PROGRAM, RELATIONS, dialect=dialect)
    mirror = Mirror({"t": table(rows)})
    views: dict[str, Counter[tuple]] = {f"v{number}": Counter() for number in range(len(QUERIES))}
    for _ in range(3):
        toggled = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
        numbers, present = np.array(toggled, np.int64), mirror.present["t"]
        inserted, deleted = numbers[~present[numbers]], numbers[present[numbers]]
        deltas = circuit.step(mirror.change({"t": (inserted, deleted)}))
        for (name, view), (text, oracle) in zip(views.items(), QUERIES, strict=True):
            for row in deltas[name].to_pylist():
                *values, weight = row.values()
                view[tuple(values)] += weight
            assert +view == Counter(mirror.answer(oracle)), text
            assert all(weight >= 0 for weight in view.values()), text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT count(*), sum(a), coalesce(b, 0) FROM t GROUP BY b", "count sum coalesce"),
        ("SELECT a::text, lag(a) OVER (ORDER BY b) FROM t", "a lag"),
        ("SELECT a + 1, a AS n, generate_series(1, 2) FROM t", "a + 1,n,generate_series"),
    ],
)
def test_a_column_without_an_alias_has_the_name_of_its_function(text, names):
    separator = "," if "," in names else " "
    view = compile_sql(text, RELATIONS, dialect="postgres").step({})["view"]
    assert view.column_names == [*names.split(separator), "weight"]


def test_other_dialects_with_integer_quotients_divide_integers():
    rows = {"t": table([(7, 2, None, None)])}
    for dialect, expected in (("trino", 3), ("sqlite", 3), ("duckdb", 3.5), ("mysql", 3.5)):
        circuit = compile_sql("SELECT a / b AS q FROM t", RELATIONS, dialect=dialect)
        assert circuit.step(rows)["view"]["q"].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ("generate_series(ts, ts)", "a series of times needs a step"),
        ("generate_series(ts, ts, age(ts, ts))", "a step that is computed"),
    ],
)
def test_a_series_of_times_needs_a_step_that_is_written(series, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(f"SELECT {series} FROM t", RELATIONS)


@pytest.mark.parametrize("step", ["INTERVAL '1 month -1 day'", "to_months(0)"])
def test_a_step_with_months_leads_in_one_direction(step):
    ends = "TIMESTAMP '2021-01-01', TIMESTAMP '2021-03-01'"
    circuit = compile_sql(f"SELECT generate_series({ends}, {step}) AS x", {})
    with pytest.raises(EvaluationError, match=r"both signs|does not lead"):
        circuit.step({})


@pytest.mark.parametrize(
    "series",
    [
        "generate_series(DATE '2021-01-01', DATE '2021-01-03', INTERVAL 1 DAY)",
        "generate_series(DATE '2021-01-01', TIMESTAMP '2021-01-02 12:00', '12 hours')",
        "range(TIMESTAMP '2021-01-01', TIMESTAMP '2021-01-03', INTERVAL 36 HOURS)",
        "range(TIMESTAMP '2021-01-03', TIMESTAMP '2021-01-01', INTERVAL (-1) DAY)",
        "generate_series(TIMESTAMP '2021-01-03', TIMESTAMP '2021-01-01', INTERVAL 1 DAY)",
        "generate_series(TIMESTAMP '2021-01-03', NULL::TIMESTAMP, INTERVAL 1 DAY)",
        "generate_series(DATE '2021-01-31', DATE '2021-06-30', INTERVAL 1 MONTH)",
        "range(TIMESTAMP '2021-01-31', TIMESTAMP '2021-05-28', INTERVAL 1 MONTH)",
        "generate_series(TIMESTAMP '2021-05-31 12:00', DATE '2020-05-31', INTERVAL (-1) MONTH)",
        "range(TIMESTAMP '2021-01-31', DATE '2022-05-31', INTERVAL '1 month 1 day 2 hours')",
        "generate_series(DATE '2021-01-31', DATE '2020-06-30', INTERVAL 1 YEAR)",
        "generate_series(NULL::TIMESTAMP, DATE '2020-06-30', INTERVAL 1 YEAR)",
    ],
)
def test_a_series_of_times_is_that_of_duckdb(series):
    view = compile_sql(f"SELECT {series} AS x", {}).step({})["view"]
    assert [(x,) for x in view["x"].to_pylist()] == Mirror({}).answer(f"SELECT {series}")


@pytest.mark.parametrize(
    ("dialect", "before", "start", "after"),
    [
        ("postgres", "", "s", " || s"),
        ("postgres", "", "s", "::text"),
        ("postgres", "", "a", " - a"),
        ("postgres", "", "ts", " - INTERVAL '1 day'"),
        ("postgres", "", "xs", " || 1"),
        ("postgres", "", "xs", "[1:2]"),
        ("postgres", "length(repeat('a', ", "a", "))"),
        ("spark", "", "ts", " + INTERVAL '1' DAY"),
        ("spark", "", "s", " - INTERVAL '1' DAY"),
    ],
)
def test_each_operand_of_a_long_expression_is_read_once(dialect, before, start, after, monkeypatch):
    types = {
        "s": pa.string(),
        "a": pa.int32(),
        "ts": pa.timestamp("us"),
        "xs": pa.list_(pa.int32()),
    }
    reads = 0
    read = Clause.read

    def count(clause, node):
        nonlocal reads
        reads += 1
        return read(clause, node)

    monkeypatch.setattr(Clause, "read", count)
    counts = []
    for length in (4, 8):
        reads = 0
        text = f"SELECT {before * length}{start}{after * length} AS x FROM t"
        compile_sql(text, {"t": pa.schema(list(types.items()))}, dialect=dialect)
        counts.append(reads)
    assert counts[1] <= 2 * counts[0]


def test_names_that_postgresql_would_cut_to_the_same_one_are_refused():
    longest = "ä" * 31 + "b"
    for name in (longest, f'"{longest}"', longest + "c"):
        view = compile_sql(f"SELECT a AS {name} FROM t", RELATIONS, dialect="postgres")
        assert view.schema("view").arrow_columns.names == [name.strip('"')]
    for name in (longest + "c", f'"{longest}c"'):
        text = f"SELECT a AS {longest}d, a AS {name} FROM t"
        with pytest.raises(SqlError, match=r"keeps the first 63 bytes of a name, and those"):
            compile_sql(text, RELATIONS, dialect="postgres")
        compile_sql(text, RELATIONS)
        compile_sql(f"SELECT a AS {name}, '{longest}d' AS s FROM t", RELATIONS, dialect="postgres")
    text = f"SELECT '{longest}c' AS s FROM t"
    compile_sql(text, RELATIONS, dialect="postgres")
