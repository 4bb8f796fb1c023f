"""Expressions over the columns of a row: a column, a literal, or a call of a named function.

An expression is a value of one of three frozen classes. It is typed where it is built (`call`
infers the type and inserts the casts). It contains no names and belongs to no query language, so
SQL and Datalog build the same ones. Columns are numbered from 0; the plan node that has the
expression says which row they belong to.

Expressions are keys of caches in every step, so a call computes its hash once.

Expressions are evaluated over whole Arrow columns (`circuits.runtime.evaluation`), never row by
row. Logic is three-valued, as in SQL: a comparison with NULL is NULL, and FALSE AND NULL is FALSE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import copysign
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "COMPARISONS",
    "Call",
    "Column",
    "Expression",
    "Literal",
    "column_reads",
    "columns_of",
    "conjuncts",
    "excludes_null",
    "may_be_null",
    "share_subexpressions",
    "shift_columns",
    "size_after",
    "substitute",
]


#: Functions that are never true if an argument is NULL.
COMPARISONS: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

# Functions that never return NULL.
_NEVER_NULL: Final = frozenset({"is_null", "is_true", "same"})

# Functions that return NULL only if their first argument is NULL; the other arguments are
# constants.
_NULL_AS_FIRST_ARGUMENT: Final = frozenset({"cast", "date_add", "month_bucket", "time_bucket"})


@dataclass(frozen=True, slots=True)
class Column:
    """The value of column ``index``."""

    index: int
    type: pa.DataType

    def __str__(self) -> str:
        return f"#{self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; ``None`` is NULL. The value is that of ``pa.scalar(value, type).as_py()``.

    0.0 and -0.0 are different literals.

    >>> Literal(0.0, pa.float64()) == Literal(-0.0, pa.float64())
    False
    """

    value: Any
    type: pa.DataType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        if (self.value, self.type) != (other.value, other.type):
            return False
        is_zero = isinstance(self.value, float) and self.value == 0
        return not is_zero or copysign(1, self.value) == copysign(1, other.value)

    def __hash__(self) -> int:
        return hash((self.value, self.type))

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of `circuits.types.functions`; ``type`` is the type of the result.

    Build one with `circuits.types.functions.call`, which checks and casts the arguments.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = hash((self.function, self.arguments, self.type))
            object.__setattr__(self, "_hash", value)
        return value

    def __reduce__(self) -> tuple[type[Call], tuple[object, ...]]:
        # The hash is not pickled, because each process hashes strings differently.
        return Call, (self.function, self.arguments, self.type)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Expression = Column | Literal | Call


def columns_of(expression: Expression) -> frozenset[int]:
    """The columns that an expression reads.

    >>> columns_of(Call("add", (Column(2, pa.int64()), Literal(1, pa.int64())), pa.int64()))
    frozenset({2})
    """
    return frozenset(column_reads(expression))


def column_reads(expression: Expression) -> list[int]:
    """The column of each reference in an expression, left to right, with repetitions."""
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


def shift_columns(expression: Expression, offset: int) -> Expression:
    """The expression with a number added to its column numbers.

    >>> shift_columns(Column(2, pa.int64()), 3).index
    5
    """
    return substitute(expression, lambda column: Column(column.index + offset, column.type))


def share_subexpressions(expressions: Iterable[Expression]) -> tuple[Expression, ...]:
    """The same expressions, in which equal calls are one object, so that comparing them is fast.

    >>> x = Column(0, pa.int64())
    >>> first, second = share_subexpressions(Call("negate", (x,), pa.int64()) for _ in range(2))
    >>> first is second
    True
    """
    known: dict[Expression, Expression] = {}

    def share(node: Expression) -> Expression:
        if node in known:
            return known[node]
        shared = node
        if isinstance(node, Call):
            shared = Call(node.function, tuple(map(share, node.arguments)), node.type)
        return known.setdefault(shared, shared)

    return tuple(map(share, expressions))


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
    """Yield the conditions that predicates connect by AND, at any depth; TRUE is left out."""
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.function == "and":
            yield from conjuncts(predicate.arguments)
        elif not (isinstance(predicate, Literal) and predicate.value is True):
            yield predicate


def may_be_null(expression: Expression, is_nullable: Callable[[int], bool]) -> bool:
    """Return False if the expression is never NULL.

    Args:
        expression: Over the columns of a plan.
        is_nullable: Returns False for the columns that contain no NULL.

    >>> may_be_null(Call("is_null", (Column(0, pa.int64()),), pa.bool_()), lambda column: True)
    False
    """
    if isinstance(expression, Literal):
        return expression.value is None
    if isinstance(expression, Column):
        return is_nullable(expression.index)
    if expression.function in _NULL_AS_FIRST_ARGUMENT:
        return may_be_null(expression.arguments[0], is_nullable)
    return expression.function not in _NEVER_NULL


def excludes_null(predicate: Expression, column: int) -> bool:
    """Return True if the column is never NULL in rows for which the predicate is true.

    True for a predicate that compares the column, or is IS NOT NULL of it. The predicate must not
    be a conjunction.
    """
    if not isinstance(predicate, Call):
        return False
    if predicate.function in COMPARISONS:
        sides = predicate.arguments
        return any(isinstance(side, Column) and side.index == column for side in sides)
    if predicate.function != "not":
        return False
    (inner,) = predicate.arguments
    if not (isinstance(inner, Call) and inner.function == "is_null"):
        return False
    (subject,) = inner.arguments
    return isinstance(subject, Column) and subject.index == column


def _walk(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _walk(argument)
