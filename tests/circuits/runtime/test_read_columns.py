"""Columns that no view reads are checked, but not encoded."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import SchemaError

ROWS = pa.table({"k": [1, 1, 2], "name": ["a", "b", "c"], "note": ["x", "y", "z"]})
SCHEMA = "k BIGINT NOT NULL, name VARCHAR, note VARCHAR NOT NULL"


def encoded_texts(query: str) -> int:
    circuit = compile_sql(f"CREATE VIEW v AS {query}", {"t": SCHEMA})
    circuit.step({"t": ROWS})
    return sum(circuit.codecs.lengths().values())


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("SELECT k, count(*) AS n FROM t GROUP BY k", 0),
        ("SELECT k FROM t WHERE name IS NOT NULL", 3),
        ("SELECT name FROM t", 3),
        ("SELECT upper(name) AS name FROM t WHERE note > 'x'", 6 + 2),
        ("SELECT * FROM t", 6),
        ("SELECT * FROM t WHERE k > 1", 6),
        ("SELECT t.k FROM t JOIN t AS u ON t.name = u.name", 3),
    ],
)
def test_only_texts_of_read_columns_are_encoded(query, texts):
    assert encoded_texts(query) == texts


def test_a_view_that_is_added_to_the_text_reads_its_columns():
    text = "CREATE VIEW v AS SELECT k FROM t; CREATE VIEW w AS SELECT note FROM t WHERE k = 2;"
    circuit = compile_sql(text, {"t": SCHEMA})
    outputs = circuit.step({"t": ROWS})
    assert outputs["w"].to_pylist() == [{"note": "z", "weight": 1}]
    assert sum(circuit.codecs.lengths().values()) == 3


def test_rows_that_differ_in_an_unread_column_have_their_summed_weight():
    circuit = compile_sql("CREATE VIEW v AS SELECT k FROM t", {"t": SCHEMA})
    assert circuit.step({"t": ROWS})["v"].to_pylist() == [
        {"k": 1, "weight": 2},
        {"k": 2, "weight": 1},
    ]
    deleted = ROWS.slice(1, 1).append_column("weight", pa.array([-1]))
    assert circuit.step({"t": deleted})["v"].to_pylist() == [{"k": 1, "weight": -1}]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["x", None, "z"]), "1 NULL of 3 values"),
        (pa.array([1, 2, 3]), "the type is int64, declared is string"),
    ],
)
def test_an_unread_column_is_checked(column, message):
    circuit = compile_sql("CREATE VIEW v AS SELECT k FROM t", {"t": SCHEMA})
    with pytest.raises(SchemaError, match=message):
        circuit.step({"t": ROWS.set_column(2, "note", column)})
    extreme = pa.table({"k": pa.array([-(2**63)]), "name": ["a"]})
    circuit = compile_sql("CREATE VIEW v AS SELECT name FROM t", {"t": "k BIGINT, name VARCHAR"})
    with pytest.raises(SchemaError, match="column 'k'"):
        circuit.step({"t": extreme})
