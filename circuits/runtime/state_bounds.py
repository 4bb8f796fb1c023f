"""State bounds: drop the rows of the state that no later step needs, by the frontiers of the plan.

::

    T'  =  (T + d)[column >= bound]      T: a trace, d: its delta, bound: a frontier after the step

A frontier is a lower bound of a column in all rows that later steps insert or delete
(`circuits.plan.frontier`). Each plan node says which rows of its inputs it still needs
(`PlanNode.needed_bounds`), for example for ``a JOIN b ON b.ts BETWEEN a.ts AND a.ts + 10``::

    rows of a     ts + 10 >= watermark of b         earlier ones meet no later row of b
    rows of b     ts >= watermark of a

Dropped rows change no output: a group that can no longer change leaves the state, and its published
result stays. The law, which tests check with random plans and streams: the outputs are those of the
same circuit that drops nothing.

A trace keeps the rows that any of its readers needs. Joins are readers, and so are the options of
an input that look up its rows, such as keys. A row before the bound does not enter the trace. The
bound is a function of the watermarks and the state, so it is not stored. Therefore the first step
after a restart does not know the bound of the step before, and searches all rows before its own.

The caller may give the values of bounds that it has computed for another graph, of which this one
has a part of the rows (`circuits.plan.frontier.GivenStateBound`).

Cost: per step and trace O(runs log N), and O(log N) per dropped row. Each trace that drops rows is
arranged by the bounded column, too (`dbsp_wcoj.storage.range_scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import numpy as np

from circuits.errors import EvaluationError, InputOptionsError, SchemaError
from circuits.inputs.checked_input import CheckedInput
from circuits.plan.event_time import EventTime
from circuits.plan.expressions import Expression
from circuits.plan.frontier import (
    ColumnBounds,
    Frontier,
    GivenBound,
    GivenStateBound,
    OldestSession,
    WatermarkOf,
    least,
)
from circuits.plan.monotone_functions import monotone_argument
from circuits.plan.nodes import PlanNode, Scan
from circuits.plan.window_close import WindowClose, closing_column
from circuits.runtime.evaluation import evaluate
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import Closing
from circuits.runtime.operators.time.session_bound import SessionBoundOperator
from circuits.runtime.operators.time.window_close import WindowCloseOperator
from circuits.runtime.trace_limits import MIN_CODE, limited_delta, order_beginning_with
from circuits.types.codecs.arrow_buffers import NULL
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations, RelationsStep, Trace, ZSet
from dbsp_wcoj.storage.range_scan import count_range
from dbsp_wcoj.storage.trace import ColumnOrder, Staged, StagedGroup, TraceStep

__all__ = ["BoundedStep", "StateBounds", "TraceBound", "check_window_close"]


@dataclass(frozen=True)
class TraceBound:
    """The rows of a trace that are kept: those with ``column >= frontier``.

    Attributes:
        trace: The trace.
        column: A column of the trace.
        frontier: The bound.
        name: The name of the column.
    """

    trace: Trace
    column: int
    frontier: Frontier
    name: str

    def label(self) -> str:
        """Return the condition of the rows that are kept, for explain."""
        return f"{self.name} >= {self.frontier.label()}"

    @property
    def order(self) -> ColumnOrder:
        """A column order that begins with the column."""
        return order_beginning_with(self.trace, self.column)

    @property
    def key(self) -> object:
        """The key of the bound in `BoundedStep.limits`."""
        return id(self.trace), self.frontier


@dataclass(frozen=True)
class SessionStateBound:
    """The sessions that an operator keeps: those that a later row can still extend.

    Attributes:
        operator: Computes the first (or last) time of the session of each row, its *session bound*.
        frontier: A later row can extend only sessions that have rows at or after this time.
        start: The frontier of the starts of sessions: no later row is in a session that started
            before it. Its value depends on the oldest session that the operator keeps.
    """

    operator: SessionBoundOperator
    frontier: Frontier
    start: Frontier


class StateBounds:
    """The frontiers of the nodes of a graph, and the bounds of their state.

    Args:
        nodes: The nodes, in order.
        joins: The node classes that read the relations of their inputs.
        relations: The traces that joins share.
        inputs: The inputs with options.
        codecs: Encode values as int64 codes.
        given_bounds: Bounds whose values the caller gives. Then no input has lateness.

    Attributes:
        given: The values of the given bounds in the next step, by name, as codes; a value may be
            missing until there is one, and must not decrease.
        frontiers: The frontiers of the columns of each node.
        final_row_columns: The nodes that emit final rows, by position, each with the column of its
            input that decides when a row is final, the frontier of this column, and the rows that
            wait.
        relation_bounds: The bound of the rows of each node that joins read, by position.
        operators: The bounds of the traces of each other operator, by position.
        sessions: The bounds of the operators that drop closed sessions, by position.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        joins: Collection[type[PlanNode]],
        relations: Relations,
        inputs: Mapping[str, CheckedInput],
        codecs: Codecs,
        given_bounds: Sequence[GivenStateBound] = (),
    ) -> None:
        self.given: Mapping[str, int] = {}
        self.inputs = inputs
        self.codecs = codecs
        self.frontiers: list[ColumnBounds] = []
        self.relation_bounds: dict[int, TraceBound] = {}
        self.operators: dict[int, tuple[TraceBound, ...]] = {}
        self.sessions: dict[int, SessionStateBound] = {}
        self.final_row_columns: dict[int, TraceBound] = {}
        # The readers of a node are joins and input options. For each node, the bounds of what each
        # of its readers needs.
        bounds_of_readers: dict[int, list[ColumnBounds]] = {}
        for position, node in enumerate(nodes):
            self.frontiers.append(self._frontiers_of(position, node))
            if node.operator is None and self._reads_rows(node):
                # The options need all rows, or only the rows after the frontier.
                reads_only_after_frontier = inputs[node.name].reads_only_after_frontier
                needed_by_options = (
                    self._input_bounds(node.name) if reads_only_after_frontier else {}
                )
                bounds_of_readers.setdefault(position, []).append(needed_by_options)
            if node.operator is None or isinstance(node.operator, Integrate):
                continue
            input_bounds = [{} if node.is_nested else self.frontiers[i] for i in node.inputs]
            if isinstance(node.operator, WindowCloseOperator):
                self._add_final_row_column(position, node, node.operator, input_bounds[0])
            needed = node.plan.needed_bounds(input_bounds)
            if type(node.plan) in joins:
                for i, bounds in zip(node.inputs, needed, strict=True):
                    bounds_of_readers.setdefault(i, []).append(bounds)
            elif isinstance(node.operator, SessionBoundOperator):
                self._bound_sessions(position, node, node.operator, needed[0])
            elif getattr(node.operator, "traces_begin_with_partitioning", False):
                self._bound_operator(position, node, needed[0])
        for position, readers in bounds_of_readers.items():
            self._bound_relation(position, nodes[position], readers, relations)
        for bound in given_bounds:
            self._add_given(bound, nodes, relations)

    def _reads_rows(self, node: Node) -> bool:
        """Return whether the options of an input read its rows."""
        return node.name in self.inputs and self.inputs[node.name].reads_rows

    def _frontiers_of(self, position: int, node: Node) -> ColumnBounds:
        if node.is_nested or isinstance(node.operator, Integrate):
            return {}
        if node.operator is None and isinstance(node.plan, Scan):
            return self._input_bounds(node.name)
        bounds = node.plan.bounds_of_changes([self.frontiers[i] for i in node.inputs], position)
        if isinstance(node.plan, EventTime):
            checked = self.inputs.get(node.plan.relation)
            if checked is not None and checked.bounds_computed_time:
                time = len(node.plan.fields) - 1
                return {**bounds, time: WatermarkOf(node.plan.relation, checked.expiry_text)}
        return bounds

    def _input_bounds(self, name: str) -> ColumnBounds:
        checked = self.inputs.get(name)
        if checked is None or checked.bounded_column is None:
            return {}
        return {checked.bounded_column: WatermarkOf(name, checked.expiry_text)}

    def limit_of_relation(self, position: int, limits: Mapping[object, int]) -> int | None:
        """Return the code before which the rows of a node are dropped; None without one.

        Args:
            position: The node.
            limits: As `BoundedStep.limits`.
        """
        bound = self.relation_bounds.get(position)
        return None if bound is None else limits.get(bound.key)

    def arrange_empty_traces(self) -> None:
        """Arrange the traces without rows by their bounds, so that no step has to sort them."""
        for bound in self.traces:
            if bound.trace.orders and bound.trace.is_empty:
                bound.trace.arrange(bound.order)

    def drop_relation_rows(self) -> None:
        """Drop the rows of relations before the given bounds, without a step.

        Afterwards, circuits that have copies of a row, and were stepped with different values of
        the bounds, all have the row, or none of them has it.
        """
        for bound in self.relation_bounds.values():
            assert isinstance(bound.frontier, GivenBound)
            limit = self.given.get(bound.frontier.name)
            if limit is not None and bound.trace.orders:
                empty = ZSet.empty(bound.trace.arity)
                bound.trace.update(limited_delta(bound.trace, bound.column, empty, MIN_CODE, limit))

    def oldest_session(self, limits: Mapping[object, int]) -> int | None:
        """Return a time before which no open session of any node starts; None if it is not known.

        Args:
            limits: `BoundedStep.limits` after a step.
        """
        starts = [limits.get(sessions.start, MIN_CODE) for sessions in self.sessions.values()]
        oldest = min(starts, default=MIN_CODE)
        return None if oldest == MIN_CODE else oldest

    @property
    def traces(self) -> Iterable[TraceBound]:
        """The bounds of all traces, except those of sessions."""
        return chain(
            self.relation_bounds.values(), *self.operators.values(), self.final_row_columns.values()
        )

    def _add_final_row_column(
        self, position: int, node: Node, operator: WindowCloseOperator, input_bounds: ColumnBounds
    ) -> None:
        column = closing_column(input_bounds)
        if column is not None:
            self.final_row_columns[position] = TraceBound(
                operator.trace, column, input_bounds[column], node.plan.fields[column].name
            )

    def _bound_sessions(
        self, position: int, node: Node, operator: SessionBoundOperator, needed: ColumnBounds
    ) -> None:
        # An operator that computes the last times of sessions keeps all sessions.
        if operator.time in needed and not operator.is_reversed:
            start = self.frontiers[position][len(node.plan.fields) - 1]
            self.sessions[position] = SessionStateBound(operator, needed[operator.time], start)

    def _bound_operator(self, position: int, node: Node, needed: ColumnBounds) -> None:
        # The traces begin with the columns of ``partitioning``, in their order.
        for trace_column, column in enumerate(node.plan.partitioning or ()):
            if column in needed:
                name = node.plan.inputs[0].fields[column].name
                traces: Sequence[Trace] = getattr(node.operator, "traces", ())
                self.operators[position] = tuple(
                    TraceBound(trace, trace_column, needed[column], name) for trace in traces
                )
                return

    def _add_given(
        self, given: GivenStateBound, nodes: Sequence[Node], relations: Relations
    ) -> None:
        frontier = GivenBound(given.name)
        for position, node in enumerate(nodes):
            operator = node.operator
            if given.relation:
                trace = relations.traces.get(node.name)
                if node.is_input and node.name == given.relation and trace is not None:
                    name = node.plan.fields[given.column].name
                    bound = TraceBound(trace, given.column, frontier, name)
                    self.relation_bounds[position] = bound
                    relations.add_reader(_order_reader(node.name, bound))
            elif isinstance(operator, SessionBoundOperator):
                start = OldestSession(frontier, position)
                self.sessions[position] = SessionStateBound(operator, frontier, start)
            elif getattr(operator, "traces_begin_with_partitioning", False):
                traces: Sequence[Trace] = getattr(operator, "traces", ())
                name = f"column {given.column}"
                self.operators[position] = tuple(
                    TraceBound(trace, given.column, frontier, name) for trace in traces
                )

    def _bound_relation(
        self, position: int, node: Node, readers: Sequence[ColumnBounds], relations: Relations
    ) -> None:
        # The trace keeps the rows that any reader needs: its bound is on a column that all readers
        # bound, and is the least of their frontiers.
        trace = relations.traces.get(node.name)
        common = set(readers[0]).intersection(*readers[1:])
        if trace is None or node.is_nested or not common:
            return
        column = min(common)
        frontier = least(bounds[column] for bounds in readers)
        bound = TraceBound(trace, column, frontier, node.plan.fields[column].name)
        self.relation_bounds[position] = bound
        relations.add_reader(_order_reader(node.name, bound))


class BoundedStep:
    """The rows that one step drops. It is the `FrontierSource` of the step.

    Args:
        bounds: The bounds of the graph.
        watermarks: Returns the watermark of an input after the step, by name; None without one. It
            is called only after all inputs of the step have been read.
        previous_limits: ``limits`` of the step before.
        oldest_sessions: By node, the start of the oldest open session, if other circuits find it.

    Attributes:
        limits: The value of each bound after the step.
    """

    def __init__(
        self,
        bounds: StateBounds,
        watermarks: Callable[[str], int | None],
        previous_limits: Mapping[object, int],
        oldest_sessions: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._bounds = bounds
        self._watermarks = watermarks
        self._previous_limits = previous_limits
        self._values: dict[Frontier, int | None] = {}
        self._oldest: dict[int, int | None] = {**oldest_sessions}
        self.limits: dict[object, int] = dict(previous_limits)

    def value(self, frontier: Frontier) -> int | None:
        """Return the value of a frontier after the step."""
        if frontier not in self._values:
            self._values[frontier] = frontier.value(self)
        return self._values[frontier]

    def watermark(self, input: str) -> int | None:
        """Return the time before which no later step changes a row of an input.

        It may be before the watermark, if the input keeps rows longer than they may be late.
        """
        watermark = self._watermarks(input)
        return None if watermark is None else self._bounds.inputs[input].frontier(watermark)

    def given(self, name: str) -> int | None:
        """Return the value of a given bound in the step."""
        return self._bounds.given.get(name)

    def apply(self, function: Expression, code: int) -> int | None:
        """Decode a value, apply a function, and return the code of the result.

        None without a result, and for a code outside of its type, such as a shifted time.
        """
        codecs = self._bounds.codecs
        argument = monotone_argument(function)
        assert argument is not None
        try:
            time = codecs.codec(argument.type).decode(np.array([code]))
            result = codecs.codec(function.type).encode(evaluate(function, [time], 1))
        except (EvaluationError, SchemaError):
            return None
        return None if result[0] == NULL else int(result[0])

    def has_found_sessions(self, node: int) -> bool:
        """Return whether a node has searched its open sessions in the step."""
        return node in self._oldest

    def oldest_session(self, node: int) -> int | None:
        """Return the start of the oldest open session that a node has found."""
        return self._oldest[node]

    def count_rows_to_drop(self) -> int:
        """Return the number of rows that are dropped from the state before the step.

        Rows of sessions that are not closed yet do not count.

        Complexity:
            O(bounds * runs * log N).
        """
        count = 0
        for bound in self._bounds.traces:
            limit = self.value(bound.frontier)
            if limit is not None and bound.trace.orders:
                previous_limit = self._previous_limits.get(bound.key, MIN_CODE)
                count += count_range(bound.trace, bound.order, previous_limit, limit - 1)
        for sessions in self._bounds.sessions.values():
            limit = self.value(sessions.frontier)
            if limit is not None:
                previous_limit = self._previous_limits.get(sessions.frontier, MIN_CODE)
                count += sessions.operator.count_rows(previous_limit, limit)
        return count

    def closing(self, position: int) -> Closing | None:
        """Return which rows of the input of a node are final after the step; None for none."""
        bound = self._bounds.final_row_columns.get(position)
        limit = None if bound is None else self.value(bound.frontier)
        if bound is None or limit is None:
            return None
        return Closing(bound.column, self._advance(bound.key, limit), limit)

    def drop_operator_rows(self, position: int, staged: Staged | None) -> Staged | None:
        """Return the change of an operator's state, less the rows that are no longer needed.

        Args:
            position: The node. Call this for the nodes in their order: a bound can depend on the
                sessions of the nodes before.
            staged: The change by the delta; None for none.
        """
        sessions = self._bounds.sessions.get(position)
        traces = self._bounds.operators.get(position, ())
        if sessions is None and not traces:
            return staged
        steps = {id(step.trace): step for step in (() if staged is None else staged.changes)}
        if sessions is not None:
            limit = self.value(sessions.frontier)
            if limit is None:
                return staged
            previous_start = self._previous_limits.get(sessions.start, MIN_CODE)
            previous_limit = self._advance(sessions.frontier, limit)
            self._oldest[position] = sessions.operator.drop_closed_sessions(
                steps, previous_limit, limit, previous_start
            )
            start = self.value(sessions.start)
            self._advance(sessions.start, previous_start if start is None else start)
            return StagedGroup(steps.values())
        for bound in traces:
            step = self._drop(bound, steps.get(id(bound.trace)))
            if step is not None:
                steps[id(bound.trace)] = step
            else:
                steps.pop(id(bound.trace), None)
        return StagedGroup(steps.values())

    def drop_relation_rows(self, shared: RelationsStep, names: Sequence[str]) -> None:
        """Drop the rows of relations that no later join needs; call this after all joins.

        Args:
            shared: The staged deltas of the relations.
            names: The names of the nodes, by position.
        """
        for position, bound in self._bounds.relation_bounds.items():
            name = names[position]
            shared.replace(name, self._drop(bound, shared.by_name.get(name)))

    def _drop(self, bound: TraceBound, step: TraceStep | None) -> TraceStep | None:
        """Return the step of a trace without the rows before its bound."""
        limit = self.value(bound.frontier)
        if limit is None or not bound.trace.orders:
            return step
        previous_limit = self._advance(bound.key, limit)
        delta = ZSet.empty(bound.trace.arity) if step is None else step.delta
        change = limited_delta(bound.trace, bound.column, delta, previous_limit, limit)
        if change is delta:
            return step
        return bound.trace.prepare(change) if len(change) else None

    def _advance(self, key: object, limit: int) -> int:
        """Record the value of a bound, and return the one before."""
        previous_limit = self._previous_limits.get(key, MIN_CODE)
        self.limits[key] = max(limit, previous_limit)
        return previous_limit


def _order_reader(
    name: str, bound: TraceBound
) -> Callable[[], Mapping[str, Collection[ColumnOrder]]]:
    """Return a function for `Relations.add_reader`: the column order by which rows are dropped."""
    return lambda: {name: [bound.order] if bound.trace.orders else []}


def check_window_close(
    nodes: Sequence[Node],
    bounds: StateBounds | None,
    keyed_inputs: Sequence[str],
    views_of: Callable[[], Sequence[Sequence[str]]],
) -> None:
    """Check that the rows of every view with EMIT ON WINDOW CLOSE become final.

    Args:
        nodes: The nodes of the graph.
        bounds: The bounds of their state; None if the lateness of no input bounds any state.
        keyed_inputs: The inputs with lateness whose keys do not include the event time. Their old
            rows can still be replaced, so their windows are never complete.
        views_of: Returns the views that depend on each node; called for an error only.

    Raises:
        InputOptionsError: No frontier tells when the rows of such a view are final.
    """
    final_row_columns = {} if bounds is None else bounds.final_row_columns
    for position, node in enumerate(nodes):
        if not isinstance(node.operator, WindowCloseOperator) or position in final_row_columns:
            continue
        assert isinstance(node.plan, WindowClose)
        views = ", ".join(map(repr, views_of()[position]))
        text = f"view {views}: {node.plan.place}EMIT ON WINDOW CLOSE"
        names = _input_names(nodes, position)
        keyed = [name for name in keyed_inputs if name in names]
        if keyed:
            raise InputOptionsError(
                f"{text} needs an input whose old rows do not change; a row of {keyed[0]!r} "
                "replaces the earlier row of its key, however old that row is: add the event "
                "time to the key, or declare no key"
            )
        if bounds is None:
            raise InputOptionsError(
                f"{text} needs an input with lateness, which says when a window is complete: "
                "declare WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE, or give "
                "InputOptions(lateness=Lateness('ts', '5 minutes'))"
            )
        raise InputOptionsError(
            f"{text} needs a column that tells when a row is final; a later row can have an "
            "earlier value in each column of the view: select the start or the end of the window, "
            "or the event time of an input with lateness"
        )


def _input_names(nodes: Sequence[Node], position: int) -> set[str]:
    """Return the names of the inputs that a node reads."""
    names: set[str] = set()
    positions, visited = [position], {position}
    while positions:
        node = nodes[positions.pop()]
        if node.is_input:
            names.add(node.name)
        new = set(node.inputs) - visited
        visited |= new
        positions.extend(new)
    return names
