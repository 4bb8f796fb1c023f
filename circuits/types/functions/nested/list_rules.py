"""Type rules of the functions of lists.

Elements of several lists, or of a list and an item, are cast to a common type. NULL is accepted as
a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Rule,
    TypedArguments,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import common_type

__all__ = [
    "SAME_TYPE_RULE",
    "is_list",
    "item_rule",
    "list_rule",
    "require_lists",
    "type_null_lists",
    "unified_lists_rule",
]

_INT: Final = pa.int64()


def is_list(data_type: pa.DataType) -> bool:
    """Return True for a list of any layout."""
    return bool(
        arrow.is_list(data_type)
        or arrow.is_large_list(data_type)
        or arrow.is_fixed_size_list(data_type)
    )


def require_lists(name: str, arguments: Arguments, count: int) -> None:
    """Raise FunctionError unless the first ``count`` arguments are lists or NULL."""
    for argument in arguments[:count]:
        if not is_list(argument.type) and not arrow.is_null(argument.type):
            raise argument_error(name, arguments, "it takes a list")


def type_null_lists(arguments: Arguments) -> Arguments:
    """Return the arguments; NULL literals become NULLs of the type "list of NULLs"."""
    null_list = pa.list_(pa.null())
    return tuple(cast_to(a, null_list) if arrow.is_null(a.type) else a for a in arguments)


def list_rule(result: Callable[[pa.DataType], pa.DataType], count: int = 1) -> Rule:
    """Return the rule of a function of one list and ``count - 1`` integers.

    Args:
        result: Returns the type of the result for the type of the list.
        count: The number of arguments.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, count, count)
        require_lists(name, arguments, 1)
        first, *integers = arguments
        (first,) = type_null_lists((first,))
        for number in integers:
            if not arrow.is_integer(number.type) and not arrow.is_null(number.type):
                raise argument_error(name, arguments, "positions and counts are integers")
        return (first, *(cast_to(number, _INT) for number in integers)), result(first.type)

    return rule


def item_rule(result: pa.DataType | None = None, *, first: bool = False) -> Rule:
    """Return the rule of a function of a list and an element, which are cast to a common type.

    Args:
        result: The type of the result; None for the type of the list.
        first: True if the element is the first argument.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        values, item = arguments[::-1] if first else arguments
        require_lists(name, (values,), 1)
        (values,) = type_null_lists((values,))
        element_type = common_type((values.type.value_type, item.type))
        list_type = pa.list_(element_type)
        return (cast_to(values, list_type), cast_to(item, element_type)), result or list_type

    return rule


def unified_lists_rule(result: pa.DataType | None = None) -> Rule:
    """Return the rule of a function of several lists, which are cast to a common type."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        # Only a function that returns a list, such as list_concat, has a result for one list.
        require(name, arguments, 1 if result is None else 2, None)
        require_lists(name, arguments, len(arguments))
        typed = type_null_lists(arguments)
        target = pa.list_(common_type(a.type.value_type for a in typed))
        return tuple(cast_to(a, target) for a in typed), result or target

    return rule


#: The rule of a function of one list; the result is a list of the same elements.
SAME_TYPE_RULE: Final = list_rule(lambda data_type: pa.list_(data_type.value_type))
