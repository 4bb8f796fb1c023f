"""The rows of new views are published in slices to targets of each kind and mode."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from circuits.schema import Schema
from dbsp_wcoj import Trace
from streaming import (
    ChangeOptions,
    DeltaTarget,
    MemoryTarget,
    Output,
    ParquetTarget,
    SqlTarget,
    TargetError,
)
from streaming.state.parquet import read_parquet
from streaming.targets import frame
from tests.oracles.naive_plan import sum_weights
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import (
    COUNTS,
    SCHEMA,
    E,
    ReplacingTarget,
    feed,
    feed_more,
    make_sink,
    more_rows,
    table_of,
)
from tests.support.tables import bag_of

MAXIMA = "CREATE VIEW maxima AS SELECT src, max(dst) AS m FROM e GROUP BY src"


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


def test_the_initial_content_is_published_in_slices_to_a_target_that_replaces_it(state_dir):
    edges = ReplacingTarget()
    sink = make_sink(state_dir=state_dir)
    feed(sink, *range(4))
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))
    number = 4
    while not committed.done():
        feed_more(sink, number)
        if number > 6:
            feed_more(sink, number)  # a replay
        number += 1
    assert all(bag.total() <= 4 for bag in edges.batches.values())
    assert len(edges.batches) > 3
    assert committed.result(0) == max(edges.batches) == number - 1
    assert edges.previous[min(edges.batches)] == -1
    for earlier, later in pairwise(sorted(edges.batches)):
        assert edges.previous[later] == earlier
    feed_more(sink, number)
    tables = [*map(table_of, range(4)), *map(more_rows, range(4, number + 1))]
    (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
    assert edges.rows == bag_of(table)


@pytest.mark.parametrize("again", [False, True])
def test_a_target_that_fails_between_the_slices_receives_them_once(again, state_dir):
    edges = ReplacingTarget()
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1, 2)
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    committed = sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=2))
    number = 3
    while not committed.done():
        edges.fails = number % 2
        try:
            feed_more(sink, number)
        except OSError:
            if again and state_dir is not None and number == 7:
                sink.close()  # loads the state again, and begins from the beginning
            feed_more(sink, number)
        number += 1
        assert number < 40
    tables = [*map(table_of, range(3)), *map(more_rows, range(3, number))]
    (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
    assert edges.rows == bag_of(table)


def test_the_slices_that_are_published_adapt_to_a_limit_of_seconds():
    edges = ReplacingTarget()
    sink = make_sink()
    table = pa.Table.from_pylist([{"src": n, "dst": n} for n in range(5000)], SCHEMA)
    sink(Frame(table), 0)
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    committed = sink.add_view(text, edges, change=ChangeOptions(seconds_per_batch=60.0))
    number = 1
    while not committed.done():
        sink(Frame(table_of()), number)
        number += 1
    sizes = [bag.total() for bag in edges.batches.values()]
    assert sizes == [1000, 1000, 2000, 1000]


def test_a_job_that_stops_between_the_slices_publishes_the_view_from_the_beginning(tmp_path):
    edges, sizes = ReplacingTarget(), []
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    number = 4
    for attempt in range(2):
        sink = make_sink(state_dir=tmp_path)
        if attempt:
            sink(Frame(table_of()), number - 1)  # a replay
        else:
            feed(sink, *range(4))
        sink.add_view(text, edges, change=ChangeOptions(rows_per_batch=1))
        while sink.backfill.rows_published < 2:
            sink(Frame(table_of()), number)
            number += 1
            assert number < 40
        assert edges.previous[min(edges.batches)] == -1
        sizes.append(edges.rows.total())
        sink.close()
    assert sizes == [3, 3]  # two rows, one of them twice
    sink = make_sink(state_dir=tmp_path)
    committed = sink.add_view(text, edges)
    feed_more(sink, number)
    assert committed.result(0) == number
    tables = [*map(table_of, range(4)), more_rows(number)]
    (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
    assert edges.rows == bag_of(table)


@pytest.mark.parametrize("seed", range(12))
def test_upserts_in_slices_are_always_a_part_of_the_view(seed, tmp_path):
    random = Random(f"upserts {seed}")
    state_dir = tmp_path if seed % 4 == 0 else None
    target = MemoryTarget()
    sink = make_sink(state_dir=state_dir)
    rows = [{"src": n, "dst": random.randrange(50), "name": "a"} for n in range(30)]
    tables = [pa.Table.from_pylist(rows, SCHEMA).append_column("weight", pa.array([1] * 30))]
    sink(Frame(tables[0]), 0)
    limit = random.choice([1, 3, 7])
    committed = sink.add_view(
        MAXIMA,
        [Output("maxima", target, "upsert", random.choice([["src"], ["src", "m"]]))],
        materialize=["maxima"],
        change=ChangeOptions(rows_per_batch=limit),
    )
    number, view, changed_rows = 0, Counter(), 0
    while not committed.done():
        number += 1
        live = [row for row, n in bag_of(pa.concat_tables(tables)).items() for _ in range(n)]
        gone = random.sample(live, random.randrange(3))
        new = [
            (random.randrange(40), random.randrange(90), "b") for _ in range(random.randrange(3))
        ]
        changes = [(*row, -1) for row in gone] + [(*row, 1) for row in new]
        names = [*SCHEMA.names, "weight"]
        rows = [dict(zip(names, change, strict=True)) for change in changes]
        tables.append(pa.Table.from_pylist(rows, tables[0].schema))
        before = view
        sink(Frame(tables[-1]), number)
        (fresh,) = compile_sql(MAXIMA, E).step({"e": pa.concat_tables(tables)}).values()
        view = bag_of(fresh)
        deltas = target.deltas("maxima") if sink.last.outputs.get("maxima") is not None else ()
        if deltas and not committed.done():
            # At most the slice, and for each row that changed before its old and new key.
            assert deltas[-1].table.num_rows <= limit + 2 * changed_rows
            assert bag_of(target.table("maxima")) <= before
        changed_rows = len(changes)
    assert number > 30 // limit
    assert bag_of(target.table("maxima")) == view
    sink.close()


def test_a_view_without_one_row_per_key_is_refused_and_the_query_goes_on(state_dir):
    sink, edges = make_sink(state_dir=state_dir), ReplacingTarget()
    feed(sink, *range(4))
    committed = sink.add_view(
        "CREATE VIEW ends AS SELECT dst, src FROM e",
        [Output("ends", edges, "upsert", ["dst"])],
        materialize=["ends"],
        change=ChangeOptions(rows_per_batch=2),
    )
    number = 4
    while not committed.done():
        sink(Frame(table_of()), number)
        number += 1
        assert number < 40
    with pytest.raises(TargetError, match=r"view 'ends': mode 'upsert' needs one row for every"):
        committed.result()
    assert sink.backfill is None
    feed_more(sink, number)
    assert list(sink.last.outputs) == ["paths"]
    sink.close()


def test_the_rows_of_a_view_with_keys_are_not_arranged_at_the_commit(monkeypatch):
    target = MemoryTarget()
    sink = make_sink()
    table = pa.Table.from_pylist([{"src": n, "dst": n} for n in range(100)], SCHEMA)
    sink(Frame(table), 0)
    committed = sink.add_view(
        "CREATE VIEW ends AS SELECT dst, src FROM e",
        [Output("ends", target, "upsert", ["src"])],
        materialize=["ends"],
        change=ChangeOptions(rows_per_batch=30),
    )
    number = 0
    with monkeypatch.context() as patch:
        patch.setattr(Trace, "to_zset", None)
        while not committed.done():
            number += 1
            sink(Frame(table_of()), number)
        sink(Frame(more_rows(1000)), number + 1)
    assert [delta.table.num_rows for delta in target.deltas("ends")] == [30, 30, 30, 10, 1]


@pytest.mark.parametrize("mode", ["delta", "upsert"])
@pytest.mark.parametrize("kind", ["sqlite", "delta", "parquet", "memory"])
def test_slices_replace_the_rows_of_a_job_that_stopped_between_them(kind, mode, tmp_path):
    target = {
        "sqlite": SqlTarget(lambda: sqlite3.connect(tmp_path / "db"), "maxima"),
        "delta": DeltaTarget(str(tmp_path / "maxima")),
        "parquet": ParquetTarget(tmp_path / "maxima"),
        "memory": MemoryTarget(),
    }[kind]
    output = Output("maxima", target, mode, ["src"] if mode == "upsert" else [])
    change = ChangeOptions(rows_per_batch=1)
    tables = [table_of(*range(4))]
    state = tmp_path / "state"
    sink = make_sink(state_dir=state)
    feed(sink, *range(4))
    sink.add_view(MAXIMA, [output], materialize=["maxima"], change=change)
    number = 4
    while sink.backfill.rows_published < 2:
        sink(Frame(table_of()), number)
        number += 1
    sink.close()
    sink = make_sink(state_dir=state)
    sink(Frame(table_of()), number - 1)  # a replay
    # The rows that the target holds are no longer rows of the view.
    changed = pa.Table.from_pylist([{"src": n, "dst": 50, "name": "x"} for n in (1, 2)], SCHEMA)
    sink(Frame(changed), number)
    tables.append(changed)
    change = ChangeOptions(rows_per_batch=2)  # more than each micro-batch adds
    committed = sink.add_view(MAXIMA, [output], materialize=["maxima"], change=change)
    while not committed.done():
        number += 1
        assert number < 40
        feed_more(sink, number)
        tables.append(more_rows(number))
    (table,) = compile_sql(MAXIMA, E).step({"e": pa.concat_tables(tables)}).values()
    assert contents_of(kind, mode, target, tmp_path) == bag_of(table)
    sink.close()


def contents_of(kind, mode, target, place) -> Counter:
    """Return the rows of the view `maxima` that a target holds."""
    if kind == "sqlite":
        weight = "weight" if mode == "delta" else "1"
        with closing(sqlite3.connect(place / "db")) as connection:
            rows = connection.execute(f"SELECT src, m, {weight} FROM maxima").fetchall()
        return sum_weights([((src, m), w) for src, m, w in rows])
    if kind == "delta":
        table = deltalake.DeltaTable(str(place / "maxima")).to_pyarrow_table()
    elif kind == "memory":
        table = target.table("maxima")
    else:
        files = sorted((place / "maxima").iterdir())
        tables = [pq.read_table(file).drop_columns(["batch_id"]) for file in files]
        table = fold(tables) if mode == "upsert" else pa.concat_tables(tables)
    weights = table.column("weight").to_pylist() if "weight" in table.column_names else None
    rows = [(row["src"], row["m"]) for row in table.to_pylist()]
    return sum_weights(list(zip(rows, weights or [1] * len(rows), strict=True)))


def fold(tables) -> pa.Table:
    """Return the last row of each key of the upserts, without tombstones."""
    rows = {row["src"]: row for table in tables for row in table.to_pylist()}
    kept = [row for row in rows.values() if row["weight"] > 0]
    return pa.Table.from_pylist(kept, tables[0].schema)


def test_a_target_of_whole_views_receives_one_once_it_has_all_rows(state_dir):
    target = ReplacingTarget()
    sink = make_sink(state_dir=state_dir)
    feed(sink, 0, 1, 2)
    committed = sink.add_view(
        COUNTS,
        [Output("counts", target, "complete")],
        materialize=["counts"],
        change=ChangeOptions(rows_per_batch=1),
    )
    number = 3
    while not committed.done():
        sink(Frame(table_of()), number)
        number += 1
    assert list(target.batches) == [number - 1]


class Function:
    """A function that keeps rows by micro-batch, and removes the earlier ones if it has a whole."""

    def __init__(self) -> None:
        self.batches: dict[int, Counter] = {}
        self.fails = 0

    def __call__(self, frame: pa.Table, batch_id: int, is_whole: bool) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("no answer")
        if is_whole and batch_id not in self.batches:
            self.batches.clear()
        assert self.batches.setdefault(batch_id, bag_of(frame)) == bag_of(frame)

    @property
    def rows(self) -> Counter:
        return sum_weights([pair for bag in self.batches.values() for pair in bag.items()])


def rows_of(session, delta):
    """Return the rows as Spark would read them: those of a replay are in files."""
    tables = [read_parquet(Path(file).read_bytes(), file) for file in delta.files]
    return pa.concat_tables(tables) if tables else delta.table


@pytest.fixture
def frames(monkeypatch):
    """Functions receive the Arrow tables instead of DataFrames."""
    monkeypatch.setattr(frame, "frame_of", rows_of)
    monkeypatch.setattr(Frame, "sparkSession", Mock(), raising=False)


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize("way", ["calm", "fails", "close", "kill"])
def test_a_function_that_replaces_rows_receives_the_initial_content_in_slices(way, tmp_path):
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    edges, number = Function(), 4
    sink = make_sink(state_dir=tmp_path)
    feed(sink, *range(4))
    change = ChangeOptions(rows_per_batch=2)
    committed = sink.add_view(text, edges, change=change)
    while not committed.done():
        edges.fails = way == "fails" and number % 2
        try:
            feed_more(sink, number)
        except OSError:
            feed_more(sink, number)
        if number == 12 and way == "close":
            sink.close()
        if number == 12 and way == "kill":
            assert len(edges.batches) > 1
            sink = make_sink(state_dir=tmp_path)
            feed_more(sink, number)  # a replay
            committed = sink.add_view(text, edges, change=change)
        number += 1
        assert number < 60
    feed_more(sink, number)
    assert all(bag.total() <= 4 for bag in edges.batches.values())
    assert len(edges.batches) > 3
    tables = [*map(table_of, range(4)), *map(more_rows, range(4, number + 1))]
    (table,) = compile_sql(text, E).step({"e": pa.concat_tables(tables)}).values()
    assert edges.rows == bag_of(table)
    sink.close()


@pytest.mark.usefixtures("frames")
def test_a_function_that_cannot_replace_rows_receives_the_initial_content_once(state_dir, caplog):
    calls = []
    sink = make_sink(state_dir=state_dir)
    feed(sink, *range(4))
    text = "CREATE VIEW edges AS SELECT src, dst FROM e"
    committed = sink.add_view(
        text,
        lambda frame, batch_id: calls.append((batch_id, frame.num_rows)),
        change=ChangeOptions(rows_per_batch=2),
    )
    assert "give a function the parameter is_whole" in caplog.text
    number = 4
    while not committed.done():
        sink(Frame(table_of()), number)
        number += 1
    assert calls == [(number - 1, 5)]


def test_the_first_micro_batch_in_mode_complete_decodes_no_more_rows_than_the_next(monkeypatch):
    decoded = []
    to_table = Schema.to_table

    def count(schema, zset, codecs):
        decoded.append(len(zset))
        return to_table(schema, zset, codecs)

    sink, edges = make_sink(), ReplacingTarget()
    table = pa.Table.from_pylist([{"src": n, "dst": n} for n in range(200)], SCHEMA)
    sink(Frame(table), 0)
    committed = sink.add_view(
        "CREATE VIEW edges AS SELECT src, dst FROM e",
        [Output("edges", edges, "complete")],
        materialize=["edges"],
        change=ChangeOptions(rows_per_batch=50),
    )
    monkeypatch.setattr(Schema, "to_table", count)
    number, sizes = 1, []
    while not committed.done():
        decoded.clear()
        sink(Frame(more_rows(1000 + number)), number)
        sizes.append(sum(decoded))
        number += 1
    decoded.clear()
    sink(Frame(more_rows(1000 + number)), number)
    assert sizes[-1] <= sum(decoded)
    assert max(sizes[:-1]) <= 2
    assert edges.batches[number].total() == 200 + number
