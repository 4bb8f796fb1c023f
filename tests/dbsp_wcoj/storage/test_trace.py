"""Runs, spines and traces under long streams: no row is lost over hundreds of merges.

A merge error shows only when a key's rows lie in runs of several ages, some of them half merged.
So the streams here are long, mix steps of one row with steps of thousands, delete what they
inserted, and are compared with recomputation all along the way.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ArityError, DbspWcojError, DeltaQuery, Query, Trace, WeightOverflowError, ZSet
from tests.generators.strategies import DOMAINS, FORMULAS, LAW, relation_deltas, zset
from tests.oracles import columnar, naive

MOST = (1 << 63) - 1


def check(trace: Trace) -> None:
    """The invariants that each part states of itself."""
    for arrangement in trace.arrangements:
        arrangement.spine._check()
        for run in arrangement.spine.runs:
            assert run.rows > 0


@LAW
@given(st.data())
def test_a_trace_is_the_sum_of_its_deltas_in_every_column_order(data):
    arity = data.draw(st.integers(1, 4))
    domain = data.draw(st.sampled_from(DOMAINS))
    orders = [
        tuple(order) for order in data.draw(st.lists(st.permutations(range(arity)), min_size=1))
    ]
    trace, total = Trace(arity, orders), {}
    for delta in data.draw(st.lists(relation_deltas(arity, domain), max_size=12)):
        trace.update(zset(delta, arity=arity))
        total = naive.add(total, delta)
        if data.draw(st.booleans()):
            trace.arrange(tuple(data.draw(st.permutations(range(arity)))))
        check(trace)
    assert trace.to_zset().to_dict() == total
    asked = data.draw(relation_deltas(arity, domain))
    found = trace.weights_of(zset(asked, arity=arity)).tolist()
    assert found == [total.get(row, 0) for row in sorted(asked)]
    for arrangement in trace.arrangements:
        rows = [read(run, arrangement.order) for run in arrangement.spine.runs]
        assert naive.add(*rows) == total


def read(run, order):
    """A run as row -> weight, its columns back in the relation's order; sorted within the run."""
    columns, weights = run.read()
    rows = list(zip(*columns.tolist(), strict=True))
    assert rows == sorted(set(rows))
    place = np.argsort(order)
    return {tuple(row[p] for p in place): w for row, w in zip(rows, weights.tolist(), strict=True)}


@pytest.mark.parametrize("seed", range(4))
def test_a_long_stream_of_uneven_steps_equals_numpy(seed):
    """Sizes from 1 to 20,000; a third of the steps takes back rows that are there."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.choice([50, 2_000, 1 << 40]))
    trace = Trace(2, [(0, 1), (1, 0)])
    total = (np.empty(0, np.int64), np.empty(0, np.int64)), np.empty(0, np.int64)
    for number in range(150):
        size = int(10 ** rng.uniform(0, 4.3))
        if number % 3 == 2 and len(total[1]):
            chosen = rng.integers(0, len(total[1]), min(size, len(total[1])))
            chosen = np.unique(chosen)
            columns, weights = tuple(c[chosen] for c in total[0]), -total[1][chosen]
        else:
            columns = tuple(rng.integers(-nodes, nodes, (2, size)))
            weights = rng.integers(-2, 4, size)
        trace.update(ZSet.from_columns(columns, weights))
        total = columnar.add(total, (columns, weights))
        if number % 10 == 9:
            check(trace)
            for arrangement in trace.arrangements:
                assert sum(run.rows for run in arrangement.spine.runs) < 4 * len(total[1]) + 50_000
            held = trace.to_zset()
            assert np.array_equal(held.weights, total[1])
            assert all(map(np.array_equal, held.columns, total[0]))
            sample = ZSet.from_columns([c[::7] for c in total[0]])
            assert np.array_equal(trace.weights_of(sample), total[1][::7])


def test_runs_stay_few_and_small_in_a_stream_of_single_rows():
    trace = Trace(2)
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 1_000, (20_000, 2))
    for row in rows.tolist():
        trace.update(ZSet.from_rows([row]))
    [arrangement] = trace.arrangements
    assert len(arrangement.spine.runs) <= 24
    assert arrangement.spine.rows <= 3 * len(np.unique(rows, axis=0))
    assert trace.to_zset() == ZSet.from_rows(rows.tolist())


def test_every_step_while_large_merges_are_under_way_finds_every_row():
    """Merges that take many steps: looked up before, during and in the step that ends them."""
    rng = np.random.default_rng(12)
    trace = Trace(2, [(0, 1), (1, 0)])
    total, recent = {}, []
    under_way = finished = 0
    for number in range(4_000):
        size = 30_000 if number == 0 else int(10 ** rng.uniform(0, 2.3))
        delta = {tuple(row): 1 for row in rng.integers(0, 5_000, (size, 2)).tolist()}
        if number % 3 == 2:
            delta |= {row: -total[row] for row in recent if row in total}
        recent = list(delta)
        trace.update(zset(delta, arity=2))
        for row, weight in delta.items():
            total[row] = total.get(row, 0) + weight
            if not total[row]:
                del total[row]
        check(trace)
        asked = sorted({**delta, (0, 0): 1, **dict.fromkeys(list(total)[:: len(total) // 20], 1)})
        found = trace.weights_of(zset(dict.fromkeys(asked, 1), arity=2)).tolist()
        assert found == [total.get(row, 0) for row in asked], number
        merges = sum(len(arrangement.spine._merges) for arrangement in trace.arrangements)
        finished += merges < under_way
        under_way = merges
    assert finished > 10, "the stream has no merges over many steps; make it longer"
    assert trace.to_zset().to_dict() == total


def test_what_is_deleted_leaves_the_storage_too():
    """Insert then delete, and some idle rows so that open merges come to their end."""
    trace = Trace(2, [(0, 1), (1, 0)])
    edges = ZSet.from_columns(list(np.random.default_rng(5).integers(0, 4_000, (2, 30_000))))
    trace.update(edges)
    trace.update(-edges)
    one = ZSet.from_rows([(1, 1)])
    for _ in range(500):
        trace.update(one)
        trace.update(-one)
    check(trace)
    for arrangement in trace.arrangements:
        assert arrangement.spine.rows < 1_000
    assert not trace.to_zset()


def test_views_of_a_step_keep_their_rows_while_runs_merge_below_them():
    """Runs are immutable: what a reader holds does not change when the trace goes on."""
    trace = Trace(1)
    held = []
    for i in range(300):
        trace.update(ZSet.from_rows([(i,)]))
        runs = trace.arrangements[0].spine.runs
        held.append((i, runs))
    for i, runs in held:
        assert naive.add(*(read(run, (0,)) for run in runs)) == {(j,): 1 for j in range(i + 1)}


def test_a_prepared_step_that_is_dropped_leaves_no_mark():
    trace = Trace(2)
    trace.update(ZSet.from_rows([(1, 2)]))
    trace.prepare(ZSet.from_rows([(1, 2), (3, 4)]))
    assert trace.to_zset().to_dict() == {(1, 2): 1}
    trace.prepare(ZSet.from_rows([(5, 6)])).commit()
    assert trace.to_zset().to_dict() == {(1, 2): 1, (5, 6): 1}


@LAW
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([MOST, -MOST, 5, -5, 1 << 62]))))
def test_a_weight_in_the_trace_is_exact_or_its_step_is_refused(changes):
    trace, total = Trace(1, [(0,)]), {}
    for value, weight in changes:
        after = naive.add(total, {(value,): weight})
        if abs(after.get((value,), 0)) > MOST:
            with pytest.raises(WeightOverflowError, match="int64"):
                trace.update(ZSet.from_rows([(value,)], [weight]))
        else:
            trace.update(ZSet.from_rows([(value,)], [weight]))
            total = after
        assert trace.to_zset().to_dict() == total


@pytest.mark.parametrize("seed", range(6))
def test_huge_weights_in_a_long_stream_are_exact_or_refused(seed):
    """Runs keep sums of weights; those leave int64 here although no single weight does."""
    rng = np.random.default_rng(seed)
    trace, total = Trace(2, [(0, 1), (1, 0)]), {}
    for _ in range(300):
        size = int(10 ** rng.uniform(0, 1.7))
        delta = {
            tuple(row): int(weight)
            for row, weight in zip(
                rng.integers(0, 12, (size, 2)).tolist(),
                rng.choice([MOST, -MOST, 1 << 62, -(1 << 62), 3, 1, -1], size),
                strict=True,
            )
        }
        if rng.random() < 0.4:  # take back some of what is there
            delta = {row: -weight for row, weight in total.items() if rng.random() < 0.3}
        after = naive.add(total, delta)
        if any(abs(weight) > MOST for weight in after.values()):
            with pytest.raises(WeightOverflowError):
                trace.update(zset(delta, arity=2))
        else:
            trace.update(zset(delta, arity=2))
            total = after
        check(trace)
        assert trace.to_zset().to_dict() == total
        for arrangement in trace.arrangements:
            parts = [read(run, arrangement.order) for run in arrangement.spine.runs]
            assert naive.add(*parts) == total
            for run, part in zip(arrangement.spine.runs, parts, strict=True):
                assert run.max_abs_weight >= max(map(abs, part.values()))


def test_a_delta_of_another_arity_is_refused():
    with pytest.raises(ArityError):
        Trace(2).update(ZSet.from_rows([(1, 2, 3)]))
    with pytest.raises(ArityError):
        Trace(2).update(ZSet.empty(3))
    with pytest.raises(ArityError):
        Trace(2).weights_of(ZSet.from_rows([(1,)]))


# --- views over long streams ---------------------------------------------------------------------

LONG = {
    "triangle": "q(a, b, c) :- e(a, b), e(b, c), e(a, c)",
    "4-cycle": "q(a, c) :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "path": "q(a, c) :- e(a, b), f(b, c), a < c",
    "star": "q(x) :- e(x, a), e(x, b), f(x, x)",
    "wide": "q(a, d) :- w(a, b, c, d), e(a, b), f(c, d)",
}


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("name", LONG)
def test_hundreds_of_small_steps_equal_recomputation(name, formula):
    """400 steps of 1 to 6 rows over a dozen nodes, half of the changes deletes."""
    rng = np.random.default_rng(list(LONG).index(name))
    query = Query.parse(LONG[name])
    view = DeltaQuery(query, formula=formula)
    state = {relation: {} for relation in query.relations}
    answer = {}
    for number in range(400):
        step = {}
        for relation in rng.choice(list(state), rng.integers(1, len(state) + 1), replace=False):
            arity, present = query.relations[relation], list(state[relation].items())
            delta = {}
            for _ in range(rng.integers(1, 4)):
                if len(present) > 30 and rng.random() < 0.6:
                    row, weight = present[rng.integers(len(present))]
                    delta[row] = -weight
                else:
                    delta[tuple(rng.integers(0, 12, arity).tolist())] = int(rng.integers(-1, 3))
            step[str(relation)] = delta
            state[relation] = naive.add(state[relation], delta)
        out = view.step({r: zset(d, arity=query.relations[r]) for r, d in step.items()})
        answer = naive.add(answer, out.to_dict())
        if number % 8 == 7 or number > 390:
            assert answer == naive.evaluate(query, state), number


BIG = {
    "triangle": "q(a) :- e(a, b), e(b, c), e(a, c)",
    "4-cycle": "q() :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "path": "q(a, c) :- e(a, b), f(b, c), a != c",
    "star": "q(x) :- e(x, a), e(x, b), f(x, d)",
}


@pytest.mark.parametrize("spread", [1, 1_000_003, -(1 << 50)])
@pytest.mark.parametrize("name", BIG)
def test_steps_of_thousands_of_rows_around_hubs_equal_numpy(name, spread):
    """Ten steps with hubs over dense, sparse and far negative values; then everything leaves."""
    rng = np.random.default_rng(list(BIG).index(name))
    query = Query.parse(BIG[name])
    view = DeltaQuery(query)
    state = {r: columnar.consolidate((np.empty(0, np.int64),) * 2, np.empty(0, np.int64))
             for r in query.relations}  # fmt: skip
    answer = ZSet.empty(len(query.head))
    for number in range(10):
        step = {}
        for relation in state:
            size = int(rng.integers(200, 4_000))
            source, target = rng.integers(0, 1_500, (2, size))
            hub = size // (100 if name == "star" else 20)  # the oracle enumerates the hub's cube
            source[:hub], target[hub : 2 * hub] = 0, 0
            columns, weights = (source * spread, target * spread), rng.integers(-2, 3, size)
            if number % 4 == 3:  # half of what is there leaves
                chosen = rng.random(len(state[relation][1])) < 0.5
                columns = tuple(c[chosen] for c in state[relation][0])
                weights = -state[relation][1][chosen]
            step[relation] = ZSet.from_columns(columns, weights)
            state[relation] = columnar.add(state[relation], (columns, weights))
        answer = answer + view.step(step)
        columns, weights = columnar.evaluate(query, state)
        assert answer.to_dict() == dict(
            zip(zip(*(c.tolist() for c in columns), strict=True), weights.tolist(), strict=True)
            if columns
            else [((), w) for w in weights.tolist()]
        )
    answer = answer + view.step({r: -ZSet.from_columns(*part) for r, part in state.items()})
    assert not answer


def test_a_triangle_count_over_a_growing_and_shrinking_graph_equals_sparse_products():
    """3,000 nodes, up to 60,000 edges, steps of 1 to 5,000; compared after every step."""
    rng = np.random.default_rng(6)
    n = 3_000
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    graph = sp.csr_matrix((n, n), dtype=np.int64)
    count = 0
    for number in range(60):
        size = int(10 ** rng.uniform(0, 3.7))
        if number > 30 and number % 2:
            live = graph.tocoo()
            chosen = rng.permutation(live.nnz)[:size]
            source, target, weights = live.row[chosen], live.col[chosen], -live.data[chosen]
        else:
            source, target = rng.integers(0, n, (2, size))
            source[: size // 10] = 7
            weights = np.ones(size, np.int64)
        delta = view.step({"e": ZSet.from_columns([source, target], weights)})
        count += delta.to_dict().get((), 0)
        graph = graph + sp.csr_matrix((weights, (source, target)), shape=(n, n))
        graph.eliminate_zeros()
        assert count == (graph @ graph).multiply(graph).sum(), number


@pytest.mark.parametrize("formula", ["collapsed", "flipped", "recursive_flipped"])
def test_a_triangle_count_is_exact_while_large_merges_are_under_way(formula):
    """A preload and 1,500 steps of a few rows; the sum of the deltas is compared at every tenth."""
    rng = np.random.default_rng(13)
    n = 2_000
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)", formula=formula)
    graph = sp.csr_matrix((n, n), dtype=np.int64)
    count = 0
    for number in range(1_501):
        size = 20_000 if number == 0 else int(10 ** rng.uniform(0, 2.2))
        source, target = rng.integers(0, n, (2, size))
        weights = np.ones(size, np.int64)
        if number % 2 == 0 and number:
            live = graph.tocoo()
            chosen = rng.integers(0, live.nnz, size)
            chosen = np.unique(chosen)
            source, target, weights = live.row[chosen], live.col[chosen], -live.data[chosen]
        delta = view.step({"e": ZSet.from_columns([source, target], weights)})
        count += delta.to_dict().get((), 0)
        graph = graph + sp.csr_matrix((weights, (source, target)), shape=(n, n))
        if number % 2:
            graph.eliminate_zeros()
        if number % 10 == 0:
            assert count == (graph @ graph).multiply(graph).sum(), number


def test_a_loaded_trace_has_the_runs_that_were_given_and_its_spines_stay_the_same():
    source = Trace(2, [(0, 1), (1, 0)])
    for rows in ([(1, 2), (3, 4)], [(5, 6)]):
        source.update(ZSet.from_rows(rows))
    stored = {a.order: a.spine.runs for a in source.arrangements}

    trace = Trace(2, [(1, 0), (0, 1)])
    spines = {a.order: a.spine for a in trace.arrangements}
    staged = trace.prepare(ZSet.from_rows([(9, 9)]))
    trace.load(stored)

    for arrangement in trace.arrangements:
        assert arrangement.spine is spines[arrangement.order]
        assert arrangement.spine.runs == stored[arrangement.order]
        arrangement.spine._check()
    assert trace.to_zset() == source.to_zset()
    with pytest.raises(DbspWcojError, match="prepare it again"):
        staged.commit()
    for each in (trace, source):
        each.update(ZSet.from_rows([(1, 2), (7, 8)], [-1, 1]))
    assert trace.to_zset() == source.to_zset()


def test_arrangements_that_are_not_loaded_are_dropped_and_built_on_demand():
    source = Trace(2)
    source.update(ZSet.from_rows([(1, 2), (3, 4)]))
    trace = Trace(2, [(0, 1), (1, 0)])
    trace.load({(0, 1): source.arrangements[0].spine.runs})
    assert trace.orders == ((0, 1),)
    assert trace.arrange((1, 0)).spine.rows == 2
    trace.load({})
    assert trace.orders == ((0, 1), (1, 0))


def test_runs_of_another_arity_or_order_are_not_loaded_and_nothing_changes():
    source = Trace(1)
    source.update(ZSet.from_rows([(1,)]))
    runs = source.arrangements[0].spine.runs
    trace = Trace(2)
    trace.update(ZSet.from_rows([(1, 2)]))
    with pytest.raises(ArityError, match="has arity 1, the trace 2"):
        trace.load({(0, 1): runs})
    with pytest.raises(ArityError, match="not a permutation"):
        trace.load({(0, 0): ()})
    assert trace.to_zset() == ZSet.from_rows([(1, 2)])
