"""The syntax tree of a Datalog program: terms, body items, rules.

::

    big(x, k + 1, count() as n) :- e(x, y), k = y * 2, not ban(x), or(p(y) ; and(q(y), x < y)).

Variables, atoms and comparisons are those of `dbsp_wcoj.query`. Datalog adds wildcards, typed
constants, functions, equations, negation, ``or`` and ``and``.

Every node is frozen. Its ``offset`` is its position in the text; equality ignores it. ``children``
returns the children of any node, so that walks need no visitor. The parser limits the nesting
(``MAX_NESTING_DEPTH``), so that later passes may recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from circuits.datalog.source import DatalogSource
from dbsp_wcoj.query import Atom, Comparison, Constant, SyntaxNode, Term, Variable

__all__ = [
    "MAX_NESTING_DEPTH",
    "And",
    "Atom",
    "Comparison",
    "Condition",
    "Equation",
    "FunctionCall",
    "HeadTerm",
    "Item",
    "Items",
    "Not",
    "Or",
    "Pattern",
    "Program",
    "Rule",
    "SyntaxNode",
    "Term",
    "TypedConstant",
    "Variable",
    "Wildcard",
    "children",
    "variables_of",
    "walk",
]

MAX_NESTING_DEPTH: Final = 80


@dataclass(frozen=True, slots=True)
class Wildcard(Term):
    """``_``: any value; two wildcards may have different values."""


@dataclass(frozen=True, slots=True)
class TypedConstant(Constant):
    """A value with its Arrow type; ``None`` is NULL."""

    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Pattern(Term):
    """A regular expression, as in ``re-find(/an/, name)``."""

    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall(Term):
    """A call of a function, or of an aggregate in a head; ``x + 1`` is ``add(x, 1)``."""

    function: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Equation(SyntaxNode):
    """``left = right``: compares both sides, or binds a variable to the value of the other side.

    ``left == right`` only compares; it is a `Comparison`.
    """

    #: The operator if both sides are compared.
    op: ClassVar[str] = "=="

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Condition(SyntaxNode):
    """A function that must be true, as ``starts_with(name, "A")``.

    To the parser it is an atom. `circuits.datalog.safety` replaces an atom by a condition if its
    name is that of a function, but not of a relation.
    """

    term: FunctionCall


@dataclass(frozen=True, slots=True)
class Not(SyntaxNode):
    """True if the items are not all true."""

    items: Items


@dataclass(frozen=True, slots=True)
class Or(SyntaxNode):
    """True if all items of at least one alternative are true."""

    alternatives: tuple[Items, ...]


@dataclass(frozen=True, slots=True)
class And(SyntaxNode):
    """True if all items are true; used inside an ``or`` or a ``not``."""

    items: Items


Item = Atom | Comparison | Equation | Condition | Not | Or | And
Items = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class HeadTerm(SyntaxNode):
    """A column of a head; ``alias`` is its name after ``as``."""

    term: Term
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Rule(SyntaxNode):
    """``head(terms) :- body``; a fact has an empty body."""

    head: str
    terms: tuple[HeadTerm, ...]
    body: Items


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


def children(node: SyntaxNode) -> tuple[SyntaxNode, ...]:
    """Return the children of a node."""
    match node:
        case FunctionCall():
            return node.arguments
        case Atom():
            return node.terms
        case Comparison() | Equation():
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


def walk(*nodes: SyntaxNode) -> Iterator[SyntaxNode]:
    """Yield the nodes and all their descendants, parents first, in the order of the text."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def variables_of(*nodes: SyntaxNode) -> dict[str, Variable]:
    """Return the first occurrence of each variable in the nodes, by name, in text order."""
    variables: dict[str, Variable] = {}
    for node in walk(*nodes):
        if isinstance(node, Variable):
            variables.setdefault(node.name, node)
    return variables
