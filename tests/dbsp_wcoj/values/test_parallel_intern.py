"""Strings that workers look up in slices get the same codes as in one thread."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.values import parallel_intern
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.values.parallel_intern import intern_in_slices
from tests.support.working_threads import working_threads


def strings_of(values: list[str]) -> tuple[np.ndarray, np.ndarray]:
    array = pa.array(values, pa.large_string())
    _, offsets, data = array.buffers()
    bytes_of_values = np.frombuffer(data or b"", np.uint8)
    return np.frombuffer(offsets, np.int64, len(values) + 1), bytes_of_values


VALUES = st.lists(st.sampled_from(["", "a", "b", "ab", "abc", "ba", "c"]), min_size=4, max_size=40)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_the_codes_are_those_of_one_thread(batches, data):
    alone, shared = Interner(), Interner()
    with (
        patch.object(parallel_intern, "MIN_PARALLEL_ROWS", 1),
        patch.object(parallel_intern, "FIRST_STRINGS", 3),
        patch.object(parallel_intern, "MIN_STRINGS_PER_NEW_STRING", 1),
        working_threads(2),
    ):
        for values in batches:
            valid = None
            if data.draw(st.booleans()):
                size = len(values)
                valid = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
            strings = strings_of(values)
            expected = alone.intern(*strings, valid)
            assert intern_in_slices(shared, *strings, valid).tolist() == expected.tolist()
            assert len(shared) == len(alone)
    codes = np.arange(len(alone))
    for one, other in zip(alone.gather(codes), shared.gather(codes), strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("distinct", [3, 50_000])
def test_many_strings_get_the_codes_of_one_thread(distinct):
    numbers = np.random.default_rng(1).integers(0, distinct, 40_000)
    strings = strings_of([f"value {number}" for number in numbers.tolist()])
    expected = Interner().intern(*strings)
    with working_threads(2):
        found = intern_in_slices(Interner(), *strings, None)
    assert found.tolist() == expected.tolist()


def test_a_sweep_keeps_the_strings_that_workers_find():
    names = Interner()
    strings = strings_of([f"value {number}" for number in range(40_000)])
    names.intern(*strings)
    names.begin_sweep()
    with working_threads(2):
        codes = intern_in_slices(names, *strings, None)
    while not names.advance_sweep(10**6)[0]:
        pass
    assert [array.tolist() for array in names.gather(codes)] == [s.tolist() for s in strings]


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), VALUES, st.integers(0, 8), st.data())
def test_a_sweep_keeps_all_codes_of_later_columns(earlier, later, work, data):
    names = Interner()
    for values in earlier:
        names.intern(*strings_of(values))
    if data.draw(st.booleans()):  # a sweep before, so that the codes are not the positions
        kept = data.draw(st.sets(st.integers(0, len(names) - 1)))
        names.begin_sweep().mark(np.array(sorted(kept), np.int64))
        while not names.advance_sweep(100)[0]:
            pass
    names.begin_sweep()
    ended, _ = names.advance_sweep(work)
    with (
        patch.object(parallel_intern, "MIN_PARALLEL_ROWS", 1),
        patch.object(parallel_intern, "FIRST_STRINGS", 1),
        patch.object(parallel_intern, "MIN_STRINGS_PER_NEW_STRING", 1),
        working_threads(2),
    ):
        codes = intern_in_slices(names, *strings_of(later), None)
    while not ended:
        ended, _ = names.advance_sweep(100)
    names._check()
    assert names.gather(codes)[1].tobytes() == "".join(later).encode()
