"""LIKE and ILIKE: ``%`` is any text, ``_`` any character; the escape character makes them plain.

Without an escape nothing is escaped (SQL, DuckDB), whereas Arrow's ``match_like`` always takes the
backslash for one; so the pattern is rewritten. Patterns may be columns.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants
from circuits.types.functions.function import Function, Kernel
from circuits.types.functions.text_functions import text_rule

__all__ = ["FUNCTIONS"]


def _rewritten(pattern: str, escape: str) -> str:
    r"""The pattern with the backslash as its escape.

    >>> print(_rewritten("50$%\\_", "$"))
    50\%\\_
    """
    if len(escape) > 1:
        raise pa.ArrowInvalid(f"the escape is one character, not {escape!r}")
    shown, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise pa.ArrowInvalid(f"the pattern {pattern!r} ends with its escape {escape!r}")
            shown.append(f"\\{literal}" if literal in "%_\\" else literal)
        else:
            shown.append("\\\\" if character == "\\" else character)
    return "".join(shown)


def _like(*, ignore_case: bool) -> Kernel:
    def like(values: pa.Array, pattern: str, escape: str = "") -> pa.Array:
        return pc.match_like(values, _rewritten(pattern, escape), ignore_case=ignore_case)

    return by_constants(like)


_RULE = text_rule("ttt", 2, pa.bool_())

FUNCTIONS = (
    Function(
        "like",
        "true if a matches the pattern b, with the escape character c",
        _RULE,
        _like(ignore_case=False),
    ),
    Function("ilike", "as like, ignoring case", _RULE, _like(ignore_case=True)),
)
