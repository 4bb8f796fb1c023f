"""The grammar of Datalog texts, LALR(1), read by lark with its contextual lexer.

It extends the grammar of `dbsp_wcoj.query` and shares its terminals (`dbsp_wcoj.grammar`). Every
query is Datalog, with two exceptions: ``not``, ``or`` and ``and`` cannot be relation names here,
and ``true``, ``false`` and ``null`` are constants, not variables (``?true`` is a variable).

- A rule ends with a dot; the dot of the last rule is optional.
- ``%`` and ``//`` start a comment to the end of the line; ``/*`` and ``*/`` enclose a comment. So
  there is no operator ``%``: modulo is the function ``mod``.
- A relation name may contain ``-``, ``.`` and ``/``, as ``last-name`` and ``r/to``, and a variable
  with ``?`` may contain ``-``. So a minus needs blanks around it in ``?x - 1``, and in ``x - f(y)``
  at the start of a body item.
- An operator may precede its operands: ``<(a, 3)``, ``*(x, 2)``.
- The alternatives of an ``or`` are all separated by commas, or all by semicolons; a mixture would
  be ambiguous to readers. ``and(...)`` groups a conjunction.

The three rules of sums exist twice. ``name(`` at the start of a body item may begin an atom, so it
is a NAME there (rules ``first_...``). Elsewhere it is a FUNCTION.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dbsp_wcoj.grammar import COMPARISON_OPERATOR, RELATION_NAME, TERMINAL_NAMES, TERMINALS

__all__ = ["EXPECTED", "GRAMMAR"]

GRAMMAR: Final = (
    r"""
start: rule ("." rule)* "."?
rule: head [_IMPLIES body]
head: NAME "(" [head_term ("," head_term)*] ")"
head_term: _term ["as" ALIAS]
body: _item ("," _item)*

_item: atom | comparison | negation | disjunction | conjunction
atom: call
negation: _NOT (atom | conjunction | disjunction | negation) | _NOT "(" body ")"
conjunction: _AND "(" body ")"
disjunction: _OR "(" _item ("," _item)* ")" | _OR "(" _item (";" _item)+ ")"
comparison: _first OPERATOR _term
    | OPERATOR "(" _term "," _term ")" -> prefix_comparison

_first: first_sum
?first_sum: first_product | first_sum (PLUS | MINUS) product -> binary
?first_product: first_factor | first_product (STAR | SLASH) factor -> binary
?first_factor: call | plain

_term: sum
?sum: product | sum (PLUS | MINUS) product -> binary
?product: factor | product (STAR | SLASH) factor -> binary
?factor: function_call | plain
?plain: variable | literal | "(" sum ")"
    | MINUS factor -> negative
    | (PLUS | STAR | MINUS) "(" sum ("," sum)+ ")" -> prefix

call: NAME "(" [_argument ("," _argument)*] ")"
function_call: FUNCTION "(" [_argument ("," _argument)*] ")"
_argument: sum | pattern | star
star: STAR
pattern: PATTERN
variable: VARIABLE
literal: INTEGER | DECIMAL | FLOAT | STRING | TRUE | FALSE | NULL
    | DATE STRING -> date
    | TIMESTAMP STRING -> timestamp

_NOT.4: /not(?![A-Za-z0-9_.\/?-])/
_AND.4: /and(?=\s*\()/
_OR.4: /or(?=\s*\()/
FUNCTION.3: /(count-distinct|re-find|[A-Za-z_][A-Za-z0-9_]*\??)(?=\s*\()/
TRUE.2: /true(?![A-Za-z0-9_])/
FALSE.2: /false(?![A-Za-z0-9_])/
NULL.2: /null(?![A-Za-z0-9_])/
DATE.2: /date(?=\s*["'])/
TIMESTAMP.2: /timestamp(?=\s*["'])/
ALIAS: /\??[A-Za-z_][A-Za-z0-9_]*/
FLOAT.2: /[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+/
DECIMAL.1: /[0-9]+\.[0-9]+/
INTEGER: /[0-9]+/
PATTERN: /\/(\\.|[^\/\\\n*])(\\.|[^\/\\\n])*\//
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
COMMENT: /(%|\/\/)[^\n]*|\/\*(.|\n)*?\*\//
%ignore COMMENT

"""
    rf"""
NAME.3: /{RELATION_NAME}\??(?=\s*\()/
OPERATOR: /<>|:=|{COMPARISON_OPERATOR}/
{TERMINALS}"""
)

# How error messages call each terminal.
EXPECTED: Final[Mapping[str, str]] = {
    **TERMINAL_NAMES,
    "NAME": "a relation name before '('",
    "FUNCTION": "a function before '('",
    "ALIAS": "a column name",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "FLOAT": "a number",
    "TRUE": "a constant",
    "FALSE": "a constant",
    "NULL": "a constant",
    "DATE": "a constant",
    "TIMESTAMP": "a constant",
    "PATTERN": "a pattern as in /an/",
    "OPERATOR": "one of < <= > >= = == !=",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "STAR": "'*'",
    "SLASH": "'/'",
    "SEMICOLON": "';'",
    "AS": "'as'",
    "_NOT": "'not'",
    "_AND": "'and('",
    "_OR": "'or('",
    "$END": "the end of the text",
}
