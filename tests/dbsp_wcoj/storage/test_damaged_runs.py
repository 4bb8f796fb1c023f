"""Runs read from untrusted files are checked before compiled code follows their positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import ZSet
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage import run
from dbsp_wcoj.storage.run import Run

ROWS = st.lists(st.tuples(st.integers(-3, 60), st.integers(-2, 2), st.integers(0, 2)), min_size=1)


def run_of(rows) -> Run:
    return Run.of(ZSet.from_rows([*{*rows}]), np.arange(3))


@settings(max_examples=60)
@given(ROWS, ROWS, st.sampled_from([2, 5, 1 << 18]))
def test_runs_and_sums_of_runs_are_in_order(one, other, at_a_time):
    before, run.CHECK_CHUNK_NUMBERS = run.CHECK_CHUNK_NUMBERS, at_a_time
    try:
        for found in (run_of(one), Run.merged(run_of(one), run_of(other))):
            assert Run.from_words(found.to_words()).find_damage() == ""
    finally:
        run.CHECK_CHUNK_NUMBERS = before


@settings(max_examples=60)
@given(st.data(), ROWS)
def test_a_run_whose_columns_do_not_rise_or_lead_elsewhere_is_not(data, rows):
    words = run_of(rows).to_words().copy()
    found = Run.from_words(words)
    columns, weights = found.read()
    place = data.draw(st.integers(0, len(words) - 1))
    words[place] = data.draw(st.sampled_from([-(2**63), -1, 0, 1, 2**20, 2**63 - 1]))
    try:
        found = Run.from_words(words)
    except DbspWcojError:
        return
    if found.find_damage() == "":
        # What passes can be followed: all positions are inside, and the columns are sorted.
        columns, weights = found.read()
        assert columns.shape[1] == found.rows == len(weights)
        rows = list(zip(*columns.tolist(), strict=True))
        assert rows == sorted(set(rows))
        Run.merged(found, found)


@pytest.mark.parametrize("at_a_time", [2, 3, 1 << 18])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_equal_or_falling_siblings_are_found_wherever_a_piece_begins(level, at_a_time, monkeypatch):
    monkeypatch.setattr(run, "CHECK_CHUNK_NUMBERS", at_a_time)
    rows = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    whole = run_of(rows).to_words()
    entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
    first, size = (
        int(whole[entry + run_layout.LEVEL_VALUES]),
        int(whole[entry + run_layout.LEVEL_NODES]),
    )
    for place in range(size):
        words = whole.copy()
        if place % 3 < 2:
            words[first + place] = words[first + place + 1]
            assert f"level {level}" in Run.from_words(words).find_damage()
