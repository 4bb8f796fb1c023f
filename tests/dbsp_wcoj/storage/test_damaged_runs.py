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


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("flag", [-1, 1, 2, 3])
def test_a_wrong_width_of_values_is_found(level, flag):
    words = build([(1, 2, 0), (3, 1, 1)]).to_words().copy()
    entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
    words[entry + run_layout.LEVEL_VALUES] += flag * run_layout.NARROW
    try:
        damage = Run.from_words(words).find_damage()
    except DbspWcojError:
        return
    assert (damage == "") == (level == 2 and flag == -1)  # which reads words of 64 bits


@pytest.mark.parametrize("chunk_numbers", [2, 3, 1 << 18])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_equal_or_falling_siblings_are_found_wherever_a_chunk_begins(
    level, chunk_numbers, monkeypatch
):
    monkeypatch.setattr(run, "CHECK_CHUNK_NUMBERS", chunk_numbers)
    rows = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    undamaged = build(rows).to_words()
    for position in range(len(Run.from_words(undamaged).level_values(level))):
        words = undamaged.copy()
        if position % 3 < 2:  # the node has a right sibling
            values = Run.from_words(words).level_values(level)
            values[position] = values[position + 1]
            assert f"level {level}" in Run.from_words(words).find_damage()


WEIGHTS = {"equal": [1] * 40, "different": [1 + n % 3 for n in range(40)]}


def set_header(word, value):
    def change(words):
        words[word] = value

    return change


def clear_directory(words):
    start = words[run_layout.DIRECTORY]
    words[start : start + words[run_layout.DIRECTORY_SIZE] - 1] = 0


def shift_entry(words):
    """Let a bucket in the middle of the directory begin one node later."""
    start, size = words[run_layout.DIRECTORY], words[run_layout.DIRECTORY_SIZE]
    words[start + size // 2] += 1


def zero_weight(words):
    start = words[run_layout.WEIGHT_SUMS]
    words[start + 20] = words[start + 21]


def shift_sums(words):
    start = words[run_layout.WEIGHT_SUMS]
    words[start : start + words[run_layout.ROWS] + 1] += 5


@pytest.mark.parametrize("chunk_numbers", [2, 7, 1 << 18])
@pytest.mark.parametrize("step", [1, 10])  # with a shift of 0, and above
@pytest.mark.parametrize("first", [-(2**63), 100])
@pytest.mark.parametrize(
    ("weights", "change", "part"),
    [
        ("equal", set_header(run_layout.LOWEST_VALUE, 0), "directory"),
        ("equal", set_header(run_layout.LOWEST_VALUE, 101), "directory"),
        ("equal", set_header(run_layout.LOWEST_VALUE, 98), "directory"),
        ("equal", set_header(run_layout.LOWEST_VALUE, 1 - 2**63), "directory"),
        ("equal", set_header(run_layout.DIRECTORY_SHIFT, 1), "directory"),
        ("equal", set_header(run_layout.DIRECTORY_SHIFT, 5), "directory"),
        ("equal", clear_directory, "directory"),
        ("equal", shift_entry, "directory"),
        ("equal", set_header(run_layout.UNIFORM_WEIGHT, 0), "weight"),
        ("equal", set_header(run_layout.UNIFORM_WEIGHT, -(2**63)), "weight"),
        ("equal", set_header(run_layout.MAX_ABS_WEIGHT, 0), "weight"),
        ("different", set_header(run_layout.MAX_ABS_WEIGHT, 2), "weight"),
        ("different", zero_weight, "weight"),
        ("different", shift_sums, "weight"),
    ],
)
def test_a_directory_or_weight_that_gives_wrong_answers_is_found(
    weights, change, part, first, step, chunk_numbers, monkeypatch
):
    monkeypatch.setattr(run, "CHECK_CHUNK_NUMBERS", chunk_numbers)
    rows = [(first + step * n, n) for n in range(40)]
    undamaged = Run.of(ZSet.from_rows(rows, WEIGHTS[weights]), np.arange(2))
    assert undamaged.buffer[run_layout.DIRECTORY]
    words = undamaged.to_words().copy()
    assert Run.from_words(words).find_damage() == ""
    change(words)
    assert part in Run.from_words(words).find_damage()


def test_a_bitmap_without_a_directory_or_with_a_large_shift_is_found():
    undamaged = Run.of(ZSet.from_columns([np.arange(1000)]), np.arange(1)).to_words()
    assert undamaged[run_layout.BITMAP]
    for word, value in ((run_layout.DIRECTORY, 0), (run_layout.DIRECTORY_SHIFT, 62)):
        words = undamaged.copy()
        words[word] = value
        assert Run.from_words(words).find_damage()


@given(st.integers(0, 63), st.lists(st.integers(0, 200), min_size=40, unique=True), st.booleans())
def test_runs_over_any_range_of_values_have_no_damage(shift, numbers, is_highest):
    lowest = 2**63 - 1 if is_highest else -(2**63)
    distances = {number << shift for number in numbers if number << shift < 2**64}
    values = [lowest - d if is_highest else lowest + d for d in distances]
    zset = ZSet.from_rows([(value, 0) for value in values])
    assert Run.of(zset, np.arange(2)).find_damage() == ""
