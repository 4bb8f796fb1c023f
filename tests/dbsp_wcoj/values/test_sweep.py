"""Sweeps of interners, against a dict: kept strings keep their codes, and no code is used twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.kernels.values import sweep as sweep_kernels
from dbsp_wcoj.values.array_memory import ArrayMemory, is_external
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.growth import CLEARED_SLOTS
from dbsp_wcoj.values.interner import ABSENT, Interner
from dbsp_wcoj.values.overlay import InternerOverlay
from tests.dbsp_wcoj.values.test_interner import offsets_and_bytes, split_strings
from tests.generators.strategies import LAW
from tests.support.interrupts import InterruptedAfter

STRINGS = [b"%d" % n * (1 + n % 5) for n in range(40)]
TEXTS = st.lists(st.sampled_from(STRINGS), max_size=25)


def external_words(count: int) -> np.ndarray:
    """Return words that do not own their memory, as those of a map."""
    assert count > 0
    return np.frombuffer(bytearray(8 * count), np.int64)


class Model:
    """An interner, the codes that it must have, and the strings that a running sweep must keep."""

    def __init__(self) -> None:
        self.interner = Interner()
        self.codes: dict[bytes, int] = {}
        self.kept: set[bytes] | None = None
        self.next_code = 0

    def intern(self, strings: list[bytes]) -> None:
        expected = []
        for string in strings:
            if string not in self.codes:
                self.codes[string], self.next_code = self.next_code, self.next_code + 1
            expected.append(self.codes[string])
        assert self.interner.intern(*offsets_and_bytes(strings)).tolist() == expected
        if self.kept is not None:
            self.kept.update(strings)

    def abort(self, strings: list[bytes]) -> None:
        """Encode strings and remove the new ones again, as a step does that fails."""
        before, length = dict(self.codes), self.next_code
        kept = None if self.kept is None else set(self.kept)
        self.intern(strings)
        self.interner.truncate(length)
        self.codes, self.next_code = before, length
        if kept is not None:  # the sweep may also keep what the failed step has encoded
            assert self.kept is not None
            self.kept = {string for string in self.kept if string in before}

    def begin(self, live: list[bytes]) -> None:
        self.kept = {string for string in live if string in self.codes}
        sweep = self.interner.begin_sweep()
        codes = [self.codes[string] for string in self.kept]
        assert sorted(sweep.mark(np.array([ABSENT, *codes, 10**6]))) == sorted(codes)
        assert not len(sweep.mark(np.array(codes, np.int64)))

    def advance(self, work: int) -> None:
        is_complete, remaining = self.interner.advance_sweep(work)
        assert remaining <= work
        if not is_complete or self.kept is None:
            return
        dead = self.codes.keys() - self.kept
        size, dead_bytes = len(self.codes), sum(map(len, dead))
        if self.interner.string_count < size:
            self.codes = {s: code for s, code in self.codes.items() if s not in dead}
        else:
            all_bytes = sum(map(len, self.codes))
            assert 4 * len(dead) <= size + 4 * 25 and 4 * dead_bytes <= all_bytes + 4 * 25 * 10
        self.kept = None

    def move(self, places: tuple[bool, bool]) -> None:
        """Move strings or slots to other memory; later arrays are made there, too."""
        external = ArrayMemory(*(external_words if is_moved else None for is_moved in places))
        self.interner.move(external)
        assert not (places[0] and self.interner.string_heap_bytes)
        assert not (places[1] and self.interner.slot_heap_bytes)

    def check(self) -> None:
        interner = self.interner
        interner._check()
        assert len(interner) == self.next_code
        strings = list(self.codes)
        codes = np.array([*self.codes.values(), ABSENT], np.int64)
        assert split_strings(*interner.gather(codes)) == [*strings, b""]
        assert interner.find(*offsets_and_bytes(STRINGS)).tolist() == [
            self.codes.get(string, ABSENT) for string in STRINGS
        ]
        parts = list(interner.slices(3))
        assert [code for part in parts for code in part.codes] == sorted(self.codes.values())
        texts = [text for part in parts for text in split_strings(*part)]
        assert texts == sorted(self.codes, key=self.codes.__getitem__)
        arena = interner.arena()
        assert dict(zip(split_strings(*arena), arena.codes.tolist(), strict=True)) == self.codes


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("intern"), TEXTS),
        st.tuples(st.just("abort"), TEXTS),
        st.tuples(st.just("begin"), TEXTS),
        st.tuples(st.just("advance"), st.integers(0, 30)),
        st.tuples(st.just("read"), TEXTS),
        st.tuples(st.just("move"), st.tuples(st.booleans(), st.booleans())),
    ),
    max_size=25,
)


@settings(LAW)
@given(OPERATIONS)
def test_a_sweep_keeps_marked_and_encoded_strings_with_their_codes(operations):
    model = Model()
    readers: list[tuple[InternerOverlay, dict[bytes, int]]] = []
    for name, argument in operations:
        if name == "read":
            readers.append((InternerOverlay(model.interner.share()), dict(model.codes)))
        elif name != "begin" or model.kept is None:
            getattr(model, name)(argument)
        model.check()
    for overlay, codes in readers:
        length = len(overlay)
        assert overlay.find(*offsets_and_bytes(STRINGS)).tolist() == [
            codes.get(string, ABSENT) for string in STRINGS
        ]
        new = [string for string in STRINGS if string not in codes]
        assert overlay.intern(*offsets_and_bytes(new)).tolist() == [
            *range(length, length + len(new))
        ]
        all_codes = {**codes, **{string: length + k for k, string in enumerate(new)}}
        gathered = overlay.gather(np.array(list(all_codes.values()), np.int64))
        assert split_strings(*gathered) == list(all_codes)
        shared = overlay.arena()
        assert dict(zip(split_strings(*shared), shared.codes.tolist(), strict=True)) == codes


@settings(LAW)
@given(OPERATIONS)
def test_loaded_strings_have_the_codes_that_were_stored(operations):
    model, copy = Model(), Interner()
    for name, argument in operations:
        if name == "move":
            copy.move(ArrayMemory(*(external_words if is_moved else None for is_moved in argument)))
        elif name in ("intern", "advance") or (name == "begin" and model.kept is None):
            getattr(model, name)(argument)
    parts = list(model.interner.slices(3))
    copy.load(parts, len(model.interner))
    copy._check()
    model.interner, model.kept = copy, None
    model.check()
    model.intern(STRINGS)
    model.check()


@pytest.mark.parametrize("growth", ["string_arrays", "slot_arrays"])
def test_arrays_that_grow_are_moved_with_the_strings(growth):
    interner, memory = Interner(), ArrayMemory(external_words, external_words)
    strings, is_moved = [], False
    for first in range(0, 40_000, 50):
        new = [b"string %d" % n for n in range(first, first + 50)]
        strings += new
        interner.intern(*offsets_and_bytes(new))
        if not is_moved and getattr(interner._growth, growth) and first > 10_000:
            fixed = interner.heap_bytes - interner._code_map.directory.nbytes
            assert interner.string_heap_bytes + interner.slot_heap_bytes > fixed
            interner.move(memory)
            is_moved = True
        if is_moved:
            assert interner.string_heap_bytes == interner.slot_heap_bytes == 0
    assert is_moved
    interner._check()
    assert split_strings(*interner.gather(np.arange(len(strings)))) == strings


def test_a_removed_code_is_an_error():
    interner = Interner()
    codes = interner.intern(*offsets_and_bytes(STRINGS))
    interner.begin_sweep().mark(codes[:1])
    interner.advance_sweep(1000)
    with pytest.raises(ColumnTypeError, match=r"code 7 of <Interner of 1 strings.* was removed"):
        interner.gather(np.array([0, 7]))
    with pytest.raises(ColumnTypeError, match=r"length 3 .* must be from 40 to 40"):
        interner.truncate(3)


def coded_strings(strings: list[bytes], codes: list[int]) -> CodedStrings:
    offsets, data = offsets_and_bytes(strings)
    return CodedStrings(offsets, data[:-1], np.array(codes, np.int64))


def test_a_string_that_was_stored_twice_gets_its_last_code():
    interner = Interner()
    strings, codes = [b"a", b"b", b"a", b"c", b"b"], [0, 3, 4, 7, 9]
    for ends in ([5], [2, 5], [1, 2, 2, 3, 4, 5]):  # in one part or several
        parts = [
            coded_strings(strings[first:end], codes[first:end])
            for first, end in pairwise([0, *ends])
        ]
        interner = Interner()
        interner.load(parts, next_code=20)
        interner._check()
        searched = offsets_and_bytes([b"a", b"b", b"c", b"new"])
        assert interner.intern(*searched).tolist() == [4, 9, 7, 20]


@pytest.mark.parametrize("codes", [[3, 3], [4, 1], [-1, 0], [0]])
def test_only_ascending_codes_are_loaded_into_an_empty_interner(codes):
    interner = Interner()
    with pytest.raises(ColumnTypeError, match="load ascending codes"):
        interner.load([coded_strings([b"a", b"b"], codes)])
    interner.load([coded_strings([b"a"], [5])])
    with pytest.raises(ColumnTypeError, match="into an empty interner"):
        interner.load([coded_strings([b"b"], [6])])
    with pytest.raises(ColumnTypeError, match="load its interner"):
        InternerOverlay(interner.share()).load([coded_strings([b"b"], [6])])


def test_the_hash_of_a_string_does_not_depend_on_its_code():
    first, second = Interner(), Interner()
    codes = first.intern(*offsets_and_bytes(STRINGS))
    other_codes = second.intern(*offsets_and_bytes(STRINGS[::-1]))[::-1].copy()
    hashes = first.hashes(codes).tolist()
    assert hashes == second.hashes(other_codes).tolist()
    assert len(set(hashes)) == len(STRINGS)
    overlay = InternerOverlay(first.share(5))
    assert overlay.hashes(overlay.intern(*offsets_and_bytes(STRINGS))).tolist() == hashes


def test_memory_and_work_follow_the_live_strings():
    interner, live, window = Interner(), [], 1000
    largest = 0
    for step in range(200):
        strings = [b"string %d" % n for n in range(100 * step, 100 * step + 100)]
        live = [*live, *interner.intern(*offsets_and_bytes(strings)).tolist()][-window:]
        if step % 20 == 19:
            interner.begin_sweep().mark(np.array(live))
        interner.advance_sweep(work=800)
        largest = max(largest, interner.string_count)
    fresh = Interner()
    fresh.intern(*offsets_and_bytes(split_strings(*interner.gather(np.array(live)))))
    assert largest <= 3.5 * window
    assert interner.nbytes <= 4 * fresh.nbytes + (1 << 16)


def test_the_new_hash_table_is_cleared_in_slices_before_strings_are_copied():
    """The first write to new memory takes time, and strings are anywhere in the table."""
    interner, work = Interner(), 100
    codes = interner.intern(*offsets_and_bytes([b"string %d" % n for n in range(20_000)]))
    sweep = interner.begin_sweep()
    sweep.mark(codes[::2])
    slices, cleared = 0, 0
    while not interner.advance_sweep(work)[0]:
        target = sweep._target
        if target is not None:
            assert target._slots.cleared - cleared <= CLEARED_SLOTS * work
            cleared = target._slots.cleared
            assert target.is_cleared or target.size == 0
            slices += 1
    assert slices > len(interner._slots) / (CLEARED_SLOTS * work)
    interner._check()
    assert interner.string_count == 10_000


def begin_copy(model: Model) -> None:
    """Sweep all strings but the last, until a part of them is copied or passed."""
    model.intern(STRINGS)
    model.begin(STRINGS[-1:])
    work = 0
    while model.interner._sweep._cursors[2] < 5:
        model.advance(1)
        work += 1
        assert work < 10_000
    assert model.interner._sweep is not None


def test_a_string_that_is_encoded_again_after_a_failed_attempt_is_not_swept(monkeypatch):
    model = Model()
    begin_copy(model)

    def no_memory(*arguments):
        raise MemoryError

    monkeypatch.setattr(np, "unique", no_memory)
    with pytest.raises(MemoryError):
        model.interner.intern(*offsets_and_bytes(STRINGS[:2]))
    monkeypatch.undo()
    model.intern(STRINGS[:2])
    while model.kept is not None:
        model.advance(5)
    model.check()
    assert set(model.codes) == {*STRINGS[:2], STRINGS[-1]}


def test_an_interrupt_during_the_copy_ends_the_sweep_without_a_change(monkeypatch):
    model = Model()
    begin_copy(model)
    kernel = InterruptedAfter(sweep_kernels.copy_live)
    monkeypatch.setattr(sweep_kernels, "copy_live", kernel)
    with pytest.raises(KeyboardInterrupt):
        model.interner.advance_sweep(5)
    monkeypatch.undo()
    assert model.interner.advance_sweep(5) == (True, 5)
    model.kept = None
    model.check()


def test_the_codes_that_a_sweep_leaves_are_counted_and_can_be_moved():
    interner = Interner()
    interner.intern(*offsets_and_bytes(STRINGS))
    interner.begin_sweep().mark(np.array([1, 3]))
    while not interner.advance_sweep(10)[0]:
        pass
    codes = interner._code_map.codes
    assert codes.tolist() == [1, 3]
    assert not is_external(codes)
    interner.move(ArrayMemory(external_words, external_words))
    assert is_external(interner._code_map.codes)
