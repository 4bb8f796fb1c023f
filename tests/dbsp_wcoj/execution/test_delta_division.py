"""Delta division: the parts of a delta are its rows, and a join in parts has the same result."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Relations, ZSet, delta_query
from dbsp_wcoj.execution import delta_division, term_division
from dbsp_wcoj.execution.delta_division import MAX_PARTS, MIN_ROWS_PER_PART, divide_run
from dbsp_wcoj.storage.run import Run
from tests.generators.strategies import FORMULAS, LAW, scenarios, zset, zsets
from tests.oracles import naive

ROWS = st.dictionaries(
    st.tuples(*[st.integers(-2, 2)] * 3), st.sampled_from([-2, -1, 1, 3]), min_size=1
)


def map_runs(relations):
    """Mark all runs as memory maps of files; nothing else depends on where they are."""
    for trace in relations.traces.values():
        trace.replace_runs(
            {
                entry.order: [
                    Run.from_words(run.to_words().copy(), is_mapped=True)
                    for run in entry.spine.runs
                ]
                for entry in trace.arrangements
            }
        )


def step(relations, view, deltas):
    staged = relations.stage(deltas)
    delta = view.evaluate(staged).to_dict()
    staged.commit()
    return delta


@LAW
@given(rows=ROWS, parts=st.integers(1, 5), order=st.permutations(range(3)))
def test_parts_are_disjoint_in_their_second_column_and_sum_up_to_the_run(rows, parts, order):
    run = Run.of(zset(rows, arity=3), np.array(order))
    divided = list(divide_run(run, parts))
    assert 1 <= len(divided) <= parts
    seconds = [set(part.read()[0][1].tolist()) for part in divided]
    assert all(max(a) < min(b) for a, b in pairwise(seconds))
    found = [
        (row, weight)
        for part in divided
        for columns, weights in [part.read()]
        for row, weight in zip(zip(*columns.tolist(), strict=True), weights.tolist(), strict=True)
    ]
    permuted = {tuple(row[k] for k in order): weight for row, weight in rows.items()}
    assert sorted(found) == sorted(permuted.items())


@pytest.mark.parametrize("formula", FORMULAS)
@LAW
@given(scenario=scenarios())
def test_steps_over_mapped_runs_in_parts_equal_recomputation(formula, scenario):
    """All other factors of a self-join still read the whole delta."""
    query = scenario.query
    relations = Relations()
    view = DeltaQuery(query, formula=formula, relations=relations)
    total: dict = {}
    states: dict = {name: {} for name in query.relations}
    with (
        patch.object(delta_query, "MIN_DIVIDED_ROWS", 1),
        patch.object(delta_division, "MIN_ROWS_PER_PART", 1),
        patch.object(delta_division, "MAPPED_BYTES_PER_PART", 64),
    ):
        for deltas in scenario.steps:
            total = naive.add(total, step(relations, view, zsets(deltas, query)))
            map_runs(relations)
            for name, delta in deltas.items():
                states[name] = naive.add(states[name], delta)
            assert total == naive.evaluate(query, states)


def test_dividing_a_run_copies_only_the_rows_of_one_part():
    rows = 1 << 17
    numbers = np.arange(rows)
    run = Run.of(ZSet.from_columns([numbers, numbers * 7919 % rows]), np.arange(2))
    tracemalloc.start()
    try:
        divided = sum(part.rows for part in divide_run(run, 32))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert divided == rows
    # A copy of all rows and their weights would take 24 bytes per row.
    assert peak < 20 * rows


@pytest.mark.parametrize("head", ["n()", "q(a, c)"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_only_large_deltas_of_mapped_relations_are_divided(head, is_mapped):
    relations = Relations()
    view = DeltaQuery(f"{head} :- e(a, b), e(b, c), e(a, c)", relations=relations)
    numbers = np.arange(8 * MIN_ROWS_PER_PART)
    edges = ZSet.from_columns([numbers // 4, numbers * 7919 % 30_011])
    with (
        patch.object(term_division, "divide_run", wraps=divide_run) as divide,
        patch.object(delta_division, "MAPPED_BYTES_PER_PART", 1),
    ):
        step(relations, view, {"e": ZSet.from_columns([numbers % 30_011, numbers])})
        if is_mapped:
            map_runs(relations)
        step(relations, view, {"e": ZSet.from_rows([(1, 2), (2, 3)])})
        divide.assert_not_called()
        step(relations, view, {"e": edges})
    if is_mapped:
        assert {call.args[1] for call in divide.call_args_list} == {min(8, MAX_PARTS)}
    else:
        divide.assert_not_called()
