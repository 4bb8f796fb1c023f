"""Database.execute: statements of SQL have the effect that they have in DuckDB."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from threading import Thread

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import (
    CircuitError,
    ProgramChangeError,
    SqlError,
    TextError,
    UnknownViewError,
    compile_datalog,
    compile_sql,
    udf,
)
from dbsp_wcoj.limits import StepLimits
from streaming import Database, DatabaseError, StreamingError
from tests.support.interrupts import interrupted
from tests.support.simulated_files import Fault, SimulatedDisk

TABLES = "CREATE TABLE t (k INT PRIMARY KEY, s TEXT); CREATE TABLE u (a INT, b INT)"
VIEW = "CREATE VIEW v AS SELECT s, count(*) AS n, sum(b) AS total FROM t JOIN u ON k = a GROUP BY s"
NUMBERS = st.integers(0, 3)
CONDITIONS = st.sampled_from(["", "WHERE b > 1", "WHERE a = b", "WHERE a IN (SELECT k FROM t)"])
STATEMENTS = st.one_of(
    st.builds("INSERT INTO u VALUES ({}, {}), ({}, 1)".format, NUMBERS, NUMBERS, NUMBERS),
    st.builds("INSERT INTO u (b) VALUES ({})".format, NUMBERS),
    st.builds("INSERT INTO u SELECT b, count(*) FROM u {} GROUP BY b".format, CONDITIONS),
    st.builds("DELETE FROM u {}".format, CONDITIONS),
    st.builds("UPDATE u SET b = a, a = b + 1 {}".format, CONDITIONS),
    st.builds("UPDATE u SET b = {} {}".format, NUMBERS, CONDITIONS),
    st.builds("INSERT OR REPLACE INTO t VALUES ({}, 'x')".format, NUMBERS),
    st.builds("UPDATE t SET s = s || {} WHERE k > {}".format, NUMBERS, NUMBERS),
    st.builds("DELETE FROM t WHERE k = {}".format, NUMBERS),
)


@given(st.lists(STATEMENTS, max_size=8))
def test_statements_have_the_effect_that_they_have_in_duckdb(statements):
    with duckdb.connect() as oracle, Database(f"{TABLES};{VIEW}") as db:
        oracle.execute(TABLES)
        oracle.execute(VIEW)
        for statement in statements:
            oracle.execute(statement)
            db.execute(statement.replace(" OR REPLACE", ""))  # an insert replaces the row of a key
            for name in ("t", "u", "v"):
                rows = oracle.execute(f"FROM {name}").fetchall()
                mine = [tuple(row.values()) for row in db.view(name).to_pylist()]
                assert Counter(mine) == Counter(rows), (statement, name)


def test_each_statement_has_an_outcome():
    with Database(TABLES) as db:
        outcomes = db.execute(f"""
            INSERT INTO t VALUES (1, 'a;b'), (2, 'c'); -- two rows
            INSERT INTO u VALUES (1, 5);
            {VIEW};
            UPDATE u SET b = 6;
            SELECT s FROM t ORDER BY s DESC;
        """)
    assert [outcome.rows for outcome in outcomes] == [2, 1, None, 1, None]
    assert outcomes[2].changes["v"].to_pylist() == [{"s": "a;b", "n": 1, "total": 5, "weight": 1}]
    assert [row["weight"] for row in outcomes[3].changes["v"].to_pylist()] == [-1, 1]
    assert outcomes[4].result.to_pylist() == [{"s": "c"}, {"s": "a;b"}]


def test_the_program_changes_while_the_rows_stay():
    seen = []
    with Database(TABLES) as db:
        db.execute("INSERT INTO t VALUES (1, 'x'); CREATE VIEW a AS SELECT s FROM t")
        db.subscribe("a", lambda changes: seen.append(changes.to_pylist()))
        db.execute("CREATE TABLE w (c INT); INSERT INTO w VALUES (3)")
        db.execute("CREATE VIEW b AS SELECT s, c FROM a, w")
        with pytest.raises(ProgramChangeError, match="'a' is read by 'b'"):
            db.execute("DROP VIEW a")
        db.execute("DROP VIEW b; DROP TABLE w; DROP TABLE IF EXISTS w")
        changes = db.execute("CREATE OR REPLACE VIEW a AS SELECT s || s AS s FROM t")[0].changes[
            "a"
        ]
        assert {row["s"]: row["weight"] for row in changes.to_pylist()} == {"x": -1, "xx": 1}
        db.execute("INSERT INTO t VALUES (2, 'y')")
        assert [[row["s"] for row in rows] for rows in seen] == [["x", "xx"], ["yy"]]
        assert [*db.circuit.inputs, *db.circuit.plans] == ["t", "u", "a"]


def test_an_interrupted_change_of_the_program_loses_no_row():
    files = ("streaming/database/database.py",)
    statement = "CREATE OR REPLACE VIEW a AS SELECT s || s AS s FROM t"

    def run(line):
        with Database(TABLES) as db:
            db.execute("INSERT INTO t VALUES (1, 'x'); CREATE VIEW a AS SELECT s FROM t")
            with interrupted(line, files) as counted:
                db.execute(statement)
            db.execute("INSERT INTO t VALUES (2, 'y')")
            rows = sorted(row["s"] for row in db.view("a").to_pylist())
            assert rows in (["x", "y"], ["xx", "yy"]), line
            return counted[0], rows

    lines, rows = run(None)
    assert (lines > 20, rows) == (True, ["xx", "yy"])
    results = [run(line)[1] for line in range(1, lines + 1)]
    assert ["x", "y"] in results
    assert ["xx", "yy"] in results


def test_the_changed_program_is_that_of_the_directory(tmp_path):
    with Database(TABLES, path=tmp_path) as db:
        db.execute("INSERT INTO t VALUES (1, 'x'); CREATE VIEW a AS SELECT s FROM t")
    with Database(path=tmp_path) as db:
        db.execute("INSERT INTO t VALUES (2, 'y')")
        assert len(db.view("a")) == 2


def test_a_type_is_known_to_the_tables_after_it(tmp_path):
    with Database("", path=tmp_path) as db:
        db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    with Database(path=tmp_path) as db:
        db.execute("CREATE TABLE t (m mood); INSERT INTO t VALUES ('ok'), ('sad')")
        with pytest.raises(SqlError, match=r"CREATE TYPE is not supported; .* with a new name"):
            db.execute("CREATE TYPE mood AS ENUM ('ok')")
        with pytest.raises(CircuitError, match="'so' is no label"):
            db.execute("INSERT INTO t VALUES ('so')")
    with Database(path=tmp_path) as db:
        db.execute(
            "CREATE VIEW v AS SELECT m FROM t ORDER BY m LIMIT 1; DELETE FROM t WHERE m = 'ok'"
        )
        assert db.view("v").to_pylist() == [{"m": "sad"}]


STATEMENTS_OF_VIEWS = [
    "CREATE VIEW a AS SELECT s FROM t",
    "DROP VIEW b",
    "CREATE OR REPLACE VIEW b AS SELECT s || s AS s FROM t",
]


@pytest.mark.parametrize("statement", STATEMENTS_OF_VIEWS)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_statement_that_failed_takes_no_effect_later(when, statement):
    for calls in range(60):
        disk = SimulatedDisk(calls)
        db = Database(f"{TABLES}; CREATE VIEW b AS SELECT s FROM t", path=disk.files())
        db.execute("INSERT INTO t VALUES (1, 'x')")
        seen = Counter()

        def add(changes, seen=seen):
            for row in changes.to_pylist():
                seen[row["s"]] += row["weight"]

        db.subscribe("b", add, initial=True)
        before = db.circuit.spec.source.text
        disk.plan(Fault(calls, "error", when))
        has_failed = False
        try:
            db.execute(statement)
        except StreamingError as error:
            has_failed = "outcome of the commit" not in str(error)
        has_struck = not disk.has_planned_fault
        disk.plan(None)
        db.execute("INSERT INTO t VALUES (2, 'y')")
        if has_failed:
            assert db.circuit.spec.source.text == before
            db.execute(statement)
            db.execute("INSERT INTO t VALUES (3, 'z')")
        if "b" in db.circuit.plans:
            rows = Counter(row["s"] for row in db.view("b").to_pylist())
            assert Counter({s: n for s, n in seen.items() if n}) == rows
        db.close()
        if not has_struck:
            break
    else:
        pytest.fail("the statement makes more than 60 calls")


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_an_error_of_the_disk_leaves_the_program_before_or_after_the_statement(when):
    for calls in range(60):
        disk = SimulatedDisk(calls)
        db = Database(TABLES, path=disk.files())
        db.execute("INSERT INTO t VALUES (1, 'x')")
        disk.plan(Fault(calls, "error", when))
        try:
            db.execute("CREATE VIEW a AS SELECT s FROM t")
        except StreamingError:
            assert disk.struck
        has_struck = not disk.has_planned_fault
        disk.plan(None)
        db.execute("INSERT INTO t VALUES (2, 'y')")
        if "a" in db.circuit.plans:
            assert len(db.view("a")) == 2
        db.close()
        with Database(path=disk.files()) as again:
            assert again.circuit.plans.keys() == db.circuit.plans.keys()
            assert len(again.view("t")) == 2
        if not has_struck:
            break
    else:
        pytest.fail("the statement makes more than 60 calls")


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("INSERT INTO v VALUES (1)", SqlError, "'v' is not a table; tables are t, u"),
        ("INSERT INTO u VALUES (1)", DatabaseError, "1 values, and there are 2 columns: a, b"),
        ("INSERT INTO u (c) VALUES (1)", SqlError, "no column 'c'; its columns are a, b"),
        ("INSERT INTO u VALUES ('x', 1)", DatabaseError, "column 'a'.*int32.*'x'"),
        ("INSERT INTO u VALUES (1, 3000000000)", DatabaseError, "column 'b'.*3000000000"),
        ("INSERT INTO u DEFAULT VALUES", (DatabaseError, SqlError), "DEFAULT"),
        ("INSERT INTO t VALUES (NULL, 'x')", CircuitError, "NULL"),
        ("INSERT INTO t VALUES (1, 'x'), (1, 'y')", CircuitError, "key"),
        ("INSERT INTO u VALUES (1, 2) RETURNING a", SqlError, "RETURNING a"),
        ("INSERT INTO u VALUES (1, 2) ON CONFLICT DO NOTHING", SqlError, "ON CONFLICT"),
        ("UPDATE u SET c = 1", SqlError, "no column 'c'"),
        ("UPDATE u SET a = 1 FROM t", SqlError, "FROM"),
        ("DELETE FROM u WHERE c = 1", SqlError, "unknown column 'c'"),
        ("DELETE FROM u USING t WHERE a = k", SqlError, "DELETE"),
        ("DROP VIEW w", DatabaseError, "'w' is not a table or view; these are t, u, v"),
        ("DROP TABLE t CASCADE", SqlError, "CASCADE"),
        ("DROP TABLE t", ProgramChangeError, "'t' is read by 'v'"),
        ("CREATE VIEW v AS SELECT 1 AS a", SqlError, "name of an existing"),
        ("CREATE VIEW w AS SELECT c FROM u", SqlError, "unknown column 'c'"),
        ("CREATE INDEX i ON t (k)", (DatabaseError, TextError), "INDEX|index"),
        ("VACUUM", (DatabaseError, TextError), "VACUUM"),
        ("SELEC 1", SqlError, "column 7"),
    ],
)
def test_statements_with_errors_change_nothing(statement, error, message):
    with Database(f"{TABLES};{VIEW}") as db:
        db.execute("INSERT INTO t VALUES (1, 'x'); INSERT INTO u VALUES (1, 2)")
        with pytest.raises(error, match=message):
            db.execute(statement)
        assert db.version == 2
        assert db.view("v").to_pylist() == [{"s": "x", "n": 1, "total": 2}]


def test_a_transaction_has_no_statements():
    refused = pytest.raises(DatabaseError, match="open transaction")
    with Database(TABLES) as db, db.transaction(), refused:
        db.execute("INSERT INTO u VALUES (1, 2)")


def test_views_in_datalog_have_no_statements():
    circuit = compile_datalog("q(x) :- e(x).", {"e": "x int"}, materialize=True)
    with Database(circuit) as db, pytest.raises(DatabaseError, match="in SQL"):
        db.execute("INSERT INTO e VALUES (1)")


def test_a_database_can_begin_and_end_without_tables(tmp_path):
    with Database("", path=tmp_path) as db:
        assert db.query("SELECT 1 AS a").to_pylist() == [{"a": 1}]
        db.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    with Database(path=tmp_path) as db:
        assert len(db.view("t")) == 1
        db.execute("DROP TABLE t; CREATE TABLE t (b TEXT); INSERT INTO t VALUES ('x')")
    with Database(path=tmp_path) as db:
        assert db.view("t").to_pylist() == [{"b": "x"}]


def test_a_new_view_can_be_read_if_others_cannot():
    with Database(f"{TABLES};{VIEW}", materialize=["t"]) as db:
        db.execute("CREATE VIEW w AS SELECT k FROM t; INSERT INTO t VALUES (1, 'x')")
        assert db.view("w").to_pylist() == [{"k": 1}]
        with pytest.raises(UnknownViewError, match="not materialized"):
            db.view("v")


def test_a_changed_program_keeps_its_options():
    text = f"{TABLES};{VIEW};CREATE VIEW w AS SELECT k FROM t"
    circuit = compile_sql(
        text,
        outputs=["w"],
        materialize=["t"],
        formula="recursive",
        max_iterations=7,
        threads=1,
        limits=StepLimits(max_step_rows=99),
    )
    with Database(circuit) as db:
        db.execute("CREATE VIEW x AS SELECT a FROM u; CREATE TABLE y (a INT)")
        db.execute("CREATE TEMP VIEW z AS SELECT b FROM u; DROP TABLE y")
        db.execute("CREATE OR REPLACE VIEW v AS SELECT b FROM u")
        options = db.circuit.spec.options
        assert options.outputs == ("w", "x")
        assert (options.formula, options.max_iterations, options.threads) == ("recursive", 7, 1)
        assert options.limits == StepLimits(max_step_rows=99)
        db.execute("DROP VIEW w; CREATE OR REPLACE VIEW x AS SELECT b FROM u")
        assert db.circuit.spec.outputs == ("x",)


def test_all_views_but_temporary_ones_are_outputs_unless_the_circuit_says_otherwise():
    with Database(f"{TABLES}; {VIEW}; CREATE TEMP VIEW w AS SELECT a FROM u") as db:
        assert db.circuit.spec.outputs == ("v",)
        db.execute("CREATE VIEW x AS SELECT a FROM w; CREATE TEMP VIEW y AS SELECT a FROM u")
        assert db.circuit.spec.outputs == ("v", "x")


def test_a_database_without_tables_keeps_its_settings():
    functions = {"twice": udf(lambda x: 2 * x, parameters=["int"], returns="int")}
    limits = StepLimits(max_step_rows=99)
    with Database("", functions=functions, limits=limits, threads=1) as db:
        db.execute("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT twice(a) AS a FROM t")
        db.execute("INSERT INTO t VALUES (4)")
        assert db.view("v").to_pylist() == [{"a": 8}]
        assert (db.circuit.spec.options.limits, db.circuit.spec.options.threads) == (limits, 1)


@pytest.mark.parametrize("text", ["", "CREATE TYPE m AS ENUM ('x')", "CREATE VIEW v AS SELECT 1"])
def test_a_table_that_no_statement_declares_can_be_dropped(text):
    with Database(text, {"t": "a int"}) as db:
        db.execute("INSERT INTO t VALUES (1); DROP VIEW IF EXISTS v")
        assert db.view("t").to_pylist() == [{"a": 1}]
        db.execute("DROP TABLE t; CREATE TABLE t (b TEXT); INSERT INTO t VALUES ('x')")
        assert db.view("t").to_pylist() == [{"b": "x"}]


def test_threads_change_the_program_one_after_the_other():
    with Database(TABLES) as db:
        threads = [
            Thread(target=db.execute, args=(f"CREATE VIEW w{n} AS SELECT k FROM t",))
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.execute("INSERT INTO t VALUES (1, 'x')")
        assert {name: len(db.view(name)) for name in db.circuit.plans} == {
            f"w{n}": 1 for n in range(6)
        }


def test_a_callback_cannot_change_the_program():
    seen = []
    with Database(f"{TABLES};{VIEW}") as db:

        def callback(changes):
            with pytest.raises(DatabaseError, match="callback"):
                db.execute("CREATE VIEW w AS SELECT k FROM t")
            seen.append(changes)

        db.subscribe("v", callback)
        db.execute("INSERT INTO t VALUES (1, 'x'); INSERT INTO u VALUES (1, 2)")
        assert len(seen) == 1


def test_insert_converts_integers_to_decimals_and_texts_to_lists():
    database = Database("CREATE TABLE t (x NUMERIC, a INT[], b TEXT[][])", dialect="postgres")
    database.execute(
        """INSERT INTO t VALUES (2, '{1, NULL}', '{{"x, y"},{}}'), (NULL, NULL, NULL)"""
    )
    assert sorted(map(str, database.view("t").to_pylist())) == [
        "{'x': Decimal('2.000'), 'a': [1, None], 'b': [['x, y'], []]}",
        "{'x': None, 'a': None, 'b': None}",
    ]
    with pytest.raises(DatabaseError, match="does not fit the type decimal"):
        database.execute("INSERT INTO t VALUES (9223372036854775807, NULL, NULL)")
    for text in ("{1", "{1,}", "{1}}", "{{1}}", "1", "{x}", ""):
        with pytest.raises(DatabaseError, match="does not fit the type list"):
            database.execute(f"INSERT INTO t VALUES (1, '{text}', NULL)")


def test_insert_converts_intervals_without_months_to_durations():
    database = Database("CREATE TABLE t (d INTERVAL)", dialect="postgres")
    database.execute("INSERT INTO t VALUES ('1 day 2 hours'), (INTERVAL '-3' SECOND), (NULL)")
    durations = [timedelta(days=1, hours=2), timedelta(seconds=-3), None]
    assert Counter(row["d"] for row in database.view("t").to_pylist()) == Counter(durations)
    with pytest.raises(DatabaseError, match="the interval has months; write it in days"):
        database.execute("INSERT INTO t VALUES (INTERVAL '1 month')")
