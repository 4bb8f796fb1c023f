"""First candidates: the first step of a recursive min or max, with the state of ordinary steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import compile_datalog
from circuits.runtime import nested_circuit
from circuits.runtime.operators import derivation_batches, recursive_min_max
from circuits.runtime.operators.first_candidates import FirstCandidates
from circuits.runtime.operators.recursive_min_max import RecursiveMinMaxOperator
from circuits.types.codecs.codec import NULL
from dbsp_wcoj import ZSet
from dbsp_wcoj.row_parts import RowParts
from dbsp_wcoj.storage import least_values
from tests.circuits.datalog.test_datalog_circuits import rows, table
from tests.circuits.runtime.test_first_derivations import (
    in_any_order,
    iteration_of,
    trace_contents,
)
from tests.circuits.runtime.test_recursion import SCHEMAS, Inputs
from tests.generators.recursive_programs import PROGRAMS
from tests.oracles.naive_datalog import evaluate_program

LAW = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MIN_MAX_PROGRAMS = sorted(t for t, text in PROGRAMS.items() if "min(" in text or "max(" in text)
SHORTEST_PATHS = PROGRAMS["shortest paths"]
VALUES = st.sampled_from([0, 1, 2, 3, 9, -5, 2**12])


@pytest.mark.parametrize("sorted_rows", [2, 1 << 17])
@pytest.mark.parametrize("keeps_null", [False, True])
@LAW
@given(st.booleans(), st.data())
def test_rows_and_state_equal_those_of_the_operator(keeps_null, sorted_rows, least, data):
    arity = data.draw(st.integers(2, 4))
    column = data.draw(st.integers(0, arity - 2))
    operator, in_bulk = (
        RecursiveMinMaxOperator(arity, column, least=least, keeps_null=keeps_null) for _ in range(2)
    )
    candidates = FirstCandidates(in_bulk.trace, in_bulk.order)
    columns = [VALUES] * (arity - 1)
    columns[column] = VALUES if keeps_null else st.one_of(VALUES, st.just(NULL))
    row = st.tuples(*columns)
    iteration, total, best = 0, ZSet.empty(arity), ZSet.empty(arity - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivation_batches, "SORTED_ROWS", sorted_rows)
        patch.setattr(least_values, "MIN_SLOTS", 2)
        for _ in range(data.draw(st.integers(0, 5))):
            iteration += data.draw(st.sampled_from([1, 2, 40]))
            weights = data.draw(st.dictionaries(row, st.integers(1, 3), min_size=1, max_size=8))
            delta = ZSet.from_rows([(*r, iteration) for r in weights], weights.values())
            given_rows = in_any_order(delta, data.draw)
            assert candidates.offer(given_rows)
            expected = operator.prepare_delta(delta)
            added = candidates.add(given_rows)
            added._check()
            assert added == expected.improvements
            if expected.staged is not None:
                expected.staged.commit()
            total += expected.improvements
            best += expected.best
            assert candidates.first_rows() == total
            assert candidates.best_rows() == best
        step = candidates.total()
        fed_back = candidates.rows_fed_back()
    assert fed_back.to_dict() == {(*r[:-1], r[-1] + 1): 1 for r, _ in total}
    if step is not None:
        step.commit()
    assert in_bulk.trace.is_empty == operator.trace.is_empty
    if step is not None:
        assert in_bulk.trace.to_zset() == operator.trace.to_zset()


@pytest.mark.parametrize(
    "delta",
    [
        ZSet.from_rows([(1, 7, 2)], [-1]),
        ZSet.from_rows([(1, 7, 2), (1, 7, 3)]),
        ZSet.from_rows([(1, 7, 1)]),
        ZSet.from_rows([(1, 7, 2)], [2**40]),
        ZSet.from_rows([(-(2**63), 7, 2), (2**63 - 1, 7, 2)]),
    ],
    ids=["a deletion", "two iterations", "an earlier iteration", "a large weight", "wide values"],
)
def test_other_deltas_are_not_accepted(delta):
    operator = RecursiveMinMaxOperator(3, 1, least=True)
    candidates = FirstCandidates(operator.trace, operator.order)
    first = ZSet.from_rows([(5, 7, 1)])
    assert candidates.offer(first)
    candidates.add(first)
    assert not candidates.offer(delta)


def test_the_first_step_of_shortest_paths_reads_no_histories(monkeypatch):
    reads = []
    lookup = recursive_min_max.prefix_lookup
    monkeypatch.setattr(
        recursive_min_max, "prefix_lookup", lambda *a, **k: reads.append(1) or lookup(*a, **k)
    )
    circuit = compile_datalog(SHORTEST_PATHS, {name: SCHEMAS[name] for name in ("d", "w")})
    roads = [((n, n + 1, 2), 1) for n in range(9)]
    start = table(SCHEMAS["d"], [((0,), 1)])
    assert circuit.step({"d": start, "w": table(SCHEMAS["w"], roads)})["sp"].num_rows == 10
    assert not reads
    shortcut = table(SCHEMAS["w"], [((0, 8, 1), 1)])
    changes = {((8, 16), -1), ((8, 1), 1), ((9, 18), -1), ((9, 3), 1)}
    assert set(rows(circuit.step({"w": shortcut})["sp"]).items()) == changes
    assert reads


def test_an_improvement_does_not_take_back_what_the_worse_value_has_derived():
    circuit = compile_datalog(SHORTEST_PATHS, {name: SCHEMAS[name] for name in ("d", "w")})
    roads = [(0, 1, 9), (0, 2, 1), (2, 1, 1), *((1, n, 1) for n in range(10, 20))]
    delta = circuit.step({
        "d": table(SCHEMAS["d"], [((0,), 1)]),
        "w": table(SCHEMAS["w"], [(road, 1) for road in roads]),
    })["sp"]  # fmt: skip
    assert delta.num_rows == 13
    candidates = max(len(zset) for name, zset in trace_contents(circuit).items() if "#" in name)
    # The ten nodes behind 1 have a candidate for each of its two values, not one that deletes it.
    assert candidates == 24


def test_a_wide_value_after_some_iterations_is_computed_without_the_bulk_path():
    circuit = compile_datalog(SHORTEST_PATHS, {name: SCHEMAS[name] for name in ("d", "w")})
    roads = [(0, 1, 5), (1, 2, 2**61), (2, 1, 1), (2, 3, 2**61), (0, 2, 2**62), (-(2**62), 0, 1)]
    tables: dict[str, Any] = {
        "d": table(SCHEMAS["d"], [((0,), 1), ((-(2**62),), 1)]),
        "w": table(SCHEMAS["w"], [(road, 1) for road in roads]),
    }
    facts = {"d": [(0,), (-(2**62),)], "w": roads}
    expected = dict.fromkeys(evaluate_program(SHORTEST_PATHS, facts)["sp"], 1)
    assert dict(rows(circuit.step(tables)["sp"])) == expected
    last = {"w": table(SCHEMAS["w"], [((1, 2, 2**61), -1)])}
    total = rows(circuit.step(last)["sp"])
    total.update(expected)
    facts["w"].remove((1, 2, 2**61))
    present = {row: weight for row, weight in total.items() if weight}
    assert present == dict.fromkeys(evaluate_program(SHORTEST_PATHS, facts)["sp"], 1)


@settings(LAW, max_examples=60)
@given(st.sampled_from(MIN_MAX_PROGRAMS), st.integers(0, 3), st.data())
def test_states_are_equal_with_candidates_that_are_accepted_up_to_any_iteration(title, last, data):
    program = Inputs(PROGRAMS[title])
    in_bulk, partly_in_bulk = program.circuit(), program.circuit()
    offer = FirstCandidates.offer

    def offer_up_to_last(self: FirstCandidates, delta: ZSet | RowParts) -> bool:
        return iteration_of(delta) <= last - 1 and offer(self, delta)

    totals: dict[str, Any] = {}
    for _ in range(3):
        change = program.change(data.draw)
        expected = {head: rows(delta) for head, delta in in_bulk.step(change).items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FirstCandidates, "offer", offer_up_to_last)
            patch.setattr(nested_circuit, "MIN_UNSORTED_ROWS", data.draw(st.integers(0, 3)))
            deltas = partly_in_bulk.step(change)
        assert {head: rows(delta) for head, delta in deltas.items()} == expected
        assert trace_contents(in_bulk) == trace_contents(partly_in_bulk)
        for head, delta in expected.items():
            totals.setdefault(head, type(delta)()).update(delta)
            present = {row: weight for row, weight in totals[head].items() if weight}
            assert present == dict.fromkeys(program.expected()[head], 1), program.text
