"""A minimal store of circuit state: it keeps only the bytes that each step writes.

These are the runs of each arrangement, which it merges at random, and the values added to each
dictionary.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np

from circuits import Circuit, State
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values.coded_strings import CodedStrings
from tests.support.tables import bag_of

__all__ = ["Store", "assert_same_snapshot", "bags", "restart", "step_and_store"]


class Store:
    """The state as bytes.

    Attributes:
        runs: The words of each run, oldest first, by the name of a trace and its column order.
        dictionaries: The strings with codes that each step added, by the name of a dictionary.
        lengths: The number of values of each dictionary.
        other_state: The steps, watermarks and plans, as JSON.
        full_copies: How often an arrangement was copied from the circuit as a whole.
    """

    def __init__(self, seed: int = 0) -> None:
        self.runs: dict[str, dict[tuple[int, ...], list[bytes]]] = {}
        self.dictionaries: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        self.lengths: dict[str, int] = {}
        self.other_state = "{}"
        self.full_copies = 0
        self._random = np.random.default_rng(seed)

    def write(self, step) -> None:
        """Store a step, as a sink does between prepare and commit."""
        state = step.state(self.lengths)
        assert state.runs.keys() <= state.orders.keys()
        runs = {}
        for name, orders in state.orders.items():
            assert not (state.compacted and name in state.compacted and name not in state.runs)
            changed = state.runs.get(name, {})
            assert not changed or set(changed) == set(orders)
            runs[name] = {
                order: self._pieces(state, name, order, changed.get(order)) for order in orders
            }
        self.runs = runs
        for name, strings in state.dictionaries.items():
            offsets, data, codes = strings
            assert len(offsets) == len(codes) + 1 > 1
            assert offsets[0] == 0 and offsets[-1] == len(data)
            pieces = tuple(array.tobytes() for array in strings)
            self.dictionaries.setdefault(name, []).append(pieces)
            self.lengths[name] = int(codes[-1]) + 1
        self.other_state = json.dumps([state.steps, state.watermarks, state.plans])

    def _pieces(self, state, name, order, delta) -> list[bytes]:
        pieces = self.runs.get(name, {}).get(order)
        if pieces is None:
            self.full_copies += 1
            pieces = [run.to_words().tobytes() for run in state.runs_before(name, order)]
        if delta is not None:
            pieces = [*pieces, delta.to_words().tobytes()]
        first_merged = int(self._random.integers(8))
        if name in state.compacted:
            first_merged = 0
        elif first_merged >= len(pieces) - 1:
            return pieces
        summed = Run.sum_of([run_of_bytes(piece) for piece in pieces[first_merged:]])
        return pieces[:first_merged] + ([summed.to_words().tobytes()] if summed.rows else [])

    def state(self) -> State:
        count, watermarks, plans = json.loads(self.other_state)
        return State(
            count,
            {
                name: {
                    order: [run_of_bytes(piece) for piece in pieces]
                    for order, pieces in arrangements.items()
                }
                for name, arrangements in self.runs.items()
            },
            {
                name: [
                    CodedStrings(
                        np.frombuffer(offsets, np.int64),
                        np.frombuffer(data, np.uint8),
                        np.frombuffer(codes, np.int64),
                    )
                    for offsets, data, codes in pieces
                ]
                for name, pieces in self.dictionaries.items()
            },
            watermarks,
            plans,
        )


def run_of_bytes(piece: bytes) -> Run:
    return Run.from_words(np.frombuffer(bytearray(piece), np.int64))


def step_and_store(circuit: Circuit, store: Store, tables) -> dict[str, Counter]:
    """Run a step as a durable sink does; return its outputs."""
    step = circuit.prepare(tables)
    store.write(step)
    step.commit()
    return bags(step.outputs)


def bags(tables) -> dict[str, Counter]:
    return {name: bag_of(table) for name, table in tables.items()}


def restart(circuit: Circuit, store: Store, **changes) -> Circuit:
    """Return a new circuit with the stored state; ``changes`` are changed options."""
    options = replace(circuit.spec.options, **changes)
    spec = pickle.loads(pickle.dumps(replace(circuit.spec, options=options)))
    new = Circuit(spec)
    new.load(store.state())
    return new


def assert_same_snapshot(left: Circuit, right: Circuit) -> None:
    """Assert that the snapshots of two circuits are equal."""
    first, second = left.snapshot(), right.snapshot()
    assert (first.fingerprint, first.steps, first.watermarks) == (
        second.fingerprint,
        second.steps,
        second.watermarks,
    )
    for parts in ((first.traces, second.traces), (first.dictionaries, second.dictionaries)):
        assert parts[0].keys() == parts[1].keys()
        for name, arrays in parts[0].items():
            for first_array, second_array in zip(arrays, parts[1][name], strict=True):
                assert np.array_equal(first_array, second_array), name
