"""Overlays: a reader sees the first strings of an interner while other threads change it."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.values.interner import ABSENT, Interner
from dbsp_wcoj.values.overlay import InternerOverlay
from tests.dbsp_wcoj.values.test_interner import offsets_and_bytes

texts = st.lists(st.binary(max_size=3), max_size=12)


def decode(interner: Interner, codes: np.ndarray) -> list[bytes]:
    offsets, data = interner.gather(codes)
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


@given(texts, texts, texts, texts, st.data())
def test_an_overlay_equals_an_interner_of_its_own_while_the_shared_one_changes(
    first, later, private, more_private, data
):
    interner, alone = Interner(), Interner()
    interner.intern(*offsets_and_bytes(first))
    alone.intern(*offsets_and_bytes(first))
    length = len(interner)
    first_arena = [array.tolist() for array in interner.arena()]
    overlay = InternerOverlay(interner.share(length))
    for strings in (private, more_private):
        # Strings are added to the shared interner, which may grow, and are removed again.
        interner.intern(
            *offsets_and_bytes(later + [b"%d" % n for n in range(data.draw(st.integers(0, 200)))])
        )
        if data.draw(st.booleans()):
            interner.truncate(data.draw(st.integers(length, len(interner))))
        size = len(strings)
        is_valid = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        valid = np.array(is_valid, bool)
        codes = alone.intern(*offsets_and_bytes(strings), valid)
        assert overlay.intern(*offsets_and_bytes(strings), valid).tolist() == codes.tolist()
        assert len(overlay) == len(alone)
        all_codes = np.array([ABSENT, *range(len(alone))])
        assert decode(overlay, all_codes) == decode(alone, all_codes)
        assert overlay.prefixes(all_codes, 1).tolist() == alone.prefixes(all_codes, 1).tolist()
        assert (
            overlay.find(*offsets_and_bytes(strings)).tolist()
            == alone.find(*offsets_and_bytes(strings)).tolist()
        )
    assert [array.tolist() for array in overlay.arena()] == first_arena
    interner.truncate(length)
    interner._check()


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1)


@given(pairs, pairs)
def test_rows_are_encoded_like_strings(first, private):
    interner, alone = Interner(words=2), Interner(words=2)
    for filled in (interner, alone):
        filled.intern_rows(np.array(first).T)
    overlay = InternerOverlay(interner.share())
    interner.intern_rows(np.array([[7], [7]]))
    rows = np.array(private).T
    assert overlay.intern_rows(rows).tolist() == alone.intern_rows(rows).tolist()
    out = np.empty(len(private), np.int64)
    assert (
        overlay.intern_rows(rows, out) is out and out.tolist() == alone.intern_rows(rows).tolist()
    )
    assert overlay.find_rows(rows).tolist() == alone.find_rows(rows).tolist()
    codes = np.array([-5, *range(len(alone))])
    assert overlay.rows(codes).tolist() == alone.rows(codes).tolist()


def test_the_first_rows_of_an_overlay_give_their_width():
    overlay = InternerOverlay(Interner().share())
    assert overlay.intern_rows(np.array([[7, 7], [1, 2]])).tolist() == [0, 1]
    assert overlay.rows(np.array([1, 0, -5])).tolist() == [[7, 7, -5], [2, 1, -5]]


def test_a_search_for_rows_does_not_give_an_interner_their_width():
    interner = Interner()
    assert interner.find_rows(np.array([[7], [1]])).tolist() == [ABSENT]
    assert interner.intern_rows(np.array([[7], [1], [2]])).tolist() == [0]


def test_only_private_strings_can_be_truncated():
    interner = Interner()
    interner.intern(*offsets_and_bytes([b"a", b"b"]))
    overlay = InternerOverlay(interner.share(1))
    assert overlay.intern(*offsets_and_bytes([b"b", b"a"])).tolist() == [1, 0]
    overlay.truncate(1)
    assert overlay.find(*offsets_and_bytes([b"b"])).tolist() == [ABSENT]
    with pytest.raises(ColumnTypeError, match="keeps the codes below 1"):
        overlay.truncate(0)
    with pytest.raises(ColumnTypeError, match="append to its interner"):
        overlay.append(*offsets_and_bytes([b"c"]))
    with pytest.raises(ColumnTypeError, match=r"code 1 is outside \[0, 0\]"):
        overlay.gather(np.array([1]))
    with pytest.raises(ColumnTypeError, match="length 3"):
        interner.share(3)


def test_strings_are_found_while_another_thread_adds_and_removes_strings():
    interner = Interner()
    first = [b"first %d" % n for n in range(1000)]
    interner.intern(*offsets_and_bytes(first))
    searched = offsets_and_bytes([*first, *(b"later %d" % n for n in range(1000))])
    expected = [*range(1000), *[ABSENT] * 1000]
    stop = threading.Event()

    def change_interner() -> None:
        while not stop.is_set():
            for count in (40, 5000):
                interner.intern(*offsets_and_bytes([b"later %d" % n for n in range(count)]))
                interner.truncate(1000)

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=change_interner)
    thread.start()
    try:
        for _ in range(400):
            overlay = InternerOverlay(interner.share(1000))
            assert overlay.find(*searched).tolist() == expected
            assert overlay.intern(*searched).tolist() == list(range(2000))
            assert decode(overlay, np.array([999, 1000])) == [b"first 999", b"later 0"]
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(switch_interval)
