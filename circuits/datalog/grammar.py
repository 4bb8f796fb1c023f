"""The grammar of Datalog texts, LALR(1), read by lark with its contextual lexer.

It extends the grammar of `dbsp_wcoj.query` and shares its terminals (`dbsp_wcoj.grammar`). Every
query is Datalog, except that ``not``, ``or`` and ``and`` are no relation names here, and ``true``,
``false`` and ``null`` are no variables (``?true`` is).

- A rule ends with a dot; the dot of the last rule is optional.
- ``%`` and ``//`` start a comment to the end of the line, ``/* */`` encloses one. So modulo is the
  function ``mod``.
- A name may contain ``-``, ``.`` and ``/`` where a relation is allowed (``last-name(``, ``r/to(``),
  so ``x - f(y)`` at the start of a comparison needs its blanks; so does ``?x - 1``, because
  ``?x-1`` is a variable.
- An operator may precede its operands: ``<(a, 3)``, ``*(x, 2)``.
- ``or`` separates its alternatives by commas only or by semicolons only, because readers disagree
  about their precedence; ``and(...)`` groups a conjunction.

The three rules of sums exist twice: the start of a body item may be an atom, so its name is read as
a relation name there (NAME), and as a function name elsewhere (FUNCTION).
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

# The name of each terminal in an error message.
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
