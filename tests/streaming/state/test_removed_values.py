"""Removed values: the files of dictionaries follow the live rows, over restarts and crashes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.state import dictionary_sweep
from dbsp_wcoj.values import sweep
from streaming import ViewSink
from streaming.state import compaction
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.reader import load
from streaming.state.writer import Writer
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.state.test_compaction import CountedFiles, newest_parts
from tests.support.state_store import assert_same_snapshot
from tests.support.tables import bag_of

ROWS, WINDOW = 20, 10
SCHEMA = {"r": "k text, v text", "s": "k text, l text[]"}
SQL = "SELECT r.k, r.v, s.l FROM r JOIN s ON r.k = s.k"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(dictionary_sweep, "MIN_NEW_VALUES", 200)
    monkeypatch.setattr(dictionary_sweep, "MIN_WORK", 200)
    monkeypatch.setattr(dictionary_sweep, "_CODES_PER_SLICE", 50)
    return monkeypatch


def circuit():
    return compile_sql(SQL, SCHEMA, materialize=["r", "s"])


def tables_of_step(step: int) -> dict[str, pa.Table]:
    """Insert rows with new values, and delete those that were inserted ``WINDOW`` steps ago."""
    tables: dict[str, list[pa.Table]] = {"r": [], "s": []}
    for number, weight in ((step, 1), (step - WINDOW, -1)):
        keys = (
            [f"key {n}" for n in range(number * ROWS, (number + 1) * ROWS)] if number >= 0 else []
        )
        weights = np.full(len(keys), weight)
        tables["r"].append(
            pa.table({"k": keys, "v": [f"value of {k}" for k in keys], "weight": weights})
        )
        lists = pa.array([[f"item of {k}", "item"] for k in keys], pa.list_(pa.string()))
        tables["s"].append(pa.table({"k": keys, "l": lists, "weight": weights}))
    first, second = tables["r"]
    return {
        "r": pa.concat_tables([first, second.cast(first.schema)]),
        "s": pa.concat_tables([tables["s"][0], tables["s"][1].cast(tables["s"][0].schema)]),
    }


def rows_after(steps: int) -> dict[str, dict]:
    alive = range(max(steps - WINDOW, 0) * ROWS, steps * ROWS)
    keys = [f"key {n}" for n in alive]
    return {
        "r": {(key, f"value of {key}"): 1 for key in keys},
        "s": {(key, str([f"item of {key}", "item"])): 1 for key in keys},
    }


def content(views) -> dict[str, dict]:
    lists = views["s"]
    texts = pa.array([str(value) for value in lists.column("l").to_pylist()], pa.string())
    return {"r": bag_of(views["r"]), "s": bag_of(lists.set_column(1, "l", texts))}


def stored_values(files: LocalFiles) -> dict[str, int]:
    """Return the number of values in the files of each dictionary, in the newest version."""
    parts = newest_parts(files)
    return {name: sum(p.rows for p in part) for (name, order), part in parts.items() if not order}


class StepWriter:
    """Writes and commits the steps of a circuit, as a cell of a distributed circuit does."""

    def __init__(self, files: LocalFiles) -> None:
        self.files = files
        self.circuit = circuit()
        self.manifest = None

    def step(self, number: int) -> None:
        writer = Writer(self.files, self.manifest, f"data/{number:020}-a")
        step = self.circuit.prepare(tables_of_step(number))
        state = step.state(writer.dictionary_lengths)
        writer.add(state)
        self.manifest = writer.make_manifest(state, number, state_id="", fingerprint="")
        step.commit()

    def restarted(self) -> StepWriter:
        new = StepWriter(self.files)
        new.manifest = self.manifest
        load(self.files, new.circuit, 0, lambda _: self.manifest)
        return new


def test_without_a_compactor_steps_write_dictionaries_again(tmp_path):
    store, most = StepWriter(LocalFiles(tmp_path)), 0
    for number in range(100):
        store.step(number)
        stored = {
            name: sum(part.rows for part in parts)
            for name, parts in store.manifest.dictionaries.items()
        }
        most = max(most, sum(stored.values()))
        if number % 17 == 0:
            restarted = store.restarted()
            assert content(restarted.circuit.views) == rows_after(number + 1)
    # Of 600 strings, 200 lists and the row ids of 400 rows, 1,200 are live.
    assert store.circuit.graph.registry.lengths()["text"] == 100 * 3 * ROWS + 1
    assert most <= 2.5 * 1200


@pytest.mark.parametrize("steps_per_run", [1, 2, 7])
def test_frequent_restarts_do_not_let_dictionaries_grow(tmp_path, steps_per_run, small_limits):
    small_limits.setattr(dictionary_sweep, "MIN_WORK", 1)
    small_limits.setattr(dictionary_sweep, "WORK_PER_VALUE", 1)
    store, most = StepWriter(LocalFiles(tmp_path)), 0
    for number in range(80):
        if number % steps_per_run == 0 and number:
            store = store.restarted()
        store.step(number)
        parts = [part for parts in store.manifest.dictionaries.values() for part in parts]
        most = max(most, sum(part.rows for part in parts))
    assert most <= 3 * 1200
    assert content(store.circuit.views) == rows_after(80)


def open_sink(files: LocalFiles) -> ViewSink:
    sql = "SELECT a.v, b.v AS other FROM e a JOIN e b ON a.k = b.k"
    return ViewSink(compile_sql(sql, {"e": "k text, v text"}, materialize=["e"]), state_dir=files)


@pytest.mark.parametrize("polls", [0, 3, 30])
def test_the_compactor_writes_dictionaries_again(tmp_path, polls):
    files = CountedFiles(tmp_path)
    sink, most = open_sink(files), 0
    with files.threads(polls):
        for number in range(150):
            if number == 70:
                sink.close()
                sink = open_sink(files)
            sink(Frame(tables_of_step(number)["r"], "q"), number)
            most = max(most, stored_values(files)["text"])
        for number in range(150, 150 + 4 * polls):
            sink(Frame(tables_of_step(0)["r"].slice(0, 0), "q"), number)
        sink.close()
    # A compaction takes ``polls`` steps, and each step adds 40 values.
    assert most <= 3 * 400 + 3 * 40 * (polls + 1)
    assert stored_values(files)["text"] <= 3 * 400
    assert read_manifest(files, list_batch_ids(files)[-1]).dictionary_lengths["text"] == 150 * 40
    restarted = open_sink(files)
    assert bag_of(restarted.table("e")) == rows_after(150)["r"]


def test_parts_with_rows_that_cancel_are_merged(tmp_path, small_limits):
    small_limits.setattr(compaction, "MIN_REMOVED_ROWS", 100)
    files = CountedFiles(tmp_path)
    sink, most = open_sink(files), 0
    with files.threads(1):
        for number in range(150):
            sink(Frame(tables_of_step(number)["r"], "q"), number)
            parts = newest_parts(files)
            most = max(most, *(sum(p.rows for p in ps) for k, ps in parts.items() if k[1]))
        sink.close()
    # 200 rows are live, and the runs in memory have up to twice as many.
    assert most <= compaction.MAX_STORED_ROWS_RATIO * 2 * 200 + 100 + 3 * 40
    assert bag_of(open_sink(files).table("e")) == rows_after(150)["r"]


def test_a_dictionary_without_live_values_leaves_no_part_and_uses_no_code_again(tmp_path):
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    with files.threads(0):
        for number in range(40):
            rows = pa.table({"k": [f"k{number} {n}" for n in range(20)], "v": ["v"] * 20})
            weights = [pa.array(np.full(20, weight)) for weight in (1, -1)]
            for step, weight in enumerate(weights, 2 * number):
                sink(Frame(rows.append_column("weight", weight), "q"), step)
        sink.close()
    assert stored_values(files)["text"] <= 300
    length = read_manifest(files, 79).dictionary_lengths["text"]
    sink = open_sink(files)
    sink(Frame(pa.table({"k": ["new"], "v": ["newer"]}), "q"), 80)
    assert bag_of(sink.table("e")) == {("new", "newer"): 1}
    assert read_manifest(files, 80).dictionary_lengths["text"] == length + 2
    sink.close()


def test_a_value_that_returns_before_its_file_is_written_again_is_loaded_once(
    tmp_path, small_limits
):
    small_limits.setattr(dictionary_sweep, "MIN_NEW_VALUES", 0)
    small_limits.setattr(dictionary_sweep, "MAX_NEW_SHARE", 0)
    small_limits.setattr(sweep, "_MIN_REMOVED_SHARE", 10**9)
    files = CountedFiles(tmp_path)
    sink = open_sink(files)
    rows = pa.table({"k": ["x", "y"], "v": ["x", "y"]})
    with files.threads(10**6):
        for number in range(60):
            changed = rows.slice(0, 0) if 1 < number < 59 else rows
            others = pa.table({"k": [f"k{number}"] * 10, "v": ["x1"] * 10})
            weights = [-1 if number == 1 else 1] * changed.num_rows + [1] * others.num_rows
            table = pa.concat_tables([changed, others]).append_column("weight", [weights])
            sink(Frame(table, "q"), number)
    assert sink.circuit.graph.codecs.interners["text"].string_count == 63
    assert stored_values(files)["text"] == 65
    reader = open_sink(files)
    expected = {("x", "x"): 1, ("y", "y"): 1} | {(f"k{n}", "x1"): 10 for n in range(60)}
    assert bag_of(reader.table("e")) == expected
    assert_same_snapshot(reader.circuit, sink.circuit)
