"""Grouped inputs: large relations of a recursion that need no order in the first step.

A recursion over a graph looks up the edges of each vertex that it reaches::

    reached(y) :- edge(x, y), x < 10.
    reached(y) :- reached(x), edge(x, y).

Its joins read the targets of a source as a whole, so the first step only groups the edges by their
source (`dbsp_wcoj.storage.grouped_rows`). The filter reads the rows of the table in slices
(`circuits.runtime.linear_stage`). The edges are sorted when a later step changes or reads them.

Conditions of the circuit: no state is bounded; the input has two columns. All joins that read it
are joins of the recursion with one recursive relation, and their other variables do not depend on
the second column. All other operators that read the input are filters: a projection or an aggregate
is faster on sorted rows, and a union, which copies all rows, would sort them anyway.

Conditions of the step: the state is empty; there are at least `MIN_PAIRS` rows
(`dbsp_wcoj.storage.pair_sort`), all of them insertions of weight 1; and the first values are dense
(`dbsp_wcoj.storage.grouped_rows.GroupedPairs.of`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from circuits.plan.nodes import RecursiveReference
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.linear import FilterOperator, MapOperator
from dbsp_wcoj.query import Variable

__all__ = ["find_grouped_inputs"]


def find_grouped_inputs(nodes: Sequence[Node], published: Collection[int]) -> frozenset[int]:
    """Return the positions of the inputs whose rows may be grouped.

    Args:
        nodes: The nodes, each after its inputs.
        published: The positions of the views.

    Complexity:
        O(nodes · longest chain of filters and projections).
    """
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for source in node.inputs:
            readers[source].append(position)
    return frozenset(
        position
        for position, node in enumerate(nodes)
        if node.is_input
        and node.is_arranged
        and node.empty.arity == 2
        and position not in published
        and all(_needs_no_order(nodes, position, reader) for reader in readers[position])
    )


def _needs_no_order(nodes: Sequence[Node], position: int, reader: int) -> bool:
    """Return whether an operator needs no order of the rows of the input at a position."""
    node = nodes[reader]
    if not node.is_nested:
        return isinstance(node.operator, FilterOperator)
    if not isinstance(node.operator, JoinOperator) or len(node.inputs) != 2:
        return False
    atom = node.inputs.index(position)
    other = node.inputs[1 - atom]
    # The rows of a reference, filtered or mapped, are those of iterations after the first one.
    while isinstance(nodes[other].operator, FilterOperator | MapOperator):
        (other,) = nodes[other].inputs
    if not isinstance(nodes[other].plan, RecursiveReference):
        return False
    query = node.operator.query
    first, second = query.body[atom].terms
    used = {*query.body[1 - atom].terms}
    for comparison in query.comparisons:
        used |= {comparison.left, comparison.right}
    is_list = isinstance(second, Variable) and second != first and second not in used
    return is_list and first in query.body[1 - atom].terms
