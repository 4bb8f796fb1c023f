"""The command ``pipeline`` runs the specification of a declarative pipeline of Spark."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.pipelines.cli import load_pipeline_spec
from typer.testing import CliRunner

from streaming.cli.app import app

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")

SPEC = """
name: shop
storage: file://{folder}/storage
catalog: spark_catalog
database: sales
libraries:
  - glob:
      include: transformations/**
  - glob:
      include: more.sql
configuration:
  spark.sql.warehouse.dir: file://{folder}/warehouse
  spark.sql.shuffle.partitions: "2"
  spark.executor.memory: 1g
  dbsp_wcoj.keys.worth: item
  dbsp_wcoj.inputs.returns.path: returned
  dbsp_wcoj.inputs.returns.removed_files: delete
"""
FILES = {
    "transformations/bronze.sql": """
        CREATE STREAMING TABLE lines USING delta PARTITIONED BY (item) COMMENT 'as they arrive'
        AS SELECT item, price FROM STREAM orders;
    """,
    "transformations/deep/gold.sql": """
        CREATE OR REFRESH MATERIALIZED VIEW worth AS
            SELECT item, sum(price) AS worth FROM kept GROUP BY item;
        CREATE TEMPORARY VIEW kept AS
            SELECT * FROM lines l WHERE NOT EXISTS (SELECT 1 FROM returns r WHERE r.item = l.item)
    """,
    "more.sql": "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM default.returns",
}


class Project:
    """A project of Spark, its source tables and its target tables."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "spark-pipeline.yml"
        self.write({"spark-pipeline.yml": SPEC.format(folder=folder), **FILES})
        self.order(["desk", "lamp", "lamp"])
        (folder / "returned").mkdir()
        pq.write_table(pa.table({"item": ["desk"]}), folder / "returned" / "1.parquet")

    def write(self, files):
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def replace(self, old, new):
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def order(self, items):
        rows = pa.table({"item": items, "price": [10] * len(items)})
        orders = self.folder / "warehouse" / "sales.db" / "orders"
        deltalake.write_deltalake(orders, rows, mode="append")

    def rows(self, view):
        table = deltalake.DeltaTable(self.folder / "warehouse" / "sales.db" / view)
        return Counter(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["pipeline", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def test_a_specification_is_refreshed_in_the_warehouse(project):
    run("refresh", project.file)
    assert project.rows("lines") == {("desk", 10): 1, ("lamp", 10): 2}
    assert project.rows("worth") == {("lamp", 20): 1}
    assert project.rows("n") == {(1,): 1}
    project.order(["lamp", "shelf"])
    (project.folder / "returned" / "1.parquet").unlink()
    pq.write_table(pa.table({"item": ["shelf"]}), project.folder / "returned" / "2.parquet")
    report = json.loads(run("refresh", project.file, "--json"))
    assert report["written"] == {"lines": 2, "worth": 2, "n": 0}
    assert project.rows("lines") == {("desk", 10): 1, ("lamp", 10): 3, ("shelf", 10): 1}
    assert project.rows("worth") == {("desk", 10): 1, ("lamp", 30): 1}
    assert not (project.folder / "warehouse" / "sales.db" / "kept").exists()
    assert (project.folder / "storage" / "dbsp_wcoj").is_dir()


def test_spark_reads_the_same_specification(project):
    spec = load_pipeline_spec(project.file)
    assert (spec.name, spec.database) == ("shop", "sales")


def test_a_row_that_a_streaming_table_loses_is_an_error(project):
    run("refresh", project.file)
    orders = project.folder / "warehouse" / "sales.db" / "orders"
    deltalake.DeltaTable(orders).delete("item = 'desk'")
    assert "1 of its rows were deleted or updated" in run("refresh", project.file, status=2)


def test_explain_and_check_read_a_specification(project):
    assert "3 files of SQL, 2 source tables, 3 views; no problem" in run("check", project.file)
    assert "worth: incremental" in run("explain", project.file)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "CREATE FLOW f AS INSERT INTO n BY NAME SELECT * FROM STREAM(orders)",
            "CREATE FLOW is not supported",
        ),
        (
            "CREATE STREAMING TABLE empty",
            "CREATE STREAMING TABLE without a query is not supported",
        ),
        (
            "CREATE MATERIALIZED VIEW x (item STRING) AS SELECT item FROM orders",
            "a column definition in CREATE VIEW is not supported",
        ),
        ("SET spark.x = 1", "SET is not supported"),
    ],
)
def test_other_statements_are_refused_by_name_and_position(project, statement, problem):
    project.write({"more.sql": f"{FILES['more.sql']};\n{statement}"})
    if "VIEW" not in statement:  # Spark computes a view that the engine lacks
        output = run("check", project.file, status=2)
        assert problem in output
        assert "more.sql, line 2, column" in output
    project.replace("configuration:\n", "configuration:\n  dbsp_wcoj.run.policy: incremental\n")
    output = run("check", project.file, status=2)
    assert problem in output
    assert "more.sql, line 2, column" in output


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("name: shop", "", "name: the key is missing"),
        ("storage:", "root:", "root: unknown key"),
        ("storage:", "root:", "storage: the key is missing"),
        ("catalog: spark_catalog", "catalog: unity", "catalog: 'unity' has no settings, so its"),
        ("include: transformations/**", "include: '*/a.sql'", "glob.include: '*/a.sql': name a"),
        ("include: transformations/**", "exclude: x", "glob.include: the key is missing"),
        ("include: transformations/**", "include: none/**", "'none/**': there is no folder none"),
        (
            "include: more.sql",
            "include: more.sql\n      on: x",
            "glob.True: unknown key; keys: inc",
        ),
        ("glob:\n      include: more.sql", "glob: more.sql", "write a mapping, as glob: and"),
        ("glob:\n      include: more.sql", "more.sql", "write a list of mappings, as libraries:"),
        ("include: more.sql", "include: 'py/**'", "py/a.py is not a file .sql"),
        ("include: more.sql", "include: more.txt", "more.txt is not a file .sql"),
        ('"2"', '"2"\n  spark.sql.ansi.enabled: "false"', "'false' may change the rows"),
        ('"2"', '"2"\n  spark.sql.session.timeZone: CET', "write UTC, or leave it out"),
        ('"2"', '"2"\n  spark.sql.legacy.sizeOfNull: "true"', "it is not known whether"),
        ('"2"', '"2"\n  dbsp_wcoj.run.dialect: duckdb', "unknown setting: write dbsp_wcoj.inputs"),
        ('"2"', '"2"\n  dbsp_wcoj.run.polcy: full', "run.polcy: unknown key"),
        ('"2"', '"2"\n  dbsp_wcoj.inputs.returns.pth: x', "inputs.returns.pth: unknown key"),
        ('"2"', '"2"\n  spark.sql.files.ignoreCorruptFiles: "true"', "it is not known whether"),
        ('"2"', '"2"\n  spark.sql.parquet.mergeSchema: "true"', "it is not known whether"),
        ('"2"', '"2"\n  spark.sql.extensions: a.B', "'a.B' may change the rows"),
        ("database: sales", "database: sales\nschema: s", "schema: write database or schema, not"),
        ("storage: file://", "storage: file:.", "storage: 'file:./"),
        ("keys.worth", "keys.wealth", "keys.wealth: there is no view of this name"),
        ("keys.worth", "keys.Kept", "keys.Kept: view 'kept' is temporary, so it has no target"),
        ("name: shop", "name: [", "is not a YAML file: while parsing"),
        ("name: shop", "name: 2024-13-45", "is not a YAML file: month must be in 1..12"),
    ],
)
def test_problems_of_a_specification_are_named(project, old, new, problem):
    project.write({"py/a.py": "", "more.txt": ""})
    project.replace(old, new)
    assert problem.replace(" ", "") in run("check", project.file, status=2).replace(" ", "")


def test_a_relative_path_of_a_specification_is_applied_once(project, monkeypatch):
    project.replace(f"file://{project.folder}/warehouse", "warehouse")
    project.replace(f"file://{project.folder}/storage", "storage")
    monkeypatch.chdir(project.folder.parent)
    path = f"{project.folder.name}/spark-pipeline.yml"
    assert "2 source tables, 3 views; no problem" in run("check", path)
    run("refresh", path)
    assert project.rows("n") == {(1,): 1}
    assert (project.folder / "storage" / "dbsp_wcoj").is_dir()


def test_a_setting_of_a_table_keeps_its_folder_of_the_warehouse(project):
    project.replace("  dbsp_wcoj.inputs.returns.path: returned\n", "")
    project.replace("inputs.returns.", "inputs.Returns.")
    (project.folder / "returned").rename(project.folder / "warehouse" / "sales.db" / "returns")
    assert "2 source tables, 3 views; no problem" in run("check", project.file)
    run("refresh", project.file)
    assert project.rows("worth") == {("lamp", 20): 1}


def test_a_folder_with_the_name_of_a_column_is_no_source_table(project):
    for name in ("price", "r", "recent"):
        (project.folder / "warehouse" / "sales.db" / name).mkdir()
    view = "CREATE VIEW m AS WITH recent AS (SELECT price FROM orders) SELECT price FROM recent"
    project.write({"transformations/m.sql": view})
    assert "2 source tables, 4 views; no problem" in run("check", project.file)


def test_settings_that_change_only_how_spark_works_are_accepted(project):
    settings = {
        "adaptive.enabled": "false",
        "extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "files.maxPartitionBytes": "64MB",
    }
    lines = "".join(f'\n  spark.sql.{name}: "{value}"' for name, value in settings.items())
    project.replace('"2"', f'"2"{lines}')
    assert "no problem" in run("check", project.file)


def test_the_warehouse_is_also_a_setting_that_spark_ignores(project):
    project.replace("spark.sql.warehouse.dir", "dbsp_wcoj.warehouse")
    run("refresh", project.file)
    assert project.rows("n") == {(1,): 1}


def test_the_uri_of_a_local_file_is_a_path(project):
    storage = f"file://{project.folder}/storage"
    project.replace(storage, f"'{storage}/a%20b#1?2/'")
    run("refresh", project.file)
    assert (project.folder / "storage" / "a b#1?2" / "dbsp_wcoj").is_dir()


def test_folders_have_lower_case_names_as_in_spark(project):
    project.replace("database: sales", "database: Sales")
    project.write({"more.sql": "CREATE MATERIALIZED VIEW N AS SELECT count(*) AS n FROM Returns"})
    project.replace("keys.worth: item", "keys.WORTH: wealth")
    assert "wealth" in run("refresh", project.file, status=2)
    project.replace("keys.WORTH: wealth", "keys.WORTH: item")
    run("refresh", project.file)
    assert project.rows("n") == {(1,): 1}
    assert project.rows("worth") == {("lamp", 20): 1}


def test_a_specification_without_tables_or_keys_is_refused(project):
    project.file.write_text("- a")
    assert "has no keys: write name, storage" in run("check", project.file, status=2)
    project.file.write_text(SPEC.format(folder=project.folder).replace("sales", "other"))
    project.replace("  dbsp_wcoj.inputs.returns.path: returned\n", "")
    project.replace("  dbsp_wcoj.inputs.returns.removed_files: delete\n", "")
    output = run("check", project.file, status=2)
    assert "no folder of the warehouse is a table that a view names: set dbsp_wcoj.wareh" in output


def test_a_table_of_spark_in_the_place_of_a_target_is_not_overwritten(project):
    place = project.folder / "warehouse" / "sales.db" / "n"
    place.mkdir()
    pq.write_table(pa.table({"n": [1]}), place / "part.parquet")
    assert "is not a Delta table: remove it" in run("check", project.file, status=2)


FLOWS = """
CREATE STREAMING TABLE people COMMENT 'of two sources';
CREATE FLOW eu AS INSERT INTO people BY NAME SELECT id, city FROM STREAM eu;
CREATE FLOW us AS INSERT INTO people BY NAME SELECT id, zip FROM STREAM(us) WHERE zip > 5;
CREATE MATERIALIZED VIEW cities AS SELECT count(*) AS n, count(city) AS cities FROM people;
"""


def test_flows_append_to_a_streaming_table(project):
    sources = project.folder / "warehouse" / "sales.db"
    deltalake.write_deltalake(sources / "eu", pa.table({"id": [1], "city": ["Rome"]}))
    deltalake.write_deltalake(sources / "us", pa.table({"id": [1, 2], "zip": [77, 3]}))
    project.write({"transformations/flows.sql": FLOWS})
    assert "4 source tables, 5 views; no problem" in run("check", project.file)
    run("refresh", project.file)
    assert project.rows("people") == {(1, "Rome", None): 1, (1, None, 77): 1}
    deltalake.write_deltalake(sources / "us", pa.table({"id": [1], "zip": [77]}), mode="append")
    report = json.loads(run("refresh", project.file, "--json"))
    assert report["written"] == {"lines": 0, "worth": 0, "n": 0, "people": 1, "cities": 2}
    assert project.rows("people") == {(1, "Rome", None): 1, (1, None, 77): 2}
    assert project.rows("cities") == {(3, 1): 1}
    deltalake.DeltaTable(sources / "eu").delete()
    assert "1 of its rows were deleted or updated" in run("refresh", project.file, status=2)


def test_a_file_that_is_not_sql_is_reported_before_its_tables(project):
    project.write({"transformations/flows.sql": FLOWS, "more.sql": "SELECT 'x"})
    output = run("check", project.file, status=2)
    assert "more.sql, line 1, column 1: the text cannot be read" in output
    assert "no source table" not in output
    assert "FLOW" not in output


def test_a_table_with_flows_stays_incremental(project):
    project.replace("configuration:", "configuration:\n  dbsp_wcoj.run.policy: full")
    sources = project.folder / "warehouse" / "sales.db"
    deltalake.write_deltalake(sources / "eu", pa.table({"id": [1], "city": ["Rome"]}))
    deltalake.write_deltalake(sources / "us", pa.table({"id": [1, 2], "zip": [77, 3]}))
    project.write({"transformations/flows.sql": FLOWS})
    plans = json.loads(run("explain", project.file, "--json"))
    assert [name for name in plans if plans[name]["refresh"] == "incremental"] == ["people"]


def test_an_unsupported_query_beside_flows_is_an_error(project):
    project.write(
        {
            "more.sql": "CREATE STREAMING TABLE s AS SELECT xpath_int(item) AS k FROM orders;\n"
            "CREATE FLOW f AS INSERT INTO s BY NAME SELECT price AS k FROM STREAM(orders)",
        }
    )
    assert "more.sql, line 1, column 36, s: function xpath_int() is not" in run(
        "check", project.file, status=2
    )
