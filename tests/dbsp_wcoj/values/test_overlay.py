"""Overlays: a reader sees the first strings of a table, whatever other threads add or remove."""

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


def decoded(table: Interner, codes: np.ndarray) -> list[bytes]:
    offsets, data = table.gather(codes)
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


@given(texts, texts, texts, texts, st.data())
def test_an_overlay_is_a_table_of_its_own_whatever_happens_to_the_one_below(
    first, later, mine, more, data
):
    table, alone = Interner(), Interner()
    table.intern(*offsets_and_bytes(first))
    alone.intern(*offsets_and_bytes(first))
    length = len(table)
    before = [part.tolist() for part in table.arena()]
    overlay = InternerOverlay(table, length)
    for strings in (mine, more):
        # The table goes on: strings are added, grown over, and taken back.
        table.intern(
            *offsets_and_bytes(later + [b"%d" % n for n in range(data.draw(st.integers(0, 200)))])
        )
        if data.draw(st.booleans()):
            table.truncate(data.draw(st.integers(length, len(table))))
        size = len(strings)
        drawn = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        valid = np.array(drawn, bool)
        codes = alone.intern(*offsets_and_bytes(strings), valid)
        assert overlay.intern(*offsets_and_bytes(strings), valid).tolist() == codes.tolist()
        assert len(overlay) == len(alone)
        everything = np.array([ABSENT, *range(len(alone))])
        assert decoded(overlay, everything) == decoded(alone, everything)
        assert overlay.prefixes(everything, 1).tolist() == alone.prefixes(everything, 1).tolist()
        assert (
            overlay.find(*offsets_and_bytes(strings)).tolist()
            == alone.find(*offsets_and_bytes(strings)).tolist()
        )
    assert [part.tolist() for part in overlay.arena()] == before
    table.truncate(length)
    table._check()


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1)


@given(pairs, pairs)
def test_rows_are_coded_as_strings_are(first, mine):
    table, alone = Interner(words=2), Interner(words=2)
    for one in (table, alone):
        one.intern_rows(np.array(first).T)
    overlay = InternerOverlay(table, len(table))
    table.intern_rows(np.array([[7], [7]]))
    rows = np.array(mine).T
    assert overlay.intern_rows(rows).tolist() == alone.intern_rows(rows).tolist()
    assert overlay.find_rows(rows).tolist() == alone.find_rows(rows).tolist()
    codes = np.array([-5, *range(len(alone))])
    assert overlay.rows(codes).tolist() == alone.rows(codes).tolist()


def test_only_private_strings_can_be_truncated():
    table = Interner()
    table.intern(*offsets_and_bytes([b"a", b"b"]))
    overlay = InternerOverlay(table, 1)
    assert overlay.intern(*offsets_and_bytes([b"b", b"a"])).tolist() == [1, 0]
    overlay.truncate(1)
    assert overlay.find(*offsets_and_bytes([b"b"])).tolist() == [ABSENT]
    with pytest.raises(ColumnTypeError, match="keeps the first 1 strings"):
        overlay.truncate(0)
    with pytest.raises(ColumnTypeError, match="append to its interner"):
        overlay.append(*offsets_and_bytes([b"c"]))
    with pytest.raises(ColumnTypeError, match=r"code 1 is outside \[0, 0\]"):
        overlay.gather(np.array([1]))
    with pytest.raises(ColumnTypeError, match="length 3"):
        InternerOverlay(table, 3)


def test_strings_are_found_while_another_thread_adds_and_takes_back():
    table = Interner()
    first = [b"first %d" % n for n in range(1000)]
    table.intern(*offsets_and_bytes(first))
    asked = offsets_and_bytes([*first, *(b"later %d" % n for n in range(1000))])
    expected = [*range(1000), *[ABSENT] * 1000]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for count in (40, 5000):
                table.intern(*offsets_and_bytes([b"later %d" % n for n in range(count)]))
                table.truncate(1000)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(400):
            overlay = InternerOverlay(table, 1000)
            assert overlay.find(*asked).tolist() == expected
            assert overlay.intern(*asked).tolist() == list(range(2000))
            assert decoded(overlay, np.array([999, 1000])) == [b"first 999", b"later 0"]
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
