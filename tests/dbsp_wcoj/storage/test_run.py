"""Runs: words of a run are read back as the same run, and sums of runs have the summed rows."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DbspWcojError, ZSet
from dbsp_wcoj.kernels.memory import load
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.search import root_find
from dbsp_wcoj.storage import run as run_module
from dbsp_wcoj.storage.run import MAX_SINGLE_CALL_ROWS, Merge, Run
from dbsp_wcoj.zset import sort_scratch
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add


@numba.njit
def find_children(run, values):
    """Return, for each value of the first column, whether it is there, and its range of rows."""
    found = np.zeros((len(values), 3), np.int64)
    nodes = load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES)
    offsets = run + 8 * load(run, run_layout.LEVEL_HEADERS + run_layout.LEVEL_OFFSETS)
    for index in range(len(values)):
        node, is_found = root_find(run, 0, nodes, values[index])
        if is_found:
            found[index] = 1, load(offsets, node), load(offsets, node + 1)
    return found


def build(delta: dict, arity: int = 2) -> Run:
    return Run.of(zset(delta, arity=arity), np.arange(arity))


def rows_of(run: Run) -> dict:
    columns, weights = run.read()
    return dict(zip(zip(*columns.tolist(), strict=True), weights.tolist(), strict=True))


def read_copy(words: np.ndarray) -> Run:
    """Read a run from a copy of the words, as from a private memory map."""
    return Run.from_words(np.frombuffer(bytearray(words.tobytes()), np.int64))


@LAW
@given(st.data())
def test_a_packed_run_has_no_gaps_and_the_same_rows(data):
    arity = data.draw(st.integers(1, 3))
    domain = data.draw(st.sampled_from(DOMAINS))
    deltas = [d for d in data.draw(st.lists(relation_deltas(arity, domain), max_size=6)) if d]
    if not deltas:
        return
    run = Run.sum_of([build(delta, arity) for delta in deltas])
    words = run.to_words()
    assert words.nbytes == run.nbytes
    copy = read_copy(words)
    assert (copy.rows, copy.max_abs_weight, copy.arity) == (run.rows, run.max_abs_weight, arity)
    assert rows_of(copy) == rows_of(run) == add(*deltas)
    assert np.array_equal(copy.to_words(), words)
    if run.rows:
        merge = Merge(copy, run)
        merged = merge.work()
        assert rows_of(merged) == {row: 2 * weight for row, weight in rows_of(run).items()}


@LAW
@given(st.data())
def test_a_merge_in_parts_is_the_sum_and_its_sections_fit(data):
    arity = data.draw(st.integers(1, 5))
    domain = data.draw(st.sampled_from(DOMAINS))
    older, newer = (data.draw(relation_deltas(arity, domain)) for _ in range(2))
    if not (older and newer):
        return
    merge = Merge(build(older, arity), build(newer, arity))
    fuel = data.draw(st.integers(1, 40))
    while (merged := merge.work(fuel)) is None:
        pass
    assert rows_of(merged) == add(older, newer)
    assert merged.find_damage() == ""
    packed = read_copy(merged.to_words())
    assert rows_of(packed) == add(older, newer)
    assert packed.find_damage() == ""


@LAW
@given(st.data())
def test_a_merge_of_two_runs_with_one_weight_each_is_the_sum(data):
    """All rows are new, or all cancel, or the merge continues after the first that does neither."""
    highest = [data.draw(st.sampled_from([2, 20, 300])), data.draw(st.sampled_from([3, 40, 5000]))]
    lowest = [
        data.draw(st.sampled_from([0, -7, 10**12])),
        data.draw(st.sampled_from([0, -(2**31)])),
    ]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def random_rows(most: int) -> list:
        rows = rng.integers(0, highest, (rng.integers(1, most), 2)) + lowest
        return list(map(tuple, rows.tolist()))

    weight = data.draw(st.sampled_from([1, -1, 5]))
    older = dict.fromkeys(random_rows(data.draw(st.sampled_from([3, 30, 600]))), weight)
    newer = random_rows(data.draw(st.sampled_from([3, 30, 600])))
    kind = data.draw(st.sampled_from(["new", "cancelling", "any"]))
    if kind == "new":
        newer = [row for row in newer if row not in older]
    if kind == "cancelling":
        newer = [row for row in older if rng.random() < 0.5]
    sign = -1 if kind == "cancelling" else data.draw(st.sampled_from([1, -1]))
    newer = dict.fromkeys(newer, sign * weight)
    if not newer:
        return
    runs = build(older), build(newer)
    expected = add(older, newer)
    for first, second in (runs, runs[::-1]):
        merged = Run.merged(first, second)
        assert rows_of(merged) == expected
        assert merged.max_abs_weight == max(map(abs, expected.values()), default=0)
        assert merged.find_damage() == ""
        assert rows_of(read_copy(merged.to_words())) == expected


@LAW
@given(st.data())
def test_a_merge_of_hundreds_of_alternating_rows_is_the_sum(data):
    """Large enough for the loops without branches, which need many siblings."""
    arity = data.draw(st.integers(1, 5))
    highest = [data.draw(st.sampled_from([2, 30, 400, 10**12])) for _ in range(arity)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def random_rows(weights: list[int]) -> dict:
        rows = rng.integers(0, highest, (rng.integers(1, 500), arity)) ** rng.integers(1, 3)
        return {tuple(row): int(rng.choice(weights)) for row in rows.tolist()}

    weights = st.sampled_from([[1], [-1], [2], [1, -1, 3]])
    older, newer = (random_rows(data.draw(weights)) for _ in range(2))
    deleted = rng.random() / 2
    newer |= {row: -weight for row, weight in older.items() if rng.random() < deleted}
    merge = Merge(build(older, arity), build(newer, arity))
    fuel = data.draw(st.sampled_from([1, 9, 50, 300, 10**6]))
    while (merged := merge.work(fuel)) is None:
        pass
    expected = add(older, newer)
    assert rows_of(merged) == expected
    assert merged.max_abs_weight == max(map(abs, expected.values()), default=0)
    assert merged.find_damage() == ""
    assert rows_of(read_copy(merged.to_words())) == expected


@settings(LAW, max_examples=30)
@given(st.data())
def test_a_merge_of_blocks_with_common_prefixes_and_cancelled_rows_is_the_sum(data):
    """Several blocks of rows: common nodes at each level, and rows that cancel within a block."""
    arity = data.draw(st.integers(2, 4))
    highest = [data.draw(st.sampled_from([3, 20, 150, 10**12])) for _ in range(arity)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    older = {tuple(row): 1 for row in rng.integers(0, highest, (1500, arity)).tolist()}
    newer = {tuple(row): 1 for row in rng.integers(0, highest, (700, arity)).tolist()}
    for share, change in ((0.3, 0), (0.3, 1), (0.1, 10**9)):
        # The newer run deletes some rows of the older one, and has rows with the same prefixes.
        chosen = [row for row in older if rng.random() < share]
        newer |= {(*row[:-1], row[-1] + change): 1 if change else -1 for row in chosen}
    merge = Merge(build(older, arity), build(newer, arity))
    fuel = data.draw(st.sampled_from([200, 10**6]))
    while (merged := merge.work(fuel)) is None:
        pass
    assert rows_of(merged) == add(older, newer)
    assert merged.find_damage() == ""
    assert rows_of(Run.merged(build(newer, arity), build(older, arity))) == add(older, newer)


def test_wide_rows_share_their_offsets_until_two_rows_have_a_common_prefix():
    rng = np.random.default_rng(5)
    first = {tuple(row): 1 for row in rng.integers(0, 10**9, (700, 6)).tolist()}
    second = {tuple(row): 1 for row in rng.integers(0, 10**9, (900, 6)).tolist()}
    unrelated = Run.merged(build(first, 6), build(second, 6))
    # A run stores each row once, and one section of offsets.
    assert unrelated.nbytes < 8 * 1.5 * 6 * 1600
    assert rows_of(unrelated) == add(first, second)
    with_common_prefixes = {(*row[:4], row[4], row[5] + 1): 2 for row in list(first)[::50]}
    with_common_prefixes |= {(*row[:3], row[3] + 1, *row[4:]): 1 for row in list(second)[::70]}
    with_common_prefixes |= {row: -1 for row in list(second)[::3]}
    total = Run.merged(unrelated, build(with_common_prefixes, 6))
    assert rows_of(total) == add(first, second, with_common_prefixes)
    assert total.find_damage() == ""
    assert rows_of(read_copy(total.to_words())) == add(first, second, with_common_prefixes)


def test_a_large_run_of_a_merge_is_packed_with_its_directory_and_weights():
    rng = np.random.default_rng(1)
    deltas = [
        dict.fromkeys(map(tuple, rng.integers(0, 2000, (n, 2)).tolist()), weight)
        for n, weight in ((5000, 1), (3000, 2), (900, -1), (10, 3))
    ]
    run = Run.sum_of([build(delta) for delta in deltas])
    assert run.buffer[run_layout.DIRECTORY] and run.buffer[run_layout.WEIGHT_SUMS]
    words = run.to_words()
    assert len(words) < len(run.buffer)
    assert rows_of(read_copy(words)) == add(*deltas)


# The ends of the range of int64, and values between them with small and large gaps.
FIRST_VALUES = st.one_of(
    st.integers(0, 80), st.integers(0, 5000), st.sampled_from([-(2**63), 2**63 - 1, -(2**62)])
)


@LAW
@given(
    rows=st.sets(st.tuples(FIRST_VALUES, st.integers(0, 3)), min_size=1, max_size=120),
    searched=st.lists(FIRST_VALUES, max_size=20),
    max_words=st.integers(2, 40),
)
def test_searches_by_an_index_in_memory_find_the_same_rows(rows, searched, max_words):
    run = build(dict.fromkeys(rows, 1))
    indexed = run.with_index(max_words)
    assert (indexed.index is None) == (run.buffer[run_layout.DIRECTORY] == 0)
    assert indexed.with_index(max_words) is indexed
    assert rows_of(indexed) == rows_of(run)
    assert np.array_equal(indexed.to_words(), run.to_words())
    values = np.unique(np.array([*searched, *[first for first, _ in rows]], np.int64))
    found = find_children(run.address, values)
    assert found[:, 0].sum() == len({first for first, _ in rows})
    assert np.array_equal(find_children(indexed.address, values), found)


def test_an_index_in_memory_is_as_small_as_it_has_to_be_and_is_built_in_pieces(monkeypatch):
    monkeypatch.setattr(run_module, "CHECK_CHUNK_NUMBERS", 64)
    run = build({(3 * number, 0): 1 for number in range(1000)})
    words = int(run.buffer[run_layout.DIRECTORY_SIZE])
    pieces = []
    indexed = run.with_index(100, lambda start, end: pieces.append((start, end)))
    assert 50 < indexed.index[run_layout.DIRECTORY_SIZE] <= 100
    start = int(run.buffer[run_layout.DIRECTORY])
    assert pieces[0][0] == start and start + words - 1 <= pieces[-1][1] <= start + words
    assert all(0 < end - first <= 64 for first, end in pieces)
    assert [end for _, end in pieces[:-1]] == [first for first, _ in pieces[1:]]


def test_the_run_of_a_delta_is_packed_without_a_copy():
    run = build({(i, i * i): 1 + i % 2 for i in range(100)})
    assert np.shares_memory(run.to_words(), run.buffer)
    assert rows_of(read_copy(run.to_words())) == rows_of(run)


@pytest.mark.parametrize("size", [1, MAX_SINGLE_CALL_ROWS])
def test_many_runs_are_summed_and_one_is_its_own_sum(size):
    rng = np.random.default_rng(size)
    deltas = [
        dict.fromkeys(map(tuple, rng.integers(0, 60, (size, 2)).tolist()), int(weight))
        for weight in rng.choice([-2, -1, 1, 3], 12)
    ]
    runs = [build(delta) for delta in deltas]
    assert rows_of(Run.sum_of(runs)) == add(*deltas)
    assert Run.sum_of(runs[:1]) is runs[0]
    assert all(rows_of(run) == delta for run, delta in zip(runs, deltas, strict=True))
    empty_run = Run.sum_of(
        [*runs, *(build({row: -weight for row, weight in delta.items()}) for delta in deltas)]
    )
    assert empty_run.rows == 0
    assert read_copy(empty_run.to_words()).rows == 0
    assert rows_of(Run.sum_of([empty_run, runs[0], empty_run])) == deltas[0]


def test_a_sum_that_fits_int64_is_right_if_partial_sums_do_not_fit():
    large = 2**63 - 1
    runs = [build({(1, 2): w, (3, 4): 1}) for w in (large, large, -large, -large, 7)]
    assert rows_of(Run.sum_of(runs)) == {(1, 2): 7, (3, 4): 5}
    assert Run.sum_of(runs).max_abs_weight == 7


def test_words_that_are_no_run_are_refused():
    words = build({(i, 2): 1 + i % 2 for i in range(50)}).to_words()
    assert rows_of(read_copy(words)) == {(i, 2): 1 + i % 2 for i in range(50)}
    frozen = words.copy()
    frozen.flags.writeable = False
    for wrong_words, message in (
        (words[:-1], "a section of"),
        (words[:5], "no header"),
        (words[:11], "the header has"),
        (np.zeros(40, np.int64), "no header"),
        (frozen, "writable: False"),
        (words.astype(np.int32), "int32"),
        (np.repeat(words, 2)[::2], "contiguous: False"),
    ):
        with pytest.raises(DbspWcojError, match=message):
            Run.from_words(wrong_words)
    changed = [
        run_layout.ARITY,
        run_layout.ROWS,
        run_layout.WEIGHT_SUMS,
        run_layout.DIRECTORY,
        run_layout.DIRECTORY_SIZE,
    ]
    for position in [
        *changed,
        *range(
            run_layout.LEVEL_HEADERS,
            run_layout.LEVEL_HEADERS + 2 * run_layout.LEVEL_HEADER_WORDS - 1,
        ),
    ]:
        for value in (-1, 1 << 40):
            broken = words.copy()
            broken[position] = value
            with pytest.raises(DbspWcojError, match="pass all words of Run"):
                Run.from_words(broken)


def test_the_total_weight_wraps_for_equal_and_for_different_weights():
    equal = build({(n, 0): 2**62 for n in range(3)})
    different = build({(n, 0): 2**62 + (n == 2) for n in range(3)})
    assert equal.total_weight == 3 * 2**62 - 2**64
    assert different.total_weight == 3 * 2**62 + 1 - 2**64
    assert build({(n, 0): -1 for n in range(3)}).total_weight == -3


@pytest.mark.parametrize("key", [(), (1,), (1, 5, 0)])
def test_a_key_of_another_length_is_refused(key):
    run = build({(1, 5): 1, (1, 6): 1, (4, 5): 1})
    with pytest.raises(DbspWcojError, match=f"{len(key)} values, but the run has 2 columns"):
        run.count_up_to(key)


@LAW
@given(st.data(), st.permutations(range(3)))
def test_a_run_that_is_built_in_ranges_has_all_rows(data, order):
    delta = data.draw(relation_deltas(3, data.draw(st.sampled_from(DOMAINS))))
    assume(delta)
    rows, order = zset(delta, arity=3), np.array(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "MIN_RANGED_BUILD_ROWS", 4)
        built = Run.of(rows, order)
    expected = Run.of(rows, order)
    assert rows_of(built) == rows_of(expected)
    assert (built.rows, built.max_abs_weight) == (expected.rows, expected.max_abs_weight)


def test_a_range_of_a_run_needs_less_scratch_memory_than_all_rows(monkeypatch):
    monkeypatch.setattr(run_module, "MIN_RANGED_BUILD_ROWS", 4000)
    sorted_rows = []

    def scratch(rows):
        sorted_rows.append(rows)
        return sort_scratch(rows)

    monkeypatch.setattr(run_module, "sort_scratch", scratch)
    numbers = np.arange(8000)
    rows = ZSet.from_columns([numbers // 8, numbers % 8, -numbers])
    run = Run.of(rows, np.array([0, 2, 1]))
    assert run.rows == 8000 and max(sorted_rows) < 4000
    assert run.read()[0].tolist() == sorted_columns(rows, [0, 2, 1])


def sorted_columns(rows, order):
    return ZSet.from_columns([rows.row_array[k] for k in order]).row_array.tolist()
