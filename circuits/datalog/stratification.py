"""Stratification: the order in which heads are evaluated, each after those that it uses.

A head uses the relations in the bodies of its rules. The strongly connected components of this
graph are the *strata*. A stratum of one head that does not use itself is evaluated once. Any other
stratum is a recursion, and its heads are evaluated together (`circuits.datalog.recursion`). A
recursion through a negation or an aggregate raises an error here, except through ``min`` and
``max``, which may be monotone (`circuits.datalog.recursive_min_max`).

References:
    Tarjan. Depth-first search and linear graph algorithms. SIAM J. Computing 1(2), 1972.
    Apt, Blair, Walker. Towards a theory of declarative knowledge, 1988 (stratification).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from circuits.datalog.program import And, Atom, FunctionCall, Items, Not, Or, Program, Rule, walk
from circuits.datalog.terms import AGGREGATES, MIN_MAX

__all__ = ["HeadReference", "Stratum", "connected_components", "find_references", "stratify"]


@dataclass(frozen=True, slots=True)
class HeadReference:
    """A head in the body of a rule.

    The reference is negative inside a ``not``, and in a rule with an aggregate other than ``min``
    and ``max``: more rows of the head can then delete rows of the rule.
    """

    head: str
    is_negative: bool
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Heads that are evaluated together, and whether they use each other."""

    heads: tuple[str, ...]
    recursive: bool


def find_references(program: Program) -> dict[str, list[HeadReference]]:
    """Return the references to heads in the rules of each head."""
    heads = program.heads
    return {
        head: [
            reference
            for rule in rules
            for reference in _references_of_rule(rule)
            if reference.head in heads
        ]
        for head, rules in heads.items()
    }


def _references_of_rule(rule: Rule) -> Iterator[HeadReference]:
    functions = {node.function for node in walk(*rule.terms) if isinstance(node, FunctionCall)}
    is_negative = not functions.isdisjoint(AGGREGATES - MIN_MAX)
    return _references_of_items(rule.body, is_negative)


def _references_of_items(items: Items, is_negative: bool) -> Iterator[HeadReference]:
    for item in items:
        match item:
            case Atom():
                yield HeadReference(item.relation, is_negative, item.offset)
            case Not():
                yield from _references_of_items(item.items, True)
            case And():
                yield from _references_of_items(item.items, is_negative)
            case Or():
                for alternative in item.alternatives:
                    yield from _references_of_items(alternative, is_negative)


def connected_components(
    references: Mapping[str, list[HeadReference]],
) -> list[tuple[str, ...]]:
    """Return the strongly connected components of the heads, each after all that it uses.

    >>> from circuits.datalog.parser import parse
    >>> program = parse("a(x) :- b(x). b(x) :- c(x). b(x) :- e(x, y), b(y). c(x) :- d(x).")
    >>> connected_components(find_references(program))
    [('c',), ('b',), ('a',)]

    Complexity:
        O(heads + references), without recursion.
    """
    # Tarjan's algorithm: ``order`` numbers the heads in the order of the search; ``low`` is the
    # least number that a head reaches through heads whose component is not complete.
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_heads: list[str] = []  # heads whose component is not complete
    is_open: set[str] = set()
    components: list[tuple[str, ...]] = []
    for root in references:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        open_heads.append(root)
        is_open.add(root)
        stack = [(root, iter(references[root]))]
        while stack:
            head, remaining = stack[-1]
            for reference in remaining:
                used = reference.head
                if used not in order:
                    order[used] = low[used] = len(order)
                    open_heads.append(used)
                    is_open.add(used)
                    stack.append((used, iter(references[used])))
                    break
                if used in is_open:
                    low[head] = min(low[head], order[used])
            else:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[head])
                if low[head] == order[head]:
                    start = open_heads.index(head)
                    component = tuple(open_heads[start:])
                    components.append(component)
                    is_open.difference_update(component)
                    del open_heads[start:]
    return components


def stratify(program: Program) -> list[Stratum]:
    """Return the strata, each after all that it uses.

    Raises:
        DatalogError: A cycle goes through a negation or an aggregate; the message names it.
    """
    references = find_references(program)
    strata = []
    for heads in connected_components(references):
        is_recursive = False
        for head in heads:
            for reference in references[head]:
                if reference.head not in heads:
                    continue
                is_recursive = True
                if reference.is_negative:
                    path = _shortest_path(references, reference.head, head, heads)
                    cycle = " -> ".join([head, *path])
                    raise program.source.error(
                        f"the rules are not stratified: {cycle} goes through a negation or an "
                        f"aggregate, so {head!r} would depend on its own absence; break the cycle",
                        reference.offset,
                    )
        strata.append(Stratum(heads, is_recursive))
    return strata


def _shortest_path(
    references: Mapping[str, list[HeadReference]],
    start: str,
    goal: str,
    component: tuple[str, ...],
) -> list[str]:
    """Return the shortest path of references from ``start`` to ``goal`` within a component."""
    predecessors: dict[str, str] = {start: ""}
    queue = [start]
    for head in queue:
        for reference in references[head]:
            if reference.head in component and reference.head not in predecessors:
                predecessors[reference.head] = head
                queue.append(reference.head)
    path = [goal]
    while path[-1] != start:
        path.append(predecessors[path[-1]])
    return path[::-1]
