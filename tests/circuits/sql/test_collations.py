"""COLLATE in the list of a SELECT with groups: one text stands for those that are equal."""

from __future__ import annotations

from collections import Counter

import pytest

from circuits import UnsupportedSqlError, compile_sql
from tests.oracles.shared_duckdb import connect_to_new_schema

TEXTS = ["a", "A", "b", "B", None, "Ä", "ä", "c", None, "b"]
QUERIES = [
    "SELECT s COLLATE NOCASE AS k, count(*) AS n FROM t GROUP BY s COLLATE NOCASE",
    "SELECT (s COLLATE NOCASE) AS k, count(*) AS n FROM t GROUP BY 1 HAVING count(*) > 1",
    "SELECT s COLLATE NOCASE AS k, sum(i) AS n FROM t GROUP BY 1 HAVING s COLLATE NOCASE > 'A'",
    "SELECT s COLLATE NOCASE.NOACCENT AS k, max(i) AS n FROM t GROUP BY 1",
    "SELECT DISTINCT s COLLATE NOCASE AS k, i > 4 AS n FROM t",
    "SELECT s COLLATE NOCASE AS s, count(s) AS n FROM t GROUP BY 1",
    "SELECT s, i AS n FROM t WHERE s COLLATE NOCASE LIKE 'A!%' ESCAPE '!' OR s = 'b'",
]


def folded(rows):
    return Counter((text if text is None else text.lower(), *others) for text, *others in rows)


@pytest.mark.parametrize("query", QUERIES)
def test_groups_without_regard_to_case_are_those_of_duckdb_after_inserts_and_deletes(query):
    rows = [(number, text) for number, text in enumerate(TEXTS)]
    circuit = compile_sql(query, {"t": "i INT, s STRING"})
    connection = connect_to_new_schema()
    connection.execute("CREATE TABLE t (i INT, s VARCHAR)")
    total, present = Counter(), []
    for inserted, deleted in [(rows[:6], []), (rows[6:], rows[1:3]), ([], rows[4:7])]:
        changes = [{"i": i, "s": s, "weight": 1} for i, s in inserted]
        changes += [{"i": i, "s": s, "weight": -1} for i, s in deleted]
        present = [row for row in [*present, *inserted] if row not in deleted]
        connection.execute("DELETE FROM t")
        connection.executemany("INSERT INTO t VALUES (?, ?)", present)
        for *row, weight in (r.values() for r in circuit.step({"t": changes})["view"].to_pylist()):
            total[tuple(row)] += weight
        texts = {text for _, text in present}
        view = list(total.elements())
        assert folded(view) == folded(connection.sql(query).fetchall())
        if "NOACCENT" not in query:
            assert {text for text, *_ in view} <= texts


def test_the_least_text_of_a_group_stands_for_it():
    rows = [{"s": text} for text in ("b", "B", "a")]
    for query, dialect in [
        ("SELECT s COLLATE NOCASE, count(*) FROM t GROUP BY 1", "duckdb"),
        ("SELECT s COLLATE UTF8_LCASE, count(*) FROM t GROUP BY s COLLATE UTF8_LCASE", "spark"),
    ]:
        circuit = compile_sql(query, {"t": "s STRING"}, dialect=dialect)
        view = circuit.step({"t": rows})["view"]
        assert Counter(view[0].to_pylist()) == Counter(["B", "a"])
        assert view.column_names[0] == query.split(",")[0].removeprefix("SELECT ")


def test_a_name_of_a_collated_item_in_another_clause_is_refused():
    clauses = "HAVING k = 'A'", "QUALIFY k = 'A'", "ORDER BY k LIMIT 1", "ORDER BY k OFFSET 1"
    for clause in clauses:
        with pytest.raises(UnsupportedSqlError, match="COLLATE NOCASE here"):
            compile_sql(
                f"SELECT s COLLATE NOCASE AS k, count(*) AS n FROM t GROUP BY 1 {clause}",
                {"t": "s STRING"},
            )


def test_a_name_of_a_collated_item_in_another_item_is_refused():
    for query in (
        "SELECT s COLLATE NOCASE AS k, k = 'ABC' AS n FROM t GROUP BY 1",
        "SELECT DISTINCT s COLLATE NOCASE AS k, k = 'ABC' AS n FROM t",
        "SELECT s COLLATE NOCASE AS k, rank() OVER (ORDER BY k) AS n FROM t GROUP BY 1",
    ):
        with pytest.raises(UnsupportedSqlError, match="COLLATE NOCASE here"):
            compile_sql(query, {"t": "s STRING"})


@pytest.mark.parametrize("negation", ["", "NOT "])
def test_a_letter_as_the_escape_of_a_pattern_without_regard_to_case_is_refused(negation):
    query = f"SELECT s FROM t WHERE s COLLATE NOCASE {negation}LIKE 'XX%a' ESCAPE 'X'"
    with pytest.raises(UnsupportedSqlError, match="COLLATE NOCASE here"):
        compile_sql(query, {"t": "s STRING"})


@pytest.mark.parametrize(
    ("collation", "dialect"), [('"C"', "postgres"), ("BINARY", "duckdb"), ("UTF8_BINARY", "spark")]
)
def test_a_column_with_a_collation_by_bytes_is_a_text(collation, dialect):
    table = f"CREATE TABLE t (s VARCHAR(9) COLLATE {collation} NOT NULL);"
    circuit = compile_sql(f"{table} SELECT s FROM t ORDER BY s LIMIT 1", dialect=dialect)
    rows = circuit.step({"t": [{"s": "a"}, {"s": "B"}]})["view"].to_pylist()
    assert rows == [{"s": "B", "weight": 1}]


def test_a_column_with_another_collation_is_refused():
    with pytest.raises(UnsupportedSqlError, match=r"COLLATE de_DE in CREATE TABLE .* leave it out"):
        compile_sql('CREATE TABLE t (s TEXT COLLATE "de_DE"); SELECT s FROM t', dialect="postgres")
