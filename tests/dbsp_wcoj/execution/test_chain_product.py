"""Chain products equal the generic join, for any weights; it computes other queries and deltas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, LimitError, Query, Relations, ZSet
from dbsp_wcoj.execution import chain_product
from dbsp_wcoj.execution.chain_product import ChainProducts, find_chain
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.storage.row_keys import KeyLayout, RowKeySet
from dbsp_wcoj.storage.trace import build_run

CHAINS = [
    "q(x, z) :- e(x, y), d(y, z)",
    "q(x, z, i) :- e(x, y), d(y, z, i)",
    "q(x, i, z) :- d(x, y, i), e(y, z)",
    "q(i, z) :- d(y, i), e(y, z)",
    "q(z, x) :- e(y, x), d(y, z)",
    "q(x, i, y) :- e(a, x), d(a, b, i), e(b, y)",
    "q(x, i, y) :- e(a, x), f(b, y), d(a, b, i)",
    "q(x, y) :- e(x, a), f(a, b), e(b, c), d(y, c)",
]
VALUE = st.integers(-2, 2)
WEIGHT = st.sampled_from([1, 1, 1, 2, -1])


@pytest.fixture(autouse=True)
def any_size():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_product, "MIN_DELTA_ROWS", 1)
        patch.setattr(chain_product, "MAX_ROWS_PER_DELTA_ROW", 100)
        patch.setattr(chain_product, "CHUNK_ROWS", 1)
        yield


def rows(arity: int, **sizes: int) -> st.SearchStrategy[dict[tuple[int, ...], int]]:
    row = st.tuples(*[VALUE] * arity)
    return st.dictionaries(row, WEIGHT, max_size=8, **sizes)


def zset(weights: dict[tuple[int, ...], int], arity: int) -> ZSet:
    return ZSet.from_rows(list(weights), list(weights.values()), arity=arity)


@pytest.mark.parametrize("text", CHAINS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_product_equals_the_generic_join(text, data):
    query = Query.parse(text)
    relations = Relations()
    view = DeltaQuery(query, relations=relations)
    products = ChainProducts()
    has_tag = "i" in query.head
    for step in range(3):
        others = {name: zset(data.draw(rows(2)), 2) for name in relations.arities if name != "d"}
        relations.stage(others).commit()
        delta = zset(data.draw(rows(2 - (text == CHAINS[3]), min_size=1)), 2 - (text == CHAINS[3]))
        uniform = data.draw(st.sampled_from([0, 0, -1, 2]))
        if uniform:
            delta = ZSet(delta.row_array, np.full(len(delta), uniform))
        if has_tag:
            tag = np.full((1, len(delta)), step)
            delta = ZSet(np.concatenate((delta.row_array, tag)), delta.weight_array)
        staged = relations.stage({"d": delta})
        chain = find_chain(query, "d")
        assert chain is not None
        product = products.multiply(chain, staged.by_name["d"], relations.traces)
        assert product is not None
        product._check()
        assert product == view.evaluate(staged)
        assert product == view.evaluate(staged, chain_products=products)
        staged.commit()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_keys_of_a_product_are_those_of_its_rows(data):
    relations = Relations()
    query = Query.parse("q(x, z, i) :- e(x, y), d(y, z, i)")
    DeltaQuery(query, relations=relations)
    uniform = data.draw(st.sampled_from([1, 3]))
    edges = data.draw(st.sets(st.tuples(VALUE, VALUE), min_size=1, max_size=8))
    relations.stage({"e": ZSet.from_rows(edges, [uniform] * len(edges))}).commit()
    delta = ZSet.from_rows(
        {(*row, 7) for row in data.draw(st.sets(st.tuples(VALUE, VALUE), min_size=1))}
    )
    staged = relations.stage({"d": delta})
    chain = find_chain(query, "d")
    assert chain is not None
    rows = ChainProducts().multiply_parts(chain, staged.by_name["d"], relations.traces)
    assert rows is not None
    product = rows.source
    assert isinstance(product, chain_product.ChainProduct) and product.has_positive_weights
    layout = KeyLayout.covering(product.extremes)
    assert layout is not None
    known_keys = data.draw(st.sets(st.integers(0, (1 << layout.total_bits) - 1)))
    known = RowKeySet(layout.total_bits)
    bitmap = known.bitmap(1 << 16)
    assert bitmap is not None
    known.add_absent(np.array(sorted(known_keys), np.int64))
    chunks = [[array.copy() for array in chunk] for chunk in product.derive_keys(layout, bitmap)]
    total = rows.sorted()
    assert rows.source is None
    keys = layout.encode(total.row_array[:2]).tolist()
    assert [key for chunk in chunks for key in chunk[0].tolist()] == keys
    assert [w for chunk in chunks for w in chunk[1].tolist()] == total.weights.tolist()
    new_keys = [key for chunk in chunks for key in chunk[2].tolist()]
    assert new_keys == [key for key in keys if key not in known_keys]
    known.count_added(len(new_keys))
    all_rows = known.rows(layout)
    assert layout.encode(all_rows).tolist() == sorted(known_keys | set(keys))


@settings(max_examples=60, deadline=None)
@given(rows(3, min_size=1), st.sampled_from([0, -1, 2]))
def test_the_factor_of_rows_is_that_of_their_run(weights, uniform):
    delta = zset(weights, 3)
    if uniform:
        delta = ZSet(delta.row_array, np.full(len(delta), uniform))
    factor = chain_product._Factor.of_rows(delta)
    if len({*delta.weights.tolist()}) > 1:
        assert factor is None
        return
    assert factor is not None
    expected = chain_product._Factor.of(build_run(delta, (0, 1, 2)))
    for name in ("rows", "target_range", "max_abs_weight", "has_equal_positive_weights"):
        assert getattr(factor, name) == getattr(expected, name)
    assert factor.sources.tolist() == expected.sources.tolist()
    assert factor.positions is not None and expected.positions is not None
    assert factor.positions.tolist() == expected.positions.tolist()


def test_a_product_builds_no_run_of_its_delta():
    """The generic join would sort the delta into the order of each of its terms."""
    relations = Relations()
    view = DeltaQuery("q(x, i, y) :- e(a, x), d(a, b, i), e(b, y)", relations=relations)
    edges = ZSet.from_rows([(k, k // 2) for k in range(9)])
    relations.stage({"e": edges}).commit()
    products = ChainProducts()
    for i in range(3):
        staged = relations.stage({})
        delta = ZSet.from_rows([(a, b, i) for a in range(5) for b in range(5)])
        staged.add("d", delta, is_committed=False)
        result = view.evaluate(staged, chain_products=products)
        assert not staged.by_name["d"]._runs
        assert result == view.evaluate(relations.stage({"d": delta})) and len(result)


def test_rows_of_an_overlay_are_read():
    relations = Relations()
    view = DeltaQuery("q(x, z) :- e(x, y), d(y, z)", relations=relations)
    relations.stage({"e": ZSet.from_rows([(1, 2)])}).commit()
    trace = relations.traces["e"]
    trace.push_overlay(trace.prepare(ZSet.from_rows([(5, 2)])))
    staged = relations.stage({"d": ZSet.from_rows([(2, 3)])})
    result = view.evaluate(staged, chain_products=ChainProducts())
    assert result == ZSet.from_rows([(1, 3), (5, 3)])
    trace.pop_overlay()


@pytest.mark.parametrize(
    "text",
    [
        "q(x, z) :- d(x, z)",
        "q(x, z) :- d(x, y), d(y, z)",
        "q(x, y, z) :- e(x, y), d(y, z)",
        "q(x) :- e(x, y), d(y, z)",
        "q(x, x) :- e(x, y), d(y, z)",
        "q(x, z) :- e(x, y), d(y, z), x < z",
        "q(x, z) :- e(x, y), d(y, 1), f(y, z)",
        "q(x, z) :- e(x, y), d(y, y), f(y, z)",
        "q(x, z) :- e(x, y), d(y, z), f(y, w)",
        "q(x, z) :- e(x, y), d(y, z), f(a, b), g(a, b)",
        "q(x, z) :- e(x, y, w), d(y, z)",
        "q(x, z) :- e(x, y, i), d(y, z, i)",
        "q(x, z) :- e(x, z), d(a, b), f(a, b)",
    ],
)
def test_other_queries_are_no_chains(text):
    assert find_chain(Query.parse(text), "d") is None


@pytest.mark.parametrize(
    ("edges", "delta"),
    [
        ([(0, 2**40), (0, -(2**40))], [(2**40, 0, 1), (-(2**40), 1, 1)]),
        ([(0, 1)], [(1, 2**40, 1), (1, -(2**40), 1)]),
        ([(0, 1)], [(1, 2, 1), (1, 3, 2)]),
    ],
    ids=["sparse middle values", "sparse targets", "two tags"],
)
def test_other_deltas_are_left_to_the_generic_join(edges, delta):
    relations = Relations()
    text = "q(x, z, i) :- e(x, y), d(y, z, i)"
    view = DeltaQuery(text, relations=relations)
    relations.stage({"e": ZSet.from_rows(edges)}).commit()
    staged = relations.stage({"d": ZSet.from_rows(delta)})
    chain = find_chain(Query.parse(text), "d")
    assert chain is not None
    products = ChainProducts()
    assert products.multiply(chain, staged.by_name["d"], relations.traces) is None
    expected = {(0, z, i): 1 for _, z, i in delta}
    assert view.evaluate(staged, chain_products=products).to_dict() == expected


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_that_differ_only_in_a_tag_that_the_head_drops_are_added_up(data):
    relations = Relations()
    view = DeltaQuery("q(x, z) :- e(x, y), d(y, z, i)", relations=relations)
    relations.stage({"e": zset(data.draw(rows(2, min_size=1)), 2)}).commit()
    staged = relations.stage({"d": zset(data.draw(rows(3, min_size=1)), 3)})
    assert view.evaluate(staged, chain_products=ChainProducts()) == view.evaluate(staged)


def test_large_weights_are_left_to_the_generic_join():
    relations = Relations()
    text = "q(x, z) :- e(x, y), d(y, z)"
    view = DeltaQuery(text, relations=relations)
    relations.stage({"e": ZSet.from_rows([(1, 2), (1, 4)], [2**40, 1])}).commit()
    staged = relations.stage({"d": ZSet.from_rows([(2, 3), (4, 3)], [2**22, 1])})
    chain = find_chain(Query.parse(text), "d")
    assert chain is not None
    products = ChainProducts()
    assert products.multiply(chain, staged.by_name["d"], relations.traces) is None
    result = view.evaluate(staged, chain_products=products)
    assert result.to_dict() == {(1, 3): 2**62 + 1}


@pytest.mark.parametrize("runs", [1, 2])
def test_a_relation_that_is_large_for_the_deltas_is_not_read(runs, monkeypatch):
    """Rows in several runs would be copied, so their limit is lower."""
    monkeypatch.setattr(chain_product, "MAX_ROWS_PER_DELTA_ROW", 2 if runs > 1 else 1)
    monkeypatch.setattr(chain_product, "MAX_READ_ROWS_PER_DELTA_ROW", 2 if runs == 1 else 9)
    relations = Relations()
    text = "q(x, z) :- d(x, y), e(y, z)"
    view = DeltaQuery(text, relations=relations)
    relations.stage({"e": ZSet.from_rows([(k, k) for k in range(4)])}).commit()
    trace = relations.traces["e"]
    if runs > 1:
        trace.push_overlay(trace.prepare(ZSet.from_rows([(0, 0)])))
    assert len(trace.visible_runs((0, 1))) == runs
    chain = find_chain(Query.parse(text), "d")
    assert chain is not None
    products = ChainProducts()
    staged = relations.stage({"d": ZSet.from_rows([(0, 1)])})
    assert products.multiply(chain, staged.by_name["d"], relations.traces) is None
    if runs > 1:
        assert products.multiply(chain, staged.by_name["d"], relations.traces) is None
    # All deltas together have half as many rows as the relation.
    product = products.multiply(chain, staged.by_name["d"], relations.traces)
    assert product == view.evaluate(staged) == ZSet.from_rows([(0, 1)])
    if runs > 1:
        trace.pop_overlay()


def test_the_rows_of_a_product_count_towards_the_limits():
    relations = Relations()
    view = DeltaQuery("q(x, z) :- e(x, y), d(y, z)", relations=relations)
    relations.stage({"e": ZSet.from_rows([(k, 0) for k in range(9)])}).commit()
    staged = relations.stage({"d": ZSet.from_rows([(0, 3)])})
    budget = Budget(StepLimits(max_step_rows=5))
    with pytest.raises(LimitError):
        view.evaluate(staged, budget, ChainProducts())
