"""Divided recursion: find the columns by which a recursion divides into cells without an exchange.

A column is *carried* if a derived row always has the same value in it as every recursive row that
it is derived from. In a closure, the start of a path is carried::

    reach(x, z) :- e(x, z).
    reach(x, z) :- reach(x, y), e(y, z).          x is carried; z is not

Such a recursion is a separate one for each value of the carried column. So a cell can run it for
the values whose hash is its number, and needs no rows of other cells in any iteration::

    base rows      the results of the rules that read no recursive relation: each is sent to the
                   cell of its carried values
    copies         all other relations that the rules read: every cell has all of their rows
    X_k in a cell  =  the rows of X_k in one process whose carried values belong to the cell

The last line follows by induction over the iterations. Each operator of a cell's circuit is one of
two kinds. A *copy* has the same rows in all cells, because it reads only copies. A *divided* one
has, in a cell, the rows of the operator in one process whose carried values belong to the cell. A
union, filter or distinct of divided rows keeps this, if some column of all inputs has the carried
value. So does a join of divided inputs with each other and with copies, if the divided inputs agree
on the variable of the carried value: all divided rows of a combination are in the cell of the
result. A recursive min or max keeps it if its keys contain the carried column. For any other
operator over divided rows the recursion is not divided.

So the rows of a cell are exact after every iteration and every step, with deletions, and the delta
of the recursion is the sum of the deltas of the cells. A recursion may have several carried
columns; they are hashed together. If its rules exchange values between all of its columns, as in
``t(x, z) :- t(x, y), t(y, z)``, it is not divided, and one cell runs it.

The kinds are found on the operators, after the rewrite rules. The state of a cell must be found in
the state of one process, when cells are merged or divided again. Therefore the operators of a cell
must match those of the circuit in one process (`_match_nodes`), except for those of base rows.

References:
    Wolfson, Silberschatz. Distributed processing of logic programs. SIGMOD 1988.
    Seib, Lausen. Parallelizing Datalog programs by generalized pivoting. PODS 1991.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final, NamedTuple

from circuits.plan.expressions import Column
from circuits.plan.fixpoint import Fixpoint, RecursiveDistinct
from circuits.plan.nodes import Distinct, Filter, Map, Negate, PlanNode, Positive, Scan, Union
from circuits.plan.physical_nodes import Join, RowIdDecode, RowIdEncode
from circuits.plan.rewrite.iterated_rows import is_recursive
from circuits.plan.traversal import iter_nodes
from circuits.plan.user_call import UserCall
from circuits.runtime.graph import Graph
from circuits.runtime.incrementalize import incrementalize
from circuits.state.migration import RecursionNode, find_recursion, recursion_nodes

__all__ = ["DividedRecursion", "NotDivided", "divide_recursion"]

#: The maximum number of combinations of columns that are examined for each column.
MAX_COMBINATIONS: Final = 256


class NotDivided(Exception):
    """The recursion runs in one cell; the message says why, for `explain`."""


@dataclass(frozen=True)
class DividedRecursion:
    """A recursion that is divided by the values of carried columns.

    Attributes:
        plan: The recursion; it reads base rows as Scans with the names of ``bases``.
        bases: By the name of a Scan of base rows, the position of the recursive relation that they
            belong to, and their plan.
        copies: By the name of a Scan of another recursion, the position of its node in the graph.
        carried: For each recursive relation, its carried columns; the columns at one position have
            the same values.
        nodes: The nodes of the recursion in the graph of the whole circuit, in the order of
            `recursion_nodes` in a cell; None for the operators of base rows, which have no state.
        state_columns: For each part of the state of a cell (`export_recursion`), the columns that
            have the carried values; None if all cells have all of its rows.
    """

    plan: Fixpoint
    bases: Mapping[str, tuple[int, PlanNode]]
    copies: Mapping[str, int]
    carried: tuple[tuple[int, ...], ...]
    nodes: tuple[RecursionNode, ...]
    state_columns: tuple[tuple[int, ...] | None, ...]


class _Place(NamedTuple):
    """A column, or one of the columns that a row id replaces: the one at position ``encoded``."""

    column: int
    encoded: int = -1


#: The places in the rows of a node that have the carried value. None if every cell has all rows of
#: the node (a copy), so it needs no such value; empty if the rows cannot be divided.
_Places = frozenset[_Place] | None
#: For each recursive relation, the columns that may be carried together.
_Choice = Sequence[Iterable[int]]


def divide_recursion(plan: Fixpoint, graph: Graph, number: int) -> DividedRecursion:
    """Divide a recursion by its carried columns.

    Args:
        plan: The recursion.
        graph: The graph of the whole circuit.
        number: The position of the node of one of its relations.

    Raises:
        NotDivided: There are no carried columns, or an operator cannot be divided.
    """
    split, bases, inner = _split_plan(plan)
    copies = _find_inner_recursions(inner, graph)
    cell = _CellGraph(split, bases)
    choices = cell.find_choices()
    if not choices:
        raise NotDivided("no column has the same value in a row and in the rows that derive it")
    return DividedRecursion(
        split,
        bases,
        copies,
        tuple(zip(*choices, strict=True)),
        _match_nodes(cell, graph, number, copies),
        cell.find_state_columns(choices),
    )


def _split_plan(
    plan: Fixpoint,
) -> tuple[Fixpoint, dict[str, tuple[int, PlanNode]], dict[str, Fixpoint]]:
    """Replace the base rows of a recursion, and the other recursions in its bodies, by Scans.

    Base rows are the inputs of the unions of a body that read no relation of the recursion.

    Returns:
        The recursion, the base rows (`DividedRecursion.bases`), and the other recursions.
    """
    bases: dict[str, tuple[int, PlanNode]] = {}
    inner: dict[str, Fixpoint] = {}
    replaced: dict[int, PlanNode] = {}  # by the ``id`` of a node

    def split(plan: PlanNode, index: int) -> PlanNode:
        if not is_recursive(plan):
            name = f"#base {len(bases)}"
            bases[name] = index, plan
            return Scan(name, plan.fields)
        if isinstance(plan, Union | Distinct):
            return plan.with_inputs([split(input, index) for input in plan.inputs])
        return replace_recursions(plan)

    def replace_recursions(plan: PlanNode) -> PlanNode:
        if id(plan) not in replaced:
            if isinstance(plan, Fixpoint):
                name = f"#recursion {len(inner)}"
                inner[name] = plan
                replaced[id(plan)] = Scan(name, plan.fields)
            elif plan.inputs:
                inputs = [replace_recursions(input) for input in plan.inputs]
                replaced[id(plan)] = plan.with_inputs(inputs)
            else:
                replaced[id(plan)] = plan
        return replaced[id(plan)]

    bodies = [split(body, index) for index, body in enumerate(plan.bodies)]
    return plan.with_inputs(bodies), bases, inner


def _find_inner_recursions(inner: Mapping[str, Fixpoint], graph: Graph) -> dict[str, int]:
    """Return the positions of the nodes of other recursions, by the names of their Scans."""
    count = len(graph.nodes)
    positions = {name: graph.add(plan) for name, plan in inner.items()}
    if len(graph.nodes) > count:
        raise NotDivided("a recursion that it reads is computed together with it")
    return positions


class _CellGraph:
    """The operators of a recursion in a cell.

    Args:
        plan: The recursion; it reads base rows as Scans.
        bases: These Scans, as `DividedRecursion.bases`.
    """

    def __init__(self, plan: Fixpoint, bases: Mapping[str, tuple[int, PlanNode]]) -> None:
        scans = [node for node in iter_nodes(plan) if isinstance(node, Scan)]
        inputs = {scan.relation: scan.fields for scan in scans}
        self.graph = incrementalize({"#recursion": plan}, inputs)
        self.plan = plan
        self.bases = bases
        self.number = find_recursion(self.graph)  # of its only recursion
        self.circuit = self.graph.nested_circuits[self.number]
        self.nodes = recursion_nodes(self.graph, self.number)
        self._order = sorted(position for position, _ in self.nodes)
        self.base_nodes = self._find_base_nodes()

    def find_choices(self) -> list[tuple[int, ...]]:
        """Return all combinations of columns, one for each relation, that are carried together.

        Raises:
            NotDivided: A user-defined function is called in the recursion, whose results may differ
                between the cells.
        """
        if any(isinstance(self.graph.nodes[n].plan, UserCall) for n in self._order):
            raise NotDivided("it calls a user-defined function")
        widths = [len(body.fields) for body in self.plan.bodies]
        choices = []
        for column in range(widths[0]):
            possible: list[Sequence[int]] = [[column], *map(range, widths[1:])]
            while True:  # until no column is ruled out
                places = self._find_places(possible)
                results = [places[position] for position in self.circuit.results]
                narrowed = [
                    [c for c in columns if found is not None and _Place(c) in found]
                    for columns, found in zip(possible, results, strict=True)
                ]
                if narrowed == [list(columns) for columns in possible]:
                    break
                possible = [*narrowed]
            choice = next(
                filter(self._is_carried, islice(product(*possible), MAX_COMBINATIONS)), None
            )
            if choice is not None:
                choices.append(choice)
        return choices

    def find_state_columns(
        self, choices: Sequence[tuple[int, ...]]
    ) -> tuple[tuple[int, ...] | None, ...]:
        """Return the columns of each part of the state; see `DividedRecursion.state_columns`."""
        by_choice = [self._state_columns([(c,) for c in choice]) for choice in choices]
        parts: list[tuple[int, ...] | None] = []
        for columns in zip(*by_choice, strict=True):
            known = tuple(column for column in columns if column is not None)
            parts.append(known if len(known) == len(columns) else None)
        return tuple(parts)

    def _is_carried(self, choice: tuple[int, ...]) -> bool:
        """Return whether columns are carried, and all state can be divided by their values."""
        types = {self.plan.bodies[k].fields[column].type for k, column in enumerate(choice)}
        if len(types) > 1:
            return False
        places = self._find_places([(column,) for column in choice])
        for result, column in zip(self.circuit.results, choice, strict=True):
            found = places[result]
            if found is None or _Place(column) not in found:
                return False
        return -1 not in self._state_columns([(column,) for column in choice])

    def _state_columns(self, choice: _Choice) -> list[int | None]:
        """Return the column of each part of the state; None for a copy, -1 if it has none."""
        places = self._find_places(choice)
        parts: list[int | None] = []
        for position, is_outside in self.nodes:
            node, found = self.graph.nodes[position], places[position]
            if isinstance(node.plan, RowIdEncode):
                kept = node.plan.kept_count
                columns = {kept + p.encoded if p.column == kept else p.column for p in found or ()}
            else:
                columns = {place.column for place in found or () if place.encoded < 0}
            column = None if found is None else min(columns, default=-1)
            # The circuit in one process may keep the rows of a node for other readers.
            parts.append(column if column != -1 or node.is_arranged else None)
            if not is_outside:
                traces = getattr(node.operator, "traces", ())
                trace_column = None if found is None else _trace_column(node.plan, columns)
                parts += [trace_column] * len(traces)
        return parts

    def _find_places(self, choice: _Choice) -> dict[int, _Places]:
        """Return the places that have the carried value in the rows of each node.

        Args:
            choice: For each recursive relation, columns that may have the carried value.
        """
        places: dict[int, _Places] = {}
        assumed = [frozenset(map(_Place, columns)) for columns in choice]
        for position in self._order:
            node = self.graph.nodes[position]
            if position in self.circuit.references:
                places[position] = assumed[self.circuit.references.index(position)]
            elif isinstance(node.plan, Scan) and node.plan.relation in self.bases:
                index, _ = self.bases[node.plan.relation]
                places[position] = assumed[index]
            elif position == self.number:
                places[position] = places[self.circuit.results[self.plan.index]]
            else:
                inputs = [places[i] for i in node.inputs]
                places[position] = _places_of(node.plan, inputs)
        return places

    def _find_base_nodes(self) -> set[int]:
        """Return the linear nodes that read only base rows."""
        found: set[int] = set()
        for position in self._order:
            node = self.graph.nodes[position]
            plan = node.plan
            is_base = isinstance(plan, Scan) and plan.relation in self.bases
            if is_base or (plan.is_linear and node.inputs and found.issuperset(node.inputs)):
                found.add(position)
        return found


def _places_of(plan: PlanNode, inputs: Sequence[_Places]) -> _Places:
    """Return the places of the carried value in the rows of an operator.

    They are None if all inputs are copies, and empty if the rows cannot be divided.

    Args:
        plan: The operator.
        inputs: The places in the rows of its inputs.
    """
    if all(places is None for places in inputs):
        return None
    divided = [places for places in inputs if places is not None]
    match plan:
        case Filter() | Negate() | Distinct() | Positive():
            return divided[0]
        case Union():
            # The rows of a copy would be in all cells.
            return frozenset.intersection(*divided) if len(divided) == len(inputs) else frozenset()
        case Map():
            return frozenset(
                place._replace(column=column)
                for column, expression in enumerate(plan.expressions)
                if isinstance(expression, Column)
                for place in divided[0]
                if place.column == expression.index
            )
        case Join():
            return _places_of_join(plan, inputs)
        case RecursiveDistinct():
            return frozenset(place for place in divided[0] if place.column != plan.mode.column)
        case RowIdEncode():
            kept = plan.kept_count
            return frozenset(
                place if place.column < kept else _Place(kept, place.column - kept)
                for place in divided[0]
                if place.encoded < 0
            )
        case RowIdDecode():
            return _places_of_decoded_rows(plan, divided[0])
    return frozenset()


def _places_of_join(plan: Join, inputs: Sequence[_Places]) -> _Places:
    by_input = [
        frozenset(place._replace(column=variables[place.column]) for place in places)
        for places, variables in zip(inputs, plan.variables, strict=True)
        if places is not None
    ]
    common = frozenset.intersection(*by_input)
    return frozenset(
        place._replace(column=column)
        for column, variable in enumerate(plan.head)
        for place in common
        if place.column == variable
    )


def _places_of_decoded_rows(plan: RowIdDecode, places: frozenset[_Place]) -> _Places:
    encoders = dict(plan.row_ids)
    found, start = set(), 0
    for column in range(len(plan.input.fields)):
        for place in places:
            if place.column == column:
                found.add(_Place(start + max(place.encoded, 0)))
        start += len(encoders[column].encoded) if column in encoders else 1
    return frozenset(found)


def _trace_column(plan: PlanNode, columns: Iterable[int]) -> int:
    """Return the column of an operator's trace that has the carried value; -1 if there is none."""
    match plan:
        case RecursiveDistinct():
            # A trace of a minimum has the keys, the value, and the iteration.
            value = plan.mode.column
            return min((c - (value is not None and c > value) for c in columns), default=-1)
        case Distinct() | Positive():
            return min(columns, default=-1)
    return -1


def _match_nodes(
    cell: _CellGraph, graph: Graph, number: int, copies: Mapping[str, int]
) -> tuple[RecursionNode, ...]:
    """Return the nodes of the whole circuit that have the state of the nodes of a cell.

    Args:
        cell: The operators of a cell.
        graph: The graph of the whole circuit.
        number: The position of the node of one relation of the recursion.
        copies: As `DividedRecursion.copies`.

    Raises:
        NotDivided: The operators differ in more than the base rows.
    """
    sources = {**graph.views, **copies}
    sources |= {
        node.name: position
        for position, node in enumerate(graph.nodes)
        if node.operator is None and isinstance(node.plan, Scan)
    }
    matched: dict[int, int] = {}
    pending = [(cell.number, number)]
    while pending:
        position, other = pending.pop()
        if position in matched:
            if matched[position] != other:
                raise NotDivided("its operators in cells differ from those in one process")
            continue
        if position in cell.base_nodes:
            if cell.graph.nodes[position].is_arranged:
                raise NotDivided("a join reads the rows that begin the recursion")
            continue
        matched[position] = other
        node, other_node = cell.graph.nodes[position], graph.nodes[other]
        plan, other_plan = node.plan, other_node.plan
        nested = cell.graph.nested_circuits.get(position)
        other_nested = graph.nested_circuits.get(other)
        inputs: tuple[int, ...]
        other_inputs: tuple[int, ...]
        if isinstance(plan, Scan):
            is_equal = other == sources[plan.relation]
            inputs, other_inputs = (), ()
        elif nested is not None and other_nested is not None:
            is_equal = nested.names == other_nested.names
            inputs = (*nested.results, *nested.references)
            other_inputs = (*other_nested.results, *other_nested.references)
        else:
            is_equal = type(plan) is type(other_plan) and plan.key() == other_plan.key()
            inputs, other_inputs = node.inputs, other_node.inputs
        if not is_equal or len(inputs) != len(other_inputs):
            raise NotDivided("its operators in cells differ from those in one process")
        pending += zip(inputs, other_inputs, strict=True)
    return tuple((matched.get(position), is_outside) for position, is_outside in cell.nodes)
