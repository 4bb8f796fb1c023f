"""Regressions of the core, each with the input that showed the bug."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dbsp_wcoj import (
    ArityError,
    ColumnTypeError,
    DbspWcojError,
    DeltaQuery,
    Query,
    QuerySyntaxError,
    Relations,
    Trace,
    WeightOverflowError,
    ZSet,
    generic_join,
)
from dbsp_wcoj.query import Atom, Variable

MOST = 2**63 - 1
UNARY = ZSet.from_columns([np.arange(1000)])


def pairs(view: DeltaQuery) -> dict[str, ZSet]:
    return {name: UNARY for name in view.query.relations}


def test_an_error_in_one_part_waits_for_the_others():
    """Running parts went on reading runs that were freed: a segmentation fault."""
    rows = np.arange(20_000)
    heavy = np.where(rows < 100, 1 << 40, 1)
    with ThreadPoolExecutor(2) as executor:
        for _ in range(5):
            view = DeltaQuery("n() :- r(a), s(a), t(b)", executor=executor, parts=2)
            with pytest.raises(WeightOverflowError):
                view.step({name: ZSet.from_columns([rows], heavy) for name in "rst"})


def test_a_view_does_one_thing_at_a_time():
    """A prepare between two chunks overwrote the join that was under way."""
    view = DeltaQuery("q(a, b) :- r(a), s(b)")
    chunks = view.step_chunks(pairs(view))
    first = next(chunks)
    with pytest.raises(DbspWcojError, match="exhaust or close"):
        view.prepare(pairs(view))
    assert len(first) + sum(map(len, chunks)) == 1_000_000
    assert len(view.step({"r": ZSet.from_rows([(-1,)])})) == 1000


def test_a_view_evaluates_only_a_fresh_step_of_its_own_relations():
    relations, others = Relations(), Relations()
    view = DeltaQuery("n() :- r(a), r(b)", relations=relations)
    DeltaQuery("n() :- r(a), r(b)", relations=others)
    step = relations.stage({"r": UNARY})
    assert view.evaluate(step).to_dict() == {(): 1_000_000}
    step.commit()
    for stale in (step, others.stage({"r": UNARY})):
        with pytest.raises(DbspWcojError, match=r"prepare it again|stage it for"):
            view.evaluate(stale)
    with pytest.raises(DbspWcojError, match="shares its relations"):
        view.step({"r": UNARY})
    assert view.evaluate(relations.stage({"r": -UNARY})).to_dict() == {(): -1_000_000}


def test_chunks_that_are_closed_leave_the_view_as_it_was():
    view = DeltaQuery("q(a, b) :- r(a), s(b)")
    chunks = view.step_chunks(pairs(view))
    next(chunks)
    chunks.close()
    assert view.step({"r": UNARY}).to_dict() == {}


def test_chunks_check_their_deltas_when_they_are_called():
    with pytest.raises(DbspWcojError, match="unknown relation"):
        DeltaQuery("n() :- r(a)").step_chunks({"zz": UNARY})


@pytest.mark.parametrize("parts", [1, 4])
def test_a_split_innermost_variable_is_counted_once(parts):
    """Each part counted everything, because the range was not looked at."""
    n = np.arange(10_000)
    e, f = ZSet.from_columns([np.full(10_000, 5), n]), ZSet.from_columns([n])
    with ThreadPoolExecutor(2) as executor:
        query = "n() :- e(5, b), f(b)"
        views = {"e": e, "f": f}
        joined = generic_join(query, views, executor=executor, parts=parts)
        stepped = DeltaQuery(query, executor=executor, parts=parts).step(views)
    assert joined.to_dict() == stepped.to_dict() == {(): 10_000}


def test_terms_that_are_planned_in_a_step_see_its_delta():
    """The places of their deltas were filled before they existed."""
    body = ", ".join(f"r{i}(a)" for i in range(10))
    view = DeltaQuery(f"n() :- {body}", formula="expanded")
    one = ZSet.from_rows([(1,)])
    assert view.step({f"r{i}": one for i in range(10)}).to_dict() == {(): 1}


@pytest.mark.parametrize("top", [MOST, MOST - 1, -(2**62)])
def test_marked_lists_may_hold_the_largest_value(top):
    """The end of the marked range wrapped around."""
    rows = [(0, top - k) for k in range(20)]
    rows += [(top - k, top - j) for k in range(10, 20) for j in range(10)]
    query = "n() :- e(a, b), e(b, c), e(a, c)"
    assert generic_join(query, {"e": ZSet.from_rows(rows)}).to_dict() == {(): 100}


@pytest.mark.parametrize("formula", ["recursive", "recursive_collapsed", "recursive_flipped"])
def test_no_relation_is_taken_for_a_partial_delta(formula):
    view = DeltaQuery("q(a, b, c) :- e(a, b), D1/(a, c)", formula=formula)
    step = {"e": ZSet.from_rows([(1, 2)]), "D1/": ZSet.from_rows([(1, 5), (1, 6)])}
    assert view.step(step).to_dict() == {(1, 2, 5): 1, (1, 2, 6): 1}


def test_the_planner_keeps_its_own_variables_apart():
    query = Query("q", ("#0.1",), (Atom("e", (Variable("a"), Variable("#0.1"))),))
    with pytest.raises(QuerySyntaxError, match="rename"):
        DeltaQuery(query)


def test_a_trace_refuses_a_stale_step():
    """Two prepared steps of the largest weight both went in, and added up to -2."""
    trace = Trace(1)
    heavy = ZSet.from_rows([(0,)], [MOST])
    first, second = trace.prepare(heavy), trace.prepare(heavy)
    first.commit()
    for step in (first, second):
        with pytest.raises(DbspWcojError, match="prepare it again"):
            step.commit()
    assert trace.weights_of(heavy).tolist() == [MOST]


@pytest.mark.parametrize("order", [(0,), (0, 5), (1, 1)])
def test_a_trace_refuses_an_order_that_is_no_permutation(order):
    with pytest.raises(ArityError, match="permutation"):
        Trace(2, [order])


def test_a_trace_without_arrangements_says_that_it_keeps_nothing():
    with pytest.raises(DbspWcojError, match="arrange it first"):
        Trace(2, []).to_zset()


def test_a_masked_column_is_refused():
    """The mask was dropped, so a NULL became a value."""
    with pytest.raises(ColumnTypeError, match="masked"):
        ZSet.from_columns([np.ma.masked_array([1, 2], [True, False])])


def test_a_scalar_stays_in_int64():
    for weight in (2**63, -(2**63)):
        with pytest.raises(WeightOverflowError):
            ZSet.scalar(weight)


def test_the_reference_engine_names_an_overflow():
    heavy = ZSet.from_rows([(1,)], [1 << 62])
    with pytest.raises(WeightOverflowError):
        generic_join("n() :- r(a), r(a)", {"r": heavy}, engine="reference")
