"""Runs, spines and traces under long streams: no row is lost over hundreds of merges.

An error in a merge shows only if the rows of a key are in several runs, some of them half merged.
So the streams are long, mix steps of one row with steps of thousands, and delete what they
inserted. They are compared with recomputation many times.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import ArityError, DbspWcojError, DeltaQuery, Query, Trace, WeightOverflowError, ZSet
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import MAX_INT64
from tests.generators.strategies import DOMAINS, FORMULAS, LAW, relation_deltas, zset
from tests.oracles import columnar, naive
from tests.support.interrupts import InterruptedAfter


def check_spines(trace: Trace) -> None:
    """Assert the invariants of the trace's spines; no run is empty."""
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
        check_spines(trace)
    assert trace.to_zset().to_dict() == total
    looked_up = data.draw(relation_deltas(arity, domain))
    weights = trace.weights_of(zset(looked_up, arity=arity)).tolist()
    assert weights == [total.get(row, 0) for row in sorted(looked_up)]
    for arrangement in trace.arrangements:
        rows = [read_rows(run, arrangement.order) for run in arrangement.spine.runs]
        assert naive.add(*rows) == total


@LAW
@given(st.data())
def test_a_trace_whose_runs_are_replaced_by_maps_has_the_same_rows(data):
    arity = data.draw(st.integers(1, 3))
    domain = data.draw(st.sampled_from(DOMAINS))
    orders = data.draw(st.lists(st.permutations(range(arity)), min_size=1, max_size=2))
    trace, total = Trace(arity, [tuple(order) for order in orders]), {}
    for delta in data.draw(st.lists(relation_deltas(arity, domain), max_size=12)):
        trace.update(zset(delta, arity=arity))
        total = naive.add(total, delta)
        chosen = [a for a in trace.arrangements if data.draw(st.booleans())]
        mapped = {a.order: [mapped_run(run) for run in a.spine.runs] for a in chosen}
        trace.replace_runs(mapped)
        for arrangement in chosen:
            assert [id(run) for run in arrangement.spine.runs] == [
                id(run) for run in mapped[arrangement.order]
            ]
            assert arrangement.spine.heap_bytes == 0
        check_spines(trace)
        assert trace.to_zset().to_dict() == total
        looked_up = data.draw(relation_deltas(arity, domain))
        weights = trace.weights_of(zset(looked_up, arity=arity)).tolist()
        assert weights == [total.get(row, 0) for row in sorted(looked_up)]
    for arrangement in trace.arrangements:
        rows = [read_rows(run, arrangement.order) for run in arrangement.spine.runs]
        assert naive.add(*rows) == total


def mapped_run(run):
    return Run.from_words(run.to_words().copy(), is_mapped=True)


def test_a_spine_merges_no_mapped_runs():
    trace = Trace(1)
    for number in range(20):
        trace.update(ZSet.from_rows([(number * 1000 + row,) for row in range(300)]))
        (arrangement,) = trace.arrangements
        trace.replace_runs({(0,): [mapped_run(run) for run in arrangement.spine.runs]})
    assert [run.rows for run in arrangement.spine.runs] == [300] * 20
    assert all(run.is_mapped for run in arrangement.spine.runs)


def read_rows(run, order):
    """Return the weights of a run's rows, whose columns are in the relation's order."""
    columns, weights = run.read()
    rows = list(zip(*columns.tolist(), strict=True))
    assert rows == sorted(set(rows))
    positions = np.argsort(order)
    return {
        tuple(row[position] for position in positions): weight
        for row, weight in zip(rows, weights.tolist(), strict=True)
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_long_stream_of_uneven_steps_equals_numpy(seed):
    """Steps have 1 to 20,000 rows; every third one deletes rows of the trace."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.choice([50, 2_000, 1 << 40]))
    trace = Trace(2, [(0, 1), (1, 0)])
    total = (np.empty(0, np.int64), np.empty(0, np.int64)), np.empty(0, np.int64)
    for number in range(150):
        size = int(10 ** rng.uniform(0, 4.3))
        if number % 3 == 2 and len(total[1]):
            chosen = rng.integers(0, len(total[1]), min(size, len(total[1])))
            chosen = np.unique(chosen)
            columns, weights = tuple(column[chosen] for column in total[0]), -total[1][chosen]
        else:
            columns = tuple(rng.integers(-nodes, nodes, (2, size)))
            weights = rng.integers(-2, 4, size)
        trace.update(ZSet.from_columns(columns, weights))
        total = columnar.add(total, (columns, weights))
        if number % 10 == 9:
            check_spines(trace)
            for arrangement in trace.arrangements:
                assert sum(run.rows for run in arrangement.spine.runs) < 4 * len(total[1]) + 50_000
            rows = trace.to_zset()
            assert np.array_equal(rows.weights, total[1])
            assert all(map(np.array_equal, rows.columns, total[0]))
            sample = ZSet.from_columns([column[::7] for column in total[0]])
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


@pytest.mark.thorough
def test_every_row_is_found_while_large_merges_are_open():
    """Rows are looked up before, during and after merges that take many steps."""
    rng = np.random.default_rng(12)
    trace = Trace(2, [(0, 1), (1, 0)])
    total, recent = {}, []
    open_merges = finished = 0
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
        check_spines(trace)
        looked_up = sorted(
            {**delta, (0, 0): 1, **dict.fromkeys(list(total)[:: len(total) // 20], 1)}
        )
        weights = trace.weights_of(zset(dict.fromkeys(looked_up, 1), arity=2)).tolist()
        assert weights == [total.get(row, 0) for row in looked_up], number
        merges = sum(len(arrangement.spine._merges) for arrangement in trace.arrangements)
        finished += merges < open_merges
        open_merges = merges
    assert finished > 10, "the stream has no merges over many steps; make it longer"
    assert trace.to_zset().to_dict() == total


def test_deleted_rows_are_removed_from_the_storage():
    """Insert, delete, then run other steps, so that open merges are completed."""
    trace = Trace(2, [(0, 1), (1, 0)])
    edges = ZSet.from_columns(list(np.random.default_rng(5).integers(0, 4_000, (2, 30_000))))
    trace.update(edges)
    trace.update(-edges)
    other = ZSet.from_rows([(1, 1)])
    for _ in range(500):
        trace.update(other)
        trace.update(-other)
    check_spines(trace)
    for arrangement in trace.arrangements:
        assert arrangement.spine.rows < 1_000
    assert not trace.to_zset()


def test_runs_that_a_reader_has_do_not_change_in_later_steps():
    trace = Trace(1)
    read_runs = []
    for i in range(300):
        trace.update(ZSet.from_rows([(i,)]))
        runs = trace.arrangements[0].spine.runs
        read_runs.append((i, runs))
    for i, runs in read_runs:
        assert naive.add(*(read_rows(run, (0,)) for run in runs)) == {(j,): 1 for j in range(i + 1)}


def test_a_prepared_step_that_is_dropped_changes_nothing():
    trace = Trace(2)
    trace.update(ZSet.from_rows([(1, 2)]))
    trace.prepare(ZSet.from_rows([(1, 2), (3, 4)]))
    assert trace.to_zset().to_dict() == {(1, 2): 1}
    trace.prepare(ZSet.from_rows([(5, 6)])).commit()
    assert trace.to_zset().to_dict() == {(1, 2): 1, (5, 6): 1}


@LAW
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([MAX_INT64, -MAX_INT64, 5, -5, 1 << 62])))
)
def test_a_weight_in_the_trace_is_exact_or_its_step_is_refused(changes):
    trace, total = Trace(1, [(0,)]), {}
    for value, weight in changes:
        after = naive.add(total, {(value,): weight})
        if abs(after.get((value,), 0)) > MAX_INT64:
            with pytest.raises(WeightOverflowError, match="int64"):
                trace.update(ZSet.from_rows([(value,)], [weight]))
        else:
            trace.update(ZSet.from_rows([(value,)], [weight]))
            total = after
        assert trace.to_zset().to_dict() == total


@pytest.mark.parametrize("seed", range(6))
def test_huge_weights_in_a_long_stream_are_exact_or_refused(seed):
    """Running sums of the weights of a run leave int64, although no single weight does."""
    rng = np.random.default_rng(seed)
    trace, total = Trace(2, [(0, 1), (1, 0)]), {}
    for _ in range(300):
        size = int(10 ** rng.uniform(0, 1.7))
        delta = {
            tuple(row): int(weight)
            for row, weight in zip(
                rng.integers(0, 12, (size, 2)).tolist(),
                rng.choice([MAX_INT64, -MAX_INT64, 1 << 62, -(1 << 62), 3, 1, -1], size),
                strict=True,
            )
        }
        if rng.random() < 0.4:  # delete some rows
            delta = {row: -weight for row, weight in total.items() if rng.random() < 0.3}
        after = naive.add(total, delta)
        if any(abs(weight) > MAX_INT64 for weight in after.values()):
            with pytest.raises(WeightOverflowError):
                trace.update(zset(delta, arity=2))
        else:
            trace.update(zset(delta, arity=2))
            total = after
        check_spines(trace)
        assert trace.to_zset().to_dict() == total
        for arrangement in trace.arrangements:
            parts = [read_rows(run, arrangement.order) for run in arrangement.spine.runs]
            assert naive.add(*parts) == total
            for run, part in zip(arrangement.spine.runs, parts, strict=True):
                assert run.max_abs_weight >= max(map(abs, part.values()))


def test_an_empty_delta_has_no_step():
    trace = Trace(2)
    with pytest.raises(ValueError, match="the delta is empty"):
        trace.prepare(ZSet.empty(2))
    trace.update(ZSet.empty(2))
    assert trace.rows == 0


def test_a_delta_of_another_arity_is_refused():
    with pytest.raises(ArityError):
        Trace(2).update(ZSet.from_rows([(1, 2, 3)]))
    with pytest.raises(ArityError):
        Trace(2).update(ZSet.empty(3))
    with pytest.raises(ArityError):
        Trace(2).weights_of(ZSet.from_rows([(1,)]))


# --- views over long streams ---------------------------------------------------------------------

SMALL_STEP_QUERIES = {
    "triangle": "q(a, b, c) :- e(a, b), e(b, c), e(a, c)",
    "4-cycle": "q(a, c) :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "path": "q(a, c) :- e(a, b), f(b, c), a < c",
    "star": "q(x) :- e(x, a), e(x, b), f(x, x)",
    "wide": "q(a, d) :- w(a, b, c, d), e(a, b), f(c, d)",
}


@pytest.mark.thorough
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("name", SMALL_STEP_QUERIES)
def test_hundreds_of_small_steps_equal_recomputation(name, formula):
    """400 steps of 1 to 6 rows over a dozen nodes, half of the changes deletes."""
    rng = np.random.default_rng(list(SMALL_STEP_QUERIES).index(name))
    query = Query.parse(SMALL_STEP_QUERIES[name])
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


LARGE_STEP_QUERIES = {
    "triangle": "q(a) :- e(a, b), e(b, c), e(a, c)",
    "4-cycle": "q() :- e(a, b), e(b, c), e(c, d), e(d, a)",
    "path": "q(a, c) :- e(a, b), f(b, c), a != c",
    "star": "q(x) :- e(x, a), e(x, b), f(x, d)",
}


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [1, 1_000_003, -(1 << 50)])
@pytest.mark.parametrize("name", LARGE_STEP_QUERIES)
def test_steps_of_thousands_of_rows_around_hubs_equal_numpy(name, spread):
    """Ten steps with hubs over dense, sparse and negative values; then all rows are deleted."""
    rng = np.random.default_rng(list(LARGE_STEP_QUERIES).index(name))
    query = Query.parse(LARGE_STEP_QUERIES[name])
    view = DeltaQuery(query)
    state = {r: columnar.consolidate((np.empty(0, np.int64),) * 2, np.empty(0, np.int64))
             for r in query.relations}  # fmt: skip
    answer = ZSet.empty(len(query.head))
    for number in range(10):
        step = {}
        for relation in state:
            size = int(rng.integers(200, 4_000))
            source, target = rng.integers(0, 1_500, (2, size))
            hub = size // (
                100 if name == "star" else 20
            )  # the oracle enumerates the triples of the hub's edges
            source[:hub], target[hub : 2 * hub] = 0, 0
            columns, weights = (source * spread, target * spread), rng.integers(-2, 3, size)
            if number % 4 == 3:  # delete half of the rows
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


@pytest.mark.thorough
@pytest.mark.parametrize("formula", ["collapsed", "flipped", "recursive_flipped"])
def test_a_triangle_count_is_exact_while_large_merges_are_open(formula):
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


def test_a_loaded_trace_has_the_given_runs_in_its_own_spines():
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
    for updated in (trace, source):
        updated.update(ZSet.from_rows([(1, 2), (7, 8)], [-1, 1]))
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


def test_a_trace_of_which_only_some_arrangements_have_a_step_is_loaded_again(monkeypatch):
    trace = Trace(2, [(0, 1), (1, 0)])
    rows = ZSet.from_rows([(value, 1) for value in range(100)])
    trace.update(rows)
    runs = {a.order: a.spine.runs for a in trace.arrangements}
    with monkeypatch.context() as patch:
        patch.setattr(Spine, "append", InterruptedAfter(Spine.append).bound())
        with pytest.raises(KeyboardInterrupt):
            trace.update(rows)
    trace.load({})  # changes nothing
    with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
        trace.update(rows)
    trace.load(runs)
    trace.update(rows)
    assert trace.to_zset() == rows + rows
