"""Merging of segment parts by levels of size, as in a log-structured merge tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.state.segment_references import (
    LEVEL_FANOUT,
    count_merged_parts,
    find_full_level,
    size_level,
)

STEPS = st.lists(st.integers(1, 5000), min_size=1, max_size=300)


def merge_all(steps):
    """Return the rows of each part after all steps, and how many rows were written for them."""
    parts, written = [], 0
    for rows in steps:
        merged = len(parts) - count_merged_parts(parts, rows)
        part = rows + sum(parts[merged:])
        parts[merged:] = [part]
        written += part
    return parts, written


@given(STEPS)
def test_levels_never_increase_and_none_is_full(steps):
    parts, _ = merge_all(steps)
    levels = [size_level(rows) for rows in parts]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) < LEVEL_FANOUT for level in levels)
    assert sum(parts) == sum(steps)


@given(st.integers(1, 100), st.integers(1, 2000))
def test_a_row_is_written_at_most_once_per_level(rows, steps):
    parts, written = merge_all([rows] * steps)
    levels = size_level(rows * steps) - size_level(rows)
    assert written <= rows * steps * (1 + levels)
    assert len(parts) <= (LEVEL_FANOUT - 1) * (levels + 1)


@given(STEPS, st.integers(0, 20))
def test_merges_that_come_late_leave_the_same_levels(steps, delay):
    parts = []
    for number, rows in enumerate(steps):
        parts.append(rows)
        positions = find_full_level(parts)
        if positions is not None and number % (delay + 1) == 0:
            merge_at(parts, positions)
    while (positions := find_full_level(parts)) is not None:
        merge_at(parts, positions)
    levels = [size_level(rows) for rows in parts]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) < LEVEL_FANOUT for level in levels)
    assert sum(parts) == sum(steps)


def merge_at(parts, positions):
    first, end = positions
    assert end - first > 1
    parts[first:end] = [sum(parts[first:end])]
