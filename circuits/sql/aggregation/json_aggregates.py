"""Aggregates that build JSON: json_group_array, json_group_object, JSON_ARRAYAGG, JSON_OBJECTAGG.

They are texts, joined from the JSON of the parts::

    json_group_array(x)       '[' || string_agg(to_json(x), ',') || ']'
    json_group_object(k, x)   '{' || string_agg(to_json(k) || ':' || to_json(x), ',') || '}'

json_group_array and json_group_object are those of DuckDB: NULL is ``null``, and the result of no
rows is NULL. JSON_ARRAYAGG and JSON_OBJECTAGG are those of the SQL standard, as in Flink:
``ABSENT ON NULL``, the default of JSON_ARRAYAGG, leaves NULL out, and in dialect spark the result
of no rows is ``[]`` or ``{}``. Without ORDER BY, arrays are in the order of their values, and
objects in that of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from circuits.plan.expressions import Expression
from circuits.sql.aggregation.aggregate_reader import AggregateDefinition, AggregateReader
from circuits.sql.binding.ordering import SortKey
from circuits.sql.expressions.json_functions.constructors import json_of
from circuits.sql.expressions.json_functions.values import mark_json
from circuits.sql.expressions.literals import NULL, string_literal
from circuits.sql.syntax.json_syntax import LEAVES_NULLS_OUT
from circuits.types.arrow_types import is_nested

__all__ = ["DEFINITIONS"]


def _read_array(reader: AggregateReader) -> Expression:
    value = reader.argument(0)
    element = _without_nulls(reader, value, json_of(reader.clause, reader.argument_node(0)))
    reader.check_distinct_order(value)
    return _as_jsonb(reader, _join(reader, element, value, "[", "]"))


def _read_object(reader: AggregateReader) -> Expression:
    key, value = reader.argument(0), reader.argument(1)
    name = reader.call("to_json", reader.cast(key, pa.string()))
    error = reader.call("raise_error", string_literal(f"a key of {reader.name}() is NULL"))
    member = reader.call(
        "concat",
        reader.call("coalesce", name, error),
        string_literal(":"),
        json_of(reader.clause, reader.argument_node(1)),
    )
    whole = _join(reader, _without_nulls(reader, value, member), key, "{", "}")
    return _as_jsonb(reader, whole)


def _as_jsonb(reader: AggregateReader, whole: Expression) -> Expression:
    """Return the JSON of a group; that of PostgreSQL's functions ``jsonb_...`` in normal form."""
    is_jsonb = reader.function.name.lower().startswith("jsonb_")
    if not (is_jsonb and reader.clause.source.is_postgres):
        return whole
    return mark_json(reader.clause, reader.call("jsonb_of_text", whole), "jsonb")


def _without_nulls(reader: AggregateReader, value: Expression, text: Expression) -> Expression:
    """Return a text, but NULL where a value is NULL that the call leaves out."""
    if not reader.function.meta.get(LEAVES_NULLS_OUT):
        return text
    return reader.call("case", reader.call("is_null", value), NULL, text)


def _join(
    reader: AggregateReader, text: Expression, sort_value: Expression, start: str, end: str
) -> Expression:
    """Return the texts of a group with commas in between, in the order of another value."""
    masked = reader.apply_filter(text)
    has_order = not (reader.distinct or is_nested(sort_value.type))
    order = reader.order_or(SortKey(sort_value if has_order else masked, False, False))
    if reader.distinct:
        order = tuple(replace(key, expression=masked) for key in order)
    elif not reader.order:
        order = (*order, SortKey(masked, False, False))
    joined = reader.aggregate(
        "string_agg", masked, distinct=reader.distinct, order=order, options=(",",)
    )
    if reader.is_spark:
        joined = reader.call("coalesce", joined, string_literal(""))
    whole = reader.call("concat", string_literal(start), joined, string_literal(end))
    value = reader.call("case", reader.call("is_null", joined), NULL, whole)
    return mark_json(reader.clause, value)


#: The functions by name.
DEFINITIONS: Final[Mapping[str, AggregateDefinition]] = {
    "json_array_agg": AggregateDefinition(_read_array, takes_within_group=True),
    "json_object_agg": AggregateDefinition(_read_object, (2, 2), distinct=False),
}
