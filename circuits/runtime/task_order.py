"""Task order: which nodes of a graph may run at the same time in a large step.

A node runs after the nodes that it reads. Three more rules make the result the same for any number
of threads:

- Nodes that may add values to dictionaries run in the order of the program, one at a time, because
  a new value gets the next code.
- A recursion runs alone, because, while it runs, other readers of the traces that it reads would
  see its unfinished rows.
- A graph whose nodes depend on the time of the step or on watermarks runs in one thread, and so
  does one with functions of the user, which need not be safe in several threads.

An error needs no rule: the step is computed again by one thread (`Graph.prepare`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import Final, NamedTuple

from circuits.plan.expressions import Call, Column, Expression
from circuits.plan.nodes import Fixpoint
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.aggregates.partial_aggregate import PartialAggregateOperator
from circuits.runtime.operators.distinct import DistinctOperator
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import (
    RowIdDecodeOperator,
    RowIdEncodeOperator,
)
from circuits.runtime.operators.linear import (
    FilterOperator,
    MapOperator,
    NegateOperator,
    UnionOperator,
)
from circuits.runtime.operators.top_k import TopKOperator
from circuits.runtime.operators.user_call import UserCallOperator
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.workers import Job

__all__ = ["NodeTasks", "TaskOrder", "may_add_values", "order_tasks"]

#: Operators whose results consist of codes that they read. A row id is a code of a dictionary that
#: only one operator adds to.
_NOT_ADDING_OPERATORS: Final = (
    DistinctOperator,
    FilterOperator,
    Integrate,
    JoinOperator,
    NegateOperator,
    PartialAggregateOperator,
    RowIdDecodeOperator,
    RowIdEncodeOperator,
    TopKOperator,
    UnionOperator,
)


class TaskOrder(NamedTuple):
    """The nodes that each node waits for.

    Attributes:
        dependents: For each node, the nodes that wait for it.
        counts: For each node, the number of nodes that it waits for.
    """

    dependents: Sequence[Collection[int]]
    counts: Sequence[int]


def order_tasks(nodes: Sequence[Node], codecs: Codecs) -> TaskOrder | None:
    """Return the order of the nodes of a graph; None if one thread must run all of them.

    Complexity:
        O(nodes), and O(nodes) for each recursion.
    """
    dependents: list[set[int]] = [set() for _ in nodes]
    last_adding = last_alone = None
    for position, node in enumerate(nodes):
        plan = node.plan
        if isinstance(node.operator, UserCallOperator) or plan.reads_now or plan.reads_watermarks:
            return None
        for source in node.inputs:
            dependents[source].add(position)
        if last_alone is not None:
            dependents[last_alone].add(position)
        if isinstance(plan, Fixpoint):
            for earlier in range(position):
                dependents[earlier].add(position)
            last_alone = position
        elif not node.is_nested and may_add_values(node, codecs):
            if last_adding is not None:
                dependents[last_adding].add(position)
            last_adding = position
    counts = [0] * len(nodes)
    for position, readers in enumerate(dependents):
        readers.discard(position)
        for reader in readers:
            counts[reader] += 1
    return TaskOrder(dependents, counts)


def may_add_values(node: Node, codecs: Codecs) -> bool:
    """Return whether an operator may add values to a dictionary that others use as well."""
    operator = node.operator
    if operator is None or isinstance(operator, _NOT_ADDING_OPERATORS):
        return False
    if isinstance(operator, MapOperator):
        return any(_may_encode(expression, codecs) for expression in operator.expressions)
    if isinstance(operator, AggregateOperator):
        return not all(codecs.codec(call.type).ordered for call in operator.calls)
    return not all(codecs.codec(field.type).ordered for field in node.plan.fields)


def _may_encode(expression: Expression, codecs: Codecs) -> bool:
    if isinstance(expression, Column):
        return False
    if not codecs.codec(expression.type).ordered:
        return True
    return isinstance(expression, Call) and any(
        _may_encode(argument, codecs) for argument in expression.arguments
    )


class NodeTasks:
    """The nodes that can run in a step that several threads share.

    Attributes:
        job: The tasks of the step; None before and after they run.
    """

    def __init__(self, order: TaskOrder, pending: bytearray) -> None:
        self.job: Job | None = None
        self._dependents = order.dependents
        # For each node, how many of the nodes that it waits for have not ended.
        self._missing = list(order.counts)
        self._pending = pending
        # The nodes that wait for no other one, and have not begun.
        self._ready: list[int] = []
        # The budget of each operator that has begun since the last `add_budgets`, by position.
        self._budgets: dict[int, Budget] = {}
        # The bytes of the results of those of them that have ended.
        self._used_bytes = 0
        # Held to read or change the attributes above.
        self._lock = Lock()

    def begin(self) -> list[int]:
        """Return the nodes that wait for no other one; those with nothing to do end at once."""
        first = [position for position, count in enumerate(self._missing) if not count]
        for position in first:
            if not self._pending[position]:
                self.end(position)
        self._ready += [position for position in first if self._pending[position]]
        return sorted(self._ready)

    def budget_of(self, position: int, budget: Budget) -> Budget:
        """Return the budget of an operator that begins, given that of the step."""
        with self._lock:
            self._budgets[position] = budget.for_concurrent_operator(self._used_bytes)
            return self._budgets[position]

    def add_budgets(self, budget: Budget) -> None:
        """Count in the budget of the step what operators have used, in the order of the program.

        All operators that have begun have ended.

        Raises:
            LimitError: One of them would have exceeded a limit after those before it.
        """
        with self._lock:
            for position in sorted(self._budgets):
                budget.add_concurrent(self._budgets[position])
            self._budgets.clear()
            self._used_bytes = 0

    def end(self, position: int) -> None:
        """Note that a node has ended, and with it those after it that have nothing to do."""
        with self._lock:
            if position in self._budgets:
                self._used_bytes += self._budgets[position].own_bytes
            elif position in self._ready:  # an input
                self._ready.remove(position)
            ended = [position]
            while ended:
                for reader in self._dependents[ended.pop()]:
                    self._missing[reader] -= 1
                    if not self._missing[reader]:
                        (self._ready if self._pending[reader] else ended).append(reader)

    def take_ready(self) -> list[int]:
        """Return the nodes that can run now, once."""
        with self._lock:
            ready, self._ready = sorted(self._ready), []
        return ready
