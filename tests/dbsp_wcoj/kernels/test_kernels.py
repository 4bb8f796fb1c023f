"""Single kernels, each compared with numpy's search, Python's sets and Python's integers.

A kernel trusts its input and has a path for each input shape: lists shorter than a block, of
similar length, of very different lengths; rows packed into one word or not. So the inputs are drawn
around the sizes where a path begins, and around both ends of int64, where a difference does not
fit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from dbsp_wcoj import ZSet
from dbsp_wcoj.kernels.join import intersect, join_layout, sums
from dbsp_wcoj.kernels.memory import VECTOR_LANES
from dbsp_wcoj.kernels.storage import run_layout, search
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS, OVERFLOW, SCRATCH_ARRAYS, consolidate
from dbsp_wcoj.kernels.values import arithmetic
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED
from dbsp_wcoj.storage.run import Run
from tests.generators.strategies import LAW

LOWEST, HIGHEST = -(2**63), 2**63 - 1
ORIGINS = (LOWEST, LOWEST + 1, -(2**31), -20, 0, 2**31 - 20, 1 << 40, HIGHEST - 40, HIGHEST - 39)
EXTREMES = (LOWEST, LOWEST + 1, -(2**32), -3, -2, -1, 0, 1, 2, 3, 2**32, HIGHEST - 1, HIGHEST)


def address(array: np.ndarray) -> int:
    assert array.flags.c_contiguous
    assert array.dtype == np.int64
    return array.__array_interface__["data"][0]


def forms(values: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return the tagged address of a list as words, and as narrow values if it fits; and the lists.

    The narrow list begins in the middle of a word.
    """
    found = [(address(values), values)]
    if len(values) and values[0] >= -(2**31) and values[-1] < 2**31:
        narrow = np.concatenate([[7], values]).astype(np.int32)
        found.append((narrow.__array_interface__["data"][0] + 4 + 1, narrow))
    return found


def values_of(run: Run) -> int:
    """Return the address of the values of level 0."""
    return run.address + 8 * int(run.buffer[run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES])


def list_run(weighted: dict[int, int]) -> Run:
    """Return a run of one column."""
    rows, weights = list(weighted), list(weighted.values())
    zset = ZSet.from_columns([np.array(rows, np.int64)], np.array(weights, np.int64))
    return Run.of(zset, np.arange(1))


@st.composite
def sorted_values(draw: st.DrawFn, most: int = 40) -> np.ndarray:
    """Draw distinct values from a window of 41, and sometimes a distant end of int64."""
    origin = draw(st.sampled_from(ORIGINS))
    values = {origin + k for k in draw(st.sets(st.integers(0, 39), max_size=most))}
    values |= draw(st.sets(st.sampled_from(EXTREMES), max_size=2))
    return np.array(sorted(values), np.int64)


def from_python(function: Any) -> Any:
    """Return a function that calls a subroutine of kernels from Python."""

    @njit
    def call(*arguments):
        return function(*arguments)

    return call


add, multiply = from_python(arithmetic.add), from_python(arithmetic.multiply)
difference, wrapping_add = (
    from_python(arithmetic.wrapping_subtract),
    from_python(arithmetic.wrapping_add),
)
bisect, seek = from_python(search.bisect), from_python(search.seek)
root_seek = from_python(search.root_seek)
count_common = from_python(intersect.count_common)
dot_checked, dot_common = from_python(intersect.dot_checked), from_python(intersect.dot_common)
count_in_bitmap = from_python(intersect.count_in_bitmap)
update_bitmap = from_python(sums.update_bitmap)
dot_lists = from_python(sums.dot_lists)


# --- search --------------------------------------------------------------------------------------


@LAW
@given(st.data())
def test_seek_and_bisect_find_the_first_value_not_below(data):
    values = data.draw(sorted_values())
    low = data.draw(st.integers(0, len(values)))
    high = data.draw(st.integers(low, len(values)))
    near = [int(v) + d for v in values for d in (-1, 0, 1) if LOWEST <= int(v) + d <= HIGHEST]
    for value in {*near, *EXTREMES}:
        expected = low + np.searchsorted(values[low:high], np.int64(value))
        for tagged, _ in forms(values):
            assert seek(tagged, low, high, value) == expected
            assert bisect(tagged, low, high, value) == expected


def roots() -> dict[str, np.ndarray]:
    """Return first columns that are long enough for a directory, evenly spread and not."""
    rng = np.random.default_rng(1)
    dense = np.arange(run_layout.MIN_DIRECTORY_NODES)
    return {
        "dense": dense,
        "one short of a directory": dense[1:],
        "lowest": LOWEST + np.arange(100) * 3,
        "highest": HIGHEST - np.arange(100)[::-1] * 3,
        "both ends": np.concatenate([LOWEST + dense, HIGHEST - dense[::-1]]),
        "ends and middle": np.concatenate([LOWEST + dense, dense - 9, HIGHEST - dense[::-1]]),
        "a crowd and one far away": np.append(np.arange(5_000), 1 << 62),
        "spread over all": np.unique(rng.integers(LOWEST, HIGHEST, 5_000)),
        "spread over a million": np.unique(rng.integers(-(10**6), 10**6, 5_000)),
        "powers": np.unique([s * (1 << k) for k in range(63) for s in (-1, 1)]),
    }


@pytest.mark.parametrize("name", roots())
def test_a_directory_does_not_change_the_result_of_a_search_at_the_root(name):
    rng = np.random.default_rng(2)
    values = roots()[name].astype(np.int64)
    # Several rows below each value: positions at the root are of nodes, not of rows.
    rows = np.repeat(values, 2)
    run = Run.of(ZSet.from_columns([rows, np.arange(len(rows)) % 2]), np.arange(2))
    assert (run.buffer[run_layout.DIRECTORY] > 0) == (len(values) >= run_layout.MIN_DIRECTORY_NODES)
    some = rng.choice(values, 60).tolist() + values[[0, 1, -2, -1]].tolist()
    near = [v + d for v in some for d in (-1, 0, 1) if LOWEST <= v + d <= HIGHEST]
    for value in {*near, *EXTREMES, *rng.integers(LOWEST, HIGHEST, 20).tolist()}:
        n = len(values)
        at = int(np.searchsorted(values, np.int64(value)))
        cursors = {0, n, max(at - 1, 0), at, min(at + 1, n), int(rng.integers(0, n))}
        for low, high in itertools.combinations_with_replacement(sorted(cursors), 2):
            expected = min(max(at, low), high)
            assert root_seek(run.address, low, high, value) == expected


# --- intersect and sums --------------------------------------------------------------------------


def check_common(a: np.ndarray, b: np.ndarray, i: int, end_a: int, j: int, end_b: int) -> None:
    expected = len(set(a[i:end_a].tolist()) & set(b[j:end_b].tolist()))
    for (tagged_a, _), (tagged_b, _) in itertools.product(forms(a), forms(b)):
        left, right = (tagged_a, i, end_a), (tagged_b, j, end_b)
        assert count_common(*left, *right) == expected
        assert count_common(*right, *left) == expected


@LAW
@given(st.data())
def test_counting_common_values_equals_a_set_intersection_of_any_slices(data):
    a, b = data.draw(sorted_values()), data.draw(sorted_values())
    if data.draw(st.booleans()):  # neighbours are sure to share values
        b = np.union1d(b, a[::2])
    i, j = (data.draw(st.integers(0, len(list_))) for list_ in (a, b))
    end_a = data.draw(st.integers(i, len(a)))
    end_b = data.draw(st.integers(j, len(b)))
    check_common(a, b, i, end_a, j, end_b)


@pytest.mark.parametrize("origin", [LOWEST, -(2**31), 0, HIGHEST - 2**34])
@pytest.mark.parametrize("distance", [2**31, 2**32 - 20, 2**32, 2**32 + 1, 2**33])
def test_values_with_the_same_lower_32_bits_are_distinguished(origin, distance):
    near = origin + 2 * np.arange(10)
    far = near + distance
    check_common(near, far, 0, 10, 0, 10)
    both = np.union1d(near, far)
    check_common(near, both, 0, 10, 0, len(both))
    check_common(far, both, 0, 10, 0, len(both))
    check_common(both, both, 0, len(both), 0, len(both))


LENGTHS = (1, VECTOR_LANES - 1, VECTOR_LANES, VECTOR_LANES + 1, 2 * VECTOR_LANES, 17, 61, 1_000)
RATIOS = (1, 2, intersect.GALLOP_RATIO - 1, intersect.GALLOP_RATIO, intersect.GALLOP_RATIO + 1)
RATIOS += (sums.MAX_SCAN_RATIO - 1, sums.MAX_SCAN_RATIO, sums.MAX_SCAN_RATIO + 1, 100)


def pairs_of_lists() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of lists of all lengths, with few, half, all or no values in common."""
    rng = np.random.default_rng(3)
    pairs = []
    for short, ratio in itertools.product(LENGTHS, RATIOS):
        length = short * ratio + int(rng.integers(0, 2))
        for universe in (length, 2 * length + 1, 50 * length):
            b = np.sort(rng.choice(universe, length, replace=False)).astype(np.int64)
            a = np.sort(rng.choice(universe, min(short, universe), replace=False)).astype(np.int64)
            pairs.append((a, b))
        shared = np.sort(rng.choice(b, min(short, len(b)), replace=False))
        pairs += [(shared, b), (b[-1] + np.arange(short), b), (b[0] - np.arange(short)[::-1], b)]
    return pairs


def test_counting_common_values_of_long_lists_equals_a_set_intersection():
    for a, b in pairs_of_lists():
        check_common(a, b, 0, len(a), 0, len(b))
        check_common(a, b, len(a) // 3, len(a), len(b) // 5, len(b) - len(b) // 7)


def saturating_dot(a: dict[int, int], b: dict[int, int]) -> int:
    """Return the sum in value order; after an overflow it stays overflowed."""
    total = 0
    for value in sorted(a.keys() & b.keys()):
        product = a[value] * b[value]
        total += product
        if max(abs(product), abs(total)) > HIGHEST:
            return int(OVERFLOWED)
    return total


def parts_of(run: Run, values: list[int]) -> tuple[int, int, int, int]:
    return values_of(run), run.address, 0, len(values)


@pytest.mark.parametrize("seed", range(3))
def test_dot_products_of_lists_equal_sums_over_dictionaries(seed):
    """Uniform weights and others, similar and different lengths; the checked version as well."""
    rng = np.random.default_rng(seed)
    for a, b in pairs_of_lists()[seed::3]:
        weighted = []
        for values in (a, b):
            weights = rng.integers(1, 5, len(values)) * rng.choice([-1, 1], len(values))
            if rng.random() < 0.3:
                weights[:] = rng.choice([-1, 1, 3])
            weighted.append(dict(zip(values.tolist(), weights.tolist(), strict=True)))
        expected = sum(w * weighted[1].get(v, 0) for v, w in weighted[0].items())
        runs = [list_run(pairs) for pairs in weighted]
        lists = [forms(run.level_values(0)) for run in runs]
        for x, y in ((0, 1), (1, 0)):
            for (tagged_x, _), (tagged_y, _) in itertools.product(lists[x], lists[y]):
                left = tagged_x, runs[x].address, 0, len(weighted[x])
                right = tagged_y, runs[y].address, 0, len(weighted[y])
                assert dot_common(*left, *right) == expected
                assert dot_checked(*left, *right) == expected


HUGE = (1, -1, 2, 2**31, -(2**32), 2**40, 2**62, -(2**62), HIGHEST, -HIGHEST)
LARGE_WEIGHTS = st.dictionaries(st.integers(0, 12), st.sampled_from(HUGE), min_size=1)


@LAW
@given(LARGE_WEIGHTS, LARGE_WEIGHTS)
def test_a_checked_dot_product_is_exact_or_marked_as_overflowed(a, b):
    runs = [list_run(a), list_run(b)]
    expected = saturating_dot(a, b)
    left, right = parts_of(runs[0], a), parts_of(runs[1], b)
    assert dot_checked(*left, *right) == expected
    found = dot_lists(left[1], left[0], 0, len(a), right[1], right[0], 0, len(b), 0, 0, 0)
    uniform = len(set(a.values())) == len(set(b.values())) == 1
    if not uniform:
        assert found == expected
    else:
        exact = sum(w * b.get(v, 0) for v, w in a.items())
        assert found == (exact if abs(exact) <= HIGHEST else OVERFLOWED)


class MarkedList:
    """A list in a bitmap, with the arguments that a kernel needs."""

    def __init__(self) -> None:
        self.words = np.zeros(join_layout.BITMAP_WORDS, np.int64)

    def set(self, values: np.ndarray, *, erase: bool) -> tuple[int, int, int]:
        lowest, highest = int(values[0]), int(values[-1])
        assert highest - lowest < join_layout.BITMAP_BITS
        where = address(self.words)
        update_bitmap(where, address(values), 0, len(values), lowest, erase)
        return where, lowest, highest


def check_marked(marks: MarkedList, a: np.ndarray, b: np.ndarray) -> None:
    marked = marks.set(a, erase=False)
    expected = len(set(a.tolist()) & set(b.tolist()))
    for tagged, _ in forms(b):
        assert count_in_bitmap(*marked, tagged, 0, len(b)) == expected
    runs = [list_run(dict.fromkeys(a.tolist(), 3)), list_run(dict.fromkeys(b.tolist(), -5))]
    lists = [runs[0].address, values_of(runs[0]), 0, len(a)]
    lists += [runs[1].address, values_of(runs[1]), 0, len(b)]
    assert dot_lists(*lists, *marked) == -15 * expected
    marks.set(a, erase=True)


def test_counting_values_in_a_bitmap_equals_a_set_intersection():
    marks = MarkedList()
    for a, b in pairs_of_lists():
        check_marked(marks, a, b)
        if b[-1] - b[0] < join_layout.BITMAP_BITS - 1:
            check_marked(marks, b, a)
    assert not marks.words.any()


@pytest.mark.parametrize(
    "origin",
    [LOWEST, LOWEST + 1, -(2**31), -33, 0, 2**31 - 64, HIGHEST - 64, HIGHEST - 63],
)
def test_a_marked_list_may_lie_at_either_end_of_int64(origin):
    marks = MarkedList()
    rng = np.random.default_rng(4)
    for size in (8, 20, 64):
        a = origin + np.sort(rng.choice(64, size, replace=False))
        a[-1] = origin + 63
        outside = [v for v in (LOWEST, origin - 1, origin + 64, HIGHEST) if LOWEST <= v <= HIGHEST]
        b = np.union1d(origin + rng.choice(64, 30), np.array(outside, np.int64))
        for other in (b, b[1:-1], a):
            check_marked(marks, a, np.ascontiguousarray(other))
        check_marked(marks, a, np.array([LOWEST, LOWEST + 1]))
        check_marked(marks, a, np.array([HIGHEST - 1, HIGHEST]))


@pytest.mark.parametrize("span", [2**32 - 64, 2**32 - 1, 2**32, 2**32 + 64])
def test_narrow_values_are_found_in_a_bitmap_of_about_all_of_them(span):
    """The positions of bits have 32 bits in a kernel, if the bitmap is not too long for that."""
    words = np.zeros(2**26 + 2, np.int64)  # 512 MB, of which the kernel reads a few pages
    lowest = -(2**31) - max(span - 2**32, 0)
    values = np.array([-(2**31), -1, 0, 63, 2**31 - 65, 2**31 - 1])
    marked = values[1::2]
    for value in marked.tolist():
        bit = value - lowest
        words[bit >> 6] |= np.int64(1 << (bit & 63)) if bit & 63 < 63 else np.int64(-(2**63))
    expected = np.count_nonzero(marked <= lowest + span)
    for tagged, _ in forms(values):
        assert count_in_bitmap(address(words), lowest, lowest + span, tagged, 0, 6) == expected


# --- sort ----------------------------------------------------------------------------------------

SIZES = (
    1,
    2,
    MAX_INSERTION_ROWS - 1,
    MAX_INSERTION_ROWS,
    MAX_INSERTION_ROWS + 1,
    3 * MAX_INSERTION_ROWS,
    3_000,
)
DOMAINS = {
    "tiny": (-2, 3),
    "wide": (LOWEST, HIGHEST),
    "negative": (LOWEST, LOWEST + 50),
    "highest": (HIGHEST - 7, HIGHEST),
    "of 32 bits": (-(2**31), 2**31 - 1),
    "of 33 bits": (-(2**32), 2**32),
}


def random_columns(rng: np.random.Generator, arity: int, size: int, domain: str) -> np.ndarray:
    low, high = DOMAINS[domain]
    columns = rng.integers(low, high, (arity, size), endpoint=True)
    if size > 4:  # both ends, so the width is what it says; and rows that repeat
        columns[:, 0], columns[:, -1] = high, low
        columns[:, size // 2 : size // 2 + 2] = columns[:, :2]
    return columns


def sum_weights(columns: np.ndarray, weights: np.ndarray) -> dict[tuple[int, ...], int] | None:
    """Return the weights by row, added in order; None if a sum leaves int64."""
    total: dict[tuple[int, ...], int] = {}
    for row, weight in zip(zip(*columns.tolist(), strict=True), weights.tolist(), strict=True):
        total[row] = total.get(row, 0) + weight
        if abs(total[row]) > HIGHEST:
            return None
    return {row: weight for row, weight in sorted(total.items()) if weight}


def scratch(rows: int, arity: int) -> np.ndarray:
    return np.full((SCRATCH_ARRAYS + arity, rows), -77, np.int64)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("arity", [1, 2, 3, 4])
def test_consolidating_rows_equals_a_dictionary(arity, domain):
    rng = np.random.default_rng(arity)
    for size, kind in itertools.product(SIZES, ("ones", "signed", "cancelling", "sorted")):
        columns = random_columns(rng, arity, size, domain)
        weights = rng.integers(-2, 3, size)
        if kind == "ones":
            weights[:] = 1
        elif kind == "cancelling":
            columns = np.concatenate([columns, columns[:, ::-1]], axis=1)
            weights = np.concatenate([weights, -weights[::-1]])
            weights[0] += 1
        elif kind == "sorted":
            columns = columns[:, np.lexsort(columns[::-1])]
        columns = np.ascontiguousarray(columns)  # the kernel is compiled for this order only
        expected = sum_weights(columns, weights)
        rows, sums_, status = consolidate(columns, weights, scratch(len(weights), arity))
        assert status != OVERFLOW
        assert rows.shape == (arity, len(sums_))
        assert list(zip(*rows.tolist(), strict=True)) == list(expected)
        assert sums_.tolist() == list(expected.values())


@LAW
@given(st.data())
def test_consolidating_huge_weights_is_exact_or_returns_an_overflow(data):
    size = data.draw(
        st.sampled_from([2, 5, MAX_INSERTION_ROWS, MAX_INSERTION_ROWS + 1, 2 * MAX_INSERTION_ROWS])
    )
    pairs = st.tuples(st.sampled_from([0, 1, 2, LOWEST, HIGHEST]), st.sampled_from(HUGE))
    drawn = data.draw(st.lists(pairs, min_size=2, max_size=8))
    values, weights = zip(*itertools.islice(itertools.cycle(drawn), size), strict=True)
    columns, weights = np.array([values], np.int64), np.array(weights, np.int64)
    expected = sum_weights(columns, weights)
    rows, sums_, status = consolidate(columns, weights, scratch(size, 1))
    assert (status == OVERFLOW) == (expected is None)
    if expected is not None:
        assert dict(zip(zip(*rows.tolist(), strict=True), sums_.tolist(), strict=True)) == expected


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("arity", [1, 2, 3, 4])
def test_a_run_in_any_column_order_contains_the_rows_in_that_order(arity, domain):
    rng = np.random.default_rng(10 + arity)
    for size, order in itertools.product(SIZES, itertools.permutations(range(arity))):
        if size == SIZES[-1] and order not in ((0,), (1, 0), (2, 0, 1), (3, 0, 1, 2), (1, 3, 2, 0)):
            continue
        columns = random_columns(rng, arity, size, domain)
        weights = rng.choice([[1, 1], [-3, -3], [2, -1], [HIGHEST, -HIGHEST]]) * 1
        pairs = dict(zip(zip(*columns.tolist(), strict=True), itertools.cycle(weights.tolist())))
        zset = ZSet.from_rows(list(pairs), list(pairs.values()), arity=arity)
        run = Run.of(zset, np.array(order))
        moved = {tuple(row[k] for k in order): weight for row, weight in pairs.items()}
        rows, found = run.read()
        assert list(zip(*rows.tolist(), strict=True)) == sorted(moved)
        assert found.tolist() == [moved[row] for row in sorted(moved)]
        assert run.rows == len(moved)
        assert run.max_abs_weight == max(map(abs, moved.values()))


# --- arithmetic ----------------------------------------------------------------------------------

WORDS = st.one_of(
    st.sampled_from([*EXTREMES, 2**31, 3037000499, 3037000500]), st.integers(LOWEST, HIGHEST)
)


def exact_or_overflowed(value: int) -> int:
    return value if abs(value) <= HIGHEST else int(OVERFLOWED)


@LAW
@given(WORDS, WORDS)
def test_a_sum_is_exact_or_overflowed_and_stays_so(x, y):
    expected = int(OVERFLOWED) if OVERFLOWED in (x, y) else exact_or_overflowed(x + y)
    assert add(x, y) == expected


@LAW
@given(WORDS, WORDS)
def test_a_product_is_exact_or_overflowed_and_stays_so_unless_a_factor_is_zero(x, y):
    assert multiply(x, y) == exact_or_overflowed(x * y)


def test_sums_and_products_of_all_extremes_are_exact_or_overflowed():
    for x, y in itertools.product(EXTREMES, repeat=2):
        expected = int(OVERFLOWED) if OVERFLOWED in (x, y) else exact_or_overflowed(x + y)
        assert add(x, y) == expected
        assert multiply(x, y) == exact_or_overflowed(x * y)


@LAW
@given(WORDS, WORDS)
def test_running_sums_wrap_and_their_differences_are_right(x, y):
    wrapped = wrapping_add(x, y)
    assert wrapped == (x + y + 2**63) % 2**64 - 2**63
    assert difference(wrapped, x) == y


@pytest.mark.parametrize("repeated", [0, 50])
@pytest.mark.parametrize("leading", [1, 3, 10**9])
def test_rows_wider_than_a_word_are_sorted_and_added_up(leading, repeated):
    random = np.random.default_rng(leading)
    # Ties in the leading columns are of all rows, of many, and of none.
    columns = [
        random.integers(0, leading, 400),
        random.integers(-(2**62), 2**62, 400) // 2**60 * 2**60,
        random.integers(-(2**62), 2**62, 400),
        random.integers(0, 3, 400),
    ]
    columns = [np.concatenate((column, column[:repeated])) for column in columns]
    weights = np.concatenate((random.integers(1, 3, 400), random.integers(-1, 2, repeated)))
    total: Counter[tuple[int, ...]] = Counter()
    for *row, weight in zip(*(column.tolist() for column in columns), weights, strict=True):
        total[tuple(row)] += int(weight)
    expected = [(row, weight) for row, weight in sorted(total.items()) if weight]
    zset = ZSet.from_columns(columns, weights)
    assert list(zset.to_dict().items()) == expected
