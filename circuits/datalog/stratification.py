"""Stratification: the strongly connected components of heads, each after those that it uses.

A component of one head that does not use itself is evaluated once. Any other component is a
recursion, and its heads are evaluated together (`circuits.datalog.recursion`). A recursion through
a negation or an aggregate is not stratified and is refused here, except for ``min`` and ``max``,
which may be monotone (`circuits.datalog.recursive_min_max`).

References:
    Tarjan. Depth-first search and linear graph algorithms. SIAM J. Computing 1(2), 1972.
    Apt, Blair, Walker. Towards a theory of declarative knowledge, 1988 (stratification).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from circuits.datalog.program import And, Apply, Atom, Items, Not, Or, Program, Rule, walk
from circuits.datalog.terms import AGGREGATES, MIN_MAX

__all__ = ["Stratum", "Use", "connected_components", "find_uses", "stratify"]


@dataclass(frozen=True, slots=True)
class Use:
    """A head that a rule uses.

    It is ``negative`` below a not, and in a rule with an aggregate other than min and max.
    """

    head: str
    negative: bool
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Heads that are evaluated together, and whether they use each other."""

    heads: tuple[str, ...]
    recursive: bool


def find_uses(program: Program) -> dict[str, list[Use]]:
    """Return the heads of the program that the rules of each head use."""
    heads = program.heads
    return {
        head: [use for rule in rules for use in _uses_of_rule(rule) if use.head in heads]
        for head, rules in heads.items()
    }


def _uses_of_rule(rule: Rule) -> Iterator[Use]:
    never = AGGREGATES - MIN_MAX
    aggregate = any(isinstance(n, Apply) and n.function in never for n in walk(*rule.terms))
    return _uses_of_items(rule.body, aggregate)


def _uses_of_items(items: Items, negative: bool) -> Iterator[Use]:
    for item in items:
        match item:
            case Atom():
                yield Use(item.relation, negative, item.offset)
            case Not():
                yield from _uses_of_items(item.items, True)
            case And():
                yield from _uses_of_items(item.items, negative)
            case Or():
                yield from _uses_of_items(tuple(i for a in item.alternatives for i in a), negative)


def connected_components(edges: Mapping[str, list[Use]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of the heads, each after all that it uses.

    >>> from circuits.datalog.parser import parse
    >>> program = parse("a(x) :- b(x). b(x) :- c(x). b(x) :- e(x, y), b(y). c(x) :- d(x).")
    >>> connected_components(find_uses(program))
    [('c',), ('b',), ('a',)]

    Complexity:
        O(heads + uses), without recursion.
    """
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []  # heads whose component is still open
    found: dict[str, None] = {}
    components: list[tuple[str, ...]] = []
    for root in edges:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        path.append(root)
        found[root] = None
        stack = [(root, iter(edges[root]))]
        while stack:
            head, rest = stack[-1]
            for use in rest:
                if use.head not in number:
                    number[use.head] = low[use.head] = len(number)
                    path.append(use.head)
                    found[use.head] = None
                    stack.append((use.head, iter(edges[use.head])))
                    break
                if use.head in found:
                    low[head] = min(low[head], number[use.head])
            else:
                stack.pop()
                if stack:
                    below = stack[-1][0]
                    low[below] = min(low[below], low[head])
                if low[head] == number[head]:
                    start = path.index(head)
                    components.append(tuple(path[start:]))
                    for member in path[start:]:
                        del found[member]
                    del path[start:]
    return components


def stratify(program: Program) -> list[Stratum]:
    """Return the strata, each after all that it uses.

    Raises:
        DatalogError: A cycle goes through a negation or an aggregate; the message names it.
    """
    edges = find_uses(program)
    found = []
    for heads in connected_components(edges):
        inside = [(head, use) for head in heads for use in edges[head] if use.head in heads]
        for head, use in inside:
            if use.negative:
                cycle = " -> ".join([head, *_shortest_path(edges, use.head, head, heads)])
                raise program.source.error(
                    f"the rules are not stratified: {cycle} goes through a negation or an "
                    f"aggregate, so {head!r} would depend on its own absence; break the cycle",
                    use.offset,
                )
        found.append(Stratum(heads, bool(inside)))
    return found


def _shortest_path(
    edges: Mapping[str, list[Use]], start: str, goal: str, component: tuple[str, ...]
) -> list[str]:
    """Return the shortest path of uses from ``start`` to ``goal`` within a component."""
    before: dict[str, str] = {start: ""}
    queue = [start]
    for head in queue:
        for use in edges[head]:
            if use.head in component and use.head not in before:
                before[use.head] = head
                queue.append(use.head)
    path_back = [goal]
    while path_back[-1] != start:
        path_back.append(before[path_back[-1]])
    return path_back[::-1]
