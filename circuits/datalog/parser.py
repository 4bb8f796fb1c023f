"""Datalog text to a `Program`.

lark's LALR(1) parser makes a tree, ``_Builder`` the values, both without recursion; the nesting of
what was built is then held below ``DEPTH``, so that all later passes may recurse. The parser is
made on first use.

Whatever the text, the only error is `DatalogError`.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, cast

import pyarrow as pa
from lark import Lark, Token, Tree, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from circuits.datalog.grammar import EXPECTED, GRAMMAR
from circuits.datalog.program import (
    DEPTH,
    And,
    Apply,
    Atom,
    Comparison,
    Constant,
    HeadTerm,
    Item,
    Items,
    Node,
    Not,
    Or,
    Pattern,
    Program,
    Rule,
    Term,
    Variable,
    Wildcard,
    parts,
)
from circuits.datalog.source import DatalogSource

__all__ = ["parse"]

ESCAPES: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
FUNCTIONS: Final[Mapping[str, str]] = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
OPERATORS: Final[Mapping[str, str]] = {":=": "=", "<>": "!="}
MOST_DIGITS: Final = 38
TEXT: Final = pa.string()


class _Fault(Exception):
    """A fault at an offset, raised where the text is not at hand."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def parse(text: str) -> Program:
    """Read a program.

    Raises:
        DatalogError: The text is no program, is empty, or is nested too deeply.

    Complexity:
        O(len(text)).

    >>> [rule] = parse("grand(a, c) :- parent(a, b), parent(b, c).").rules
    >>> rule.body[1]
    Atom(relation='parent', terms=(Variable(name='b', at=36), Variable(name='c', at=39)), at=29)
    >>> parse("3(x).")
    Traceback (most recent call last):
    ...
    circuits.errors.DatalogError: line 1, column 1: found '3', expected a relation name before '('
      3(x).
      ^
    """
    source = DatalogSource(text)
    try:
        tree: Tree[Token] = _parser().parse(text)
        rules = cast("tuple[Rule, ...]", _Builder().transform(tree))
        _limit_depth(rules)
    except UnexpectedToken as error:
        end = error.token.type == "$END"
        at = len(text.rstrip()) if end else cast(int, error.token.start_pos)
        raise _unexpected(source, at, error.accepts or error.expected) from None
    except UnexpectedCharacters as error:
        raise _unexpected(source, cast(int, error.pos_in_stream), error.allowed or ()) from None
    except UnexpectedInput as error:
        raise _unexpected(source, error.pos_in_stream or 0, ()) from None
    except _Fault as fault:
        raise source.error(fault.message, fault.at) from None
    except VisitError as error:
        cause = cast(_Fault, error.orig_exc)
        raise source.error(cause.message, cause.at) from None
    return Program(rules, source)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False, propagate_positions=True)


def _at(meta: Meta) -> int:
    return cast(int, getattr(meta, "start_pos", 0))


@v_args(meta=True)
class _Builder(Transformer_NonRecursive[Token, Any]):
    """The values of `circuits.datalog.program`, from the bottom up."""

    def start(self, meta: Meta, rules: list[Rule]) -> tuple[Rule, ...]:
        return tuple(rules)

    def rule(self, meta: Meta, children: list[Any]) -> Rule:
        (name, terms), *body = children
        return Rule(name, terms, body[0] if body else (), _at(meta))

    def head(self, meta: Meta, children: list[Any]) -> tuple[str, tuple[HeadTerm, ...]]:
        name, *terms = children
        return str(name), tuple(terms)

    def head_term(self, meta: Meta, children: list[Any]) -> HeadTerm:
        term, *alias = children
        return HeadTerm(term, str(alias[0]).lstrip("?") if alias else None, _at(meta))

    def body(self, meta: Meta, items: list[Item]) -> Items:
        return tuple(items)

    def atom(self, meta: Meta, children: list[Any]) -> Atom:
        [call] = children
        return Atom(call.function, call.arguments, call.at)

    def negation(self, meta: Meta, children: list[Any]) -> Not:
        [inner] = children
        if isinstance(inner, And):
            inner = inner.items
        return Not(inner if isinstance(inner, tuple) else (inner,), _at(meta))

    def conjunction(self, meta: Meta, children: list[Items]) -> And:
        return And(children[0], _at(meta))

    def disjunction(self, meta: Meta, items: list[Item]) -> Or:
        return Or(tuple(i.items if isinstance(i, And) else (i,) for i in items), _at(meta))

    def comparison(self, meta: Meta, children: list[Any]) -> Comparison:
        left, op, right = children
        return Comparison(OPERATORS.get(op, str(op)), left, right, _at(meta))

    def prefix_comparison(self, meta: Meta, children: list[Any]) -> Comparison:
        op, left, right = children
        return self.comparison(meta, [left, op, right])

    def binary(self, meta: Meta, children: list[Any]) -> Apply:
        left, op, right = children
        return Apply(FUNCTIONS[op], (left, right), _at(meta))

    def prefix(self, meta: Meta, children: list[Any]) -> Term:
        op, first, *others = children
        for other in others:
            first = Apply(FUNCTIONS[op], (first, other), _at(meta))
        return cast(Term, first)

    def negative(self, meta: Meta, children: list[Any]) -> Term:
        inner = children[-1]
        if isinstance(inner, Constant) and _is_number(inner.value):
            return Constant(-inner.value, inner.type, _at(meta))
        return Apply("negate", (inner,), _at(meta))

    def call(self, meta: Meta, children: list[Any]) -> Apply:
        name, *arguments = children
        return Apply(str(name), tuple(arguments), _at(meta))

    function_call = call

    def star(self, meta: Meta, children: list[Any]) -> Apply:
        return Apply("*", (), _at(meta))

    def pattern(self, meta: Meta, children: list[Token]) -> Pattern:
        return Pattern(str(children[0])[1:-1], _at(meta))

    def variable(self, meta: Meta, children: list[Token]) -> Term:
        name = str(children[0])
        if name == "_":
            return Wildcard(_at(meta))
        return Variable(name.removeprefix("?"), _at(meta))

    def literal(self, meta: Meta, children: list[Token]) -> Constant:
        [token] = children
        at = _at(meta)
        match token.type:
            case "STRING":
                return Constant(_unquoted(token, at), TEXT, at)
            case "INTEGER":
                if len(token.lstrip("0")) > 20:
                    raise _Fault(f"an integer of {len(token)} digits; int64 has at most 19", at)
                return Constant(int(token), pa.int64(), at)  # its sign, then its bound: _limit
            case "DECIMAL":
                return _decimal(token, at)
            case "FLOAT":
                if math.isinf(value := float(token)):
                    raise _Fault(f"{token} is not within the range of float64, ±1.8e308", at)
                return Constant(value, pa.float64(), at)
            case "NULL":
                return Constant(None, pa.null(), at)
            case _:
                return Constant(token == "true", pa.bool_(), at)

    def date(self, meta: Meta, children: list[Token]) -> Constant:
        read: Callable[[str], datetime.date] = datetime.date.fromisoformat
        return Constant(_moment(children[1], read, "1994-01-31", _at(meta)), pa.date32(), _at(meta))

    def timestamp(self, meta: Meta, children: list[Token]) -> Constant:
        at = _at(meta)
        value = _moment(children[1], datetime.datetime.fromisoformat, "1994-01-31 12:00:00", at)
        zone = None if value.tzinfo is None else "UTC"
        if zone:
            try:
                value = value.astimezone(datetime.UTC)
            except OverflowError:
                raise _Fault(f"timestamp {children[1]} is out of range in UTC", at) from None
        return Constant(value, pa.timestamp("us", tz=zone), at)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _decimal(text: str, at: int) -> Constant:
    value = Decimal(text)
    digits = value.as_tuple()
    scale = -cast(int, digits.exponent)
    precision = max(len(digits.digits), scale)
    if precision > MOST_DIGITS:
        raise _Fault(f"a decimal of {precision} digits; {MOST_DIGITS} is the most", at)
    return Constant(value, pa.decimal128(max(precision, 1), scale), at)


def _moment(token: Token, read: Callable[[str], Any], example: str, at: int) -> Any:
    text = _unquoted(token, cast(int, token.start_pos))
    try:
        return read(text)
    except ValueError:
        raise _Fault(f"{text!r} is no date or time; write it as {example!r}", at) from None


def _unquoted(token: str, start: int) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code.isalnum() and code not in ESCAPES:
            ways = "\\\\ \\\" \\' \\n \\t \\r \\b \\f \\uXXXX"
            raise _Fault(
                f"unknown escape '\\{code}'; use one of {ways}", start + escape.start() + 1
            )
        return ESCAPES.get(code, code)

    text = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, token[1:-1], flags=re.DOTALL)
    try:
        # Two escapes may make one character beyond the first plane; half a one is no text.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _Fault(
            "half a surrogate pair is no character; write both \\u escapes", start
        ) from None


def _limit_depth(rules: Iterable[Node]) -> None:
    """Refuse what later passes could not recurse into, and integers beyond int64."""
    stack = [(rule, 0) for rule in rules]
    while stack:
        node, depth = stack.pop()
        if depth > DEPTH:
            message = f"nested deeper than {DEPTH}; bind a part to a variable or use several rules"
            raise _Fault(message, node.at)
        value = node.value if isinstance(node, Constant) else None
        if isinstance(value, int) and abs(value) >= 2**63:
            raise _Fault(f"integer {value} is not within ±(2**63 - 1)", node.at)
        stack.extend((part, depth + 1) for part in parts(node))


def _unexpected(source: DatalogSource, at: int, expected: Iterable[str]) -> Exception:
    word = re.compile(r"\w+|.|$", re.DOTALL).match(source.text, at)
    found = repr(word[0]) if word and source.text[at:].strip() else "the end of the text"
    ways = sorted({EXPECTED.get(name, name) for name in expected})
    wanted = ", ".join([*ways[:-2], " or ".join(ways[-2:])]) or "a rule"
    return source.error(f"found {found}, expected {wanted}", at)
