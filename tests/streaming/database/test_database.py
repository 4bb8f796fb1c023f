"""Database: rows in, views out, as a table of rows in plain Python has them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import (
    CircuitError,
    EvaluationError,
    InputOptions,
    MissingRowError,
    SchemaError,
    SqlError,
    UnknownInputError,
    UnknownViewError,
    UpsertError,
    compile_datalog,
    compile_sql,
    udf,
)
from dbsp_wcoj.limits import StepLimits
from streaming import (
    ChangeOptions,
    Database,
    DatabaseError,
    Result,
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
)
from streaming.database import database
from streaming.state.local_files import LocalFiles

SHOP = """
    CREATE TABLE orders (nr BIGINT PRIMARY KEY, item TEXT, price BIGINT);
    CREATE TABLE log (a BIGINT, b TEXT);
    CREATE VIEW totals AS SELECT item, count(*) AS n, sum(price) AS worth FROM orders GROUP BY item;
    CREATE VIEW pairs AS SELECT nr, b FROM orders JOIN log ON nr = a;
"""
DESK = {"nr": 1, "item": "desk", "price": 250}
LAMP = {"nr": 2, "item": "lamp", "price": 30}


@pytest.fixture
def shop():
    with Database(SHOP) as db:
        yield db


def rows_of(db: Database, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in db.view(name).to_pylist())


def test_changes_of_one_input(shop):
    assert shop.insert("orders", [DESK, LAMP])["totals"].to_pylist() == [
        {"item": "desk", "n": 1, "worth": 250, "weight": 1},
        {"item": "lamp", "n": 1, "worth": 30, "weight": 1},
    ]
    shop.upsert("orders", [DESK | {"price": 260}])
    changes = shop.delete("orders", [{"nr": 2}])
    assert changes["totals"].to_pylist() == [{"item": "lamp", "n": 1, "worth": 30, "weight": -1}]
    assert rows_of(shop, "totals") == {("desk", 1, 260): 1}
    assert rows_of(shop, "orders") == {(1, "desk", 260): 1}
    assert shop.version == 3


def test_an_inserted_row_replaces_the_row_of_its_key(shop):
    shop.insert("orders", [DESK])
    shop.insert("orders", [DESK | {"item": "chair"}])
    assert rows_of(shop, "orders") == {(1, "chair", 250): 1}


def test_deleting_a_key_that_does_not_exist_changes_nothing(shop):
    assert not any(table.num_rows for table in shop.delete("orders", [{"nr": 9}]).values())


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}),
        pa.table({"a": [1, 1], "b": ["x", "x"]}),
        pa.table({"a": [1, 1], "b": ["x", "x"]}).to_batches(),
        duckdb.sql("SELECT 1 AS a, 'x' AS b FROM range(2)"),
        [{"a": 1, "b": "x"}] * 2,
    ],
    ids=["pandas", "table", "batches", "duckdb", "dicts"],
)
def test_kinds_of_rows(shop, rows):
    shop.insert("log", rows)
    assert rows_of(shop, "log") == {(1, "x"): 2}


def test_a_result_is_readable_by_other_libraries(shop):
    shop.insert("log", [{"a": 1, "b": "x"}] * 2)
    result = shop.view("log")
    assert len(result) == 2
    assert repr(result) == "<Result of log: 2 rows of a int64, b string>"
    assert result.to_pandas()["b"].tolist() == ["x", "x"]
    assert result.schema.names == ["a", "b"]
    assert pa.table(result) == result.to_arrow()
    assert duckdb.from_arrow(result.to_arrow()).count("a").fetchall() == [(2,)]


def test_a_query_returns_the_rows_in_order(shop):
    shop.insert("log", [{"a": a, "b": "x" * (a % 2)} for a in (3, 1, 2, 1)])
    rows = shop.query("SELECT b, a FROM log ORDER BY b DESC, a").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("x", 1), ("x", 1), ("x", 3), ("", 2)]


def test_a_transaction_is_one_step_in_the_order_of_its_calls(shop):
    shop.insert("orders", [LAMP])
    with shop.transaction() as transaction:
        assert shop.insert("orders", [DESK]) == {}
        shop.insert("log", [{"a": 1, "b": "x"}])
        shop.delete("orders", [{"nr": 2}])
        shop.upsert("orders", pd.DataFrame([DESK | {"item": "chair"}]))
        shop.delete("log", pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
        shop.insert("log", [{"a": 1, "b": "y"}])
        assert transaction.changes == {}
        assert rows_of(shop, "orders") == {(2, "lamp", 30): 1}
    assert shop.version == 2
    assert rows_of(shop, "orders") == {(1, "chair", 250): 1}
    assert transaction.changes["pairs"].to_pylist() == [{"nr": 1, "b": "y", "weight": 1}]


def test_a_transaction_is_empty_after_its_block(shop):
    transaction = shop.transaction()
    with pytest.raises(ZeroDivisionError), transaction:
        shop.insert("log", [{"a": 1, "b": "x"}])
        _ = 1 / 0
    for a in (2, 3):
        with transaction, pytest.raises(DatabaseError, match="open already"):
            shop.insert("log", [{"a": a, "b": "x"}])
            transaction.__enter__()
    assert rows_of(shop, "log") == {(2, "x"): 1, (3, "x"): 1}


def test_a_transaction_with_an_error_changes_nothing(shop):
    with pytest.raises(ZeroDivisionError), shop.transaction():
        shop.insert("orders", [DESK])
        1 / 0  # noqa: B018
    with pytest.raises(MissingRowError), shop.transaction():
        shop.insert("orders", [DESK])
        shop.delete("log", [{"a": 1, "b": "x"}])
    assert shop.version == 0
    shop.insert("orders", [DESK])  # no transaction is open any more
    assert shop.version == 1


def test_transactions_of_two_databases_and_two_threads_are_independent(shop):
    with Database(SHOP) as other, shop.transaction(), other.transaction():
        shop.insert("orders", [DESK])
        thread = Thread(target=lambda: shop.insert("orders", [LAMP]))
        thread.start()
        thread.join()
        assert rows_of(shop, "orders") == {(2, "lamp", 30): 1}
        assert other.version == 0
    assert rows_of(shop, "orders") == {(1, "desk", 250): 1, (2, "lamp", 30): 1}


def test_an_empty_transaction_is_no_step(shop):
    with shop.transaction():
        pass
    assert shop.version == 0


ORDER = st.fixed_dictionaries(
    {"nr": st.integers(0, 3), "item": st.sampled_from("xy"), "price": st.integers(-2, 2)}
)
LINE = st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.sampled_from("pq")})
CHANGE = st.one_of(
    st.tuples(st.just("upsert"), st.just("orders"), ORDER),
    st.tuples(st.just("delete"), st.just("orders"), ORDER),
    st.tuples(st.just("insert"), st.just("log"), LINE),
    st.tuples(st.just("delete"), st.just("log"), LINE),
)


class Tables:
    """The inputs in plain Python: a dict by key, and a bag."""

    def __init__(self) -> None:
        self.orders: dict[int, dict[str, Any]] = {}
        self.log: Counter[tuple[Any, ...]] = Counter()

    def copy(self) -> Tables:
        copy = Tables()
        copy.orders, copy.log = dict(self.orders), Counter(self.log)
        return copy

    def change(self, verb: str, relation: str, row: dict[str, Any]) -> None:
        if relation == "log":
            self.log[row["a"], row["b"]] += 1 if verb == "insert" else -1
        elif verb == "delete":
            self.orders.pop(row["nr"], None)
        else:
            self.orders[row["nr"]] = row

    def check(self, db: Database) -> None:
        log = +self.log
        items = {order["item"] for order in self.orders.values()}
        prices = {
            item: [o["price"] for o in self.orders.values() if o["item"] == item] for item in items
        }
        assert rows_of(db, "log") == log
        assert rows_of(db, "orders") == Counter(
            (nr, o["item"], o["price"]) for nr, o in self.orders.items()
        )
        assert rows_of(db, "totals") == {(i, len(p), sum(p)): 1 for i, p in prices.items()}
        assert rows_of(db, "pairs") == Counter(
            {(nr, b): n for (a, b), n in log.items() for nr in self.orders if nr == a}
        )


@given(st.lists(st.lists(CHANGE, max_size=4), max_size=6))
def test_any_transactions_have_the_effect_of_their_calls(transactions):
    tables = Tables()
    with Database(SHOP) as db:
        seen: Counter[tuple[Any, ...]] = Counter()

        def add(changes: pa.Table) -> None:
            for *row, weight in (tuple(row.values()) for row in changes.to_pylist()):
                seen[tuple(row)] += weight

        db.subscribe("pairs", add)
        for changes in transactions:
            after = tables.copy()
            for change in changes:
                after.change(*change)
            try:
                with db.transaction():
                    for verb, relation, row in changes:
                        getattr(db, verb)(relation, [row])
            except MissingRowError:
                assert min(after.log.values()) < 0
            else:
                assert min(after.log.values(), default=0) >= 0
                tables = after
            tables.check(db)
            assert +seen == rows_of(db, "pairs")


def test_a_state_is_continued(tmp_path):
    file = tmp_path / "shop.sql"
    file.write_text(SHOP)
    with Database(file, path=tmp_path / "state") as db:
        db.insert("orders", [DESK])
        with pytest.raises(StateLockedError, match="another"):
            Database(file, path=tmp_path / "state")
    with Database(str(file), path=tmp_path / "state") as db:
        assert db.version == 1
        assert "1 steps" in repr(db)
        db.insert("log", [{"a": 1, "b": "x"}])
    with Database(path=tmp_path / "state") as db:  # the views of the directory
        assert db.version == 2
        assert rows_of(db, "pairs") == {(1, "x"): 1}


def test_other_views_are_computed_from_the_state(tmp_path):
    with Database(SHOP, path=tmp_path / "state") as db:
        db.insert("orders", [DESK])
    items = SHOP + "CREATE VIEW items AS SELECT DISTINCT item FROM orders;"
    with Database(items, path=tmp_path / "state") as db:
        assert rows_of(db, "items") == {("desk",): 1}
        assert db.version == 2  # the change of the views is a step
    with pytest.raises(StateMismatchError, match="items"):
        Database(SHOP, path=tmp_path / "state")
    with Database(SHOP, path=tmp_path / "state", change=ChangeOptions(allow_drop=True)) as db:
        assert rows_of(db, "totals") == {("desk", 1, 250): 1}


def test_datalog():
    program = "path(x, y) :- edge(x, y). path(x, z) :- path(x, y), edge(y, z)."
    circuit = compile_datalog(program, {"edge": "x bigint, y bigint"}, materialize=True)
    with Database(circuit) as db:
        db.insert("edge", [{"x": 1, "y": 2}, {"x": 2, "y": 3}])
        assert rows_of(db, "path") == {(1, 2): 1, (2, 3): 1, (1, 3): 1}


def test_time_advances_with_a_step_without_rows():
    times = iter([datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=UTC)])
    text = """
        CREATE TABLE t (ts TIMESTAMP);
        CREATE VIEW recent AS SELECT ts FROM t WHERE ts > now() - INTERVAL '1 hour'
    """
    with Database(text, clock=lambda: next(times)) as db:
        db.insert("t", [{"ts": datetime(2026, 1, 1, 11, 30)}])
        assert len(db.view("recent")) == 1
        assert db.apply({})["recent"].to_pylist()[0]["weight"] == -1
        assert len(db.view("recent")) == 0


SETTINGS = {
    "schemas": {"u": "b INT"},
    "dialect": "spark",
    "materialize": ["v"],
    "input_options": {"t": InputOptions(strict=True)},
    "functions": {"f": udf(lambda x: x, parameters=["int"], returns="int")},
    "limits": StepLimits(max_step_rows=1),
    "threads": 1,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_views_that_are_compiled_already_are_refused(tmp_path, name):
    text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t"
    with Database(text, path=tmp_path) as db:
        db.insert("t", [{"a": 1}])
    setting = {name: SETTINGS[name]}
    with pytest.raises(DatabaseError, match=f"^{name}= is a setting of a circuit"):
        Database(compile_sql(text, materialize=True), **setting)
    if name in ("functions", "threads"):
        Database(path=tmp_path, **setting).close()
    else:
        with pytest.raises(DatabaseError, match=f"^{name}= is a setting of the views"):
            Database(path=tmp_path, **setting)
    Database(text, **setting).close()


def test_late_rows_are_left_out_and_logged(caplog, tmp_path):
    text = """
        CREATE TABLE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE);
        CREATE VIEW v AS SELECT ts FROM t
    """
    with Database(text, path=tmp_path / "state") as db:
        db.insert("t", [{"ts": datetime(2026, 1, 1, 12)}])
        db.insert("t", [{"ts": datetime(2026, 1, 1, 11)}])
        assert len(db.view("t")) == 1
    assert "1 rows are late" in caplog.text
    assert len(list((tmp_path / "state" / "dead_letters").iterdir())) == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda db: db.delete("log", [{"a": 5, "b": "q"}]), MissingRowError, "are not there"),
        (lambda db: db.upsert("log", [{"a": 5}]), UpsertError, "no primary key"),
        (lambda db: db.insert("lag", []), UnknownInputError, "inputs are orders, log"),
        (lambda db: db.upsert("lag", []), UnknownInputError, "inputs are orders, log"),
        (lambda db: db.insert("log", [{"a": 1, "weight": 2}]), DatabaseError, "apply"),
        (lambda db: db.insert("log", [{"c": 1}]), SchemaError, "'c'"),
        (lambda db: db.insert("log", {"a": 1}), SchemaError, "make a list"),
        (lambda db: db.insert("orders", [DESK, DESK | {"price": 1}]), UpsertError, "1"),
        (lambda db: db.subscribe("lag", print), DatabaseError, "totals, pairs"),
        (lambda db: db.changes("lag"), DatabaseError, "totals, pairs"),
        (lambda db: db.view("lag"), UnknownViewError, "orders, log, totals, pairs"),
        (lambda db: db.query("SELECT c FROM log"), SqlError, "line 1, column 8"),
        (lambda db: db.apply({"log": [{"a": 1, "b": "x", "weight": -1}]}), MissingRowError, "1 of"),
        (lambda db: Database("missing.sql"), DatabaseError, r"missing\.sql"),
        (lambda db: Database(), DatabaseError, "needs views"),
        (lambda db: Database("SELECT 1", memory_limit="1 GB"), DatabaseError, "path"),
    ],
)
def test_invalid_calls_change_nothing(shop, call, error, message):
    shop.insert("orders", [LAMP])
    with pytest.raises(error, match=message):
        call(shop)
    assert shop.version == 1
    assert rows_of(shop, "orders") == {(2, "lamp", 30): 1}
    assert not rows_of(shop, "log")


def test_an_expression_without_a_value_changes_nothing(tmp_path):
    text = "CREATE TABLE t (a TEXT); CREATE VIEW v AS SELECT CAST(a AS INT) AS n FROM t"
    with Database(text, path=tmp_path / "state") as db:
        with pytest.raises(EvaluationError, match="x"):
            db.insert("t", [{"a": "x"}])
        db.insert("t", [{"a": "1"}])
        assert rows_of(db, "v") == {(1,): 1}


def test_a_closed_database_refuses_calls(shop):
    shop.close()
    shop.close()
    for call in (
        lambda: shop.insert("orders", [DESK]),
        lambda: shop.view("orders"),
        lambda: shop.query("SELECT 1"),
        lambda: shop.subscribe("totals", print),
        shop.transaction,
    ):
        with pytest.raises(DatabaseError, match="closed"):
            call()


def test_a_negative_weight_is_an_error():
    with pytest.raises(CircuitError, match=r"v: row \{'a': 7\} occurs -1 times"):
        Result("v", pa.table({"a": [6, 7], "weight": [1, -1]}))


def test_threads_see_each_step_whole(shop):
    def insert(first: int) -> None:
        for nr in range(first, first + 20):
            with shop.transaction():
                shop.insert("orders", [{"nr": nr, "item": "x", "price": 1}])
                shop.insert("log", [{"a": nr, "b": "p"}])

    threads = [Thread(target=insert, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert shop.query("SELECT nr FROM orders EXCEPT SELECT nr FROM pairs").to_pylist() == []
    for thread in threads:
        thread.join()
    assert len(shop.view("pairs")) == 80


def test_nothing_imports_spark(tmp_path):
    code = """
        import sys
        sys.modules["pyspark"] = None  # an import of it fails
        from streaming import Database
        text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT sum(a) AS s FROM t"
        with Database(text, path=sys.argv[1]) as db:
            db.insert("t", [{"a": 2}])
            assert db.view("v").to_pylist() == [{"s": 2}]
    """
    lines = "\n".join(line.removeprefix("        ") for line in code.splitlines())
    subprocess.run([sys.executable, "-c", lines, str(tmp_path / "state")], check=True)


def test_the_file_of_views_must_be_text(tmp_path: Path):
    file = tmp_path / "views.sql"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DatabaseError, match=r"views\.sql"):
        Database(file)


def test_a_version_that_another_process_commits_while_the_state_is_opened_is_read(
    tmp_path, monkeypatch
):
    text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t"
    with Database(text, path=tmp_path) as db:
        db.insert("t", [{"a": 1}])
    read, calls = database.newest_version, []

    def read_too_early(files):
        newest = read(files)
        calls.append(newest)
        if len(calls) == 1:
            monkeypatch.setattr(database, "newest_version", read)
            with Database(text, path=tmp_path) as other:
                other.insert("t", [{"a": 2}])
            monkeypatch.setattr(database, "newest_version", read_too_early)
        return newest

    monkeypatch.setattr(database, "newest_version", read_too_early)
    with Database(text, path=tmp_path) as db:
        db.insert("t", [{"a": 3}])
        assert sorted(row["a"] for row in db.view("v").to_pylist()) == [1, 2, 3]
    assert len(calls) == 2


def test_a_damaged_version_that_another_process_commits_meanwhile_is_not_overwritten(
    tmp_path, monkeypatch
):
    text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t"
    with Database(text, path=tmp_path) as db:
        db.insert("t", [{"a": 1}])
    read = database.newest_version
    manifest = tmp_path / "manifests" / f"{1:020}.json"

    def read_too_early(files):
        newest = read(files)
        monkeypatch.setattr(database, "newest_version", read)
        with Database(text, path=tmp_path) as other:
            other.insert("t", [{"a": 2}])
        manifest.write_bytes(b"damaged")
        return newest

    monkeypatch.setattr(database, "newest_version", read_too_early)
    with pytest.raises(StateDamagedError, match="restore the state directory"):
        Database(text, path=tmp_path)
    assert manifest.read_bytes() == b"damaged"


def test_the_state_is_not_read_again_after_rows_that_are_refused(tmp_path, monkeypatch):
    text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t"
    with Database(text, path=tmp_path) as db:
        db.insert("t", [{"a": 1}])
        monkeypatch.setattr(database, "newest_version", None)
        with pytest.raises(MissingRowError):
            db.delete("t", [{"a": 2}])
        db.delete("t", [{"a": 1}])
        assert db.view("v").to_pylist() == []


def test_a_damaged_table_of_a_step_whose_outcome_was_unknown_is_an_error(tmp_path, monkeypatch):
    text = "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t"
    seen: list[int] = []
    with Database(text, path=tmp_path) as db:
        db.subscribe("v", lambda changes: seen.extend(changes.column("a").to_pylist()))
        db.insert("t", [{"a": 1}])
        sync = LocalFiles.sync_folder

        def fail(files: LocalFiles, folder: str) -> None:
            if folder == "manifests":
                raise OSError("disk error")
            sync(files, folder)

        monkeypatch.setattr(LocalFiles, "sync_folder", fail)
        with pytest.raises(StateError, match="outcome"):
            db.insert("t", [{"a": 2}])
        monkeypatch.setattr(LocalFiles, "sync_folder", sync)
        (file,) = (tmp_path / "outputs").glob(f"{1:020}-*")
        content = file.read_bytes()
        file.write_bytes(b"damaged")
        for _ in range(2):
            with pytest.raises(StateDamagedError, match=file.name):
                db.insert("t", [{"a": 3}])
        file.write_bytes(content)
        db.insert("t", [{"a": 3}])
        assert sorted(row["a"] for row in db.view("v").to_pylist()) == [1, 2, 3]
        assert seen == [1, 2, 3]
