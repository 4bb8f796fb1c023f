"""Dialect spark against the examples of Spark's documentation; Spark computed their results."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracles.spark_documentation import cases_of, move_literals, outcome, score

# Spark gives the first or the last of rows without an order; a view has no such row.
UNORDERED = (
    "first",
    "last",
    "any_value",
    "mode",
    "array_agg",
    "collect_list",
    "first_value",
    "last_value",
)


@pytest.mark.spark
@pytest.mark.slow
def test_most_examples_of_spark_have_its_rows_and_types(spark):
    results = score(cases_of(spark), moved=False)
    counts = Counter(outcome for _, outcome, _ in results)
    different = [
        (case["text"], reason)
        for case, outcome, reason in results
        if outcome == "different" and "error" not in case and case["function"] not in UNORDERED
    ]

    assert len(different) <= 1, different  # to_json of a map whose keys are structs
    assert counts["equal"] >= 0.77 * len(results), counts
    assert counts["refused"] <= 0.2 * len(results), counts


def test_literals_are_moved_to_columns_of_their_types():
    text, table = move_literals("SELECT substring('Spark', 2, CAST('1' AS INT)) + 1.5") or (
        "",
        None,
    )

    assert text == "SELECT substring(lit0, lit1, CAST(lit2 AS INT)) + lit3 FROM input_row"
    assert [str(field.type) for field in table.schema] == [
        *("string", "int32", "string"),
        "decimal128(2, 1)",
    ]
    assert move_literals("SELECT DATE '2024-01-01'") is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"rows": [[3]], "types": ["int"]}, "equal"),
        ({"rows": [[3]], "types": ["bigint"]}, "type"),
        ({"rows": [[4]], "types": ["int"]}, "different"),
        ({"error": "DIVIDE_BY_ZERO"}, "different"),
    ],
)
def test_an_example_is_compared_by_rows_and_types(answer, expected):
    assert outcome(answer, "SELECT 1 + 2")[0] == expected


STATEMENTS = {
    "SELECT a FROM VALUES (1), (2) AS t(a) SORT BY a": [[1], [2]],
    "SELECT /*+ BROADCAST(t) */ a FROM VALUES (1) AS t(a) DISTRIBUTE BY a": [[1]],
    "SELECT -16 >>> 28, 16 >> 2": [[15, 4]],
    "SELECT hex(X '1A')": [["1A"]],
    "SELECT stack(2, 1, 'a', 2)": [[1, "a"], [2, None]],
    "SELECT k FROM VALUES (1, 2) AS t(a, b) LATERAL VIEW stack(2, a, b) s AS k": [[1], [2]],
    "SELECT * FROM explode(collection => array(3))": [[3]],
    "SELECT IDENTIFIER('a') FROM VALUES (1) AS t(a)": [[1]],
    "SELECT col1, col2 FROM VALUES (1, 'a')": [[1, "a"]],
    "SELECT * FROM VALUES (1, 2), (1, 3) AS t(a, b) PIVOT (sum(b) FOR b IN (2, 3))": [[1, 2, 3]],
    "SELECT first_value(a), try_avg(a) FROM VALUES (2) AS t(a)": [[2, 2.0]],
    "SELECT percentile(a, array(0.0, 0.5)) FROM VALUES (1), (3) AS t(a)": [[[1.0, 2.0]]],
    "SELECT sum(a), avg(a) FROM VALUES (1.5), (2.0) AS t(a)": [["decimal 3.5", "decimal 1.75"]],
    "SELECT rank(a) OVER (ORDER BY a) FROM VALUES (5) AS t(a)": [[1]],
    "SELECT current_database()": [["default"]],
    "SELECT c, count(*) FROM VALUES (1) AS t(a) LATERAL VIEW explode(array(3, 6)) AS c "
    "LATERAL VIEW explode(array(4, 8)) AS d GROUP BY c": [[3, 2], [6, 2]],
    "SELECT sum(a) AS b FROM VALUES (1, 10), (2, 20) AS t(a, b) GROUP BY CUBE(a, b) "
    "HAVING b > 10": [[2], [2]],
    "SELECT from_json('', 'a INT'), from_json('  ', 'a INT'), from_json('x', 'a INT')": [
        [None, None, [None]]
    ],
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_in_the_syntax_of_spark_has_its_rows(text):
    case = {"rows": STATEMENTS[text], "types": []}
    comparison, reason = outcome(case, text)
    assert comparison == "type", reason  # the rows agree; there are no types to compare with
