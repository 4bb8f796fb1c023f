"""Conjunctive queries: the syntax tree and its parser.

::

    tri(a, b, c) :- e(a, b), e(b, c), e(a, c), a < b.

This query finds all triangles of the edges ``e``. Before ``:-`` is the head: the name and the
columns of the result. After it is the body: atoms (a relation with one term for each column) and
comparisons, in any order. A term of an atom is a variable (``a``, ``?a``, ``?last-name``), ``_``
for an anonymous variable, an integer or a quoted string. The dot at the end is optional, and ``=``
means ``==``. A query with an empty head, such as ``n() :- e(a, b)``, counts: its result is the
empty row, whose weight is the number of matches.

Queries can also be built without text. A ``Query`` checks its invariant when it is built: at least
one atom; each term is a variable or a constant; each variable of the head and of a comparison
occurs in an atom; each relation has one arity. lark parses the text (LALR(1)); the parser is built
on first use, so that importing this module stays cheap. Datalog (`circuits.datalog.program`)
extends these classes; `dbsp_wcoj.grammar` has the part of the grammar that both share.

Alternatives considered: folding equality with a constant into the atoms. ``e(a, b), a = 3`` keeps
its comparison, so that ``str`` returns the query as written.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import ArityError, QuerySyntaxError, UnsafeVariableError
from dbsp_wcoj.grammar import (
    COMPARISON_OPERATOR,
    ESCAPES,
    RELATION_NAME,
    TERMINAL_NAMES,
    TERMINALS,
    SyntaxFault,
    UnknownEscapeFault,
    describe_unexpected,
    parse_tree,
    unquote,
)
from dbsp_wcoj.text_position import point_at

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

__all__ = ["Atom", "Comparison", "Constant", "Query", "SyntaxNode", "Term", "Variable"]

#: The greatest number that a comparison adds to a side, and the negative of the least one.
MAX_SHIFT: Final = 2**63 - 1
#: The greatest code of a finite value, and the negative of the least one.
MAX_FINITE: Final = 2**63 - 2

# `_term`, `_left` and `_right` are equal. With one rule for all three, an error message would list
# everything that may follow a term anywhere, not only at the position of the fault.
GRAMMAR: Final = (
    r"""
start: head _IMPLIES item ("," item)* "."?
head: RELATION "(" [VARIABLE ("," VARIABLE)*] ")"
?item: atom | comparison
atom: RELATION "(" [_term ("," _term)*] ")"
comparison: _left OPERATOR _right [SHIFT]
_term: VARIABLE | INTEGER | STRING
_left: VARIABLE | INTEGER | STRING
_right: VARIABLE | INTEGER | STRING

"""
    rf"""
RELATION.2: /{RELATION_NAME}(?=\s*\()/
INTEGER: /-?[0-9]+/
OPERATOR: /{COMPARISON_OPERATOR}/
SHIFT: /[+-]\s*[0-9]+/
{TERMINALS}"""
)

# The name of each terminal in an error message.
EXPECTED: Final[Mapping[str, str]] = {
    **TERMINAL_NAMES,
    "RELATION": "a relation name before '('",
    "INTEGER": "an integer",
    "OPERATOR": "one of < <= > >= == !=",
    "SHIFT": "'+' or '-' with an integer",
    "$END": "the end of the query",
}
TEXT_KIND: Final = "a query"
OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of a query or of a Datalog rule.

    Attributes:
        offset: The position of the part in the text that it was read from. Equality and ``repr``
            ignore it.
    """

    offset: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Term(SyntaxNode):
    """A term of an atom or a comparison.

    A `Query` has variables and constants only. Datalog adds other kinds.
    """


@dataclass(frozen=True, slots=True)
class Variable(Term):
    """A join variable.

    >>> str(Variable("a")), str(Variable("last-name"))
    ('a', '?last-name')
    """

    name: str

    def __str__(self) -> str:
        return f"?{self.name}" if "-" in self.name else self.name


@dataclass(frozen=True, slots=True)
class Constant(Term):
    """A fixed value: in the text of a query an integer or a string, in Python any ordered value.

    >>> str(Constant(-3)), str(Constant("Ada"))
    ('-3', '"Ada"')
    """

    value: Hashable

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return json.dumps(self.value, ensure_ascii=False)
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Atom(SyntaxNode):
    """A relation applied to terms.

    >>> atom = Atom("e", (Variable("x"), Constant(7), Variable("x")))
    >>> str(atom), atom.arity, atom.variables
    ('e(x, 7, x)', 3, ('x',))
    """

    relation: str
    terms: tuple[Term, ...]

    @property
    def arity(self) -> int:
        """The number of columns of the relation."""
        return len(self.terms)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the atom's variables, each once, in order of first occurrence."""
        return tuple(dict.fromkeys(t.name for t in self.terms if isinstance(t, Variable)))

    def __str__(self) -> str:
        return f"{self.relation}({', '.join(map(str, self.terms))})"


@dataclass(frozen=True, slots=True)
class Comparison(SyntaxNode):
    """``left op right + shift`` between bound terms.

    The sum is exact: it is not limited to int64, so it never wraps around. The greatest and the
    least codes, above ``2**63 - 2`` or below its negative, are those of infinite timestamps. If one
    of the sides has such a value, nothing is added: an infinite timestamp plus a duration is
    infinite.

    Args:
        left: A variable or a constant; in Datalog any term.
        op: One of ``< <= > >= == !=``.
        right: Likewise.
        shift: An integer of at most 63 bits that is added to ``right``. If it is not 0, the sides
            are two variables.

    Raises:
        QuerySyntaxError: ``op`` is not one of the six operators, or ``shift`` is too large or is
            added to a constant.

    >>> comparison = Comparison(Variable("a"), "<", Constant(5))
    >>> str(comparison), comparison.variables, comparison.holds(4, 5)
    ('a < 5', ('a',), True)
    >>> comparison = Comparison(Variable("a"), "<=", Variable("b"), -10)
    >>> str(comparison), comparison.holds(4, 14), comparison.holds(4, 13)
    ('a <= b - 10', True, False)
    """

    left: Term
    op: str
    right: Term
    shift: int = 0

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            operators = " ".join(OPERATORS)
            raise QuerySyntaxError(f"unknown comparison {self.op!r}; use one of {operators}")
        if abs(self.shift) > MAX_SHIFT:
            raise QuerySyntaxError(
                f"{self.shift} is added to a side of a comparison; it must be from "
                f"{-MAX_SHIFT} to {MAX_SHIFT}"
            )
        if self.shift and len(self.variables) < 2:
            raise QuerySyntaxError(
                f"'{self}' adds a number, but does not compare two variables; "
                f"write the sum as a constant, or remove the number"
            )

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the compared variables, each once, left before right."""
        sides = (self.left, self.right)
        return tuple(dict.fromkeys(s.name for s in sides if isinstance(s, Variable)))

    def holds(self, left: object, right: object) -> bool:
        """Return whether the comparison is true of two values.

        Raises:
            TypeError: The values have no order, as in ``1 < "a"``.
        """
        if self.shift:
            sides = cast(int, left), cast(int, right)
            right = sides[1] + (self.shift if max(map(abs, sides)) <= MAX_FINITE else 0)
        return bool(OPERATORS[self.op](left, right))

    def __str__(self) -> str:
        text = f"{self.left} {self.op} {self.right}"
        return f"{text} {'-' if self.shift < 0 else '+'} {abs(self.shift)}" if self.shift else text


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunctive query with comparisons.

    Args:
        name: The name of the result.
        head: The variables of the columns of the result; a variable may occur more than once.
        body: The atoms that are joined, at least one. One relation may occur several times.
        comparisons: Conditions on the bound variables.

    Raises:
        QuerySyntaxError: The body has no atom, or a term is neither a variable nor a constant.
        UnsafeVariableError: A variable of the head or of a comparison is in no atom.
        ArityError: A relation is used with two arities.

    >>> query = Query.parse("tri(a, b, c) :- e(a, b), e(b, c), e(a, c), a < b")
    >>> query.variables, query.relations
    (('a', 'b', 'c'), {'e': 2})
    >>> print(query)
    tri(a, b, c) :- e(a, b), e(b, c), e(a, c), a < b
    """

    name: str
    head: tuple[str, ...]
    body: tuple[Atom, ...]
    comparisons: tuple[Comparison, ...] = ()

    def __post_init__(self) -> None:
        if not self.body:
            raise QuerySyntaxError(f"query {self.name!r} has 0 atoms; give it at least 1")
        for term in self._terms():
            if not isinstance(term, Variable | Constant):
                raise QuerySyntaxError(f"term {term!r} must be a Variable or a Constant")
        bound = self.variables
        uses = [(variable, f"the head of {self.name!r}") for variable in self.head]
        for comparison in self.comparisons:
            uses += [(variable, f"'{comparison}'") for variable in comparison.variables]
        for variable, place in uses:
            if variable not in bound:
                raise UnsafeVariableError(
                    f"variable {variable!r} of {place} is in no atom; use it in an atom or remove "
                    f"it; variables of atoms: {', '.join(bound) or 'none'}"
                )
        arities: dict[str, int] = {}
        for atom in self.body:
            if arities.setdefault(atom.relation, atom.arity) != atom.arity:
                raise ArityError(
                    f"'{atom}' has {atom.arity} terms, but {atom.relation!r} has arity "
                    f"{arities[atom.relation]} earlier in the body; use one arity per relation"
                )

    @staticmethod
    def parse(text: str) -> Query:
        """Parse a query.

        Args:
            text: ``head(vars) :- atom(terms), …, a < b, …`` with an optional dot at the end.

        Returns:
            The query. Each ``_`` becomes a variable ``_1``, ``_2``, … that the text does not use.
            ``Query.parse(str(query)) == query``.

        Raises:
            QuerySyntaxError: The text is not a query; the message points at the fault.
            UnsafeVariableError: A variable of the head or of a comparison is in no atom.
            ArityError: A relation is used with two arities.

        Complexity:
            O(len(text)).

        >>> Query.parse("n() :- name(?e, 'Ada'), age(e, _)").body[1]
        Atom(relation='age', terms=(Variable(name='e'), Variable(name='_1')))
        >>> Query.parse("out(a, b) :- e(a b)")
        Traceback (most recent call last):
        ...
        dbsp_wcoj.errors.QuerySyntaxError: line 1, column 18: found 'b', expected ')' or ','
          out(a, b) :- e(a b)
                           ^
        """
        check_type("query", text, str, "a text, as in 'q(a) :- e(a, b)'")
        try:
            return _to_query(text, parse_tree(_parser(), text, EXPECTED, TEXT_KIND))
        except UnknownEscapeFault as fault:
            expected = (f"one of the escapes {ESCAPES}",)
            found = f"escape '{fault.escape}'"
            raise _unexpected(text, fault.offset, expected, found) from None
        except SyntaxFault as fault:
            raise _syntax_error(text, fault.offset, fault.message) from None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of all variables, in order of first occurrence in the body."""
        return tuple(dict.fromkeys(name for atom in self.body for name in atom.variables))

    @property
    def relations(self) -> dict[str, int]:
        """Arity of each relation of the body, in order of first occurrence."""
        return {atom.relation: atom.arity for atom in self.body}

    def _terms(self) -> Iterator[Term]:
        for atom in self.body:
            yield from atom.terms
        for comparison in self.comparisons:
            yield from (comparison.left, comparison.right)

    def __str__(self) -> str:
        head = ", ".join(str(Variable(name)) for name in self.head)
        return f"{self.name}({head}) :- {', '.join(map(str, (*self.body, *self.comparisons)))}"


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False)


def _to_query(text: str, tree: Tree[Token]) -> Query:
    head, *items = cast("list[Tree[Token]]", tree.children)
    used_names = {str(token).lstrip("?") for token in tree.scan_values(_is_variable)}
    anonymous_names = _fresh_names(used_names)
    atoms: list[Atom] = []
    comparisons: list[Comparison] = []
    for item in items:
        tokens = cast("list[Token]", item.children)
        if item.data == "atom":
            relation, *arguments = tokens
            terms: list[Term] = []
            for token in arguments:
                term = _to_term(text, token)
                is_anonymous = term == Variable("_")
                terms.append(Variable(next(anonymous_names)) if is_anonymous else term)
            atoms.append(Atom(str(relation), tuple(terms)))
        else:
            left, op, right, *shifts = tokens
            normalized = "==" if op == "=" else str(op)
            sides = _to_term(text, left), _to_term(text, right)
            shift = sum(_to_shift(text, token) for token in shifts)
            comparisons.append(Comparison(sides[0], normalized, sides[1], shift))
    if not atoms:
        raise _unexpected(text, len(text.rstrip()), (EXPECTED["RELATION"],))
    name, *variables = (str(token) for token in cast("list[Token]", head.children))
    return Query(name, tuple(v.lstrip("?") for v in variables), tuple(atoms), tuple(comparisons))


def _is_variable(node: Token | Tree[Token]) -> bool:
    return getattr(node, "type", None) == "VARIABLE"


def _fresh_names(used: set[str]) -> Iterator[str]:
    return (name for i in count(1) if (name := f"_{i}") not in used)


def _to_term(text: str, token: Token) -> Variable | Constant:
    start = cast(int, token.start_pos)
    if token.type == "VARIABLE":
        return Variable(token.removeprefix("?"), offset=start)
    if token.type == "STRING":
        return Constant(unquote(token, start), offset=start)
    try:
        return Constant(int(token), offset=start)
    except ValueError:  # Python refuses to read integers of thousands of digits
        expected = ("an integer of fewer digits",)
        raise _unexpected(text, start, expected, f"{len(token)} digits") from None


def _to_shift(text: str, token: Token) -> int:
    sign, digits = token[0], token[1:].lstrip()
    try:
        return -int(digits) if sign == "-" else int(digits)
    except ValueError:  # Python refuses to read integers of thousands of digits
        expected = ("an integer of fewer digits",)
        found = f"{len(digits)} digits"
        raise _unexpected(text, cast(int, token.start_pos), expected, found) from None


def _unexpected(
    text: str, offset: int, expected: Iterable[str], found: str | None = None
) -> QuerySyntaxError:
    return _syntax_error(
        text, offset, describe_unexpected(text, offset, expected, TEXT_KIND, found)
    )


def _syntax_error(text: str, offset: int, fault_message: str) -> QuerySyntaxError:
    message, line, column = point_at(text, offset, fault_message)
    return QuerySyntaxError(message, line=line, column=column)
