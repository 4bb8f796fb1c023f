"""Type rules by signature, and kernels that call Python once per distinct row of arguments.

A signature has one letter per parameter; parameters after ``|`` are optional, and ``*`` repeats the
last one::

    t text        i integer     f number, cast to float64           n number, not cast
    b bool        y bytes       d date                              m timestamp without zone
    v any value

Literals are cast to the type of the parameter; a column is cast only if the target type can
represent all its values. A parameter ``y`` also takes text, which stands for its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import (
    is_binary,
    is_number,
    is_temporal,
    is_text,
    kernel_type,
)

__all__ = ["Signature", "column_kernel", "per_distinct_row"]

# The type to which a NULL without a type is cast, by the letter of its parameter.
_NULL_TYPES = {
    "t": pa.string(),
    "i": pa.int64(),
    "f": pa.float64(),
    "n": pa.int64(),
    "b": pa.bool_(),
    "y": pa.binary(),
    "d": pa.date32(),
    "m": pa.timestamp("us"),
    "v": pa.bool_(),
}
# How errors name the accepted values.
_ACCEPTED_VALUES = {
    "t": "text",
    "i": "an integer",
    "f": "a number",
    "n": "a number",
    "b": "a condition",
    "y": "text or bytes",
    "d": "a date",
    "m": "a date or a timestamp",
}


@dataclass(frozen=True)
class Signature:
    """A type rule, given by the types of the parameters and of the result.

    Args:
        parameters: One letter per parameter, as in the module docstring.
        result: The type of the result; None for the type of the first argument.
    """

    parameters: str
    result: pa.DataType | None = None

    @property
    def max_arguments(self) -> int | None:
        """The largest number of arguments; None if there is no limit."""
        return None if self.parameters.endswith("*") else len(self.parameters.replace("|", ""))

    def letters(self, count: int) -> str:
        """Return the letters of the parameters of a call with ``count`` arguments."""
        letters = self.parameters.replace("|", "")
        if letters.endswith("*"):
            letters = letters[:-1]
            letters += letters[-1] * max(0, count - len(letters))
        return letters[:count]

    def __call__(
        self, name: str, arguments: Arguments, target_type: pa.DataType | None = None
    ) -> TypedArguments:
        """Return the arguments, cast as their parameters require, and the type of the result.

        Raises:
            FunctionError: An argument does not fit its parameter, or there are too few or too many
                arguments.
        """
        required, _, _ = self.parameters.partition("|")
        require(name, arguments, len(required.rstrip("*")), self.max_arguments)
        letters = self.letters(len(arguments))
        typed = tuple(
            _fit(name, arguments, argument, letter)
            for argument, letter in zip(arguments, letters, strict=True)
        )
        return typed, self.result or kernel_type(typed[0].type)


def _fit(name: str, arguments: Arguments, argument: Expression, letter: str) -> Expression:
    """Cast an argument to the type of its parameter, or raise FunctionError."""
    data_type = argument.type
    if arrow.is_null(data_type):
        return cast_to(argument, _NULL_TYPES[letter])
    is_text_literal = isinstance(argument, Literal) and is_text(data_type)
    match letter:
        case "v":
            return argument
        case "t" if is_text(data_type):
            return argument
        case "y" if is_text(data_type) or is_binary(data_type):
            return argument
        case "i" if arrow.is_integer(data_type):
            return cast_to(argument, pa.int64())
        case "f" if is_number(data_type):
            return cast_to(argument, pa.float64())
        case "n" if is_number(data_type):
            return argument
        case "b" if arrow.is_boolean(data_type):
            return argument
        case "d" if is_temporal(data_type) or is_text_literal:
            return cast_to(argument, pa.date32())
        case "m" if is_temporal(data_type) or is_text_literal:
            return cast_to(argument, pa.timestamp("us"))
        case _:
            position = arguments.index(argument) + 1
            raise argument_error(
                name,
                arguments,
                f"argument {position} is {_ACCEPTED_VALUES[letter]}; cast it to that",
            )


def column_kernel(function: Callable[..., pa.Array]) -> Kernel:
    """Return a kernel that calls ``function`` with all arguments as columns of equal length."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        result = function(*(fill_rows(values, rows) for values in arguments))
        return result if result.type == result_type else pc.cast(result, result_type)

    return kernel


def per_distinct_row(function: Callable[..., Any], *, nulls: bool = False) -> Kernel:
    """Return a kernel that calls a Python function once per distinct combination of arguments.

    This is for functions that neither Arrow nor numpy has. The cost is one call per distinct row,
    in addition to array operations. A ValueError of the function is raised as ArrowInvalid, and so
    is a date that Python does not have.

    Args:
        function: A pure function of Python values.
        nulls: If True, NULLs are passed to the function as None. If False, the result is NULL if an
            argument is NULL.
    """

    def call(*values: Any) -> Any:
        if not nulls and any(value is None for value in values):
            return None
        return function(*values)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        if rows == 0:
            return pa.nulls(0, result_type)
        columns = {
            index: _encode(argument)
            for index, argument in enumerate(arguments)
            if isinstance(argument, pa.Array)
        }
        distinct_index, first_rows = _distinct_rows([codes for codes, _ in columns.values()])
        try:
            # For each argument, its values in the distinct rows.
            distinct_values: list[list[Any]] = []
            for index, argument in enumerate(arguments):
                if index in columns:
                    codes, dictionary = columns[index]
                    distinct_values.append(dictionary.take(pa.array(codes[first_rows])).to_pylist())
                else:
                    distinct_values.append([argument.as_py()] * len(first_rows))
            distinct_rows = zip(*distinct_values, strict=True)
            results = pa.array([call(*values) for values in distinct_rows], result_type)
        except pa.ArrowException:
            raise
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise pa.ArrowInvalid(str(error)) from error
        return results.take(pa.array(distinct_index))

    return kernel


def _encode(values: pa.Array) -> tuple[np.ndarray[Any, Any], pa.Array]:
    """Return the codes of a column, and the dictionary: the value of each code."""
    encoded = pc.dictionary_encode(values, "encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _distinct_rows(
    codes: list[np.ndarray[Any, Any]],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Find the distinct rows of columns of codes.

    Returns:
        For each row, the index of its distinct row. For each distinct row, the first row equal to
        it.
    """
    combined = codes[0]
    if len(codes) == 1 and not combined.any():
        # All rows have code 0: the only distinct row is row 0, or there are no rows.
        return combined, combined[:1]
    for column in codes[1:]:
        _, combined = np.unique(combined, return_inverse=True)
        combined = combined * (int(column.max()) + 1) + column
    _, first_rows, distinct_index = np.unique(combined, return_index=True, return_inverse=True)
    return distinct_index, first_rows
