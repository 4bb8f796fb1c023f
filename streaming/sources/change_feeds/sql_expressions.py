"""Pieces of Spark SQL text, from which the decoders are put together.

A decoder is a large expression. As text it is handed to Spark in one call, where building it from
column objects takes thousands (seconds, for a relation of ten columns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

__all__ = ["MAX_SHOWN", "bound", "capped", "case", "literal", "quoted", "row", "shown"]

#: Characters of a value that a message shows.
MAX_SHOWN: Final = 200


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


def shown(text: str) -> str:
    """A text as a message shows it: the beginning and the length of one that is long."""
    more = f"concat(left({text}, {MAX_SHOWN}), '… (', length({text}), ' characters)')"
    return f"if(octet_length({text}) > {4 * MAX_SHOWN}, {more}, left({text}, {MAX_SHOWN}))"


def capped(text: str, limit: int) -> str:
    """A text of up to ``limit`` bytes; of a longer one its beginning, its length and the limit.

    That is a value of no type but text, so no pattern or parser works through a long one, and the
    message about it says why it was not read.
    """
    why = f"concat('… (', octet_length({text}), ' bytes, more than the {limit} that are read)')"
    long = f"concat(left({text}, 60), {why})"
    return f"if(octet_length({text}) > {limit}, {long}, {text})"
