"""The columns and values of a plan that are JSON, which is text here.

A function that builds JSON has to know which of its parts are JSON: their texts are inserted
without quotes. A column is JSON if its table declares it so, or if an expression computes it as
JSON. The property `Field.json_kind` passes from node to node with the columns.
"""

from __future__ import annotations

from typing import Final

from circuits.plan.columns import Fields
from circuits.plan.expressions import Call, Column, Expression, Literal

__all__ = ["JSON_KEEPING_AGGREGATES", "json_kind_of"]

# The functions that return JSON, or lists or structs of JSON. Each may have the prefix last_, for
# documents in which the last of two members of one name counts.
_JSON_FUNCTIONS: Final = frozenset(
    (
        *("json_at_path", "json_concat", "json_delete_name", "json_delete_path"),
        *(
            "json_delete_position",
            "json_elements",
            "json_entries",
            "json_insert",
            "json_matches",
            "json_members",
        ),
        *("json_merge_patch", "json_set", "json_strip_nulls", "json_value"),
        *("to_json", "to_json_without_null"),
    )
)
# The functions that return one of their arguments, or a part of it.
_SELECTIONS: Final = frozenset(("coalesce", "nullif"))
_PARTS: Final = frozenset(("list_element", "list_get", "list_reverse", "list_slice", "list_sort"))
#: The aggregate and window functions that return one or all of the values.
JSON_KEEPING_AGGREGATES: Final = frozenset(
    (
        *("any_value", "array_agg", "first", "first_value", "lag", "last", "last_value", "lead"),
        *("list", "max", "max_by", "min", "min_by", "mode", "nth_value"),
    )
)


def json_kind_of(expression: Expression, fields: Fields) -> str:
    """Return "json" or "jsonb" if the texts in a value are JSON, else an empty text.

    Args:
        expression: The value.
        fields: The columns that it reads.
    """
    if isinstance(expression, Column):
        return fields[expression.index].json_kind if expression.index < len(fields) else ""
    if not isinstance(expression, Call):
        return ""
    name, arguments = expression.function.removeprefix("last_"), expression.arguments
    if name == "jsonb_of_text":
        return "jsonb"
    if name in _JSON_FUNCTIONS:
        return json_kind_of(arguments[0], fields) or "json"
    if name == "struct_field":
        is_member_value = _field_name(*arguments) in ("value", "atom")
        return json_kind_of(arguments[0], fields) if is_member_value else ""
    if name in _PARTS:
        return json_kind_of(arguments[0], fields)
    if name == "case":
        arguments = (*arguments[1::2], arguments[-1])
    elif name not in _SELECTIONS:
        return ""
    values = [part for part in arguments if not (isinstance(part, Literal) and part.value is None)]
    kinds = [json_kind_of(part, fields) for part in values]
    return kinds[0] if kinds and all(kinds) else ""


def _field_name(struct: Expression, field: Expression) -> str:
    """Return the lower-case name of a field that is given by its name or position."""
    key = field.value if isinstance(field, Literal) else ""
    return str(struct.type.field(key).name if isinstance(key, int) else key).casefold()
