"""Small steps are one kernel call, with the same deltas and the same state as other steps.

Views with an empty head take the fast path. The same views over shared relations never do. The laws
compare both with an oracle that tries all rows.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from dbsp_wcoj import DbspWcojError, DeltaQuery, Relations, WeightOverflowError, ZSet
from dbsp_wcoj.execution import small_steps
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.kernel_loading import load_kernel
from dbsp_wcoj.kernels.join.single_step import ARENA_FULL
from dbsp_wcoj.kernels.storage.arena import FREE, MAX_SMALL_ROWS
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS
from dbsp_wcoj.storage.arena import MIN_BUFFER_WORDS, Arena
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import Trace
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import naive
from tests.oracles.naive import add
from tests.support.interrupts import InterruptedAfter

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
QUERIES = (
    TRIANGLES,
    "n() :- e(a, b), f(b, c)",
    "n() :- e(a, b), f(b, c), e(c, a), a < b",
    "n() :- e(a, a)",
    "n() :- e(1, b), f(b, c)",
)


def total(delta: ZSet) -> int:
    """Return the weight of the empty row."""
    return delta.to_dict().get((), 0)


def tail_rows(trace: Trace) -> list[int]:
    """Return the number of rows of each tail."""
    return [arrangement.spine.tail_rows for arrangement in trace.arrangements]


def triangles(weights) -> int:
    """Return the number of triangles of a graph, given the weight of each edge as a matrix."""
    return int((weights @ weights * weights).sum())


def check_spines(trace: Trace) -> None:
    """Check the spines, and that the free words of their arena are zero."""
    for arrangement in trace.arrangements:
        arrangement.spine._check()
    arena = trace.arena
    if arena is not None:
        assert not arena._buffer[arena._words[FREE] :].any()


@LAW
@given(st.data())
def test_small_steps_equal_steps_of_shared_relations_and_the_oracle(data):
    text = data.draw(st.sampled_from(QUERIES))
    domain = data.draw(st.sampled_from(DOMAINS))
    alone, relations = DeltaQuery(text), Relations()
    shared = DeltaQuery(text, relations=relations)
    state = {name: {} for name in alone.query.relations}
    for _ in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(sorted(state)))
        delta = data.draw(relation_deltas(2, domain))
        if data.draw(st.booleans()):
            delta = {row: -weight for row, weight in state[name].items()}
        old_total = naive.evaluate(alone.query, state).get((), 0)
        state[name] = add(state[name], delta)
        change = naive.evaluate(alone.query, state).get((), 0) - old_total
        step = relations.stage({name: zset(delta, arity=2)})
        assert total(shared.evaluate(step)) == change
        step.commit()
        assert total(alone.step({name: zset(delta, arity=2)})) == change
        for view in (alone, shared):
            trace = view._relations.traces[name]
            check_spines(trace)
            if trace.arrangements:  # a query of one atom needs none
                assert trace.to_zset().to_dict() == state[name]


def test_a_small_step_runs_no_single_term(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    assert total(view.step({"e": ZSet.from_rows([(3, 4), (2, 4), (1, 4)])})) == 3
    assert total(view.step({"e": ZSet.from_rows([(1, 2)], [-1])})) == -2
    assert view._relations.version == 3
    assert view.stats.joins > 0 and view.stats.proposals > 0


@pytest.mark.parametrize("rows", [MAX_INSERTION_ROWS + 1, MAX_SMALL_ROWS])
def test_a_step_of_some_hundred_rows_runs_no_single_term(monkeypatch, rows):
    view, weights = DeltaQuery(TRIANGLES), np.zeros((30, 30), np.int64)
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    weights[[1, 2, 1], [2, 3, 3]] = 1
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    rng, settled = np.random.default_rng(rows), []
    settle = Spine.settle
    monkeypatch.setattr(Spine, "settle", lambda spine: (settled.append(spine), settle(spine)))
    steps = 1000 // rows  # terms are planned again after 1,024 rows
    for _ in range(steps):
        source, target = np.divmod(rng.choice(900, rows, replace=False), 30)
        changes = rng.choice([-2, -1, 1, 3], rows)
        before = triangles(weights)
        weights[source, target] += changes
        delta = ZSet.from_columns([source, target], changes)
        assert total(view.step({"e": delta})) == triangles(weights) - before
    trace = view._relations.traces["e"]
    check_spines(trace)
    # Each of the two spines merged its tail with older runs once in four steps at most.
    assert len(settled) <= 2 * steps // 4
    expected = {(int(a), int(b)): int(weights[a, b]) for a, b in np.argwhere(weights)}
    assert trace.to_zset().to_dict() == expected


@pytest.mark.parametrize("lowest", [0, -(2**62)])
def test_steps_of_all_sizes_have_the_deltas_of_shared_relations(lowest):
    """The values of the second half need more than 64 bits together, so they have no packed key."""
    text = "n() :- f(a, b, c), f(c, b, a), f(b, a, c)"
    alone, relations = DeltaQuery(text), Relations()
    shared = DeltaQuery(text, relations=relations)
    rng = np.random.default_rng(1)
    values = lowest + np.array([0, 1, 5]) * (2**61 if lowest else 1)
    values = np.concatenate([values, lowest + np.arange(6, 12)])
    for size in (1, 300, 40, 60, 500, 90, 20, 3000, 100, 1):
        columns = [rng.choice(values, size) for _ in range(3)]
        delta = {"f": ZSet.from_columns(columns, rng.choice([-1, 1, 2], size))}
        step = relations.stage(delta)
        change = total(shared.evaluate(step))
        step.commit()
        assert total(alone.step(delta)) == change
        for view in (alone, shared):
            check_spines(view._relations.traces["f"])
        assert alone._relations.traces["f"].to_zset() == relations.traces["f"].to_zset()


@pytest.mark.parametrize(("rows", "full"), [(1, 64), (7, 170), (48, 192)])
def test_a_tail_grows_until_it_is_a_run_and_its_buffer_may_be_replaced(rows, full):
    view, reference = DeltaQuery(TRIANGLES), {}
    rng = np.random.default_rng(rows)
    longest_tail = buffers = 0
    steps = 600 // rows + 3 * MIN_BUFFER_WORDS // 2000
    address = None
    for _ in range(steps):
        edges = ZSet.from_columns([rng.integers(0, 50, rows), rng.integers(0, 50, rows)])
        view.step({"e": edges})
        reference = add(reference, edges.to_dict())
        trace = view._relations.traces["e"]
        check_spines(trace)
        longest_tail = max(longest_tail, *tail_rows(trace))
        assert max(tail_rows(trace)) <= full
        buffers += trace.arena._buffer_address != address
        address = trace.arena._buffer_address
    assert trace.to_zset().to_dict() == reference
    assert longest_tail > full / 2 and buffers > 1


def test_rows_that_cancel_leave_no_tail():
    view = DeltaQuery(TRIANGLES)
    nodes = np.arange(MAX_SMALL_ROWS + 1)
    view.step({"e": ZSet.from_columns([nodes, nodes + 1])})
    trace = view._relations.traces["e"]
    runs = [arrangement.spine.runs for arrangement in trace.arrangements]
    rows = 40
    for weight in (1, -1):
        weights = np.full(rows, weight)
        view.step({"e": ZSet.from_columns([nodes[:rows], nodes[:rows] + 9], weights)})
        assert tail_rows(trace) == [rows * (weight == 1)] * 2
        check_spines(trace)
    assert [arrangement.spine.runs for arrangement in trace.arrangements] == runs
    assert trace.arrangements[0].spine.weight_bound == 1


def test_a_tail_of_many_insertions_is_closed_before_deletions_and_the_reverse():
    view = DeltaQuery(TRIANGLES)
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 60, (600, 2)), axis=0)
    rng.shuffle(edges)
    state = np.zeros((60, 60), np.int64)
    for weight in (1, -1, 1):
        for first in range(0, 360, 10):
            part = edges[first : first + 10]
            before = triangles(state)
            state[part[:, 0], part[:, 1]] += weight
            delta = ZSet.from_columns([part[:, 0], part[:, 1]], np.full(len(part), weight))
            assert total(view.step({"e": delta})) == triangles(state) - before
            trace = view._relations.traces["e"]
            check_spines(trace)
            for arrangement in trace.arrangements:
                spine = arrangement.spine
                if spine.tail_rows:
                    assert spine.runs[-1].only_weight == weight
    # Steps that alternate keep a tail.
    for first in range(400, 440):
        part, weight = edges[first : first + 1], 1 - 2 * (first % 2)
        view.step({"e": ZSet.from_columns([part[:, 0], part[:, 1]], np.array([weight]))})
    assert all(rows > 16 for rows in tail_rows(view._relations.traces["e"]))


def test_later_steps_do_not_change_runs_that_were_read():
    view = DeltaQuery(TRIANGLES)
    snapshots = []
    for step in range(400):
        view.step({"e": ZSet.from_rows([(step % 20, step % 23)])})
        if step % 7 == 0:
            runs = view._relations.traces["e"].arrangements[0].spine.runs
            snapshots.append((runs, [run.read() for run in runs], [run.to_words() for run in runs]))
    for runs, contents, packed in snapshots:
        for run, (columns, weights), words in zip(runs, contents, packed, strict=True):
            assert np.array_equal(run.read()[0], columns)
            assert np.array_equal(run.read()[1], weights)
            assert np.array_equal(run.to_words(), words)


def test_steps_of_all_kinds_can_alternate():
    """Small, large, prepared and abandoned steps, steps in chunks, steps of another relation."""
    text = "n() :- e(a, b), f(b, c), e(a, c)"
    view, state = DeltaQuery(text), {"e": {}, "f": {}}
    rng = np.random.default_rng(5)
    sizes = (1, 3, 48, 49, 200, 1)
    for number in range(150):
        size = sizes[number % 6]
        columns = [rng.integers(0, 12, size), rng.integers(0, 12, size)]
        delta = {"ef"[number % 4 // 3]: ZSet.from_columns(columns, rng.choice([-1, 1, 2], size))}
        if number % 11 == 10:
            delta |= {"f": ZSet.from_rows([(number % 12, 1)]), "e": ZSet.from_rows([(1, 2)])}
        old_total = naive.evaluate(view.query, state).get((), 0)
        view.prepare(delta)
        if number % 3 == 0:
            prepared = view.prepare(delta)
            prepared.commit()
            change = total(prepared.delta)
        elif number % 3 == 1:
            change = sum(total(chunk) for chunk in view.step_chunks(delta))
        else:
            change = total(view.step(delta))
        for name, changed in delta.items():
            state[name] = add(state[name], changed.to_dict())
            check_spines(view._relations.traces[name])
            assert view._relations.traces[name].to_zset().to_dict() == state[name]
        assert change == naive.evaluate(view.query, state).get((), 0) - old_total


def test_a_small_step_that_overflows_changes_nothing():
    largest = 2**63 - 1
    view = DeltaQuery("n() :- e(a, b), f(b, c)")
    view.step({"e": ZSet.from_rows([(1, 2)], [2**40]), "f": ZSet.from_rows([(7, 7)])})
    for rows, weight in (((2, 3), 2**40), ((7, 7), largest)):
        with pytest.raises(WeightOverflowError):
            view.step({"f": ZSet.from_rows([rows], [weight])})
        assert view._relations.traces["f"].to_zset().to_dict() == {(7, 7): 1}
    assert total(view.step({"f": ZSet.from_rows([(2, 3)], [2])})) == 2**41
    assert total(view.step({"f": ZSet.from_rows([(8, 8)], [largest])})) == 0
    assert view._relations.traces["f"].to_zset().to_dict()[8, 8] == largest
    check_spines(view._relations.traces["f"])


def test_a_tail_that_an_interrupt_left_too_long_is_closed_by_the_next_step(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    trace = view._relations.traces["e"]
    expected = {}
    with monkeypatch.context() as patch:
        patch.setattr(type(trace.arena), "settle", lambda arena: None)
        for step in range(12):
            rows = [(step, 100 * step + i) for i in range(48)]
            view.step({"e": ZSet.from_rows(rows)})
            expected |= dict.fromkeys(rows, 1)
    assert tail_rows(trace) == [12 * 48] * 2
    view.step({"e": ZSet.from_rows([(99, 99)])})
    assert trace.to_zset().to_dict() == expected | {(99, 99): 1}
    assert tail_rows(trace) == [0, 0]


def test_a_view_whose_small_step_was_interrupted_accepts_no_more_steps(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3)])})
    edge = {"e": ZSet.from_rows([(1, 3)])}
    prepared = view.prepare(edge)
    kernel = InterruptedAfter(small_steps.small_step)
    monkeypatch.setattr(small_steps, "small_step", kernel)
    with pytest.raises(KeyboardInterrupt):
        view.step(edge)
    for use in (lambda: view.step(edge), lambda: view.prepare(edge), prepared.commit):
        with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
            use()


def test_an_interrupt_while_a_kernel_is_loaded_changes_nothing(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    edges = {"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])}
    with monkeypatch.context() as patch:
        patch.setattr(small_steps, "load_kernel", InterruptedAfter(load_kernel))
        with pytest.raises(KeyboardInterrupt):
            view.step(edges)
    assert total(view.step(edges)) == 1


def test_a_kernel_is_loaded_for_the_arguments_of_the_call():
    kernel = njit(lambda columns, number: columns[0, 0] + number)
    load_kernel(kernel, np.ones((2, 3), np.int64), 1)
    signatures = list(kernel.signatures)
    assert kernel(np.ones((2, 3), np.int64), 1) == 2
    assert len(signatures) == 1 and kernel.signatures == signatures


def test_a_small_step_without_memory_or_that_overflows_leaves_the_view_usable(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3)])})
    delta = {"e": ZSet.from_rows([(1, 3)])}

    def fail(arena, rows):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(small_steps, "small_step", lambda *arguments: (ARENA_FULL, 0, 0))
        patch.setattr(Arena, "start_buffer", fail)
        with pytest.raises(MemoryError):
            view.step(delta)
    with pytest.raises(WeightOverflowError):
        view.step({"e": ZSet.from_rows([(1, 1)], [2**62])})
    assert total(view.step(delta)) == 1


def test_an_interrupt_while_tails_get_another_buffer_is_mended_by_the_next_step(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    trace = view._relations.traces["e"]
    expected = {(1, 2): 1, (2, 3): 1, (5, 1): 1, (6, 1): 1}
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3)])})
    view.step({"e": ZSet.from_rows([(5, 1)])})
    with monkeypatch.context() as patch:
        patch.setattr(Spine, "write_tails_to", InterruptedAfter(Spine.write_tails_to).bound())
        with pytest.raises(KeyboardInterrupt):
            trace.arena.start_buffer(1)
    view.step({"e": ZSet.from_rows([(6, 1)])})
    assert trace.to_zset().to_dict() == expected
    check_spines(trace)
