"""Functions that build JSON, by their names in DuckDB and PostgreSQL: json_object, json_array, ...

JSON is text here. A part is JSON if its expression says so: a cast to JSON, ``->``, a function that
returns JSON. Its text is inserted without quotes; ``to_json`` converts any other part.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.json_functions.values import (
    call_json,
    join_texts,
    value_as_json,
)
from circuits.sql.expressions.literals import string_literal
from circuits.sql.syntax.json_syntax import LEAVES_NULLS_OUT
from circuits.sql.syntax.parsing import parse_by_name

__all__ = ["READERS_BY_NAME", "json_of"]


def json_of(clause: Clause, node: exp.Expr) -> Expression:
    """Return an expression as a JSON text; NULL is the text ``null``."""
    value = value_as_json(clause, node, clause.read(node), "to_json")
    return clause.call(node, "coalesce", value, string_literal("null"))


def _refuse_absent(clause: Clause, node: exp.Anonymous) -> None:
    if node.meta.get(LEAVES_NULLS_OUT):
        raise clause.source.unsupported(
            node, f"ABSENT ON NULL in {node.name}()", "use json_strip_nulls(), or dialect='spark'"
        )


def _read_object(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``json_object('name', value, ...)``."""
    _refuse_absent(clause, node)
    if len(node.expressions) % 2:
        raise clause.source.error(node, f"{node.name.lower()}() takes pairs of a name and a value")
    entries = []
    for key, value in zip(node.expressions[::2], node.expressions[1::2], strict=True):
        name = clause.call(key, "cast", clause.read(key), type=pa.string())
        message = string_literal(f"a name in {node.name.lower()}() is NULL")
        error = clause.call(key, "raise_error", message)
        quoted = clause.call(key, "coalesce", clause.call(key, "to_json", name), error)
        parts = quoted, string_literal(":"), json_of(clause, value)
        entries.append(clause.call(node, "concat", *parts))
    return join_texts(clause, node, entries, "{", "}")


def _read_array(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``json_array(a, b, ...)``."""
    _refuse_absent(clause, node)
    return join_texts(clause, node, [json_of(clause, part) for part in node.expressions], "[", "]")


def _read_value(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``row_to_json(s)``, ``array_to_json(a)`` and ``json_quote(x)``, all as to_json()."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, f"{node.name}() takes one value")
    return value_as_json(clause, node, clause.read(node.expressions[0]), "to_json")


def _read_merge_patch(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``json_merge_patch(a, b, ...)``; a patch of NULL is the patch itself."""
    if len(node.expressions) < 2:
        raise clause.source.error(node, "json_merge_patch() takes 2 or more JSON texts")
    merged, *patches = map(clause.read, node.expressions)
    for patch in patches:
        is_null = clause.call(node, "is_null", merged)
        patched = clause.call(node, "json_merge_patch", merged, patch)
        unchanged = call_json(clause, node, "json_value", patch, string_literal("[]"))
        merged = clause.call(node, "case", is_null, unchanged, patched)
    return merged


def _read_containment(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``json_contains(a, b)``, and ``json_includes(a, b)``, which is ``a @> b``."""
    if len(node.expressions) != 2:
        raise clause.source.error(node, f"{node.name}() takes 2 JSON texts")
    return clause.call(node, node.name.lower(), *map(clause.read, node.expressions))


def _read_strip_nulls(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``json_strip_nulls(j)``."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, f"{node.name}() takes one JSON text")
    return call_json(clause, node, "json_strip_nulls", clause.read(node.expressions[0]))


READERS_BY_NAME: Final[dict[str, Reader]] = {
    "array_to_json": _read_value,
    "json_array": _read_array,
    "json_build_array": _read_array,
    "json_build_object": _read_object,
    "json_contains": _read_containment,
    "json_includes": _read_containment,
    "json_merge_patch": _read_merge_patch,
    "json_object": _read_object,
    "json_quote": _read_value,
    "jsonb_build_array": _read_array,
    "jsonb_build_object": _read_object,
    **dict.fromkeys(("json_strip_nulls", "jsonb_strip_nulls"), _read_strip_nulls),
    "row_to_json": _read_value,
}
parse_by_name(READERS_BY_NAME, is_spark_dialect=False)
