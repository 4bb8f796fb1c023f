"""Nested circuit: the operators of a recursion, run once per iteration until nothing changes.

Time has two levels, compared in this order: the step, and the iteration within the step. The last
column of a row is its iteration (`circuits.plan.rewrite.iterated_rows`). So the operators are the
same as in any circuit, and the nested circuit adds only a delay that feeds rows back::

    X = z⁻¹(distinct(body(X)))         z⁻¹ adds 1 to the iteration of each row

    step t:   d := the changes of the inputs from outside, at iteration 0
              repeat   run all operators on d; push the changes of their traces as overlays
                       d := the pending rows of the least iteration
              until    no row is pending
              pop the overlays of all traces; the sums of the overlays are the step's deltas

An overlay is a delta of a trace that readers see, but that is not committed.

The result is exact. An operator receives its deltas in the total order of (step, iteration), so a
join of n atoms has the n terms of its usual delta formula: a combination of rows is found when the
last of its rows arrives. The iteration of the joined row is the greatest iteration of its rows,
also if some of them arrived in earlier steps.

Cost: rows for later iterations are pending until these run, and may cancel with other pending rows.
So each iteration runs at most once per step, and only if something changes in it. A step costs time
in proportion to the changes in all iterations, not to the rows of the state.

State: that of the operators, as ordinary traces. Nothing is committed while iterations run, so a
step that fails changes nothing. Each trace changes by one delta per step, which durable state
writes.

Alternatives considered:

- Differences in step and iteration separately. A join of n atoms then has n² terms, because each of
  the n terms of one difference has n terms of the other; the total order has n terms in all.
- A spine (a list of sorted runs) per iteration. A lookup would read all of them, and the history of
  a row would be scattered.

References:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 5 and 6.
    McSherry, Murray, Isaacs, Isard. Differential dataflow. CIDR 2013 (a difference has the join of
    the times of its causes; here the outer time is always the current step).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from circuits.errors import IterationError
from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.operators.first_candidates import FirstCandidates
from circuits.runtime.operators.first_derivations import (
    FirstDerivations,
    first_positions_of_rows,
)
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.linear import MapOperator, UnionOperator
from circuits.runtime.operators.list_rules import ListRules, find_list_rules
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.recursive_distinct import RecursiveSetOperator
from circuits.runtime.operators.recursive_min_max import RecursiveMinMaxOperator
from circuits.types.codecs.codec import NULL
from dbsp_wcoj import Relations, RelationsStep, Trace, ZSet
from dbsp_wcoj.execution.chain_product import ChainProduct, ChainProducts
from dbsp_wcoj.execution.list_loop import ListLoop
from dbsp_wcoj.kernels.values.split_iterations import split_and_delay
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.row_parts import RowParts
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.trace import PoppedOverlay, Staged, TraceStep
from dbsp_wcoj.zset import Int64Array, accumulate, consolidated_rows, unit_weights

__all__ = ["NestedCircuit", "NestedCircuitStep"]

#: In iterations with fewer changed rows, all rows are sorted: they fit in the cache.
MIN_UNSORTED_ROWS: Final = 1 << 12
#: The operators whose input need not be sorted.
_SORTING_OPERATORS = (RecursiveSetOperator, RecursiveMinMaxOperator)


@dataclass(frozen=True)
class NestedCircuitStep(Staged):
    """A computed step of a nested circuit.

    Attributes:
        outputs: The delta of each relation of the recursion.
        rows: The number of rows that each node has emitted, in all iterations.
        seconds: The seconds that each node has taken.
        private: The changes of the traces that operators do not share.
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
        references: For each relation, the position of the node from which the bodies read it.
        max_iterations: More iterations than this are an error.
        views: The positions of all views of the graph, for error messages.
        results: For each relation, the position of the node that computes its rows.
        order: The positions of all nodes of the circuit except the references, in execution order.
        outside: The positions of the nodes outside the circuit that its nodes read.
        outside_names: The names of these nodes.
        unread_names: The names of nodes of the circuit whose traces no iteration reads. Joins read
            only their deltas, because no other input of the joins changes after iteration 0.
        unsorted: The positions of joins, projections and unions whose rows need no order, because
            only projections and unions of this kind read them, and recursive distinct, min and max,
            which sort them.
        shared_nodes: The positions of nodes that several nodes read, or one node several times.
        read_nodes: The positions of nodes that nodes of the circuit read.
        list_rules: The rules, if a compiled loop can run iterations with few rows.
    """

    names: tuple[str, ...]
    references: tuple[int, ...]
    max_iterations: int
    views: Mapping[str, int]
    results: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    outside_names: frozenset[str] = frozenset()
    unread_names: frozenset[str] = frozenset()
    unsorted: frozenset[int] = frozenset()
    shared_nodes: frozenset[int] = frozenset()
    read_nodes: frozenset[int] = frozenset()
    list_rules: ListRules | None = None
    # The execution that may have pushed overlays, from before the first one until all are popped.
    _running: _StepExecution | None = None

    def find_nodes(self, nodes: Sequence[Node], results: Sequence[int]) -> None:
        """Find the nodes that depend on the references; call this once all are built."""
        recursive = {*self.references}
        order = []
        for position in range(min(self.references), len(nodes)):
            if not recursive.isdisjoint(nodes[position].inputs):
                recursive.add(position)
                order.append(position)
        # A body without a recursive reference runs in this circuit, too, in the first iteration.
        # Relations with equal bodies share a node.
        order += {position for position in results if position not in recursive}
        self.results, self.order = tuple(results), tuple(sorted(order))
        inner = {*self.order, *self.references}
        self.read_nodes = frozenset(i for position in self.order for i in nodes[position].inputs)
        self.outside = tuple(sorted(self.read_nodes - inner))
        self.outside_names = frozenset(nodes[position].name for position in self.outside)
        joined: set[int] = set()
        for position in self.order:
            joined_inputs = [i for i in nodes[position].inputs if i in inner]
            if isinstance(nodes[position].operator, JoinOperator) and len(joined_inputs) > 1:
                joined.update(joined_inputs)
        self.unread_names = frozenset(nodes[position].name for position in inner - joined)
        for position in inner:
            nodes[position].is_nested = True
        readers: dict[int, list[int]] = {}
        for position, node in enumerate(nodes):
            for i in node.inputs:
                readers.setdefault(i, []).append(position)
        self.shared_nodes = frozenset(i for i, positions in readers.items() if len(positions) > 1)
        self.unsorted = self._find_unsorted(nodes, readers)
        if len(self.references) == 1 and self.results[0] not in self.read_nodes:
            (reference,), (result,) = self.references, self.results
            self.list_rules = find_list_rules(nodes, self.order, reference, result)

    def _find_unsorted(
        self, nodes: Sequence[Node], readers: Mapping[int, Sequence[int]]
    ) -> frozenset[int]:
        found: set[int] = set()
        for position in reversed(self.order):  # readers first
            node = nodes[position]
            is_projection = isinstance(node.operator, MapOperator) and (
                node.operator.columns is not None
            )
            if (
                (is_projection or isinstance(node.operator, JoinOperator | UnionOperator))
                and not node.is_arranged
                and position in readers
                and all(
                    reader in found or isinstance(nodes[reader].operator, _SORTING_OPERATORS)
                    for reader in readers[position]
                )
            ):
                found.add(position)
        return frozenset(found)

    def prepare(
        self,
        nodes: Sequence[Node],
        deltas: Sequence[ZSet] | Mapping[int, ZSet],
        relations: Relations,
        shared: RelationsStep,
        budget: Budget,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        keeps_state: bool = True,
    ) -> NestedCircuitStep:
        """Run the iterations of a step; nothing is committed.

        Args:
            nodes: The nodes of the graph.
            deltas: The deltas of the nodes ``outside``, by position.
            relations: The traces that the joins of the graph share.
            shared: The staged step of ``relations``; the changes of this circuit are added to it.
            budget: The limits of the step.
            clock: Returns the current time in seconds.
            keeps_state: False if only the outputs are needed; the result then has no changes.

        Raises:
            IterationError: The recursion does not converge within the maximal number of iterations.
            LimitError: The step exceeds a limit of the budget.
            CircuitError, DbspWcojError: An operator rejects the rows.
        """
        self.restore_traces()
        run = self._running = _StepExecution(self, nodes, relations, budget, clock)
        changes = {i: deltas[i] for i in self.outside if len(deltas[i])}
        try:
            if changes:
                # Join kernels read these traces by address and cannot sort deferred rows.
                for joined in self.outside_names & relations.traces.keys():
                    relations.traces[joined].sort_deferred()
                outside_steps = {
                    name: step.for_lookups()
                    for name, step in shared.by_name.items()
                    if name in self.outside_names
                }
                run.iterate(changes, outside_steps)
            while (pending := run.pending.pop_iteration()) is not None:
                iteration, rows = pending
                if iteration > self.max_iterations:
                    raise IterationError(self._not_converged(rows, nodes))
                changes = {
                    reference: delta
                    for reference, delta in zip(self.references, rows, strict=True)
                    if len(delta)
                }
                if not run.run_loop(iteration, rows[0]):
                    run.iterate(changes, {})
        finally:
            was_interrupted = False
            while True:
                # In this frame: an interrupt comes before a called function begins, too.
                try:
                    overlays = run.pop_overlays()
                    self._running = None
                    break
                except KeyboardInterrupt:
                    was_interrupted = True
            if was_interrupted:
                raise KeyboardInterrupt
        emitted = run.emitted_rows()
        outputs = [rows.without_iteration() for rows in emitted]
        if not keeps_state:
            return NestedCircuitStep(outputs, run.rows, run.seconds, [])
        private = run.total_of_derivations()
        for reference, total in zip(self.references, emitted, strict=True):
            # All iterations have run, so every emitted row has been fed back: one delta.
            if nodes[reference].is_arranged and nodes[reference].name in self.unread_names:
                total.stage_fed_back(nodes[reference].name, shared)
        for inner_name, zsets in run.unread_deltas.items():
            shared.add(inner_name, accumulate(zsets, zsets[0].arity))
        for name, overlay in overlays:
            step = overlay.total()
            if step is not None and name is not None:
                shared.by_name[name] = step
            elif step is not None:
                private.append(step)
        return NestedCircuitStep(outputs, run.rows, run.seconds, private)

    def restore_traces(self) -> None:
        """Pop the overlays that an interrupted step has left, if a second interrupt stopped it.

        Call this before the traces are read or changed after a step.
        """
        if self._running is not None:
            self._running.pop_overlays()
            self._running = None

    def evaluate_semi_naive(
        self,
        nodes: Sequence[Node],
        values: Mapping[int, ZSet],
        relations: Relations,
        budget: Budget,
    ) -> Sequence[ZSet]:
        """Compute the relations for whole inputs by semi-naive iteration, as a first step does.

        Each iteration joins only the rows that are new in it.

        Args:
            nodes: The nodes of a graph whose state is empty.
            values: The rows of the nodes ``outside``, by position.
            relations: The traces that the joins of the graph share.
            budget: The limits.

        Raises:
            IterationError: The recursion does not converge within the maximal number of iterations.
            LimitError: The evaluation exceeds a limit of the budget.
        """
        shared = relations.stage({})
        for position in self.outside:
            name = nodes[position].name
            if name in relations and len(values[position]):
                shared.add(name, values[position])
        return self.prepare(nodes, values, relations, shared, budget, keeps_state=False).outputs

    def evaluate_naive(self, nodes: Sequence[Node], values: Mapping[int, ZSet]) -> Sequence[ZSet]:
        """Compute the relations for whole inputs by naive iteration from empty relations.

        No state is read or changed.

        Args:
            nodes: The nodes of the graph.
            values: The rows of the nodes ``outside``, by position.

        Raises:
            IterationError: The recursion does not converge within the maximal number of iterations.
        """
        rows = [nodes[position].empty for position in self.references]
        # Iteration 0 is computed as well, and another one that finds no change.
        for _ in range(self.max_iterations + 2):
            zsets = dict(values) | dict(zip(self.references, rows, strict=True))
            for position in self.order:
                node = nodes[position]
                assert node.operator is not None
                zsets[position] = node.operator.evaluate([zsets[i] for i in node.inputs])
            next_rows = [zsets[position] for position in self.results]
            if next_rows == rows:
                return [_without_iteration(zset) for zset in rows]
            rows = next_rows
        raise IterationError(self._not_converged(rows, nodes))

    def _not_converged(self, rows: Sequence[ZSet], nodes: Sequence[Node]) -> str:
        """Return the message for a recursion that still derives these rows at the limit."""
        changing = [name for name, zset in zip(self.names, rows, strict=True) if len(zset)]
        dependents = {*self.results}
        for position in range(min(dependents), len(nodes)):
            if not dependents.isdisjoint(nodes[position].inputs):
                dependents.add(position)
        # The first view that depends on the recursion is the one that contains it.
        view = next((name for name, position in self.views.items() if position in dependents), None)
        prefix = "" if view is None or view in self.names else f"view {view!r}: "
        return (
            f"{prefix}the recursion of {', '.join(map(repr, self.names))} still changes "
            f"{', '.join(map(repr, changing or self.names))} after {self.max_iterations:,} "
            "iterations; nothing was changed: bound it in the query (a depth, a limit of a sum), "
            "or allow more by max_iterations="
        )


class _StepExecution:
    """The execution of one step of a nested circuit: its pending rows, overlays and measures."""

    def __init__(
        self,
        circuit: NestedCircuit,
        nodes: Sequence[Node],
        relations: Relations,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self.pending = _PendingRows([len(nodes[i].plan.fields) for i in circuit.references])
        self.rows = dict.fromkeys(circuit.order, 0)
        self.seconds = dict.fromkeys(circuit.order, 0.0)
        self._budget = budget
        self._clock = clock
        self._circuit = circuit
        self._nodes = nodes
        self._relations = relations
        # Traces of nodes outside. The graph commits their deltas, so their overlays are discarded.
        self._outside_traces: list[Trace] = []
        # By the ``id`` of a trace of this circuit: the trace, and its name if joins share it.
        self._inner_traces: dict[int, tuple[Trace, str | None]] = {}
        self._chain_products = ChainProducts()
        # By the ``id`` of the source of rows that are not computed: the nodes that have emitted it.
        self._uncounted: dict[int, list[int]] = {}
        # Rows that a product has derived last; no other Z-set has their arrays.
        self._unshared: ZSet | None = None
        # The rows of each relation, unless they can be computed from `_derivations`.
        self._emitted: list[list[ZSet]] = [[] for _ in circuit.references]
        self._reference_names = {nodes[i].name for i in circuit.references}
        # By name: the deltas of traces that no iteration reads, so that they need no overlay; those
        # of references are computed from the rows of the relations.
        self.unread_deltas: dict[str, list[ZSet]] = {}
        # By the trace of a recursive min or max: the changes of its final best values.
        self._best_changes: dict[Trace, list[ZSet]] = {}
        # None once the loop has run, or cannot run.
        self._list_rules = circuit.list_rules
        # For the operators whose traces are empty.
        self._derivations: dict[Trace, FirstDerivations | FirstCandidates] = {}
        for position in circuit.order:
            match nodes[position].operator:
                case RecursiveSetOperator(trace=trace) if trace.is_empty:
                    self._derivations[trace] = FirstDerivations(trace)
                case RecursiveMinMaxOperator(trace=trace, order=order) if trace.is_empty:
                    self._derivations[trace] = FirstCandidates(trace, order)

    def iterate(self, changes: dict[int, ZSet], outside_steps: dict[str, TraceStep]) -> None:
        """Run all operators on the changes of one iteration; push the changes of their traces.

        Args:
            changes: The deltas of nodes outside and of references, by position.
            outside_steps: The staged deltas of the traces of nodes outside, by name.
        """
        nodes = self._nodes
        self._unshared = None
        # Join kernels read these traces by address and cannot sort deferred rows.
        for name in self._reference_names & self._relations.traces.keys():
            self._relations.traces[name].sort_deferred()
        shared = self._relations.stage({})
        shared.by_name.update(outside_steps)
        context = StepContext(
            False,
            shared,
            self._budget,
            best_changes=self._best_changes,
            chain_products=self._chain_products,
        )
        deltas = dict(changes)
        unsorted: dict[int, RowParts] = {}
        private_steps: list[TraceStep] = []
        for position, delta in changes.items():
            node = nodes[position]
            if node.is_nested and node.is_arranged:
                # If no iteration reads the trace, its change is staged once, after all iterations.
                is_read = node.name not in self._circuit.unread_names
                shared.add(node.name, delta, is_committed=is_read)
        is_large = sum([len(delta) for delta in changes.values()]) >= MIN_UNSORTED_ROWS
        unsorted_nodes = self._circuit.unsorted if is_large else ()
        for position in self._circuit.order:
            node = nodes[position]
            if deltas.keys().isdisjoint(node.inputs) and unsorted.keys().isdisjoint(node.inputs):
                continue
            start = self._clock()
            if position in unsorted_nodes:
                parts = [
                    unsorted[i] if i in unsorted else RowParts.of(deltas[i])
                    for i in node.inputs
                    if i in unsorted or i in deltas
                ]
                rows = self._run_unsorted(position, parts, context)
                if rows.source is not None or len(rows):
                    unsorted[position] = rows
                self.seconds[position] += self._clock() - start
                continue
            source = node.inputs[0]
            prepare = None
            if self._derivations:
                prepare = self._prepare_in_bulk(position, unsorted.get(source, deltas.get(source)))
            if prepare is None and source in unsorted:
                self._compute(unsorted[source])
                deltas[source] = unsorted[source].sorted()
            inputs = [deltas.get(i, nodes[i].empty) for i in node.inputs]
            delta, staged = prepare_node(
                position, node, inputs, context, self.rows[position], prepare
            )
            if staged is not None:
                private_steps.extend(staged.changes)
            if len(delta):
                deltas[position] = delta
                self.rows[position] += len(delta)
            self.seconds[position] += self._clock() - start
        for k, position in enumerate(self._circuit.results):
            if position in deltas:
                # Large rows are fed back without a copy if nobody else reads them.
                is_unread = (
                    not nodes[position].is_arranged and position not in self._circuit.read_nodes
                )
                is_only = self._circuit.results.count(position) == 1
                in_place = deltas[position] is self._unshared and is_unread and is_only
                self.pending.add(k, deltas[position], in_place=in_place)
                if self._derivations_of(nodes[position]) is None:
                    self._emitted[k].append(deltas[position])
        for name, step in shared.by_name.items():
            if name in self._circuit.unread_names:
                if name not in self._reference_names:
                    self.unread_deltas.setdefault(name, []).append(step.delta)
                continue
            if name in outside_steps:
                self._outside_traces.append(step.trace)
            else:
                self._inner_traces[id(step.trace)] = step.trace, name
            step.trace.push_overlay(step)
        for step in private_steps:
            self._push_private(step)

    def run_loop(self, iteration: int, rows: ZSet) -> bool:
        """Run this iteration and those after it in a compiled loop, as long as they are small.

        Later calls return False: once an iteration is too large, no later one runs in a loop.

        Args:
            iteration: The iteration.
            rows: The rows that are fed back to it.

        Returns:
            False, without a change, if the loop cannot run the iteration.
        """
        circuit, rules, self._list_rules = self._circuit, self._list_rules, None
        if rules is None:
            return False
        (position,) = circuit.results
        derivations = self._derivations_of(self._nodes[position])
        if not isinstance(derivations, FirstDerivations):
            return False
        loop = ListLoop.bind([rule.rule for rule in rules.rules], self._relations.traces)
        if loop is None:
            return False
        layout = derivations.begin_loop(loop)
        if layout is None or (rules.filters and NULL in layout.lowest):
            return False
        start, first = self._clock(), iteration
        keys = layout.encode(rows.row_array[:-1])
        max_iterations = circuit.max_iterations + 1 - iteration
        # Once the limits might be exceeded, the operators count their rows one by one.
        counted = {position, *rules.filters}
        for rule in rules.rules:
            counted |= {rule.join, *rule.readers}
        max_derivations = self._budget.count_rows_left(
            max(self.rows[node] for node in counted), len(counted) * len(rows.row_array)
        )
        for part in loop.run(keys, layout, derivations.known_keys, max_iterations, max_derivations):
            derivations.append_iterations(iteration, part)
            if rules.filters:
                joined = _decode_iterations(layout, part.joined, part.joined_ends, iteration)
                for node in rules.filters:
                    self.unread_deltas.setdefault(self._nodes[node].name, []).append(joined)
                    self._count_loop_rows(node, len(joined))
            iteration += len(part.ends)
            for rule, derived in zip(rules.rules, part.derived, strict=True):
                for node in (rule.join, *rule.readers):
                    self._count_loop_rows(node, derived)
            self._count_loop_rows(position, len(part.added))
            self._budget.check_time()
        self.seconds[position] += self._clock() - start
        if iteration == first:
            return False
        if len(loop.remaining):
            ends = np.array([len(loop.remaining)])
            self.pending.add(0, _decode_iterations(layout, loop.remaining, ends, iteration - 1))
        return True

    def _count_loop_rows(self, position: int, count: int) -> None:
        """Count rows of a node that the loop has derived."""
        self._budget.start_operator(position, self.rows[position])
        self.rows[position] += count
        arity = self._nodes[position].empty.arity
        self._budget.finish_operator(self.rows[position], arity, count)

    def emitted_rows(self) -> list[_EmittedRows]:
        """Return the rows of each relation that were fed back, with their iterations."""
        nodes = self._nodes
        rows = []
        for k, position in enumerate(self._circuit.results):
            node = nodes[position]
            derivations = self._derivations_of(node)
            best = self._best_rows(node)
            if isinstance(derivations, FirstDerivations):
                best = derivations.known_rows()
            emitted = None
            if derivations is None:
                emitted = accumulate(self._emitted[k], node.empty.arity)
            rows.append(_EmittedRows(emitted, derivations, best))
        return rows

    def _best_rows(self, node: Node) -> ZSet | None:
        """Return the change of the final best values of a recursive min or max; None for others."""
        operator = node.operator
        if not isinstance(operator, RecursiveMinMaxOperator):
            return None
        derivations = self._derivations.get(operator.trace)
        if isinstance(derivations, FirstCandidates):
            return derivations.best_rows()
        return accumulate(self._best_changes.get(operator.trace, ()), node.empty.arity - 1)

    def total_of_derivations(self) -> list[TraceStep]:
        """Return the changes of the traces in `_derivations`, which were empty."""
        totals = [derivations.total() for derivations in self._derivations.values()]
        return [step for step in totals if step is not None]

    def _derivations_of(self, node: Node) -> FirstDerivations | FirstCandidates | None:
        match node.operator:
            case RecursiveSetOperator(trace=trace) | RecursiveMinMaxOperator(trace=trace):
                return self._derivations.get(trace)
        return None

    def _run_unsorted(
        self, position: int, inputs: Sequence[RowParts], context: StepContext
    ) -> RowParts:
        """Return the rows of a join, projection or union in any order; they may be uncomputed."""
        operator, budget, before = self._nodes[position].operator, self._budget, self.rows[position]
        budget.start_operator(position, before)
        if isinstance(operator, UnionOperator):
            if len(inputs) > 1:
                for rows in inputs:
                    self._compute(rows)
                budget.start_operator(position, before)  # `_compute` has counted for the inputs
            rows = RowParts.union(inputs, self._nodes[position].empty.arity)
        elif isinstance(operator, JoinOperator):
            rows = operator.prepare_parts(context)
        else:
            assert isinstance(operator, MapOperator) and operator.columns is not None
            rows = self._project(inputs[0], operator.columns.tolist())
            budget.start_operator(position, before)
        if rows.source is not None:
            self._uncounted.setdefault(id(rows.source), []).append(position)
            return rows
        count = len(rows)
        budget.finish_operator(before + count, rows.arity, count)
        self.rows[position] += count
        return rows

    def _project(self, rows: RowParts, columns: Sequence[int]) -> RowParts:
        """Return rows with these columns; they stay uncomputed if that is possible."""
        source, projected = rows.source, None
        if source is not None and self._has_one_reader(source):
            projected = source.project(columns)
        if source is None or projected is None:
            self._compute(rows)
            return rows.project(columns)
        new_source, is_sorted = projected
        self._uncounted[id(new_source)] = self._uncounted.pop(id(source))
        return RowParts(len(columns), new_source, is_sorted=is_sorted)

    def _has_one_reader(self, source: object) -> bool:
        """Return whether only one node reads rows that are not computed."""
        return self._circuit.shared_nodes.isdisjoint(self._uncounted[id(source)])

    def _compute(self, rows: RowParts) -> None:
        """Compute rows that have a source, and count them."""
        source = rows.source
        if source is not None:
            self._start_counting(source)
            self._count_rows(source, rows.arity, len(rows))

    def _start_counting(self, source: object) -> None:
        """Start to count the rows of a source for the first node that has emitted it."""
        position = self._uncounted[id(source)][0]
        self._budget.start_operator(position, self.rows[position])

    def _count_rows(self, source: object, arity: int, count: int) -> None:
        """Count the rows of a source for all nodes that have emitted it."""
        for position in self._uncounted.pop(id(source)):
            self._budget.finish_operator(self.rows[position] + count, arity, count)
            self.rows[position] += count

    def _add_product(
        self, position: int, derivations: FirstDerivations, product: ChainProduct
    ) -> Result:
        """Add a product to the derivations of the node at a position; return the new rows."""
        self._start_counting(product)
        delta, count = derivations.add_product(product)
        self._unshared = delta
        self._count_rows(product, delta.arity, count)
        self._budget.start_operator(position, self.rows[position])
        return delta, None

    def _prepare_in_bulk(
        self, position: int, rows: ZSet | RowParts | None
    ) -> Callable[[Sequence[ZSet], StepContext], Result] | None:
        """Return how to prepare a recursive operator for these rows without its trace, if possible.

        After the first delta that its derivations do not accept, the operator reads its trace.
        """
        derivations = self._derivations_of(self._nodes[position])
        if derivations is None or rows is None:
            return None
        if isinstance(rows, RowParts):
            product = rows.source
            if (
                isinstance(product, ChainProduct)
                and isinstance(derivations, FirstDerivations)
                and self._has_one_reader(product)
                and derivations.accepts_product(product)
            ):
                return lambda deltas, context: self._add_product(position, derivations, product)
            self._compute(rows)
        if not len(rows):
            return None
        if derivations.offer(rows):
            return lambda deltas, context: (derivations.add(rows), None)
        step = derivations.total()
        if step is not None:
            for k, result in enumerate(self._circuit.results):
                if result == position:
                    self._emitted[k].append(derivations.first_rows())
            if isinstance(derivations, FirstCandidates):
                self._best_changes[derivations.trace] = [derivations.best_rows()]
            self._push_private(step)
        del self._derivations[derivations.trace]
        return None

    def _push_private(self, step: TraceStep) -> None:
        self._inner_traces.setdefault(id(step.trace), (step.trace, None))  # no join shares it
        step.trace.push_overlay(step)

    def pop_overlays(self) -> list[tuple[str | None, PoppedOverlay]]:
        """Restore all traces; after an interrupt, this can be called again.

        Returns:
            The overlay of each trace of this circuit, with the name of the trace if joins share it.
        """
        for trace in self._outside_traces:
            trace.pop_overlay()
        return [(name, trace.pop_overlay()) for trace, name in self._inner_traces.values()]


class _PendingRows:
    """The rows that are fed back, by the iteration that will read them."""

    def __init__(self, arities: Sequence[int]) -> None:
        self._arities = arities
        self._by_iteration: dict[int, list[list[ZSet]]] = {}

    def add(self, k: int, rows: ZSet, *, in_place: bool = False) -> None:
        """Add rows of relation ``k``, to feed them back one iteration later.

        With ``in_place``, their arrays may be changed.
        """
        iterations = rows.row_array[-1]
        if not (iterations != iterations[0]).any():
            if in_place:
                iterations += 1
            self._add_part(k, rows if in_place else _delay(rows))
            return
        # It keeps the rows of an iteration sorted. The parts share one array until the last of them
        # has been read, at the latest at the end of the step.
        order = np.argsort(iterations, kind="stable")
        ends, blocks, weights = split_and_delay(
            np.ascontiguousarray(rows.row_array), rows.weight_array, order
        )
        begin, arity = 0, rows.arity
        for end in ends.tolist():
            part = blocks[arity * begin : arity * end].reshape(arity, end - begin)
            self._add_part(k, ZSet(part, weights[begin:end]))
            begin = end

    def _add_part(self, k: int, rows: ZSet) -> None:
        """Add rows of one iteration, which reads them."""
        iteration = int(rows.row_array[-1, 0])
        self._by_iteration.setdefault(iteration, [[] for _ in self._arities])[k].append(rows)

    def pop_iteration(self) -> tuple[int, list[ZSet]] | None:
        """Remove and return the least iteration with its rows of each relation.

        Iterations whose pending rows cancel are skipped. None if no row is pending.
        """
        while self._by_iteration:
            iteration = min(self._by_iteration)
            parts_by_relation = self._by_iteration.pop(iteration)
            rows = [
                accumulate(parts, arity)
                for parts, arity in zip(parts_by_relation, self._arities, strict=True)
            ]
            if any(len(zset) for zset in rows):
                return iteration, rows
        return None


@dataclass(frozen=True)
class _EmittedRows:
    """The rows of a relation in all iterations of a step.

    Attributes:
        rows: The rows, with the iterations that emitted them; None if there are derivations.
        derivations: They have the rows of a relation that was empty before the step.
        best: The change of the relation, without iterations, if it was computed already: by the
            derivations, or by a recursive min or max, whose rows are its improvements.
    """

    rows: ZSet | None
    derivations: FirstDerivations | FirstCandidates | None
    best: ZSet | None

    def stage_fed_back(self, name: str, shared: RelationsStep) -> None:
        """Stage the rows of a trace: each row with the iteration that reads it."""
        if self.rows is not None:
            shared.add(name, _delay(self.rows))
        elif self.derivations is not None:
            deferred = self.derivations.deferred_rows_fed_back()
            if deferred is not None:
                shared.add_deferred(name, deferred)

    def without_iteration(self) -> ZSet:
        """Return the change of the relation: the rows without their iterations."""
        if self.best is not None:
            return self.best
        assert self.rows is not None
        return _without_iteration(self.rows)


def _delay(rows: ZSet) -> ZSet:
    """Add 1 to the iteration of each row."""
    delayed = rows.row_array.copy()
    delayed[-1] += 1
    return ZSet(delayed, rows.weight_array)


def _decode_iterations(
    layout: KeyLayout, keys: npt.NDArray[Any], ends: Int64Array, first: int
) -> ZSet:
    """Return the rows of distinct keys with their iterations, each with weight 1.

    Args:
        layout: The layout of the keys.
        keys: The keys, one iteration after the other, in any order.
        ends: The end of the keys of each iteration.
        first: The first iteration.
    """
    order = np.argsort(keys, kind="stable")
    iterations = np.repeat(np.arange(first, first + len(ends)), np.diff(ends, prepend=0))
    rows = np.empty((len(layout.bits) + 1, len(keys)), np.int64)
    rows[:-1], rows[-1] = layout.decode(keys[order].astype(np.int64)), iterations[order]
    return ZSet(rows, unit_weights(len(keys)))


def _without_iteration(rows: ZSet) -> ZSet:
    """Return the rows without their last column; the weights of equal rows are added."""
    columns = rows.row_array[:-1]
    if len(columns):
        # Rows that become equal are adjacent, because the rows are sorted.
        first = first_positions_of_rows(columns) if len(rows) else np.empty(0, np.int64)
        if len(first) == len(rows):
            return ZSet(np.ascontiguousarray(columns), rows.weight_array)
    return consolidated_rows(columns.copy(), rows.weight_array.copy())
