"""A Datalog program as values: terms, body items, rules.

::

    big(x, k + 1, count() as n) :- e(x, y), k = y * 2, not ban(x), or(p(y) ; and(q(y), x < y)).

Every node is frozen and knows the offset ``at`` in the text that it was read from, which equality
ignores. ``parts`` gives the children of any node, so that walks need no visitor; the parser bounds
the nesting (``DEPTH``), so that they may recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from circuits.datalog.source import DatalogSource

__all__ = [
    "DEPTH",
    "And",
    "Apply",
    "Atom",
    "Comparison",
    "Condition",
    "Constant",
    "HeadTerm",
    "Item",
    "Items",
    "Node",
    "Not",
    "Or",
    "Pattern",
    "Program",
    "Rule",
    "Term",
    "Variable",
    "Wildcard",
    "parts",
    "variables_of",
    "walk",
]

DEPTH: Final = 80


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, without its question mark."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """``_``: some value, a different one at each place."""

    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value with its Arrow type; ``None`` is NULL."""

    value: Any
    type: pa.DataType
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression, as in ``re-find(/an/, name)``."""

    text: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of terms; ``x + 1`` is ``add`` of two. In heads also an aggregate."""

    function: str
    arguments: tuple[Term, ...]
    at: int = field(default=0, compare=False)


Term = Variable | Wildcard | Constant | Pattern | Apply


@dataclass(frozen=True, slots=True)
class Atom:
    """``relation(terms)``; read as a `Condition` where a function has that name, no relation."""

    relation: str
    terms: tuple[Term, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right``, op one of ``= == != < <= > >=``; ``=`` can bind a variable."""

    op: str
    left: Term
    right: Term
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Condition:
    """A function that must be true, as ``starts_with(name, "A")``; made by the resolver."""

    term: Apply
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The items do not hold together."""

    items: Items
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Some alternative holds; each is a conjunction."""

    alternatives: tuple[Items, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """All items hold; of use inside or and not."""

    items: Items
    at: int = field(default=0, compare=False)


Item = Atom | Comparison | Condition | Not | Or | And
Items = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class HeadTerm:
    """A column of a head, with the name that ``as`` gives it."""

    term: Term
    alias: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """``head(terms) :- body``; a fact has an empty body."""

    head: str
    terms: tuple[HeadTerm, ...]
    body: Items
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Program:
    """Rules in the order of the text, at least one."""

    rules: tuple[Rule, ...]
    source: DatalogSource = field(compare=False)

    @property
    def heads(self) -> dict[str, list[Rule]]:
        """The rules of each head, in order of first occurrence."""
        heads: dict[str, list[Rule]] = {}
        for rule in self.rules:
            heads.setdefault(rule.head, []).append(rule)
        return heads


Node = Term | Item | HeadTerm | Rule


def parts(node: Node) -> tuple[Node, ...]:
    """The children of a node."""
    match node:
        case Apply():
            return node.arguments
        case Atom():
            return node.terms
        case Comparison():
            return (node.left, node.right)
        case Not() | And():
            return node.items
        case Or():
            return tuple(item for items in node.alternatives for item in items)
        case HeadTerm() | Condition():
            return (node.term,)
        case Rule():
            return (*node.terms, *node.body)
        case _:
            return ()


def walk(*nodes: Node) -> Iterator[Node]:
    """The nodes and all below them, each before its children, in the order of the text."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(parts(node)))


def variables_of(*nodes: Node) -> dict[str, Variable]:
    """The first occurrence of each variable below the nodes, in the order of the text."""
    found: dict[str, Variable] = {}
    for node in walk(*nodes):
        if isinstance(node, Variable):
            found.setdefault(node.name, node)
    return found
