"""The medallion benchmark on a small shop, compared with DuckDB instead of Spark."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from benchmarks.cost import Clock
from benchmarks.medallion import policies, tpcdi, tpch
from benchmarks.medallion.__main__ import measure
from benchmarks.medallion.events import EVENTS_PER_HOUR, TABLES, Shop
from benchmarks.medallion.lakehouse import KEYS
from benchmarks.medallion.recompute import read_views
from benchmarks.parts import open_run
from benchmarks.tpch.data import GENERATOR, write_files
from benchmarks.tpch.queries import QUERIES
from circuits import compile_sql


class DuckDBRecomputation:
    """Computes all views in DuckDB; on request, one of them is wrong."""

    def __init__(self, wrong=None):
        self._wrong = wrong

    def compute(self, files):
        clock, tables = Clock(), {}
        with duckdb.connect() as connection:
            connection.execute("SET timezone = 'UTC'")
            for name, paths in files.items():
                connection.read_parquet(paths).create_view(name)
            for name, view in read_views().items():
                connection.execute(f"CREATE TABLE {name} AS {view.query}")
                rows = connection.table(name).to_arrow_table()
                tables[name] = rows[1:] if name == self._wrong else rows
        return clock.read(), tables


@pytest.mark.parametrize("wrong", [None, "gold_sales"])
def test_every_table_is_compared_after_every_refresh(tmp_path, wrong):
    with open_run("medallion", (), seed=1, json=None, parent_folder=tmp_path) as run:
        first, hourly, by_command = measure(run, DuckDBRecomputation(wrong), hours=2, scale=0.02)
    assert run.verdict.comparisons == 4 * len(KEYS)
    assert len(run.verdict.differences) == (0 if wrong is None else 4)
    assert first["rows read"] == 5_840
    assert hourly["rows read"] > 3_000
    assert by_command["rows written"] > by_command["rows read"]


def test_an_hour_has_the_events_of_the_demo_once_the_shop_is_large():
    shop = Shop(0)
    shop.open(0.2)
    events = shop.next_hour()
    assert EVENTS_PER_HOUR == 4_900 == sum(table.num_rows for table in events.values())
    numbers = pa.concat_arrays([events[name].column("seq").chunk(0) for name in TABLES])
    assert len(numbers.unique()) == 4_900


class DuckDBQueries:
    """Computes queries of TPC-H in DuckDB."""

    def __init__(self, queries):
        self._queries = queries

    def compute(self, files):
        clock = Clock()
        with duckdb.connect() as connection:
            for name, paths in files.items():
                connection.read_parquet(paths).create_view(name)
            tables = {
                f"q{number}": connection.sql(QUERIES[number]).to_arrow_table()
                for number in self._queries
            }
        return clock.read(), tables


@pytest.mark.skipif(not GENERATOR.is_file(), reason="no tpchgen-cli: pip install tpchgen-cli")
def test_the_views_of_tpch_are_compared_after_every_refresh_function(tmp_path):
    numbers = (3, 4, 6, 12, 18)
    files = write_files(tmp_path, 0.01)
    with open_run("tpch_refresh", (), seed=0, json=None, parent_folder=tmp_path) as run:
        first, inserted, deleted = tpch.measure(
            run, DuckDBQueries(numbers), files, refreshes=2, queries=numbers
        )
    assert run.verdict.comparisons == 5 * len(numbers)
    assert not run.verdict.differences
    assert first["rows read"] > 70_000
    assert inserted["rows changed"] == inserted["rows read"] > 15
    assert 15 < deleted["rows changed"] < deleted["rows read"] < 10_000


class SecondCircuit:
    """Computes the views of the broker in one step of a new circuit."""

    def compute(self, files):
        clock = Clock()
        tables = {name: ds.dataset(paths).to_table() for name, paths in files.items()}
        schemas = {name: table.schema for name, table in tables.items()}
        text = tpcdi.SQL.read_text()
        circuit = compile_sql(text, schemas, dialect="spark", materialize=True)
        circuit.step(tables)
        views = {name: circuit.views[name].drop_columns(["weight"]) for name in tpcdi.KEYS}
        return clock.read(), views


def test_the_views_of_the_broker_are_compared_after_every_day(tmp_path):
    with open_run("tpcdi_refresh", (), seed=1, json=None, parent_folder=tmp_path) as run:
        first, daily = tpcdi.measure(run, SecondCircuit(), days=2, scale=0.005)
    assert run.verdict.comparisons == 3 * len(tpcdi.KEYS)
    assert not run.verdict.differences
    assert first["rows read"] > 4_000
    assert 40 < daily["rows read"] < daily["rows written"] < 400


class DuckDBViews:
    """Computes views in DuckDB."""

    def rows_of(self, view, relations):
        with duckdb.connect() as connection:
            connection.execute("SET timezone = 'UTC'")
            for name, table in relations.items():
                connection.register(name, table.drop_columns(["weight"]))
            return connection.sql(view.query).to_arrow_table()


def test_a_step_and_a_recomputation_give_the_same_rows(tmp_path):
    with open_run("policies", (), seed=1, json=None, parent_folder=tmp_path) as run:
        rows = policies.measure(run, DuckDBViews(), scale=0.01, fractions=(0.1, 1.0))
    assert len(rows) == 20
    assert run.verdict.comparisons == 40
    assert not run.verdict.differences
    assert all(row["changed rows"] > 0 for row in rows)
