"""Cycles over whole relations, counted by intersecting packed or narrow lists.

The oracle is a product of matrices.
"""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import Trace, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.kernels.join.packed_lists import FIRST_NODE, NODE_WORDS, pack_run, packed_words
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.zset import MAX_INT64
from tests.support.working_threads import working_threads

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
VERTICES = 400

# Vertex names: each range of values covers another case of directory, words and bitmap.
NAMES = {
    "dense": lambda k: k,
    "one of each word": lambda k: 64 * k + 63,
    "around zero": lambda k: k - VERTICES // 2,
    "from the lowest int64 on": lambda k: k - 2**63,
    "to the highest int64": lambda k: k + (2**63 - VERTICES),
    "some far away": lambda k: k + (k > VERTICES - 3) * 2**50,
    "too wide for a bitmap": lambda k: k * 2**40,
}


@pytest.fixture(params=["packed", "narrow"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let joins read lists in this form; narrow lists defer one intersection at most."""
    limit = 1.0 if request.param == "packed" else 0.0
    monkeypatch.setattr("dbsp_wcoj.execution.list_packing.MAX_PAIRS_PER_ROW", limit)
    monkeypatch.setattr("dbsp_wcoj.execution.join_buffers.MAX_DEFERRED", 1)
    return str(request.param)


def graph(seed: int, rows: int = 6_000) -> np.ndarray:
    """An adjacency matrix with hubs, a clique and vertices without successors."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((VERTICES, VERTICES), np.int64)
    source = (VERTICES * rng.random(rows) ** 2).astype(int)
    matrix[source, rng.integers(0, VERTICES, rows)] = 1
    matrix[100:160, 100:160] = 1
    matrix[3, :] = 1
    matrix[:, 5] = 1
    matrix[VERTICES // 2 : VERTICES // 2 + 20, :] = 0
    return matrix


def zset(matrix: np.ndarray, name: str) -> ZSet:
    names = np.array([NAMES[name](k) for k in range(VERTICES)], np.int64)
    source, target = np.nonzero(matrix)
    return ZSet.from_columns([names[source], names[target]], matrix[source, target])


def count(query: str, *views: ZSet | Trace, **options: object) -> int:
    return generic_join(query, views, **options).to_dict().get((), 0)


@pytest.mark.parametrize("name", NAMES)
def test_triangles_of_a_whole_graph_equal_a_product_of_matrices(name):
    for seed in range(3):
        matrix = graph(seed)
        edges = zset(matrix, name)
        assert count(TRIANGLES, edges, edges, edges) == ((matrix @ matrix) * matrix).sum()


@pytest.mark.parametrize("name", ["dense", "too wide for a bitmap"])
def test_three_relations_of_one_weight_each_multiply_their_weights(name):
    left, middle, right = 2 * graph(1), -3 * graph(2), 5 * graph(3)
    expected = ((left @ middle) * right).sum()
    query = "n() :- e(a, b), f(b, c), g(a, c)"
    assert count(query, *(zset(matrix, name) for matrix in (left, middle, right))) == expected


@pytest.mark.parametrize("place", range(3))
def test_weights_that_differ_in_one_relation_are_multiplied_one_by_one(place):
    matrices = [graph(seed) for seed in range(3)]
    matrices[place] *= np.random.default_rng(9).integers(1, 9, matrices[place].shape)
    left, middle, right = matrices
    query = "n() :- e(a, b), f(b, c), g(a, c)"
    found = count(query, *(zset(matrix, "dense") for matrix in matrices))
    assert found == ((left @ middle) * right).sum()


def test_restricted_triangles_count_only_nodes_in_range():
    matrix = graph(4)
    edges = zset(matrix, "dense")
    a, b = np.indices(matrix.shape)
    for text, kept in (("a < b", a < b), ("b >= 120", b >= 120), ("a != b", a != b)):
        expected = (((matrix * kept) @ matrix) * matrix).sum()
        assert count(f"{TRIANGLES}, {text}", edges, edges, edges) == expected, text


def test_parts_on_threads_read_the_same_packed_run():
    matrix = graph(5, rows=60_000)
    edges = zset(matrix, "dense")
    with working_threads(2):
        found = count(TRIANGLES, edges, edges, edges)
    assert found == ((matrix @ matrix) * matrix).sum()


def test_a_trace_and_a_zset_can_be_read_side_by_side():
    matrix = graph(6)
    edges, trace = zset(matrix, "dense"), Trace(2)
    trace.update(edges)
    expected = ((matrix @ matrix) * matrix).sum()
    for place in range(3):
        views = [trace if k == place else edges for k in range(3)]
        assert count(TRIANGLES, *views) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_packed_run_contains_each_value_once(name):
    matrix = graph(7)
    run = build_run(zset(matrix, name), (0, 1))
    nodes = int(matrix.any(axis=1).sum())
    packed = np.empty(packed_words(nodes, run.rows), np.int64)
    assert pack_run(run.address, address_of(packed))
    unpacked = []
    for node in range(nodes):
        first, last = (int(packed[FIRST_NODE + NODE_WORDS * (node + more)]) for more in (0, 1))
        for word, bits in packed[first:last].reshape(-1, 2).tolist():
            unpacked += [64 * word + k for k in range(64) if bits >> k & 1]
    columns, _ = run.read()
    assert unpacked == columns[1].tolist()


def test_a_run_with_several_weights_or_few_nodes_is_not_packed():
    weighted = ZSet.from_columns([np.arange(99), np.arange(99)], np.arange(1, 100))
    few = ZSet.from_columns([np.zeros(99, np.int64), np.arange(99)])
    for edges in (weighted, few):
        run = build_run(edges, (0, 1))
        assert not pack_run(run.address, address_of(np.empty(packed_words(99, 99), np.int64)))


def test_a_sum_beyond_int64_raises_an_error():
    edges = ZSet.from_columns(
        [np.repeat(np.arange(40), 40), np.tile(np.arange(40), 40)], np.full(1600, 2**40)
    )
    assert MAX_INT64 < 40**3 * 2**120
    with pytest.raises(WeightOverflowError):
        count(TRIANGLES, edges, edges, edges)
