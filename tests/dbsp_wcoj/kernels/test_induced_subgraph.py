"""Cliques of whole relations, counted in the subgraphs that lists induce.

The oracle is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.execution import bound_terms
from dbsp_wcoj.execution.join_buffers import CliqueLists
from dbsp_wcoj.execution.list_packing import clique_lists
from dbsp_wcoj.kernels.join.induced_subgraph import (
    BASE_GENERATION,
    BASE_SIZE,
    COMPUTED,
    COST,
    FIRST_VALUE,
    LAST_VALUE,
    MAX_WORDS_PER_VALUE,
    MIN_BASE_VALUES,
    ROW_GENERATION,
    ROW_STATE_WORDS,
    ROW_STATES,
    SEARCH_COST,
)
from dbsp_wcoj.kernels.join.join_layout import BITMAP_BITS
from dbsp_wcoj.storage.trace import build_run
from tests.support.working_threads import working_threads

FOUR = "e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)"
FIVE = f"{FOUR}, e(a, f), e(b, f), e(c, f), e(d, f)"
VERTICES = 32

# Each query and the sum that it is, in Einstein's notation.
QUERIES = {
    f"n() :- {FOUR}": "ab,ac,ad,bc,bd,cd->",
    f"n(a) :- {FOUR}": "ab,ac,ad,bc,bd,cd->a",
    f"n(b, a) :- {FOUR}": "ab,ac,ad,bc,bd,cd->ba",
    f"n() :- {FIVE}": "ab,ac,ad,bc,bd,cd,af,bf,cf,df->",
    # The product is of lists of a and x, which need not be neighbours.
    "n() :- e(a, c), e(a, d), e(x, c), e(x, d), e(c, d)": "ac,ad,xc,xd,cd->",
    # The base list is a list of the inverse relation.
    "n() :- e(a, b), e(c, a), e(d, a), e(c, b), e(d, b), e(c, d)": "ab,ca,da,cb,db,cd->",
}
# Contractions that sum over the fifth vertex first, in a fifth of the time of numpy's own order.
CONTRACTIONS = [(6, 7), (6, 7), (6, 7), (0, 6), (0, 5), (0, 4), (0, 3), (0, 2), (0, 1)]
NAMES = {
    "dense": lambda k: k,
    "one of each word": lambda k: 64 * k + 63,
    "from the lowest int64 on": lambda k: k - 2**63,
    "to the highest int64": lambda k: k + (2**63 - VERTICES),
    "too wide for a bitmap": lambda k: k * BITMAP_BITS,
}


@pytest.fixture
def subgraphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[np.ndarray]]:
    """The states of the subgraphs of later joins."""
    yield record(monkeypatch)


def record(patch: pytest.MonkeyPatch) -> list[np.ndarray]:
    made: list[np.ndarray] = []
    to_words = CliqueLists.to_words

    def keep(lists: CliqueLists) -> np.ndarray:
        made.append(to_words(lists))
        return made[-1]

    patch.setattr(CliqueLists, "to_words", keep)
    patch.setattr(bound_terms, "MIN_PREPARED_ROWS", 1)
    return made


def to_zset(matrix: np.ndarray, name: str = "dense") -> ZSet:
    names = np.array([NAMES[name](k) for k in range(VERTICES)], np.int64)
    source, target = np.nonzero(matrix)
    return ZSet.from_columns([names[source], names[target]], matrix[source, target])


def random_matrix(rng: np.random.Generator, density: float, weight: int) -> np.ndarray:
    matrix = np.where(rng.random((VERTICES, VERTICES)) < density, weight, 0)
    if rng.random() < 0.5:
        matrix[3, :] = weight
        matrix[:, 5] = 0
    return matrix


def evaluate(query: str, matrix: np.ndarray, name: str = "dense") -> dict[tuple[int, ...], int]:
    formula = QUERIES[query]
    atoms = formula.count(",") + 1
    path = ["einsum_path", *CONTRACTIONS] if "f" in formula else True
    sums = np.einsum(formula, *[matrix] * atoms, optimize=path)
    return {
        tuple(NAMES[name](k) for k in row): int(weight)
        for row, weight in np.ndenumerate(sums)
        if weight
    }


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    density=st.sampled_from([0.1, 0.4, 0.9]),
    weight=st.sampled_from([-2, 1, 3]),
    name=st.sampled_from(sorted(NAMES)),
    threads=st.sampled_from([1, 3]),
)
def test_a_view_equals_the_product_of_matrices(query, seed, density, weight, name, threads):
    rng = np.random.default_rng(seed)
    first = random_matrix(rng, density, weight)
    if not first.any():
        return
    steps = [first, random_matrix(rng, 0.05, 1), -first, random_matrix(rng, density, -1)]
    with pytest.MonkeyPatch.context() as patch, working_threads(threads):
        record(patch)
        patch.setattr("dbsp_wcoj.delta_query.MIN_PARALLEL_ROWS", 64)
        patch.setattr("dbsp_wcoj.execution.term_division.MIN_DIVIDED_ROWS", 64)
        patch.setattr("dbsp_wcoj.execution.term_division.MIN_PART_ROWS", 16)
        assert generic_join(query, {"e": to_zset(first, name)}).to_dict() == evaluate(
            query, first, name
        )
        view = DeltaQuery(query)
        total = np.zeros_like(first)
        result: dict[tuple[int, ...], int] = {}
        for matrix in steps:
            total += matrix
            for row, change in view.step({"e": to_zset(matrix, name)}).to_dict().items():
                result[row] = result.get(row, 0) + change
            assert {row: w for row, w in result.items() if w} == evaluate(query, total, name)


def computed_rows(subgraph: np.ndarray) -> int:
    """The number of rows that were computed last for a base list."""
    states = subgraph[ROW_STATES:][: VERTICES * ROW_STATE_WORDS].reshape(-1, ROW_STATE_WORDS)
    return int((states[:, COST] == COMPUTED).sum())


@pytest.mark.parametrize("query", [f"n() :- {FOUR}", f"n() :- {FIVE}", f"n(a) :- {FOUR}"])
@pytest.mark.parametrize("is_view", [True, False])
def test_the_neighbours_of_each_vertex_become_the_base_list_once(query, is_view, subgraphs):
    matrix = np.triu(np.ones((VERTICES, VERTICES), np.int64), 1)
    deltas = {"e": to_zset(matrix)}
    result = DeltaQuery(query).step(deltas) if is_view else generic_join(query, deltas)
    assert result.to_dict() == evaluate(query, matrix)
    (subgraph,) = subgraphs
    assert subgraph[BASE_GENERATION] == VERTICES - MIN_BASE_VALUES
    assert computed_rows(subgraph) >= MIN_BASE_VALUES - 2


def count_cliques(matrix: np.ndarray) -> int:
    """The number of cliques of four vertices, as triangles among the neighbours of each vertex."""
    total = 0.0
    for row in matrix:
        neighbours = np.flatnonzero(row)
        edges = matrix[np.ix_(neighbours, neighbours)].astype(float)
        total += float((edges @ edges * edges).sum())
    return int(total)


def count_in_subgraph(matrix: np.ndarray, subgraphs: list[np.ndarray], step: int = 1) -> np.ndarray:
    """Check the cliques of a graph; return the states of the rows of the last base list.

    The vertices are ``step`` apart. The last one has the last base list.
    """
    source, target = np.nonzero(matrix)
    edges = ZSet.from_columns([step * source, step * target])
    with working_threads(1):
        result = generic_join(f"n() :- {FOUR}", {"e": edges}).to_dict()
    assert result == {(): count_cliques(matrix)}
    (subgraph,) = subgraphs
    size = int(matrix[-1].sum())
    assert subgraph[BASE_SIZE] == size
    states = subgraph[ROW_STATES:][: size * ROW_STATE_WORDS].reshape(-1, ROW_STATE_WORDS)
    return np.where(states[:, [ROW_GENERATION]] == subgraph[BASE_GENERATION], states, 0)


def star(neighbours: int) -> np.ndarray:
    """A graph whose last vertex has edges to all others."""
    matrix = np.zeros((neighbours + 1, neighbours + 1), np.int64)
    matrix[-1, :-1] = 1
    return matrix


@pytest.mark.parametrize("step", [1, 64])
@pytest.mark.parametrize("density", [0.1, 0.8])
@pytest.mark.parametrize("size", [63, 64, 65, 128, 200])
def test_a_row_has_a_bit_for_each_value_of_a_long_base_list(size, density, step, subgraphs):
    matrix = star(size)
    matrix[:-1, :-1] = np.random.default_rng(size).random((size, size)) < density
    matrix[: size // 2, size - 1] = 1
    states = count_in_subgraph(matrix, subgraphs, step)
    assert (states[:, COST] == COMPUTED).all()


def test_a_short_base_list_is_searched_in_a_long_list(subgraphs):
    long_list = 2 * SEARCH_COST * MIN_BASE_VALUES
    matrix = np.zeros((long_list + 2, long_list + 2), np.int64)
    base = np.linspace(3, long_list - 3, MIN_BASE_VALUES).astype(int)
    matrix[-1, base] = 1
    matrix[base, :-1] = 1
    matrix[base[::2], base[1::2]] = 0
    matrix[base[2], base[-1] :] = 0  # the search ends before the last value of the base list
    states = count_in_subgraph(matrix, subgraphs)
    lengths = states[:, LAST_VALUE] - states[:, FIRST_VALUE]
    is_searched = (states[:, COST] == COMPUTED) & (lengths > SEARCH_COST * len(base))
    assert is_searched.all()


def test_few_values_that_are_far_apart_are_tested_one_by_one_in_a_row(subgraphs):
    matrix = star(64 * (2 * MAX_WORDS_PER_VALUE + 2))
    last = len(matrix) - 2
    matrix[2, : last + 1] = 1
    for short in (0, 1, 300, 400):  # the row of 2 is computed before those of 300 and 400
        matrix[short, [2, last]] = 1
    states = count_in_subgraph(matrix, subgraphs)
    assert (states[[2, 300, 400], COST] == COMPUTED).all()
    words = (last >> 6) + 1
    assert words > MAX_WORDS_PER_VALUE * len([2, last])


def test_a_list_far_shorter_than_a_row_is_not_read_as_a_bitmap(subgraphs):
    matrix = star(64 * SEARCH_COST + 1)
    matrix[9, 9:40] = 1
    matrix[10:40, 9:11] = 1
    matrix[500, 9] = 1
    states = count_in_subgraph(matrix, subgraphs)
    assert (states[9:40, COST] == COMPUTED).all()
    assert states[500, ROW_GENERATION] == 0


def test_all_ways_to_count_cliques_count_the_same_proposals(subgraphs, monkeypatch):
    edges = {"e": to_zset(random_matrix(np.random.default_rng(6), 0.4, 1))}
    counts = set()
    for rows in (1, 10**6):
        monkeypatch.setattr(bound_terms, "MIN_PREPARED_ROWS", rows)
        view = DeltaQuery(f"n() :- {FOUR}")
        view.step(edges)
        counts.add((view.stats.proposals, view.stats.intersections))
    assert len(subgraphs) == 1
    assert len(counts) == 1


def test_a_base_list_has_a_maximum_length(subgraphs, monkeypatch):
    monkeypatch.setattr("dbsp_wcoj.execution.list_packing.MAX_BASE_VALUES", 10)
    matrix = np.triu(np.ones((VERTICES, VERTICES), np.int64), 1)
    query = f"n() :- {FOUR}"
    assert generic_join(query, {"e": to_zset(matrix)}).to_dict() == evaluate(query, matrix)
    (subgraph,) = subgraphs
    assert subgraph[BASE_GENERATION] == 10 + 1 - MIN_BASE_VALUES  # those of 8, 9 and 10 values


def test_only_runs_of_two_columns_and_one_weight_with_a_long_list_induce_subgraphs():
    nodes = np.arange(100)
    long_lists = [nodes // 10, nodes]
    assert clique_lists(build_run(ZSet.from_columns(long_lists), (0, 1))) is not None
    for columns, weights in (
        ([nodes // 7, nodes], np.ones(100, np.int64)),
        (long_lists, nodes + 1),
        ([nodes], np.ones(100, np.int64)),
        ([*long_lists, nodes], np.ones(100, np.int64)),
    ):
        run = build_run(ZSet.from_columns(columns, weights), tuple(range(len(columns))))
        assert clique_lists(run) is None


@pytest.mark.parametrize("exponent", [9, 10])
def test_a_sum_is_exact_or_an_error(exponent, subgraphs):
    matrix = np.triu(np.ones((VERTICES, VERTICES), np.int64), 1)
    edges = {"e": to_zset(matrix * 2**exponent)}
    query = f"n() :- {FOUR}"
    exact = evaluate(query, matrix)[()] * 2 ** (6 * exponent)
    if exact < 2**63:
        assert generic_join(query, edges).to_dict() == {(): exact}
    else:
        with pytest.raises(WeightOverflowError):
            generic_join(query, edges)
    assert len(subgraphs) == 1
