"""Packed lists: which runs are packed, and that views which read them count right.

The oracle is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, WeightOverflowError, ZSet
from dbsp_wcoj.execution import bound_terms
from dbsp_wcoj.execution.list_packing import estimate_pairs_per_row, pack_lists
from dbsp_wcoj.kernels.join.join_layout import PACKED_RUN
from dbsp_wcoj.kernels.join.packed_lists import FIRST_NODE, NODE_WORDS
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import build_run
from tests.support.working_threads import working_threads

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
# A run is packed only if it has a directory: at least 32 vertices with edges.
VERTICES = 48

# Each query, and its result for a matrix of weights, by row of the head.
QUERIES = {
    TRIANGLES: lambda m: {(): int(((m @ m) * m).sum())},
    "n() :- e(a, b), e(b, c), e(c, d), e(d, a)": lambda m: {(): int(np.trace(m @ m @ m @ m))},
    "t(a) :- e(a, b), e(b, c), e(a, c)": lambda m: {
        (a,): count for a, count in enumerate(((m @ m) * m).sum(axis=1).tolist())
    },
    "t(b, a) :- e(a, b), e(b, c), e(a, c)": lambda m: {
        (b, a): count for (a, b), count in np.ndenumerate(m * (m @ m.T))
    },
    "n() :- e(a, b), e(b, c), e(a, c), a < b": lambda m: {(): int(((np.triu(m, 1) @ m) * m).sum())},
}


def to_zset(matrix: np.ndarray) -> ZSet:
    source, target = np.nonzero(matrix)
    return ZSet.from_columns([source, target], matrix[source, target])


def random_matrix(rng: np.random.Generator, density: float, weights: list[int]) -> np.ndarray:
    shape = (VERTICES, VERTICES)
    return np.where(rng.random(shape) < density, rng.choice(weights, shape), 0)


def rows_of(*columns: np.ndarray) -> Run:
    return build_run(ZSet.from_columns(columns), (0, 1))


@pytest.fixture
def packed_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Let steps of any size pack lists; list for each attempt whether the run was packed."""
    attempts: list[bool] = []

    def record(run: Run) -> np.ndarray | None:
        packed = pack_lists(run)
        attempts.append(packed is not None)
        return packed

    monkeypatch.setattr(bound_terms, "pack_lists", record)
    monkeypatch.setattr(bound_terms, "MIN_PACKED_ROWS", 1)
    yield attempts


def test_lists_are_packed_only_if_they_have_clearly_fewer_pairs_than_values():
    source = np.repeat(np.arange(100), 64)
    dense = np.tile(np.arange(64), 100)
    assert pack_lists(rows_of(source, dense)) is not None
    assert pack_lists(rows_of(source, dense * 40)) is not None  # about 0.6 pairs per value
    assert pack_lists(rows_of(source, dense * 60)) is None  # about 0.9
    assert pack_lists(rows_of(source, dense * 64)) is None


def test_short_lists_are_not_packed_although_neighbouring_lists_are_alike():
    nodes = np.arange(10_000)
    assert pack_lists(rows_of(nodes, nodes + 1)) is None
    assert estimate_pairs_per_row(rows_of(nodes, nodes + 1)) == pytest.approx(1, rel=0.001)
    grid = [np.concatenate([nodes, nodes]), np.concatenate([nodes + 1, nodes + 1000])]
    assert estimate_pairs_per_row(rows_of(*grid)) == pytest.approx(1, rel=0.001)


def test_a_run_of_another_arity_is_not_packed():
    for columns in ([np.arange(99)], [np.arange(99)] * 3):
        run = build_run(ZSet.from_columns(columns), tuple(range(len(columns))))
        assert pack_lists(run) is None


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), step=st.integers(1, 90), lists=st.integers(40, 2000))
def test_the_estimate_is_near_the_number_of_pairs(seed, step, lists):
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(lists), 50)
    target = np.cumsum(rng.integers(1, step + 1, (lists, 50)), axis=1).ravel()
    run = rows_of(source, target)
    pairs = sum(len(np.unique(part >> 6)) for part in target.reshape(lists, 50))
    assert estimate_pairs_per_row(run) == pytest.approx(pairs / run.rows, rel=0.1, abs=0.01)
    packed = pack_lists(run)
    if packed is not None:
        end = int(packed[FIRST_NODE + NODE_WORDS * lists])
        assert (end - FIRST_NODE - NODE_WORDS * (lists + 1)) // 2 == pairs


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    threads=st.sampled_from([1, 3]),
)
def test_a_view_whose_first_step_is_packed_equals_the_product_of_matrices(
    query, seed, density, threads
):
    rng = np.random.default_rng(seed)
    steps = [random_matrix(rng, density, [int(rng.choice([-2, 1, 3]))])]
    steps += [random_matrix(rng, share, [-1, 1, 2]) for share in (0.02, density, 0.002)]
    result: dict[tuple[int, ...], int] = {}
    total = np.zeros_like(steps[0])
    with pytest.MonkeyPatch.context() as patch, working_threads(threads):
        patch.setattr(bound_terms, "MIN_PACKED_ROWS", 1)
        patch.setattr("dbsp_wcoj.delta_query.MIN_PARALLEL_ROWS", 64)
        patch.setattr("dbsp_wcoj.execution.term_division.MIN_DIVIDED_ROWS", 64)
        patch.setattr("dbsp_wcoj.execution.term_division.MIN_PART_ROWS", 16)
        view = DeltaQuery(query)
        for matrix in steps:
            if not matrix.any():
                continue
            total += matrix
            for row, weight in view.step({"e": to_zset(matrix)}).to_dict().items():
                result[row] = result.get(row, 0) + weight
            expected = {row: weight for row, weight in QUERIES[query](total).items() if weight}
            assert {row: weight for row, weight in result.items() if weight} == expected


@pytest.mark.parametrize("query", [TRIANGLES, "t(a) :- e(a, b), e(b, c), e(a, c)"])
def test_only_the_first_rows_of_a_relation_are_packed(packed_runs, query):
    view = DeltaQuery(query)
    matrix = random_matrix(np.random.default_rng(1), 0.5, [1])
    view.step({"e": to_zset(matrix)})
    assert packed_runs == [True]
    view.step({"e": to_zset(matrix)})
    assert packed_runs == [True]


def test_lists_are_not_packed_for_a_small_step_or_a_join_of_few_rows_with_them(packed_runs):
    query = "n() :- r(a, b), s(b, c), t(a, c)"
    matrix = random_matrix(np.random.default_rng(2), 0.5, [1])
    few = np.zeros_like(matrix)
    few[3, :5] = 1
    for first, count in ((few, 0), (matrix, 1)):
        packed_runs.clear()
        view = DeltaQuery(query)
        deltas = {"r": to_zset(first), "s": to_zset(matrix), "t": to_zset(matrix)}
        assert view.step(deltas).to_dict()[()] == ((first @ matrix) * matrix).sum()
        assert len(packed_runs) == count
    bound_terms.MIN_PACKED_ROWS = int(matrix.sum()) + 1  # the fixture restores it
    packed_runs.clear()
    DeltaQuery(TRIANGLES).step({"e": to_zset(matrix)})
    assert not packed_runs


def test_a_view_does_not_read_a_packed_run_after_the_step(packed_runs):
    matrix = random_matrix(np.random.default_rng(3), 0.5, [1])
    for weight in (1, 2**40):
        view = DeltaQuery(TRIANGLES)
        if weight == 1:
            view.step({"e": to_zset(matrix)})
        else:
            with pytest.raises(WeightOverflowError):
                view.step({"e": to_zset(weight * matrix)})
        assert packed_runs.pop()
        assert not view.terms[0].physical.buffers._bitmap_buffer[PACKED_RUN]


def test_packed_lists_are_dropped_when_chunks_are_closed_early(packed_runs):
    matrix = np.ones((VERTICES, VERTICES), np.int64)
    view = DeltaQuery("t(a) :- e(a, b), e(b, c), e(a, c)")
    chunks = view.step_chunks({"e": to_zset(matrix)})
    assert len(next(chunks)) == VERTICES
    assert packed_runs == [True]
    chunks.close()
    assert not view.terms[0].physical.buffers._bitmap_buffer[PACKED_RUN]
    assert view.step({"e": to_zset(matrix)}).to_dict()[(0,)] == VERTICES**2
