"""Pattern: the graph pattern that the rows of a view match, if the page can draw it.

::

    SELECT x.src AS a, y.src AS b, z.src AS c
    FROM e x JOIN e y ON y.src = x.dst JOIN e z ON z.src = y.dst AND z.dst = x.src

is a ring of three. The join variables are the nodes, and each atom is an edge between
consecutive join variables of the atom. A row of the view is then one match, with a value for each
node. A view has a pattern if it is one join, possibly with columns omitted or reordered, if all
join variables are among its columns, and if the edges close at least one ring. A chain of tables
that are joined by keys has no pattern.

The pattern is derived from the plan that runs, so SQL and Datalog give the same pattern. A view
that only counts its matches has no pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from circuits.plan.expressions import Column
from circuits.plan.nodes import Distinct, Filter, Join, Map
from circuits.runtime.graph import Graph

__all__ = ["Pattern", "pattern_of"]


@dataclass(frozen=True)
class Pattern:
    """A small graph over columns of a view.

    Attributes:
        nodes: The indices of the columns whose values are nodes.
        edges: Pairs of indices into ``nodes``.
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]


def pattern_of(graph: Graph, view: str) -> Pattern | None:
    """Return the pattern of a view; None if it has no pattern.

    Complexity:
        O(operators + variables).
    """
    number = graph.views[view]
    plan = graph.nodes[number].plan
    # For each column of the view, its column in the current plan; None if it is computed.
    columns: list[int | None] = list(range(len(plan.fields)))
    while not isinstance(plan, Join):
        match plan:
            case Map(_, expressions):
                columns = [_place(expressions[c]) if c is not None else None for c in columns]
            case Distinct() | Filter():
                pass
            case _:
                return None
        (number,) = graph.nodes[number].inputs
        plan = graph.nodes[number].plan
    shown = {plan.head[column]: place for place, column in enumerate(columns) if column is not None}
    return _pattern(plan, shown)


def _pattern(plan: Join, shown: dict[int, int]) -> Pattern | None:
    atom_counts = Counter(v for variables in plan.variables for v in set(variables))
    nodes = [variable for variable, atoms in sorted(atom_counts.items()) if atoms > 1]
    if len(nodes) < 2 or any(variable not in shown for variable in nodes):
        return None
    places = {variable: place for place, variable in enumerate(nodes)}
    edges: list[tuple[int, int]] = []
    for variables in plan.variables:
        here = list(dict.fromkeys(v for v in variables if v in places))
        edges += [(places[a], places[b]) for a, b in pairwise(here)]
    edges = list(dict.fromkeys(edges))
    if not _has_ring(len(nodes), edges):
        return None
    return Pattern(tuple(shown[variable] for variable in nodes), tuple(edges))


def _place(expression: object) -> int | None:
    return expression.index if isinstance(expression, Column) else None


def _has_ring(nodes: int, edges: Iterable[tuple[int, int]]) -> bool:
    """Return whether the edges, taken as undirected, contain a cycle (by union-find)."""
    roots = list(range(nodes))

    def root(node: int) -> int:
        while roots[node] != node:
            node = roots[node]
        return node

    both = {frozenset(edge) for edge in edges}
    for edge in both:
        one, *other = edge
        if not other:
            continue
        if root(one) == root(other[0]):
            return True
        roots[root(one)] = root(other[0])
    return False
