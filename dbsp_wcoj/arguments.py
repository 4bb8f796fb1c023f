"""A check of the Python types of arguments of public functions.

All public functions follow this rule: an argument of the wrong Python type raises
`ArgumentTypeError`, which is a ``TypeError`` and a `DbspWcojError`; an invalid value raises the
subclass of `DbspWcojError` that names the fault. They raise no other errors.
"""

from __future__ import annotations

from typing import Final

from dbsp_wcoj.errors import ArgumentTypeError

__all__ = ["check_type"]

# A message shows this many characters of a value.
_MAX_VALUE_CHARACTERS: Final = 60


def check_type(name: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Check the Python type of an argument.

    Args:
        name: The name of the argument.
        value: The argument.
        types: The types that it may have. If this is `int` alone, a bool is not accepted.
        expected: A description of a valid value, for the message.

    Raises:
        ArgumentTypeError: The argument has another type.

    >>> check_type("text", None, str, "a text")
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.ArgumentTypeError: text is None, of type NoneType: give a text
    """
    if isinstance(value, types) and not (isinstance(value, bool) and types is int):
        return
    excerpt = repr(value)
    if len(excerpt) > _MAX_VALUE_CHARACTERS:
        excerpt = f"{excerpt[:_MAX_VALUE_CHARACTERS]}..."
    raise ArgumentTypeError(f"{name} is {excerpt}, of type {type(value).__name__}: give {expected}")
