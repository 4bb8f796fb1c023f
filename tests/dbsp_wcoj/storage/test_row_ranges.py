"""Row ranges against a sorted list: ranks of rows, rows between two keys, and neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.row_ranges import RowRanges

Rows = Counter[tuple[int, ...]]
ROW = st.tuples(*[st.integers(0, 4)] * 3)
CHANGES = st.lists(st.tuples(ROW, st.integers(1, 3)), min_size=1, max_size=12)


def zset_of(changes: list[tuple[tuple[int, ...], int]]) -> ZSet:
    return ZSet.from_rows([row for row, _ in changes], [weight for _, weight in changes])


@st.composite
def histories(draw: Any) -> tuple[RowRanges, Rows, Rows]:
    """A trace of several runs with a staged step, and its rows without and with the step."""
    trace, old = Trace(3), Counter[tuple[int, ...]]()
    for _ in range(draw(st.integers(0, 3))):
        changes = draw(CHANGES)
        trace.update(zset_of(changes))
        for row, weight in changes:
            old[row] += weight
        deleted = draw(st.lists(st.sampled_from(sorted(old)), unique=True)) if old else []
        if deleted:
            trace.update(ZSet.from_rows(deleted, [-old.pop(row) for row in deleted]))
    changes = draw(CHANGES)
    deleted = draw(st.lists(st.sampled_from(sorted(old)), unique=True)) if old else []
    changes += [(row, -old[row]) for row in deleted]
    new = Counter(old)
    for row, weight in changes:
        new[row] += weight
    delta = zset_of(changes)
    if not len(delta) or draw(st.booleans()):
        return RowRanges(trace), old, old
    return RowRanges(trace, trace.prepare(delta)), old, +new


def weight_before(rows: Rows, key: tuple[int, ...], *, after: bool) -> int:
    """Sum the weights of the rows before a key; with ``after`` also of those that begin with it."""
    return sum(
        weight
        for row, weight in rows.items()
        if row[: len(key)] < key or (after and row[: len(key)] == key)
    )


@given(histories(), st.lists(st.tuples(ROW, st.booleans()), min_size=1), st.integers(0, 3))
def test_a_seek_returns_the_weight_of_all_rows_before(history, keys, depth):
    ranges, old, new = history
    columns = np.array([key for key, _ in keys]).T[:depth].reshape(depth, len(keys))

    positions = ranges.seek(columns, after=np.array([after for _, after in keys]))

    prefixes = [(key[:depth], after) for key, after in keys]
    assert positions.old.tolist() == [weight_before(old, key, after=a) for key, a in prefixes]
    assert positions.new.tolist() == [weight_before(new, key, after=a) for key, a in prefixes]


@given(histories(), st.lists(st.tuples(ROW, ROW), min_size=1, max_size=4))
def test_a_read_returns_the_rows_between_two_keys_in_order(history, pairs):
    ranges, old, new = history
    starts, stops = (np.array(keys).T for keys in zip(*map(sorted, pairs), strict=True))

    read = ranges.read(ranges.seek(starts), ranges.seek(stops))

    rows = list(zip(read.ranges.tolist(), zip(*read.rows.tolist(), strict=True), strict=True))
    expected = [
        (number, row)
        for number, (start, stop) in enumerate(map(sorted, pairs))
        for row in sorted(old.keys() | new.keys())
        if start <= row < stop
    ]
    assert rows == expected
    assert read.old.tolist() == [old[row] for _, row in expected]
    assert read.new.tolist() == [new[row] for _, row in expected]


@given(histories(), ROW, st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_a_neighbour_is_far_enough_away_or_at_the_bound(history, key, count, depth, after):
    ranges, old, new = history
    prefix = np.array(key[:1])[:, np.newaxis]
    start = ranges.seek(np.array(key)[:, np.newaxis], after=after)
    bound = ranges.seek(prefix, after=after)

    neighbour = ranges.neighbour(start, bound, count, depth=depth, after=after)

    first, last = (start, neighbour) if after else (neighbour, start)
    low, high = (start, bound) if after else (bound, start)
    assert (first.positions <= last.positions).all()
    assert (low.positions <= neighbour.positions).all()
    assert (neighbour.positions <= high.positions).all()
    distances = (last.old - first.old, last.new - first.new)
    if (neighbour.positions != bound.positions).any():
        assert min(distances) >= count
    for weights, total in ((neighbour.old, old), (neighbour.new, new)):
        same_prefix = {row[:depth] for row in total}
        possible = {weight_before(total, p, after=after) for p in same_prefix}
        is_bound = (neighbour.positions == bound.positions).all()
        assert is_bound or weights.item() in possible | {0, sum(total.values())}


def test_a_neighbour_of_a_large_trace_is_near():
    trace = Trace(2)
    trace.update(ZSet.from_columns([np.zeros(100_000, np.int64), np.arange(100_000)]))
    ranges = RowRanges(trace)
    start = ranges.seek(np.array([[0], [50_000]]))
    last = ranges.seek(np.array([[0]]), after=True)

    neighbour = ranges.neighbour(start, last, 3, after=True)

    assert 3 <= (neighbour.old - start.old).item() <= 10


def test_a_neighbour_is_near_where_a_small_run_has_all_rows_of_a_group():
    trace = Trace(2)
    trace.update(ZSet.from_columns([np.zeros(100_000, np.int64), np.arange(100_000)]))
    trace.update(ZSet.from_columns([np.ones(10_000, np.int64), np.arange(10_000)]))
    ranges = RowRanges(trace)
    start = ranges.seek(np.array([[1], [5_000]]))
    last = ranges.seek(np.array([[1]]), after=True)

    neighbour = ranges.neighbour(start, last, 3, after=True)

    assert 3 <= (neighbour.old - start.old).item() <= 10
