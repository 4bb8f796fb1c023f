"""Runs of one column have bitmaps, which restrict the values of a join before any look-up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbsp_wcoj import DeltaQuery, ZSet
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.run import Merge, Run

ORDER = np.arange(1)
VERTICES = 48
MIN_ROWS = run_layout.MIN_DIRECTORY_NODES

# Name: the atoms, and the same as `numpy.einsum` writes them.
PATTERNS = {
    "triangle": ("e(a, b), e(b, c), e(a, c), s(a), t(b), s(c)", "ab,bc,ac,a,b,c", "eeests"),
    "one label": ("e(a, b), e(b, c), e(a, c), s(c)", "ab,bc,ac,c", "eees"),
    "path": ("e(a, b), e(b, c), e(c, d), s(a), t(b), t(d)", "ab,bc,cd,a,b,d", "eeestt"),
    "4-clique": (
        "e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d), s(a), t(b), s(c), t(d)",
        "ab,ac,ad,bc,bd,cd,a,b,c,d",
        "eeeeeestst",
    ),
    "house": (
        "e(a, b), e(b, c), e(c, d), e(a, d), e(a, f), e(b, f), s(a), t(c), t(d), s(f)",
        "ab,bc,cd,ad,af,bf,a,c,d,f",
        "eeeeeestts",
    ),
    "labels only": ("s(a), t(a)", "a,a", "st"),
}


def count(pattern: str, relations: dict[str, NDArray[np.int64]]) -> int:
    """Return the total weight of a pattern, from the weights of all rows."""
    _, subscripts, names = PATTERNS[pattern]
    arrays = [relations[name] for name in names]
    return int(np.einsum(f"{subscripts}->", *arrays, optimize="greedy"))


def to_zset(weights: NDArray[np.int64]) -> ZSet:
    rows = np.nonzero(weights)
    return ZSet.from_columns(list(rows), weights[rows])


def draw_change(
    generator: np.random.Generator, shape: tuple[int, ...], rows: int, weights: list[int]
) -> NDArray[np.int64]:
    change = np.zeros(shape, np.int64)
    cells = generator.choice(change.size, min(rows, change.size), replace=False)
    change.reshape(-1)[cells] = generator.choice(weights, len(cells))
    return change


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([1, 2, 7]), st.booleans())
def test_a_bitmap_has_the_values_of_its_run(
    seed: int, is_uniform: bool, step: int, is_far: bool
) -> None:
    generator = np.random.default_rng(seed)
    rows = int(generator.integers(MIN_ROWS, 4 * MIN_ROWS))
    first = -(2**63) if is_far else int(generator.integers(-500, 500))
    values = first + step * generator.choice(2 * rows, rows, replace=False)
    weights = np.ones(rows, np.int64) if is_uniform else generator.choice([-1, 2], rows)
    zset = ZSet.from_columns([values], weights)
    run = Run.of(zset, ORDER)
    check_bitmap(run)
    half = generator.permutation(rows) < rows // 2
    parts = [
        Run.of(ZSet.from_columns([values[part]], weights[part]), ORDER) for part in (half, ~half)
    ]
    check_bitmap(Run.merged(*parts))
    merge = Merge(*parts)
    merged = None
    while merged is None:
        merged = merge.work(fuel=5)
    check_bitmap(merged)
    check_bitmap(Run.from_words(merged.to_words()))


def check_bitmap(run: Run) -> None:
    """Check that a run has a bitmap, and that it has the bits of the values and no other."""
    header = run.buffer[: run_layout.BITMAP + 1].tolist()
    start, lowest = header[run_layout.BITMAP], header[run_layout.LOWEST_VALUE]
    assert start > 0
    assert run.find_damage() == ""
    words = run.buffer[start : run.end].view(np.uint64).tolist()
    bits = [
        64 * word + bit for word in range(len(words)) for bit in range(64) if words[word] >> bit & 1
    ]
    assert [lowest + bit for bit in bits] == run.level_values(0).tolist()


def test_a_sparse_or_short_run_has_no_bitmap() -> None:
    for values in (np.arange(MIN_ROWS - 1), 64 * np.arange(4 * MIN_ROWS)):
        run = Run.of(ZSet.from_columns([values]), ORDER)
        assert run.buffer[run_layout.BITMAP] == 0
        assert run.find_damage() == ""


def test_a_damaged_bitmap_is_found() -> None:
    run = Run.of(ZSet.from_columns([np.arange(0, 3 * MIN_ROWS, 3)]), ORDER)
    bitmap = int(run.buffer[run_layout.BITMAP])
    for change in (0b10, 0b11):  # one value more, or another one
        words = run.to_words().copy()
        words[bitmap] ^= change
        assert Run.from_words(words).find_damage() == "the bitmap does not fit the values"


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([[1], [1, 1, -1], [2, -3]]), st.booleans())
def test_labelled_patterns_equal_their_sums_of_products(
    pattern: str, seed: int, weights: list[int], has_dense_labels: bool
) -> None:
    generator = np.random.default_rng(seed)
    view = DeltaQuery(f"n() :- {PATTERNS[pattern][0]}")
    shapes = {"s": (VERTICES,), "t": (VERTICES,), "e": (VERTICES, VERTICES)}
    relations = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
    label_rows = VERTICES - 8 if has_dense_labels else 8
    sizes = [
        {"s": label_rows, "t": label_rows, "e": 250},
        {"e": 1},
        {"e": 70},
        {"s": 2, "e": 60},
        {"t": 1},
        {"e": 70},
        {"s": 20, "t": 20},
    ]
    for size in sizes:
        read = {name: rows for name, rows in size.items() if name in view.query.relations}
        changes = {
            name: draw_change(generator, shapes[name], rows, weights) for name, rows in read.items()
        }
        before = count(pattern, relations)
        for name, change in changes.items():
            relations[name] = relations[name] + change
        deltas = {name: to_zset(change) for name, change in changes.items()}
        assert view.step(deltas).to_dict().get((), 0) == count(pattern, relations) - before


def test_rows_that_the_labels_exclude_are_not_looked_up() -> None:
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c), s(a), s(b), t(c)")
    # Even vertices have label s, odd ones t, and all edges lead from odd to even vertices. Each
    # edge of the pattern starts at a vertex with label s.
    vertices = np.arange(200)
    source, target = np.repeat(vertices[1::2], 100), np.tile(vertices[::2], 100)
    view.step({"s": ZSet.from_columns([vertices[::2]]), "t": ZSet.from_columns([vertices[1::2]])})
    view.step({"e": ZSet.from_columns([source, target])})
    view.step({"e": ZSet.from_columns([source[:50], target[:50]])})
    stats = view.stats
    assert stats.proposals > 0
    assert stats.intersections == 0
