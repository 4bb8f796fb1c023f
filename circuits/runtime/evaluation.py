"""Evaluation of expressions over columns: whole Arrow arrays in, one Arrow array out.

Each distinct subexpression is evaluated once; literals stay scalars until a kernel or the result
needs a column. A branch of ``case``, ``coalesce`` is evaluated for the rows that reach it only:
the frame (columns and what is known of them) is narrowed, the branch evaluated, its values put back
in place. ``and`` and ``or`` evaluate their arguments for all rows, which is cheaper; only if that
fails, for the rows that the arguments before have left open.

A kernel that fails for a column fails for some row: halving finds it, for the error's text.

Cost: one kernel call per distinct subexpression, per branch reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import EvaluationError
from circuits.excerpt import shorten
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.functions.argument_rows import fill_rows, scatter_rows
from circuits.types.functions.function import Kernel, Values
from circuits.types.functions.registry import TABLE
from circuits.types.functions.text_formatting import format_scalar
from circuits.types.functions.type_rules import plain

__all__ = ["evaluate"]

_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
Columns = Mapping[int, pa.Array] | Sequence[pa.Array]


def evaluate(expression: Expression, columns: Columns, rows: int) -> pa.Array:
    """The value of an expression for each row.

    Args:
        expression: Typed; built by `circuits.types.functions.call`.
        columns: Arrays by column index; at least those that the expression reads.
        rows: The number of rows, which also counts for an expression that reads no column.

    Returns:
        An array of ``expression.type`` with ``rows`` values.

    Raises:
        EvaluationError: It has no value for some row: an overflow, a cast that is not possible.

    >>> from circuits.types.functions import call
    >>> total = call("add", Column(0, pa.int64()), Literal(1, pa.int64()))
    >>> evaluate(total, [pa.array([1, None])], 2).to_pylist()
    [2, None]
    """
    frame = _Frame(lambda index: _column(columns[index]), rows)
    try:
        values = fill_rows(frame.value(expression), rows)
        return values if values.type == expression.type else pc.cast(values, expression.type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:  # of columns, not of a row's value
        raise _too_large(expression, error) from error


def _column(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    target = plain(values.type)
    return values if values.type == target else pc.cast(values, target)


@lru_cache(maxsize=4096)
def _scalar(literal: Literal) -> pa.Scalar:
    """The literal for kernels; kept, since a step of a few rows pays more for it than for them."""
    return pa.array([literal.value], literal.type).cast(plain(literal.type))[0]


class _Frame:
    """Some rows: their columns on demand, and the values of subexpressions found so far."""

    def __init__(self, column: Callable[[int], pa.Array], rows: int) -> None:
        self._column = column
        self._known: dict[Expression, Values] = {}
        self.rows = rows

    def narrowed(self, positions: pa.Array) -> _Frame:
        """The frame of the rows at these positions; what is known here is not computed again."""
        if len(positions) == self.rows:
            return self
        return _Frame(
            lambda index: self.value(Column(index, pa.null())).take(positions), len(positions)
        )

    def value(self, expression: Expression) -> Values:
        """The value of an expression: a column, or a scalar if it is the same for all rows."""
        if isinstance(expression, Literal):
            return _scalar(expression)
        if isinstance(expression, Column):
            expression = Column(expression.index, pa.null())
        elif self.rows == 0:  # also a call of literals that fails fails for some row
            return pa.nulls(0, plain(expression.type))
        if expression not in self._known:
            self._known[expression] = self._computed(expression)
        return self._known[expression]

    def _computed(self, expression: Column | Call) -> Values:
        if isinstance(expression, Column):
            return self._column(expression.index)
        kernel = TABLE[expression.function].kernel
        if kernel is None:
            return _chosen(self, expression)
        try:
            arguments = [self.value(argument) for argument in expression.arguments]
        except EvaluationError:
            if expression.function not in ("and", "or"):
                raise
            return _connected(self, expression)
        return _applied(expression, kernel, arguments)


def _applied(expression: Call, kernel: Kernel, arguments: list[Values]) -> Values:
    target = plain(expression.type)
    constant = all(isinstance(argument, pa.Scalar) for argument in arguments)
    if constant:
        arguments = [fill_rows(arguments[0], 1), *arguments[1:]]
    try:
        result = kernel(arguments, target)
    except _FAILURES as error:
        raise _failure(expression, kernel, arguments, error) from error
    except pa.ArrowCapacityError as error:
        raise _too_large(expression, error) from error
    return result[0] if constant and isinstance(result, pa.Array) else result


def _failure(
    expression: Call, kernel: Kernel, arguments: list[Values], error: Exception
) -> EvaluationError:
    """The error with the arguments of the first row that fails alone."""
    rows = max(len(a) for a in arguments if isinstance(a, pa.Array))
    start, stop = 0, rows
    while stop - start > 1:
        middle = (start + stop) // 2
        part = [a[start:middle] if isinstance(a, pa.Array) else a for a in arguments]
        try:
            kernel(part, plain(expression.type))
            start = middle
        except _FAILURES as smaller:
            stop, error = middle, smaller
        except pa.ArrowCapacityError:  # together too long, but each row has a value
            start = middle
    values = [a[start] if isinstance(a, pa.Array) else a for a in arguments]
    given = ", ".join(map(format_scalar, values))
    return EvaluationError(
        f"{expression.function}({given}) has no value of type {expression.type}: "
        f"{shorten(str(error))}; exclude such rows, or use try_cast or a case around it"
    )


def _too_large(expression: Expression, error: Exception) -> EvaluationError:
    """The error for values that are fine one by one, and too large together."""
    name = expression.function if isinstance(expression, Call) else "the column"
    return EvaluationError(
        f"the values of {name} do not fit one column of type {expression.type}: {error}; give "
        "fewer rows in a step, as by smaller micro-batches"
    )


def _connected(frame: _Frame, expression: Call) -> Values:
    """``and`` and ``or`` from left to right, each for the rows that are not settled before it."""
    settles = expression.function == "or"
    kernel = pc.or_kleene if settles else pc.and_kleene
    so_far = fill_rows(frame.value(expression.arguments[0]), frame.rows)
    for argument in expression.arguments[1:]:
        open_rows = pc.fill_null(pc.not_equal(so_far, settles), True)
        positions = pc.indices_nonzero(open_rows).cast(pa.int64())
        values = fill_rows(frame.narrowed(positions).value(argument), len(positions))
        so_far = pc.replace_with_mask(so_far, open_rows, kernel(so_far.filter(open_rows), values))
    return so_far


def _chosen(frame: _Frame, expression: Call) -> Values:
    """``case`` and ``coalesce``: branch by branch, for the rows that no branch before has taken."""
    target = plain(expression.type)
    open_rows = pa.array(np.arange(frame.rows))
    places: list[pa.Array] = []
    parts: list[pa.Array] = []

    def take(positions: pa.Array, values: Values) -> None:
        places.append(positions)
        parts.append(fill_rows(values, len(positions)).cast(target))

    arguments = expression.arguments
    if expression.function == "coalesce":
        for argument in arguments[:-1]:
            values = fill_rows(frame.narrowed(open_rows).value(argument), len(open_rows))
            valid = pc.is_valid(values)
            take(open_rows.filter(valid), values.filter(valid))
            open_rows = open_rows.filter(pc.invert(valid))
    else:
        for test, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
            truth = fill_rows(frame.narrowed(open_rows).value(test), len(open_rows))
            true = pc.fill_null(truth, False)
            chosen = open_rows.filter(true)
            take(chosen, frame.narrowed(chosen).value(value))
            open_rows = open_rows.filter(pc.invert(true))
    take(open_rows, frame.narrowed(open_rows).value(arguments[-1]))
    return scatter_rows(places, parts)
