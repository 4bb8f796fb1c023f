"""Interners against a Python dict of byte strings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.errors import ArityError, ColumnTypeError
from dbsp_wcoj.kernels.values import intern as intern_kernels
from dbsp_wcoj.values import growth
from dbsp_wcoj.values import interner as interner_module
from dbsp_wcoj.values.array_memory import ArrayMemory
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.interner import ABSENT, Interner
from tests.generators.strategies import LAW
from tests.support.interrupts import InterruptedAfter

# Similar strings, with lengths around 4, 8 and 16, because these are hashed in different ways.
WORDS = st.one_of(
    st.binary(max_size=3),
    st.builds(
        lambda size, position, byte: (b"a" * position + bytes([byte]) + b"a" * size)[:size],
        st.sampled_from([0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 25, 40]),
        st.integers(0, 40),
        st.sampled_from([0, 97, 98, 255]),
    ),
)
COLUMNS = st.lists(WORDS, max_size=80)


def offsets_and_bytes(strings: list[bytes], *, leading: bytes = b"", dtype: type = np.int64):
    """Concatenate the strings after some leading bytes; return their offsets and all bytes."""
    ends = np.cumsum([len(leading), *map(len, strings)]).astype(dtype)
    return ends, np.frombuffer(leading + b"".join(strings) + b"!", np.uint8)


def split_strings(offsets: np.ndarray, data: np.ndarray, codes: object = None) -> list[bytes]:
    ends = offsets.tolist()
    return [data.tobytes()[start:end] for start, end in itertools.pairwise(ends)]


@settings(LAW)
@given(st.lists(st.tuples(COLUMNS, st.binary(max_size=3), st.booleans()), max_size=4))
def test_codes_are_those_of_a_dict_in_order_of_first_appearance(columns):
    interner, model = Interner(), {}
    for strings, leading, is_int32 in columns:
        arguments = offsets_and_bytes(
            strings, leading=leading, dtype=np.int32 if is_int32 else np.int64
        )
        known_codes = [model.get(string, ABSENT) for string in strings]
        assert interner.find(*arguments).tolist() == known_codes
        expected = [model.setdefault(string, len(model)) for string in strings]
        assert interner.intern(*arguments).tolist() == expected
        interner._check()
        assert len(interner) == len(model)
    assert split_strings(*interner.arena()) == list(model)
    assert split_strings(*interner.arena(len(model) // 2)) == list(model)[len(model) // 2 :]


@settings(LAW)
@given(COLUMNS, st.data())
def test_masked_strings_are_neither_added_nor_found(strings, data):
    valid = data.draw(st.lists(st.booleans(), min_size=len(strings), max_size=len(strings)))
    interner, model = Interner(), {}
    codes = interner.intern(*offsets_and_bytes(strings), np.array(valid, bool))
    pairs = zip(strings, valid, strict=True)
    assert codes.tolist() == [
        model.setdefault(string, len(model)) if ok else ABSENT for string, ok in pairs
    ]
    interner._check()


@settings(LAW)
@given(COLUMNS, st.data())
def test_codes_decode_to_their_strings_and_negative_ones_to_the_empty_string(strings, data):
    interner = Interner()
    string_codes = interner.intern(*offsets_and_bytes(strings)).tolist()
    codes = data.draw(st.lists(st.sampled_from([ABSENT, -(2**63), *string_codes]), max_size=50))
    by_code = dict(zip(string_codes, strings, strict=True))
    assert split_strings(*interner.gather(np.array(codes, np.int64))) == [
        by_code.get(code, b"") for code in codes
    ]


@settings(LAW)
@given(COLUMNS, st.sampled_from([0, 1, 8, 16]))
def test_prefixes_order_as_eight_bytes_from_a_start_on(strings, start):
    interner = Interner()
    keys = interner.prefixes(interner.intern(*offsets_and_bytes(strings)), start).tolist()
    ranks = [string[start : start + 8].ljust(8, b"\0") for string in strings]
    for key, rank in zip(keys, ranks, strict=True):
        assert [key < other for other in keys] == [rank < other for other in ranks]


@settings(LAW)
@given(COLUMNS, COLUMNS, COLUMNS)
def test_after_truncation_codes_are_assigned_again(first, truncated, later):
    interner, model = Interner(), {}
    for string in first:
        model.setdefault(string, len(model))
    interner.intern(*offsets_and_bytes(first))
    length = len(interner)
    interner.intern(*offsets_and_bytes(truncated))
    interner.truncate(length)
    interner._check()
    assert split_strings(*interner.arena()) == list(model)
    assert interner.intern(*offsets_and_bytes(later)).tolist() == [
        model.setdefault(string, len(model)) for string in later
    ]
    interner._check()


@settings(LAW)
@given(st.data())
def test_rows_have_the_codes_of_a_dict_of_tuples(data):
    width = data.draw(st.integers(0, 4))
    interner, model = Interner(words=width), {}
    value = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.lists(st.tuples(*[value] * width), max_size=40))
        columns = np.array(rows, np.int64).reshape(len(rows), width).T
        assert interner.find_rows(columns).tolist() == [model.get(row, ABSENT) for row in rows]
        codes = np.empty(len(rows), np.int64)
        assert interner.intern_rows(columns, codes) is codes
        assert codes.tolist() == [model.setdefault(row, len(model)) for row in rows]
        np.testing.assert_array_equal(interner.rows(codes), columns)
        interner._check()
    nulls = interner.rows(np.array([-(2**63)]))
    assert nulls.shape == (width, 1) and (nulls == -(2**63)).all()


@settings(LAW)
@given(st.data())
def test_rows_added_in_slices_have_the_codes_of_rows_added_at_once(data):
    known, rows = (
        np.array(data.draw(st.lists(st.tuples(value, value), max_size=60)), np.int64).reshape(-1, 2)
        for value in [st.integers(0, 5)] * 2
    )
    whole, sliced = Interner(words=2), Interner(words=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interner_module, "INTERNED_ROWS", data.draw(st.integers(1, 7)))
        for columns in (known.T, rows.T):
            assert (
                sliced.intern_rows(columns).tolist()
                == whole.intern(*whole._rows_to_strings(columns)).tolist()
            )
            sliced._check()


def test_rows_are_all_removed_if_a_later_slice_fails(monkeypatch):
    monkeypatch.setattr(interner_module, "INTERNED_ROWS", 2)
    pairs = Interner(words=2)
    pairs.intern_rows(np.array([[9], [9]]))
    add, calls = Interner._add, []

    def fail_at_the_second_slice(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise MemoryError
        return add(self, *arguments)

    monkeypatch.setattr(Interner, "_add", fail_at_the_second_slice)
    with pytest.raises(MemoryError):
        pairs.intern_rows(np.array([[1, 2, 3, 4], [1, 2, 3, 4]]))
    pairs._check()
    assert pairs.string_count == 1
    assert pairs.find_rows(np.array([[9, 1], [9, 1]])).tolist() == [0, ABSENT]


def test_a_bulk_of_rows_does_not_double_its_arrays_again_and_again():
    rows = np.arange(1 << 21).reshape(1, -1)
    pairs = Interner(words=1)
    allocated = []
    new_words = ArrayMemory.new_words
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ArrayMemory,
            "new_words",
            lambda memory, count: allocated.append(count) or new_words(memory, count),
        )
        pairs.intern_rows(rows)
    assert sum(allocated) < 2 * rows.shape[1]
    assert pairs.nbytes < 60 * rows.shape[1]
    repeated = Interner(words=1)
    repeated.intern_rows(rows % (1 << 18))
    assert repeated.nbytes < 8 * 60 * (1 << 18)


def test_many_strings_grow_the_table_and_keep_their_codes():
    numbers = np.random.default_rng(0).permutation(100_000)
    strings = [b"%d" % number for number in numbers]
    interner = Interner()
    assert (interner.intern(*offsets_and_bytes(strings)) == np.arange(100_000)).all()
    assert (interner.intern(*offsets_and_bytes(strings[::-1])) == np.arange(100_000)[::-1]).all()
    interner._check()
    assert interner.nbytes < 60 * 100_000


@pytest.mark.parametrize("loaded", [0, 900, 4_000, 14_300])
def test_no_insertion_copies_much_more_than_it_adds(loaded, monkeypatch):
    """A load, then single strings, some of which are removed again as by an abandoned step."""
    copied = 0
    rebuild, advance = intern_kernels.rebuild_slots, growth.ArrayCopy.advance
    advance_slots = growth.SlotsCopy.advance

    def count_cleared(copy, bounds, arena, size, count):
        nonlocal copied
        cleared_before = copy.cleared
        is_complete = advance_slots(copy, bounds, arena, size, count)
        assert copy.cleared == len(copy.slots) or not copy.copied
        copied += (copy.cleared - cleared_before) // growth.CLEARED_SLOTS
        return is_complete

    def count_rebuilt(slots, bounds, arena, begin, end):
        nonlocal copied
        copied += end - begin
        rebuild(slots, bounds, arena, begin, end)

    def count_copied(copy, source, end, count):
        nonlocal copied
        copied_before = copy.copied
        is_complete = advance(copy, source, end, count)
        copied += (copy.copied - copied_before) // (1 if copy.array.dtype == np.int64 else 8)
        return is_complete

    monkeypatch.setattr(intern_kernels, "rebuild_slots", count_rebuilt)
    monkeypatch.setattr(growth.ArrayCopy, "advance", count_copied)
    monkeypatch.setattr(growth.SlotsCopy, "advance", count_cleared)
    monkeypatch.setattr(growth, "MIN_COPIED_STRINGS", 1)
    monkeypatch.setattr(growth, "MIN_COPIED_BYTES", 1)
    interner = Interner()
    strings = [b"string%d" % number for number in range(loaded)]
    interner.load([CodedStrings(*offsets_and_bytes(strings), np.arange(loaded))])
    largest, table_bytes = 0, interner.nbytes
    for number in range(2_500):
        if number % 10 == 3:
            length = len(interner)
            interner.intern(*offsets_and_bytes([b"removed%d" % n for n in range(3)]))
            interner.truncate(length)
        copied = 0
        interner.intern(*offsets_and_bytes([b"new%d" % number]))
        strings.append(b"new%d" % number)
        largest = max(largest, copied)
        if number % 100 == 0:
            interner._check()
    assert interner.nbytes > 1.2 * table_bytes, "no array has grown"
    assert largest <= 3 * (growth.SPEED + 1) + growth.SPEED
    interner._check()
    assert split_strings(*interner.arena()) == strings


@pytest.mark.parametrize("size", [4, 8, 12, 16, 24])
def test_similar_strings_do_not_cluster_in_the_slots(size):
    """Strings that contain a counter are spread over the slots, so probes are short."""
    numbers = np.arange(60_000, dtype=np.uint64)
    for position in range(0, size - 3, 4):
        rows = np.zeros((len(numbers), size), np.uint8)
        rows[:, position : position + 4] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
        interner = Interner()
        interner.intern(np.arange(len(rows) + 1) * size, rows.reshape(-1))
        is_used = interner._slots != 0
        # The positions where runs of used slots begin and end.
        edges = np.flatnonzero(np.diff(np.concatenate(([0], is_used, [0])).astype(np.int8)))
        assert (edges[1::2] - edges[::2]).max() < 150


def test_rows_are_added_without_the_memory_that_would_be_reserved_for_later_ones(monkeypatch):
    interner = Interner(words=2)
    monkeypatch.setattr(interner_module, "INTERNED_ROWS", 2)

    def no_memory(*arguments):
        raise MemoryError

    monkeypatch.setattr(Interner, "_reserve_rows", no_memory)
    columns = np.array([[1, 2, 1, 3, 2], [5, 5, 5, 5, 5]])
    assert interner.intern_rows(columns).tolist() == [0, 1, 0, 2, 1]
    interner._check()


def test_an_error_during_an_insertion_does_not_change_the_interner(monkeypatch):
    interner = Interner()
    interner.intern(*offsets_and_bytes([b"a", b"b"]))

    def no_memory(*arguments):
        raise MemoryError

    monkeypatch.setattr(intern_kernels, "rebuild_slots", no_memory)
    with pytest.raises(MemoryError):
        interner.intern(*offsets_and_bytes([b"%d" % number for number in range(1000)]))
    monkeypatch.undo()
    interner._check()
    assert split_strings(*interner.arena()) == [b"a", b"b"]
    assert interner.intern(*offsets_and_bytes([b"7", b"b"])).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 1], "do not ascend"),
        ([-1, 2], "do not ascend"),
        ([0, 9], "9 do not ascend within the 4 bytes"),
        ([], "n \\+ 1 offsets"),
    ],
)
def test_offsets_that_do_not_fit_the_bytes_are_refused(offsets, message):
    interner = Interner()
    with pytest.raises(ColumnTypeError, match=message):
        interner.intern(np.array(offsets, np.int64), np.zeros(4, np.uint8))
    assert len(interner) == 0


def test_other_misuse_is_refused():
    interner = Interner()
    with pytest.raises(ColumnTypeError, match="uint8"):
        interner.intern(np.array([0, 1]), np.array([1.5]))
    with pytest.raises(ColumnTypeError, match="mask has shape"):
        interner.intern(*offsets_and_bytes([b"a"]), np.array([True, True]))
    with pytest.raises(ColumnTypeError, match=r"code 0 is outside \[0, -1\]"):
        interner.gather(np.array([0]))
    with pytest.raises(ColumnTypeError, match="must be from 0 to 0"):
        interner.truncate(1)
    with pytest.raises(ArityError, match="unknown"):
        interner.rows(np.array([], np.int64))
    pairs = Interner(words=2)
    with pytest.raises(ArityError, match=r"\(2, rows\)"):
        pairs.intern_rows(np.zeros((3, 1), np.int64))
    assert repr(pairs) == "<Interner of 0 strings, 0 bytes>"


def test_strings_of_other_lengths_are_not_loaded_into_an_interner_of_rows():
    pairs, copy = Interner(words=2), Interner(words=2)
    pairs.intern_rows(np.array([[7], [1]]))
    others = CodedStrings(np.array([0, 16, 24]), np.zeros(24, np.uint8), np.arange(2))
    with pytest.raises(ColumnTypeError, match="strings of 8 to 16 bytes for rows of 16"):
        copy.load([others])
    assert len(copy) == 0
    copy.load([pairs.arena()])
    assert copy.rows(np.array([0])).tolist() == [[7], [1]]
    copy._check()


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
@pytest.mark.parametrize("added", [0, 1, 31, 32, 33, 5000])
def test_an_interner_grows_for_all_strings_that_are_loaded_at_once(size, added):
    words = [f"word {i}".encode() for i in range(size + added)]
    interner, parts = Interner(), []
    for first, part in ((0, words[:size]), (size, words[size:])):
        ends = np.cumsum([0, *map(len, part)])
        codes = np.arange(first, first + len(part))
        parts.append(CodedStrings(ends, np.frombuffer(b"".join(part), np.uint8), codes))
    interner.load(parts)
    interner._check()
    assert len(interner) == size + added


def test_an_interrupt_right_after_a_kernel_does_not_change_the_interner(monkeypatch):
    monkeypatch.setattr(growth, "MIN_COPIED_STRINGS", 8)
    interrupted = set()
    # A kernel, and how often an insertion calls it before the interrupt.
    points = [("intern", 1), ("intern", 2), ("rebuild_slots", 1)]
    # With some of these numbers of strings, the arrays are full, or larger ones are being filled.
    for known, (name, calls) in itertools.product(range(2, 70), points):
        interner, strings = Interner(), [b"%d" % number for number in range(known)]
        for string in strings:
            interner.intern(*offsets_and_bytes([string]))
        with monkeypatch.context() as patch:
            kernel = InterruptedAfter(getattr(intern_kernels, name), calls)
            patch.setattr(intern_kernels, name, kernel)
            try:
                interner.intern(*offsets_and_bytes([b"x", b"0", b"z" * 5000]))
                continue  # the insertion does not call the kernel as often
            except KeyboardInterrupt:
                interrupted.add((name, calls))
        interner._check()
        assert split_strings(*interner.arena()) == strings
        new = [b"x", b"y", *[b"new %d" % number for number in range(100)]]
        for first in range(0, len(new), 3):
            interner.intern(*offsets_and_bytes(new[first : first + 3]))
            interner._check()
        assert split_strings(*interner.arena()) == strings + new
    assert interrupted == set(points)


def test_an_interrupt_while_the_kernel_of_a_truncation_is_loaded_removes_nothing(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    interner = Interner()
    interner.intern(*offsets_and_bytes([b"a", b"b", b"c"]))
    with monkeypatch.context() as patch:
        patch.setattr(intern_kernels, "remove_latest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            interner.truncate(1)
    interner._check()
    assert interner.intern(*offsets_and_bytes([b"c", b"d"])).tolist() == [2, 3]


def test_a_truncation_that_was_interrupted_can_be_repeated(monkeypatch):
    interner = Interner()
    interner.intern(*offsets_and_bytes([b"a", b"b", b"c"]))
    kernel = InterruptedAfter(intern_kernels.remove_latest, 2)  # the first call removes nothing
    monkeypatch.setattr(intern_kernels, "remove_latest", kernel)
    with pytest.raises(KeyboardInterrupt):
        interner.truncate(1)
    monkeypatch.undo()
    interner._check()
    interner.truncate(1)
    interner._check()
    assert interner.intern(*offsets_and_bytes([b"b", b"a"])).tolist() == [1, 0]
