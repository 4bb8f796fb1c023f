"""CSV and JSON texts, their schemas and the options of their formats, in dialect spark."""

from __future__ import annotations

import json
import re
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import EvaluationError, SchemaError
from circuits.plan.expressions import Expression, Literal, columns_of
from circuits.runtime.evaluation import evaluate
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.named_functions import Builder, check_count, coerce, literal_text
from circuits.types.arrow_types import is_nested
from circuits.types.ddl import field_of, schema_of_ddl

__all__ = ["BUILDERS", "read_options", "read_schema"]

_NO_OPTIONS: Final = Literal({}, pa.map_(pa.string(), pa.string()))


def read_options(clause: Clause, node: exp.Expr, value: Expression) -> dict[str, str]:
    """Return the constant map of the options of a format, with names in lower case."""
    if value is _NO_OPTIONS:
        return {}
    if not pa.types.is_map(value.type) or columns_of(value):
        raise clause.source.unsupported(
            node, "options that are not a constant map", "write them as map('sep', ';')"
        )
    (pairs,) = evaluate(value, (), 1).to_pylist()
    return {str(name).lower(): str(option) for name, option in pairs or ()}


def read_schema(clause: Clause, node: exp.Expr, schema: Expression) -> pa.DataType:
    """Return the type that a constant text names: ``'a INT'``, or that of schema_of_json()."""
    schema_text = _constant_text(clause, node, schema)
    try:
        return field_of("value", schema_text).type
    except (SchemaError, ValueError):
        pass
    try:
        return pa.struct(list(schema_of_ddl(schema_text)))
    except (SchemaError, ValueError) as error:
        raise clause.source.error(node, str(error)) from None


def _constant_text(clause: Clause, node: exp.Expr, value: Expression) -> str:
    if not isinstance(value, Literal) and not columns_of(value):
        try:
            value = Literal(evaluate(value, (), 1)[0].as_py(), value.type)
        except EvaluationError as error:
            raise clause.source.error(node, str(error)) from None
    return literal_text(clause, node, value, "a schema or a path")


def _options_literal(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    options = read_options(clause, node, value)
    unknown = sorted(options.keys() - _FLAGS - _CSV_OPTIONS)
    if unknown:
        raise clause.source.unsupported(
            node,
            f"the option {unknown[0]} of CSV",
            f"there are: {', '.join(sorted(_FLAGS | _CSV_OPTIONS))}",
        )
    for name in ("sep", "delimiter", "quote", "escape"):
        character = options.get(name, " ").replace("\\t", "\t")
        if len(character) != 1:
            raise clause.source.error(node, f"the option {name} of CSV is one character")
    for name in _FLAGS & options.keys():
        if options[name].lower() not in ("true", "false"):
            raise clause.source.error(node, f"the option {name} of CSV is true or false")
    if options.get("escapequotes", "true").lower() == "false":
        raise clause.source.unsupported(
            node, "the option escapeQuotes = false of CSV", "leave it out"
        )
    return string_literal(json.dumps(options))


#: The options of CSV that are true or false.
_FLAGS: Final = frozenset(
    (
        *("header", "multiline", "quoteall", "escapequotes", "inferschema", "preferdate"),
        *("ignoreleadingwhitespace", "ignoretrailingwhitespace", "enforceschema"),
    )
)


#: The other options of CSV.
_CSV_OPTIONS: Final = frozenset(
    (
        *("sep", "delimiter", "quote", "escape", "nullvalue", "emptyvalue"),
        *("dateformat", "timestampformat", "mode"),
    )
)


def _from_csv(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    schema: Expression,
    options: Expression = _NO_OPTIONS,
) -> Expression:
    row_type = read_schema(clause, node, schema)
    if not pa.types.is_struct(row_type):
        raise clause.source.error(node, f"the schema of from_csv() is a row, not {row_type}")
    if any(is_nested(field.type) for field in row_type):
        raise clause.source.unsupported(node, "a nested type in from_csv()", "read it as a text")
    options_text = _options_literal(clause, node, options)
    (value,) = coerce(clause, node, [value], "t")
    return clause.call(node, "from_csv", value, Literal(None, row_type), options_text)


def _to_csv(
    clause: Clause, node: exp.Expr, value: Expression, options: Expression = _NO_OPTIONS
) -> Expression:
    return clause.call(node, "to_csv", value, _options_literal(clause, node, options))


def _schema_of_csv(
    clause: Clause, node: exp.Expr, value: Expression, options: Expression = _NO_OPTIONS
) -> Expression:
    if read_options(clause, node, options).keys() & {"dateformat", "timestampformat"}:
        raise clause.source.unsupported(
            node, "a format of dates in schema_of_csv()", "write the schema yourself"
        )
    return clause.call(node, "schema_of_csv", value, _options_literal(clause, node, options))


def _schema_of_json(
    clause: Clause, node: exp.Expr, value: Expression, options: Expression = _NO_OPTIONS
) -> Expression:
    """Read ``schema_of_json(text[, options])``."""
    option_names = read_options(clause, node, options)
    refused = [name for name in option_names if name in _UNSUPPORTED_JSON_OPTIONS]
    if refused:
        raise clause.source.unsupported(
            node, f"the option {refused[0]} of schema_of_json()", "leave it out"
        )
    return clause.call(node, "schema_of_json", value)


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\.\['([^']*)'\]|(\[\*\])")


def _get_json_object(
    clause: Clause, node: exp.Expr, value: Expression, path: Expression
) -> Expression:
    """Read ``get_json_object(text, path)``; the result is NULL if the path is malformed."""
    path_text = _constant_text(clause, node, path)
    steps: list[str | int | None] = []
    position = 1
    while position < len(path_text) and path_text.startswith("$"):
        match = _STEP.match(path_text, position)
        if match is None:
            break
        key, index, *quoted, wildcard = match.groups()
        if key == "*":
            raise clause.source.unsupported(
                node, "the path .* in get_json_object()", "write the keys, or [*] for an array"
            )
        step = int(index) if index else key or quoted[0] or quoted[1] or ""
        steps.append(None if wildcard else step)
        position = match.end()
    if not path_text.startswith("$") or position < len(path_text):
        return Literal(None, pa.string())
    (value,) = coerce(clause, node, [value], "t")
    return clause.call(node, "spark_json_matches", value, string_literal(json.dumps(steps)))


#: Options of schema_of_json() that are refused, because they change the schema.
_UNSUPPORTED_JSON_OPTIONS: Final = (
    *("primitivesasstring", "prefersdecimal", "preferdecimal", "allowcomments"),
    *("allowunquotedfieldnames", "allowsinglequotes", "allownumericleadingzeros"),
    *("allowbackslashescapinganycharacter", "allowunquotedcontrolchars", "timestampformat"),
    *("infertimestamp", "dropfieldifallnull", "allownonnumericnumbers", "locale", "mode"),
)

BUILDERS: Final[dict[str, Builder]] = {
    "get_json_object": check_count(2, _get_json_object),
    "from_csv": check_count((2, 3), _from_csv),
    "to_csv": check_count((1, 2), _to_csv),
    "schema_of_csv": check_count((1, 2), _schema_of_csv),
    "schema_of_json": check_count((1, 2), _schema_of_json),
}
