"""A pipeline keeps its target tables equal to the views over its source tables."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from threading import Barrier, BrokenBarrierError

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import Circuit, compile
from streaming.cli.arguments.checks import ProblemsError
from streaming.cli.arguments.pipeline_file import read_pipeline
from streaming.database.positions import POSITIONS
from streaming.errors import (
    EventsError,
    SourceTableError,
    StateDamagedError,
    StateLockedError,
    TargetError,
)
from streaming.pipeline import definition as definition_module
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.pipeline import Pipeline
from streaming.pipeline.sql_files import read_sql_files
from streaming.pipeline.tables.delta_table import DeltaSourceTable
from streaming.pipeline.tables.parquet_folder import ParquetFolder
from streaming.sink.output import Output
from streaming.state.local_files import LocalFiles
from streaming.state.store import Store
from streaming.targets.delta import DeltaTarget
from streaming.targets.memory import MemoryTarget
from tests.support.pipeline_world import PipelineWorld
from tests.support.tables import bag_of

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")


def open_pipeline(world, **options):
    return Pipeline(read_pipeline(world.file).definition, **options)


@pytest.fixture
def world(tmp_path):
    created = PipelineWorld(tmp_path)
    created.create()
    return created


@pytest.mark.parametrize("has_feed", [False, True])
def test_the_target_tables_are_the_views_after_every_refresh(tmp_path, has_feed):
    world, random = PipelineWorld(tmp_path, has_feed=has_feed), Random(7)
    world.create()
    for _ in range(4):
        world.change(random)
        with open_pipeline(world) as pipeline:
            pipeline.refresh()
            for _ in range(2):
                world.change(random)
                pipeline.refresh()
                assert world.actual() == world.expected()
            assert pipeline.refresh().number is None


def test_a_refresh_that_a_target_fails_is_published_by_the_next(world, monkeypatch):
    def fail(self, delta):
        raise TargetError("no space")

    with open_pipeline(world) as pipeline:
        pipeline.refresh()
        world.change(Random(1))
        world.change(Random(2))
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTarget, "write", fail)
            with pytest.raises(TargetError, match="no space"):
                pipeline.refresh()
        pipeline.refresh()
        assert world.actual() == world.expected()


def test_a_step_that_is_not_published_and_has_a_damaged_file_is_an_error(world, monkeypatch):
    def fail(self, delta):
        raise TargetError("no space")

    with open_pipeline(world) as pipeline:
        pipeline.refresh()
    world.change(Random(1))
    world.change(Random(2))
    with monkeypatch.context() as patch, open_pipeline(world) as pipeline:
        patch.setattr(DeltaTarget, "write", fail)
        with pytest.raises(TargetError, match="no space"):
            pipeline.refresh()
    file = max((world.folder / "state" / "outputs").iterdir())
    file.write_bytes(b"damaged")
    for _ in range(2):
        with open_pipeline(world) as pipeline, pytest.raises(StateDamagedError, match="restore"):
            pipeline.refresh()


def test_a_file_of_a_cache_that_cannot_be_written_is_only_logged(world, monkeypatch, caplog):
    rename = LocalFiles.rename

    def fail(files, old, new):
        if new == "published.json":
            raise OSError("no space")
        rename(files, old, new)

    monkeypatch.setattr(LocalFiles, "rename", fail)
    with open_pipeline(world) as pipeline:
        pipeline.refresh()
        world.change(Random(1))
        pipeline.refresh()
        assert world.actual() == world.expected()
    assert "published.json was not written: no space" in caplog.text
    assert not list((world.folder / "state").glob("*.tmp"))


class MeetingTarget(MemoryTarget):
    """A target whose first writes of two views meet; one of them fails on request."""

    def __init__(self, writes_in_parallel):
        super().__init__()
        self.writes_in_parallel = writes_in_parallel
        self.failing, self.met = "", 0
        self.barrier = Barrier(2)

    def write(self, delta):
        with suppress(BrokenBarrierError):
            self.barrier.wait(20 if self.writes_in_parallel else 0.01)
            self.met += 1
        if delta.view in self.failing:
            raise TargetError(f"no space for {delta.view}")
        super().write(delta)


@pytest.mark.parametrize("in_parallel", [True, False])
def test_only_targets_that_allow_it_are_written_at_the_same_time(world, in_parallel):
    target = MeetingTarget(in_parallel)
    text = """
        CREATE VIEW a AS SELECT id FROM customers;
        CREATE VIEW b AS SELECT city FROM customers;
    """
    pipeline_of_two = definition(
        world, text, outputs=lambda _: [Output("a", target), Output("b", target)]
    )
    target.failing = "a"
    with Pipeline(pipeline_of_two) as pipeline:
        with pytest.raises(TargetError, match="no space"):
            pipeline.refresh()
        assert target.met == 2 * in_parallel
        target.failing = ""
        pipeline.refresh()
    assert bag_of(target.table("a")) == {(1,): 1, (2,): 1}
    assert bag_of(target.table("b")) == {("Rome",): 1, ("Oslo",): 1}


def test_other_targets_are_written_in_the_order_of_the_views(world):
    written = []

    class OrderTarget(MemoryTarget):
        def write(self, delta):
            written.append(delta.view)
            super().write(delta)

    target = OrderTarget()
    text = """
        CREATE VIEW few AS SELECT count(*) AS n FROM customers;
        CREATE VIEW many AS SELECT id FROM customers;
    """
    pipeline_of_two = definition(
        world, text, outputs=lambda _: [Output("few", target), Output("many", target)]
    )
    with Pipeline(pipeline_of_two) as pipeline:
        pipeline.refresh()
    assert written == ["few", "many"]
    assert target.table("many").num_rows > target.table("few").num_rows


@pytest.mark.parametrize("a_in_parallel", [True, False])
def test_the_errors_of_all_targets_that_fail_are_reported(world, a_in_parallel):
    targets = {"a": MeetingTarget(a_in_parallel), "b": MeetingTarget(True)}
    text = "CREATE VIEW a AS SELECT id FROM customers; CREATE VIEW b AS SELECT id FROM customers;"
    pipeline_of_two = definition(
        world, text, outputs=lambda _: [Output(view, target) for view, target in targets.items()]
    )
    for target in targets.values():
        target.failing = "ab"
        target.barrier.abort()
    with Pipeline(pipeline_of_two) as pipeline:
        with pytest.raises(TargetError) as caught:
            pipeline.refresh()
        messages = [str(caught.value), *caught.value.__notes__]
        assert {view for view in "ab" for m in messages if f"no space for {view}" in m} == {*"ab"}


def test_two_refreshes_at_the_same_time_are_refused(world):
    with open_pipeline(world) as pipeline, open_pipeline(world) as other:
        pipeline.refresh()
        with pytest.raises(StateLockedError):
            other.refresh()


def test_a_new_view_is_computed_from_rows_that_were_read_before(world):
    world.change(Random(3))
    with open_pipeline(world) as pipeline:
        pipeline.refresh()
    (world.folder / "sql" / "new.sql").write_text(
        "CREATE MATERIALIZED VIEW names AS SELECT DISTINCT city, id FROM customers"
    )
    world.change(Random(4))
    with open_pipeline(world) as pipeline:
        assert pipeline.refresh().written["names"]
    customers = deltalake.DeltaTable(world.folder / "customers").to_pyarrow_table()
    names = deltalake.DeltaTable(world.folder / "lake" / "names").to_pyarrow_table()
    assert Counter(map(str, names.select(["id", "city"]).to_pylist())) == Counter(
        map(str, customers.to_pylist())
    )
    assert world.actual() == world.expected()


def test_a_new_view_has_rows_of_a_refresh_after_the_pipeline_was_opened(world):
    old = "CREATE VIEW v AS SELECT id FROM customers;"
    with Pipeline(definition(world, old)) as pipeline:
        pipeline.refresh()
    with Pipeline(
        definition(world, old + "CREATE VIEW w AS SELECT id, city FROM customers")
    ) as new:
        for number in (3, 4):
            row = pa.table({"id": [number], "city": ["Oslo"]})
            deltalake.write_deltalake(world.folder / "customers", row, mode="append")
            if number == 3:
                with Pipeline(definition(world, old)) as other:
                    other.refresh()
        new.refresh()
        views = new.circuit.views
        assert bag_of(views["v"]) == {(n,): 1 for n in (1, 2, 3, 4)}
        assert sorted(views["w"].column("id").to_pylist()) == [1, 2, 3, 4]


def test_a_refresh_whose_commit_is_not_confirmed_has_written(world, monkeypatch):
    def fail(store):
        raise OSError("no answer")

    text = "CREATE VIEW v AS SELECT id FROM customers"
    with Pipeline(definition(world, text)) as pipeline:
        assert not pipeline.has_written
        with monkeypatch.context() as patch:
            patch.setattr(Store, "confirm_commit", fail)
            with pytest.raises(OSError, match="no answer"):
                pipeline.refresh()
        assert pipeline.has_written
    with Pipeline(definition(world, text)) as pipeline:
        report = pipeline.refresh()  # publishes the step
        assert (report.number, report.written) == (0, {"v": 2})
        assert pipeline.refresh().number is None


def test_a_new_column_of_a_table_is_null_in_the_rows_that_were_read_before(world):
    text = "CREATE VIEW n AS SELECT city, count(*) AS n FROM customers GROUP BY city"
    with Pipeline(definition(world, text)) as pipeline:
        pipeline.refresh()
    row = pa.table({"id": [3], "city": ["Oslo"], "zip": ["x"]})
    path = world.folder / "customers"
    deltalake.write_deltalake(path, row, mode="append", schema_mode="merge")
    with Pipeline(definition(world, text)) as pipeline:
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["n"]) == {("Rome", 1): 1, ("Oslo", 2): 1}
    with Pipeline(definition(world, text.replace("count(*)", "count(zip)"))) as pipeline:
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["n"]) == {("Rome", 0): 1, ("Oslo", 1): 1}
        deltalake.DeltaTable(path).delete("id = 1")
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["n"]) == {("Oslo", 1): 1}


def test_a_view_is_dropped_only_on_request(world):
    with open_pipeline(world) as pipeline:
        pipeline.refresh()
    (world.folder / "sql" / "b_gold.sql").write_text("")
    text = world.file.read_text()
    world.file.write_text(text.replace('view = "cities"', 'view = "strangers"'))
    first, rest = text.split("[[outputs]]", 1)
    world.file.write_text(f"{first}[[outputs]]{rest.split('[[outputs]]', 1)[1]}")
    with open_pipeline(world) as pipeline, pytest.raises(Exception, match="cities"):
        pipeline.refresh()
    with open_pipeline(world, allow_drop=True) as pipeline:
        pipeline.refresh()


def test_a_table_that_comes_back_or_is_kept_in_another_way_is_read_from_the_beginning(world):
    world.change(Random(6))
    text = world.file.read_text()
    silver, gold = (world.folder / "sql" / name for name in ("nested/a_silver.sql", "b_gold.sql"))
    views = silver.read_text()
    gold.write_text("")
    text = text.split("[[outputs]]", 1)[0] + '[state]\npath = "state"\n'
    without_orders = "[inputs.customers]" + text.split("[inputs.customers]", 1)[1]
    only_customers = "CREATE VIEW ids AS SELECT id FROM customers"
    ignoring = text.replace('removed_files = "delete"', 'removed_files = "ignore"')
    changes = [
        (text, views),
        (f'query = "sql"\n{without_orders}', only_customers),
        (text, views),
        (ignoring, views),
        (text, views),
    ]
    for file, sql in changes:
        world.file.write_text(file)
        silver.write_text(sql)
        with open_pipeline(world, allow_drop=True) as pipeline:
            pipeline.refresh()
            if sql == views:
                expected = world.expected()
                for view in ("lines", "strangers"):
                    assert bag_of(pipeline.circuit.views[view]) == expected[view], view


def definition(world, text, **options):
    path = world.folder / "one.sql"
    path.write_text(text)
    tables = {"customers": DeltaSourceTable(str(world.folder / "customers"))}
    state = str(world.folder / "state")
    return PipelineDefinition(read_sql_files([path]), tables, state, **options)


def test_a_streaming_table_refuses_a_deletion_and_changes_nothing(world):
    text = "CREATE STREAMING TABLE bronze AS SELECT * FROM STREAM(customers)"
    with Pipeline(definition(world, text)) as pipeline:
        pipeline.refresh()
        row = pa.table({"id": [3], "city": ["Bari"]})
        deltalake.write_deltalake(world.folder / "customers", row, mode="append")
        deltalake.DeltaTable(world.folder / "customers").optimize.compact()
        assert pipeline.refresh().written == {"bronze": 1}
        deltalake.DeltaTable(world.folder / "customers").delete("id = 1")
        with pytest.raises(SourceTableError, match=r"1 of its rows .* without STREAM"):
            pipeline.refresh()
    with Pipeline(definition(world, text.replace("STREAM(customers)", "customers"))) as pipeline:
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["bronze"]) == {(2, "Oslo"): 1, (3, "Bari"): 1}


def test_a_new_column_of_a_table_is_read_by_the_next_process(world):
    old = "CREATE VIEW v AS SELECT id FROM customers"
    with Pipeline(definition(world, old)) as pipeline:
        pipeline.refresh()
        rows = pa.table({"id": [3], "city": ["Bari"], "zip": [77]})
        deltalake.write_deltalake(
            world.folder / "customers", rows, mode="append", schema_mode="merge"
        )
        with pytest.raises(SourceTableError, match=r"has new columns .* zip; .* start it again"):
            pipeline.refresh()
    new = f"{old}; CREATE VIEW zips AS SELECT id, zip FROM customers"
    with Pipeline(definition(world, new)) as pipeline:
        pipeline.refresh()
        expected = {(1, None): 1, (2, None): 1, (3, 77): 1}
        assert bag_of(pipeline.circuit.views["zips"]) == expected


def test_a_pipeline_is_planned_once_and_its_operators_are_built_once(world, monkeypatch):
    planned, built, searched = [], [], []
    plan_sql, build_graph = compile.plan_sql, Circuit.build_graph
    find_obstacles = definition_module.find_obstacles

    def count(calls, function):
        return lambda *args, **options: (calls.append(args), function(*args, **options))[1]

    monkeypatch.setattr(compile, "plan_sql", count(planned, plan_sql))
    monkeypatch.setattr(Circuit, "build_graph", count(built, build_graph))
    monkeypatch.setattr(definition_module, "find_obstacles", count(searched, find_obstacles))
    text = """
        CREATE TEMPORARY VIEW named AS SELECT id, city FROM customers;
        CREATE VIEW cities AS SELECT city, count(*) AS n FROM named GROUP BY city;
    """
    circuit = definition(world, text, dialect="spark").compile().circuit
    assert (len(planned), len(built), len(searched)) == (1, 1, 0)
    assert circuit.outputs == ("cities",)
    assert circuit.materialized == (POSITIONS, "cities")


def test_a_key_that_sql_declares_does_not_make_an_update_ambiguous(world):
    text = """
        CREATE TABLE customers (id BIGINT PRIMARY KEY, city TEXT);
        CREATE VIEW n AS SELECT city FROM customers
    """
    with Pipeline(definition(world, text)) as pipeline:
        pipeline.refresh()
        table = deltalake.DeltaTable(world.folder / "customers")
        table.update(predicate="id = 1", updates={"city": "'Bari'"})
        pipeline.refresh()
        assert bag_of(pipeline.circuit.views["n"]) == {("Bari",): 1, ("Oslo",): 1}


def test_all_problems_of_all_files_are_found_at_once(world):
    (world.folder / "sql" / "wrong.sql").write_text(
        "CREATE VIEW a AS SELECT nope FROM customers;\n\nCREATE VIEW b AS SELECT frob(id) FROM zzz"
    )
    (world.folder / "sql" / "more.sql").write_text("CREATE VIEW c AS SELECT x.city FROM customers")
    problems = read_pipeline(world.file).definition.find_problems()
    assert [
        problem.split(": ")[0].removeprefix(f"{world.folder}/sql/") for problem in problems
    ] == [
        "more.sql, line 1, column 25, c",
        "wrong.sql, line 1, column 25, a",
        "wrong.sql, line 3, column 25, b",
        "wrong.sql, line 3, column 39, b",
    ]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("unclosed", ["SELECT 'x FROM t", "\n\nSELECT 1 /* one", 'SELECT "x'])
def test_a_file_with_an_unclosed_quote_hides_no_problem_of_other_files(world, dialect, unclosed):
    texts = {
        "a": "CREATE VIEW a AS SELECT nosuch FROM customers;",
        "b": unclosed,
        "c": "CREATE VIEW c AS SELECT id FROM b;\nCREATE VIEW d AS SELECT zz FROM customers",
    }
    paths = [world.folder / f"{name}.sql" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    tables = {"customers": DeltaSourceTable(str(world.folder / "customers"))}
    state = str(world.folder / "state")
    problems = PipelineDefinition(
        read_sql_files(paths), tables, state, dialect=dialect
    ).find_problems()
    assert [problem.removeprefix(f"{world.folder}/").split(": ")[0] for problem in problems] == [
        "b.sql, line 1, column 1",
        "a.sql, line 1, column 25, a",
        "c.sql, line 2, column 25, d",
    ]


def test_a_pipeline_of_temporary_views_alone_writes_no_target(world):
    text = "CREATE TEMPORARY VIEW c AS SELECT id FROM customers"
    assert definition(world, text).find_problems() == []
    with pytest.raises(EventsError, match="no view has a target, because all views are temporary"):
        definition(world, text).compile()
    folder = ParquetFolder(str(world.folder / "in"), declared=None, removed_files="delete")
    (world.folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), world.folder / "in" / "one.parquet")
    over_files = replace(definition(world, text), tables={"customers": folder})
    with pytest.raises(EventsError, match="no view has a target"):
        over_files.compile()


def test_a_source_table_that_is_missing_is_one_problem(world):
    text = world.file.read_text().replace('path = "customers"', 'path = "clients"')
    world.file.write_text(text)
    (problem,) = read_pipeline(world.file).definition.find_problems()
    assert problem.startswith("source table 'customers': Parquet folder")


def test_a_declared_table_needs_a_source(world):
    (world.folder / "sql" / "tables.sql").write_text("CREATE TABLE stock (nr INT)")
    (problem,) = read_pipeline(world.file).definition.find_problems()
    assert problem.startswith("table 'stock' is declared and has no source: add [inputs.stock]")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('query = "sql"', 'query = "empty"', "there is no file .sql"),
        ('query = "sql"', "", "query: the key is missing"),
        ('removed_files = "delete"', 'removed_files = "keep"', "write one of"),
        ('path = "customers"', 'path = "customers"\nremoved_files = "ignore"', "is only for"),
        ('path = "customers"', 'path = "customers"\nkeys = ["id"]', "unknown key"),
        ('path = "state"', "", "state.path: the key is missing"),
        ('path = "customers"', "", "inputs.customers.path: the key is missing"),
    ],
)
def test_problems_of_the_file_are_named(world, old, new, problem):
    (world.folder / "empty").mkdir()
    world.file.write_text(world.file.read_text().replace(old, new))
    with pytest.raises((ProblemsError, EventsError), match=problem):
        read_pipeline(world.file)


def test_problems_of_limits_memory_and_functions_are_all_named(world):
    text = world.file.read_text().replace("[state]", '[state]\nmemory_limit = "much"')
    text += '\n[run]\nfunctions = "none.py:F"\n[limits]\nmax_step_bytes = "many"\n'
    world.file.write_text(text)
    with pytest.raises(ProblemsError) as error:
        read_pipeline(world.file)
    limit, memory, functions = error.value.problems
    assert ("many" in limit, "much" in memory, "none.py" in functions) == (True, True, True)
