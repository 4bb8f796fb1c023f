"""List rules: find the recursions whose small iterations a compiled loop can run.

These are recursions of one relation of one or two columns, each rule of which joins it once with
one or two relations that do not depend on it (`dbsp_wcoj.execution.list_loop`): closures, same
generation, reachability.

If columns may be NULL, the joins read filters that drop the rows with NULL. The loop runs only if
no row has one, so each filter passes all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from circuits.plan.expressions import Call, Column, Expression
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.linear import FilterOperator, MapOperator, UnionOperator
from circuits.runtime.operators.recursive_distinct import RecursiveSetOperator
from dbsp_wcoj.execution.list_loop import ListRule, find_list_rule

__all__ = ["ListRules", "RecursiveRule", "find_list_rules"]


@dataclass(frozen=True)
class RecursiveRule:
    """A rule of a recursion.

    Attributes:
        rule: The rule.
        join: The position of its join.
        readers: The positions of the projections and unions between the join and the distinct.
    """

    rule: ListRule
    join: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class ListRules:
    """The rules of a recursion.

    Attributes:
        rules: The rules, at least one.
        filters: The positions of the filters that drop rows with NULL before joins read them.
    """

    rules: tuple[RecursiveRule, ...]
    filters: tuple[int, ...]


def find_list_rules(
    nodes: Sequence[Node], order: Collection[int], reference: int, result: int
) -> ListRules | None:
    """Return the rules of a recursion of one relation; None if one does not have this form.

    Args:
        nodes: The nodes of the graph.
        order: The positions of the nodes of the recursion without the reference.
        reference: The position of the node from which the rules read the relation.
        result: The position of the node that computes its rows.
    """
    if not isinstance(nodes[result].operator, RecursiveSetOperator) or nodes[result].is_arranged:
        return None
    filters = [
        position
        for position in order
        if nodes[position].inputs == (reference,) and _drops_null(nodes[position])
    ]
    sources = {reference, *filters}
    rules = []
    found = {result, *filters}
    # The nodes to visit, with their readers and the columns that these read, all if it is None.
    unvisited: list[tuple[int, tuple[int, ...], list[int] | None]] = [
        (nodes[result].inputs[0], (), None)
    ]
    while unvisited:
        position, readers, columns = unvisited.pop()
        node = nodes[position]
        if position not in order and position != reference:
            continue
        if position in found or position == reference or node.is_arranged:
            return None
        found.add(position)
        match node.operator:
            case UnionOperator():
                unvisited += [(i, (*readers, position), columns) for i in node.inputs]
            case MapOperator(columns=projected) if projected is not None:
                read = projected.tolist()
                read = read if columns is None else [read[column] for column in columns]
                unvisited.append((node.inputs[0], (*readers, position), read))
            case JoinOperator(query=query):
                recursive = [i for i in node.inputs if i in sources]
                read = [*range(len(query.head))] if columns is None else columns
                head = [query.head[column] for column in read]
                if len(recursive) != 1:
                    return None
                rule = find_list_rule(query, nodes[recursive[0]].name, head)
                if rule is None:
                    return None
                rules.append(RecursiveRule(rule, position, readers))
            case _:
                return None
    # Other relations of the joins that depend on the recursion are among those not found.
    return ListRules(tuple(rules), tuple(filters)) if rules and found == {*order} else None


def _drops_null(node: Node) -> bool:
    """Return whether a node is a filter that only drops rows with NULL in some columns."""
    return isinstance(node.operator, FilterOperator) and _is_not_null(node.operator.predicate)


def _is_not_null(predicate: Expression) -> bool:
    match predicate:
        case Call("and", arguments):
            return all(map(_is_not_null, arguments))
        case Call("not", (Call("is_null", (Column(),)),)):
            return True
    return False
