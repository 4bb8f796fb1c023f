"""Expressions over the columns of a row: a column, a literal, or a call of a named function.

A value of one of three frozen classes, typed where it is built (`call` infers the type and inserts
the casts), free of names and of any query language, so that SQL and Datalog make the same ones.
Columns are numbered from 0; what row they number is said by who holds the expression.

Evaluation is by whole columns in Arrow (`circuits.runtime.evaluation`); no expression loops over
rows. Three-valued logic as in SQL: a comparison with NULL is NULL, `and`, `or` are Kleene's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = [
    "Call",
    "Column",
    "Expression",
    "Literal",
    "columns_of",
    "conjuncts",
    "size_after",
    "substitute",
]


@dataclass(frozen=True, slots=True)
class Column:
    """The value of column ``index``."""

    index: int
    type: pa.DataType

    def __str__(self) -> str:
        return f"#{self.index}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; ``None`` is NULL. The value is what ``pa.scalar(value, type).as_py()`` gives."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `circuits.types.functions`, applied; ``type`` is the type of the result.

    Build one with `circuits.types.functions.call`, which checks and casts the arguments.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Expression = Column | Literal | Call


def columns_of(expression: Expression) -> frozenset[int]:
    """The columns that an expression reads.

    >>> columns_of(Call("add", (Column(2, pa.int64()), Literal(1, pa.int64())), pa.int64()))
    frozenset({2})
    """
    return frozenset(reads_of(expression))


def reads_of(expression: Expression) -> list[int]:
    """The columns that an expression reads, each as often as it reads it, left to right."""
    return [node.index for node in _walk(expression) if isinstance(node, Column)]


def substitute(
    expression: Expression, replacement: Sequence[Expression] | Callable[[Column], Expression]
) -> Expression:
    """The expression with each column replaced, by its index or by a function of the column.

    >>> substitute(Column(0, pa.int64()), [Literal(7, pa.int64())])
    Literal(value=7, type=DataType(int64))
    """
    if isinstance(expression, Column):
        if callable(replacement):
            return replacement(expression)
        return replacement[expression.index]
    if isinstance(expression, Literal):
        return expression
    arguments = tuple(substitute(a, replacement) for a in expression.arguments)
    return Call(expression.function, arguments, expression.type)


def size_after(expressions: Iterable[Expression], replacement: Sequence[Expression]) -> int:
    """The number of nodes of the expressions after `substitute`, counted without making them.

    >>> x = Column(0, pa.int64())
    >>> size_after([Call("add", (x, x), pa.int64())], [Call("negate", (x,), pa.int64())])
    5
    """
    sizes: dict[int, int] = {}

    def size(node: Expression) -> int:
        if not isinstance(node, Column):
            return 1
        if node.index not in sizes:
            sizes[node.index] = sum(1 for _ in _walk(replacement[node.index]))
        return sizes[node.index]

    return sum(size(node) for expression in expressions for node in _walk(expression))


def conjuncts(predicates: Iterable[Expression]) -> Iterator[Expression]:
    """The parts of a conjunction: all must be true for a row to stay."""
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function == "and":
            yield from conjuncts(predicate.arguments)
        elif not (isinstance(predicate, Literal) and predicate.value is True):
            yield predicate


def _walk(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _walk(argument)
