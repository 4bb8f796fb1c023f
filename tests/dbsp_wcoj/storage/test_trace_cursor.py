"""A trace is read in slices while it changes: each row arrives once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace_cursor import TraceCursor

VALUES = st.integers(-2, 2)
ROWS = st.tuples(VALUES, VALUES, VALUES)
DELTAS = st.dictionaries(ROWS, st.integers(-2, 2).filter(bool), max_size=8)


def zset(rows: dict) -> ZSet:
    if not rows:
        return ZSet.empty(3)
    return ZSet.from_rows(list(rows), list(rows.values()))


@given(st.permutations(range(3)), DELTAS.filter(bool), ROWS)
def test_the_rows_up_to_a_key_are_counted(order, rows, key):
    run = Run.of(zset(rows), np.array(order))
    expected = sum(tuple(row[c] for c in order) <= key for row in rows)
    assert run.count_up_to(key) == expected


@given(
    st.permutations(range(3)),
    st.lists(DELTAS, max_size=5),
    st.lists(st.tuples(DELTAS, st.integers(1, 5)), max_size=12),
)
def test_slices_and_passed_deltas_are_the_rows_before_the_cursor(order, before, steps):
    trace = Trace(3, [tuple(order)])
    for delta in before:
        trace.update(zset(delta))
    cursor, read = TraceCursor(trace), ZSet.empty(3)
    for delta, max_rows in steps:
        rows = zset(delta)
        passed = cursor.passed(rows)
        trace.update(rows)
        part = cursor.next_rows(max_rows)
        assert len(part) <= max_rows
        read = read + passed + part
        keys = {tuple(row[c] for c in order): row for row in trace.to_zset().to_dict()}
        behind = {keys[key] for key in sorted(keys)[: len(read)]}
        assert read.to_dict().keys() == behind
        for row, weight in read.to_dict().items():
            assert trace.to_zset().to_dict()[row] == weight
    for _ in range(10_000):
        if cursor.is_complete:
            break
        read = read + cursor.next_rows(1)
    assert read == trace.to_zset()
