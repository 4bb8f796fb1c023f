"""Memory limit: large runs are maps of the files of the state directory, with the same results."""

from __future__ import annotations

import errno
import mmap
import os
import re
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.state import dictionary_sweep
from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values import sweep
from dbsp_wcoj.values.interner import Interner
from streaming import ChangeOptions, StateDamagedError, StateError, ViewSink, stored_circuit
from streaming.state import compaction, string_parts, writer
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_manifest
from streaming.state.mapped import resident_pages
from streaming.state.mapped.dictionary_memory import DictionaryMemory, DictionarySize
from streaming.state.mapped.file_merge import FileMerge
from streaming.state.mapped.mapped_file import MappedFile
from streaming.state.mapped.memory_limit import (
    INDEX_LIMIT_DIVISOR,
    MAX_HEAP_SHARE_AFTER_REPLACEMENT,
    MAX_INDEX_DIVISOR,
    MAX_SPARE_SHARE,
    MIN_INDEX_DIVISOR,
    MIN_PAGE_SHARE,
    MemoryLimit,
)
from streaming.state.mapped.page_faults import expect_single_pages
from streaming.state.part_reader import PartReader
from streaming.state.segment import SegmentPart, encode_segment
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import LINK, ROWS, VIEWS, check, expected, feed, sink_on
from tests.support.polled_thread import PolledThread
from tests.support.tables import bag_of, table_of

EDGE = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.int64(), False)])
TRIANGLES = (
    "SELECT x.a, y.a AS b, z.a AS c FROM e x JOIN e y ON y.a = x.b JOIN e z ON z.a = y.b "
    "AND z.b = x.a"
)
# Every part of the state is mapped.
NOTHING = 1


@pytest.fixture
def single_pages():
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    if not expect_single_pages(address, mmap.PAGESIZE):
        pytest.skip("the system does not map single pages")


def arrangements(sink):
    return [
        arrangement
        for trace in sink.circuit.graph.traces.values()
        for arrangement in trace.arrangements
    ]


def texts_of(sink):
    return sink.circuit.graph.registry.dictionaries["text"]


def mapped_text_bytes(sink):
    return texts_of(sink).nbytes - texts_of(sink).heap_bytes


def edge_sink(place, **options):
    circuit = compile_sql(TRIANGLES, {"e": EDGE}, materialize=True)
    return ViewSink(circuit, state_dir=place, **options)


def count_triangles(edges):
    found = Counter()
    for (a, b), w in edges.items():
        for (c, d), v in edges.items():
            if c == b:
                found[a, b, d] += w * v * edges.get((d, a), 0)
    return Counter({row: weight for row, weight in found.items() if weight})


def test_every_run_is_mapped_after_each_commit_under_the_least_limit(tmp_path):
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    for number in range(8):
        feed(sink, number)
        check(sink, number + 1)
        runs = [run for arrangement in arrangements(sink) for run in arrangement.spine.runs]
        assert runs and all(run.is_mapped for run in runs)
        metrics = sink.metrics[-1]
        strings = mapped_text_bytes(sink)
        assert metrics.mapped_bytes == sum(run.nbytes for run in runs) + strings
        texts = texts_of(sink)
        assert strings > 0 == texts.string_heap_bytes == texts.slot_heap_bytes
    sink.close()


def test_the_traces_of_new_views_are_mapped_while_they_are_computed_in_slices(tmp_path):
    def rows(first, end):
        return table_of(EDGE, [(n % 50, n) for n in range(first, end)], [1] * (end - first))

    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    sink(Frame(rows(0, 2000), "q"), 0)
    degrees = "CREATE VIEW degrees AS SELECT b, count(*) AS n FROM e GROUP BY b"
    changed = sink.add_view(degrees, change=ChangeOptions(rows_per_batch=300))
    number, mapped = 1, 0
    while not changed.done():
        sink(Frame(rows(2000 + number, 2001 + number), "q"), number)
        running, number = sink._changes._running, number + 1
        if running is None or running.early.manifest is None:
            continue
        spines = [a.spine for t in running.early.traces.values() for a in t.arrangements]
        runs = [run for spine in spines for run in spine.runs]
        # The runs that the last slice has added are still in memory.
        mapped = max(mapped, sum(run.rows for run in runs if run.is_mapped))
        assert sum(run.rows for run in runs if not run.is_mapped) <= 310
    assert mapped >= 1400
    sink.close()
    sink = ViewSink(stored_circuit(tmp_path), state_dir=tmp_path, memory_limit=NOTHING)
    sink(Frame(rows(5, 6), "q"), number)
    assert bag_of(sink.last.outputs["degrees"]) == {(5, 1): -1, (5, 2): 1}
    sink.close()


def test_a_cancelled_backfill_leaves_no_maps_of_its_traces(tmp_path):
    def feed_row(number):
        sink(Frame(table_of(EDGE, [(number, 3000 + number)], [1]), "q"), number)

    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    rows = [(n % 50, n) for n in range(2000)]
    sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), 0)
    degrees = "CREATE VIEW degrees AS SELECT b, count(*) AS n FROM e GROUP BY b"
    changed = sink.add_view(degrees, change=ChangeOptions(rows_per_batch=300))
    for number in (1, 2, 3):
        feed_row(number)
    early = sink._changes._running.early
    memory = sink._versions._memory
    files = set(early.manifest.files)
    assert files & memory._maps.keys()
    assert changed.cancel()
    feed_row(4)
    feed_row(5)
    assert not files & memory._maps.keys() and memory._early is None
    sink.close()


def test_a_file_whose_only_text_is_empty_is_mapped(tmp_path):
    circuit = compile_sql("SELECT t FROM r", {"r": "t STRING"}, materialize=True)
    sink = ViewSink(circuit, state_dir=tmp_path, memory_limit=NOTHING)
    text = pa.schema([pa.field("t", pa.string())])
    sink(Frame(table_of(text, [("",)], [1]), "q"), 0)
    assert bag_of(sink.circuit.views["view"]) == Counter({("",): 1})
    sink.close()


def test_all_state_stays_in_memory_below_the_limit(tmp_path):
    sink = sink_on(tmp_path, memory_limit="1 GB")
    feed(sink, *range(6))
    check(sink, 6)
    assert not any(run.is_mapped for a in arrangements(sink) for run in a.spine.runs)
    metrics = sink.metrics[-1]
    assert metrics.mapped_bytes == 0 < metrics.heap_bytes


def test_a_restart_continues_from_files_that_were_mapped(tmp_path):
    for first in range(0, 12, 3):
        sink = sink_on(tmp_path, memory_limit=NOTHING)
        feed(sink, *range(first, first + 3))
        check(sink, first + 3)
        sink.close()


EDGES = st.tuples(st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.dictionaries(EDGES, st.sampled_from([-1, 1, 2]), max_size=6), max_size=7))
def test_views_over_mapped_runs_equal_recomputation(steps, tmp_path_factory):
    sink = edge_sink(tmp_path_factory.mktemp("state"), memory_limit=NOTHING)
    total = Counter()
    for number, step in enumerate([{(0, 1): 1, (1, 2): 1, (2, 0): 1}, *steps]):
        rows, weights = list(step), list(step.values())
        sink(Frame(table_of(EDGE, rows, weights), "q"), number)
        for row, weight in step.items():
            total[row] += weight
        assert not any(
            run.rows and not run.is_mapped for a in arrangements(sink) for run in a.spine.runs
        )
        (view,) = sink.circuit.outputs
        assert bag_of(sink.table(view)) == count_triangles(total)
    sink.close()


TEXTS = "SELECT x.k, y.v, y.n FROM r x JOIN r y ON x.v = y.k"
TEXT = pa.schema([("k", pa.string()), ("v", pa.string()), ("n", pa.int64())])
KEYS = st.integers(0, 30).map(lambda n: f"key {n} " + "x" * (n % 7))
TEXT_STEPS = st.one_of(
    st.just("restart"), st.sets(st.tuples(KEYS, KEYS, st.integers(0, 1)), max_size=12)
)


def text_sink(place, **options):
    circuit = compile_sql(TEXTS, {"r": TEXT}, materialize=True)
    return ViewSink(circuit, state_dir=place, **options)


def join_texts(live):
    return Counter((k, w, n) for k, v, _ in live for other, w, n in live if other == v)


@contextmanager
def busy_sweeps_and_merges():
    """Remove unused strings after each commit, and merge stored parts in the background."""
    with (
        patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)),
        patch.object(writer, "MAX_MERGED_BYTES", 1),
        patch.object(writer, "MAX_GROWTH_AT_ONCE", 0),
        patch.object(dictionary_sweep, "MIN_NEW_VALUES", 0),
        patch.object(dictionary_sweep, "MAX_NEW_SHARE", 0),
        patch.object(dictionary_sweep, "MIN_WORK", 20),
        patch.object(sweep, "_MIN_REMOVED_SHARE", 10**9),
        patch.object(string_parts, "STRINGS_PER_SLICE", 3),
    ):
        yield


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(TEXT_STEPS, max_size=10))
def test_dictionaries_in_files_and_in_memory_give_the_same_views(steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    limits = {"mapped": NOTHING, "memory": None}
    sinks = {name: text_sink(folder / name, memory_limit=limits[name]) for name in limits}
    live, number = set(), 0
    with busy_sweeps_and_merges():
        for step in steps:
            if step == "restart":
                for name, sink in sinks.items():
                    sink.close()
                    sinks[name] = text_sink(folder / name, memory_limit=limits[name])
                continue
            rows = sorted(step)  # those that are live are deleted, the others are inserted
            weights = [-1 if row in live else 1 for row in rows]
            live ^= step
            for sink in sinks.values():
                sink(Frame(table_of(TEXT, rows, weights), "q"), number)
                (view,) = sink.circuit.outputs
                assert bag_of(sink.table(view)) == join_texts(live)
            number += 1
            texts = texts_of(sinks["mapped"])
            assert not texts.string_count or texts.string_heap_bytes == 0
    for sink in sinks.values():
        sink.close()


TEXT_ROWS = [(f"key {n}", f"key {n + 1}", n) for n in range(200)]


@pytest.fixture
def written_texts(tmp_path):
    with closing(text_sink(tmp_path, memory_limit=NOTHING)) as sink:
        for number in range(4):
            rows = TEXT_ROWS[50 * number : 50 * number + 50]
            sink(Frame(table_of(TEXT, rows, [1] * 50), "q"), number)
    return tmp_path


def test_a_restart_loads_dictionaries_into_files_a_slice_at_a_time(written_texts):
    files = ReadFiles(written_texts)
    lengths = []

    def load(dictionary, parts, next_code=0):
        lengths.extend(len(part.codes) for part in parts)
        assert dictionary.string_heap_bytes == dictionary.slot_heap_bytes == 0
        original(dictionary, parts, next_code)

    original = Interner.load
    with (
        patch.object(string_parts, "STRINGS_PER_SLICE", 32),
        patch.object(Interner, "load", load),
        closing(text_sink(files, memory_limit=NOTHING)) as sink,
    ):
        replayed_rows = table_of(TEXT, TEXT_ROWS[150:], [1] * 50)
        sink(Frame(replayed_rows, "q"), 3)  # so nothing is committed
        assert sum(lengths) == 201 + 200 and max(lengths) == 32  # strings, and pairs of v and n
        (view,) = sink.circuit.outputs
        assert bag_of(sink.table(view)) == join_texts(TEXT_ROWS)


def test_a_disk_without_space_for_dictionaries_leaves_them_in_memory(tmp_path, caplog):
    sink, live = text_sink(tmp_path, memory_limit=NOTHING), []
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/scratch")
    for number in range(12):
        is_full = 2 <= number < 8
        rows = [(f"key {n}", f"key {n + 1}", n) for n in range(40 * number, 40 * number + 40)]
        scratch = Mock(side_effect=error) if is_full else LocalFiles.scratch
        with patch.object(LocalFiles, "scratch", scratch):
            sink(Frame(table_of(TEXT, rows, [1] * len(rows)), "q"), number)
        live += rows
        (view,) = sink.circuit.outputs
        assert bag_of(sink.table(view)) == join_texts(live)
        # The larger arrays of the steps on the full disk are in memory, until there is space again.
        assert (texts_of(sink).string_heap_bytes > 0) == is_full
    warnings = [r for r in caplog.records if "[Errno 28] No space left on device" in r.message]
    assert 1 <= len(warnings) <= 7, "once for each step"
    sink.close()


@pytest.mark.parametrize("damage", ["changed", "cut short"])
def test_a_damaged_file_of_a_dictionary_is_named_before_it_is_used(written_texts, damage):
    manifest = read_manifest(LocalFiles(written_texts), 3)
    references = manifest.dictionaries["text"]
    path = written_texts / max(references, key=lambda part: part.size).file
    data = bytearray(path.read_bytes())
    if damage == "changed":
        data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "changed" else data[:-8])
    with (
        closing(text_sink(written_texts, memory_limit=NOTHING)) as sink,
        pytest.raises(StateDamagedError, match=path.name),
    ):
        sink(Frame(table_of(TEXT, [], []), "q"), 4)


def test_strings_of_large_dictionaries_are_moved_first_and_hash_tables_if_that_is_not_enough():
    memory = DictionaryMemory(LocalFiles("."), min_bytes=10)
    sizes = {
        "a": DictionarySize(strings=100, slots=50),
        "b": DictionarySize(strings=200, slots=40),
        "c": DictionarySize(strings=9, slots=9),
    }

    def chosen(excess):
        return {
            name: "".join(field[1] for field in ("strings", "slots") if getattr(arrays, field))
            for name, arrays in memory.choose(sizes, excess).items()
        }

    assert chosen(0) == chosen(-5) == {}
    assert chosen(200) == {"b": "t"}
    assert chosen(201) == chosen(300) == {"b": "t", "a": "t"}
    assert chosen(301) == chosen(350) == {"b": "t", "a": "tl"}
    assert chosen(351) == chosen(10**6) == {"b": "tl", "a": "tl"}


def test_merged_files_are_mapped_in_place_of_their_parts(tmp_path):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    random = np.random.default_rng(0)
    for number in range(40):
        rows = [tuple(row) for row in random.integers(0, 1000, (50, 2)).tolist()]
        sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
    # A level has fewer than 8 parts, so about 2,000 rows have at most 7 parts in each of 4 levels.
    assert all(len(arrangement.spine.runs) <= 28 for arrangement in arrangements(sink))
    mapped = mapped_files(tmp_path / "data")
    assert mapped
    assert not any(name.endswith("(deleted)") for name in mapped), "its space is not free"
    sink.close()


def mapped_files(folder):
    """Return the files of a folder that this process maps, as the system names them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[-1] for line in lines if str(folder) in line}


def test_rows_that_cancel_do_not_stay_in_mapped_runs(tmp_path):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    with (
        patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)),
        patch.object(compaction, "MIN_REMOVED_ROWS", 100),
    ):
        live = 200
        for number in range(80):  # each step inserts the rows that the next one deletes
            new = [(row, number) for row in range(live)]
            old = [(row, number - 1) for row in range(live)] if number else []
            weights = [1] * len(new) + [-1] * len(old)
            sink(Frame(table_of(EDGE, [*new, *old], weights), "q"), number)
            stored = [a.spine.rows for a in arrangements(sink)]
            # A step adds twice the live rows to each of three arrangements. One of them at a time
            # is written again, so each has what up to three steps have added.
            assert max(stored) <= 8 * live
    sink.close()


SUMS = "SELECT k, sum(a) AS a, sum(b) AS b FROM r GROUP BY k"
NUMBERS = pa.schema([pa.field(name, pa.int64(), False) for name in "kab"])


def test_a_state_with_negative_weights_is_not_written_again_and_again(tmp_path):
    circuit = compile_sql(SUMS, {"r": NUMBERS})
    files = LocalFiles(tmp_path)
    with (
        closing(ViewSink(circuit, state_dir=files, memory_limit=NOTHING)) as sink,
        patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)),
        patch.object(compaction, "MIN_REMOVED_ROWS", 100),
    ):
        names = []
        for number in range(20):
            keys = range(1000) if number == 0 else [number]
            rows = [(key, 1, -1) for key in keys]
            sink(Frame(table_of(NUMBERS, rows, [1] * len(rows)), "q"), number)
            (state,) = [
                parts
                for orders in read_manifest(files, number).traces.values()
                for parts in orders.values()
                if sum(part.rows for part in parts) > 2000
            ]
            names.append(max(state, key=lambda part: part.rows).file)
        # The sums of a and b cancel each other, so the sum of all weights is a third of the rows.
        (arrangement,) = [a for a in arrangements(sink) if a.spine.rows > 2000]
        assert sum(run.total_weight for run in arrangement.spine.runs) == 1019
        assert len(set(names)) == 1


def test_the_sum_of_weights_limits_no_rows_if_it_may_have_wrapped(tmp_path):
    circuit = compile_sql("SELECT a, b FROM e", {"e": EDGE}, materialize=True)
    with closing(ViewSink(circuit, state_dir=tmp_path)) as sink:
        rows = [(row, row) for row in range(4)]
        weights = [2**62, 2**62, 2**62, 2**62 + 1]  # 1 in all, modulo 2**64
        sink(Frame(table_of(EDGE, rows, weights), "q"), 0)
        limit = MemoryLimit(LocalFiles(tmp_path), sink.circuit, NOTHING)
        limit.after_commit(read_manifest(LocalFiles(tmp_path), 0))
        rows = {name: trace.rows for name, trace in sink.circuit.graph.traces.items()}
        assert limit.live_rows(rows) == rows
        assert limit.live_rows({}) == {}


def resident_bytes(folder):
    """Return the bytes of the mapped files of a folder that are in the memory of this process."""
    total, is_in_folder = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_in_folder = str(folder) in line
        elif is_in_folder and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_a_step_touches_no_rows_of_mapped_runs_outside_of_its_range_of_values(
    tmp_path, monkeypatch
):
    # The thread that removes pages never runs: it could remove those that are counted below.
    monkeypatch.setattr(resident_pages, "CHECK_INTERVAL_S", 1e6)
    # The runs are not merged with each other.
    monkeypatch.setattr(compaction, "MIN_LARGE_PART_BYTES", 1 << 60)
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    random = np.random.default_rng(0)
    count = 200_000
    for number in range(3):  # each run has a range of values of its own
        low = number * 10**6
        rows = random.integers(low, low + count, (2, count))
        table = pa.table({"a": rows[0], "b": rows[1], "weight": np.ones(count, np.int64)})
        sink(Frame(table, "q"), number)
    mapped = sink.metrics[-1].mapped_bytes
    assert mapped > 10**7

    def touched_by(values, number):
        sink._versions._memory.release_pages()
        assert resident_bytes(tmp_path) == 0
        rows = random.choice(values, (2, 2000))
        table = pa.table({"a": rows[0], "b": rows[1], "weight": np.ones(2000, np.int64)})
        with patch.object(MemoryLimit, "after_commit", lambda *args: None):
            sink(Frame(table, "q"), number)
            return resident_bytes(tmp_path)

    # The header of a run has the least and the greatest value of its first column. The system maps
    # some pages around each page that is read.
    outside = touched_by(np.arange(5 * 10**6, 5 * 10**6 + 1000), 3)
    assert outside < mapped // 20
    assert touched_by(np.arange(count), 4) > 4 * outside
    sink.close()


@pytest.mark.usefixtures("single_pages")
def test_a_step_makes_at_most_three_pages_resident_for_each_look_up(tmp_path, monkeypatch):
    monkeypatch.setattr(resident_pages, "CHECK_INTERVAL_S", 1e6)
    monkeypatch.setattr(compaction, "MIN_LARGE_PART_BYTES", 1 << 60)
    sink = edge_sink(tmp_path, memory_limit=1 << 23)
    random = np.random.default_rng(1)
    count, rows = 200_000, 20

    def step(count, number):
        columns = random.integers(0, 50_000, (2, count))
        table = pa.table({"a": columns[0], "b": columns[1], "weight": np.ones(count, np.int64)})
        sink(Frame(table, "q"), number)

    step(count, 0)
    for number in range(1, 4):  # they read few pages, so the next one reads single pages
        step(rows, number)
    runs = [run for arrangement in arrangements(sink) for run in arrangement.spine.runs]
    sink._versions._memory.release_pages()
    with patch.object(MemoryLimit, "after_commit", lambda *args: None):
        step(rows, 4)
        touched = resident_bytes(tmp_path) // mmap.PAGESIZE
    # Each of three terms of the join, and the strict check, looks up two values of each row. The
    # pages of one look-up: of the values, the offsets, and the rows; the directory is in memory.
    mapped = [run for run in runs if run.is_mapped]
    assert len(mapped) >= 2 and all(run.index is not None for run in mapped)
    assert touched <= 3 * 2 * 4 * rows + len(mapped)
    assert sum(run.nbytes for run in mapped) // mmap.PAGESIZE > 4 * touched
    sink.close()


def test_the_index_of_each_mapped_part_is_built_once_and_again_after_a_restart(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(compaction, "MIN_LARGE_PART_BYTES", 1 << 60)
    indexed: list[Run] = []

    def with_index(run, *arguments):
        indexed.append(run)
        return original(run, *arguments)

    original = Run.with_index
    monkeypatch.setattr(Run, "with_index", with_index)
    random = np.random.default_rng(2)
    read = 0
    for number in range(6):
        if number % 3 == 0:
            indexed.clear()
            sink = edge_sink(tmp_path, memory_limit=NOTHING)
        columns = random.integers(0, 5000, (2, 1000))
        table = pa.table({"a": columns[0], "b": columns[1], "weight": np.ones(1000, np.int64)})
        sink(Frame(table, "q"), number)
        mapped = [run for a in arrangements(sink) for run in a.spine.runs if run.arity == 2]
        assert all(run.index is not None for run in mapped)
        read += len(mapped)
        if number % 3 == 2:
            sink.close()
    # The lists keep the runs, so no two of them have the same address.
    assert len(indexed) == len({run.address for run in indexed}) < read


@pytest.mark.parametrize("limit", [1 << 13, 1 << 16, 1 << 19])
def test_indexes_in_memory_have_a_small_share_of_the_limit_and_of_their_runs(tmp_path, limit):
    sink = edge_sink(tmp_path, memory_limit=limit)
    columns = np.random.default_rng(3).integers(0, 20_000, (2, 20_000))
    table = pa.table({"a": columns[0], "b": columns[1], "weight": np.ones(20_000, np.int64)})
    sink(Frame(table, "q"), 0)
    runs = [run for a in arrangements(sink) for run in a.spine.runs if run.index is not None]
    assert len(runs) >= 2
    header_bytes = sum(8 * run.index[run_layout.DIRECTORY] for run in runs)
    index_bytes = sum(run.index.nbytes for run in runs) - header_bytes
    mapped_bytes = sum(run.nbytes for run in runs)
    least = mapped_bytes // MAX_INDEX_DIVISOR
    most = min(max(limit // INDEX_LIMIT_DIVISOR, least), mapped_bytes // MIN_INDEX_DIVISOR)
    assert most / 4 < index_bytes <= most
    sink.close()


def test_resident_pages_leave_room_for_the_state_in_memory_and_for_freed_memory(
    tmp_path, monkeypatch
):
    limits: list[int] = []
    monkeypatch.setattr(
        resident_pages.ResidentPages, "after_commit", lambda pages, limit: limits.append(limit)
    )
    limit = 1 << 19
    sink = edge_sink(tmp_path, memory_limit=limit)
    random = np.random.default_rng(4)
    least = limit * MIN_PAGE_SHARE
    for number in range(30):
        columns = random.integers(0, 2000, (2, 700))
        table = pa.table({"a": columns[0], "b": columns[1], "weight": np.ones(700, np.int64)})
        sink(Frame(table, "q"), number)
        rest = limit * (1 - MAX_SPARE_SHARE) - sink.metrics[-1].heap_bytes
        assert limits.pop() == pytest.approx(max(rest, least), abs=1)
    sink.close()


def test_a_mapped_file_that_was_cut_short_is_named_before_it_is_read(tmp_path):
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    feed(sink, *range(4))
    contents = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    for path, data in contents.items():
        os.truncate(path, len(data) // 2)
    with pytest.raises(StateDamagedError, match="bytes, it was written with"):
        feed(sink, 4)
    for path, data in contents.items():  # as from a backup
        path.unlink()
        path.write_bytes(data)
    feed(sink, 4)
    check(sink, 5)
    sink.close()


class ReadFiles(LocalFiles):
    """Files that record which of them are read as a whole."""

    def __init__(self, location):
        super().__init__(location)
        self.read_names = []

    def read(self, name):
        self.read_names.append(name)
        return super().read(name)

    def checksum(self, name):
        self.read_names.append(name)
        return super().checksum(name)


EDGE_ROWS = [[(1, 2), (2, 3), (3, 1)], [(3, 4), (4, 5), (5, 3)], [(1, 4), (4, 9), (9, 1)]]


@pytest.fixture
def written_state(tmp_path):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    for number, rows in enumerate(EDGE_ROWS):
        sink(Frame(table_of(EDGE, rows, [1, 1, 1]), "q"), number)
    sink.close()
    return tmp_path


@contextmanager
def replayed(place, polls):
    """Open the state for the last micro-batch, which is committed; yield the files and the sink."""
    files = ReadFiles(place)
    with patch.object(compaction, "start_thread", lambda run: PolledThread(run, polls)):
        sink = edge_sink(files, memory_limit=NOTHING)
        sink(Frame(table_of(EDGE, EDGE_ROWS[2], [1, 1, 1]), "q"), 2)
        yield files, sink
        sink.close()


NEVER = 10**6  # polls after which a background thread runs, unless somebody waits for it


def test_a_restart_reads_no_large_file_before_its_first_commit(written_state):
    with replayed(written_state, NEVER) as (files, sink):
        (view,) = sink.circuit.outputs
        assert sum(bag_of(sink.table(view)).values()) == 9
        assert [name for name in files.read_names if name.startswith("data/")] == []
        sink(Frame(table_of(EDGE, [(7, 7)], [1]), "q"), 3)
        assert any(name.startswith("data/") for name in files.read_names), "not verified"


def test_damage_that_the_system_does_not_report_is_found_before_the_first_commit(written_state):
    with replayed(written_state, NEVER) as (_, sink):
        for path in (written_state / "data").iterdir():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        with pytest.raises(StateDamagedError, match="has the checksum"):
            sink(Frame(table_of(EDGE, [(7, 7)], [1]), "q"), 3)
        # Nothing is trusted any more, so the next attempt verifies all files before it uses them.
        with pytest.raises(StateDamagedError, match="has the checksum"):
            sink(Frame(table_of(EDGE, [(7, 7)], [1]), "q"), 3)


def test_a_disk_that_fails_during_the_verification_fails_the_commit_by_name(written_state):
    with replayed(written_state, NEVER) as (files, sink):
        error = OSError(errno.EIO, os.strerror(errno.EIO), "data/a")
        with (
            patch.object(files, "checksum", Mock(side_effect=error)),
            pytest.raises(StateError, match=r"cannot be read: .*Input/output error"),
        ):
            sink(Frame(table_of(EDGE, [(7, 7)], [1]), "q"), 3)
        sink(Frame(table_of(EDGE, [(7, 7)], [1]), "q"), 3)  # the disk works again
        (view,) = sink.circuit.outputs
        assert sum(bag_of(sink.table(view)).values()) == 10


def test_a_merge_for_which_the_disk_is_full_fails_no_step_and_is_tried_again(tmp_path, caplog):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/scratch")
    random, total = np.random.default_rng(0), Counter()
    with (
        patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)),
        patch.object(compaction, "STEPS_AFTER_FAILURE", 1),
        patch.object(writer, "MAX_MERGED_BYTES", 1),
        patch.object(writer, "MAX_GROWTH_AT_ONCE", 0),
        patch.object(LocalFiles, "scratch", Mock(side_effect=error)),
    ):
        for number in range(12):
            rows = [tuple(row) for row in random.integers(0, 30, (20, 2)).tolist()]
            sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
            total.update(rows)
    assert "were not merged: [Errno 28] No space left on device" in caplog.text
    (view,) = sink.circuit.outputs
    assert bag_of(sink.table(view)) == count_triangles(total)
    sink.close()


@pytest.mark.parametrize("record", ["as it is", "missing", "damaged"])
def test_a_changed_file_is_verified_before_it_is_used(written_state, record):
    for path in (written_state / "data").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    if record == "missing":
        (written_state / "verified.json").unlink()
    elif record == "damaged":
        (written_state / "verified.json").write_text("{}")
    with pytest.raises(StateDamagedError, match="has the checksum"), replayed(written_state, NEVER):
        pass


def test_a_disk_that_fails_while_files_are_mapped_is_named_and_can_recover(tmp_path):
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    feed(sink, *range(4))
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    with (
        patch.object(MappedFile, "check", Mock(side_effect=error)),
        pytest.raises(StateError, match=r"cannot be read: .*Input/output error"),
    ):
        feed(sink, 4)
    feed(sink, 4)
    check(sink, 5)
    sink.close()


@pytest.mark.parametrize("call", ["map", "checksum", "scratch"])
def test_an_error_of_the_disk_during_a_merge_fails_no_step(tmp_path, call, caplog):
    sink = edge_sink(tmp_path, memory_limit=NOTHING)
    error = OSError(errno.EIO, os.strerror(errno.EIO), "data/a")
    random, total, number = np.random.default_rng(0), Counter(), 0

    def add_rows():
        nonlocal number
        rows = [tuple(row) for row in random.integers(0, 30, (20, 2)).tolist()]
        sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
        total.update(rows)
        number += 1

    def run_with_fault(function):
        with patch.object(LocalFiles, call, Mock(side_effect=error)):
            function()

    with (
        patch.object(compaction, "STEPS_AFTER_FAILURE", 1),
        patch.object(writer, "MAX_MERGED_BYTES", 1),
        patch.object(writer, "MAX_GROWTH_AT_ONCE", 0),
    ):
        with patch.object(
            compaction, "start_thread", lambda run: PolledThread(partial(run_with_fault, run), 0)
        ):
            for _ in range(12):
                add_rows()
        assert "were not merged: [Errno 5] Input/output error" in caplog.text
        with patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)):
            for _ in range(12):
                add_rows()
    assert all(len(arrangement.spine.runs) <= 14 for arrangement in arrangements(sink))
    (view,) = sink.circuit.outputs
    assert bag_of(sink.table(view)) == count_triangles(total)
    sink.close()


def test_a_file_of_another_size_is_not_mapped(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"12345678")
    files = LocalFiles(tmp_path)
    assert files.map("data/a", 8).memory.tobytes() == b"12345678"
    with pytest.raises(StateDamagedError, match="8 bytes, it was written with 9"):
        files.map("data/a", 9)


def test_a_map_stays_readable_after_its_file_is_removed(tmp_path):
    (tmp_path / "a").write_bytes(b"12345678")
    memory = LocalFiles(tmp_path).map("a", 8).memory
    (tmp_path / "a").unlink()
    assert memory.tobytes() == b"12345678"


def test_a_merge_in_files_gives_the_same_file_as_one_in_memory(tmp_path):
    random = np.random.default_rng(3)
    files = LocalFiles(tmp_path)
    (tmp_path / "data").mkdir()
    for rows in (3, 40_000):
        zsets = [
            ZSet.from_columns(random.integers(0, rows, (2, rows)), random.choice([-1, 1, 2], rows))
            for _ in range(5)
        ]
        runs = [Run.of(zset, np.arange(2)) for zset in zsets]
        slices = Mock()
        merge = FileMerge(files, "data", PartReader(files, {}), 1000, slices)
        in_files = Run.sum_of(runs, merge.merge)
        in_memory = Run.sum_of(runs)
        chunks = merge.encode("e [0,1]", in_files)
        assert slices.call_count >= rows // 1000
        expected = b"".join(encode_segment([SegmentPart("e [0,1]", in_memory.to_words())]))
        assert b"".join(chunks) == b"".join(chunks) == expected
    assert list((tmp_path / "data").iterdir()) == []  # scratch files have no names


def test_space_for_a_merge_that_the_disk_does_not_have_is_an_error_before_it_is_written(tmp_path):
    with pytest.raises(OSError, match=r"(?i)space|large"):
        LocalFiles(tmp_path).scratch("", 1 << 56)
    assert list(tmp_path.iterdir()) == []


def test_runs_stay_in_memory_if_files_cannot_be_mapped(tmp_path, monkeypatch, caplog):
    def refuse(self, name, size):
        raise OSError(24, "Too many open files", name)

    monkeypatch.setattr(LocalFiles, "map", refuse)
    sink = sink_on(tmp_path, memory_limit=NOTHING)
    feed(sink, *range(4))
    check(sink, 4)
    assert "Too many open files" in caplog.text
    sink.close()


def test_dictionaries_are_moved_instead_of_runs_whose_files_cannot_be_mapped(tmp_path, monkeypatch):
    asked = []
    choose = DictionaryMemory.choose

    def note(self, sizes, excess):
        asked.append(excess)
        return choose(self, sizes, excess)

    def refuse(self, name, size):
        raise OSError(24, "Too many open files", name)

    with closing(sink_on(tmp_path)) as sink:
        feed(sink, *range(6))
        dictionaries = sink.circuit.graph.registry.dictionaries.values()
        heap_bytes = sum(a.spine.heap_bytes for a in arrangements(sink))
        heap_bytes += sum(sum(DictionarySize.of(entry)) for entry in dictionaries)
        monkeypatch.setattr(DictionaryMemory, "choose", note)
        monkeypatch.setattr(LocalFiles, "map", refuse)
        limit = MemoryLimit(LocalFiles(tmp_path), sink.circuit, 1)
        limit.after_commit(read_manifest(LocalFiles(tmp_path), 5))
        assert asked == [heap_bytes - MAX_HEAP_SHARE_AFTER_REPLACEMENT]


def test_the_runs_of_an_arrangement_without_files_are_not_replaced(tmp_path):
    with closing(sink_on(tmp_path)) as sink:
        feed(sink, *range(6))
        circuit = Mock(wraps=sink.circuit, graph=sink.circuit.graph)
        limit = MemoryLimit(LocalFiles(tmp_path), circuit, NOTHING)
        manifest = read_manifest(LocalFiles(tmp_path), 5)
        limit.after_commit(replace(manifest, traces={}))
        circuit.replace_runs.assert_not_called()
        assert limit.use.heap_bytes > 2 * NOTHING
        limit.after_commit(manifest)
        circuit.replace_runs.assert_called_once()


@pytest.mark.parametrize("limit", [0, -1, "much", 1.5, True, "0"])
def test_a_limit_that_is_not_a_size_is_refused(tmp_path, limit):
    with pytest.raises(StateError, match="memory_limit="):
        sink_on(tmp_path, memory_limit=limit)


def test_a_limit_needs_files_on_a_local_disk():
    with pytest.raises(StateError, match="state_dir"):
        sink_on(None, memory_limit="1 GB")
    with pytest.raises(StateError, match="local disk"):
        sink_on("mock://bucket/state", memory_limit="1 GB")


def test_other_views_start_from_maps_of_the_state(written_state):
    files = ReadFiles(written_state)
    paths = "CREATE VIEW paths AS SELECT x.a, y.b FROM e x JOIN e y ON y.a = x.b;"
    circuit = compile_sql(f"CREATE VIEW q AS {TRIANGLES}; {paths}", {"e": EDGE}, materialize=True)
    options = ChangeOptions(renames={"q": "view"})
    with patch.object(compaction, "start_thread", lambda run: PolledThread(run, NEVER)):
        sink = ViewSink(circuit, state_dir=files, memory_limit=NOTHING, change=options)
        sink(Frame(table_of(EDGE, EDGE_ROWS[2], [1, 1, 1]), "q"), 2)  # it is committed
        assert [name for name in files.read_names if name.startswith("data/")] == []
        sink(Frame(table_of(EDGE, [(9, 2)], [1]), "q"), 3)
    edges = Counter([*(row for rows in EDGE_ROWS for row in rows), (9, 2)])
    with patch.object(compaction, "start_thread", lambda run: PolledThread(run, 0)):
        for number in range(4, 10):  # the files of earlier versions are removed
            sink(Frame(table_of(EDGE, [(number, 2)], [1]), "q"), number)
            edges[number, 2] += 1
    assert bag_of(sink.table("q")) == count_triangles(edges)
    ends = list(edges.elements())
    assert bag_of(sink.table("paths")) == Counter(
        (a, d) for a, b in ends for c, d in ends if b == c
    )
    runs = [run for arrangement in arrangements(sink) for run in arrangement.spine.runs]
    assert all(run.is_mapped for run in runs if run.rows)
    assert not any(name.endswith("(deleted)") for name in mapped_files(written_state))
    sink.close()


def test_maps_of_files_of_other_arrangements_are_replaced(tmp_path):
    with closing(sink_on(tmp_path, memory_limit=NOTHING)) as sink:
        feed(sink, *range(6))
        circuit = Mock(wraps=sink.circuit, graph=sink.circuit.graph)
        files = LocalFiles(tmp_path)
        limit = MemoryLimit(files, circuit, 1 << 40)  # it does not know the mapped files
        limit.after_commit(read_manifest(files, 5))
        limit.after_commit(read_manifest(files, 5))
        circuit.replace_runs.assert_called_once()


def test_other_views_start_from_maps_of_dictionaries(tmp_path):
    with closing(sink_on(tmp_path, memory_limit=NOTHING)) as sink:
        feed(sink, *range(6))
    more = VIEWS + "CREATE VIEW names AS SELECT DISTINCT city FROM link;"
    circuit = compile_sql(more, {"link": LINK}, materialize=True)
    with closing(ViewSink(circuit, state_dir=tmp_path, memory_limit=NOTHING)) as sink:
        feed(sink, *range(6, 12))
        for view, bag in expected(12).items():
            assert bag_of(sink.table(view)) == bag
        cities = {city for batch in ROWS for *_, city in batch}
        assert bag_of(sink.table("names")) == Counter((city,) for city in cities)
