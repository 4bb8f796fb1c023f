"""Build a typed call of a function by its name: ``call``.

A call with only literals becomes a literal (constant folding). If its evaluation fails, for example
with an overflow, it remains a call and fails only when it is evaluated for a row. In a branch of
a CASE that no row reaches, it never fails. It also remains a call if Python cannot represent the
value, for example a date in the year 20000. Text that an implicit cast cannot parse is an error
here (`circuits.types.functions.casting.coercion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from circuits.errors import FunctionError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.types.arrow_types import has_enum, has_variant, is_nested
from circuits.types.functions.function import Arguments, Function, Values
from circuits.types.functions.registry import TABLE
from circuits.types.functions.type_rules import kernel_type

__all__ = ["call", "conjunction"]

# Names that mean one function of a text and another one of a list.
_OVERLOADED = {"length": "list_length", "reverse": "list_reverse", "contains": "list_contains"}
_SHORTHANDS = ("if", "nullif")
# The functions whose result has the type that the caller gives.
_WITH_TARGET = ("cast", "try_cast", "divide_ansi")


def call(name: str, *arguments: Expression, type: pa.DataType | None = None) -> Expression:
    """Return the typed call of a function, with implicit casts inserted.

    Args:
        name: The name of a function in `TABLE`.
        arguments: Expressions over the same row.
        type: The target type of ``cast`` and ``try_cast``, or the decimal type of the quotient of
            ``divide_ansi``; None for other functions.

    Raises:
        FunctionError: The function does not exist, or does not accept this number of arguments or
            these types.

    >>> from circuits.plan.expressions import Column
    >>> price = Column(0, pa.decimal128(15, 2))
    >>> taxed = call("multiply", price, Literal(2, pa.int64()))
    >>> str(taxed), taxed.type
    ("multiply(#0, Decimal('2'))", Decimal128Type(decimal128(16, 2)))
    """
    if name == "if" and len(arguments) == 3:
        return call("case", *arguments)
    if name == "nullif" and len(arguments) == 2:
        value, other = arguments
        equal = call("eq", value, other)
        return call("case", equal, Literal(None, value.type), value)
    if arguments and name in _OVERLOADED:
        name = _overload(name, arguments[0].type)
    function = TABLE.get(name)
    if function is None:
        raise _unknown(name, len(arguments))
    if type is not None and name not in _WITH_TARGET:
        raise FunctionError(f"{name} has no parameter 'type'; cast its result to {type}")
    if name in _NOT_OF_VARIANT:
        for data_type in (argument.type for argument in arguments):
            if has_variant(data_type):
                advice = "of a VARIANT does not exist; cast it, or use to_json() for its text"
                raise FunctionError(f"{name} {advice}")
            if has_enum(data_type):
                raise FunctionError(f"{name} of an ENUM does not exist; cast it to VARCHAR")
    typed: Arguments
    typed, result_type = function.rule(name, arguments, type)
    if name in ("cast", "try_cast") and typed[0].type == result_type:
        return typed[0]
    return _fold(function, typed, result_type) or Call(name, typed, result_type)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """Return the conjunction of conditions; TRUE if there are none.

    >>> from circuits.plan.expressions import Column
    >>> a, b = (Column(number, pa.bool_()) for number in range(2))
    >>> print(conjunction([]), conjunction([a]), conjunction([a, b]))
    True #0 and(#0, #1)
    """
    if not conditions:
        return Literal(True, pa.bool_())
    return conditions[0] if len(conditions) == 1 else call("and", *conditions)


#: Functions of any type that order or hash values, or write them as texts.
_NOT_OF_VARIANT: Final = frozenset(
    (
        *("lt", "le", "gt", "ge", "greatest", "least", "list_min", "list_max", "list_median"),
        *("list_sort", "list_sort_nulls_first", "list_sort_desc", "list_sort_desc_nulls_first"),
        *("list_grade_up", "list_grade_up_nulls_first", "list_grade_up_desc"),
        *("list_grade_up_desc_nulls_first", "sorted_list_histogram"),
        *("murmur3", "xxhash64", "to_csv", "spark_text", "nested_text", "format_template"),
    )
)


def _overload(name: str, data_type: pa.DataType) -> str:
    """Return the function of lists or maps for a function that also takes texts."""
    if pa.types.is_map(data_type) and name == "length":
        return "map_size"
    return _OVERLOADED[name] if is_nested(data_type) else name


def _unknown(name: str, count: int) -> FunctionError:
    if name in _SHORTHANDS:
        expected = 3 if name == "if" else 2
        return FunctionError(f"{name} takes {expected} arguments, not {count}")
    similar = get_close_matches(name, [*TABLE, *_SHORTHANDS], n=3)
    hint = f"functions: {', '.join(sorted(TABLE))}"
    if similar:
        hint = f"did you mean {' or '.join(similar)}?"
    return FunctionError(f"unknown function {name!r}; {hint}")


def _fold(function: Function, arguments: Arguments, result_type: pa.DataType) -> Literal | None:
    """Evaluate a call of literals; None if an argument is not a literal or evaluation fails."""
    # A literal is a hashable Python value, which lists, structs and maps are not.
    if function.kernel is None or is_nested(result_type):
        return None
    values: list[Values] = []
    for argument in arguments:
        if not isinstance(argument, Literal):
            return None
        array = pa.array([argument.value], argument.type).cast(kernel_type(argument.type))
        # An array of one row, which gives the result one row; the other arguments are scalars.
        values.append(array if not values else array[0])
    try:
        value = function.kernel(values, kernel_type(result_type))
        scalar = value[0] if isinstance(value, pa.Array) else value
        return Literal(scalar.cast(result_type).as_py(), result_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        return None
