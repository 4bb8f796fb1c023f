"""Steps of a few rows are one kernel call, and leave the state as other steps do.

Views whose answer is a weight take the short way, the same views over shared relations never do:
both are asked in every law here, and compared with an oracle that tries all rows.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Relations, WeightOverflowError, ZSet
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.kernels.storage.spine import MAX_TAIL_ROWS
from dbsp_wcoj.storage.arena import MIN_BUFFER_WORDS
from dbsp_wcoj.storage.trace import Trace
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import naive
from tests.oracles.naive import add

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
QUERIES = (
    TRIANGLES,
    "n() :- e(a, b), f(b, c)",
    "n() :- e(a, b), f(b, c), e(c, a), a < b",
    "n() :- e(a, a)",
    "n() :- e(1, b), f(b, c)",
)


def total(delta: ZSet) -> int:
    return delta.to_dict().get((), 0)


def tails(trace: Trace) -> list[int]:
    return [arrangement.spine.tail_rows for arrangement in trace.arrangements]


def check(trace: Trace) -> None:
    for arrangement in trace.arrangements:
        arrangement.spine._check()


@LAW
@given(st.data())
def test_small_steps_give_what_shared_relations_and_the_oracle_give(data):
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
        before = naive.evaluate(alone.query, state).get((), 0)
        state[name] = add(state[name], delta)
        after = naive.evaluate(alone.query, state).get((), 0)
        step = relations.stage({name: zset(delta, arity=2)})
        assert total(shared.evaluate(step)) == after - before
        step.commit()
        assert total(alone.step({name: zset(delta, arity=2)})) == after - before
        for view in (alone, shared):
            trace = view._relations.traces[name]
            check(trace)
            if trace.arrangements:  # of one atom nothing has to be kept
                assert trace.to_zset().to_dict() == state[name]


def test_a_small_step_runs_no_product_by_itself(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    assert total(view.step({"e": ZSet.from_rows([(3, 4), (2, 4), (1, 4)])})) == 3
    assert total(view.step({"e": ZSet.from_rows([(1, 2)], [-1])})) == -2
    assert view._relations.version == 3
    joined = view.stats.joins
    assert joined > 0 and view.stats.proposals > 0


@pytest.mark.parametrize("rows", [1, 7, 48])
def test_a_tail_grows_until_it_is_a_run_and_its_buffer_may_be_replaced(rows):
    view, reference = DeltaQuery(TRIANGLES), {}
    rng = np.random.default_rng(rows)
    longest = rooms = 0
    steps = 600 // rows + 3 * MIN_BUFFER_WORDS // 2000
    arena = None
    for _ in range(steps):
        edges = ZSet.from_columns([rng.integers(0, 50, rows), rng.integers(0, 50, rows)])
        view.step({"e": edges})
        reference = add(reference, edges.to_dict())
        trace = view._relations.traces["e"]
        check(trace)
        longest = max(longest, *tails(trace))
        assert max(tails(trace)) <= MAX_TAIL_ROWS
        rooms += trace.arena._buffer_address != arena
        arena = trace.arena._buffer_address
    assert trace.to_zset().to_dict() == reference
    assert longest > MAX_TAIL_ROWS // 2 and rooms > 1


def test_rows_that_cancel_leave_no_tail():
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_columns([np.arange(100), np.arange(100) + 1])})
    trace = view._relations.traces["e"]
    held = [a.spine.runs for a in trace.arrangements]
    for weight in (1, -1):
        view.step({"e": ZSet.from_rows([(5, 9)], [weight])})
        assert tails(trace) == [weight == 1] * 2
    assert [a.spine.runs for a in trace.arrangements] == held
    assert trace.arrangements[0].spine.weight_bound == 1


def test_runs_that_were_read_stay_as_they_were():
    view = DeltaQuery(TRIANGLES)
    seen = []
    for step in range(400):
        view.step({"e": ZSet.from_rows([(step % 20, step % 23)])})
        if step % 7 == 0:
            runs = view._relations.traces["e"].arrangements[0].spine.runs
            seen.append((runs, [run.read() for run in runs], [run.to_words() for run in runs]))
    for runs, read, packed in seen:
        for run, (columns, weights), words in zip(runs, read, packed, strict=True):
            assert np.array_equal(run.read()[0], columns)
            assert np.array_equal(run.read()[1], weights)
            assert np.array_equal(run.to_words(), words)


def test_steps_of_all_kinds_take_turns():
    """Small and large ones, prepared and not, abandoned ones, chunks, another relation."""
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
        before = naive.evaluate(view.query, state).get((), 0)
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
            check(view._relations.traces[name])
            assert view._relations.traces[name].to_zset().to_dict() == state[name]
        assert change == naive.evaluate(view.query, state).get((), 0) - before


def test_a_small_step_that_overflows_changes_nothing():
    most = 2**63 - 1
    view = DeltaQuery("n() :- e(a, b), f(b, c)")
    view.step({"e": ZSet.from_rows([(1, 2)], [2**40]), "f": ZSet.from_rows([(7, 7)])})
    for rows, weight in (((2, 3), 2**40), ((7, 7), most)):
        with pytest.raises(WeightOverflowError):
            view.step({"f": ZSet.from_rows([rows], [weight])})
        assert view._relations.traces["f"].to_zset().to_dict() == {(7, 7): 1}
    assert total(view.step({"f": ZSet.from_rows([(2, 3)], [2])})) == 2**41
    assert total(view.step({"f": ZSet.from_rows([(8, 8)], [most])})) == 0
    assert view._relations.traces["f"].to_zset().to_dict()[8, 8] == most
    check(view._relations.traces["f"])


def test_a_tail_too_long_by_an_interrupt_is_added_to_safely(monkeypatch):
    view = DeltaQuery(TRIANGLES)
    trace = view._relations.traces["e"]
    expected = {}
    with monkeypatch.context() as patch:
        patch.setattr(type(trace.arena), "close_full_tails", lambda arena: None)
        for step in range(12):
            rows = [(step, 100 * step + i) for i in range(48)]
            view.step({"e": ZSet.from_rows(rows)})
            expected |= dict.fromkeys(rows, 1)
    assert tails(trace) == [12 * 48] * 2
    view.step({"e": ZSet.from_rows([(99, 99)])})
    assert trace.to_zset().to_dict() == expected | {(99, 99): 1}
    assert tails(trace) == [0, 0]
