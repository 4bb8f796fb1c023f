"""The common part of the grammars of queries and of Datalog, and their syntax errors.

Conjunctive queries (`dbsp_wcoj.query`) and Datalog (`circuits.datalog.grammar`) have the same
variables, quoted strings, relation names and comparison operators::

    reach(x, z) :- reach(x, y), edge(y, z), x != 'home'.

They differ in their grammar rules. Both grammars are written for the parser library lark, which is
imported on first use, so that importing this module stays cheap. A `SyntaxFault` is a message with
an offset in the text; each language converts it into an error of its own.
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

#: Regular expressions, to be used in terminals (the words of a grammar).
RELATION_NAME: Final = r"[$A-Za-z_][A-Za-z0-9_.\/-]*"
COMPARISON_OPERATOR: Final = r"<=|>=|==|!=|<|>|="

#: Terminals, in lark's notation.
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

#: The escapes that a quoted string may contain.
ESCAPES: Final = "\\\\ \\\" \\' \\n \\t \\r \\b \\f \\uXXXX"
_UNESCAPED: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class SyntaxFault(Exception):
    """A fault at an offset of a text; the parser of each language raises its own error for it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class UnknownEscapeFault(SyntaxFault):
    """An unknown escape in a quoted string."""

    def __init__(self, escape: str, offset: int) -> None:
        super().__init__(f"unknown escape '{escape}'; use one of {ESCAPES}", offset)
        self.escape = escape


def parse_tree(
    parser: Lark, text: str, terminal_names: Mapping[str, str], text_kind: str
) -> Tree[Token]:
    """Parse a text.

    Args:
        parser: An LALR(1) parser.
        text: The text.
        terminal_names: The name of each terminal in an error message.
        text_kind: The name of the text, such as "a query"; for error messages where the parser does
            not know what it expects.

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
    expected_names = [terminal_names.get(name, name) for name in expected]
    raise SyntaxFault(describe_unexpected(text, offset, expected_names, text_kind), offset)


def describe_unexpected(
    text: str, offset: int, expected: Iterable[str], text_kind: str, found: str | None = None
) -> str:
    """Return the message ``found X, expected Y``.

    Args:
        text: The text.
        offset: The position of the fault.
        expected: The names of the terminals that the grammar allows there.
        text_kind: The name of the text, such as "a query"; used if ``expected`` is empty.
        found: A description of the text at the offset; by default the word there.

    >>> describe_unexpected("e(a b)", 4, ["','", "')'"], "a query")
    "found 'b', expected ')' or ','"
    """
    if found is None:
        word = re.compile(r"\w+|.|$", re.DOTALL).match(text, offset)
        found = repr(word[0]) if word and text[offset:].strip() else "the end of the text"
    alternatives = sorted(set(expected))
    listed = ", ".join([*alternatives[:-2], " or ".join(alternatives[-2:])])
    return f"found {found}, expected {listed or text_kind}"


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

    def decode(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code.isalnum() and code not in _UNESCAPED:
            raise UnknownEscapeFault(f"\\{code}", start + escape.start() + 1)
        return _UNESCAPED.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", decode, token[1:-1], flags=re.DOTALL)
