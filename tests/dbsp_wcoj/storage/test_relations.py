"""Relations: what is declared and staged, and how soon their traces merge their runs."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import ArityError, DbspWcojError, DeltaQuery, Relations, ZSet
from dbsp_wcoj.storage.spine import MIN_UNREAD_ROWS
from dbsp_wcoj.storage.trace import TraceStep
from tests.support.interrupts import InterruptedAfter

ROWS = MIN_UNREAD_ROWS + 1000


def large_delta(first: int) -> ZSet:
    """Return rows (x, x mod 100) that no other delta has."""
    numbers = np.arange(first, first + ROWS)
    return ZSet.from_columns([numbers, numbers % 100])


@pytest.mark.parametrize(
    ("query", "labels", "runs"),
    [
        ("n(c) :- e(a, b), label(b, c)", 10, 3),
        ("n(c) :- e(a, b), label(b, c)", ROWS, 1),
        ("n(c) :- e(a, b), e(b, d), label(b, c)", 10, 1),
    ],
    ids=["few lookups", "many lookups", "the delta reads its own relation"],
)
def test_large_deltas_remain_separate_runs_if_few_lookups_read_them(query, labels, runs):
    relations = Relations()
    view = DeltaQuery(query, relations=relations)
    total = ZSet.empty(1)
    for number in range(3):
        names = np.arange(labels) + 10**6 * number
        deltas = {
            "e": large_delta(10**7 * (number + 1)),
            "label": ZSet.from_columns([names % 7, names]),
        }
        step = relations.stage(deltas)
        total = total + view.evaluate(step)
        step.commit()
    spines = [arrangement.spine for arrangement in relations.traces["e"].arrangements]
    assert [len(spine.runs) for spine in spines] == [runs] * len(spines)
    if "d" not in query:
        edges = np.bincount(
            np.concatenate([large_delta(10**7 * (n + 1)).row_array[1] for n in range(3)])
        )
        expected = {
            (10**6 * n + i,): int(edges[(10**6 * n + i) % 7])
            for n in range(3)
            for i in range(labels)
        }
        assert total.to_dict() == expected


def test_a_query_that_needs_rows_which_no_query_has_stored_is_an_error():
    relations = Relations()
    first = DeltaQuery("n(a) :- e(a, b)", relations=relations)
    step = relations.stage({"e": ZSet.from_rows([(1, 2)])})
    assert first.evaluate(step).to_dict() == {(1,): 1}
    step.commit()
    with pytest.raises(DbspWcojError, match="rows of the first 1 steps of this relation are not"):
        second = DeltaQuery("n(a) :- e(a, b), f(b)", relations=relations)
        second.evaluate(relations.stage({"f": ZSet.from_rows([(2,)])}))


def test_a_second_delta_of_a_relation_in_a_step_is_an_error():
    relations = Relations()
    relations.declare("e", 1, keep_rows=True)
    step = relations.stage({"e": ZSet.from_rows([(1,)])})
    with pytest.raises(DbspWcojError, match="'e' has a delta in this step already"):
        step.add("e", ZSet.from_rows([(2,)]))
    step.commit()
    assert relations.traces["e"].to_zset().to_dict() == {(1,): 1}


def test_a_step_of_which_one_relation_has_changed_meanwhile_commits_nothing():
    relations = Relations()
    for name in ("e", "f"):
        relations.declare(name, 1, keep_rows=True)
    row = ZSet.from_rows([(1,)])
    step = relations.stage({"e": row, "f": row})
    relations.traces["f"].update(row)
    with pytest.raises(DbspWcojError, match="prepare it again"):
        step.commit()
    assert relations.traces["e"].is_empty and relations.version == 0
    assert relations.traces["f"].to_zset() == row


@pytest.mark.parametrize("arity", [-1, 100_000])
def test_a_relation_with_a_wrong_arity_is_not_declared(arity):
    relations = Relations()
    with pytest.raises(ArityError):
        relations.declare("r", arity, keep_rows=True)
    assert "r" not in relations
    relations.declare("r", 2, keep_rows=True)


def test_lookups_are_estimated_by_the_atoms_of_the_query():
    relations = Relations()
    relations.declare("e", 2, keep_rows=True, occurrences=3)
    relations.declare("label", 2, keep_rows=True)
    # A triangle looks up each edge for two other atoms, in each of three terms.
    assert relations.estimate_lookups("e", 10, 10) == 60
    assert relations.estimate_lookups("label", 1, 11) == 10


def test_relations_of_which_only_some_have_a_step_accept_no_more_steps(monkeypatch):
    view = DeltaQuery("q(a, c) :- e(a, b), f(b, c)")
    rows = ZSet.from_rows([(1, 2), (2, 3)])
    with monkeypatch.context() as patch:
        patch.setattr(TraceStep, "commit", InterruptedAfter(TraceStep.commit).bound())
        with pytest.raises(KeyboardInterrupt):
            view.step({"e": rows, "f": rows})
    for use in (view.step, view.prepare, view.step_chunks):
        with pytest.raises(DbspWcojError, match="interrupted while it was committed"):
            use({"f": rows})
