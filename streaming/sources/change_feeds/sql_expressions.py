"""SQL expressions: build Spark SQL text for the decoders of change feeds.

A decoder is a large expression. As text it reaches Spark in one call; built from column objects it
would take thousands of calls (seconds, for a relation of ten columns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from circuits.excerpt import MAX_EXCERPT_CHARACTERS

__all__ = [
    "case",
    "excerpt_of",
    "literal",
    "quote_name",
    "row",
    "shorten_text",
    "with_binding",
]


def quote_name(name: str) -> str:
    """Quote an identifier, which may contain any characters.

    >>> quote_name("a`b c")
    '`a``b c`'
    """
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    r"""Return a text as a SQL string literal; it may contain any characters, also backslashes.

    >>> print(literal(r"^\d+'s$"))
    '^\\d+\'s$'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def row(members: Mapping[str, str]) -> str:
    """Return a struct of named expressions."""
    return f"named_struct({', '.join(f'{literal(n)}, {e}' for n, e in members.items())})"


def with_binding(name: str, value: str, body: str) -> str:
    """Bind a value to a name in an expression, so that it is written and computed once.

    SQL cannot name a part of an expression, but the parameter of a lambda over an array of one
    element is such a name.

    >>> with_binding("x", "a + 1", "x * x")
    'transform(array(a + 1), x -> x * x)[0]'
    """
    return f"transform(array({value}), {name} -> {body})[0]"


def case(subject: str, names: Sequence[str], arm: Callable[[str], str], otherwise: str) -> str:
    """Return a CASE that selects the arm of the name that equals ``subject``."""
    arms = " ".join(f"WHEN {literal(name)} THEN {arm(name)}" for name in names)
    return f"CASE {subject} {arms} ELSE {otherwise} END"


def excerpt_of(text: str) -> str:
    """Return a text for messages: its first characters, and the length of a very long text.

    Counting characters is slow, and a character has at most four bytes. So only the characters of a
    text of more than four times `MAX_EXCERPT_CHARACTERS` bytes are counted.
    """
    start = f"left({text}, {MAX_EXCERPT_CHARACTERS})"
    more = f"concat({start}, '… (', length({text}), ' characters)')"
    return f"if(octet_length({text}) > {4 * MAX_EXCERPT_CHARACTERS}, {more}, {start})"


def shorten_text(text: str, limit: int) -> str:
    """Return a text of up to ``limit`` bytes; cut a longer text, and append its length and limit.

    Only a string column accepts a cut text. In any other column its parser refuses the short text,
    never reads the long one, and the error message shows the appended reason.
    """
    why = f"concat('… (', octet_length({text}), ' bytes, more than the {limit} that are read)')"
    long = f"concat(left({text}, 60), {why})"
    return f"if(octet_length({text}) > {limit}, {long}, {text})"
