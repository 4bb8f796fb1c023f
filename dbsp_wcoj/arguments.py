"""Arguments of public functions: one check of their Python types, with one error.

The rule of the package: an argument of the wrong Python type raises `ArgumentTypeError`, which is a
``TypeError`` and an error of the package's tree; a value that does not fit raises the error of the
tree that names the fault. Nothing else leaves a public function.
"""

from __future__ import annotations

from typing import Final

from dbsp_wcoj.errors import ArgumentTypeError

__all__ = ["check_type"]

# Characters of a value in a message.
_MAX_SHOWN: Final = 60


def check_type(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Refuse an argument that is not of a Python type.

    Args:
        name: Of the argument.
        value: The argument.
        kinds: The types that it may have; a bool is no int.
        what: What to give, for the message.

    Raises:
        ArgumentTypeError: It is of another type.

    >>> check_type("text", None, str, "a text")
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.ArgumentTypeError: text is None, of type NoneType: give a text
    """
    if isinstance(value, kinds) and not (isinstance(value, bool) and kinds is int):
        return
    shown = repr(value)
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[:_MAX_SHOWN]}..."
    raise ArgumentTypeError(f"{name} is {shown}, of type {type(value).__name__}: give {what}")
