"""The compiled join against the readable join, the naive oracle, numpy joins and sparse products.

Small random queries reach every case of the kernel. The large ones reach what small ones cannot:
hubs, galloping search, chunks of output, rows that do not fit 64 bits together, and weights near
the bounds of int64.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import (
    ArityError,
    DbspWcojError,
    Query,
    Trace,
    UnknownRelationError,
    VariableOrderError,
    WeightOverflowError,
    ZSet,
    generic_join,
)
from dbsp_wcoj.storage.trace import build_run
from dbsp_wcoj.zset import MAX_INT64
from tests.generators.strategies import DOMAINS, LAW, queries, relation_deltas, zset
from tests.oracles import columnar, naive

ENGINES = ("compiled", "reference")
TRIANGLE = "t(a, b, c) :- e(a, b), e(b, c), e(a, c)"
MIN_INT64 = -(1 << 63)


@st.composite
def joins(draw: st.DrawFn):
    """Draw a query, a relation for each *atom*, as in a delta term, and a variable order."""
    domain = draw(st.sampled_from(DOMAINS))
    query = draw(queries(domain))
    relations = [draw(relation_deltas(atom.arity, domain, max_size=12)) for atom in query.body]
    return query, relations, draw(st.permutations(query.variables))


@settings(LAW, max_examples=300)
@given(joins())
def test_compiled_and_reference_equal_the_naive_join_in_any_variable_order(join):
    query, relations, order = join
    expected = naive.evaluate(query, relations)
    inputs = [
        zset(relation, arity=atom.arity)
        for relation, atom in zip(relations, query.body, strict=True)
    ]
    for engine in ENGINES:
        assert generic_join(query, inputs, order=order, engine=engine).to_dict() == expected
        assert generic_join(query, inputs, engine=engine).to_dict() == expected


@pytest.mark.slow
@settings(LAW, max_examples=5000)
@given(joins())
def test_many_more_joins_equal_the_naive_join(join):
    query, relations, order = join
    inputs = [
        zset(relation, arity=atom.arity)
        for relation, atom in zip(relations, query.body, strict=True)
    ]
    result = generic_join(query, inputs, order=order).to_dict()
    assert result == naive.evaluate(query, relations)


@LAW
@given(st.data())
def test_values_at_the_bounds_of_int64_are_joined(data):
    domain = (MIN_INT64, MIN_INT64 + 1, 0, MAX_INT64 - 1, MAX_INT64)
    query = data.draw(queries(domain))
    state = {
        name: data.draw(relation_deltas(arity, domain)) for name, arity in query.relations.items()
    }
    relations = {name: zset(state[name], arity=arity) for name, arity in query.relations.items()}
    assert generic_join(query, relations).to_dict() == naive.evaluate(query, state)


WEIGHTS = (1, -1, 2, 1 << 31, -(1 << 31), (1 << 31) + 1, 1 << 62, -(1 << 62), MAX_INT64, -MAX_INT64)


@settings(LAW, max_examples=300)
@given(st.data())
def test_large_weights_give_the_exact_answer_or_an_overflow_error(data):
    """A weight never wraps around, and small weights are not refused."""
    domain = (0, 1, 2)
    query = data.draw(queries(domain))
    state = {
        name: data.draw(
            st.dictionaries(
                st.tuples(*[st.sampled_from(domain)] * arity), st.sampled_from(WEIGHTS), max_size=5
            )
        )
        for name, arity in query.relations.items()
    }
    expected = naive.evaluate(query, state)
    relations = {name: zset(state[name], arity=arity) for name, arity in query.relations.items()}
    absolute_weights = naive.evaluate(
        query,
        {
            name: {row: abs(weight) for row, weight in delta.items()}
            for name, delta in state.items()
        },
    )
    fits = all(MIN_INT64 <= weight <= MAX_INT64 for weight in expected.values())
    # A bound of all intermediate sums and products.
    product_of_sums = np.prod(
        [float(sum(map(abs, state[atom.relation].values())) or 1) for atom in query.body]
    )
    try:
        result = generic_join(query, relations).to_dict()
    except WeightOverflowError:
        assert (
            not fits
            or max(absolute_weights.values(), default=0) > MAX_INT64
            or product_of_sums > MAX_INT64
        )
    else:
        assert result == expected


def test_a_product_of_weights_that_wraps_to_a_small_number_is_an_error():
    """2**32 * 2**32 is 0 in 64 bits, and (2**32 + 1) * (2**32 + 1) a small positive number."""
    query = Query.parse("n() :- r(a), s(a)")
    for left, right in [(1 << 32, 1 << 32), ((1 << 32) + 1, (1 << 32) + 1)]:
        relations = {"r": ZSet.from_rows([(1,)], [left]), "s": ZSet.from_rows([(1,)], [right])}
        with pytest.raises(WeightOverflowError):
            generic_join(query, relations)


def test_a_sum_of_weights_that_wraps_is_an_error():
    query = Query.parse("n() :- r(a)")
    rows = [(i,) for i in range(4)]
    with pytest.raises(WeightOverflowError):
        generic_join(query, {"r": ZSet.from_rows(rows, [1 << 62] * 4)})
    count = generic_join(query, {"r": ZSet.from_rows(rows[:2], [MAX_INT64 - 1, 1])})
    assert count.to_dict() == {(): MAX_INT64}


@pytest.mark.parametrize("seed", range(30))
def test_many_rows_of_huge_weights_give_the_exact_answer_or_an_overflow_error(seed):
    """Partial sums over a thousand rows leave int64, and the total may be within it again."""
    rng = np.random.default_rng(seed)
    size = int(10 ** rng.uniform(0.5, 3))
    huge = int(rng.choice([1 << 50, 1 << 58, 1 << 62, MAX_INT64]))
    state = {
        name: {
            tuple(row): int(weight)
            for row, weight in zip(
                rng.integers(0, 40, (size, arity)).tolist(),
                rng.choice([-huge, huge, huge - 1, 1, -1], size),
                strict=True,
            )
        }
        for name, arity in (("r", 2), ("s", 1), ("t", 2))
    }
    state["s"] = {row: int(rng.choice([1, 1, 2])) for row in state["s"]}
    for text in (
        "n() :- r(a, b)",
        "q(a) :- r(a, b)",
        "q(b) :- r(a, b), s(b)",
        "n() :- r(a, b), s(a), s(b), a < b",
        "q(a) :- r(a, b), t(a, b)",
        "n() :- s(a), t(a, b)",
    ):
        query = Query.parse(text)
        relations = {
            name: zset(state[name], arity=arity) for name, arity in query.relations.items()
        }
        expected = naive.evaluate(query, state)
        try:
            result = generic_join(query, relations).to_dict()
        except WeightOverflowError:
            continue
        assert result == expected, text


def test_an_order_that_is_no_permutation_is_an_error():
    query = Query.parse(TRIANGLE)
    edges = {"e": ZSet.from_rows([(1, 2)])}
    for order in [("a", "b"), ("a", "b", "c", "c"), ("a", "b", "d"), (), ("a", "b", "c", "d")]:
        for engine in ENGINES:
            with pytest.raises(VariableOrderError, match="c"):
                generic_join(query, edges, order=order, engine=engine)


def test_relations_that_do_not_fit_the_query_are_an_error():
    query = Query.parse(TRIANGLE)
    good, wide = ZSet.from_rows([(1, 2)]), ZSet.from_rows([(1, 2, 3)])
    with pytest.raises(ArityError):
        generic_join(query, {"e": wide})
    with pytest.raises(ArityError):
        generic_join(query, [good, wide, good])
    with pytest.raises(ArityError):
        generic_join(query, [good, good])
    with pytest.raises(UnknownRelationError):
        generic_join(query, {"f": good})


def test_an_unknown_engine_is_an_error_that_names_the_engines():
    with pytest.raises((DbspWcojError, ValueError), match="compiled"):
        generic_join(Query.parse(TRIANGLE), {"e": ZSet.empty(2)}, engine="quantum")


def test_a_query_without_variables_multiplies_the_weights_of_its_rows():
    query = Query.parse("q() :- r(1, 2), s(3), r(1, 2)")
    relations = {"r": ZSet.from_rows([(1, 2), (2, 1)], [3, 5]), "s": ZSet.from_rows([(3,)], [-2])}
    for engine in ENGINES:
        assert generic_join(query, relations, engine=engine).to_dict() == {(): -18}
        empty = {**relations, "s": ZSet.empty(1)}
        assert generic_join(query, empty, engine=engine).to_dict() == {}


def test_a_cross_product_sums_over_the_variables_that_are_not_in_the_head():
    query = Query.parse("q(a) :- r(a), s(b), t(c)")
    relations = {
        "r": ZSet.from_rows([(1,), (2,)], [1, -2]),
        "s": ZSet.from_rows([(i,) for i in range(100)]),
        "t": ZSet.from_rows([(i,) for i in range(50)], [2] * 50),
    }
    assert generic_join(query, relations).to_dict() == {(1,): 10_000, (2,): -20_000}


def test_weights_that_cancel_leave_no_row():
    query = Query.parse("q(a) :- r(a, b), s(b)")
    relations = {
        "r": ZSet.from_rows([(1, 2), (1, 3)], [2, -1]),
        "s": ZSet.from_rows([(2,), (3,)], [3, 6]),
    }
    assert generic_join(query, relations).to_dict() == {}


# --- larger inputs -------------------------------------------------------------------------------

VALUES = {
    "dense": lambda nodes: nodes,
    "negative": lambda nodes: nodes - nodes.max() // 2,
    "sparse": lambda nodes: nodes * 1_000_003 + 17,
    "near 2**62": lambda nodes: np.where(nodes % 2 == 0, nodes, -nodes) * (1 << 51),
}
QUERIES = {
    "triangle": TRIANGLE,
    "3-cycle": "c(a, b, c) :- e(a, b), e(b, c), e(c, a)",
    "ordered triangle": "t(a, b, c) :- e(a, b), e(b, c), e(c, a), a < b, a < c, b != c",
    "path": "p(a, d) :- e(a, b), e(b, c), e(c, d), a < d",
    "4-cycle": "q(a, c) :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "star": "s(a) :- e(a, b), e(a, c), e(a, d)",
    "4-clique": "k(a, d) :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)",
    "tailed": "t(d, a) :- e(a, b), e(b, c), e(a, c), e(c, d), e(d, d)",
}


def hub_graph(rng: np.random.Generator, nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random edges, a third of them at node 0 or 1; with loops and duplicates."""
    source, target = rng.integers(0, nodes, (2, edges))
    source[: edges // 6] = 0
    target[edges // 6 : edges // 3] = rng.integers(0, 2, edges // 3 - edges // 6)
    return source, target


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("query", QUERIES)
def test_large_joins_with_hubs_equal_the_numpy_joins(query, values):
    rng = np.random.default_rng(list(QUERIES).index(query))
    source, target = (VALUES[values](nodes) for nodes in hub_graph(rng, 120, 1_200))
    weights = rng.integers(-2, 4, len(source))
    edges = columnar.consolidate((source, target), weights)
    parsed = Query.parse(QUERIES[query])
    expected = columnar.evaluate(parsed, {"e": edges})
    result = generic_join(parsed, {"e": ZSet.from_columns([source, target], weights)})
    assert np.array_equal(result.weights, expected[1])
    for column, expected_column in zip(result.columns, expected[0], strict=True):
        assert np.array_equal(column, expected_column)


@pytest.mark.parametrize("values", VALUES)
def test_joins_of_wide_relations_equal_the_numpy_joins(values):
    rng = np.random.default_rng(3)
    parsed = Query.parse("q(e, a) :- r(a, b, c, d), s(d, b, e), t(e, c, a, x, x), a != e")
    wide = {
        name: columnar.consolidate(
            tuple(VALUES[values](rng.integers(0, 8, 3_000)) for _ in range(arity)),
            rng.integers(-2, 3, 3_000),
        )
        for name, arity in parsed.relations.items()
    }
    expected = columnar.evaluate(parsed, wide)
    result = generic_join(
        parsed,
        {name: ZSet.from_columns(columns, weights) for name, (columns, weights) in wide.items()},
    )
    assert len(expected[1]) > 20
    assert result == ZSet.from_columns(*expected)


def test_counts_on_a_larger_graph_equal_sparse_matrix_products():
    rng = np.random.default_rng(5)
    n = 20_000
    source, target = hub_graph(rng, n, 60_000)
    graph = ZSet.from_columns([source, target], rng.integers(1, 3, len(source)))
    a = sp.csr_matrix((graph.weights, graph.columns), shape=(n, n))
    counts = {
        "n() :- e(a, b), e(b, c), e(a, c)": (a @ a).multiply(a).sum(),
        "n() :- e(a, b), e(b, c), e(c, a)": (a @ a).multiply(a.T).sum(),
        "n() :- e(a, b), e(b, c), e(c, d)": a.sum(axis=0) @ a @ a.sum(axis=1),
        "n() :- e(a, b), e(c, b), e(d, b)": (a.sum(axis=0).A1.astype(object) ** 3).sum(),
        "n() :- e(a, a), e(a, b)": a.diagonal() @ a.sum(axis=1).A1,
    }
    for text, expected in counts.items():
        parsed = Query.parse(text)
        assert generic_join(parsed, {"e": graph}).to_dict() == {
            (): int(np.asarray(expected).item())
        }


def test_a_hub_does_not_make_a_triangle_count_quadratic():
    """A star in both directions has no triangle, but a binary plan would join 4 * 10**10 paths."""
    n = 200_000
    leaves = np.arange(1, n + 1)
    hub = np.zeros(n, dtype=np.int64)
    star = ZSet.from_columns([np.concatenate([hub, leaves]), np.concatenate([leaves, hub])])
    parsed = Query.parse("n() :- e(a, b), e(b, c), e(c, a)")
    generic_join(parsed, {"e": ZSet.from_rows([(1, 2)])})  # loads the kernel
    start = time.process_time()
    assert generic_join(parsed, {"e": star}).to_dict() == {}
    assert time.process_time() - start < 20


def test_a_count_of_many_million_rows_does_not_enumerate_them():
    """No variable is in the head, so the weights of the last one are summed."""
    parsed = Query.parse("n() :- r(a), s(b), t(c)")
    thousand = ZSet.from_columns([np.arange(1000)])
    counted = generic_join(parsed, {"r": thousand, "s": thousand, "t": thousand})
    assert counted.to_dict() == {(): 10**9}


def test_a_result_of_a_million_rows_is_complete_and_sorted():
    parsed = Query.parse("q(b, a) :- r(a), s(b)")
    thousand = ZSet.from_columns([np.arange(1000)], np.arange(1, 1001))
    result = generic_join(parsed, {"r": thousand, "s": thousand})
    b, a = np.divmod(np.arange(1_000_000), 1000)
    assert np.array_equal(result.columns[0], b)
    assert np.array_equal(result.columns[1], a)
    assert np.array_equal(result.weights, (a + 1) * (b + 1))


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_a_trace_is_joined_like_the_sum_of_its_deltas(engine):
    rows = [(1, 2), (2, 3), (1, 3), (3, 1)]
    trace = Trace(2)
    for row in rows:
        trace.update(ZSet.from_rows([row]))
    trace.update(ZSet.from_rows([(3, 1)], [-1]))
    trace.arrange((1, 0))

    joined = generic_join("q(a, c) :- e(a, b), e(b, c)", {"e": trace}, engine=engine)

    assert joined == generic_join("q(a, c) :- e(a, b), e(b, c)", {"e": trace.to_zset()})


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_a_join_with_an_empty_trace_is_empty(engine):
    assert len(generic_join("q(a) :- e(a, b)", {"e": Trace(2)}, engine=engine)) == 0


@pytest.mark.parametrize("comparison", ["c != 0", "0 != c"])
def test_a_constant_excludes_its_value_from_a_summed_variable(comparison):
    edges = ZSet.from_rows([(0, 0), (1, 2), (2, 3), (1, 3)])
    text = f"q() :- e(a, b), e(b, c), e(a, c), {comparison}"

    assert generic_join(text, {"e": edges}).to_dict() == {(): 1}
    assert generic_join(f"q() :- e(a, c), {comparison}", {"e": edges}).to_dict() == {(): 3}


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("head", ["", "a, b, c"])
def test_a_join_with_a_trace_whose_rows_cancel_is_empty(engine, head):
    cancelled = Trace(2)
    rows = ZSet.from_rows([(1, 2), (2, 3), (1, 3), (3, 1)])
    cancelled.load({(0, 1): [build_run(rows, (0, 1)), build_run(-rows, (0, 1))]})
    assert not cancelled.is_empty  # its runs are not merged
    query = f"q({head}) :- e(a, b), f(b, c), e(a, c), f(c, a)"
    for e, f in ((cancelled, rows), (rows, cancelled), (cancelled, cancelled)):
        assert len(generic_join(query, {"e": e, "f": f}, engine=engine)) == 0
