"""The parser of the JSON functions and aggregates with the clauses of the SQL standard.

::

    JSON_VALUE(doc, path [RETURNING type] [behavior ON EMPTY] [behavior ON ERROR])
    JSON_QUERY(doc, path [RETURNING type] [wrapper] [behavior ON EMPTY] [behavior ON ERROR])
    JSON_EXISTS(doc, path [behavior ON ERROR])
    JSON_ARRAYAGG(value [ORDER BY ...] [NULL | ABSENT ON NULL])
    JSON_OBJECTAGG([KEY] key VALUE value [NULL | ABSENT ON NULL])
    JSON_OBJECT([KEY] key VALUE value, ... [NULL | ABSENT ON NULL])
    JSON_ARRAY(value, ... [NULL | ABSENT ON NULL])

    behavior    NULL, ERROR, DEFAULT value, EMPTY ARRAY, EMPTY OBJECT, TRUE, FALSE, UNKNOWN
    wrapper     WITHOUT [ARRAY] WRAPPER, WITH [CONDITIONAL | UNCONDITIONAL] [ARRAY] WRAPPER

A call without clauses is a call by name with its arguments. With clauses, further arguments stand
for them, and ``meta[HAS_JSON_CLAUSES]`` is set: the type, the wrapper, and for ON EMPTY and ON
ERROR a word and a value. A clause that is absent is NULL.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

__all__ = ["FUNCTION_PARSERS", "HAS_JSON_CLAUSES", "LEAVES_NULLS_OUT"]

#: A key of ``meta`` of a call: its arguments after the path stand for clauses.
HAS_JSON_CLAUSES: Final = "has_json_clauses"
#: A key of ``meta`` of a call: True with ABSENT ON NULL, False with NULL ON NULL.
LEAVES_NULLS_OUT: Final = "leaves_nulls_out"
_BEHAVIORS: Final = ("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN")


def _function_parser(name: str) -> Any:
    def parse(parser: Any) -> exp.Expr:
        arguments = parser._parse_csv(parser._parse_lambda)
        call = exp.Anonymous(this=name, expressions=arguments)
        first = parser._index
        clauses = [_parse_type(parser), _parse_wrapper(parser), *_parse_behaviors(parser)]
        if parser._index > first:
            if len(arguments) != 2:
                parser.raise_error(f"{name.upper()}() takes a JSON text and a path before clauses")
            for clause in clauses:
                call.append("expressions", clause)
            call.meta[HAS_JSON_CLAUSES] = True
        return call

    return parse


def _parse_type(parser: Any) -> exp.Expr:
    if not parser._match_text_seq("RETURNING"):
        return exp.null()
    data_type = parser._parse_types()
    if data_type is None:
        parser.raise_error("RETURNING takes a type")
    return exp.cast(exp.null(), data_type, copy=False)


def _parse_wrapper(parser: Any) -> exp.Expr:
    if parser._match_text_seq("WITHOUT"):
        wrapper = "without"
    elif parser._match_text_seq("WITH"):
        wrapper = "conditional" if parser._match_text_seq("CONDITIONAL") else "unconditional"
        if wrapper == "unconditional":
            parser._match_text_seq("UNCONDITIONAL")
    else:
        return exp.null()
    parser._match_text_seq("ARRAY")
    if not parser._match_text_seq("WRAPPER"):
        parser.raise_error("WITH or WITHOUT takes ARRAY WRAPPER")
    return exp.Literal.string(wrapper)


def _parse_behaviors(parser: Any) -> list[exp.Expr]:
    """Return the word and the value of ON EMPTY, and those of ON ERROR."""
    parts: dict[str, list[exp.Expr]] = {}
    while (behavior := _parse_behavior(parser)) is not None:
        parser._match_text_seq("ON")
        event = parser._curr.text.upper() if parser._curr else ""
        if event not in ("EMPTY", "ERROR") or event in parts:
            parser.raise_error("write each of ON EMPTY and ON ERROR at most once")
        parser._advance()
        parts[event] = behavior
    absent = [exp.null(), exp.null()]
    return [*parts.get("EMPTY", absent), *parts.get("ERROR", [part.copy() for part in absent])]


def _parse_behavior(parser: Any) -> list[exp.Expr] | None:
    if parser._match_text_seq("DEFAULT"):
        return [exp.Literal.string("default"), parser._parse_bitwise()]
    if parser._match_text_seq("EMPTY"):
        kind = "object" if parser._match_text_seq("OBJECT") else "array"
        parser._match_text_seq("ARRAY")
        return [exp.Literal.string(kind), exp.null()]
    for word in _BEHAVIORS:
        if parser._match_text_seq(word):
            return [exp.Literal.string(word.lower()), exp.null()]
    return None


def _parse_array_aggregate(parser: Any) -> exp.Expr:
    """Parse ``JSON_ARRAYAGG(x [ORDER BY y] [NULL | ABSENT ON NULL])``."""
    call = exp.Anonymous(this="json_arrayagg", expressions=[parser._parse_lambda()])
    call.meta[LEAVES_NULLS_OUT] = _parse_null_clause(parser) != "NULL"
    return call


def _parse_object_aggregate(parser: Any) -> exp.Expr:
    """Parse ``JSON_OBJECTAGG([KEY] k VALUE x [NULL | ABSENT ON NULL])``, also ``k : x``."""
    is_key_a_word = parser._next is not None and parser._next.text.upper() not in ("VALUE", ":")
    if is_key_a_word:
        parser._match_text_seq("KEY")
    key = parser._parse_bitwise()
    if not (parser._match_text_seq("VALUE") or parser._match_text_seq(":")):
        parser.raise_error("JSON_OBJECTAGG() takes KEY k VALUE x")
    call = exp.Anonymous(this="json_objectagg", expressions=[key, parser._parse_bitwise()])
    call.meta[LEAVES_NULLS_OUT] = _parse_null_clause(parser) == "ABSENT"
    return call


def _parse_object(parser: Any) -> exp.Expr:
    """Parse ``JSON_OBJECT([KEY] k VALUE x, ... [NULL | ABSENT ON NULL])``.

    A member may also be ``k : x`` or ``k, x``. The arguments of the call are the keys and values in
    turn.
    """
    arguments: list[exp.Expr] = []
    if parser._curr is not None and parser._curr.token_type != TokenType.R_PAREN:
        arguments += _parse_member(parser)
        while parser._match(TokenType.COMMA):
            arguments += _parse_member(parser)
    return _with_null_clause(parser, exp.Anonymous(this="json_object", expressions=arguments))


def _parse_member(parser: Any) -> list[exp.Expr]:
    is_key_a_word = parser._next is not None and parser._next.text.upper() not in (
        "VALUE",
        ":",
        ",",
    )
    if is_key_a_word and parser._curr.text.upper() == "KEY":
        parser._advance()
    key = parser._parse_bitwise()
    if parser._match_text_seq("VALUE") or parser._match_text_seq(":"):
        return [key, parser._parse_lambda()]
    return [key]


def _parse_array(parser: Any) -> exp.Expr:
    """Parse ``JSON_ARRAY(x, ... [NULL | ABSENT ON NULL])``."""
    arguments = parser._parse_csv(parser._parse_lambda)
    return _with_null_clause(parser, exp.Anonymous(this="json_array", expressions=arguments))


def _with_null_clause(parser: Any, call: exp.Anonymous) -> exp.Anonymous:
    word = _parse_null_clause(parser)
    if word:
        call.meta[LEAVES_NULLS_OUT] = word == "ABSENT"
    return call


def _parse_null_clause(parser: Any) -> str:
    """Parse ``NULL ON NULL`` or ``ABSENT ON NULL``; return its first word, or nothing."""
    for word in ("NULL", "ABSENT"):
        if parser._match_text_seq(word, "ON", "NULL"):
            return word
    return ""


#: The parsers of the functions, by their upper-case names.
FUNCTION_PARSERS: Final = {
    **{
        name.upper(): _function_parser(name) for name in ("json_value", "json_query", "json_exists")
    },
    "JSON_ARRAY": _parse_array,
    "JSON_ARRAYAGG": _parse_array_aggregate,
    "JSON_OBJECT": _parse_object,
    "JSON_OBJECTAGG": _parse_object_aggregate,
}
