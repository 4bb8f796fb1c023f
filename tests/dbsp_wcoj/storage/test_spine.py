"""Spines: their rows, the number of their runs, and the largest work of one append.

The work of an append is observed from outside, at the two ways into the merge kernel: rows merged
at once, and rows of a merge under way that were written between two calls.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.storage import merge as merging
from dbsp_wcoj.storage import spine as module
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.spine import (
    FUEL_PER_ROW,
    FUEL_PER_STEP,
    GROWTH_FACTOR,
    MIN_FUEL_AT_ONCE,
    SMALL_MERGE_ROWS,
    Spine,
)
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add

ORDER = np.array([1, 0])


def run_of(delta: dict) -> Run:
    return Run.of(zset(delta, arity=2), ORDER)


def read(spine: Spine) -> dict:
    """All rows, columns back in place; each run's are sorted and distinct."""
    pieces = []
    for run in spine.runs:
        columns, weights = run.read()
        rows = list(zip(*columns.tolist(), strict=True))
        assert rows == sorted(set(rows))
        assert len(rows) == run.rows > 0
        assert np.abs(weights).max() == run.max_abs_weight
        pieces.append({(b, a): w for (a, b), w in zip(rows, weights.tolist(), strict=True)})
    return add(*pieces)


def check_shape(spine: Spine, most: int) -> None:
    """Few runs; of falling size when no merge is under way. ``most``: rows ever appended."""
    spine._check()
    runs = spine.runs
    levels = math.log(max(most, 2), GROWTH_FACTOR)
    assert len(runs) <= 2 * levels + 2 * len(spine._merges) + 3
    if not spine._merges:
        for older, newer in itertools.pairwise(runs):
            assert newer.rows * GROWTH_FACTOR < older.rows
            assert newer.rows + older.rows > SMALL_MERGE_ROWS


@LAW
@given(st.data())
def test_a_spine_holds_the_sum_of_what_was_appended(data):
    spine, total = Spine(), {}
    domain = data.draw(st.sampled_from(DOMAINS))
    for delta in data.draw(st.lists(relation_deltas(2, domain), max_size=15)):
        if data.draw(st.integers(0, 5)) == 0:
            delta = {row: -weight for row, weight in total.items()}
        if delta:
            spine.append(run_of(delta))
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
    """Inserts and deletions of 1 to 12,000 rows; read while merges are under way."""
    rng = np.random.default_rng(seed)
    spine, total, appended, open_merges = Spine(), {}, 0, 0
    nodes = (150, 3_000, 1 << 60)[seed]
    for number in range(120):
        size = (12_000, 1_400)[number] if number < 2 else int(10 ** rng.uniform(0, 2.2))
        rows = map(tuple, rng.integers(-nodes, nodes, (size, 2)).tolist())
        delta = dict.fromkeys(rows, 1 if number % 4 else 2)
        if number % 3 == 2:
            some = list(total)[: 10 * size : 10]
            delta = {row: -total[row] for row in some}
        if not delta:
            continue
        spine.append(run_of(delta))
        total = add(total, delta)
        appended += len(delta)
        open_merges += bool(spine._merges)
        spine._check()
        most = 2 * math.log(appended, GROWTH_FACTOR) + 2 * len(spine._merges) + 3
        assert len(spine.runs) <= most
        if number % 8 == 0 or (spine._merges and number % 5 == 1):
            assert read(spine) == total
    assert open_merges > 3, "no merge took more than one step; make the stream longer"
    assert read(spine) == total
    spine.compact()
    assert len(spine.runs) == 1
    assert not spine._merges
    assert spine.rows == len(total)
    assert read(spine) == total


def distinct_run(start: int, rows: int) -> Run:
    """Rows that no other start has, all over the range of values."""
    keys = (np.arange(start, start + rows) * 0x9E3779B1) % (1 << 31)
    return Run.of(ZSet.from_columns([keys, keys % 1_009]), ORDER)


@pytest.mark.parametrize("size", [1, 7, 100, 3_000])
def test_sizes_fall_geometrically_in_a_stream_of_insertions(size):
    spine = Spine()
    for number in range(400):
        spine.append(distinct_run(size * number, size))
        check_shape(spine, size * (number + 1))
    assert spine.rows == 400 * size


class Work:
    """Counts the rows that merges write; the larger of the two ways of counting is the work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        self.fuel = 0
        self.largest = 0
        at_once, piece = Run.merged, Merge.work

        def merged(older: Run, newer: Run) -> Run:
            self.rows += older.rows + newer.rows
            self.fuel += older.rows + newer.rows
            return at_once(older, newer)

        def work(merge: Merge, fuel: int = 2**62) -> Run | None:
            before = written(merge)
            done = piece(merge, fuel)
            self.rows += written(merge) - before
            self.fuel += min(fuel, merge.older.rows + merge.newer.rows)
            self.largest = max(self.largest, merge.older.rows + merge.newer.rows)
            return done

        monkeypatch.setattr(module.Run, "merged", staticmethod(merged))
        monkeypatch.setattr(module.Merge, "work", work)

    def take(self) -> tuple[int, int]:
        taken = self.rows, self.fuel
        self.rows = self.fuel = 0
        return taken


def written(merge: Merge) -> int:
    """Leaves written so far."""
    return int(merge._state[merging.CURSORS + merging.CURSOR_WORDS + 4])


def test_no_append_of_one_row_pays_for_a_large_merge(monkeypatch):
    work = Work(monkeypatch)
    spine = Spine()
    rows = 200_000
    appended = 0
    for size in (rows, rows // GROWTH_FACTOR - 500, rows // GROWTH_FACTOR**2 - 200):
        spine.append(distinct_run(appended, size))
        appended += size
    work.take()
    assert [run.rows for run in spine.runs] == [rows, rows // 8 - 500, rows // 64 - 200]
    largest = under_way = 0
    for number in range(3_000):
        merges = len(spine._merges)
        spine.append(distinct_run(appended + number, 1))
        copied, fuel = work.take()
        idle = (merges + 1) * (FUEL_PER_ROW + FUEL_PER_STEP)
        # Beside the fuel per step of open merges: small merges at once, each larger than the last.
        assert copied <= fuel + merges + 1
        assert fuel <= idle + 3 * MIN_FUEL_AT_ONCE
        largest = max(largest, copied)
        under_way += bool(spine._merges)
    assert work.largest > rows
    assert under_way > 100
    assert largest < rows // 8
    assert not any(merge.older.rows >= rows for merge in spine._merges), "it never came to its end"
    assert spine.rows == appended + 3_000


def test_work_per_row_is_logarithmic_in_a_stream_of_insertions(monkeypatch):
    work = Work(monkeypatch)
    spine = Spine()
    rows = 0
    while rows < 300_000:
        spine.append(distinct_run(rows, 500))
        rows += 500
    copied, _ = work.take()
    assert copied <= rows * GROWTH_FACTOR * math.log(rows, GROWTH_FACTOR)


def test_a_merge_by_pieces_equals_a_merge_at_once():
    rng = np.random.default_rng(6)
    for fuel in (1, 2, 7, 100, 10_000):
        pair = []
        for _ in range(2):
            rows = map(tuple, rng.integers(0, 40, (700, 2)).tolist())
            pair.append(dict(zip(rows, rng.choice([-2, -1, 1, 2], 700).tolist(), strict=True)))
        older, newer = map(run_of, pair)
        merge = Merge(older, newer)
        calls = 0
        while (merged := merge.work(fuel)) is None:
            calls += 1
        assert calls * fuel >= 100 or fuel > 1_000
        at_once = Run.merged(older, newer)
        spine = Spine()
        spine.append(merged)
        assert read(spine) == add(*pair)
        for found, expected in zip(merged.read(), at_once.read(), strict=True):
            assert np.array_equal(found, expected)
        assert merged.max_abs_weight == at_once.max_abs_weight
        assert merged.nbytes == at_once.nbytes


def test_compacting_ends_merges_under_way_and_forgets_what_cancels():
    spine = Spine()
    spine.append(distinct_run(0, 60_000))
    spine.append(distinct_run(60_000, 7_400))
    spine.append(distinct_run(67_400, 930))
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
def test_loaded_runs_of_any_sizes_are_merged_by_later_steps_a_bounded_piece_at_a_time(
    seed, monkeypatch
):
    rng = np.random.default_rng(seed)
    sizes = (10 ** rng.uniform(0, 4.3, 60)).astype(int).tolist()
    runs, start = [], 0
    for size in sizes:
        runs.append(distinct_run(start, size))
        start += size
    spine = Spine()
    address = spine.table_address
    with monkeypatch.context() as patch:
        patch.setattr(module, "Run", None)
        patch.setattr(module, "Merge", None)
        spine.load(runs)
    assert spine.runs == tuple(runs) and spine.table_address == address
    spine._check()
    total = sum(sizes)
    for number in range(3000):
        before = len(spine._merges)
        spine.append(distinct_run(start, 1 + number % 11))
        start += 1 + number % 11
        total += 1 + number % 11
        assert len(spine._merges) <= before + 2
        assert len(spine.runs) < 80
    spine._check()
    assert spine.rows == total
    assert len(spine.runs) <= 2 * math.log(total, GROWTH_FACTOR) + 2 * len(spine._merges) + 3


def test_of_too_many_runs_the_newest_are_merged_when_they_are_loaded():
    spine = Spine()
    runs = [distinct_run(100 * i, 1 + i % 20) for i in range(400)]
    spine.load(runs)
    assert len(spine.runs) == module.MAX_LOADED_RUNS
    assert spine.rows == sum(run.rows for run in runs)
    spine._check()
    spine.load(runs[:2])
    assert spine.runs == tuple(runs[:2])
    nothing = Run.sum_of([run_of({(1, 2): 1}), run_of({(1, 2): -1})])
    spine.load([nothing])
    assert spine.is_empty
