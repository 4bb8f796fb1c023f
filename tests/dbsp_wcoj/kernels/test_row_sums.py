"""Sums over the rows of a delta: equal to those of the general join, for any runs and weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query, ZSet
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.join.row_sums import CHUNK_ROWS, MAX_COMPARED_NODES, MIN_MARKED_VALUES
from tests.generators.hub_streams import LAYOUTS, WEIGHTS
from tests.generators.strategies import LAW, streams
from tests.support.followed_streams import assert_follows

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
DIRECTED = "n() :- e(a, b), f(b, c), g(c, a)"


def has_row_sum(view: DeltaQuery) -> list[bool]:
    """Return for each term whether its program names the kernel of row sums."""
    words = [term.physical._program[join_layout.ROW_SUM_KERNEL] for term in view.terms]
    return [bool(word != join_layout.NO_KERNEL) for word in words]


def views(text: str) -> tuple[DeltaQuery, DeltaQuery]:
    """Return two views of a query: one with row sums in all terms, and one without."""
    view = DeltaQuery(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbsp_wcoj.execution.program_compiler._is_row_sum", lambda *_: False)
        general = DeltaQuery(text)
        assert not any(has_row_sum(general))
    assert all(has_row_sum(view))
    return view, general


@pytest.mark.parametrize(
    "text",
    [
        "q(a) :- e(a, b), e(b, c), e(a, c)",  # emits rows
        "n() :- e(a, b), e(b, c), e(a, c), a < c",  # compares
        "n() :- e(a, b), e(b, c), e(a, c), l(a)",  # a fourth atom
        "n() :- e(a, b), e(b, c)",
        "n() :- e(a, b), e(b, c), e(c, d), e(a, d)",
    ],
)
def test_other_queries_have_no_row_sums(text):
    assert not any(has_row_sum(DeltaQuery(text)))


@pytest.mark.parametrize("text", [TRIANGLES, DIRECTED])
@LAW
@given(
    domain=st.sampled_from([(0, 1, 2), (-5, 0, 4, 90), (-(2**63) + 1, 0, 2**63 - 1)]),
    is_small=st.booleans(),
    data=st.data(),
)
def test_each_step_equals_the_change_of_the_recomputed_view(text, domain, is_small, data):
    query = Query.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        if not is_small:
            patch.setattr("dbsp_wcoj.execution.small_steps.MAX_SMALL_ROWS", 0)
        view = DeltaQuery(query)
        assert all(has_row_sum(view))
        assert_follows(view, query, data.draw(streams(query, domain)))


def random_steps(
    seed: int, layout: str, weights: str, nodes: int, sizes: tuple[int, ...]
) -> list[ZSet]:
    """Generate edges with a hub, whose lists are long enough to be marked; some are deleted."""
    rng = np.random.default_rng(seed)
    steps = []
    for rows in sizes:
        source, target = LAYOUTS[layout](rng.integers(0, nodes, (2, rows)))
        source[: rows // 8] = source[0]
        target[rows // 8 : rows // 4] = source[0]
        steps.append(ZSet.from_columns([source, target], WEIGHTS[weights](rng, rows)))
    steps.append(-steps[1])
    return steps


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_row_sums_of_long_lists_equal_the_general_join(layout, weights):
    sizes = (4_000, 2 * CHUNK_ROWS, 1_100, 40, 3 * CHUNK_ROWS, 5, 1)
    assert sizes[0] // 16 > MIN_MARKED_VALUES
    for nodes in (60, 90):
        view, general = views(TRIANGLES)
        for step in random_steps(nodes, layout, weights, nodes, sizes):
            assert view.step({"e": step}) == general.step({"e": step})


@pytest.mark.parametrize("longest", [7, 8, 9, 30, MAX_COMPARED_NODES, 3 * MAX_COMPARED_NODES])
def test_row_sums_of_nodes_in_buckets_of_many_lengths_equal_the_general_join(longest):
    """Consecutive numbers of vertices share a bucket of the directory of the first column."""
    rng = np.random.default_rng(longest)
    lengths = rng.integers(1, longest + 1, 20)
    vertices = np.concatenate([10**6 * k + np.arange(n) for k, n in enumerate(lengths)])
    view, general = views(TRIANGLES)
    for rows in (20 * len(vertices), 400, 1_100, 30):
        source, target = rng.choice(vertices, (2, rows))
        target += rng.random(rows) < 0.1  # some vertices have no edges
        step = ZSet.from_columns([source, target], np.ones(rows, np.int64))
        for change in (step, -step, step):
            assert view.step({"e": change}) == general.step({"e": change})


def test_a_sum_that_pauses_after_each_chunk_continues_with_the_next_row(monkeypatch):
    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 2)
    view, general = views(TRIANGLES)
    for step in random_steps(2, "dense", "mixed", 80, (3_000, 1_000, 700)):
        assert view.step({"e": step}) == general.step({"e": step})


def test_row_sums_count_the_work_of_the_general_join():
    rng = np.random.default_rng(5)
    edges = ZSet.from_columns(list(rng.integers(0, 500, (2, 6_000))), np.ones(6_000, np.int64))
    # No vertex has two edges, so the general join looks up each row by itself.
    delta = ZSet.from_columns([np.arange(0, 100), np.arange(100, 200)], np.ones(100, np.int64))
    counts = []
    for view in views(TRIANGLES):
        view.step({"e": edges})
        before = view.stats
        view.step({"e": delta})
        proposals = view.stats.proposals - before.proposals
        counts.append((proposals, view.stats.intersections - before.intersections))
    assert counts[0] == counts[1]
