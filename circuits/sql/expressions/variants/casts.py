"""Casts from and to VARIANT.

A cast of a VARIANT to a scalar is a CASE with a branch for each kind of value: it reads the string,
boolean or number, and casts it by the rules of the dialect. In a list, struct or map, each part is
cast on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import FIRST_PARAMETER
from circuits.sql.expressions.literals import string_literal
from circuits.sql.expressions.variants.paths import part_at
from circuits.types.arrow_types import VARIANT, is_nested, type_name
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.nested.variants import ELEMENTS
from circuits.types.functions.type_rules import is_number, is_text

__all__ = ["PartCast", "from_variant", "to_variant"]

#: A cast by the rules of the dialect, of (clause, node, value that is no VARIANT, target, lenient).
PartCast = Callable[[Clause, exp.Expr, Expression, pa.DataType, bool], Expression]

# The type of seconds since 1970 with microseconds, as which Spark reads a number as a TIMESTAMP.
_SECONDS: Final = pa.decimal128(38, 6)


def to_variant(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return the cast of a value to VARIANT.

    Raises:
        SqlError: The value is of a type that a VARIANT does not hold; in dialect spark also a
            struct or map.
    """
    if value.type == VARIANT or pa.types.is_null(value.type):
        return clause.call(node, "cast", value, type=VARIANT)
    if clause.source.is_spark and is_nested(value.type) and not is_list(value.type):
        raise clause.source.error(
            node, f"a {type_name(value.type)} is not cast to VARIANT; use to_variant_object()"
        )
    return clause.call(node, "to_variant", value)


def from_variant(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    target: pa.DataType,
    cast_part: PartCast,
    *,
    lenient: bool,
) -> Expression:
    """Return the cast of a VARIANT to another type.

    Args:
        clause: The clause with the cast.
        node: The cast, for errors.
        value: The VARIANT.
        target: The type.
        cast_part: Casts a scalar in the VARIANT.
        lenient: True if an impossible cast is NULL, false if it is an error.

    Raises:
        UnsupportedSqlError: The target has a map whose keys are no texts.
    """
    if target == VARIANT:
        return value
    if is_text(target):
        return clause.call(node, "cast", clause.call(node, "variant_text", value), type=target)
    null = Literal(None, target)
    kind = clause.call(node, "variant_kind", value)
    branches: list[Expression] = [clause.call(node, "is_null", value), null]

    def add_branch(name: str, result: Expression) -> None:
        branches.extend((clause.call(node, "eq", kind, string_literal(name)), result))

    add_branch("null", null)
    if is_nested(target):
        kind_of_target = "array" if is_list(target) else "object"
        add_branch(kind_of_target, _parts(clause, node, value, target, cast_part, lenient))
    else:
        for name, part in _scalars(clause, node, value, target):
            add_branch(name, cast_part(clause, node, part, target, lenient))
    if lenient:
        return clause.call(node, "case", *branches, null)
    message = clause.call(
        node,
        "concat",
        string_literal("the VARIANT "),
        clause.call(node, "variant_json", value),
        string_literal(f" cannot be cast to {type_name(target)}; use try_variant_get()"),
    )
    error = clause.call(node, "raise_error", message)
    if is_nested(target):
        error = clause.call(node, "from_json", error, null)  # a text has no cast to these types
    else:
        error = clause.call(node, "cast", error, type=target)
    return clause.call(node, "case", *branches, error)


def _scalars(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType
) -> list[tuple[str, Expression]]:
    """Return each kind of VARIANT that has a cast to a type, with the scalar to cast."""
    scalars = [("string", clause.call(node, "variant_text", value))]
    is_timestamp = pa.types.is_timestamp(target) and target.tz is not None
    if is_number(target) or pa.types.is_boolean(target):
        scalars.append(("boolean", clause.call(node, "variant_boolean", value)))
    if (
        is_number(target)
        or pa.types.is_boolean(target)
        or (is_timestamp and clause.source.is_spark)
    ):
        number = clause.call(node, "variant_number", value)
        if is_timestamp:
            number = clause.call(node, "cast", number, type=_SECONDS)
        scalars.append(("number", number))
        scalars.append(("double", clause.call(node, "variant_double", value)))
    return scalars


def _parts(
    clause: Clause,
    node: exp.Expr,
    value: Expression,
    target: pa.DataType,
    cast_part: PartCast,
    lenient: bool,
) -> Expression:
    """Return an array or object as a list, struct or map of casts of its parts."""
    if pa.types.is_struct(target):
        fields: list[Expression] = []
        for field in target:
            part = part_at(clause, node, value, [field.name])
            fields += [
                string_literal(field.name),
                from_variant(clause, node, part, field.type, cast_part, lenient=lenient),
            ]
        return clause.call(node, "make_struct", *fields)
    parts = clause.call(node, "variant_parts", value)
    element = Column(FIRST_PARAMETER, ELEMENTS.value_type)
    parameters = (FIRST_PARAMETER, FIRST_PARAMETER + 1)

    def list_of(body: Expression) -> Expression:
        with clause.source.errors_at(node):
            return lambda_call("list_transform", parts, body, parameters)

    def part_of(name: str) -> Expression:
        return clause.call(node, "struct_field", element, string_literal(name))

    is_map = pa.types.is_map(target)
    part_type = target.item_type if is_map else target.value_type
    part = clause.call(node, "parse_variant", part_of("value"))
    part = from_variant(clause, node, part, part_type, cast_part, lenient=lenient)
    values = list_of(part)
    if not is_map:
        return values
    if not is_text(target.key_type):
        raise clause.source.unsupported(
            node, f"the cast of a VARIANT to {type_name(target)}", "cast it to a map of texts"
        )
    return clause.call(node, "make_map", list_of(part_of("key")), values)
