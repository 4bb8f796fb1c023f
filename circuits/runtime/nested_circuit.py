"""Loop: the operators of a recursion, run once per iteration until nothing changes any more.

A nested circuit over lexicographic time: the outer one is the step, the inner one the iteration,
and a row carries its iteration as its last column (`circuits.plan.rewrite.iterated_rows`). So the
operators are those of any circuit, and the loop is the delay around them::

    X̂ = z⁻¹(settle(body(X̂)))          z⁻¹ adds 1 to the iteration and hands a row back

    step t:   d := what changed outside, at iteration 0
              repeat   run all operators on d; lay d and what they stage on top of their traces
                       d := the waiting rows of the least iteration, delayed
              until    no row waits
              lift the traces again; the sums of what was laid are the step's deltas

It is the order that makes it exact and cheap. Whatever the operators get is what comes after all
that they got before, in the total order of (step, iteration); so a join of n atoms has the n terms
of its delta formula, as anywhere: a combination is claimed by its atom that came last, and its row
stands at the greatest of the iterations, be they of this step or of earlier ones. Rows for later
iterations wait, where they may cancel with others, so that each iteration is run once a step and
only if something changes there. A step costs what changes in some iteration, not what is held.

Why not 2ᵏ terms for k nested times: inclusion and exclusion are what a cut of a *partial* order
needs; the total one splits the same sum into n. Why not a spine per iteration: a lookup would visit
all of them, and a row's history would be scattered.

State: that of the operators, as ordinary traces. Nothing is committed while the loop runs, so a
refused step leaves no mark, and each trace changes by one delta in a step, which is what durable
state writes.

References:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 5 and 6.
    McSherry, Murray, Isaacs, Isard. Differential dataflow. CIDR 2013 (differences at the join of
    their times; here the outer time is the step that runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from circuits.errors import IterationError
from circuits.runtime.operators.operator import Prepared, StepContext
from circuits.runtime.operators.ordered_rows import CombinedChange
from circuits.runtime.operators.recursive_distinct import first_of_equal
from dbsp_wcoj import Relations, RelationsStep, Trace, ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.trace import PoppedOverlay, TraceStep
from dbsp_wcoj.zset import accumulate, consolidated_rows

if TYPE_CHECKING:
    from circuits.runtime.graph import Node

__all__ = ["NestedCircuit", "NestedCircuitStep"]


@dataclass(frozen=True)
class NestedCircuitStep:
    """What a step changes.

    Attributes:
        outputs: The delta of each relation.
        rows: How many rows each node has given, in all iterations.
        spent: And how many seconds it has taken.
        prepared: What commits the operators.
    """

    outputs: Sequence[ZSet]
    rows: Mapping[int, int]
    spent: Mapping[int, float]
    prepared: Prepared


@dataclass(eq=False)
class NestedCircuit:
    """The nodes of a recursion.

    Attributes:
        names: Of the relations that are defined together.
        feeds: The node of each that is read within the loop.
        most: More iterations than this are an error.
        views: The nodes of all views of the graph, for errors.
        settles: The node of each that gives its rows.
        order: All nodes of the loop but the feeds, in the order in which they run.
        outside: The nodes that those within read.
        reads: Their names.
    """

    names: tuple[str, ...]
    feeds: tuple[int, ...]
    most: int
    views: Mapping[str, int]
    settles: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    reads: frozenset[str] = frozenset()

    def close(self, nodes: Sequence[Node], settles: Sequence[int]) -> None:
        """Take up the nodes that depend on the feeds, once all are there."""
        within = {*self.feeds}
        order = []
        for number in range(min(self.feeds), len(nodes)):
            if not within.isdisjoint(nodes[number].inputs):
                within.add(number)
                order.append(number)
        # A body that does not recur is run once, here as well.
        order += [number for number in settles if number not in within]
        self.settles, self.order = tuple(settles), tuple(sorted(order))
        inner = {*self.order, *self.feeds}
        below = {n for number in self.order for n in nodes[number].inputs}
        self.outside = tuple(sorted(below - inner))
        self.reads = frozenset(nodes[number].name for number in self.outside)
        for number in inner:
            nodes[number].inner = True

    def prepare(
        self,
        nodes: Sequence[Node],
        deltas: Sequence[ZSet] | Mapping[int, ZSet],
        relations: Relations,
        shared: RelationsStep,
        budget: Budget,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> NestedCircuitStep:
        """Run the loop for a step; nothing is committed.

        Args:
            nodes: Of the graph.
            deltas: Of the nodes ``outside``, by their numbers.
            relations: Of the graph.
            shared: The staged step of the relations; what changes within is added to it.
            budget: What the step may use.
            clock: Seconds.

        Raises:
            IterationError: There is no end within the number of iterations allowed.
            LimitError: The step uses more than the budget allows.
            CircuitError, DbspWcojError: An operator refuses the rows.
        """
        run = _Run(self, nodes, relations, budget, clock)
        given = {n: deltas[n] for n in self.outside if len(deltas[n])}
        try:
            if given:
                steps = {name: s for name, s in shared.by_name.items() if name in self.reads}
                run.iterate(given, steps)
            while (waiting := run.waiting.next()) is not None:
                iteration, fed = waiting
                if iteration > self.most:
                    raise IterationError(self._told(fed, nodes))
                run.iterate({n: d for n, d in zip(self.feeds, fed, strict=True) if len(d)}, {})
        finally:
            lifted = run.pop_overlay()
        apart = []
        for name, laid in lifted:
            step = laid.total()
            if step is not None and name is not None:
                shared.by_name[name] = step
            elif step is not None:
                apart.append(step)
        outputs = [run.waiting.total(k) for k in range(len(self.names))]
        return NestedCircuitStep(outputs, run.rows, run.spent, CombinedChange(apart))

    def solution(
        self,
        nodes: Sequence[Node],
        values: Mapping[int, ZSet],
        relations: Relations,
        budget: Budget,
    ) -> Sequence[ZSet]:
        """The relations over whole inputs, from nothing: each iteration joins what is new only.

        Args:
            nodes: Of a graph without state.
            values: Of the nodes ``outside``.
            relations: Of the graph.
            budget: What the query may use.

        Raises:
            IterationError: There is no end within the number of iterations allowed.
            LimitError: The query uses more than the budget allows.
        """
        shared = relations.stage({})
        for number in self.outside:
            name = nodes[number].name
            if name in relations and len(values[number]):
                shared.add(name, values[number])
        return self.prepare(nodes, values, relations, shared, budget).outputs

    def evaluate(self, nodes: Sequence[Node], values: Sequence[ZSet]) -> list[ZSet]:
        """The relations by iteration from nothing, as the operators mean; no state is used.

        Args:
            nodes: Of the graph.
            values: Of the nodes so far.

        Raises:
            IterationError: There is no end within the number of iterations allowed.
        """
        now = [ZSet.empty(len(nodes[n].plan.fields)) for n in self.feeds]
        for _ in range(self.most + 2):
            found = dict(enumerate(values)) | dict(zip(self.feeds, now, strict=True))
            for number in self.order:
                node = nodes[number]
                assert node.operator is not None
                found[number] = node.operator.evaluate([found[i] for i in node.inputs])
            after = [found[number] for number in self.settles]
            if after == now:
                return [_without_iteration(zset) for zset in now]
            now = after
        raise IterationError(self._told(now, nodes))

    def _told(self, rows: Sequence[ZSet], nodes: Sequence[Node]) -> str:
        changing = [n for n, zset in zip(self.names, rows, strict=True) if len(zset)]
        above = {*self.settles}
        for number in range(min(above), len(nodes)):
            if not above.isdisjoint(nodes[number].inputs):
                above.add(number)
        # The first view that reads the recursion is the one that it stands in.
        view = next((name for name, number in self.views.items() if number in above), None)
        within = "" if view is None or view in self.names else f"view {view!r}: "
        return (
            f"{within}the recursion of {', '.join(map(repr, self.names))} still changes "
            f"{', '.join(map(repr, changing or self.names))} after {self.most:,} iterations; "
            "nothing was changed: bound it in the query (a depth, a limit of a sum), or allow more "
            "by max_iterations="
        )


class _Run:
    """One step of a loop."""

    def __init__(
        self,
        loop: NestedCircuit,
        nodes: Sequence[Node],
        relations: Relations,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self.waiting = _Waiting([len(nodes[n].plan.fields) for n in loop.feeds])
        self.rows = dict.fromkeys(loop.order, 0)
        self.spent = dict.fromkeys(loop.order, 0.0)
        self._budget = budget
        self._clock = clock
        self._loop = loop
        self._nodes = nodes
        self._relations = relations
        self._borrowed: list[Trace] = []
        # By trace, and by its name where it is shared by joins.
        self._laid: dict[int, tuple[Trace, str | None]] = {}

    def iterate(self, given: dict[int, ZSet], outside: dict[str, TraceStep]) -> None:
        """Run all operators on the changes of one iteration, and lay these on their traces."""
        nodes = self._nodes
        shared = self._relations.stage({})
        shared.by_name.update(outside)
        budget = self._budget
        context = StepContext(False, shared, budget)
        found = dict(given)
        changes: list[TraceStep] = []
        for number, delta in given.items():
            if nodes[number].inner and nodes[number].arranged:
                shared.add(nodes[number].name, delta)
        for number in self._loop.order:
            node = nodes[number]
            if found.keys().isdisjoint(node.inputs):
                continue
            assert node.operator is not None
            start = self._clock()
            inputs = [found.get(i, nodes[i].nothing) for i in node.inputs]
            budget.start_operator(number, self.rows[number])
            delta, state = node.operator.prepare(inputs, context)
            budget.finish_operator(self.rows[number] + len(delta), delta.arity, len(delta))
            if state is not None:
                changes.extend(state.changes)
            if len(delta):
                found[number] = delta
                self.rows[number] += len(delta)
                if node.arranged:
                    shared.add(node.name, delta)
            self.spent[number] += self._clock() - start
        for k, number in enumerate(self._loop.settles):
            if number in found:
                self.waiting.add(k, found[number])
        for name, step in shared.by_name.items():
            if name in outside:
                self._borrowed.append(step.trace)
            else:
                self._laid[id(step.trace)] = step.trace, name
            step.trace.push_overlay(step)
        for step in changes:
            self._laid.setdefault(id(step.trace), (step.trace, None))
            step.trace.push_overlay(step)

    def pop_overlay(self) -> list[tuple[str | None, PoppedOverlay]]:
        """Make all traces as they were; gives what was laid within the loop, and its name."""
        for trace in self._borrowed:
            trace.pop_overlay()
        return [(name, trace.pop_overlay()) for trace, name in self._laid.values()]


class _Waiting:
    """Rows to be handed back, by the iteration in which that is."""

    def __init__(self, arities: Sequence[int]) -> None:
        self._arities = arities
        self._by_iteration: dict[int, list[list[ZSet]]] = {}
        self._totals: list[list[ZSet]] = [[] for _ in arities]

    def add(self, k: int, rows: ZSet) -> None:
        """Take rows of relation ``k``, to hand them back one iteration later."""
        self._totals[k].append(_without_iteration(rows))
        for iteration, part in _by_last(rows):
            waiting = self._by_iteration.setdefault(iteration + 1, [[] for _ in self._arities])
            delayed = part.row_array.copy()
            delayed[-1] += 1
            waiting[k].append(ZSet(delayed, part.weight_array))

    def next(self) -> tuple[int, list[ZSet]] | None:
        """The least iteration for which rows wait that do not cancel, and these."""
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
    """The rows without their last column; those that become equal stand together."""
    others = rows.row_array[:-1]
    if len(others):
        first = first_of_equal(others) if len(rows) else np.empty(0, np.int64)
        if len(first) == len(rows):
            return ZSet(np.ascontiguousarray(others), rows.weight_array)
    return consolidated_rows(others.copy(), rows.weight_array.copy())
