"""Damage of runs that are read from files is found, before kernels follow their positions."""

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


def build(rows) -> Run:
    return Run.of(ZSet.from_rows([*{*rows}]), np.arange(3))


@settings(max_examples=60)
@given(ROWS, ROWS, st.sampled_from([2, 5, 1 << 18]))
def test_runs_and_sums_of_runs_have_no_damage(older, newer, chunk_numbers):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CHECK_CHUNK_NUMBERS", chunk_numbers)
        for undamaged in (build(older), Run.merged(build(older), build(newer))):
            assert Run.from_words(undamaged.to_words()).find_damage() == ""


@settings(max_examples=60)
@given(st.data(), ROWS)
def test_a_changed_word_is_found_or_leaves_a_valid_run(data, rows):
    words = build(rows).to_words().copy()
    position = data.draw(st.integers(0, len(words) - 1))
    words[position] = data.draw(st.sampled_from([-(2**63), -1, 0, 1, 2**20, 2**63 - 1]))
    try:
        changed = Run.from_words(words)
    except DbspWcojError:
        return
    if changed.find_damage() == "":
        # Kernels can read the run: all positions are inside, and the rows are sorted.
        columns, weights = changed.read()
        assert columns.shape[1] == changed.rows == len(weights)
        rows = list(zip(*columns.tolist(), strict=True))
        assert rows == sorted(set(rows))
        Run.merged(changed, changed)


@pytest.mark.parametrize("chunk_numbers", [2, 3, 1 << 18])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_equal_or_falling_siblings_are_found_wherever_a_chunk_begins(
    level, chunk_numbers, monkeypatch
):
    monkeypatch.setattr(run, "CHECK_CHUNK_NUMBERS", chunk_numbers)
    rows = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    undamaged = build(rows).to_words()
    entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
    first, size = (
        int(undamaged[entry + run_layout.LEVEL_VALUES]),
        int(undamaged[entry + run_layout.LEVEL_NODES]),
    )
    for position in range(size):
        words = undamaged.copy()
        if position % 3 < 2:  # the node has a right sibling
            words[first + position] = words[first + position + 1]
            assert f"level {level}" in Run.from_words(words).find_damage()
