"""Nested circuit: the operators of a recursion, run once per iteration until nothing changes.

Time is lexicographic: the outer time is the step, the inner one the iteration. A row carries its
iteration as its last column (`circuits.plan.rewrite.iterated_rows`). So the operators are those of
any circuit, and the nested circuit is the delay around them::

    X̂ = z⁻¹(distinct(body(X̂)))        z⁻¹ adds 1 to the iteration and feeds a row back

    step t:   d := the changes outside, at iteration 0
              repeat   run all operators on d; push d and what they stage on their traces
                       d := the waiting rows of the least iteration, delayed
              until    no row waits
              pop the overlays of all traces; the sums of the overlays are the step's deltas

The order makes it exact and cheap. Every delta that an operator gets follows all earlier ones in
the total order of (step, iteration). So a join of n atoms has the n terms of its delta formula, as
anywhere: the atom that came last claims a combination, and the row of the combination is at the
greatest of the iterations, whether of this step or of earlier ones. Rows for later iterations wait,
where they may cancel with others, so each iteration runs once per step, and only if something
changes in it. A step costs the changes in all iterations, not the rows of the state.

Alternatives considered. 2ᵏ terms for k nested times: inclusion and exclusion are necessary for a
cut of a *partial* order; the total order splits the same sum into n terms. A spine per iteration: a
lookup would visit all of them, and the history of a row would be scattered.

State: that of the operators, as ordinary traces. Nothing is committed while iterations run, so a
step that fails changes nothing, and each trace changes by one delta per step, which durable state
writes.

References:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 5 and 6.
    McSherry, Murray, Isaacs, Isard. Differential dataflow. CIDR 2013 (differences at the join of
    their times; here the outer time is the step that runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from circuits.errors import IterationError
from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.recursive_distinct import first_positions_of_rows
from dbsp_wcoj import Relations, RelationsStep, Trace, ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.trace import PoppedOverlay, Staged, TraceStep
from dbsp_wcoj.zset import accumulate, consolidated_rows

__all__ = ["NestedCircuit", "NestedCircuitStep"]


@dataclass(frozen=True)
class NestedCircuitStep(Staged):
    """A computed step of a nested circuit.

    Attributes:
        outputs: The delta of each relation.
        rows: The number of rows that each node has emitted, in all iterations.
        spent: The seconds that each node has taken.
        private: The changes of traces that no join shares.
    """

    outputs: Sequence[ZSet]
    rows: Mapping[int, int]
    seconds: Mapping[int, float]
    private: Sequence[TraceStep]

    @property
    def changes(self) -> Sequence[TraceStep]:
        return self.private

    def commit(self) -> None:
        for step in self.private:
            step.commit()


@dataclass(eq=False)
class NestedCircuit:
    """The nodes of a recursion.

    Attributes:
        names: The names of the relations that are defined together.
        references: The node of each relation that the bodies read.
        max_iterations: More iterations than this are an error.
        views: The nodes of all views of the graph, for errors.
        results: The node of each relation that computes its rows.
        order: All nodes of the circuit but the references, in execution order.
        outside: The nodes outside that nodes of the circuit read.
        reads: The names of the nodes outside.
    """

    names: tuple[str, ...]
    references: tuple[int, ...]
    max_iterations: int
    views: Mapping[str, int]
    results: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    reads: frozenset[str] = frozenset()

    def close(self, nodes: Sequence[Node], results: Sequence[int]) -> None:
        """Find the nodes that depend on the references, once all are built."""
        within = {*self.references}
        order = []
        for number in range(min(self.references), len(nodes)):
            if not within.isdisjoint(nodes[number].inputs):
                within.add(number)
                order.append(number)
        # A body that does not recur runs once, here as well.
        order += [number for number in results if number not in within]
        self.results, self.order = tuple(results), tuple(sorted(order))
        inner = {*self.order, *self.references}
        below = {n for number in self.order for n in nodes[number].inputs}
        self.outside = tuple(sorted(below - inner))
        self.reads = frozenset(nodes[number].name for number in self.outside)
        for number in inner:
            nodes[number].is_nested = True

    def prepare(
        self,
        nodes: Sequence[Node],
        deltas: Sequence[ZSet] | Mapping[int, ZSet],
        relations: Relations,
        shared: RelationsStep,
        budget: Budget,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> NestedCircuitStep:
        """Iterate for a step; nothing is committed.

        Args:
            nodes: The nodes of the graph.
            deltas: The deltas of the nodes ``outside``, by their positions.
            relations: The relations of the graph.
            shared: The staged step of the relations; the changes within are added to it.
            budget: The limits of the step.
            clock: Seconds.

        Raises:
            IterationError: It does not converge within the maximal number of iterations.
            LimitError: The step uses more than the budget allows.
            CircuitError, DbspWcojError: An operator refuses the rows.
        """
        run = _Run(self, nodes, relations, budget, clock)
        changes = {n: deltas[n] for n in self.outside if len(deltas[n])}
        try:
            if changes:
                steps = {name: s for name, s in shared.by_name.items() if name in self.reads}
                run.iterate(changes, steps)
            while (waiting := run.waiting.next()) is not None:
                iteration, fed = waiting
                if iteration > self.max_iterations:
                    raise IterationError(self._message(fed, nodes))
                run.iterate({n: d for n, d in zip(self.references, fed, strict=True) if len(d)}, {})
        finally:
            overlays = run.pop_overlays()
        private = []
        for name, overlay in overlays:
            step = overlay.total()
            if step is not None and name is not None:
                shared.by_name[name] = step
            elif step is not None:
                private.append(step)
        outputs = [run.waiting.total(k) for k in range(len(self.names))]
        return NestedCircuitStep(outputs, run.rows, run.seconds, private)

    def solve(
        self,
        nodes: Sequence[Node],
        values: Mapping[int, ZSet],
        relations: Relations,
        budget: Budget,
    ) -> Sequence[ZSet]:
        """The relations over whole inputs: the change from nothing; iterations join new rows only.

        Args:
            nodes: The nodes of a graph without state.
            values: The rows of the nodes ``outside``.
            relations: The relations of the graph.
            budget: The limits.

        Raises:
            IterationError: It does not converge within the maximal number of iterations.
            LimitError: It uses more than the budget allows.
        """
        shared = relations.stage({})
        for number in self.outside:
            name = nodes[number].name
            if name in relations and len(values[number]):
                shared.add(name, values[number])
        return self.prepare(nodes, values, relations, shared, budget).outputs

    def evaluate(self, nodes: Sequence[Node], values: Mapping[int, ZSet]) -> Sequence[ZSet]:
        """The relations over whole inputs: the definition, by naive iteration from nothing.

        No state is read or changed.

        Args:
            nodes: The nodes of the graph.
            values: The rows of the nodes ``outside``.

        Raises:
            IterationError: It does not converge within the maximal number of iterations.
        """
        rows = [nodes[number].empty for number in self.references]
        for _ in range(self.max_iterations + 2):
            found = dict(values) | dict(zip(self.references, rows, strict=True))
            for number in self.order:
                node = nodes[number]
                assert node.operator is not None
                found[number] = node.operator.evaluate([found[i] for i in node.inputs])
            next_rows = [found[number] for number in self.results]
            if next_rows == rows:
                return [_without_iteration(zset) for zset in rows]
            rows = next_rows
        raise IterationError(self._message(rows, nodes))

    def _message(self, rows: Sequence[ZSet], nodes: Sequence[Node]) -> str:
        changing = [n for n, zset in zip(self.names, rows, strict=True) if len(zset)]
        above = {*self.results}
        for number in range(min(above), len(nodes)):
            if not above.isdisjoint(nodes[number].inputs):
                above.add(number)
        # The first view that reads the recursion is the one that contains it.
        view = next((name for name, number in self.views.items() if number in above), None)
        within = "" if view is None or view in self.names else f"view {view!r}: "
        return (
            f"{within}the recursion of {', '.join(map(repr, self.names))} still changes "
            f"{', '.join(map(repr, changing or self.names))} after {self.max_iterations:,} "
            "iterations; nothing was changed: bound it in the query (a depth, a limit of a sum), "
            "or allow more by max_iterations="
        )


class _Run:
    """One step of a nested circuit."""

    def __init__(
        self,
        circuit: NestedCircuit,
        nodes: Sequence[Node],
        relations: Relations,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self.waiting = _Waiting([len(nodes[n].plan.fields) for n in circuit.references])
        self.rows = dict.fromkeys(circuit.order, 0)
        self.seconds = dict.fromkeys(circuit.order, 0.0)
        self._budget = budget
        self._clock = clock
        self._circuit = circuit
        self._nodes = nodes
        self._relations = relations
        # Traces of relations outside, whose overlays are the graph's own step.
        self._borrowed: list[Trace] = []
        # By the ``id`` of a trace: the trace, and the name of its relation if joins share it.
        self._overlaid: dict[int, tuple[Trace, str | None]] = {}

    def iterate(self, deltas: dict[int, ZSet], outside: dict[str, TraceStep]) -> None:
        """Run all operators on the changes of one iteration, and push these on their traces."""
        nodes = self._nodes
        shared = self._relations.stage({})
        shared.by_name.update(outside)
        context = StepContext(False, shared, self._budget)
        found = dict(deltas)
        changes: list[TraceStep] = []
        for number, delta in deltas.items():
            if nodes[number].is_nested and nodes[number].is_arranged:
                shared.add(nodes[number].name, delta)
        for number in self._circuit.order:
            node = nodes[number]
            if found.keys().isdisjoint(node.inputs):
                continue
            start = self._clock()
            inputs = [found.get(i, nodes[i].empty) for i in node.inputs]
            delta, staged = prepare_node(number, node, inputs, context, self.rows[number])
            if staged is not None:
                changes.extend(staged.changes)
            if len(delta):
                found[number] = delta
                self.rows[number] += len(delta)
            self.seconds[number] += self._clock() - start
        for k, number in enumerate(self._circuit.results):
            if number in found:
                self.waiting.add(k, found[number])
        for name, step in shared.by_name.items():
            if name in outside:
                self._borrowed.append(step.trace)
            else:
                self._overlaid[id(step.trace)] = step.trace, name
            step.trace.push_overlay(step)
        for step in changes:
            self._overlaid.setdefault(id(step.trace), (step.trace, None))
            step.trace.push_overlay(step)

    def pop_overlays(self) -> list[tuple[str | None, PoppedOverlay]]:
        """Restore all traces; return the overlays of this circuit with their relations' names."""
        for trace in self._borrowed:
            trace.pop_overlay()
        return [(name, trace.pop_overlay()) for trace, name in self._overlaid.values()]


class _Waiting:
    """Rows to be fed back, by the iteration that reads them."""

    def __init__(self, arities: Sequence[int]) -> None:
        self._arities = arities
        self._by_iteration: dict[int, list[list[ZSet]]] = {}
        self._totals: list[list[ZSet]] = [[] for _ in arities]

    def add(self, k: int, rows: ZSet) -> None:
        """Add rows of relation ``k``, to feed them back one iteration later."""
        self._totals[k].append(_without_iteration(rows))
        for iteration, part in _by_last(rows):
            waiting = self._by_iteration.setdefault(iteration + 1, [[] for _ in self._arities])
            delayed = part.row_array.copy()
            delayed[-1] += 1
            waiting[k].append(ZSet(delayed, part.weight_array))

    def next(self) -> tuple[int, list[ZSet]] | None:
        """The least iteration whose waiting rows do not cancel, and these rows; None at the end."""
        while self._by_iteration:
            least = min(self._by_iteration)
            pieces = self._by_iteration.pop(least)
            fed = [accumulate(p, n) for p, n in zip(pieces, self._arities, strict=True)]
            if any(len(zset) for zset in fed):
                return least, fed
        return None

    def total(self, k: int) -> ZSet:
        """The sum of all rows of relation ``k``, without iterations."""
        return accumulate(self._totals[k], self._arities[k] - 1)


def _by_last(rows: ZSet) -> Iterator[tuple[int, ZSet]]:
    """The rows of each value of the last column."""
    last = rows.row_array[-1]
    first = int(last[0])
    if len(last) == 1 or not (last != first).any():
        yield first, rows
        return
    order = np.argsort(last, kind="stable")  # so the rows of one value stay sorted
    cuts = np.flatnonzero(np.diff(last[order])) + 1
    for places in np.split(order, cuts):
        yield (
            int(last[places[0]]),
            ZSet(np.ascontiguousarray(rows.row_array[:, places]), rows.weight_array[places]),
        )


def _without_iteration(rows: ZSet) -> ZSet:
    """The rows without their last column; rows that become equal are adjacent."""
    others = rows.row_array[:-1]
    if len(others):
        first = first_positions_of_rows(others) if len(rows) else np.empty(0, np.int64)
        if len(first) == len(rows):
            return ZSet(np.ascontiguousarray(others), rows.weight_array)
    return consolidated_rows(others.copy(), rows.weight_array.copy())
