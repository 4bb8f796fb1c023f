"""Fields of lists of structs, and keys of maps, after a dot in dialect spark."""

from __future__ import annotations

import pytest

from circuits import SqlError, UnsupportedSqlError, compile_sql

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


# Spark 4 compares a text and a decimal as DOUBLE, and casts both to DOUBLE if they are results.
DECIMALS = {
    "'1d' = 1.0": True,
    "1.5BD = '1.50'": True,
    "1.50BD < '1.501'": True,
    "1.5BD IN ('2', '1.5e0')": True,
    "coalesce(CAST(NULL AS DECIMAL(4, 2)), '0.125')": 0.125,
}


@pytest.mark.parametrize("expression", DECIMALS)
def test_a_text_and_a_decimal_are_compared_as_doubles(expression):
    circuit = compile_sql(f"SELECT {expression} AS r", {}, dialect="spark")
    assert circuit.step({})["view"].to_pylist() == [{"r": DECIMALS[expression], "weight": 1}]


def test_from_json_takes_the_mode_of_spark_and_refuses_options_that_change_the_result():
    text = "SELECT from_json('{{\"a\": 1}}', '{}', {}).a AS r"
    circuit = compile_sql(text.format("a INT", "map('mode', 'permissive')"), {}, dialect="spark")
    assert circuit.step({})["view"].to_pylist() == [{"r": 1, "weight": 1}]
    refused = {
        "the option mode = FAILFAST": ("a INT", "map('mode', 'FAILFAST')"),
        "the option dateformat = dd": ("a DATE", "map('dateFormat', 'dd')"),
        "the column _corrupt_record": ("a INT, _corrupt_record STRING", "map()"),
    }
    for message, parts in refused.items():
        with pytest.raises(UnsupportedSqlError, match=message):
            compile_sql(text.format(*parts), {}, dialect="spark")


# In Spark 4, a list or map of which an element does not fit its type is NULL.
DOCUMENTS = {
    """from_json('{"c": [1, "x"], "d": 1}', 'c array<int>, d int')""": {"c": None, "d": 1},
    """from_json('{"c": [[1], ["x"]]}', 'c array<array<int>>')""": {"c": None},
    """from_json('{"c": [{"k": 1}, 2]}', 'c array<struct<k: int>>')""": {"c": None},
    """from_json('{"c": [{"k": "x"}, null]}', 'c array<struct<k: int>>').c""": [{"k": None}, None],
    """from_json('{"a": "x", "b": 1}', 'map<string, int>')""": None,
    """from_json('{"a": null, "b": 1}', 'map<string, int>')""": [("a", None), ("b", 1)],
    """from_json('[1, "x"]', 'array<int>')""": None,
}


@pytest.mark.parametrize("expression", DOCUMENTS)
def test_a_list_of_from_json_with_a_part_of_another_form(expression):
    circuit = compile_sql(f"SELECT {expression} AS r", {}, dialect="spark")
    assert circuit.step({})["view"].to_pylist() == [{"r": DOCUMENTS[expression], "weight": 1}]


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
