"""The columns and values of a plan that are JSON, which is text here.

A function that builds JSON has to know which of its parts are JSON: their texts are inserted
without quotes. A column is JSON if its table declares it so, or if an expression computes it as
JSON. The property `Field.json_kind` passes from node to node with the columns.

The kind of a text is "json" or "jsonb"; that of a list, or of the values of a map, is the kind of
its elements. The kind of a struct is a text of JSON: an object with the kinds of its fields by
their positions, such as ``{"0": "json"}``. An empty text is the kind of all other values. The keys
of maps have no kind, so JSON that is a key is taken as a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import pyarrow as pa

from circuits.plan.columns import Fields
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.types.arrow_types import field_order, is_nested, part_types

__all__ = [
    "JSON_KEEPING_AGGREGATES",
    "common_json_kind",
    "field_json_kind",
    "json_function_name",
    "json_kind_of",
    "struct_json_kind",
    "without_json_marks",
]

KindOfColumn: TypeAlias = Callable[[int], str]
NO_KINDS: Final[Mapping[int, str]] = MappingProxyType({})

# The functions that return JSON, or lists or structs of JSON. Each may have the prefix last_, for
# documents in which the last of two members of one name counts.
_JSON_FUNCTIONS: Final = frozenset(
    (
        "json_at_path",
        "json_concat",
        "json_delete_name",
        "json_delete_path",
        "json_delete_position",
        "json_elements",
        "json_insert",
        "json_matches",
        "json_merge_patch",
        "json_set",
        "json_strip_nulls",
        "json_value",
    )
)
_KIND_BY_FUNCTION: Final = {
    "json_of_text": "json",
    "jsonb_of_text": "jsonb",
    "to_json": "json",
    "to_json_without_null": "json",
}
# The functions that return one of their arguments, or the elements of all of them.
_COMBINATIONS: Final = frozenset(
    (
        "coalesce",
        "greatest",
        "least",
        "list_append",
        "list_append_or_null",
        "list_concat",
        "list_concat_or_null",
        "list_prepend",
        "list_prepend_or_null",
        "list_union",
        "make_list",
        "map_merge",
    )
)
# The functions that return their first argument, or a part of it.
_PARTS: Final = frozenset(
    (
        "list_any_value",
        "list_compact",
        "list_distinct",
        "list_distinct_with_null",
        "list_element",
        "list_element_not_zero",
        "list_element_strict",
        "list_except",
        "list_filter",
        "list_first",
        "list_flatten",
        "list_flatten_or_null",
        "list_get",
        "list_get_strict",
        "list_intersect",
        "list_last",
        "list_max",
        "list_median",
        "list_min",
        "list_mode",
        "list_remove",
        "list_repeat",
        "list_reverse",
        "list_select",
        "list_slice",
        "list_slice_step",
        "list_sort",
        "list_sort_by",
        "list_sort_desc",
        "list_sort_desc_nulls_first",
        "list_sort_nulls_first",
        "list_where",
        "map_value",
        "map_values",
        "nullif",
        "try",
    )
)
#: The aggregate and window functions that return one or all of the values.
JSON_KEEPING_AGGREGATES: Final = frozenset(
    (
        "any_value",
        "array_agg",
        "first",
        "first_value",
        "lag",
        "last",
        "last_value",
        "lead",
        "list",
        "max",
        "max_by",
        "min",
        "min_by",
        "mode",
        "nth_value",
        "quantile_disc",
    )
)


def json_kind_of(
    expression: Expression, fields: Fields, others: Mapping[int, str] = NO_KINDS
) -> str:
    """Return the kind of JSON of a value; an empty text if none is known.

    Args:
        expression: The value.
        fields: The columns that it reads.
        others: The kinds of columns that are not in ``fields``, by their numbers.
    """

    def kind_of_column(index: int) -> str:
        return fields[index].json_kind if index < len(fields) else others.get(index, "")

    return _kind(expression, kind_of_column)


def json_function_name(function: str) -> str:
    """Return the name of a function of JSON without the prefix for PostgreSQL or Spark."""
    return function.removeprefix("last_").removeprefix("spark_")


def _kind(expression: Expression, kind_of_column: KindOfColumn) -> str:
    if isinstance(expression, Column):
        return kind_of_column(expression.index)
    if not isinstance(expression, Call):
        return ""
    name, arguments = json_function_name(expression.function), expression.arguments
    if name in _KIND_BY_FUNCTION:
        return _KIND_BY_FUNCTION[name]
    if name == "as_json":
        return str(arguments[1].value) if isinstance(arguments[1], Literal) else ""
    if name in _JSON_FUNCTIONS:
        return _kind(arguments[0], kind_of_column) or "json"
    if name in ("json_entries", "json_members"):
        kind = _kind(arguments[0], kind_of_column) or "json"
        # The other fields are texts such as the name; "atom" is a value that has no parts.
        members = enumerate(expression.type.value_type)
        return struct_json_kind({i: kind for i, part in members if part.name in ("value", "atom")})
    if name in ("make_struct", "list_zip"):
        parts = arguments[1::2] if name == "make_struct" else arguments
        return struct_json_kind({i: _kind(part, kind_of_column) for i, part in enumerate(parts)})
    if name == "struct_field":
        return field_json_kind(_kind(arguments[0], kind_of_column), _field_index(*arguments))
    if name == "make_map":
        return _kind(arguments[1], kind_of_column)
    if name in ("map_from_entries", "map_from_entries_or_null"):
        return field_json_kind(_kind(arguments[0], kind_of_column), 1)
    if name == "map_entries":
        return struct_json_kind({1: _kind(arguments[0], kind_of_column)})
    if name == "cast":
        # An explicit cast to a text is a text; one of a nested value has a mark.
        source, target = arguments[0].type, expression.type
        if not (is_nested(source) and is_nested(target)):
            return ""
        return _cast_kind(_kind(arguments[0], kind_of_column), source, target)
    if name in ("list_transform", "list_reduce"):
        return _kind_by_lambda(name, arguments, kind_of_column)
    if name in _PARTS:
        return _kind(arguments[0], kind_of_column)
    if name == "case":
        arguments = (*arguments[1::2], arguments[-1])
    elif name == "list_resize":
        arguments = (arguments[0], *arguments[2:])
    elif name not in _COMBINATIONS:
        return ""
    return common_json_kind(_kind(part, kind_of_column) for part in arguments)


def _cast_kind(kind: str, source: pa.DataType, target: pa.DataType) -> str:
    """Return the kind of a nested value of a kind that is cast to another type."""
    if not kind or not (is_nested(source) and is_nested(target)):
        return kind
    if not pa.types.is_struct(source):
        return _cast_kind(kind, part_types(source)[-1], part_types(target)[-1])
    parts = part_types(source)
    return struct_json_kind(
        {
            number: _cast_kind(field_json_kind(kind, position), parts[position], field.type)
            for number, (position, field) in enumerate(
                zip(field_order(source, target), target, strict=True)
            )
        }
    )


def without_json_marks(expression: Expression) -> Expression:
    """Return an expression without the calls of ``as_json``, which change no value."""
    if isinstance(expression, Literal) and isinstance(expression.value, Expression):
        return Literal(without_json_marks(expression.value), expression.type)  # of a lambda
    if not isinstance(expression, Call):
        return expression
    if expression.function == "as_json":
        return without_json_marks(expression.arguments[0])
    arguments = tuple(map(without_json_marks, expression.arguments))
    return Call(expression.function, arguments, expression.type)


def common_json_kind(kinds: Iterable[str]) -> str:
    """Return the kind of JSON of a value that has one of these kinds.

    A text beside JSON is JSON, too, as in DuckDB; PostgreSQL takes only literals there.

    >>> common_json_kind(["jsonb", "json"]), common_json_kind(["", "json"])
    ('jsonb', 'json')
    >>> common_json_kind(['{"0": "json"}', '{"1": "json"}'])
    '{"0": "json", "1": "json"}'
    """
    known = [kind for kind in kinds if kind]
    structs = [json.loads(kind) for kind in known if kind.startswith("{")]
    if len(structs) < len(known):
        return next(kind for kind in known if not kind.startswith("{"))
    members = sorted({index for struct in structs for index in struct})
    return struct_json_kind(
        {int(i): common_json_kind(struct.get(i, "") for struct in structs) for i in members}
    )


def struct_json_kind(kinds: Mapping[int, str]) -> str:
    """Return the kind of a struct, given those of its fields by their positions."""
    kept = {index: kind for index, kind in kinds.items() if kind}
    return json.dumps(kept) if kept else ""


def field_json_kind(kind: str, index: int) -> str:
    """Return the kind of a field of a struct of a kind."""
    return str(json.loads(kind).get(str(index), "")) if kind.startswith("{") else ""


def _field_index(struct: Expression, field: Expression) -> int:
    """Return the position of a field that is given by its name or position; -1 if unknown."""
    key = field.value if isinstance(field, Literal) else ""
    if isinstance(key, int):
        return key
    names = [part.name.casefold() for part in struct.type]
    return names.index(str(key).casefold()) if str(key).casefold() in names else -1


def _kind_by_lambda(
    name: str, arguments: tuple[Expression, ...], kind_of_column: KindOfColumn
) -> str:
    """Return the kind of the value of `list_transform` or `list_reduce`.

    The first two columns of the body are the element and its position, or the value so far and
    the element. Its other columns are the last arguments.
    """
    values, body, *others = arguments
    if not isinstance(body, Literal) or not isinstance(body.value, Expression):
        return ""
    element = _kind(values, kind_of_column)
    parameters = [element, ""]
    if name == "list_reduce":
        start, *others = others
        parameters = [_kind(start, kind_of_column), element]
    kinds = [*parameters, *(_kind(part, kind_of_column) for part in others)]
    kind = _kind(body.value, lambda index: kinds[index] if index < len(kinds) else "")
    return common_json_kind([kind, parameters[0]]) if name == "list_reduce" else kind
