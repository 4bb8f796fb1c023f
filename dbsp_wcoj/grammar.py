"""The part of the query grammar that other rule languages share, and its syntax errors.

A grammar is lark text. Queries (`dbsp_wcoj.query`) and Datalog (`circuits.datalog.grammar`) have
the same variables, quoted strings, relation names and comparison operators. Each has its own rules.
A fault is a message with an offset; each language makes its own error of it.

lark is imported on first use, so that importing this module stays cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

__all__ = [
    "COMPARISON_OPERATOR",
    "ESCAPES",
    "RELATION_NAME",
    "TERMINALS",
    "TERMINAL_NAMES",
    "SyntaxFault",
    "UnknownEscapeFault",
    "describe_unexpected",
    "parse_tree",
    "unquote",
]

#: Regular expressions, to be used in terminals.
RELATION_NAME: Final = r"[$A-Za-z_][A-Za-z0-9_.\/-]*"
COMPARISON_OPERATOR: Final = r"<=|>=|==|!=|<|>|="

#: Terminals, as lark text.
TERMINALS: Final = r"""
VARIABLE: /\?[A-Za-z_][A-Za-z0-9_-]*|[A-Za-z_][A-Za-z0-9_]*/
STRING: /"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'/
_IMPLIES: ":-"
%ignore /\s+/
"""

#: The name of each terminal in an error message.
TERMINAL_NAMES: Final[Mapping[str, str]] = {
    "VARIABLE": "a variable",
    "STRING": "a quoted string",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "DOT": "'.'",
    "_IMPLIES": "':-'",
}

ESCAPES: Final = "\\\\ \\\" \\' \\n \\t \\r \\b \\f \\uXXXX"
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class SyntaxFault(Exception):
    """A fault at an offset of a text; the parser of a language makes its own error of it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class UnknownEscapeFault(SyntaxFault):
    """An unknown escape in a quoted string."""

    def __init__(self, escape: str, offset: int) -> None:
        super().__init__(f"unknown escape '{escape}'; use one of {ESCAPES}", offset)
        self.escape = escape


def parse_tree(parser: Lark, text: str, names: Mapping[str, str], whole: str) -> Tree[Token]:
    """Parse a text.

    Args:
        parser: An LALR(1) parser.
        text: The text.
        names: The names of the terminals in an error message.
        whole: The name of a complete text, where the parser expects nothing in particular.

    Raises:
        SyntaxFault: The text does not follow the grammar.

    Complexity:
        O(len(text)).
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    try:
        return parser.parse(text)
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        offset = len(text.rstrip()) if at_end else cast(int, error.token.start_pos)
        expected = error.accepts or error.expected
    except UnexpectedCharacters as error:
        offset, expected = cast(int, error.pos_in_stream), error.allowed or set()
    except UnexpectedInput as error:
        offset, expected = error.pos_in_stream or 0, set()
    ways = [names.get(name, name) for name in expected]
    raise SyntaxFault(describe_unexpected(text, offset, ways, whole), offset)


def describe_unexpected(
    text: str, offset: int, expected: Iterable[str], whole: str, found: str | None = None
) -> str:
    """Return ``found X, expected Y``.

    Args:
        text: The text.
        offset: The place of the fault.
        expected: Names of what the grammar allows there.
        whole: The name of a complete text, used where ``expected`` is empty.
        found: What the text has there; without it, the word at the offset.

    >>> describe_unexpected("e(a b)", 4, ["','", "')'"], "a query")
    "found 'b', expected ')' or ','"
    """
    if found is None:
        word = re.compile(r"\w+|.|$", re.DOTALL).match(text, offset)
        found = repr(word[0]) if word and text[offset:].strip() else "the end of the text"
    ways = sorted(set(expected))
    wanted = ", ".join([*ways[:-2], " or ".join(ways[-2:])]) or whole
    return f"found {found}, expected {wanted}"


def unquote(token: str, start: int) -> str:
    r"""Return the text of a quoted string.

    Args:
        token: The string with its quotes.
        start: The offset of the token, for errors.

    Raises:
        UnknownEscapeFault: An escape is unknown.

    >>> unquote(r"'a\tb'", 0)
    'a\tb'
    """

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code.isalnum() and code not in _ESCAPED:
            raise UnknownEscapeFault(f"\\{code}", start + escape.start() + 1)
        return _ESCAPED.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, token[1:-1], flags=re.DOTALL)
