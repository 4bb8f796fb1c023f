"""Spines: their rows, the number of their runs, and the largest work of one append.

The work of an append is measured at the two calls of the merge kernels: rows that are merged at
once, and rows that an open merge writes in one call.
"""

from __future__ import annotations

import itertools
import math
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.storage import merge as merge_kernels
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage import spine as spine_kernels
from dbsp_wcoj.kernels.storage.spine import MAX_RUNS, RUN_COUNT, TAIL_ROWS, fuel_of
from dbsp_wcoj.storage import arena as arena_module
from dbsp_wcoj.storage import run as run_module
from dbsp_wcoj.storage import small_pages
from dbsp_wcoj.storage import spine as spine_module
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.spine import (
    GROWTH_FACTOR,
    MAX_UNREAD_RUNS,
    MIN_FUEL_AT_ONCE,
    MIN_FUEL_OF_TAIL,
    SMALL_MERGE_ROWS,
    SPLICED_ROWS_PER_FUEL,
    Spine,
)
from dbsp_wcoj.storage.trace import Trace, build_run
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add
from tests.support.interrupts import InterruptedAfter

ORDER = np.array([1, 0])
ORDER_OF_TAIL = np.array([0, 1])


def build(delta: dict) -> Run:
    return Run.of(zset(delta, arity=2), ORDER)


def read(spine: Spine) -> dict:
    """Return the weights of all rows, whose columns are in the relation's order."""
    rows_by_run = []
    for run in spine.runs:
        columns, weights = run.read()
        rows = list(zip(*columns.tolist(), strict=True))
        assert rows == sorted(set(rows))
        assert len(rows) == run.rows > 0
        assert np.abs(weights).max() == run.max_abs_weight
        rows_by_run.append({(b, a): w for (a, b), w in zip(rows, weights.tolist(), strict=True)})
    return add(*rows_by_run)


def check_sizes(spine: Spine, appended_rows: int) -> None:
    """Assert that there are few runs, of falling size if no merge is open."""
    spine._check()
    runs = spine.runs
    levels = math.log(max(appended_rows, 2), GROWTH_FACTOR)
    assert len(runs) <= 2 * levels + 2 * len(spine._merges) + 3
    if not spine._merges:
        for older, newer in itertools.pairwise(runs):
            assert newer.rows * GROWTH_FACTOR < older.rows
            assert newer.rows + older.rows > SMALL_MERGE_ROWS


@LAW
@given(st.data())
def test_a_spine_has_the_sum_of_the_appended_runs(data):
    spine, total = Spine(), {}
    domain = data.draw(st.sampled_from(DOMAINS))
    for delta in data.draw(st.lists(relation_deltas(2, domain), max_size=15)):
        if data.draw(st.integers(0, 5)) == 0:
            delta = {row: -weight for row, weight in total.items()}
        if delta:
            spine.append(build(delta))
            total = add(total, delta)
        if data.draw(st.integers(0, 9)) == 0:
            spine.compact()
            assert len(spine.runs) == bool(total)
        spine._check()
        assert read(spine) == total
    assert spine.is_empty == (not spine.runs)
    assert spine.rows == sum(run.rows for run in spine.runs) >= len(total)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_stream_of_all_sizes_keeps_its_rows_and_few_runs(seed):
    """Inserts and deletes of 1 to 12,000 rows, read while merges are open."""
    rng = np.random.default_rng(seed)
    spine, total, appended, open_merges = Spine(), {}, 0, 0
    nodes = (150, 3_000, 1 << 60)[seed]
    for number in range(120):
        size = (12_000, 1_400)[number] if number < 2 else int(10 ** rng.uniform(0, 2.2))
        rows = map(tuple, rng.integers(-nodes, nodes, (size, 2)).tolist())
        delta = dict.fromkeys(rows, 1 if number % 4 else 2)
        if number % 3 == 2:
            deleted = list(total)[: 10 * size : 10]
            delta = {row: -total[row] for row in deleted}
        if not delta:
            continue
        spine.append(build(delta))
        total = add(total, delta)
        appended += len(delta)
        open_merges += bool(spine._merges)
        spine._check()
        max_runs = 2 * math.log(appended, GROWTH_FACTOR) + 2 * len(spine._merges) + 3
        assert len(spine.runs) <= max_runs
        if number % 8 == 0 or (spine._merges and number % 5 == 1):
            assert read(spine) == total
    assert open_merges > 3, "no merge took more than one step; make the stream longer"
    assert read(spine) == total
    spine.compact()
    assert len(spine.runs) == 1
    assert not spine._merges
    assert spine.rows == len(total)
    assert read(spine) == total


def distinct_rows(start: int, rows: int, weight: int = 1) -> ZSet:
    """Return the rows number ``start`` and following, spread over the range of values."""
    keys = (np.arange(start, start + rows) * 0x9E3779B1) % (1 << 31)
    return ZSet.from_columns([keys, keys % 1_009], np.full(rows, weight))


def distinct_run(start: int, rows: int, weight: int = 1) -> Run:
    """Return the run of `distinct_rows`."""
    return Run.of(distinct_rows(start, rows, weight), ORDER)


@pytest.mark.parametrize("size", [1, 7, 100, 3_000])
def test_sizes_fall_geometrically_in_a_stream_of_insertions(size):
    spine = Spine()
    for number in range(400):
        spine.append(distinct_run(size * number, size))
        check_sizes(spine, size * (number + 1))
    assert spine.rows == 400 * size


class MergeCounter:
    """Counts the work of merges.

    Attributes:
        rows: The rows that merges have written.
        fuel: The fuel that they were given, or that the merges at once took.
        largest: The rows of the largest merge in parts.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        self.fuel = 0
        self.largest = 0
        merge_at_once, merge_part = Run.merged, Merge.work

        def merged(older: Run, newer: Run) -> Run:
            self.rows += older.rows + newer.rows
            rows_per_fuel = SPLICED_ROWS_PER_FUEL if older.can_be_spliced(newer) else 1
            self.fuel += -(-(older.rows + newer.rows) // rows_per_fuel)
            return merge_at_once(older, newer)

        def work(merge: Merge, fuel: int = 2**62) -> Run | None:
            earlier_rows = count_written_rows(merge)
            result = merge_part(merge, fuel)
            self.rows += count_written_rows(merge) - earlier_rows
            self.fuel += min(fuel, merge.older.rows + merge.newer.rows)
            self.largest = max(self.largest, merge.older.rows + merge.newer.rows)
            return result

        monkeypatch.setattr(spine_module.Run, "merged", staticmethod(merged))
        monkeypatch.setattr(spine_module.Merge, "work", work)

    def take(self) -> tuple[int, int]:
        """Return the rows and the fuel since the last call."""
        counts = self.rows, self.fuel
        self.rows = self.fuel = 0
        return counts


def count_written_rows(merge: Merge) -> int:
    """Count the rows that an open merge has written so far."""
    return int(merge._state[merge_kernels.CURSORS + merge_kernels.CURSOR_WORDS + 4])


def test_no_append_of_one_row_does_the_work_of_a_large_merge(monkeypatch):
    work = MergeCounter(monkeypatch)
    spine = Spine()
    rows = 400_000
    appended = 0
    for size in (rows, rows // GROWTH_FACTOR - 500, rows // GROWTH_FACTOR**2 - 200):
        spine.append(distinct_run(appended, size))
        appended += size
    work.take()
    assert [run.rows for run in spine.runs] == [rows, rows // 8 - 500, rows // 64 - 200]
    largest = steps_with_merges = 0
    for number in range(3_000):
        merges = len(spine._merges)
        spine.append(distinct_run(appended + number, 1))
        copied, fuel = work.take()
        idle = (merges + 1) * fuel_of(1, 1)
        # Besides the fuel of open merges, there are small merges at once.
        assert copied <= SPLICED_ROWS_PER_FUEL * (fuel + 1) + merges
        assert fuel <= idle + 3 * MIN_FUEL_AT_ONCE
        largest = max(largest, copied)
        steps_with_merges += bool(spine._merges)
    assert work.largest > rows
    assert steps_with_merges > 100
    assert largest < rows // 8
    assert not any(merge.older.rows >= rows for merge in spine._merges), (
        "the large merge was not completed"
    )
    assert spine.rows == appended + 3_000


def add_to_tail(arena: Arena, delta: ZSet) -> None:
    """Add the rows of a step to the tails of an arena's spines."""
    runs, _ = arena.build_runs(delta)
    if not arena.add(runs):
        arena.start_buffer(len(delta))
        runs, _ = arena.build_runs(delta)
        assert arena.add(runs)


def tables_of(arena_spines: list[Spine]) -> list[list[int]]:
    """Return the words of the tables of spines, without the addresses of runs."""
    return [[int(s.table[RUN_COUNT]), *s.table[TAIL_ROWS:].tolist()] for s in arena_spines]


@LAW
@given(st.data())
def test_a_tail_is_started_as_the_kernel_does_it(data):
    """`Arena.add` starts a tail without the kernel, which would have to be compiled first."""
    twins = [[Spine(), Spine()] for _ in range(2)]
    arenas = [Arena(dict(zip([(0, 1), (1, 0)], spines, strict=True))) for spines in twins]
    expected: dict = {}
    domain = data.draw(st.sampled_from(DOMAINS))
    for delta in data.draw(st.lists(relation_deltas(2, domain), max_size=12)):
        if not delta:
            continue
        expected = add(expected, delta)
        if data.draw(st.booleans()):  # the tails become ordinary runs, so the next step starts one
            for spine in (*twins[0], *twins[1]):
                spine.compact()
        add_to_tail(arenas[0], zset(delta, arity=2))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Arena, "_start_tails", add_by_kernel)
            add_to_tail(arenas[1], zset(delta, arity=2))
        assert tables_of(twins[0]) == tables_of(twins[1])
        for spine in twins[0]:
            spine._check()
    assert read(twins[0][1]) == read(twins[1][1]) == expected


def add_by_kernel(arena: Arena, runs: dict[tuple[int, ...], Run]) -> int:
    run = runs[arena.orders[0]]
    status: int = arena_module.add_small_runs(arena.address, run.address, run.rows)
    return status


def test_runs_that_have_room_are_added_in_the_same_buffer(monkeypatch):
    """A buffer of the least size for a step has room for its runs once, and for the tails."""
    monkeypatch.setattr(arena_module, "MIN_BUFFER_WORDS", 1)
    monkeypatch.setattr(arena_module, "MAX_BUFFER_WORDS", 1)
    spines = [Spine(), Spine()]
    arena = Arena(dict(zip([(0, 1), (1, 0)], spines, strict=True)))
    for step in range(5):
        delta = ZSet.from_rows([(step, k) for k in range(20)])
        arena.start_buffer(len(delta))
        runs, _ = arena.build_runs(delta)
        assert arena.add(runs)
    assert [spine.rows for spine in spines] == [100, 100]


def test_buffers_double_up_to_the_size_of_a_cache():
    arena, sizes = Arena({(0, 1): Spine()}), []
    for _ in range(4):
        arena.start_buffer(1)
        sizes.append(arena._buffer.nbytes >> 10)
    assert sizes == [128, 256, 512, 512]


def test_the_first_small_step_needs_no_merge(monkeypatch):
    kernel = Mock(wraps=arena_module.add_small_runs)
    monkeypatch.setattr(arena_module, "add_small_runs", kernel)
    trace = Trace(2)
    for number in range(3):
        trace.update(zset({(number, 1): 1}, arity=2))
        assert kernel.call_count == number


@pytest.mark.parametrize("size", [1, 20, 100])
def test_each_step_of_a_tail_does_its_share_of_the_work_of_open_merges(size, monkeypatch):
    work = MergeCounter(monkeypatch)
    spine = Spine()
    arena = Arena({(0, 1): spine})
    rows = 200_000
    appended = 0
    for count in (rows, rows // GROWTH_FACTOR - 500, rows // GROWTH_FACTOR**2 - 200):
        spine.append(distinct_run(appended, count))
        appended += count
    work.take()
    # The work of a few very small steps is done together.
    most = fuel_of(size, 1) + MIN_FUEL_OF_TAIL
    steps_with_work = 0
    for _ in range(20_000 // size):
        merges, runs = len(spine._merges), spine._runs.copy()
        add_to_tail(arena, distinct_rows(appended, size))
        appended += size
        spine._check()
        _, fuel = work.take()
        # Small merges, and the first work of a new merge, if there are other runs than before.
        has_other_runs = spine._runs != runs
        assert fuel <= merges * most + has_other_runs * 3 * MIN_FUEL_AT_ONCE
        steps_with_work += fuel > 0 and not has_other_runs
    assert work.largest > rows
    assert steps_with_work > 20
    assert not any(merge.older.rows >= rows for merge in spine._merges), (
        "the large merge was not completed"
    )
    assert spine.rows == appended


def test_without_memory_for_merges_the_spine_keeps_its_rows_and_merges_later(monkeypatch):
    spine = Spine()
    arena = Arena({(0, 1): spine})
    work = Merge.work

    def has_no_memory(*_: object) -> None:
        raise MemoryError

    appended = 0
    for number in range(60):
        with monkeypatch.context() as patch:
            if number % 3:
                patch.setattr(spine_module.Merge, "work", has_no_memory)
                patch.setattr(spine_module.Run, "merged", staticmethod(has_no_memory))
            rows = distinct_rows(appended, 3_000 if number % 4 else 40)
            if len(rows) > 40:
                spine.append(Run.of(rows, ORDER_OF_TAIL))
            else:
                add_to_tail(arena, rows)
        appended += len(rows)
        spine._check()
        assert spine.rows == appended
    assert Merge.work is work
    for number in range(appended, appended + 50):
        spine.append(Run.of(distinct_rows(number, 1), ORDER_OF_TAIL))
    check_sizes(spine, spine.rows)


def test_work_per_row_is_logarithmic_in_a_stream_of_insertions(monkeypatch):
    work = MergeCounter(monkeypatch)
    spine = Spine()
    rows = 0
    while rows < 300_000:
        spine.append(distinct_run(rows, 500))
        rows += 500
    copied, _ = work.take()
    assert copied <= rows * GROWTH_FACTOR * math.log(rows, GROWTH_FACTOR)


def test_a_merge_in_parts_equals_a_merge_at_once():
    rng = np.random.default_rng(6)
    for fuel in (1, 2, 7, 100, 10_000):
        pair = []
        for _ in range(2):
            rows = map(tuple, rng.integers(0, 40, (700, 2)).tolist())
            pair.append(dict(zip(rows, rng.choice([-2, -1, 1, 2], 700).tolist(), strict=True)))
        older, newer = map(build, pair)
        merge = Merge(older, newer)
        calls = 0
        while (merged := merge.work(fuel)) is None:
            calls += 1
        assert calls * fuel >= 100 or fuel > 1_000
        at_once = Run.merged(older, newer)
        spine = Spine()
        spine.append(merged)
        assert read(spine) == add(*pair)
        for array, expected in zip(merged.read(), at_once.read(), strict=True):
            assert np.array_equal(array, expected)
        assert merged.max_abs_weight == at_once.max_abs_weight
        assert merged.nbytes == at_once.nbytes


@pytest.mark.parametrize("arity", [1, 2, 3, 5])
def test_no_slice_of_a_merge_writes_more_words_than_its_fuel_allows(arity):
    """Late in the merge come the first row of another weight, and rows with a common prefix."""
    rows = 5_000
    order = np.arange(arity)
    columns = [np.arange(rows) * 2] * arity
    older = Run.of(ZSet.from_columns(columns), order)
    late = np.arange(rows - 200, rows) * 2
    changed = [late] * (arity - 1) + [late + np.arange(200) % 3]
    weights = np.arange(200) % 4 - 2
    newer = Run.of(ZSet.from_columns(changed, weights), order)
    merge = Merge(older, newer)
    merge._out[run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * arity :] = -7
    words_per_row = 2 * arity + 3
    for fuel in itertools.repeat(50, 4 * rows * words_per_row // 50):
        words = merge._out.copy()
        merged = merge.work(fuel)
        # A slice may end up to as many rows later as are copied at a time.
        assert (words != merge._out).sum() <= words_per_row * (fuel + 1) + run_layout.LEVEL_HEADERS
        if merged is not None:
            break
    assert merged is not None
    assert merged.find_damage() == ""
    expected = Run.of(older_plus(columns, changed, weights), order)
    assert np.array_equal(merged.to_words(), expected.to_words())


def older_plus(columns: list, changed: list, weights: np.ndarray) -> ZSet:
    """Return the sum of rows of weight 1 and rows of other weights."""
    ones = np.ones(len(columns[0]), np.int64)
    pairs = zip(columns, changed, strict=True)
    return ZSet.from_columns(
        [np.concatenate(pair) for pair in pairs], np.concatenate([ones, weights])
    )


def test_compacting_completes_open_merges_and_drops_rows_that_cancel():
    spine = Spine()
    spine.append(distinct_run(0, 60_000))
    spine.append(distinct_run(60_000, 7_400))
    spine.append(distinct_run(67_400, 930, 2))  # runs of several weights are merged in slices
    assert spine._merges
    spine.compact()
    spine._check()
    assert [run.rows for run in spine.runs] == [68_330]
    [run] = spine.runs
    columns, weights = run.read()
    rows = np.empty_like(columns)
    rows[ORDER] = columns
    spine.append(Run.of(ZSet.from_columns(list(rows), -weights), ORDER))
    spine.compact()
    spine._check()
    assert spine.is_empty
    assert spine.rows == spine.nbytes == spine.weight_bound == 0


@pytest.mark.parametrize("seed", range(4))
def test_loaded_runs_of_any_sizes_are_merged_by_later_steps_with_bounded_work(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = (10 ** rng.uniform(0, 4.3, 60)).astype(int).tolist()
    runs, start = [], 0
    for size in sizes:
        runs.append(distinct_run(start, size))
        start += size
    spine = Spine()
    address = spine.table_address
    with monkeypatch.context() as patch:
        patch.setattr(spine_module, "Run", None)
        patch.setattr(spine_module, "Merge", None)
        spine.load(runs)
    assert spine.runs == tuple(runs) and spine.table_address == address
    spine._check()
    total = sum(sizes)
    for number in range(3000):
        merges_before = len(spine._merges)
        spine.append(distinct_run(start, 1 + number % 11))
        start += 1 + number % 11
        total += 1 + number % 11
        assert len(spine._merges) <= merges_before + 2
        assert len(spine.runs) < 80
    spine._check()
    assert spine.rows == total
    assert len(spine.runs) <= 2 * math.log(total, GROWTH_FACTOR) + 2 * len(spine._merges) + 3


def test_loading_too_many_runs_merges_the_newest():
    spine = Spine()
    runs = [distinct_run(100 * i, 1 + i % 20) for i in range(400)]
    spine.load(runs)
    assert len(spine.runs) == spine_module.MAX_LOADED_RUNS
    assert spine.rows == sum(run.rows for run in runs)
    spine._check()
    spine.load(runs[:2])
    assert spine.runs == tuple(runs[:2])
    empty_run = Run.sum_of([build({(1, 2): 1}), build({(1, 2): -1})])
    spine.load([empty_run])
    assert spine.is_empty


@LAW
@given(deltas=st.lists(relation_deltas(2, range(4)), max_size=10), max_rows=st.integers(0, 12))
def test_a_spine_with_a_limit_of_merges_has_the_same_rows_and_no_larger_merged_run(
    deltas, max_rows
):
    spine, total, largest = Spine(), {}, 0
    spine.max_merge_rows = max_rows
    for delta in deltas:
        if delta:
            run = build(delta)
            spine.append(run)
            total, largest = add(total, delta), max(largest, run.rows)
            spine._check()
        assert read(spine) == total
        assert all(run.rows <= max(max_rows, largest) for run in spine.runs)
    spine.compact()
    assert read(spine) == total and len(spine.runs) <= 1


def test_a_spine_with_a_tail_has_at_most_the_maximum_number_of_runs():
    """The join buffers have room for no more."""
    spine, expected, longest = Spine(), {}, 0
    spine.max_merge_rows = 0
    arena = Arena({(1, 0): spine})
    for number in range(MAX_RUNS):
        spine.append(build({(number, 0): 1}))
        add_to_tail(arena, zset({(number, 1): 2}, arity=2))
        expected |= {(number, 0): 1, (number, 1): 2}
        assert spine.table[RUN_COUNT] == len(spine.runs) <= MAX_RUNS
        longest = max(longest, len(spine.runs))
        spine._check()
    assert longest >= MAX_RUNS - 1
    assert read(spine) == expected


@LAW
@given(st.data())
def test_a_spine_with_unread_runs_has_the_sum_of_the_appended_runs(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine_module, "MIN_UNREAD_ROWS", 1)
        patch.setattr(spine_module, "MAX_UNREAD_RUNS", data.draw(st.integers(1, 3)))
        spine, total = Spine(), {}
        domain = data.draw(st.sampled_from(DOMAINS))
        for delta in data.draw(st.lists(relation_deltas(2, domain), max_size=15)):
            if data.draw(st.booleans()):
                delta = {row: abs(weight) for row, weight in delta.items()}
            if delta:
                spine.append(build(delta), data.draw(st.sampled_from([None, 0, 1, 10**6])))
                total = add(total, delta)
            spine._check()
            assert read(spine) == total


def test_runs_that_few_lookups_read_are_merged_late(monkeypatch):
    work = MergeCounter(monkeypatch)
    monkeypatch.setattr(spine_module, "MIN_UNREAD_ROWS", 500)
    spine, eager = Spine(), Spine()
    for number in range(400):
        spine.append(distinct_run(500 * number, 500), 0)
        spine._check()
        assert len(spine.runs) <= MAX_UNREAD_RUNS + len(spine._merges) + math.log2(number + 1)
    copied, _ = work.take()
    for number in range(400):
        eager.append(distinct_run(500 * number, 500), lookups=501)
    eagerly_copied, _ = work.take()
    assert spine.rows == eager.rows == 200_000
    assert 3 * copied < 2 * eagerly_copied
    # Steps with more lookups merge the runs.
    for number in range(3_000):
        spine.append(distinct_run(200_000 + number, 1))
    check_sizes(spine, spine.rows)


def test_unread_runs_of_alternating_sizes_stay_few(monkeypatch):
    monkeypatch.setattr(spine_module, "MIN_UNREAD_ROWS", 30)
    spine, first = Spine(), 0
    for number in range(300):
        size = (40, 100)[number % 2]
        spine.append(distinct_run(first, size), lookups=0)
        first += size
        spine._check()
        assert len(spine.runs) <= MAX_UNREAD_RUNS + 1 + 2 * len(spine._merges)
    assert spine.rows == first


def test_compaction_copies_each_row_a_few_times(monkeypatch):
    work = MergeCounter(monkeypatch)
    monkeypatch.setattr(spine_module, "MIN_UNREAD_ROWS", 1)
    monkeypatch.setattr(spine_module, "MAX_UNREAD_RUNS", 200)
    spine = Spine()
    for number in range(64):
        spine.append(distinct_run(500 * number, 500), 0)
    assert len(spine.runs) == 64
    work.take()
    spine.compact()
    copied, _ = work.take()
    assert [run.rows for run in spine.runs] == [32_000]
    assert copied <= 32_000 * math.log2(64)


def test_steps_with_few_lookups_copy_fewer_rows(monkeypatch):
    work = MergeCounter(monkeypatch)
    spine, eager = Spine(), Spine()
    for number in range(400):
        spine.append(distinct_run(500 * number, 500), lookups=500)  # as many as rows: merged late
        spine._check()
        assert len(spine.runs) <= math.log2(number + 1) + 2 * len(spine._merges) + 3
    copied, _ = work.take()
    for number in range(400):
        eager.append(distinct_run(500 * number, 500), lookups=501)
    eagerly_copied, _ = work.take()
    assert spine.rows == eager.rows == 200_000
    assert 4 * copied < 3 * eagerly_copied
    # A step with more lookups begins to merge the runs that the others have left.
    for number in range(1_000):
        spine.append(distinct_run(200_000 + 10 * number, 10), lookups=11)
    check_sizes(spine, spine.rows)


def test_deleted_rows_of_large_runs_are_merged_in_spite_of_few_lookups(monkeypatch):
    monkeypatch.setattr(spine_module, "MAX_LATE_MERGE_ROWS", 5_000)
    spine = Spine()
    for number in range(100):
        spine.append(distinct_run(500 * number, 500), 0)
    checked_steps = 0
    for number in range(20):
        spine.append(distinct_run(500 * number, 500, weight=-1), 0)
        live = 50_000 - 500 * (number + 1)
        if not spine._merges:  # an open merge has not removed the deleted rows yet
            assert sum(run.rows for run in spine.runs) <= live * (1 + 2 / GROWTH_FACTOR) + 5_000
            checked_steps += 1
    assert checked_steps > 5


def test_runs_of_deletions_are_merged_although_few_lookups_read_them(monkeypatch):
    monkeypatch.setattr(spine_module, "MIN_UNREAD_ROWS", 2)
    spine = Spine()
    for _ in range(20):
        spine.append(build({(1, 2): 1, (3, 4): 1}), 0)
        spine.append(build({(1, 2): -1, (3, 4): -1}), 0)
    assert spine.is_empty


@pytest.mark.parametrize("rows_of_the_newest", [300, 1_000])
def test_deletions_are_merged_with_the_run_that_has_most_of_the_deleted_rows(rows_of_the_newest):
    spine = Spine()
    inserted = [100_000, 10_000, rows_of_the_newest]
    starts = itertools.accumulate(inserted, initial=0)
    spine.load([distinct_run(start, rows) for start, rows in zip(starts, inserted, strict=False)])
    deleted = np.arange(100_000, sum(inserted), 7)  # rows of both of the newest runs
    np.random.default_rng(0).shuffle(deleted)
    for first in range(0, len(deleted), 300):
        keys = (deleted[first : first + 300] * 0x9E3779B1) % (1 << 31)
        columns = [keys, keys % 1_009]
        spine.append(Run.of(ZSet.from_columns(columns, np.full(len(keys), -1)), ORDER))
        spine._check()
        weights = [run.only_weight for run in spine.runs]
        assert None not in weights
    left = sum(inserted) - len(deleted)
    assert spine.rows <= left * (1 + 2 / GROWTH_FACTOR)
    spine.compact()
    assert spine.rows == left


@pytest.mark.parametrize("name", ["_merge", "_release", "_close_tail", "_do_merge_work"])
def test_the_table_lists_the_runs_after_an_interrupt(name, monkeypatch):
    trace = Trace(1)
    spine = trace.arrangements[0].spine
    for first in range(0, 20_000, 2_000):
        trace.update(ZSet.from_columns([np.arange(first, first + 2_000)]))
    trace.update(ZSet.from_rows([(-1,)]))
    spine._check()
    interrupted = 0
    for step in range(12):
        run = build_run(ZSet.from_columns([np.arange(30_000 + step, 36_000 + step)]), (0,))
        with monkeypatch.context() as patch:
            patch.setattr(Spine, name, InterruptedAfter(getattr(Spine, name)).bound())
            try:
                spine.append(run)
            except KeyboardInterrupt:
                interrupted += 1
        spine._check()
    assert interrupted


def test_the_table_lists_the_runs_after_a_compaction_without_memory(monkeypatch):
    def fail(runs):
        raise MemoryError

    trace = Trace(1)
    spine = trace.arrangements[0].spine
    trace.update(ZSet.from_columns([np.arange(20_000)]))
    trace.update(ZSet.from_columns([np.arange(100)]))
    trace.update(ZSet.from_rows([(-1,)]))
    monkeypatch.setattr(spine_kernels, "is_tail_full", lambda *arguments: True)
    monkeypatch.setattr(spine_module, "MAX_RUNS", 2)
    monkeypatch.setattr(Run, "sum_of", fail)
    with pytest.raises(MemoryError):
        spine.settle()
    monkeypatch.undo()
    spine._check()
    values = np.arange(-1, 20_000)
    assert trace.to_zset() == ZSet.from_columns([values], 1 + ((values >= 0) & (values < 100)))


def test_a_load_drops_the_overlay():
    trace = Trace(1)
    trace.update(ZSet.from_rows([(1,)]))
    trace.push_overlay(trace.prepare(ZSet.from_rows([(2,)])))
    loaded = [build_run(ZSet.from_rows([(value,)]), (0,)) for value in range(3)]
    trace.load({(0,): loaded})
    trace.pop_overlay()
    trace.arrangements[0].spine._check()
    assert trace.to_zset() == ZSet.from_rows([(0,), (1,), (2,)])


@pytest.mark.parametrize("end", [lambda spine: spine.load(spine.runs), Spine.compact])
def test_merged_runs_count_as_memory_until_they_are_freed(end, monkeypatch):
    monkeypatch.setattr(small_pages, "MIN_MAPPED_BYTES", 1)
    monkeypatch.setattr(run_module, "MIN_MAPPED_BYTES", 1)
    spine = Spine()
    for first in range(0, 60_000, 3_000):
        spine.append(build_run(ZSet.from_columns([np.arange(first, first + 3_000)]), (0,)))
        if spine._to_release:
            break
    waiting = sum(pages.nbytes for pages in spine._to_release)
    assert waiting > 0
    assert spine.heap_bytes >= spine.nbytes + waiting
    end(spine)
    assert not spine._to_release
    assert spine.heap_bytes == spine.nbytes


def test_the_table_lists_the_runs_after_an_interrupt_of_a_load(monkeypatch):
    spine = Spine()
    for value in range(3):
        spine.append(build({(value, 1): 1}))
    spine._merges.clear()
    loaded = [build({(7, 8): 2})]
    with monkeypatch.context() as patch:
        refresh = Spine._refresh
        calls = []

        def interrupt_once(self, first_changed):
            calls.append(first_changed)
            if len(calls) == 1:
                raise KeyboardInterrupt
            refresh(self, first_changed)

        patch.setattr(Spine, "_refresh", interrupt_once)
        with pytest.raises(KeyboardInterrupt):
            spine.load(loaded)
    spine._check()
    assert spine.runs == tuple(loaded)
