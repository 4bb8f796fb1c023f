"""Evaluation of an expression for all rows at once: from Arrow arrays to one Arrow array.

Each distinct subexpression is evaluated once, by the kernel of its function: a Python function over
whole Arrow arrays. A literal remains a scalar until a kernel or the result needs a column.

A branch of ``case`` or ``coalesce`` is evaluated only for the rows that reach it. The frame, which
holds the columns and the values computed so far, is restricted to these rows, the branch is
evaluated, and its values are scattered to their positions. ``and`` and ``or`` evaluate their
arguments for all rows, because that is cheaper. If an argument fails, they evaluate each argument
only for the rows that the others do not decide, in the order that avoids the failure: FALSE decides
``and``, and TRUE decides ``or``. ``try`` divides the rows until it has found those that fail.

A kernel that fails for a column fails for at least one of its rows. A binary search finds the first
such row for the error message.

Cost: one kernel call per distinct subexpression and per branch reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import EvaluationError
from circuits.excerpt import shorten
from circuits.plan.expression_text import ColumnName, column_name, lambda_column_names
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.arrow_types import type_name
from circuits.types.codecs.nested import Lists
from circuits.types.functions.argument_rows import fill_rows, scatter_rows
from circuits.types.functions.casting.text_formatting import format_scalar
from circuits.types.functions.function import Kernel, Values
from circuits.types.functions.length_limits import check_result
from circuits.types.functions.nested.lambdas import (
    LAMBDA_FUNCTIONS,
    Pairs,
    apply_lambda,
    sort_by_comparisons,
)
from circuits.types.functions.registry import TABLE
from circuits.types.functions.type_rules import kernel_type

__all__ = ["evaluate"]

# The last one is that of a JSON text, which a function reads and writes by recursion.
_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, RecursionError)
Columns = Mapping[int, pa.Array] | Sequence[pa.Array]
# An error message shows at most this many characters of an expression.
_MAX_SHOWN_CHARACTERS: Final = 200


def evaluate(
    expression: Expression, columns: Columns, rows: int, names: Sequence[str] | None = None
) -> pa.Array:
    """Compute the value of an expression for each row.

    Args:
        expression: A typed expression, built by `circuits.types.functions.call`.
        columns: The arrays, by column index; at least those that the expression reads.
        rows: The number of rows. It determines the result of an expression that reads no column.
        names: The names of the columns for errors, by column index; without them, ``#0`` and so on.

    Returns:
        An array of ``expression.type`` with ``rows`` values.

    Raises:
        EvaluationError: The expression has no value for some row, because of an overflow or an
            impossible cast, for example.

    >>> from circuits.types.functions import call
    >>> total = call("add", Column(0, pa.int64()), Literal(1, pa.int64()))
    >>> evaluate(total, [pa.array([1, None])], 2).to_pylist()
    [2, None]
    """
    frame = _Frame(lambda index: _column(columns[index]), rows, _namer(names))
    try:
        values = fill_rows(frame.value(expression), rows)
        return values if values.type == expression.type else pc.cast(values, expression.type)
    # These errors concern whole columns. Errors of single rows are EvaluationErrors already.
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise _capacity_error(frame, expression, error) from error


def _namer(names: Sequence[str] | None) -> ColumnName:
    return (lambda index: f"#{index}") if names is None else names.__getitem__


def _column(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    target = kernel_type(values.type)
    return values if values.type == target else pc.cast(values, target)


@lru_cache(maxsize=4096)
def _scalar(literal: Literal) -> pa.Scalar:
    """Return a literal as a scalar; cached, because building one takes longer than a small step."""
    if literal.value is None:
        return pa.nulls(1, kernel_type(literal.type))[0]
    return pa.array([literal.value], literal.type).cast(kernel_type(literal.type))[0]


class _Frame:
    """A set of rows: their columns, read on demand, and the values of subexpressions so far."""

    def __init__(
        self, column: Callable[[int], pa.Array], rows: int, column_names: ColumnName
    ) -> None:
        self._column = column
        self._values: dict[Expression, Values] = {}
        self.rows = rows
        self.column_names = column_names

    def show(self, expression: Expression) -> str:
        """Return the text of an expression for an error message."""
        return column_name(expression, self.column_names, _MAX_SHOWN_CHARACTERS)

    def restrict(self, positions: pa.Array) -> _Frame:
        """Return a frame of the rows at these positions, which reuses the columns of this frame.

        Args:
            positions: Ascending and distinct, so that all rows are this frame itself.
        """
        if len(positions) == self.rows:
            return self
        return _Frame(
            lambda index: self.value(Column(index, pa.null())).take(positions),
            len(positions),
            self.column_names,
        )

    def value(self, expression: Expression) -> Values:
        """Return the value of an expression: a column, or a scalar if all rows have that value."""
        if isinstance(expression, Literal):
            return _scalar(expression)
        if isinstance(expression, Column):
            # The type is not part of the key, so that all references to a column find it.
            expression = Column(expression.index, pa.null())
        elif self.rows == 0:  # without rows, not even a call of literals may fail
            return pa.nulls(0, kernel_type(expression.type))
        if expression not in self._values:
            self._values[expression] = self._compute(expression)
        return self._values[expression]

    def _compute(self, expression: Column | Call) -> Values:
        if isinstance(expression, Column):
            return self._column(expression.index)
        kernel = TABLE[expression.function].kernel
        if expression.function == "try":
            return _evaluate_try(self, expression)
        if kernel is None:
            if expression.function in LAMBDA_FUNCTIONS:
                return _evaluate_lambda(self, expression)
            return _evaluate_branches(self, expression)
        try:
            arguments = [self.value(argument) for argument in expression.arguments]
        except EvaluationError:
            if expression.function not in ("and", "or"):
                raise
            return _evaluate_connective(self, expression)
        return _call_kernel(self, expression, kernel, arguments)


def _call_kernel(
    frame: _Frame, expression: Call, kernel: Kernel, arguments: list[Values]
) -> Values:
    target = kernel_type(expression.type)
    constant = all(isinstance(argument, pa.Scalar) for argument in arguments)
    if constant:  # a kernel needs at least one column
        arguments = [fill_rows(arguments[0], 1), *arguments[1:]]
    try:
        result = kernel(arguments, target)
        check_result(result, arguments)
    except _FAILURES as error:
        raise _row_error(frame, expression, kernel, arguments, error) from error
    except pa.ArrowCapacityError as error:
        raise _capacity_error(frame, expression, error) from error
    return result[0] if constant and isinstance(result, pa.Array) else result


def _row_error(
    frame: _Frame, expression: Call, kernel: Kernel, arguments: list[Values], error: Exception
) -> EvaluationError:
    """Build the error, with the arguments of the first row for which the kernel fails."""
    rows = max(len(a) for a in arguments if isinstance(a, pa.Array))
    start, stop = 0, rows
    while stop - start > 1:
        middle = (start + stop) // 2
        part = [a[start:middle] if isinstance(a, pa.Array) else a for a in arguments]
        try:
            check_result(kernel(part, kernel_type(expression.type)), part)
            start = middle
        except _FAILURES as first_half_error:
            stop, error = middle, first_half_error
        except pa.ArrowCapacityError:  # too many values for one column, but none of them fails
            start = middle
    if expression.function == "raise_error":
        return EvaluationError(f"{shorten(str(error))}; exclude such rows, or use a case around it")
    values = [a[start] if isinstance(a, pa.Array) else a for a in arguments]
    shown = dict.fromkeys(
        f"{frame.show(argument)} = {format_scalar(value)}"
        for argument, value in zip(expression.arguments, values, strict=True)
        if not isinstance(argument, Literal)
    )
    where = f" for {', '.join(shown)}" if shown else ""
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return EvaluationError(
        f"{frame.show(expression)} has no value of type {type_name(expression.type)}{where}: "
        f"{shorten(reason)}; exclude such rows, or use try_cast or a case around it"
    )


def _capacity_error(frame: _Frame, expression: Expression, error: Exception) -> EvaluationError:
    """Build the error for values that are valid one by one but too large for one column."""
    return EvaluationError(
        f"the values of {frame.show(expression)} do not fit one column of type {expression.type}: "
        f"{error}; give fewer rows in a step, for example by smaller micro-batches"
    )


def _evaluate_connective(frame: _Frame, expression: Call) -> Values:
    """Evaluate ``and`` or ``or``, each argument only for the rows that others have not decided.

    An argument that fails for an undecided row waits until the other arguments have decided more
    rows, so the order of the arguments does not matter. If no waiting argument can be evaluated,
    the first one's error is raised. With n arguments, there are at most n(n + 1) / 2 evaluations.
    """
    deciding_value = expression.function == "or"
    kernel = pc.or_kleene if deciding_value else pc.and_kleene
    result = pa.repeat(pa.scalar(not deciding_value), frame.rows)
    waiting = list(expression.arguments)
    while waiting:
        failed: list[Expression] = []
        first_error: EvaluationError | None = None
        for argument in waiting:
            undecided = pc.fill_null(pc.not_equal(result, deciding_value), True)
            positions = pc.indices_nonzero(undecided).cast(pa.int64())
            try:
                values = fill_rows(frame.restrict(positions).value(argument), len(positions))
            except EvaluationError as error:
                first_error = first_error or error
                failed.append(argument)
                continue
            values = kernel(result.filter(undecided), values)
            result = pc.replace_with_mask(result, undecided, values)
        if first_error is not None and len(failed) == len(waiting):
            raise first_error
        waiting = failed
    return result


def _evaluate_try(frame: _Frame, expression: Call) -> Values:
    """Evaluate ``try``: NULL for the rows for which its argument fails, found by bisection."""
    target = kernel_type(expression.type)

    def attempt(positions: pa.Array) -> pa.Array:
        try:
            values = frame.restrict(positions).value(expression.arguments[0])
            return fill_rows(values, len(positions)).cast(target)
        except EvaluationError:
            if len(positions) == 1:
                return pa.nulls(1, target)
        half = len(positions) // 2
        return pa.concat_arrays([attempt(positions[:half]), attempt(positions[half:])])

    return attempt(pa.array(np.arange(frame.rows)))


def _evaluate_lambda(frame: _Frame, expression: Call) -> Values:
    """Evaluate a function of lists whose second argument is an expression over their elements.

    Column 0 of that expression is the element, column 1 its position from 0. The columns from 2 on
    are the third and later arguments of the function. The expression is evaluated once for the
    elements of all lists; `list_reduce` evaluates it once per position, with the value so far as
    column 0 and the element as column 1.
    """
    array, body, *others = expression.arguments
    assert isinstance(body, Literal)
    lists = Lists.of(fill_rows(frame.value(array), frame.rows))
    other_columns = [fill_rows(frame.value(other), frame.rows) for other in others]
    names = lambda_column_names(expression, frame.column_names)
    if expression.function == "list_reduce":
        return _reduce(lists, body.value, other_columns, kernel_type(expression.type), names)
    if expression.function == "list_sort_by":
        return _sort_by(lists, body.value, other_columns, kernel_type(expression.type), names)
    row_of_element = pa.array(lists.owners)
    columns = [lists.values, pa.array(lists.positions)]
    columns += [column.take(row_of_element) for column in other_columns]
    elements = _Frame(lambda index: columns[index], len(lists.values), names)
    values = fill_rows(elements.value(body.value), elements.rows)
    return apply_lambda(expression.function, lists, values, kernel_type(expression.type))


def _sort_by(
    lists: Lists,
    body: Expression,
    other_columns: list[pa.Array],
    target: pa.DataType,
    names: ColumnName,
) -> pa.Array:
    """Evaluate the comparison for all pairs of elements of each list at once, and sort by it."""
    pairs = Pairs.of(lists)
    sides = [lists.values.take(pa.array(side)) for side in (pairs.left, pairs.right)]
    row_of_pair = pa.array(pairs.owners)
    columns = [*sides, *(column.take(row_of_pair) for column in other_columns)]
    frame = _Frame(columns.__getitem__, len(row_of_pair), names)
    comparisons = fill_rows(frame.value(body), len(row_of_pair))
    return sort_by_comparisons(lists, pairs, comparisons, target)


def _reduce(
    lists: Lists,
    body: Expression,
    other_columns: list[pa.Array],
    target: pa.DataType,
    names: ColumnName,
) -> pa.Array:
    """Evaluate ``list_reduce``; the first of the other columns has the initial values."""
    result, *unchanged_columns = other_columns
    result = result if result.type == target else pc.cast(result, target)
    position, rows = 0, np.flatnonzero(lists.lengths)  # the rows whose lists are not at their end
    while len(rows):
        row_indices = pa.array(rows)
        elements = lists.values.take(pa.array(lists.starts[rows] + position))
        columns = [column.take(row_indices) for column in (result, *unchanged_columns)]
        columns.insert(1, elements)
        frame = _Frame(columns.__getitem__, len(rows), names)
        values = fill_rows(frame.value(body), len(rows)).cast(target)
        # Replace the results of these rows: append the values to the results and take them there.
        positions = np.arange(len(result))
        positions[rows] = len(result) + np.arange(len(rows))
        result = pa.concat_arrays([result, values]).take(pa.array(positions))
        position += 1
        rows = rows[lists.lengths[rows] > position]
    if lists.valid is None:
        return result
    return pc.if_else(pa.array(lists.valid), result, pa.scalar(None, target))


def _evaluate_branches(frame: _Frame, expression: Call) -> Values:
    """Evaluate ``case`` or ``coalesce``, each branch only for the rows without a value so far."""
    target = kernel_type(expression.type)
    undecided = pa.array(np.arange(frame.rows))
    part_positions: list[pa.Array] = []
    parts: list[pa.Array] = []

    def add_part(positions: pa.Array, values: Values) -> None:
        part_positions.append(positions)
        parts.append(fill_rows(values, len(positions)).cast(target))

    arguments = expression.arguments
    if expression.function == "coalesce":
        for argument in arguments[:-1]:
            values = fill_rows(frame.restrict(undecided).value(argument), len(undecided))
            valid = pc.is_valid(values)
            add_part(undecided.filter(valid), values.filter(valid))
            undecided = undecided.filter(pc.invert(valid))
    else:
        for test, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
            truth = fill_rows(frame.restrict(undecided).value(test), len(undecided))
            is_true = pc.fill_null(truth, False)
            matching = undecided.filter(is_true)
            add_part(matching, frame.restrict(matching).value(value))
            undecided = undecided.filter(pc.invert(is_true))
    add_part(undecided, frame.restrict(undecided).value(arguments[-1]))
    return scatter_rows(part_positions, parts)
