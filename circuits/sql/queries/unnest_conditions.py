"""LEFT JOIN of a function that makes rows on a condition: ``LEFT JOIN UNNEST(a) AS u(x) ON x > 3``.

The condition is applied to the elements of each list before they become rows. A row for which no
element is left is kept with NULLs::

    unnest outer (list_filter(a, lambda x: x > 3))

So the join stays linear: a row maps to its elements, independently of the other rows. With a
position, or for a map, each element is first paired with its position or key, in a struct.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, substitute
from circuits.plan.nodes import Map, columns
from circuits.plan.unnest import Unnest
from circuits.sql.binding.scope import is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.queries.conditions import has_query
from circuits.types import functions
from circuits.types.functions.nested.lambdas import lambda_call

__all__ = ["keep_matching_elements"]

_ADVICE: Final = "write LEFT JOIN (SELECT ... FROM t, UNNEST(...) WHERE ...) USING (a key of t)"


def keep_matching_elements(builder: SelectBuilder, node: exp.Expr, condition: exp.Expr) -> None:
    """Apply the condition of a LEFT JOIN to the elements that the last item of FROM has added.

    Args:
        builder: The rows, whose plan is an outer `Unnest`.
        node: The item, for errors.
        condition: The condition of ON.

    Raises:
        UnsupportedSqlError: The condition has a subquery or columns of an enclosing query, or the
            function makes columns but no rows.
    """
    source, unnest = builder.source, builder.plan
    if not isinstance(unnest, Unnest):
        raise source.unsupported(condition, "LEFT JOIN of this function on a condition", _ADVICE)
    if has_query(condition):
        raise source.unsupported(condition, "a subquery in LEFT JOIN with UNNEST", _ADVICE)
    predicate = builder.clause("JOIN ... ON").read_condition(condition)
    if is_correlated(predicate):
        raise source.correlated(
            condition, "LEFT JOIN with UNNEST on a column of the enclosing query", _ADVICE
        )
    with source.errors_at(node):
        builder.plan = _filter_elements(unnest, predicate)


def _filter_elements(unnest: Unnest, predicate: Expression) -> Map | Unnest:
    """Return the rows of an outer unnest, with the elements for which the predicate is true.

    Args:
        unnest: The unnest.
        predicate: Over the columns of the unnest.
    """
    rows = unnest.input
    width = len(rows.fields) - 1
    values = columns(rows)[-1]
    # The parameters of lambdas: an element, and its position from 0. The numbers are beyond those
    # of the columns.
    element_index, position_index = len(unnest.fields), len(unnest.fields) + 1
    parameters = element_index, position_index
    is_map = pa.types.is_map(values.type)
    entries: Expression = functions.call("map_entries", values) if is_map else values
    element = Column(element_index, entries.type.value_type)
    parts = _parts(element, is_map=is_map)
    if unnest.first_position is not None:
        position = functions.call(
            "add", Column(position_index, pa.int64()), integer_literal(unnest.first_position)
        )
        names = [f"part{number}" for number in range(len(parts) + 1)]
        named = zip(names, [*parts, position], strict=True)
        struct = functions.call(
            "make_struct", *(item for name, part in named for item in (string_literal(name), part))
        )
        entries = lambda_call("list_transform", entries, struct, parameters)
        element = Column(element_index, struct.type)
        parts = [functions.call("struct_field", element, string_literal(name)) for name in names]
    is_single = len(parts) == 1

    def over_element(column: Column) -> Expression:
        return column if column.index < width else parts[column.index - width]

    matching = lambda_call("list_filter", entries, substitute(predicate, over_element), parameters)
    field_names = tuple(field.name for field in rows.fields)
    elements = Unnest(
        Map(rows, (*columns(rows)[:-1], matching), field_names),
        unnest.names[:1] if is_single else ("element",),
        outer=True,
    )
    if is_single:
        return elements
    new_column = columns(elements)[-1]
    values_of_parts = [substitute(part, lambda column: new_column) for part in parts]
    all_names = tuple(field.name for field in unnest.fields)
    return Map(elements, (*columns(elements)[:-1], *values_of_parts), all_names)


def _parts(element: Column, *, is_map: bool) -> list[Expression]:
    """Return the columns that an element makes, without its position."""
    if not is_map:
        return [element]
    return [
        functions.call("struct_field", element, string_literal(field.name))
        for field in element.type
    ]
