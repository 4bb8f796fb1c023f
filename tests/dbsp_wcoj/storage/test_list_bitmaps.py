"""Bitmaps of long lists: views that read them equal recomputation, and count words, not values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from dbsp_wcoj import DeltaQuery, Formula, Query, ZSet
from dbsp_wcoj.kernels.join.join_layout import MAX_LIST_MISSES
from dbsp_wcoj.kernels.storage import list_bitmaps as kernels
from dbsp_wcoj.kernels.storage.spine import LIST_BITMAPS
from dbsp_wcoj.storage import list_bitmaps
from dbsp_wcoj.storage import spine as spine_module
from dbsp_wcoj.storage.list_bitmaps import build_list_bitmaps
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import build_run
from tests.generators.strategies import LAW, streams
from tests.support.followed_streams import assert_follows

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
QUERIES = (
    TRIANGLES,
    "n() :- e(a, b), e(b, c), e(a, c), a < c",
    "n() :- e(a, b), f(b, c), e(a, c), c <= b + 1",
    "t(a, b) :- e(a, b), f(b, c), e(a, c)",
    "n() :- e(a, b), e(b, c), f(a, d), f(d, c)",
    "n() :- e(a, b), e(b, c), e(a, c), e(a, d), e(b, d), e(c, d)",
)
# Values on both sides of the ends of a word, and the ends of int64.
DOMAINS = (
    (0, 1, 2),
    (62, 63, 64, 65),
    (-65, -64, -1, 0, 63),
    (-(1 << 63) + 1, -(1 << 63) + 2, -(1 << 63) + 64),
    ((1 << 63) - 65, (1 << 63) - 64, (1 << 63) - 2, (1 << 63) - 1),
)


def lower_limits(patch: pytest.MonkeyPatch) -> None:
    """Let lists of any length have bitmaps."""
    patch.setattr(list_bitmaps, "MIN_LIST_VALUES", 1)
    patch.setattr(list_bitmaps, "ROWS_PER_WORD", 1)
    patch.setattr(list_bitmaps, "MIN_RUN_ROWS", 1)


def spines_of(view: DeltaQuery) -> Iterator[Spine]:
    for trace in view._plan_cache.traces.values():
        for arrangement in trace.arrangements:
            yield arrangement.spine


def build_all(view: DeltaQuery) -> None:
    """Merge the runs of each spine, and build their bitmaps."""
    for spine in spines_of(view):
        spine.compact()
        for run in spine.runs:
            spine.build_list_bitmaps(run.address)
        spine._check()


@pytest.mark.parametrize("text", QUERIES)
@LAW
@given(
    formula=st.sampled_from(Formula),
    domain=st.sampled_from(DOMAINS),
    is_small=st.booleans(),
    data=st.data(),
)
def test_each_step_equals_the_change_of_the_recomputed_view(text, formula, domain, is_small, data):
    query = Query.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        if not is_small:
            patch.setattr("dbsp_wcoj.execution.small_steps.MAX_SMALL_ROWS", 0)
        view = DeltaQuery(query, formula=formula)
        steps = data.draw(streams(query, domain))
        assert_follows(view, query, steps, lambda: data.draw(st.booleans()) and build_all(view))


find_list = njit(lambda bitmaps, first: kernels.find_list(bitmaps, first))
word_address = njit(lambda bitmaps, slot, word: kernels.word_address(bitmaps, slot, word))


def list_in(bitmaps: np.ndarray, run: Run, node: int) -> list[int] | None:
    """Return the values in the bitmap of a list; None if it has none."""
    first = int(run.level_offsets(0)[node])
    address = bitmaps.__array_interface__["data"][0]
    slot = find_list(address, first)
    if not slot:
        return None
    values = run.level_values(1)[first : run.level_offsets(0)[node + 1]]
    start = (word_address(address, slot, int(values[0]) >> 6) - address) // 8
    size = (int(values[-1]) >> 6) - (int(values[0]) >> 6) + 1
    words = bitmaps[start : start + size].tolist()
    lowest = int(values[0]) >> 6 << 6
    return [lowest + 64 * w + b for w, word in enumerate(words) for b in range(64) if word >> b & 1]


@LAW
@given(
    rows=st.sets(st.tuples(st.integers(0, 9), st.integers(-130, 130)), min_size=1, max_size=200),
    min_values=st.integers(1, 9),
    rows_per_word=st.sampled_from([1, 4, 16]),
)
def test_the_longest_lists_have_bitmaps_within_the_limit(rows, min_values, rows_per_word):
    run = build_run(ZSet.from_rows(sorted(rows)), (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_bitmaps, "MIN_LIST_VALUES", min_values)
        patch.setattr(list_bitmaps, "ROWS_PER_WORD", rows_per_word)
        bitmaps = build_list_bitmaps(run)
    left, lengths, words = [], [0], 0
    for node, value in enumerate(run.level_values(0).tolist()):
        expected = sorted(b for a, b in rows if a == value)
        size = (expected[-1] >> 6) - (expected[0] >> 6) + 1
        found = list_in(bitmaps, run, node)
        if found is not None:
            assert found == expected
            assert len(expected) >= min_values
            assert size <= kernels.WORDS_PER_VALUE * len(expected)
            words += size
            lengths.append(len(expected))
        elif len(expected) >= min_values and size <= kernels.WORDS_PER_VALUE * len(expected):
            left.append(len(expected))
    assert words <= len(rows) // rows_per_word
    assert not left or len(lengths) == 1 or max(left) <= min(lengths[1:])


HUB_VALUES = 4096


def hub_graph() -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of two hubs, 0 and 1, to and from half of the vertices."""
    rng = np.random.default_rng(5)
    edges = []
    for hub in (0, 1):
        for ends in (slice(None), slice(None, None, -1)):
            near = 2 + rng.choice(2 * HUB_VALUES, HUB_VALUES, replace=False)
            edges.append(np.stack([np.full(HUB_VALUES, hub), near])[ends])
    sources, targets = np.concatenate(edges, axis=1)
    return sources, targets


def toggle(view: DeltaQuery, times: int) -> tuple[int, int]:
    """Insert and delete the edge between the hubs; return the triangles, and the last count."""
    edge = ZSet.from_rows([(0, 1)])
    for _ in range(times):
        before = view.stats.intersections
        triangles = view.step({"e": edge}).to_dict().get((), 0)
        count = view.stats.intersections - before
        assert view.step({"e": -edge}).to_dict().get((), 0) == -triangles
    return triangles, count


def triangles_of_hubs(sources: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> int:
    """Return the weight of the triangles that an edge from hub 0 to hub 1 closes."""
    ends = zip(sources.tolist(), targets.tolist(), strict=True)
    edges = dict(zip(ends, weights.tolist(), strict=True))
    total = 0
    for (a, b), weight in edges.items():
        if a == 0:
            total += weight * (edges.get((1, b), 0) + edges.get((b, 1), 0))
        if b == 0:
            total += weight * edges.get((a, 1), 0)
    return total


@pytest.mark.parametrize("weight", [1, -2])
@pytest.mark.parametrize("is_small", [True, False])
def test_an_edge_between_two_hubs_reads_words(weight, is_small, monkeypatch):
    if not is_small:
        monkeypatch.setattr("dbsp_wcoj.execution.small_steps.MAX_SMALL_ROWS", 0)
    sources, targets = hub_graph()
    weights = np.full(len(sources), weight)
    if weight != 1:
        weights[::3] = 3  # not all weights of a list are equal
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_columns([sources, targets], weights)})
    assert all(spine.table[LIST_BITMAPS] == kernels.NOT_BUILT for spine in spines_of(view))
    size = sum(spine.nbytes for spine in spines_of(view))
    triangles, count = toggle(view, 1)
    assert triangles == triangles_of_hubs(sources, targets, weights)
    assert count > 2 * HUB_VALUES
    toggle(view, MAX_LIST_MISSES)
    bitmap_bytes = sum(run.bitmap_bytes for spine in spines_of(view) for run in spine.runs)
    assert 0 < bitmap_bytes == sum(spine.nbytes for spine in spines_of(view)) - size
    # The late rows, in runs of their own, delete rows of the hubs.
    late = ZSet.from_columns([sources[1::50], targets[1::50]], -weights[1::50])
    view.step({"e": late})
    weights[1::50] = 0
    triangles, count = toggle(view, 1)
    assert triangles == triangles_of_hubs(sources, targets, weights)
    words = 2 * HUB_VALUES // 64 + 1
    assert count <= 3 * (words + 2) + 2 * len(late)


@pytest.mark.parametrize("arity", [1, 2])
def test_a_run_at_the_address_of_another_one_has_bitmaps_only_if_it_may_have_them(arity):
    spine = Spine()
    spine.append(build_run(ZSet.from_columns(arity * [np.arange(1 << 13)]), tuple(range(arity))))
    spine.build_list_bitmaps(spine.runs[0].address)
    assert (spine.runs[0].list_bitmaps is None) == (arity == 1)
    spine._check()


def test_a_run_without_memory_for_bitmaps_is_not_tried_again(monkeypatch):
    def fail(run):
        calls.append(run)
        raise MemoryError

    calls: list[Run] = []
    sources, targets = hub_graph()
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_columns([sources, targets])})
    monkeypatch.setattr(spine_module, "build_list_bitmaps", fail)
    toggle(view, MAX_LIST_MISSES)
    tried = len(calls)
    toggle(view, 2 * MAX_LIST_MISSES)
    assert 0 < tried == len(calls) == len(set(map(id, calls)))
    triangles, _ = toggle(view, 1)
    assert triangles == triangles_of_hubs(sources, targets, np.ones(len(sources), np.int64))


def test_a_run_without_long_lists_has_no_bitmaps():
    run = build_run(ZSet.from_rows([(n, n) for n in range(600)]), (0, 1))
    bitmaps = build_list_bitmaps(run)
    assert list_in(bitmaps, run, 3) is None
    assert len(bitmaps) == kernels.FIRST_SLOT + kernels.SLOT_WORDS
