"""Texts of expressions for people: in explain, in error messages, and as names of columns.

The text is that of SQL where SQL has a word: ``price * qty``, ``cast(city as int64)``, or
``city is not null``. Every other function is a call by its name in `circuits.types.functions`.
Parentheses are written only where the order of the operators needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from circuits.plan.columns import Field
from circuits.plan.expressions import Call, Column, Expression, Literal

__all__ = ["ColumnName", "column_name", "column_names", "label", "lambda_column_names"]

#: The name of a computed column has at most this many characters.
MAX_NAME_CHARACTERS: Final = 60

#: Returns the name of a column.
ColumnName = Callable[[int], str]

# The precedence of operators: an operator with a higher number binds more tightly.
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _ATOM = range(1, 8)

_OPERATORS: Final = {
    "or": ("or", _OR),
    "and": ("and", _AND),
    "eq": ("=", _COMPARE),
    "ne": ("<>", _COMPARE),
    "lt": ("<", _COMPARE),
    "le": ("<=", _COMPARE),
    "gt": (">", _COMPARE),
    "ge": (">=", _COMPARE),
    "same": ("is not distinct from", _COMPARE),
    "like": ("like", _COMPARE),
    "ilike": ("ilike", _COMPARE),
    "add": ("+", _ADD),
    "subtract": ("-", _ADD),
    "multiply": ("*", _MULTIPLY),
    "divide": ("/", _MULTIPLY),
    "modulo": ("%", _MULTIPLY),
}

# The names of the columns that a lambda reads (`circuits.runtime.evaluation`); further columns are
# the arguments of the function from the third one on.
_LAMBDA_COLUMNS: Final = {"list_reduce": ("total", "x"), "list_sort_by": ("a", "b")}


def label(expression: Expression, names: Sequence[str] | ColumnName) -> str:
    """Return an expression as text, with the names of the columns.

    Args:
        expression: The expression.
        names: The name of each column, or a function that returns it.

    >>> import pyarrow as pa
    >>> total = Call("add", (Column(0, pa.int64()), Literal(1, pa.int64())), pa.int64())
    >>> label(Call("multiply", (total, Column(1, pa.int64())), pa.int64()), ["price", "qty"])
    '(price + 1) * qty'
    """
    return "".join(_pieces(expression, names if callable(names) else names.__getitem__))


def column_name(
    expression: Expression,
    names: Sequence[str] | ColumnName,
    max_characters: int = MAX_NAME_CHARACTERS,
) -> str:
    """Return the text of an expression, shortened: a name for a computed column.

    Complexity:
        Bounded by ``max_characters``, however large the expression is.

    >>> import pyarrow as pa
    >>> column_name(Call("lower", (Column(0, pa.string()),), pa.string()), ["city"])
    'lower(city)'
    """
    text = ""
    for piece in _pieces(expression, names if callable(names) else names.__getitem__):
        text += piece
        if len(text) > max_characters:
            return f"{text[: max_characters - 1]}…"
    return text


def _pieces(expression: Expression, names: ColumnName, outer: int = 0) -> Iterator[str]:
    """Yield the text in pieces, with parentheses if it binds less tightly than ``outer``."""
    if isinstance(expression, Column):
        name = names(expression.index)
        yield f"({name})" if outer and _is_compound(name) else name
    elif isinstance(expression, Literal):
        yield _literal_text(expression)
    else:
        precedence = _precedence(expression)
        if precedence < outer:
            yield "("
        yield from _call_pieces(expression, names, precedence)
        if precedence < outer:
            yield ")"


def column_names(expressions: Iterable[Expression], fields: Sequence[Field]) -> tuple[str, ...]:
    """Return a name for each expression over some columns: a column keeps its name."""
    names = [field.name for field in fields]
    return tuple(
        names[expression.index]
        if isinstance(expression, Column)
        else column_name(expression, names)
        for expression in expressions
    )


def lambda_column_names(call: Call, names: ColumnName) -> ColumnName:
    """Return the names of the columns that the lambda of a call reads.

    Args:
        call: A call of a function of lists whose second argument is a lambda.
        names: The names of the columns that the call reads.
    """
    own_names = _LAMBDA_COLUMNS.get(call.function, ("x", "position"))
    others = call.arguments[3:] if call.function == "list_reduce" else call.arguments[2:]

    def name(index: int) -> str:
        return own_names[index] if index < 2 else column_name(others[index - 2], names)

    return name


def _is_compound(name: str) -> bool:
    """Return whether the name of a computed column is an expression with operators."""
    depth = 0
    for character in name:
        if character == " " and not depth:
            return True
        depth += (character == "(") - (character == ")")
    return False


def _base_name(call: Call) -> str:
    return call.function.removeprefix("user:").removesuffix("_ansi")


def _precedence(call: Call) -> int:
    function = _base_name(call)
    if function == "not":
        return _COMPARE if _negated_test(call) else _NOT
    if function in ("is_null", "is_true", "in"):
        return _COMPARE
    return _OPERATORS[function][1] if _is_operator(call) else _ATOM


def _is_operator(call: Call) -> bool:
    count = len(call.arguments)
    function = _base_name(call)
    return function in _OPERATORS and (count == 2 or (count > 2 and function in ("and", "or")))


def _negated_test(call: Call) -> Call | None:
    """Return the test in ``x is not null`` or ``x is distinct from y``; None for another NOT."""
    (inner,) = call.arguments
    return inner if isinstance(inner, Call) and inner.function in ("is_null", "same") else None


def _call_pieces(call: Call, names: ColumnName, precedence: int) -> Iterator[str]:
    function, arguments = _base_name(call), call.arguments
    if function == "not":
        test = _negated_test(call)
        if test is None:
            yield "not "
            yield from _pieces(arguments[0], names, _NOT)
        elif test.function == "is_null":
            yield from _pieces(test.arguments[0], names, _ADD)
            yield " is not null"
        else:
            yield from _joined(test.arguments, names, " is distinct from ", _ADD)
    elif function in ("is_null", "is_true"):
        yield from _pieces(arguments[0], names, _ADD)
        yield " is null" if function == "is_null" else " is true"
    elif function == "in":
        yield from _pieces(arguments[0], names, _ADD)
        yield " in ("
        yield from _joined(arguments[1:], names, ", ")
        yield ")"
    elif _is_operator(call):
        word, _ = _OPERATORS[function]
        yield from _pieces(arguments[0], names, precedence + (precedence == _COMPARE))
        for argument in arguments[1:]:
            yield f" {word} "
            yield from _pieces(argument, names, precedence + 1)
    elif function == "case":
        yield "case"
        for condition, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
            yield " when "
            yield from _pieces(condition, names)
            yield " then "
            yield from _pieces(value, names)
        yield " else "
        yield from _pieces(arguments[-1], names)
        yield " end"
    else:
        yield f"{function}("
        yield from _argument_pieces(call, names)
        yield f" as {call.type})" if "cast" in function else ")"


def _argument_pieces(call: Call, names: ColumnName) -> Iterator[str]:
    for number, argument in enumerate(call.arguments):
        if number:
            yield ", "
        if isinstance(argument, Literal) and isinstance(argument.value, Column | Literal | Call):
            yield from _lambda_pieces(call, argument.value, names)
        else:
            yield from _pieces(argument, names)


def _lambda_pieces(call: Call, body: Expression, names: ColumnName) -> Iterator[str]:
    body_names = lambda_column_names(call, names)
    count = 2 if call.function in _LAMBDA_COLUMNS else 1
    yield f"lambda {', '.join(map(body_names, range(count)))}: "
    yield from _pieces(body, body_names)


def _joined(
    arguments: Sequence[Expression], names: ColumnName, separator: str, outer: int = 0
) -> Iterator[str]:
    for number, argument in enumerate(arguments):
        if number:
            yield separator
        yield from _pieces(argument, names, outer)


def _literal_text(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    if isinstance(value, date | time | datetime):
        return f"'{value}'"
    return repr(value)
