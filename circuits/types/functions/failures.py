"""Functions that raise errors, and ``try``, which replaces an error by NULL.

``try`` has no kernel. The evaluator (`circuits.runtime.evaluation`) evaluates the argument of
``try`` and finds the rows that fail by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    require,
)
from circuits.types.functions.signatures import Signature

__all__ = ["FUNCTIONS"]


def _try_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    return arguments, arguments[0].type


def _raise(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    if rows:
        message = fill_rows(arguments[0], rows)[0].as_py()
        raise pa.ArrowInvalid(str(message))
    return pa.nulls(0, result_type)


def _assert_true(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    condition, message = (fill_rows(values, rows) for values in arguments)
    is_false = pc.invert(pc.fill_null(condition, False))
    if pc.any(is_false, min_count=0).as_py():
        raise pa.ArrowInvalid(str(message.filter(is_false)[0].as_py()))
    return pa.nulls(rows, result_type)


# In a signature, b is a condition and t a text.
FUNCTIONS = (
    Function("try", "a; NULL for the rows for which a fails", _try_rule),
    Function(
        "raise_error",
        "raises an error with the message a for each row for which it is evaluated",
        Signature("t", pa.string()),
        _raise,
    ),
    Function(
        "assert_true",
        "NULL; fails with the message b if a is not true",
        Signature("bt", pa.bool_()),
        _assert_true,
    ),
)
