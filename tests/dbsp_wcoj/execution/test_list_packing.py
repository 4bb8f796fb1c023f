"""Packed and narrow lists: which runs have them, and that views which read them count right.

The oracle is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.errors import LimitError
from dbsp_wcoj.execution import bound_terms, physical_term
from dbsp_wcoj.execution.join_buffers import NarrowLists
from dbsp_wcoj.execution.list_packing import (
    estimate_pairs_per_row,
    narrow_lists,
    pack_lists,
    prepare_lists,
)
from dbsp_wcoj.kernels.join.join_layout import BITMAP_BITS, NARROW_LISTS, PACKED_RUN
from dbsp_wcoj.kernels.join.packed_lists import FIRST_NODE, NODE_WORDS
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.storage.relations import Relations
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


# The value of MAX_PAIRS_PER_ROW that chooses each form of the lists.
FORMS = {"packed": 1.0, "narrow": 0.0}


def prepare(patch: pytest.MonkeyPatch, form: str) -> list[bool]:
    """Let steps of any size prepare lists; list for each attempt whether the run has this form."""
    attempts: list[bool] = []

    def record(run: Run, fixed: Run | None) -> np.ndarray | NarrowLists | None:
        lists = prepare_lists(run, fixed)
        attempts.append(lists is not None and isinstance(lists, NarrowLists) == (form == "narrow"))
        return lists

    patch.setattr(physical_term, "prepare_lists", record)
    patch.setattr(bound_terms, "MIN_PREPARED_ROWS", 1)
    patch.setattr("dbsp_wcoj.execution.list_packing.MAX_PAIRS_PER_ROW", FORMS[form])
    return attempts


@pytest.fixture(params=FORMS)
def prepared_runs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[bool]]:
    yield prepare(monkeypatch, request.param)


def reads_prepared_lists(view: DeltaQuery) -> bool:
    buffer = view.terms[0].physical.buffers._bitmap_buffer
    return bool(buffer[PACKED_RUN] or buffer[NARROW_LISTS])


def test_lists_are_packed_only_if_they_have_clearly_fewer_pairs_than_values():
    source = np.repeat(np.arange(100), 64)
    dense = np.tile(np.arange(64), 100)
    assert pack_lists(rows_of(source, dense)) is not None
    assert pack_lists(rows_of(source, dense * 25)) is not None  # about 0.4 pairs per value
    assert pack_lists(rows_of(source, dense * 40)) is None  # about 0.6
    assert pack_lists(rows_of(source, dense * 64)) is None


def test_short_lists_are_not_packed_although_neighbouring_lists_are_alike():
    nodes = np.arange(10_000)
    assert pack_lists(rows_of(nodes, nodes + 1)) is None
    assert estimate_pairs_per_row(rows_of(nodes, nodes + 1)) == pytest.approx(1, rel=0.001)
    grid = [np.concatenate([nodes, nodes]), np.concatenate([nodes + 1, nodes + 1000])]
    assert estimate_pairs_per_row(rows_of(*grid)) == pytest.approx(1, rel=0.001)


def test_a_run_of_another_arity_has_no_prepared_lists():
    for columns in ([np.arange(99)], [np.arange(99)] * 3):
        run = build_run(ZSet.from_columns(columns), tuple(range(len(columns))))
        assert prepare_lists(run, run) is None


def test_narrow_lists_have_the_values_from_the_least_one_on():
    for lowest in (-(2**63), -7, 2**63 - BITMAP_BITS):
        targets = lowest + np.arange(100) * (BITMAP_BITS - 1) // 99
        run = rows_of(np.arange(100), targets)
        lists = narrow_lists(run, run)
        assert lists is not None
        assert lists.values.dtype == np.int32
        assert (lists.values - np.int64(lists.lowest) == targets - lowest).all()
        # A run that stores 32 bits per value is read as it is.
        assert np.shares_memory(lists.values, run.buffer) == run.is_narrow


def test_a_run_without_a_bitmap_weight_or_directory_has_no_narrow_lists():
    nodes = np.arange(100)
    good = rows_of(nodes, nodes)
    assert narrow_lists(good, good) is not None
    assert prepare_lists(good, None) is None
    wide = [nodes * BITMAP_BITS // 99, np.where(nodes > 50, 2**62, -(2**62))]
    weighted = build_run(ZSet.from_columns([nodes, nodes], nodes + 1), (0, 1))
    for bad in (*[rows_of(nodes, targets) for targets in wide], weighted):
        assert narrow_lists(bad, bad) is None
        assert narrow_lists(good, bad) is None
        assert narrow_lists(bad, good) is None
    few_nodes = rows_of(nodes % 3, nodes)
    assert narrow_lists(few_nodes, good) is None
    assert narrow_lists(good, few_nodes) is not None


def test_narrow_lists_of_two_runs_count_from_the_least_value_of_both():
    nodes = np.arange(100)
    lists = narrow_lists(rows_of(nodes, nodes + 7), rows_of(nodes, nodes - 5))
    assert lists is not None
    assert (lists.values - lists.lowest == nodes + 12).all()
    assert (lists.fixed_values - lists.lowest == nodes).all()
    one_narrow = narrow_lists(rows_of(nodes, nodes + 2**31), rows_of(nodes, nodes + 2**31 - 200))
    assert one_narrow is not None
    assert (one_narrow.values - one_narrow.lowest == nodes + 200).all()
    assert (one_narrow.fixed_values - one_narrow.lowest == nodes).all()


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    threads=st.sampled_from([1, 3]),
)
def test_a_view_whose_first_lists_are_prepared_equals_the_product_of_matrices(
    query, form, seed, density, threads
):
    rng = np.random.default_rng(seed)
    steps = [random_matrix(rng, density, [int(rng.choice([-2, 1, 3]))])]
    steps += [random_matrix(rng, share, [-1, 1, 2]) for share in (0.02, density, 0.002)]
    result: dict[tuple[int, ...], int] = {}
    total = np.zeros_like(steps[0])
    with pytest.MonkeyPatch.context() as patch, working_threads(threads):
        prepare(patch, form)
        patch.setattr("dbsp_wcoj.execution.join_buffers.MAX_DEFERRED", 1)
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
def test_only_the_first_rows_of_a_relation_are_prepared(prepared_runs, query):
    view = DeltaQuery(query)
    matrix = random_matrix(np.random.default_rng(1), 0.5, [1])
    view.step({"e": to_zset(matrix)})
    assert prepared_runs == [True]
    view.step({"e": to_zset(matrix)})
    assert prepared_runs == [True]


def test_lists_are_not_prepared_for_a_small_step_or_a_join_of_few_rows(prepared_runs):
    query = "n() :- r(a, b), s(b, c), t(a, c)"
    matrix = random_matrix(np.random.default_rng(2), 0.5, [1])
    few = np.zeros_like(matrix)
    few[3, :5] = 1
    for first, count in ((few, 0), (matrix, 1)):
        prepared_runs.clear()
        view = DeltaQuery(query)
        deltas = {"r": to_zset(first), "s": to_zset(matrix), "t": to_zset(matrix)}
        assert view.step(deltas).to_dict()[()] == ((first @ matrix) * matrix).sum()
        assert len(prepared_runs) == count
    bound_terms.MIN_PREPARED_ROWS = int(matrix.sum()) + 1  # the fixture restores it
    prepared_runs.clear()
    DeltaQuery(TRIANGLES).step({"e": to_zset(matrix)})
    assert not prepared_runs


def test_a_view_does_not_read_prepared_lists_after_the_step(prepared_runs):
    matrix = random_matrix(np.random.default_rng(3), 0.5, [1])
    for weight in (1, 2**40):
        view = DeltaQuery(TRIANGLES)
        if weight == 1:
            view.step({"e": to_zset(matrix)})
        else:
            with pytest.raises(WeightOverflowError):
                view.step({"e": to_zset(weight * matrix)})
        assert prepared_runs.pop()
        assert not reads_prepared_lists(view)


def test_prepared_lists_are_dropped_when_chunks_are_closed_early(prepared_runs):
    matrix = np.ones((VERTICES, VERTICES), np.int64)
    view = DeltaQuery("t(a) :- e(a, b), e(b, c), e(a, c)")
    chunks = view.step_chunks({"e": to_zset(matrix)})
    assert len(next(chunks)) == VERTICES
    assert prepared_runs == [True]
    chunks.close()
    assert not reads_prepared_lists(view)
    assert view.step({"e": to_zset(matrix)}).to_dict()[(0,)] == VERTICES**2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), form=st.sampled_from(sorted(FORMS)))
def test_triangles_of_three_relations_equal_the_product_of_matrices(seed, form):
    rng = np.random.default_rng(seed)
    first = [random_matrix(rng, 0.3, [int(rng.choice([-2, 1, 3]))]) for _ in range(3)]
    later = [random_matrix(rng, 0.1, [-1, 1]) for _ in range(3)]
    query = "n() :- r(a, b), s(b, c), t(a, c)"
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, form)
        patch.setattr("dbsp_wcoj.execution.join_buffers.MAX_DEFERRED", 1)
        view = DeltaQuery(query)
        before = 0
        for matrices in (first, [old + new for old, new in zip(first, later, strict=True)]):
            r, s, t = matrices
            expected = int(((r @ s) * t).sum())
            deltas = first if matrices is first else later
            named = dict(zip("rst", map(to_zset, deltas), strict=True))
            assert view.step(named).to_dict().get((), 0) == expected - before
            before = expected
        zsets = [to_zset(matrix) for matrix in first]
        r, s, t = first
        assert generic_join(query, zsets).to_dict().get((), 0) == ((r @ s) * t).sum()


def hub_graph(weight: int) -> ZSet:
    """40 vertices with edges to 100 and 101, and 100 with edges to 50 others, 101 among them."""
    sources = np.arange(40)
    source = np.concatenate([sources, sources, np.full(50, 100)])
    target = np.concatenate([np.full(40, 100), np.full(40, 101), np.arange(101, 151)])
    return ZSet.from_columns([source, target], np.full(len(source), weight))


@pytest.mark.parametrize("exponent", [18, 19, 20, 21])
def test_the_sum_of_deferred_intersections_is_exact_or_an_error(exponent, monkeypatch):
    attempts = prepare(monkeypatch, "narrow")
    edges = {"e": hub_graph(2**exponent)}
    exact = 40 * 2 ** (3 * exponent)  # the triangles a, 100, 101: 100 has the longer list
    if exact < 2**63:
        assert generic_join(TRIANGLES, edges, order=["a", "b", "c"]).to_dict() == {(): exact}
    else:
        with pytest.raises(WeightOverflowError):
            generic_join(TRIANGLES, edges, order=["a", "b", "c"])
    assert attempts == [True]


@pytest.mark.parametrize("work", [1, 50, 1000])
def test_a_join_that_pauses_keeps_deferred_intersections(work, monkeypatch):
    prepare(monkeypatch, "narrow")
    monkeypatch.setattr("dbsp_wcoj.kernels.join.join_layout.MAX_WORK_PER_CALL", work)
    matrix = random_matrix(np.random.default_rng(5), 0.3, [1])
    edges = to_zset(matrix)
    expected = int(((matrix @ matrix) * matrix).sum())
    assert generic_join(TRIANGLES, {"e": edges}).to_dict() == {(): expected}


def test_a_join_that_was_stopped_leaves_no_deferred_intersections(monkeypatch):
    attempts = prepare(monkeypatch, "narrow")
    monkeypatch.setattr("dbsp_wcoj.kernels.join.join_layout.MAX_WORK_PER_CALL", 50)
    matrix = random_matrix(np.random.default_rng(5), 0.3, [1])
    relations = Relations()
    view = DeltaQuery(TRIANGLES, relations=relations)
    step = relations.stage({"e": to_zset(matrix)})
    times = iter([0.0, *[1.0] * 20])
    with pytest.raises(LimitError):
        view.evaluate(step, Budget(StepLimits(max_seconds=10), lambda: next(times, 99.0)))
    expected = int(((matrix @ matrix) * matrix).sum())
    assert view.evaluate(step).to_dict() == {(): expected}
    assert attempts == [True, True]


def test_all_forms_of_lists_count_the_same_proposals(monkeypatch):
    edges = to_zset(random_matrix(np.random.default_rng(6), 0.3, [1]))
    counts = set()
    for form in FORMS:
        attempts = prepare(monkeypatch, form)
        view = DeltaQuery(TRIANGLES)
        view.step({"e": edges})
        assert attempts == [True]
        counts.add((view.stats.proposals, view.stats.intersections))
    monkeypatch.setattr(bound_terms, "MIN_PREPARED_ROWS", 10**6)
    view = DeltaQuery(TRIANGLES)
    view.step({"e": edges})
    counts.add((view.stats.proposals, view.stats.intersections))
    assert len(counts) == 1
