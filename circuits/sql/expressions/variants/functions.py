"""Functions of VARIANT: ``parse_json``, ``variant_get`` and their relatives."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.casts import cast_by_dialect
from circuits.sql.expressions.json_functions.values import call_json, mark_json
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.spark.documents import read_schema
from circuits.sql.expressions.variants.casts import from_variant
from circuits.sql.expressions.variants.paths import part_at, read_path
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.arrow_types import VARIANT, is_nested

__all__ = ["READERS", "READERS_BY_NAME"]

#: The path to the whole text.
_WHOLE: Final = string_literal("[]")
_MIN_ARGUMENTS, _MAX_ARGUMENTS = 2, 3


def _read_parse_json(clause: Clause, node: exp.ParseJSON) -> Expression:
    clause.source.allow_arguments(node, "this", "safe", "is_literal")
    text = clause.read(node.this)
    if node.args.get("is_literal"):  # JSON '...': the type JSON is a text
        return mark_json(clause, text)
    if clause.source.dialect == "duckdb" and clause.source.name_in_text(node).lower() == "json":
        checked = clause.call(node, "json_of_text", text)
        return mark_json(clause, call_json(clause, node, "json_value", checked, _WHOLE))
    raises = clause.source.is_spark or clause.source.dialect == "snowflake"
    is_lenient = bool(node.args.get("safe")) or not raises
    return clause.call(node, "try_parse_variant" if is_lenient else "parse_variant", text)


def _read_try_parse_json(clause: Clause, node: exp.Anonymous) -> Expression:
    (text,) = _arguments(clause, node, 1)
    return clause.call(node, "try_parse_variant", clause.read(text))


def _arguments(clause: Clause, node: exp.Anonymous, count: int) -> list[exp.Expr]:
    given = len(node.expressions)
    if given != count:
        noun = "argument" if count == 1 else "arguments"
        raise clause.source.error(node, f"{node.name.lower()}() takes {count} {noun}, not {given}")
    return list(node.expressions)


def _variant_get_reader(*, lenient: bool) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        source, count = clause.source, len(node.expressions)
        if not _MIN_ARGUMENTS <= count <= _MAX_ARGUMENTS:
            name = node.name.lower()
            raise source.error(
                node,
                f"{name}() takes a VARIANT, a path and optionally a type: two or three arguments, "
                f"not {count}",
            )
        value, path, *types = node.expressions
        part = part_at(clause, node, _variant(clause, node, value), read_path(clause, node, path))
        if not types:
            return part
        target = read_schema(clause, types[0], clause.read(types[0]))
        return from_variant(clause, node, part, target, cast_by_dialect, lenient=lenient)

    return read


def _variant(clause: Clause, node: exp.Anonymous, argument: exp.Expr) -> Expression:
    value = clause.read(argument)
    if pa.types.is_null(value.type):
        return Literal(None, VARIANT)
    if value.type != VARIANT:
        raise clause.source.error(
            argument,
            f"{node.name.lower()}() takes a VARIANT, not a value of type {value.type}; read a text "
            "by parse_json()",
        )
    return value


def _reader_of(function: str) -> Reader:
    """Return the reader of a function of one argument."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        (argument,) = _arguments(clause, node, 1)
        return clause.call(node, function, clause.read(argument))

    return read


def _read_to_variant_object(clause: Clause, node: exp.Anonymous) -> Expression:
    (argument,) = _arguments(clause, node, 1)
    value = clause.read(argument)
    if not is_nested(value.type):
        raise clause.source.error(
            node, "to_variant_object() takes a struct, a map or a list; use CAST(x AS VARIANT)"
        )
    return clause.call(node, "to_variant", value)


def _read_variant_null(clause: Clause, node: exp.Anonymous) -> Expression:
    _arguments(clause, node, 0)
    return Literal("null", VARIANT)


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.ParseJSON: _read_parse_json}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "is_variant_null": _reader_of("is_variant_null"),
    "schema_of_variant": _reader_of("schema_of_variant"),
    "to_variant_object": _read_to_variant_object,
    "try_parse_json": _read_try_parse_json,
    "try_variant_get": _variant_get_reader(lenient=True),
    "variant_get": _variant_get_reader(lenient=False),
    "variantnull": _read_variant_null,
}
parse_by_name(READERS_BY_NAME, is_spark_dialect=True)
parse_by_name(READERS_BY_NAME, is_spark_dialect=False)
