from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.state.segment_references import LEVEL_FANOUT, count_merged_parts, size_level

STEPS = st.lists(st.integers(1, 5000), min_size=1, max_size=300)


def grown(steps):
    """The rows of the pieces, and how many rows were written for them."""
    pieces, written = [], 0
    for rows in steps:
        taken = count_merged_parts(pieces, rows)
        piece = rows + sum(pieces[len(pieces) - taken :])
        pieces[len(pieces) - taken :] = [piece]
        written += piece
    return pieces, written


@given(STEPS)
def test_levels_never_rise_and_none_is_full(steps):
    pieces, _ = grown(steps)
    levels = [size_level(rows) for rows in pieces]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) < LEVEL_FANOUT for level in levels)
    assert sum(pieces) == sum(steps)


@given(st.integers(1, 100), st.integers(1, 2000))
def test_a_row_is_written_once_per_level(rows, steps):
    pieces, written = grown([rows] * steps)
    levels = size_level(rows * steps) - size_level(rows)
    assert written <= rows * steps * (1 + levels)
    assert len(pieces) <= (LEVEL_FANOUT - 1) * (levels + 1)
