"""Pattern: the graph pattern that the rows of a view match, if the page can draw it.

::

    SELECT x.src AS a, y.src AS b, z.src AS c
    FROM e x JOIN e y ON y.src = x.dst JOIN e z ON z.src = y.dst AND z.dst = x.src

is a ring of three: the nodes a, b, c and the edges a-b, b-c, c-a. The nodes are the join variables,
and each atom (an occurrence of a relation in the join) is an edge between its join variables. A row
of the view is one match, with a value for each node. A view has a pattern if it is one join,
possibly with columns omitted or reordered, if all join variables are among its columns, and if the
edges contain at least one ring. A chain of tables that are joined by keys has no pattern.

The pattern is derived from the plan that runs, so SQL and Datalog give the same pattern. A view
that only counts its matches has no pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from circuits.plan.expressions import Column
from circuits.plan.nodes import Distinct, Filter, Map
from circuits.plan.physical_nodes import Join
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
                columns = [
                    _column_index(expressions[c]) if c is not None else None for c in columns
                ]
            case Distinct() | Filter():
                pass
            case _:
                return None
        (number,) = graph.nodes[number].inputs
        plan = graph.nodes[number].plan
    index_of_variable = {
        plan.head[column]: index for index, column in enumerate(columns) if column is not None
    }
    return _pattern(plan, index_of_variable)


def _pattern(plan: Join, index_of_variable: dict[int, int]) -> Pattern | None:
    atom_counts = Counter(v for variables in plan.variables for v in set(variables))
    nodes = [variable for variable, atoms in sorted(atom_counts.items()) if atoms > 1]
    if len(nodes) < 2 or any(variable not in index_of_variable for variable in nodes):
        return None
    node_of = {variable: number for number, variable in enumerate(nodes)}
    edges: list[tuple[int, int]] = []
    for variables in plan.variables:
        node_variables = list(dict.fromkeys(v for v in variables if v in node_of))
        edges += [(node_of[a], node_of[b]) for a, b in pairwise(node_variables)]
    edges = list(dict.fromkeys(edges))
    if not _has_ring(len(nodes), edges):
        return None
    return Pattern(tuple(index_of_variable[variable] for variable in nodes), tuple(edges))


def _column_index(expression: object) -> int | None:
    return expression.index if isinstance(expression, Column) else None


def _has_ring(nodes: int, edges: Iterable[tuple[int, int]]) -> bool:
    """Return whether the edges, taken as undirected, contain a cycle (by union-find)."""
    roots = list(range(nodes))

    def root(node: int) -> int:
        while roots[node] != node:
            node = roots[node]
        return node

    undirected_edges = {frozenset(edge) for edge in edges}
    for edge in undirected_edges:
        start, *end = edge
        if not end:  # from a node to itself
            continue
        if root(start) == root(end[0]):
            return True
        roots[root(start)] = root(end[0])
    return False
