"""First derivations: the first step of a recursion in bulk, with the state of ordinary steps."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import compile_datalog
from circuits.runtime import nested_circuit
from circuits.runtime.operators import derivation_batches, recursive_distinct
from circuits.runtime.operators.first_derivations import FirstDerivations
from circuits.runtime.operators.recursive_distinct import RecursiveSetOperator
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.execution import chain_product
from dbsp_wcoj.row_parts import RowPart, RowParts
from tests.circuits.datalog.test_datalog_circuits import rows, table
from tests.circuits.runtime.test_recursion import SCHEMAS, Inputs
from tests.generators.recursive_programs import PROGRAMS

LAW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CLOSURE = PROGRAMS["a closure from the right"]
# The key of a row of 2**58 has no room for the iteration.
VALUES = [
    st.none(),
    st.sampled_from([0, 1, 2, 3, 9, -5, 2**58]),
    st.sampled_from([0, 1, 2, 3, 9, 2**20, -(2**20)]),
]


def in_any_order(delta: ZSet, draw: Any) -> ZSet | RowParts:
    """Draw the form of a delta: sorted, or in parts of rows in any order with positive weights."""
    if not draw(st.booleans()):
        return delta
    units = np.repeat(np.arange(len(delta)), delta.weights)
    order = np.array(draw(st.permutations(units.tolist())))
    cut = draw(st.integers(0, len(order)))
    parts = [
        RowPart([column[part] for column in delta.rows], np.ones(len(part), np.int64))
        for part in (order[:cut], order[cut:])
        if len(part)
    ]
    return RowParts(delta.arity, parts)


@pytest.mark.parametrize("sorted_rows", [2, 1 << 17])
@LAW
@given(st.data())
def test_rows_and_state_equal_those_of_the_operator(sorted_rows, data):
    arity = data.draw(st.integers(0, 2))
    operator, trace = RecursiveSetOperator(arity + 1), Trace(arity + 1)
    derivations = FirstDerivations(trace)
    row = st.tuples(*[VALUES[arity]] * arity)
    iteration, total = 0, ZSet.empty(arity + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivation_batches, "SORTED_ROWS", sorted_rows)
        for _ in range(data.draw(st.integers(0, 5))):
            iteration += data.draw(st.sampled_from([1, 2, 40]))
            weights = data.draw(st.dictionaries(row, st.integers(1, 3), min_size=1, max_size=8))
            delta = ZSet.from_rows([(*r, iteration) for r in weights], weights.values())
            given_rows = in_any_order(delta, data.draw)
            assert derivations.offer(given_rows)
            expected, staged = operator.prepare_delta(delta)
            assert derivations.add(given_rows) == expected
            assert staged is not None
            staged.commit()
            total += expected
            assert derivations.first_rows() == total
        step = derivations.total()
    if step is not None:
        step.commit()
    assert trace.to_zset() == operator.trace.to_zset()


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("bits", [33, 40, 48, 56, 62])
def test_a_batch_keeps_the_memory_of_its_keys_alone(bits, copies):
    rows = 20_000
    values = np.random.default_rng(bits).integers(0, 1 << bits, rows)
    values[0] = (1 << bits) - 1
    columns = [np.tile(values, copies), np.full(copies * rows, 1)]
    part = RowPart(columns, np.ones(copies * rows, np.int64))
    batches = derivation_batches.DerivationBatches(Trace(2))
    tracemalloc.start()
    try:
        packed = batches.pack([part], is_sorted=False)
        assert packed is not None
        batches.append(packed)
        del packed
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    arrays = snapshot.filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
    allocated = sum(trace.size for trace in arrays.traces)
    bytes_per_row = 8 if copies == 1 else 9  # with a weight of one byte
    assert bytes_per_row * rows <= allocated < (bytes_per_row + 1) * rows


@pytest.mark.parametrize(
    "delta",
    [
        ZSet.from_rows([(1, 2)], [-1]),
        ZSet.from_rows([(1, 2), (1, 3)]),
        ZSet.from_rows([(1, 1)]),
        ZSet.from_rows([(1, 2)], [2**40]),
        ZSet.from_rows([(-(2**63), 2), (2**63 - 1, 2)]),
    ],
    ids=["a deletion", "two iterations", "an earlier iteration", "a large weight", "wide values"],
)
def test_other_deltas_are_not_accepted(delta):
    derivations = FirstDerivations(Trace(2))
    first = ZSet.from_rows([(5, 1)])
    assert derivations.offer(first)
    derivations.add(first)
    assert not derivations.offer(delta)


def test_the_first_step_of_a_closure_reads_no_histories(monkeypatch):
    reads = []
    lookup = recursive_distinct.prefix_lookup
    monkeypatch.setattr(
        recursive_distinct, "prefix_lookup", lambda *a, **k: reads.append(1) or lookup(*a, **k)
    )
    circuit = compile_datalog(CLOSURE, {"e": SCHEMAS["e"]})
    path = table(SCHEMAS["e"], [((n, n + 1), 1) for n in range(9)])
    assert circuit.step({"e": path})["tc"].num_rows == 45
    assert not reads
    assert circuit.step({"e": table(SCHEMAS["e"], [((0, 1), -1)])})["tc"].num_rows == 9
    assert reads


def test_small_iterations_add_their_rows_in_one_pass(monkeypatch):
    packs = []
    pack = derivation_batches.DerivationBatches.pack
    monkeypatch.setattr(
        derivation_batches.DerivationBatches,
        "pack",
        lambda *a, **k: packs.append(1) or pack(*a, **k),
    )
    circuit = compile_datalog(CLOSURE, {"e": SCHEMAS["e"]})
    path = table(SCHEMAS["e"], [((n, n + 1), 1) for n in range(100)])
    assert circuit.step({"e": path})["tc"].num_rows == 5050
    assert len(packs) <= 2  # of 100 iterations: those whose rows need another layout


@pytest.mark.parametrize(
    "rules",
    [
        CLOSURE,
        "tc(a, b) :- e(a, b). tc(a, c) :- e(a, b), tc(b, c).",
        "tc(a, min(b)) :- e(a, b). tc(a, min(c)) :- e(a, b), tc(b, c).",
    ],
)
def test_a_load_sorts_the_state_only_when_a_change_reads_it(rules, monkeypatch):
    builds = []
    build = derivation_batches.DerivationBatches.build
    monkeypatch.setattr(
        derivation_batches.DerivationBatches,
        "build",
        lambda self, *arguments: builds.append(1) or build(self, *arguments),
    )
    circuit = compile_datalog(rules, {"e": SCHEMAS["e"]}, materialize=["tc"])
    circuit.step({"e": table(SCHEMAS["e"], [((n, n + 1), 1) for n in range(9)])})
    circuit.views["tc"]
    assert not builds
    circuit.step({"e": table(SCHEMAS["e"], [((0, 1), -1), ((3, 0), 1)])})
    assert len(builds) == 1
    other = compile_datalog(rules, {"e": SCHEMAS["e"]}, materialize=["tc"])
    edges = [((n, n + 1), 1) for n in range(1, 9)]
    other.step({"e": table(SCHEMAS["e"], [*edges, ((3, 0), 1)])})
    assert rows(circuit.views["tc"]) == rows(other.views["tc"])


@pytest.mark.parametrize("changes_other", [False, True])
def test_a_step_that_does_not_reach_a_recursion_sorts_no_state(changes_other):
    rules = f"{CLOSURE} v(a, b) :- f(a, b)."
    circuit = compile_datalog(rules, {"e": SCHEMAS["e"], "f": SCHEMAS["e"]}, materialize=["tc"])
    circuit.step({"e": table(SCHEMAS["e"], [((n, n + 1), 1) for n in range(9)])})
    unsorted = {name for name, trace in circuit.graph.traces.items() if trace.deferred is not None}
    assert unsorted
    circuit.step({"f": table(SCHEMAS["e"], [((1, 2), 1)])} if changes_other else {})
    assert all(circuit.graph.traces[name].deferred is not None for name in unsorted)
    assert circuit.step({"e": table(SCHEMAS["e"], [((0, 1), -1)])})["tc"].num_rows == 9


def test_a_closure_counts_the_rows_of_products_that_are_not_computed(monkeypatch):
    """Each pair is compared with the known ones once per iteration that derives it."""
    monkeypatch.setattr(chain_product, "MIN_DELTA_ROWS", 1)
    monkeypatch.setattr(nested_circuit, "MIN_UNSORTED_ROWS", 0)
    computed = []
    monkeypatch.setattr(
        chain_product.ChainProduct, "compute_parts", lambda self: computed.append(1)
    )
    circuit = compile_datalog(CLOSURE, {"e": SCHEMAS["e"]})
    edges = [(n, n + 1) for n in range(9)] + [(n, n + 2) for n in range(8)]
    circuit.step({"e": table(SCHEMAS["e"], [(edge, 1) for edge in edges])})
    assert not computed
    counted = sum(circuit.graph.rows)
    monkeypatch.undo()
    other = compile_datalog(CLOSURE, {"e": SCHEMAS["e"]})
    other.step({"e": table(SCHEMAS["e"], [(edge, 1) for edge in edges])})
    assert counted == sum(other.graph.rows)


def iteration_of(delta: ZSet | RowParts) -> int:
    rows = delta if isinstance(delta, RowParts) else RowParts.of(delta)
    return int(rows.parts[0].columns[-1][0])


def trace_contents(circuit: Any) -> dict[str, ZSet]:
    traces = circuit.graph.traces
    return {name: trace.to_zset() for name, trace in traces.items() if trace.arrangements}


@settings(LAW, max_examples=30)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_chain_products_and_unsorted_rows_change_neither_rows_nor_state(title, data):
    program = Inputs(PROGRAMS[title])
    with_products, without = program.circuit(), program.circuit()
    for _ in range(3):
        change = program.change(data.draw)
        expected = {head: rows(delta) for head, delta in without.step(change).items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chain_product, "MIN_DELTA_ROWS", 1)
            patch.setattr(chain_product, "MAX_ROWS_PER_DELTA_ROW", 1000)
            patch.setattr(nested_circuit, "MIN_UNSORTED_ROWS", data.draw(st.integers(0, 3)))
            deltas = with_products.step(change)
        assert {head: rows(delta) for head, delta in deltas.items()} == expected
        assert trace_contents(with_products) == trace_contents(without)


@settings(LAW, max_examples=30)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 3), st.data())
def test_states_are_equal_with_derivations_that_are_accepted_up_to_any_iteration(title, last, data):
    program = Inputs(PROGRAMS[title])
    in_bulk, partly_in_bulk = program.circuit(), program.circuit()
    offer = FirstDerivations.offer

    def offer_up_to_last(self: FirstDerivations, delta: ZSet | RowParts) -> bool:
        return iteration_of(delta) <= last - 1 and offer(self, delta)

    for _ in range(3):
        change = program.change(data.draw)
        expected = {head: rows(delta) for head, delta in in_bulk.step(change).items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FirstDerivations, "offer", offer_up_to_last)
            patch.setattr(nested_circuit, "MIN_UNSORTED_ROWS", data.draw(st.integers(0, 3)))
            deltas = partly_in_bulk.step(change)
        assert {head: rows(delta) for head, delta in deltas.items()} == expected
        assert trace_contents(in_bulk) == trace_contents(partly_in_bulk)


def test_a_closure_of_many_pairs_follows_deletions_after_a_bulk_step():
    generator = np.random.default_rng(7)
    edges = {tuple(edge) for edge in generator.integers(0, 60, (130, 2)).tolist()}
    circuit = compile_datalog(CLOSURE, {"e": SCHEMAS["e"]}, materialize=["tc"])
    circuit.step({"e": table(SCHEMAS["e"], [(edge, 1) for edge in sorted(edges)])})
    for _ in range(12):
        change = []
        for edge in generator.permutation(sorted(edges))[:4].tolist():
            edges.remove(tuple(edge))
            change.append((tuple(edge), -1))
        for edge in {tuple(edge) for edge in generator.integers(0, 60, (3, 2)).tolist()} - edges:
            if (edge, -1) not in change:
                edges.add(edge)
                change.append((edge, 1))
        circuit.step({"e": table(SCHEMAS["e"], change)})
        assert {row for row, _ in rows(circuit.views["tc"]).items()} == reachable_pairs(edges)


def reachable_pairs(edges: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    successors: dict[int, set[int]] = {}
    for source, target in edges:
        successors.setdefault(source, set()).add(target)
    pairs = set()
    for start in successors:
        unvisited = [*successors[start]]
        while unvisited:
            node = unvisited.pop()
            if (start, node) not in pairs:
                pairs.add((start, node))
                unvisited += successors.get(node, ())
    return pairs
