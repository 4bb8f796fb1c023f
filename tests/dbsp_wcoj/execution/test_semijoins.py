"""Views over reduced relations have the deltas of the view over full relations, with less work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import (
    ArityError,
    DbspWcojError,
    DeltaQuery,
    UnknownRelationError,
    WeightOverflowError,
    ZSet,
)
from dbsp_wcoj.execution import semijoin_steps, semijoins
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.execution.semijoins import SemijoinCandidates
from dbsp_wcoj.kernel_loading import load_kernel
from dbsp_wcoj.kernels.storage.arena import MAX_SMALL_ROWS
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.deferred_trace import DeferredTrace
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import Trace
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import naive
from tests.oracles.naive import add
from tests.support.interrupts import InterruptedAfter

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c), l0(a), l1(b), l2(c)"
QUERIES = (
    TRIANGLES,
    "n() :- e(a, b), e(b, c), l0(a), l0(c)",
    "p(a, c) :- e(a, b), e(b, c), l0(a), l1(b), l1(c), l0(c)",
    "n() :- e(a, a), l0(a)",
    "q(a) :- e(a, 3), l0(a), e(a, b)",
    "n() :- e(a, b), f(b, c, a), l0(b), a < c",
    "n() :- f(a, b, c), f(c, b, a), l0(b), l1(a), l0(c)",
)
FORMULAS = ("collapsed", "flipped", "expanded", "recursive", "auto")
MANY = 1200


@pytest.fixture(autouse=True, scope="module")
def reduce_after_the_first_row():
    patch = pytest.MonkeyPatch()
    patch.setattr(semijoins, "FIRST_CHOICE_ROWS", 1)
    yield
    patch.undo()


def total(delta: ZSet) -> int:
    """Return the weight of the empty row."""
    return delta.to_dict().get((), 0)


def labelled(text: str = TRIANGLES, nodes: int = 60) -> DeltaQuery:
    """Return a view of a dense graph whose node v has label v modulo 6; it is reduced."""
    view = DeltaQuery(text)
    source, target = np.divmod(np.arange(nodes * nodes), nodes)
    labels = {
        name: ZSet.from_columns([np.arange(int(name[1:]), nodes, 6)])
        for name in view.query.relations
        if name != "e"
    }
    view.step({"e": ZSet.from_columns([source, target]), **labels})
    view.step({})  # reduces the relations first, because many rows have changed
    return view


def labelled_triangles(weights) -> int:
    """Return the total of `TRIANGLES` for the labels of `labelled`, given a matrix of weights."""
    first, second, third = weights[0::6, 1::6], weights[1::6, 2::6], weights[0::6, 2::6]
    return int((first @ second * third).sum())


def executions(view: DeltaQuery) -> int:
    """Return how often any term has been executed."""
    return sum(term.physical.execution_count for term in view.terms)


@pytest.mark.parametrize("share", [0.5, 100.0])
@LAW
@given(st.data())
def test_a_reduced_view_equals_the_oracle(share, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semijoins, "MAX_SHARE", share)
        text = data.draw(st.sampled_from(QUERIES))
        domain = data.draw(st.sampled_from(DOMAINS))
        view = DeltaQuery(text, formula=data.draw(st.sampled_from(FORMULAS)))
        arities = view.query.relations
        state = {name: {} for name in arities}
        for _ in range(data.draw(st.integers(1, 8))):
            deltas = {}
            for name in data.draw(st.sets(st.sampled_from(sorted(arities)), min_size=1)):
                deltas[name] = data.draw(relation_deltas(arities[name], domain))
                if data.draw(st.booleans()):
                    deltas[name] = {row: -weight for row, weight in state[name].items()}
            before = naive.evaluate(view.query, state)
            for name, delta in deltas.items():
                state[name] = add(state[name], delta)
            after = naive.evaluate(view.query, state)
            zsets = {name: zset(delta, arity=arities[name]) for name, delta in deltas.items()}
            if data.draw(st.booleans()):
                result = view.step(zsets)
            else:
                prepared = view.prepare(zsets)
                result = prepared.delta
                prepared.commit()
            assert result.to_dict() == add(after, {row: -w for row, w in before.items()})
            for term in view.terms:
                for spine in term.physical.spines:
                    spine._check()


def test_a_view_keeps_only_the_rows_whose_labels_its_atoms_ask_for():
    view = labelled()
    rows = {name: sum(runs) for name, runs in view.stats.rows_by_run.items() if "e" in name}
    assert rows == {
        "e(l0,l1)[0,1]": 100,
        "e(l0,l1)[1,0]": 100,
        "e(l1,l2)[0,1]": 100,
        "e(l1,l2)[1,0]": 100,
        "e(l0,l2)[0,1]": 100,
        "e(l0,l2)[1,0]": 100,
        "e[0,1]": 3600,
    }
    assert "old e(l0,l1)[1,0]:2, delta e(l1,l2)[0,1]:2, new e(l0,l2)[1,0]:2" in view.explain()


def test_rows_that_meet_no_label_build_no_run_and_run_no_term(monkeypatch):
    view = labelled()
    before, arrangements = executions(view), view.stats.rows_by_run
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    unlabelled = np.arange(3, 60, 6)
    assert len(view.step({"e": ZSet.from_columns([unlabelled, unlabelled])})) == 0
    assert executions(view) == before
    assert view.stats.rows_by_run == arrangements


def test_a_small_step_is_one_kernel_call(monkeypatch):
    view = labelled()
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    # The triangle (0, 1, 2) now counts 8 times; 9 others twice for each of its edges.
    edges = ZSet.from_rows([(0, 1), (1, 2), (3, 3), (0, 2)])
    assert total(view.step({"e": edges})) == 7 + 3 * 9
    assert total(view.step({"e": -edges})) == -7 - 3 * 9


def test_a_step_with_some_hundred_rows_of_a_label_combination_is_one_kernel_call(monkeypatch):
    nodes = 120
    view = labelled(nodes=nodes)
    weights = np.ones((nodes, nodes), np.int64)
    monkeypatch.setattr(PhysicalTerm, "total", None)
    monkeypatch.setattr(Trace, "prepare", None)
    source, target = (labels.ravel() for labels in np.meshgrid(*[np.arange(nodes)] * 2))
    rng = np.random.default_rng(3)
    # Of 14,400 edges, 400 have each combination of labels.
    for share in (0.2, 0.05):
        kept = rng.random(nodes * nodes) < share
        changes = rng.choice([-1, 2], int(kept.sum()))
        before = labelled_triangles(weights)
        weights[source[kept], target[kept]] += changes
        delta = ZSet.from_columns([source[kept], target[kept]], changes)
        assert total(view.step({"e": delta})) == labelled_triangles(weights) - before


def test_the_buffer_of_an_arena_has_room_for_the_kept_rows_and_not_for_the_step(monkeypatch):
    view, rows_of_buffers = labelled(nodes=120), []
    start_buffer = Arena.start_buffer

    def start_and_count(arena: Arena, rows: int) -> None:
        rows_of_buffers.append(rows)
        start_buffer(arena, rows)

    monkeypatch.setattr(Arena, "start_buffer", start_and_count)
    monkeypatch.setattr(Trace, "prepare", None)
    # Only the first three rows meet labels.
    nodes = np.concatenate([[0, 1, 0], np.arange(200, 3000)])
    targets = np.concatenate([[1, 2, 2], np.arange(200, 3000)])
    assert total(view.step({"e": ZSet.from_columns([nodes, targets])})) == 7 + 3 * 19
    assert rows_of_buffers and max(rows_of_buffers) <= MAX_SMALL_ROWS


def test_many_small_steps_settle_their_tails_and_fill_the_log():
    view = labelled()
    inserted = total(view.step({"e": ZSet.from_rows([(0, 1), (1, 2), (0, 2)])}))
    assert inserted
    for _ in range(MANY):
        assert total(view.step({"e": ZSet.from_rows([(0, 1), (6, 1), (3, 3), (2, 2)])})) > 0
    deleted = {(0, 1): -MANY - 1, (6, 1): -MANY, (3, 3): -MANY, (2, 2): -MANY, (1, 2): -1}
    deleted[0, 2] = -1
    view.step({"e": zset(deleted, arity=2)})
    view.step({"l2": ZSet.from_columns([np.arange(2, 60, 6)], [-1] * 10)})
    assert total(view.step({"l2": ZSet.from_columns([np.arange(2, 60, 6)])})) == 1000


def test_common_labels_do_not_reduce_a_relation():
    view = DeltaQuery("n() :- e(a, b), e(b, c), l0(a)")
    assert not SemijoinCandidates(view.query)  # the second atom reads all rows
    view = DeltaQuery(TRIANGLES)
    nodes = ZSet.from_columns([np.arange(50)])
    edges = ZSet.from_columns([np.arange(49), np.arange(1, 50)])
    view.step({"e": edges, "l0": nodes, "l1": nodes, "l2": nodes})
    view.step({})
    assert "e[0,1]" in view.stats.rows_by_run and "e(l0,l1)[0,1]" not in view.stats.rows_by_run


def test_a_reduction_ends_when_most_rows_have_all_labels():
    view = labelled()
    nodes = ZSet.from_columns([np.arange(60)])
    view.step({name: nodes for name in ("l0", "l1", "l2")})
    view.step({"e": ZSet.from_columns([np.arange(7300), np.arange(7300)])})
    view.step({})
    assert "e(l0,l1)[0,1]" not in view.stats.rows_by_run
    assert sum(view.stats.rows_by_run["e[0,1]"]) >= 7300


def test_the_counters_go_on_when_a_relation_is_reduced():
    view = labelled()
    first = view.stats
    assert first.proposals > 0
    view.step({"e": ZSet.from_rows([(0, 1)])})
    assert view.stats.proposals > first.proposals
    assert view.stats.joins > first.joins


def test_a_weight_beyond_int64_is_refused_although_no_atom_reads_the_row():
    view = labelled()
    large = ZSet.from_rows([(3, 3)], [2**63 - 3])
    view.step({"e": large})
    with pytest.raises(WeightOverflowError, match="row \\(3, 3\\) would get weight"):
        view.step({"e": large})
    view.step({"e": ZSet.from_rows([(3, 3)], [-5])})
    view.step({"e": ZSet.from_rows([(3, 3)], [5])})
    with pytest.raises(WeightOverflowError):
        view.prepare({"e": ZSet.from_rows([(3, 3)], [5])})


def test_wrong_deltas_of_a_reduced_view_are_refused():
    view = labelled()
    with pytest.raises(UnknownRelationError, match="relations: e, l0, l1, l2"):
        view.step({"e(l0,l1)": ZSet.from_rows([(0, 1)])})
    with pytest.raises(ArityError, match="has arity 3, but the relation has 2"):
        view.step({"e": ZSet.from_rows([(0, 1, 2)])})


def test_a_prepared_step_is_out_of_date_after_another_step():
    view = labelled()
    prepared = view.prepare({"e": ZSet.from_rows([(3, 3)])})
    view.step({"e": ZSet.from_rows([(9, 9)])})
    with pytest.raises(DbspWcojError, match="prepare it again"):
        prepared.commit()


@pytest.mark.parametrize("interrupt", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["step", "prepare", "step_chunks"])
def test_an_error_while_relations_are_reduced_leaves_the_view_as_it_was(
    way, interrupt, monkeypatch
):
    view = DeltaQuery(TRIANGLES)
    source, target = np.divmod(np.arange(3600), 60)
    labels = {f"l{i}": ZSet.from_columns([np.arange(i, 60, 6)]) for i in range(3)}
    assert total(view.step({"e": ZSet.from_columns([source, target]), **labels})) == 1000

    def fail(cache, plans):
        raise interrupt

    edge = {"e": ZSet.from_rows([(0, 1)])}
    with monkeypatch.context() as patch:
        patch.setattr(PlanCache, "resume", fail)  # the last part of a reduction
        with pytest.raises(interrupt):
            getattr(view, way)(edge)
    assert total(view.step(edge)) == 10
    assert "e[0,1]" in view.stats.rows_by_run
    others = np.arange(100, 4100)  # the changed rows have doubled after this step
    view.step({"e": ZSet.from_columns([others, others])})
    assert total(view.step({"e": ZSet.from_rows([(0, 1)], [-1])})) == -10
    assert "e(l0,l1)[0,1]" in view.stats.rows_by_run


def test_a_small_step_of_reduced_relations_that_is_interrupted_ends_the_view(monkeypatch):
    view = labelled()
    view.step({"e": ZSet.from_rows([(0, 1)])})
    kernel = InterruptedAfter(semijoin_steps.semijoin_step)
    monkeypatch.setattr(semijoin_steps, "semijoin_step", kernel)
    with pytest.raises(KeyboardInterrupt):
        view.step({"e": ZSet.from_rows([(0, 1)])})
    with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
        view.step({"e": ZSet.from_rows([(0, 1)])})


def test_an_interrupt_while_the_kernel_of_reduced_relations_is_loaded_changes_nothing(monkeypatch):
    view = labelled()
    with monkeypatch.context() as patch:
        patch.setattr(semijoin_steps, "load_kernel", InterruptedAfter(load_kernel))
        with pytest.raises(KeyboardInterrupt):
            view.step({"e": ZSet.from_rows([(0, 1)], [-1])})
    assert total(view.step({"e": ZSet.from_rows([(0, 1)], [-1])})) == -10


def test_the_log_of_a_full_relation_is_part_of_the_commit(monkeypatch):
    view = labelled()
    monkeypatch.setattr(DeferredTrace, "append", None)
    with pytest.raises(TypeError):
        view.step({"e": ZSet.from_rows([(0, 1)]), "l0": ZSet.from_rows([(9,)])})
    with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
        view.prepare({})


def test_a_label_change_interrupted_while_it_read_the_full_relation_is_not_repeated(monkeypatch):
    view = labelled()
    for name, value in (("l0", 3), ("l2", 3)):  # arrange the full relation in both orders
        view.step({name: ZSet.from_rows([(value,)])})
    assert [full.unread_trace.orders for full in view._reduction.full.values()] == [
        ((0, 1), (1, 0))
    ]
    view.step({"e": ZSet.from_columns([np.arange(100), np.full(100, 4)])})
    change = {"l2": ZSet.from_rows([(4,), (5,)])}
    with monkeypatch.context() as patch:
        patch.setattr(Spine, "append", InterruptedAfter(Spine.append).bound())
        with pytest.raises(KeyboardInterrupt):
            view.step(change)
    with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
        view.step(change)


def test_a_semijoin_is_named_by_its_labels():
    candidates = SemijoinCandidates(Query.parse("n() :- f(a, b, c), l0(a), l1(c), l2(c)"))
    assert [s and s.name for s in candidates.by_atom] == ["f(l0,_,l1&l2)", None, None, None]
