"""One-shot queries over the state of a circuit: as a view would be, and nothing changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from circuits import DatalogError, SqlError, TextError, compile_datalog, compile_sql
from tests.circuits.state.test_snapshot import INPUTS as PEOPLE
from tests.circuits.state.test_snapshot import VIEWS as PEOPLE_VIEWS
from tests.circuits.state.test_snapshot import steps as people_steps
from tests.circuits.test_circuit import CYCLE, random_steps
from tests.oracles.datalog_extenders import answers
from tests.support.tables import (
    EDGE,
    MARK,
    Totals,
    bag_of,
    edges,
    marks,
    not_null_integers,
    table_of,
)

INPUTS = {"link": EDGE, "mark": MARK}
MATERIALIZED = """
CREATE VIEW e AS SELECT DISTINCT src, dst FROM link WHERE src <> dst;
CREATE VIEW degrees AS SELECT src, count(*) AS n FROM link GROUP BY src;
"""
SELECTS = [
    "SELECT * FROM link",
    "SELECT dst AS a, src + 1 AS b FROM link WHERE src < dst OR dst IS NULL",
    "SELECT count(*) FROM e x, e y, e z WHERE y.src = x.dst AND z.src = x.src AND z.dst = y.dst",
    "SELECT x.src, y.dst FROM link x JOIN link y ON y.src = x.dst AND x.src <= y.dst",
    "SELECT l.src, l.dst, m.node FROM link l LEFT JOIN mark m ON m.node = l.dst",
    "SELECT src FROM link WHERE EXISTS (SELECT 1 FROM mark WHERE node = dst)",
    "SELECT src FROM link WHERE dst NOT IN (SELECT node FROM mark)",
    "SELECT dst, count(*) AS n, sum(src) AS s, min(src) AS least FROM link GROUP BY dst",
    "SELECT max(n) AS most, count(*) AS nodes FROM degrees",
    "SELECT src, dst FROM link ORDER BY dst DESC, src LIMIT 3",
    "SELECT src FROM link EXCEPT ALL SELECT node FROM mark",
    "SELECT node FROM mark UNION SELECT dst FROM link",
    "WITH far AS (SELECT src FROM degrees WHERE n > 1) SELECT src, dst FROM far JOIN e USING (src)",
    "SELECT 7 AS x, 'text' AS t",
]
RULES = [
    "tri(a, b, c) :- e(a, b), e(b, c), e(c, a).",
    "open(a) :- e(a, b), not mark(b).",
    "two(a, c) :- e(a, b), e(b, c). answer(a) :- two(a, b), a < b.",
    "near(a) :- or(mark(a), e(a, 3)).",
    "many(a, count(b)) :- e(a, b).",
]


@pytest.fixture(scope="module")
def stepped():
    """A circuit after some steps, and the changes of each step."""
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=True)
    changes = []
    for tables, _, _ in random_steps(9, np.random.default_rng(12)):
        circuit.step(tables)
        changes.append(tables)
    return circuit, changes


def sum_deltas(compiled, changes):
    """Return the rows of each view of a circuit after these steps."""
    totals = Totals(compiled)
    for tables in changes:
        totals.step(tables)
    return totals.bags


@pytest.mark.parametrize("select", SELECTS)
def test_an_answer_in_sql_is_that_of_a_view(stepped, select):
    circuit, changes = stepped
    bags = sum_deltas(
        compile_sql(f"{MATERIALIZED} CREATE VIEW answer AS {select}", INPUTS), changes
    )
    assert bag_of(circuit.query(select)) == bags["answer"]


@pytest.mark.parametrize("rules", RULES)
def test_an_answer_in_datalog_is_that_of_the_last_head(stepped, rules):
    circuit, changes = stepped
    views = "e(a, b) :- link(a, b), a != b."
    compiled = compile_datalog(f"{views} {rules}", INPUTS)
    bags = sum_deltas(compiled, changes)
    assert bag_of(circuit.query(rules)) == bags[compiled.outputs[-1]]


def test_a_query_leaves_the_circuit_unchanged(stepped):
    circuit, _ = stepped
    before = circuit.snapshot()
    explained = circuit.explain()
    for text in (*SELECTS, *RULES):
        circuit.query(text)
    after = circuit.snapshot()
    assert circuit.explain() == explained
    assert after.traces.keys() == before.traces.keys()
    for name, (rows, weights) in before.traces.items():
        assert np.array_equal(after.traces[name][0], rows), name
        assert np.array_equal(after.traces[name][1], weights), name
    assert bag_of(circuit.query("SELECT count(*) AS n FROM link WHERE src = 99")) == {(0,): 1}


def test_views_of_texts_aggregates_and_row_ids_are_queried_like_tables():
    circuit = compile_sql(PEOPLE_VIEWS, PEOPLE, materialize=True)
    queries = {
        "a": "SELECT g.city, g.n, p.one FROM groups g JOIN pairs p ON p.city = g.city",
        "b": "SELECT upper(one) AS name, how || '!' AS how FROM pairs WHERE how LIKE 'f%'",
        "c": "SELECT name, count(*) AS n FROM friends WHERE b IS NOT NULL GROUP BY name",
        "d": "SELECT * FROM groups ORDER BY money DESC NULLS LAST, city LIMIT 2",
    }
    views = "".join(f"CREATE VIEW {name} AS {text};" for name, text in queries.items())
    changes = list(people_steps(8, seed=1))
    bags = sum_deltas(compile_sql(PEOPLE_VIEWS + views, PEOPLE), changes)
    for tables in changes:
        circuit.step(tables)
    assert {name: bag_of(circuit.query(text)) for name, text in queries.items()} == {
        name: bags[name] for name in queries
    }
    assert bags["a"] and bags["b"] and bags["c"] and bags["d"]


def test_a_step_after_a_query_with_new_constants_is_right():
    schema = pa.schema([("name", pa.string())])
    circuit = compile_sql(
        "SELECT count(DISTINCT name) AS n FROM r", {"r": schema}, materialize=["r"]
    )
    circuit.step({"r": table_of(schema, [("ann",)])})
    assert bag_of(circuit.query("SELECT name, 'new' AS x FROM r")) == {("ann", "new"): 1}
    assert bag_of(circuit.query("SELECT lower('BOB') AS x FROM r")) == {("bob",): 1}
    circuit.step({"r": table_of(schema, [("new",), ("bob",)])})
    assert bag_of(circuit.query("SELECT name FROM r")) == {("ann",): 1, ("new",): 1, ("bob",): 1}


def test_an_input_of_which_a_join_reads_all_columns_can_be_queried():
    schemas = {"a": not_null_integers("x", "y"), "b": not_null_integers("y", "z")}
    circuit = compile_sql("SELECT x, z FROM a JOIN b ON b.y = a.y", schemas)
    circuit.step({"a": pa.table({"x": [1, 2], "y": [5, 6]}), "b": pa.table({"y": [5], "z": [7]})})
    assert bag_of(circuit.query("SELECT x, y FROM a")) == {(1, 5): 1, (2, 6): 1}
    assert bag_of(circuit.query("far(z) :- b(y, z), a(1, y).")) == {(7,): 1}


def test_an_answer_before_the_first_step_is_that_of_empty_relations():
    circuit = compile_sql("SELECT src FROM link", INPUTS, materialize=True)
    assert bag_of(circuit.query("SELECT count(*) AS n FROM link")) == {(0,): 1}
    assert bag_of(circuit.query("p(a) :- link(a, b), not mark(b).")) == {}


def test_relations_without_columns_are_queried_for_their_weight():
    circuit = compile_datalog(
        "on(a) :- mark(a), switch().", {"mark": MARK, "switch": pa.schema([])}, materialize=True
    )
    circuit.step({"mark": marks(1), "switch": pa.table({"weight": [3]})})
    assert bag_of(circuit.query("off(a) :- mark(a), not switch().")) == {}
    assert bag_of(circuit.query("up() :- switch().")) == {(): 1}
    circuit.step({"switch": pa.table({"weight": [-3]})})
    assert bag_of(circuit.query("off(a) :- mark(a), not switch().")) == {(1,): 1}
    assert bag_of(circuit.query("up() :- switch().")) == {}


@pytest.mark.parametrize("text", ["a :- b", ":-)", "f() :- "])
def test_a_text_in_quotes_that_looks_like_a_rule_is_still_sql(text):
    schema = pa.schema([("said", pa.string())])
    circuit = compile_sql("SELECT said FROM r", {"r": schema}, materialize=True)
    circuit.step({"r": table_of(schema, [(text,), ("nothing",)])})
    assert bag_of(circuit.query(f"SELECT said FROM r WHERE said = '{text}'")) == {(text,): 1}
    assert bag_of(circuit.query(f'p(x) :- r(x), x != "{text}".')) == {("nothing",): 1}


def test_a_query_of_data_that_is_not_kept_is_an_error_that_says_how_to_keep_it():
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=["e"])
    circuit.step({"link": edges(*CYCLE)})
    for text, error in (
        ("SELECT * FROM degrees", SqlError),
        ("p(a) :- link(a, b).", DatalogError),
    ):
        with pytest.raises(error) as raised:
            circuit.query(text)
        assert isinstance(raised.value, TextError) and raised.value.line == 1
        (note,) = raised.value.__notes__
        assert note.startswith(
            "a query can read e; to read link, mark, degrees too, make the circuit"
        )
        assert "materialize=True" in note


def test_an_unknown_name_is_an_error_that_does_not_propose_to_materialize_it():
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=["e"])
    with pytest.raises(SqlError, match="unknown table 'roads'; tables: e") as raised:
        circuit.query("SELECT * FROM roads")
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(SqlError, match="SELEKT"):
        circuit.query("SELEKT * FROM e")


def test_the_prefix_extenders_give_the_same_rows(stepped):
    circuit, _ = stepped
    rules = "tri(a, b, c) :- e(a, b), e(b, c), e(c, a)."
    edges_now = {"e": list(bag_of(circuit.views["e"]))}
    assert bag_of(circuit.query(rules)) == dict.fromkeys(answers(rules, edges_now), 1)


@pytest.mark.parametrize(
    "text",
    ["SELEC src FROM link", "SELEC(src) FROM link", "src FROM link", "", "p(x) : link(x, y)"],
)
def test_a_text_that_is_neither_language_is_refused_as_sql(text):
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=True)
    with pytest.raises(SqlError):
        circuit.query(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT src FROM link; DROP TABLE link",
        "SELECT src FROM link; SELECT dst FROM link",
        "DROP TABLE link; SELECT src FROM link",
        "WITH x AS (DELETE FROM link) SELECT src FROM link",
        "INSERT INTO link VALUES (1, 2) RETURNING src",
    ],
)
def test_a_statement_that_is_not_one_query_is_refused(text):
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=True)
    with pytest.raises(SqlError):
        circuit.query(text)


def test_columns_of_one_name_are_numbered_as_in_duckdb():
    circuit = compile_sql(MATERIALIZED, INPUTS, materialize=True)
    circuit.step({"link": edges((1, 2))})
    answer = circuit.query("SELECT x.*, y.dst, x.src AS DST FROM link x JOIN link y USING (src)")
    assert answer.to_pylist() == [{"src": 1, "dst": 2, "dst_1": 2, "DST_2": 1, "weight": 1}]
    inner = "SELECT src AS a, dst AS a, 1 AS a_1, 2 AS a FROM link"
    expected = [{"a": 1, "a_1": 2, "a_1_1": 1, "a_2": 2, "weight": 1}]
    for text in (
        inner,
        f"SELECT * FROM ({inner}) q",
        f"WITH q AS ({inner}) SELECT * FROM q",
        f"SELECT a, a_1, a_1_1, a_2 FROM ({inner}) q",
        f"CREATE VIEW v AS {inner}; SELECT * FROM v",
    ):
        assert circuit.query(text).to_pylist() == expected
