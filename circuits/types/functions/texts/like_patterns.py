"""LIKE and ILIKE: ``%`` matches any text and ``_`` any character, unless they are escaped.

In SQL and DuckDB, a pattern has no escape character by default. Arrow's ``match_like`` always uses
the backslash as the escape character, so the pattern is rewritten. Patterns may be columns.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import by_constants
from circuits.types.functions.function import Function, Kernel
from circuits.types.functions.texts.text_functions import text_rule

__all__ = ["FUNCTIONS"]


def _rewrite_escapes(pattern: str, escape: str) -> str:
    r"""Return the pattern with the backslash as its escape character.

    >>> print(_rewrite_escapes("50$%\\_", "$"))
    50\%\\_
    """
    if len(escape) > 1:
        raise pa.ArrowInvalid(f"the escape is one character, not {escape!r}")
    rewritten, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise pa.ArrowInvalid(f"the pattern {pattern!r} ends with its escape {escape!r}")
            rewritten.append(f"\\{literal}" if literal in "%_\\" else literal)
        else:
            rewritten.append("\\\\" if character == "\\" else character)
    return "".join(rewritten)


def _like(*, ignore_case: bool) -> Kernel:
    def like(values: pa.Array, pattern: str, escape: str = "") -> pa.Array:
        return pc.match_like(values, _rewrite_escapes(pattern, escape), ignore_case=ignore_case)

    return by_constants(like)


_RULE = text_rule("ttt", 2, pa.bool_())  # three texts (t), of which the third is optional

FUNCTIONS = (
    Function(
        "like",
        "true if a matches the pattern b, with the escape character c",
        _RULE,
        _like(ignore_case=False),
    ),
    Function("ilike", "as like, ignoring case", _RULE, _like(ignore_case=True)),
)
