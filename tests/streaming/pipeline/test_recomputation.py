"""Views that are computed as a whole, beside views that the circuit maintains."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random

import duckdb
import pyarrow as pa
import pytest

from circuits.sql import view_statements
from streaming.errors import EventsError, RecomputationError
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.pipeline import Pipeline
from streaming.pipeline.recomputation import dependents_of
from streaming.pipeline.spark_views import SparkViews
from streaming.pipeline.sql_files import read_sql_files
from streaming.pipeline.tables.delta_table import DeltaSourceTable
from streaming.pipeline.tables.parquet_folder import ParquetFolder
from streaming.targets.memory import MemoryTarget
from tests.support.pipeline_world import ORDERS, PipelineWorld
from tests.support.tables import bag_of

pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")

# The engine has no function frob; in DuckDB it is a macro.
SQL = """
CREATE MATERIALIZED VIEW last AS SELECT frob(n) AS n, worth FROM top;
CREATE MATERIALIZED VIEW odd (nr, f) AS SELECT nr, frob(worth) FROM lines;
CREATE MATERIALIZED VIEW lines AS
    SELECT o.nr, o.worth, c.city FROM orders o JOIN customers c ON c.id = o.customer;
CREATE MATERIALIZED VIEW top AS SELECT count(*) AS n, sum(f) AS worth FROM odd;
"""


class DuckDBViews:
    """Computes views in DuckDB, and counts the calls."""

    def __init__(self):
        self.schemas, self.computed = 0, []

    def schema_of(self, view, relations):
        self.schemas += 1
        return self._run(view, {name: schema.empty_table() for name, schema in relations.items()})[
            :0
        ].schema

    def rows_of(self, view, relations):
        self.computed.append(view.name)
        repeated = {}
        for name, table in relations.items():
            weights = table.column("weight").to_pylist()
            numbers = [n for n, weight in enumerate(weights) for _ in range(weight)]
            repeated[name] = table.drop_columns(["weight"]).take(pa.array(numbers, pa.int64()))
        return self._run(view, repeated)

    def _run(self, view, relations):
        with duckdb.connect() as connection:
            for name, table in relations.items():
                connection.register(name, table)
            connection.execute("CREATE MACRO frob(x) AS CAST(x * 2 + 1 AS BIGINT)")
            connection.execute(f"CREATE VIEW it {view.columns} AS {view.query}")
            return connection.sql("SELECT * FROM it").to_arrow_table()


@pytest.fixture
def world(tmp_path):
    created = PipelineWorld(tmp_path)
    created.create()
    return created


def define(world, computer, sql=SQL, *, outputs=None, **options):
    path = world.folder / "all.sql"
    path.write_text(sql)
    orders = ParquetFolder(str(world.folder / "orders"), declared=ORDERS, removed_files="delete")
    tables = {"orders": orders, "customers": DeltaSourceTable(str(world.folder / "customers"))}
    return PipelineDefinition(
        read_sql_files([path]),
        tables,
        str(world.folder / "state"),
        outputs or (lambda circuit: None),
        dialect="spark",
        computer=computer,
        **options,
    )


def expected(world):
    lines = world.expected()["lines"]
    odd = Counter((nr, worth * 2 + 1) for nr, worth, _ in lines)
    worth = sum(f for _, f in odd) if odd else None
    return {
        "lines": lines,
        "odd": odd,
        "top": Counter([(len(odd), worth)]),
        "last": Counter([(len(odd) * 2 + 1, worth)]),
    }


@pytest.mark.parametrize("declaration", ["", "CREATE TABLE customers (id BIGINT, city STRING);"])
@pytest.mark.parametrize("table", ["STREAM customers", "STREAM(customers)", "customers"])
def test_a_pipeline_may_have_only_recomputed_views_and_streaming_tables(world, table, declaration):
    path = world.folder / "all.sql"
    path.write_text(f"""
        {declaration}
        -- Nothing is maintained.
        CREATE STREAMING TABLE bronze AS SELECT city FROM {table};
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM bronze;
    """)
    tables = {"customers": DeltaSourceTable(str(world.folder / "customers"))}
    definition = PipelineDefinition(
        read_sql_files([path]),
        tables,
        str(world.folder / "state"),
        dialect="spark",
        policy="full",
        computer=DuckDBViews(),
    )
    assert definition.find_problems() == []
    with Pipeline(definition) as pipeline:
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["bronze"]) == {("Rome",): 1, ("Oslo",): 1}
        assert bag_of(pipeline.circuit.views["n"]) == {(2,): 1}


@pytest.mark.parametrize("policy", ["auto", "full"])
def test_recomputed_and_maintained_views_agree_with_the_tables(world, policy):
    random, computer, target = Random(5), DuckDBViews(), MemoryTarget()
    for _ in range(2):
        definition = define(world, computer, policy=policy, outputs=lambda _: target)
        with Pipeline(definition) as pipeline:
            for _ in range(2):
                world.change(random)
                pipeline.refresh()
                right = expected(world)
                for view, bag in right.items():
                    assert bag_of(pipeline.circuit.views[view]) == bag, view
                    assert bag_of(target.table(view)) == bag, view
            assert pipeline.refresh().number is None
    assert computer.schemas == (4 if policy == "full" else 2)


def test_only_views_over_changed_tables_are_computed_again(world):
    sql = """
        CREATE VIEW a AS SELECT frob(nr) AS n FROM orders;
        CREATE VIEW b AS SELECT frob(id) AS n FROM customers;
    """
    computer, random = DuckDBViews(), Random(1)
    with Pipeline(define(world, computer, sql)) as pipeline:
        pipeline.refresh()
        assert sorted(computer.computed) == ["a", "b"]
        computer.computed.clear()
        before = world.state_file.read_text()
        while (world.folder / "orders").glob(
            "*.parquet"
        ) and before == world.state_file.read_text():
            world.change(random)
        refresh = pipeline.refresh()
        changed = {{"orders": "a", "customers": "b"}[name] for name in refresh.read}
        assert set(computer.computed) == changed == set(refresh.recomputed)


def test_a_process_that_ends_before_the_recomputation_is_continued(world, monkeypatch):
    computer, random = DuckDBViews(), Random(2)
    with Pipeline(define(world, computer)) as pipeline:
        world.change(random)
        pipeline.refresh()
        world.change(random)
        with monkeypatch.context() as patch:
            patch.setattr(computer, "rows_of", None)
            with pytest.raises(TypeError):
                pipeline.refresh()
    with Pipeline(define(world, computer)) as pipeline:
        pipeline.refresh()
        for view, bag in expected(world).items():
            assert bag_of(pipeline.circuit.views[view]) == bag


def test_a_view_that_comes_back_is_computed_again(world):
    computer, random = DuckDBViews(), Random(3)
    text = SQL.partition(";")[2]
    for sql in (SQL, text, SQL):
        world.change(random)
        with Pipeline(define(world, computer, sql), allow_drop=True) as pipeline:
            pipeline.refresh()
            assert bag_of(pipeline.circuit.views["odd"]) == expected(world)["odd"]
            if sql == SQL:
                assert bag_of(pipeline.circuit.views["last"]) == expected(world)["last"]


def test_a_view_over_a_view_that_reads_the_clock_is_computed_again(world):
    sql = """
        CREATE VIEW early AS SELECT id FROM customers
            WHERE timestamp_seconds(id * 86400) > now() - INTERVAL 1 DAY;
        CREATE VIEW a AS SELECT frob(id) AS n FROM early;
        CREATE VIEW b AS SELECT frob(n) AS n FROM a;
        CREATE VIEW c AS SELECT frob(id) AS n FROM customers;
    """
    computer, now = DuckDBViews(), [datetime.min]
    with Pipeline(define(world, computer, sql), clock=lambda: now[0]) as pipeline:
        for day, left in ((1, {1, 2}), (3, {2}), (9, set())):
            now[0] = datetime(1970, 1, day, 12, tzinfo=UTC)
            computer.computed.clear()
            pipeline.refresh()
            views = pipeline.circuit.views
            assert bag_of(views["early"]) == {(n,): 1 for n in left}
            assert bag_of(views["a"]) == {(n * 2 + 1,): 1 for n in left}
            assert bag_of(views["b"]) == {(n * 4 + 3,): 1 for n in left}
        assert computer.computed == ["a", "b"]


def test_a_view_over_a_view_with_another_query_is_computed_again(world):
    computer, sql = (
        DuckDBViews(),
        """
        CREATE TEMPORARY VIEW some AS SELECT nr FROM orders WHERE nr % 2 = 0;
        CREATE VIEW more AS SELECT nr FROM some;
        CREATE VIEW odd AS SELECT frob(nr) AS n FROM more;
    """,
    )
    random = Random(4)
    for _ in range(4):
        world.change(random)
    for remainder in (0, 1):
        text = sql.replace("% 2 = 0", f"% 2 = {remainder}")
        with Pipeline(define(world, computer, text)) as pipeline:
            pipeline.refresh()
            numbers = pipeline.circuit.views["more"].to_pylist()
            assert numbers
            right = Counter()
            for row in numbers:
                right[(row["nr"] * 2 + 1,)] += row["weight"]
            assert bag_of(pipeline.circuit.views["odd"]) == right


def test_a_declared_table_with_removed_files_is_refused_with_a_remedy(world):
    sql = "CREATE TABLE orders (nr BIGINT); CREATE VIEW v AS SELECT nr FROM orders;"
    definition = define(world, DuckDBViews(), sql)
    message = "so CREATE TABLE cannot declare it: remove the statement"
    assert [problem for problem in definition.find_problems() if message in problem]
    with pytest.raises(EventsError, match="CREATE TABLE cannot declare it"):
        definition.compile()


def test_the_policy_incremental_and_other_dialects_refuse_such_views(world):
    refused = define(world, DuckDBViews(), policy="incremental").find_problems()
    assert len(refused) == 2
    assert "function frob() is not supported" in refused[0]
    assert define(world, DuckDBViews()).find_problems() == []


def test_dependents_are_found_through_other_views():
    views = view_statements(SQL)
    assert dependents_of(["customers"], views) == {"lines", "odd", "top", "last"}
    assert dependents_of(["top"], views) == {"last"}


@pytest.mark.spark
def test_spark_computes_a_view_and_refuses_a_wrong_one(spark):
    (view,) = view_statements(
        "CREATE VIEW v (a, at) AS SELECT xpath_int(b, 'x/y'), max(t) FROM r GROUP BY b", "spark"
    )
    computer = SparkViews(lambda: spark)
    schema = pa.schema({"b": pa.string(), "t": pa.timestamp("us")})
    found = computer.schema_of(view, {"r": schema})
    assert found.types == [pa.int32(), pa.timestamp("us")]
    row = {"b": "<x><y>4</y></x>", "t": None, "weight": 2}
    rows = pa.Table.from_pylist([row], schema.append(pa.field("weight", pa.int64())))
    assert computer.rows_of(view, {"r": rows}).to_pylist() == [{"a": 4, "at": None}]
    (wrong,) = view_statements("CREATE VIEW v AS SELECT frob(b) FROM r", "spark")
    with pytest.raises(RecomputationError, match=r"view 'v': Spark refuses it: .*frob"):
        computer.schema_of(wrong, {"r": schema})
