"""Pieces of Spark SQL text, from which the decoders are put together.

A decoder is a large expression. As text it is handed to Spark in one call, where building it from
column objects takes thousands (seconds, for a relation of ten columns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["bound", "case", "literal", "quoted", "row"]


def quoted(name: str) -> str:
    """A name of any characters.

    >>> quoted("a`b c")
    '`a``b c`'
    """
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    r"""A string of any characters, backslashes and all.

    >>> print(literal(r"^\d+'s$"))
    '^\\d+\'s$'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def row(members: Mapping[str, str]) -> str:
    """A struct of named expressions."""
    return f"named_struct({', '.join(f'{literal(n)}, {e}' for n, e in members.items())})"


def bound(name: str, value: str, body: str) -> str:
    """An expression that uses a value under a name, so that it is written and computed once.

    SQL has no name for a part of an expression; a lambda over an array of one has.

    >>> bound("x", "a + 1", "x * x")
    'transform(array(a + 1), x -> x * x)[0]'
    """
    return f"transform(array({value}), {name} -> {body})[0]"


def case(subject: str, names: Sequence[str], arm: Callable[[str], str], otherwise: str) -> str:
    """The expression of the name that ``subject`` is."""
    arms = " ".join(f"WHEN {literal(name)} THEN {arm(name)}" for name in names)
    return f"CASE {subject} {arms} ELSE {otherwise} END"
