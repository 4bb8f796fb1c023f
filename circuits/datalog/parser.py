"""The Datalog parser: text to a `Program`.

lark's LALR(1) parser makes a parse tree, and ``_Builder`` turns it into the syntax tree of
`circuits.datalog.program`, both without recursion. Then the nesting is limited to
``MAX_NESTING_DEPTH``, so that all later passes may recurse. The lark parser is made on first use.

Any invalid text raises `DatalogError`, and no other error.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeGuard, cast

import pyarrow as pa
from lark import Lark, Token, v_args
from lark.exceptions import VisitError
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from circuits.datalog.grammar import EXPECTED, GRAMMAR
from circuits.datalog.program import (
    MAX_NESTING_DEPTH,
    And,
    Atom,
    Comparison,
    Equation,
    FunctionCall,
    HeadTerm,
    Item,
    Items,
    Not,
    Or,
    Pattern,
    Program,
    Rule,
    SyntaxNode,
    Term,
    TypedConstant,
    Variable,
    Wildcard,
    children,
)
from circuits.datalog.source import DatalogSource
from circuits.user_functions import UserFunction
from dbsp_wcoj.grammar import SyntaxFault, parse_tree, unquote

__all__ = ["parse"]

FUNCTIONS_OF_SIGNS: Final[Mapping[str, str]] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
}
EQUATION_SIGNS: Final = frozenset({"=", ":="})
COMPARISON_SYNONYMS: Final[Mapping[str, str]] = {"<>": "!="}
MAX_DECIMAL_DIGITS: Final = 38
# Longer texts are refused before their conversion, which takes long. `_check_limits` checks the
# exact range.
MAX_INTEGER_DIGITS: Final = 20
# Digits of a second that a timestamp cannot hold; `datetime.fromisoformat` would drop them.
_LOST_DIGITS: Final = re.compile(r":\d\d[.,]\d{6}\d*[1-9]")


def parse(text: str, functions: Mapping[str, UserFunction] | None = None) -> Program:
    """Read a program; its source has the user-defined functions.

    Raises:
        DatalogError: The text is not a program, is empty, or is nested too deeply.

    Complexity:
        O(len(text)).

    >>> [rule] = parse("grand(a, c) :- parent(a, b), parent(b, c).").rules
    >>> rule.body[1]
    Atom(relation='parent', terms=(Variable(name='b'), Variable(name='c')))
    >>> parse("3(x).")
    Traceback (most recent call last):
    ...
    circuits.errors.DatalogError: line 1, column 1: found '3', expected a relation name before '('
      3(x).
      ^
    """
    source = DatalogSource(text, functions or {})
    try:
        tree = parse_tree(_parser(), text, EXPECTED, "a rule")
        rules = cast("tuple[Rule, ...]", _Builder().transform(tree))
        _check_limits(rules)
    except SyntaxFault as fault:
        raise source.error(fault.message, fault.offset) from None
    except VisitError as error:
        cause = cast(SyntaxFault, error.orig_exc)
        raise source.error(cause.message, cause.offset) from None
    return Program(rules, source)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False, propagate_positions=True)


def _offset_of(meta: Meta) -> int:
    return cast(int, getattr(meta, "start_pos", 0))


@v_args(meta=True)
class _Builder(Transformer_NonRecursive[Token, Any]):
    """Makes the syntax tree from the bottom up; a method makes the nodes of its grammar rule."""

    def start(self, meta: Meta, rules: list[Rule]) -> tuple[Rule, ...]:
        return tuple(rules)

    def rule(self, meta: Meta, children: list[Any]) -> Rule:
        (name, terms), *body = children
        return Rule(name, terms, body[0] if body else (), offset=_offset_of(meta))

    def head(self, meta: Meta, children: list[Any]) -> tuple[str, tuple[HeadTerm, ...]]:
        name, *terms = children
        return str(name), tuple(terms)

    def head_term(self, meta: Meta, children: list[Any]) -> HeadTerm:
        term, *alias = children
        return HeadTerm(term, str(alias[0]).lstrip("?") if alias else None, offset=_offset_of(meta))

    def body(self, meta: Meta, items: list[Item]) -> Items:
        return tuple(items)

    def atom(self, meta: Meta, children: list[Any]) -> Atom:
        [call] = children
        return Atom(call.function, call.arguments, offset=call.offset)

    def negation(self, meta: Meta, children: list[Any]) -> Not:
        [inner] = children
        if isinstance(inner, And):
            inner = inner.items
        return Not(inner if isinstance(inner, tuple) else (inner,), offset=_offset_of(meta))

    def conjunction(self, meta: Meta, children: list[Items]) -> And:
        return And(children[0], offset=_offset_of(meta))

    def disjunction(self, meta: Meta, items: list[Item]) -> Or:
        return Or(
            tuple(item.items if isinstance(item, And) else (item,) for item in items),
            offset=_offset_of(meta),
        )

    def comparison(self, meta: Meta, children: list[Any]) -> Comparison | Equation:
        left, op, right = children
        if op in EQUATION_SIGNS:
            return Equation(left, right, offset=_offset_of(meta))
        return Comparison(
            left, COMPARISON_SYNONYMS.get(op, str(op)), right, offset=_offset_of(meta)
        )

    def prefix_comparison(self, meta: Meta, children: list[Any]) -> Comparison | Equation:
        op, left, right = children
        return self.comparison(meta, [left, op, right])

    def binary(self, meta: Meta, children: list[Any]) -> FunctionCall:
        left, op, right = children
        return FunctionCall(FUNCTIONS_OF_SIGNS[op], (left, right), offset=_offset_of(meta))

    def prefix(self, meta: Meta, children: list[Any]) -> Term:
        # An operator before its operands: + a b c.
        op, result, *operands = children
        for operand in operands:
            result = FunctionCall(
                FUNCTIONS_OF_SIGNS[op], (result, operand), offset=_offset_of(meta)
            )
        return cast(Term, result)

    def negative(self, meta: Meta, children: list[Any]) -> Term:
        inner = children[-1]
        if isinstance(inner, TypedConstant) and _is_number(inner.value):
            return TypedConstant(-inner.value, inner.type, offset=_offset_of(meta))
        return FunctionCall("negate", (inner,), offset=_offset_of(meta))

    def call(self, meta: Meta, children: list[Any]) -> FunctionCall:
        name, *arguments = children
        return FunctionCall(str(name), tuple(arguments), offset=_offset_of(meta))

    function_call = call

    def star(self, meta: Meta, children: list[Any]) -> FunctionCall:
        return FunctionCall("*", (), offset=_offset_of(meta))

    def pattern(self, meta: Meta, children: list[Token]) -> Pattern:
        return Pattern(str(children[0])[1:-1], offset=_offset_of(meta))

    def variable(self, meta: Meta, children: list[Token]) -> Term:
        name = str(children[0])
        if name == "_":
            return Wildcard(offset=_offset_of(meta))
        return Variable(name.removeprefix("?"), offset=_offset_of(meta))

    def literal(self, meta: Meta, children: list[Token]) -> TypedConstant:
        [token] = children
        offset = _offset_of(meta)
        match token.type:
            case "STRING":
                return TypedConstant(_text(token), pa.string(), offset=offset)
            case "INTEGER":
                if len(token.lstrip("0")) > MAX_INTEGER_DIGITS:
                    message = f"an integer of {len(token)} digits; int64 has at most 19"
                    raise SyntaxFault(message, offset)
                return TypedConstant(int(token), pa.int64(), offset=offset)
            case "DECIMAL":
                return _decimal(token, offset)
            case "FLOAT":
                if math.isinf(value := float(token)):
                    raise SyntaxFault(
                        f"{token} is not within the range of float64, ±1.8e308", offset
                    )
                return TypedConstant(value, pa.float64(), offset=offset)
            case "NULL":
                return TypedConstant(None, pa.null(), offset=offset)
            case _:
                return TypedConstant(token == "true", pa.bool_(), offset=offset)

    def date(self, meta: Meta, children: list[Token]) -> TypedConstant:
        parse_date: Callable[[str], datetime.date] = datetime.date.fromisoformat
        value = _parse_time(children[1], parse_date, "1994-01-31", _offset_of(meta))
        return TypedConstant(value, pa.date32(), offset=_offset_of(meta))

    def timestamp(self, meta: Meta, children: list[Token]) -> TypedConstant:
        offset = _offset_of(meta)
        value = _parse_time(
            children[1], datetime.datetime.fromisoformat, "1994-01-31 12:00:00", offset
        )
        if _LOST_DIGITS.search(children[1]):
            raise SyntaxFault(
                f"timestamp {children[1]} has more than 6 digits after the second; a timestamp has "
                "microseconds",
                offset,
            )
        zone = None if value.tzinfo is None else "UTC"
        if zone:
            try:
                value = value.astimezone(datetime.UTC)
            except OverflowError:
                raise SyntaxFault(
                    f"timestamp {children[1]} is out of range in UTC", offset
                ) from None
        return TypedConstant(value, pa.timestamp("us", tz=zone), offset=offset)


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _decimal(text: str, offset: int) -> TypedConstant:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = -cast(int, exponent)
    precision = max(len(digits), scale)
    if precision > MAX_DECIMAL_DIGITS:
        raise SyntaxFault(
            f"a decimal of {precision} digits; the maximum is {MAX_DECIMAL_DIGITS}", offset
        )
    return TypedConstant(value, pa.decimal128(max(precision, 1), scale), offset=offset)


def _parse_time(token: Token, parse_text: Callable[[str], Any], example: str, offset: int) -> Any:
    text = _text(token)
    try:
        return parse_text(text)
    except ValueError:
        raise SyntaxFault(
            f"{text!r} is not a date or time; write it as {example!r}", offset
        ) from None


def _text(token: Token) -> str:
    """Return the text of a quoted string."""
    start = cast(int, token.start_pos)
    text = unquote(token, start)
    try:
        # Two \\u escapes may be the halves of one character (a surrogate pair).
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        message = "half a surrogate pair is not a character; write both \\u escapes"
        raise SyntaxFault(message, start) from None


def _check_limits(rules: Iterable[SyntaxNode]) -> None:
    """Raise an error for deep nesting and for integers beyond int64."""
    stack = [(rule, 0) for rule in rules]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_NESTING_DEPTH:
            message = (
                f"nested deeper than {MAX_NESTING_DEPTH}; bind a part to a variable or use several "
                "rules"
            )
            raise SyntaxFault(message, node.offset)
        value = node.value if isinstance(node, TypedConstant) else None
        if isinstance(value, int) and abs(value) >= 2**63:
            raise SyntaxFault(f"integer {value} is not within ±(2**63 - 1)", node.offset)
        stack.extend((part, depth + 1) for part in children(node))
