"""The command ``pipeline`` over Iceberg tables of a catalog."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from streaming.cli.app import app
from streaming.cli.arguments.checks import ProblemsError
from streaming.cli.arguments.pipeline_file import read_pipeline
from streaming.errors import TargetError
from streaming.targets.iceberg import IcebergTarget
from tests.support.iceberg import new_catalog

pyiceberg = pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install -e '.[iceberg]'")
pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

SQL = """
CREATE MATERIALIZED VIEW cities AS
SELECT c.city, sum(o.worth) AS worth FROM orders o JOIN customers c ON c.id = o.customer
GROUP BY c.city
"""
PIPELINE = """
query = "sql"
[catalog]
name = "lake"
namespace = "shop"
options = {{ type = "sql", uri = "{uri}", warehouse = "{warehouse}" }}
[[outputs]]
view = "cities"
target = "iceberg"
table = "gold.{{view}}"
keys = ["city"]
[state]
path = "state"
"""
SPEC = """
name: shop
storage: storage
catalog: lake
database: shop
libraries:
  - glob: {{include: sql/**}}
configuration:
  spark.sql.catalog.lake: org.apache.iceberg.spark.SparkCatalog
  spark.sql.catalog.lake.warehouse: {warehouse}
  spark.sql.extensions: org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions
  dbsp_wcoj.catalog.type: sql
  dbsp_wcoj.catalog.uri: {uri}
  dbsp_wcoj.keys.cities: city
"""


class Lake:
    """A catalog with source tables, and the files of a pipeline over them."""

    def __init__(self, folder):
        from pyiceberg.catalog import load_catalog

        self.folder = folder
        properties = new_catalog(folder, "lake")
        self.catalog = load_catalog("lake", **properties)
        self.create("shop.orders", {"nr": [1, 2, 3], "customer": [1, 2, 1], "worth": [10, 20, 30]})
        self.create("shop.Customers", {"id": [1, 2], "city": ["Rome", "Oslo"]})
        self.create("shop.city", {"no": [1]})
        (folder / "sql").mkdir()
        (folder / "sql" / "cities.sql").write_text(SQL)
        self.file, self.spec = folder / "shop.toml", folder / "spark-pipeline.yml"
        self.file.write_text(PIPELINE.format(**properties))
        self.spec.write_text(SPEC.format(**properties))

    def create(self, name, columns):
        rows = pa.table(columns)
        self.catalog.create_table(name, rows.schema).append(rows)

    def table(self, name):
        return self.catalog.load_table(name)

    def rows(self, name):
        rows = self.table(name).scan().to_arrow().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def replace(self, file, old, new):
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["pipeline", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def test_tables_of_the_namespace_are_read_and_an_iceberg_table_is_written(lake):
    assert "2 source tables, 1 view; no problem" in run("check", lake.file)
    run("refresh", lake.file)
    assert lake.rows("gold.cities") == {("Rome", 40): 1, ("Oslo", 20): 1}
    lake.table("shop.orders").append(pa.table({"nr": [4], "customer": [2], "worth": [5]}))
    report = json.loads(run("refresh", lake.file, "--json"))
    assert report["read"] == {"orders": {"method": "appended files", "rows": 1}}
    lake.table("shop.orders").delete("nr = 1")
    report = json.loads(run("refresh", lake.file, "--json"))
    assert (report["read"]["orders"]["method"], report["written"]) == (
        "difference of the files",
        {"cities": 1},
    )
    assert lake.rows("gold.cities") == {("Rome", 30): 1, ("Oslo", 25): 1}
    assert run("refresh", lake.file) == "nothing has changed"


def test_a_refresh_whose_target_fails_is_published_by_the_next(lake, monkeypatch):
    def fail(self, delta):
        raise TargetError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTarget, "write", fail)
        assert "no space" in run("refresh", lake.file, status=1)
    lake.table("shop.orders").append(pa.table({"nr": [4], "customer": [2], "worth": [5]}))
    run("refresh", lake.file)
    assert lake.rows("gold.cities") == {("Rome", 40): 1, ("Oslo", 25): 1}


def test_a_new_column_of_a_source_table_changes_no_view_that_does_not_read_it(lake):
    from pyiceberg.types import StringType

    run("refresh", lake.file)
    with lake.table("shop.Customers").update_schema() as update:
        update.add_column("zip", StringType())
    lake.table("shop.Customers").append(pa.table({"id": [3], "city": ["Bari"], "zip": ["1"]}))
    lake.table("shop.orders").append(pa.table({"nr": [4], "customer": [3], "worth": [5]}))
    run("refresh", lake.file)
    assert lake.rows("gold.cities") == {("Rome", 40): 1, ("Oslo", 20): 1, ("Bari", 5): 1}
    with lake.table("shop.Customers").update_schema() as update:
        update.rename_column("city", "town")
    assert "unknown column 'city'" in run("refresh", lake.file, status=2)


def test_another_column_of_a_name_is_refused_until_it_is_renamed(lake):
    from pyiceberg.types import LongType, StringType

    def change_columns(method, *arguments):
        with lake.table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
            getattr(update, method)(*arguments)

    run("refresh", lake.file)
    for column, type_ in [("nr", StringType()), ("worth", LongType())]:
        change_columns("delete_column", column)
        change_columns("add_column", column, type_)
        problem = run("refresh", lake.file, status=2)
        assert f"other columns than at the last refresh: '{column}'; rename" in problem
        change_columns("rename_column", column, "other")
        if column == "worth":
            assert "unknown column 'worth'" in run("refresh", lake.file, status=2)
            continue
        run("refresh", lake.file)
        change_columns("rename_column", "other", column)
        lake.table("shop.orders").delete("worth = 10")
        run("refresh", lake.file)
        assert lake.rows("gold.cities") == {("Rome", 30): 1, ("Oslo", 20): 1}


def test_a_table_of_another_namespace_is_named_by_an_input(lake):
    lake.catalog.create_namespace("old")
    lake.create("old.orders", {"nr": [1], "customer": [1], "worth": [7]})
    inputs = '[inputs.orders]\ntable = "old.orders"\n[[outputs]]'
    lake.replace(lake.file, "[[outputs]]", inputs)
    run("refresh", lake.file)
    assert lake.rows("gold.cities") == {("Rome", 7): 1}


def test_a_specification_of_spark_uses_the_catalog(lake):
    stream = "CREATE STREAMING TABLE Big AS SELECT nr FROM STREAM(orders) WHERE worth > 10"
    (lake.folder / "sql" / "big.sql").write_text(stream)
    assert "2 source tables, 2 views; no problem" in run("check", lake.spec)
    run("refresh", lake.spec)
    lake.table("shop.orders").append(pa.table({"nr": [4, 5], "customer": [2, 2], "worth": [5, 15]}))
    run("refresh", lake.spec)
    assert lake.rows("shop.cities") == {("Rome", 40): 1, ("Oslo", 40): 1}
    assert lake.rows("shop.Big") == {(2,): 1, (3,): 1, (5,): 1}
    lake.table("shop.orders").delete("nr = 1")
    assert "1 of its rows were deleted or updated" in run("refresh", lake.spec, status=2)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"shop"', '"shops"', "catalog: namespace 'shops' of catalog 'lake' cannot be read"),
        ('"sql", uri', '"none", uri', "catalog: namespace 'shop' of catalog 'lake' cannot be read"),
        ("namespace", "database", "catalog.database: unknown key; keys: name, namespace, options"),
        ('namespace = "shop"', "", "there is no source table: add [inputs.NAME] with its path, or"),
        (
            'namespace = "shop"',
            'namespace = "old"',
            "no table of namespace 'old' of catalog 'lake' is a table that a view names: correct",
        ),
        ("[[outputs]]", '[inputs.orders]\ntable = "orders"\n[[outputs]]', "its namespace, too"),
        ("[[outputs]]", '[inputs.orders]\ntable = "a..b"\n[[outputs]]', "its namespace, too"),
        (
            "[[outputs]]",
            '[inputs.orders]\ntable = "shop.o"\npath = "x"\nschema = "nr long"\n[[outputs]]',
            "path: is only for Delta tables and folders of Parquet files: remove the key",
        ),
        ("[[outputs]]", '[inputs.orders]\nformat = "iceberg"\n[[outputs]]', "name the table with"),
        (
            "[[outputs]]",
            '[inputs.orders]\npath = "x"\ntable = "shop.o"\nformat = "delta"\n[[outputs]]',
            "table: is only for Iceberg tables: remove the key",
        ),
        (
            "[[outputs]]",
            '[inputs.orders]\ntable = "shop.o"\noptions = {a = "b"}\n[[outputs]]',
            "write those of a catalog into [catalog]",
        ),
        ("[[outputs]]", '[inputs.o]\ntable = "shop.o"\n[[outputs]]', "'shop.o' of catalog 'lake'"),
    ],
)
def test_problems_of_a_catalog_are_named(lake, old, new, problem):
    lake.catalog.create_namespace("old")
    lake.replace(lake.file, old, new)
    assert problem in run("check", lake.file, status=2)


def test_a_wrong_name_of_a_table_is_one_problem(lake):
    lake.replace(lake.file, "[[outputs]]", "[inputs.orders]\ntable = 5\n[[outputs]]")
    with pytest.raises(ProblemsError) as error:
        read_pipeline(lake.file)
    assert len(error.value.problems) == 1


def test_all_source_tables_share_the_connection_of_the_catalog(lake, monkeypatch):
    connections = []
    load_catalog = pyiceberg.catalog.load_catalog

    def count_connections(*arguments, **properties):
        connections.append(arguments)
        return load_catalog(*arguments, **properties)

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", count_connections)
    inputs = '[inputs.orders]\ntable = "shop.orders"\n[inputs.no]\ntable = "shop.city"\n[[outputs]]'
    lake.replace(lake.file, "[[outputs]]", inputs)
    definition = read_pipeline(lake.file).definition
    assert [table.schema().names[0] for table in definition.tables.values()] == ["nr", "no", "id"]
    assert len(connections) == 1


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("org.apache.iceberg.spark.SparkCatalog", "a.B", "catalog.lake: 'a.B': write org.apache"),
        ("lake.warehouse: ", "lake.catalog-impl: ", "write dbsp_wcoj.catalog.type, a type of"),
        (
            "spark.sql.catalog.lake.warehouse: ",
            "spark.sql.catalog.lake.type: hadoop\n  dbsp_wcoj.catalog.warehouse: ",
            "'hadoop' is not a type of both Spark and pyiceberg: write rest, hive, glue",
        ),
        ("dbsp_wcoj.catalog.type", "spark.sql.catalog.other", "it is not known whether"),
    ],
)
def test_problems_of_a_catalog_of_spark_are_named(lake, old, new, problem):
    lake.replace(lake.spec, old, new)
    assert problem in run("check", lake.spec, status=2)
