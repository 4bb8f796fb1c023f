"""Fields of lists of structs, and keys of maps, after a dot in dialect spark."""

from __future__ import annotations

import pytest

from circuits import SqlError, compile_sql

SCHEMAS = {"t": "l ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, INT>, n ARRAY<INT>"}
ROW = {"l": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], "m": [("k", 7)], "n": [1]}

# The values are those of Spark 4.
CASES = {
    "l.x": [1, None, None],
    "t.l.y": ["a", None, "b"],
    "m.k": 7,
    "m.other": None,
    "filter(l, s -> s.x > 0).y": ["a"],
    "transform(array(l), s -> s.x)": [[1, None, None]],
    "array(named_struct('m', m)).m[0].k": 7,
}


@pytest.mark.parametrize("expression", CASES)
def test_a_name_after_a_dot(expression):
    circuit = compile_sql(f"SELECT {expression} AS r FROM t", SCHEMAS, dialect="spark")
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [{"r": CASES[expression], "weight": 1}]


# A value in place of a lambda is the value for all elements; a row can name its fields.
FUNCTIONS = {
    "transform(n, 0)": [0],
    "transform(l, concat('a', size(n)))": ["a1", "a1", "a1"],
    "filter(n, true)": [1],
    "transform(array(n), a -> transform(a, 7))": [[7]],
    "(1 AS p, 'q' AS r)": {"p": 1, "r": "q"},
    "aggregate(n, (0 AS s, 0 AS c), (a, x) -> (a.s + x, a.c + 1), a -> a.s / a.c)": 1.0,
}


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_values_in_place_of_lambdas_and_rows_with_names(expression):
    circuit = compile_sql(f"SELECT {expression} AS r FROM t", SCHEMAS, dialect="spark")
    expected = {"r": FUNCTIONS[expression], "weight": 1}
    assert circuit.step({"t": [ROW]})["view"].to_pylist() == [expected]


# Spark 4 reads two quotes in a text as one, and joins texts with a blank between them.
TEXTS = {
    "'it''s'": "it's",
    "'a' 'b'": "ab",
    "'%''%'": "%'%",
    "''''": "'",
    "'x' '''y'": "x'y",
}


def test_two_quotes_in_a_text_are_one():
    items = ", ".join(f"{text} AS c{number}" for number, text in enumerate(TEXTS))
    circuit = compile_sql(f'SELECT {items}, "a""b" AS d', {}, dialect="spark")
    (row,) = circuit.step({})["view"].to_pylist()
    assert list(row.values()) == [*TEXTS.values(), 'a"b', 1]


@pytest.mark.parametrize(("expression", "dialect"), [("n.x", "spark"), ("l.x", "duckdb")])
def test_a_value_without_fields_is_refused(expression, dialect):
    with pytest.raises(SqlError, match="has no fields"):
        compile_sql(f"SELECT {expression} FROM t", SCHEMAS, dialect=dialect)
