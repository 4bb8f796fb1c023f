"""Bugs of the core that were fixed, each with the input that showed it."""

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
    generic_join_chunks,
)
from dbsp_wcoj.query import Atom, Variable
from dbsp_wcoj.zset import MAX_INT64
from tests.support.working_threads import working_threads

THOUSAND = ZSet.from_columns([np.arange(1000)])


def fill_relations(view: DeltaQuery) -> dict[str, ZSet]:
    """Return a delta of a thousand rows for each relation of a view."""
    return {name: THOUSAND for name in view.query.relations}


def test_an_error_in_one_part_waits_for_the_others():
    """The other parts read runs that were freed already: a segmentation fault."""
    rows = np.arange(20_000)
    heavy = np.where(rows < 100, 1 << 40, 1)
    with working_threads(2):
        for _ in range(5):
            view = DeltaQuery("n() :- r(a), s(a), t(b)")
            with pytest.raises(WeightOverflowError):
                view.step({name: ZSet.from_columns([rows], heavy) for name in "rst"})


def test_a_view_runs_one_step_at_a_time():
    """A call of `prepare` between two chunks overwrote the state of the running join."""
    view = DeltaQuery("q(a, b) :- r(a), s(b)")
    chunks = view.step_chunks(fill_relations(view))
    first = next(chunks)
    with pytest.raises(DbspWcojError, match="exhaust or close"):
        view.prepare(fill_relations(view))
    assert len(first) + sum(map(len, chunks)) == 1_000_000
    assert len(view.step({"r": ZSet.from_rows([(-1,)])})) == 1000


def test_a_prepared_step_is_not_committed_between_two_chunks():
    """The join read runs that the commit had replaced, and did not end."""
    view = DeltaQuery("q(a, b) :- r(a), s(b)")
    view.step({"r": THOUSAND})
    prepared = view.prepare({"r": ZSet.from_rows([(5000,)])})
    chunks = view.step_chunks({"s": THOUSAND})
    first = next(chunks)
    with pytest.raises(DbspWcojError, match="exhaust or close"):
        prepared.commit()
    assert len(first) + sum(map(len, chunks)) == 1_000_000
    with pytest.raises(DbspWcojError, match="prepare it again"):
        prepared.commit()


def test_chunks_of_a_join_of_traces_do_not_see_later_updates():
    """The join read runs that an update had merged and freed."""
    left, right = Trace(1), Trace(1)
    for trace in (left, right):
        trace.update(THOUSAND)
    sizes = {run.buffer.size for run in left.arrangements[0].spine.runs}
    chunks = generic_join_chunks("q(a, b) :- r(a), s(b)", {"r": left, "s": right})
    received = [next(chunks)]
    for trace in (left, right):
        for start in range(1000, 31_000, 1000):
            trace.update(ZSet.from_columns([np.arange(start, start + 1000)]))
    other_arrays = [np.full(size, 3) for size in sizes for _ in range(500)]
    received += chunks
    assert sum(map(len, received)) == 1_000_000
    assert all(chunk.rows.max() < 1000 for chunk in received)
    del other_arrays


def test_chunks_of_a_step_that_another_step_overtakes_are_an_error():
    """The chunks were computed from the rows after the other step, and the error came last."""
    view = DeltaQuery("q(a, c) :- e(a, b), e(b, c)")
    chunks = view.step_chunks({"e": ZSet.from_rows([(2, 3)])})
    view.step({"e": ZSet.from_rows([(3, 5)])})
    with pytest.raises(DbspWcojError, match="prepare it again"):
        next(chunks)


def test_a_view_evaluates_only_a_fresh_step_of_its_own_relations():
    relations, others = Relations(), Relations()
    view = DeltaQuery("n() :- r(a), r(b)", relations=relations)
    DeltaQuery("n() :- r(a), r(b)", relations=others)
    step = relations.stage({"r": THOUSAND})
    assert view.evaluate(step).to_dict() == {(): 1_000_000}
    step.commit()
    for stale in (step, others.stage({"r": THOUSAND})):
        with pytest.raises(DbspWcojError, match=r"prepare it again|stage it for"):
            view.evaluate(stale)
    with pytest.raises(DbspWcojError, match="shares its relations"):
        view.step({"r": THOUSAND})
    assert view.evaluate(relations.stage({"r": -THOUSAND})).to_dict() == {(): -1_000_000}


def test_chunks_that_are_closed_leave_the_view_as_it_was():
    view = DeltaQuery("q(a, b) :- r(a), s(b)")
    chunks = view.step_chunks(fill_relations(view))
    next(chunks)
    chunks.close()
    assert view.step({"r": THOUSAND}).to_dict() == {}


def test_chunks_check_their_deltas_when_they_are_called():
    with pytest.raises(DbspWcojError, match="unknown relation"):
        DeltaQuery("n() :- r(a)").step_chunks({"zz": THOUSAND})


@pytest.mark.parametrize("threads", [1, 4])
def test_a_split_innermost_variable_is_counted_once(threads):
    """Each part counted all rows, because the kernel ignored its range."""
    numbers = np.arange(10_000)
    e, f = ZSet.from_columns([np.full(10_000, 5), numbers]), ZSet.from_columns([numbers])
    with working_threads(threads):
        query = "n() :- e(5, b), f(b)"
        relations = {"e": e, "f": f}
        joined = generic_join(query, relations)
        stepped = DeltaQuery(query).step(relations)
    assert joined.to_dict() == stepped.to_dict() == {(): 10_000}


def test_terms_that_are_planned_in_a_step_see_its_delta():
    """The slots of their deltas were filled before the terms were planned."""
    body = ", ".join(f"r{i}(a)" for i in range(10))
    view = DeltaQuery(f"n() :- {body}", formula="expanded")
    row = ZSet.from_rows([(1,)])
    assert view.step({f"r{i}": row for i in range(10)}).to_dict() == {(): 1}


@pytest.mark.parametrize("largest", [MAX_INT64, MAX_INT64 - 1, -(2**62)])
def test_a_bitmap_of_a_list_may_contain_the_largest_value(largest):
    """The end of the range of the bitmap wrapped around."""
    rows = [(0, largest - k) for k in range(20)]
    rows += [(largest - k, largest - j) for k in range(10, 20) for j in range(10)]
    query = "n() :- e(a, b), e(b, c), e(a, c)"
    assert generic_join(query, {"e": ZSet.from_rows(rows)}).to_dict() == {(): 100}


@pytest.mark.parametrize("formula", ["recursive", "recursive_collapsed", "recursive_flipped"])
def test_a_relation_is_not_confused_with_a_partial_delta(formula):
    view = DeltaQuery("q(a, b, c) :- e(a, b), D1/(a, c)", formula=formula)
    step = {"e": ZSet.from_rows([(1, 2)]), "D1/": ZSet.from_rows([(1, 5), (1, 6)])}
    assert view.step(step).to_dict() == {(1, 2, 5): 1, (1, 2, 6): 1}


def test_names_of_variables_that_the_planner_adds_are_reserved():
    query = Query("q", ("#0.1",), (Atom("e", (Variable("a"), Variable("#0.1"))),))
    with pytest.raises(QuerySyntaxError, match="rename"):
        DeltaQuery(query)


def test_a_trace_refuses_a_stale_step():
    """Two prepared steps of the largest weight were both committed, and added up to -2."""
    trace = Trace(1)
    heavy = ZSet.from_rows([(0,)], [MAX_INT64])
    first, second = trace.prepare(heavy), trace.prepare(heavy)
    first.commit()
    for step in (first, second):
        with pytest.raises(DbspWcojError, match="prepare it again"):
            step.commit()
    assert trace.weights_of(heavy).tolist() == [MAX_INT64]


@pytest.mark.parametrize("order", [(0,), (0, 5), (1, 1)])
def test_a_trace_refuses_an_order_that_is_no_permutation(order):
    with pytest.raises(ArityError, match="permutation"):
        Trace(2, [order])


def test_a_trace_without_arrangements_has_no_rows_to_read():
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
