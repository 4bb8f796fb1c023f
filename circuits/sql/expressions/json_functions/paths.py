"""Paths into texts of JSON, and ``from_json``."""

from __future__ import annotations

import json
import re
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.json_functions.values import call_json, to_json_reader
from circuits.sql.expressions.literals import NULL, string_literal
from circuits.sql.expressions.spark.documents import read_options, read_schema
from circuits.types.arrow_types import VARIANT, has_variant
from circuits.types.ddl import field_of, schema_of_ddl

__all__ = ["READERS", "READERS_BY_NAME", "constant_path"]


def _path_arguments(
    clause: Clause, node: exp.Expr, path: exp.Expr | None, *, allow_wildcards: bool = False
) -> list[Expression]:
    """Return the argument for a constant path: a JSON text of its steps; [] without a path."""
    if path is None:
        return []
    steps: list[str | int | bool | None] = []
    if isinstance(path, exp.Literal):
        clause.source.allow_arguments(path, "this", "is_string")
        if path.is_string and path.this.startswith("$"):
            return constant_path(clause, node, path, path.this)
        if path.is_string and path.this.startswith("/") and not clause.source.is_spark:
            raise clause.source.unsupported(
                node, "a path that begins with '/'", "write it as '$.name[0]'"
            )
        steps = [path.this] if path.is_string else [_position(clause, path)]
        return [string_literal(json.dumps(steps))]
    if isinstance(path, exp.Neg) and isinstance(path.this, exp.Literal) and not path.this.is_string:
        clause.source.allow_arguments(path, "this")  # a position from the end
        clause.source.allow_arguments(path.this, "this", "is_string")
        return [string_literal(json.dumps([-_position(clause, path.this)]))]
    if not isinstance(path, exp.JSONPath):
        raise clause.source.unsupported(
            path, "a path that is not constant", "write it as '$.name[0]'"
        )
    clause.source.mark_read(path)
    for step in path.expressions:
        if isinstance(step, exp.JSONPathRoot):
            continue
        if isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript) and isinstance(
            step.this, str | int
        ):
            steps.append(step.this)
        elif allow_wildcards and (wildcard := _wildcard(step)) is not None:
            steps.append(_WILDCARD_STEPS[wildcard])
        else:
            construct = "a path with wildcards" if _wildcard(step) else "this part of a path"
            raise clause.source.unsupported(node, construct, "write the keys and positions")
    return [string_literal(json.dumps(steps))]


def _position(clause: Clause, literal: exp.Literal) -> int:
    """Return the position in an array that a number in a path gives."""
    if not literal.this.isdecimal():
        raise clause.source.unsupported(
            literal, f"the position {literal.this} in a path", "write an integer"
        )
    return int(literal.this)


#: The steps of `circuits.types.functions.nested.json_paths` for wildcards.
_WILDCARD_STEPS: Final = {"[*]": None, ".*": True}


def _wildcard(step: exp.Expr) -> str | None:
    """Return how a step of a path is written if it is a wildcard; None for any other."""
    if not isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript):
        return None
    if not isinstance(step.this, exp.JSONPathWildcard):
        return None
    return "[*]" if isinstance(step, exp.JSONPathSubscript) else ".*"


def has_wildcard(path: exp.Expr | None) -> bool:
    """Return whether a constant path has a wildcard, so that it finds a list of values."""
    return isinstance(path, exp.JSONPath) and any(map(_wildcard, path.expressions))


def constant_path(
    clause: Clause, node: exp.Expr, literal: exp.Literal, text: str
) -> list[Expression]:
    """Return a constant path as an argument: a JSON text of its steps.

    Args:
        clause: The clause of the expression.
        node: The call, for errors.
        literal: The tree of the path.
        text: The path; a text that does not begin with ``$`` is a key.

    Raises:
        UnsupportedSqlError: The path has wildcards or filters.
    """
    clause.source.allow_arguments(literal, "this", "is_string")
    parsed: exp.Expr | None = exp.Literal.string(text)
    if text.startswith("$"):
        # In a name in quotes, [#- is no position from the end.
        pieces = re.split(r'("(?:[^"\\]|\\.)*")', text)
        pieces[::2] = [piece.replace("[#-", "[-") for piece in pieces[::2]]
        parsed = exp.Literal.string("".join(pieces))
        dialect = sqlglot.Dialect.get_or_raise(clause.source.dialect)
        # DuckDB's reader of paths leaves a text with [# as it is.
        is_plain = '"' not in text
        parsed = (dialect if is_plain else sqlglot.Dialect()).to_json_path(parsed)
        if not isinstance(parsed, exp.JSONPath):
            raise clause.source.unsupported(node, f"the path {text!r}", "write it as '$.name[0]'")
    return _path_arguments(clause, node, parsed)


def _json_reader(function: str, list_function: str = "") -> Reader:
    """Return the reader of a function of a JSON text and a path.

    Args:
        function: The function.
        list_function: The function for a path with wildcards, which returns a list; none if empty.
    """

    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(
            node,
            *("this", "expression", "only_json_types", "scalar_only"),
            *("variant_extract", "requires_json"),
        )
        path = node.args.get("expression")
        is_list = bool(list_function) and has_wildcard(path) and not clause.source.is_spark
        steps = _path_arguments(clause, node, path, allow_wildcards=is_list)
        value = clause.read(node.this)
        if value.type == VARIANT and function == "json_value":
            return clause.call(node, "variant_at", value, *steps)
        if is_list:
            return clause.call(node, list_function, value, *steps)
        return call_json(clause, node, function, value, *steps)

    return read


def _read_json_keys(clause: Clause, node: exp.JSONKeys) -> Expression:
    """Read json_keys(). A value that is not an object has keys [] in DuckDB, NULL in Spark."""
    clause.source.allow_arguments(node, "this", "expression", "expressions")
    path = _path_arguments(clause, node, node.args.get("expression"))
    value = clause.read(node.this)
    if clause.source.is_spark:  # a name that occurs twice is there twice
        return clause.call(node, "json_keys", value, *path)
    keys = call_json(clause, node, "json_keys", value, *path)
    has_no_value = clause.call(node, "is_null", call_json(clause, node, "json_value", value, *path))
    empty = clause.call(node, "make_list")
    return clause.call(node, "case", has_no_value, NULL, clause.call(node, "coalesce", keys, empty))


def _json_reader_of_name(duckdb_function: str, spark_function: str = "") -> Reader:
    """Return the reader of a call that is one function in DuckDB, and maybe another in Spark."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if not 1 <= len(node.expressions) <= 2:
            raise clause.source.error(node, f"{node.name}() takes a JSON text and maybe a path")
        value, *path = node.expressions
        function = duckdb_function
        if spark_function and clause.source.is_spark:
            function = spark_function
        steps: list[Expression] = []
        if path:
            literal = path[0]
            if not isinstance(literal, exp.Literal):
                raise clause.source.unsupported(
                    node, "a path that is not constant", "write it as '$.name[0]'"
                )
            if literal.is_string:
                steps = constant_path(clause, node, literal, literal.this)
            else:
                steps = _path_arguments(clause, node, literal)
        if function in ("json_array_length", "json_entries", "json_valid"):
            return clause.call(node, function, clause.read(value), *steps)
        return call_json(clause, node, function, clause.read(value), *steps)

    return read


def _read_from_json(clause: Clause, node: exp.FromJson) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "options")
    schema = node.args.get("expression")
    options = node.args.get("options")
    if options is not None:
        _check_from_json_options(clause, options)
    if clause.source.is_spark and isinstance(schema, exp.Expr) and not _is_json_schema(schema):
        data_type = read_schema(clause, schema, clause.read(schema))
        if pa.types.is_struct(data_type) and data_type.get_field_index(_CORRUPT_RECORD) >= 0:
            raise clause.source.unsupported(
                schema,
                f"the column {_CORRUPT_RECORD} in the schema of from_json()",
                "leave it out; a malformed text has NULL in all columns",
            )
        if data_type == VARIANT:
            return clause.call(node, "try_parse_variant", clause.read(node.this))
        if has_variant(data_type):
            raise clause.source.unsupported(
                schema, "VARIANT in the schema of from_json()", "use parse_json() and variant_get()"
            )
        text, type_of_result = clause.read(node.this), Literal(None, data_type)
        return clause.call(node, "spark_from_json", text, type_of_result)
    if not isinstance(schema, exp.Literal) or not schema.is_string:
        raise clause.source.unsupported(
            node, "from_json() without a constant schema", "write it as 'a INT, b STRING'"
        )
    clause.source.allow_arguments(schema, "this", "is_string")
    if re.fullmatch(_LIST_OF_JSON, schema.this):
        return call_json(clause, node, "json_elements", clause.read(node.this))
    try:
        type = _parse_schema(schema.this)
    except (SchemaError, ValueError) as error:
        raise clause.source.error(schema, str(error)) from None
    arguments = clause.read(node.this), Literal(None, type)
    return call_json(clause, node, "from_json", *arguments)


# The column in which Spark returns a malformed text.
_CORRUPT_RECORD: Final = "_corrupt_record"


def _check_from_json_options(clause: Clause, node: exp.Expr) -> None:
    """Refuse the options of ``from_json(text, schema, map(...))`` that change its result."""
    options = read_options(clause, node, clause.read(node))
    for name, value in options.items():
        if (name, value.upper()) != ("mode", "PERMISSIVE"):
            raise clause.source.unsupported(
                node,
                f"the option {name} = {value} of from_json()",
                "leave it out; convert the texts of the fields with functions, as to_date()",
            )


#: The schema of a list of JSON values of any form.
_LIST_OF_JSON: Final = r"""(?i)\s*\[\s*"JSON"\s*\]\s*"""


def _is_json_schema(schema: exp.Expr) -> bool:
    """Return whether a schema is JSON: ``{"a": "INT"}`` of DuckDB."""
    return isinstance(schema, exp.Literal) and schema.this.lstrip().startswith(("{", "[", '"'))


def _parse_schema(text: str) -> pa.DataType:
    """Return the type of a schema: of Spark (``a INT``), or DuckDB's JSON (``{"a": "INT"}``)."""
    if text.lstrip().startswith(("{", "[", '"')):
        return _type_of_json_schema(json.loads(text))
    try:
        return field_of("value", text).type
    except SchemaError:
        return pa.struct(list(schema_of_ddl(text)))


def _type_of_json_schema(value: object) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of_json_schema(part)) for name, part in value.items()])
    if isinstance(value, list) and len(value) == 1:
        return pa.list_(_type_of_json_schema(value[0]))
    if isinstance(value, str):
        return field_of("value", value).type
    raise ValueError(f"{value!r} is not a type; write the name of a type, {{...}} or [...]")


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.FromJson: _read_from_json,
    exp.JSONExtract: _json_reader("json_value", "json_matches"),
    exp.JSONExtractScalar: _json_reader("json_text", "json_match_texts"),
    exp.JSONFormat: to_json_reader("to_json_without_null"),
    exp.JSONKeys: _read_json_keys,
    exp.JSONType: _json_reader("json_type"),
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "json_array_length": _json_reader_of_name("json_array_length_or_zero", "json_array_length"),
    "json_elements": _json_reader_of_name("json_elements"),
    "json_entries": _json_reader_of_name("json_entries"),
    "json_members": _json_reader_of_name("json_members"),
    "json_valid": _json_reader_of_name("json_valid"),
    "to_json": to_json_reader("to_json"),
}
