"""The order of the columns of ``*`` after JOIN ... USING and NATURAL JOIN.

In the SQL standard, and so in Spark and PostgreSQL, the columns of USING are the first ones. In
DuckDB they remain at their place in the left table.
"""

from __future__ import annotations

import pytest

from circuits import compile_sql

SCHEMAS = {"a": "p INT, k INT, q INT", "b": "r INT, k INT, s INT", "c": "t INT, k INT, q INT"}

# By query: the columns in dialect spark, as Spark 4 returns them, in postgres and in duckdb.
CASES = {
    "SELECT * FROM a JOIN b USING (k)": ("k p q r s", "k p q r s", "p k q r s"),
    "SELECT * FROM a FULL JOIN b USING (k)": ("k p q r s", "k p q r s", "p k q r s"),
    "SELECT * FROM a NATURAL RIGHT JOIN c": ("k q p t", "k q p t", "p k q t"),
    "SELECT * FROM a JOIN c USING (q, k)": ("q k p t", "q k p t", "p k q t"),
    "SELECT a.* FROM a JOIN b USING (k)": ("k p q", "p k q", "p k q"),
    "SELECT b.* FROM a LEFT JOIN b USING (k)": ("k r s", "r k s", "r k s"),
    "SELECT x.* FROM (SELECT * FROM a JOIN b USING (k)) x": ("k p q r s", "k p q r s", "p k q r s"),
    "SELECT * FROM a JOIN b USING (k) JOIN (SELECT q, t FROM c) d USING (q)": (
        "q k p r s t",
        "q k p r s t",
        "p k q r s t",
    ),
    "SELECT * FROM a JOIN b USING (k) JOIN (SELECT k, t FROM c) d USING (k)": (
        "k p q r s t",
        "k p q r s t",
        "p k q r s t",
    ),
}


@pytest.mark.parametrize("query", CASES)
def test_the_columns_of_using_are_first_except_in_duckdb(query):
    for dialect, names in zip(("spark", "postgres", "duckdb"), CASES[query], strict=True):
        circuit = compile_sql(query, SCHEMAS, dialect=dialect)
        step = circuit.step({"a": [{"p": 1, "k": 2, "q": 3}], "b": [{"r": 4, "k": 2, "s": 5}]})
        assert step["view"].column_names[:-1] == names.split(), dialect


@pytest.mark.parametrize("join", ["LEFT SEMI", "LEFT ANTI"])
def test_the_columns_of_using_are_first_in_semijoins_of_spark(join):
    circuit = compile_sql(f"SELECT * FROM a {join} JOIN c USING (q, k)", SCHEMAS, dialect="spark")
    assert circuit.step({})["view"].column_names[:-1] == ["q", "k", "p"]


def test_values_follow_their_names():
    circuit = compile_sql("SELECT * FROM a JOIN b USING (k)", SCHEMAS, dialect="spark")
    step = circuit.step({"a": [{"p": 1, "k": 2, "q": 3}], "b": [{"r": 4, "k": 2, "s": 5}]})
    assert step["view"].to_pylist() == [{"k": 2, "p": 1, "q": 3, "r": 4, "s": 5, "weight": 1}]
