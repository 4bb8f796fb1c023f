"""Lists as in PostgreSQL: the first position is 1; an element at position 0 or less is NULL.

::

    (ARRAY[1, 2])[-1]               NULL
    (ARRAY[1, 2])[-1:1]             {1}
    array_length(ARRAY[]::int[], 1) NULL, in RisingWave 0
    NULL || ARRAY[1]                {1}
    ARRAY[1, NULL] @> ARRAY[NULL]   false
    array_to_string(ARRAY[NULL], '') an empty string
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions import nested
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.postgres.positions import at_least
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = ["READERS", "READERS_BY_NAME", "concatenate_lists"]


def _read_subscript(clause: Clause, node: exp.Bracket) -> Expression:
    """Read ``a[i]`` and ``a[i:j]`` of a list; any other subscript is read as in DuckDB."""
    value = clause.read(node.this)
    if not is_list(value.type) or len(node.expressions) != 1:
        return nested.subscript_value(clause, node, value)
    subscript, one = node.expressions[0], integer_literal(1)
    clause.source.allow_arguments(node, "this", "expressions", "offset", "safe")
    if isinstance(subscript, exp.Slice):
        clause.source.allow_arguments(subscript, "this", "expression")
        low, high = subscript.args.get("this"), subscript.args.get("expression")
        begin = one if low is None else at_least(clause, node, clause.read(low), 1)
        end = integer_literal(-1) if high is None else at_least(clause, node, clause.read(high), 0)
        return clause.call(node, "list_slice", value, begin, end)
    index = clause.read(subscript)
    element = clause.call(node, "list_element", value, index)
    if isinstance(index, Literal) and isinstance(index.value, int) and index.value > 0:
        return element
    is_before = clause.call(node, "lt", index, one)
    return clause.call(node, "case", is_before, Literal(None, element.type), element)


def _read_size(clause: Clause, node: exp.ArraySize) -> Expression:
    """Read ``array_length(a, 1)``, NULL for an empty list, or ``array_length(a)``, 0 for it."""
    size = nested.READERS[exp.ArraySize](clause, node)
    if node.args.get("expression") is None or clause.source.dialect == "risingwave":
        return size
    return clause.call(node, "nullif", size, integer_literal(0))


def _read_containment(
    clause: Clause, node: exp.ArrayContainsAll | exp.ArrayContainedBy
) -> Expression:
    """Read ``a @> b`` or ``b <@ a`` of two lists, or of two strings, which are read as JSON.

    A list with a NULL is not contained in any list, because NULL does not equal NULL.
    """
    container, contained = clause.read_arguments(node, "this", "expression")
    if isinstance(node, exp.ArrayContainedBy):
        container, contained = contained, container
    if is_text(container.type) and is_text(contained.type):
        return clause.call(node, "json_includes", container, contained)
    result = clause.call(node, "list_contains_all", container, contained)
    values = clause.call(node, "list_compact", contained)
    lengths = (clause.call(node, "length", part) for part in (contained, values))
    has_nulls = clause.call(node, "gt", *lengths)
    is_null = clause.call(node, "is_null", result)
    return clause.call(node, "case", is_null, result, has_nulls, Literal(False, pa.bool_()), result)


def _read_array_to_string(clause: Clause, node: exp.ArrayToString) -> Expression:
    return clause.call(
        node, "list_join", *clause.read_arguments(node, "this", "expression", "null")
    )


def _read_concatenation(clause: Clause, node: exp.ArrayConcat) -> Expression:
    """Read ``array_cat(a, b)`` and ``a || b``."""
    clause.source.allow_arguments(node, "this", "expressions", "null_propagation")
    joined, *others = map(clause.read, (node.this, *node.expressions))
    for other in others:
        joined = concatenate_lists(clause, node, joined, other)
    return joined


def concatenate_lists(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> Expression:
    """Return the concatenation of two lists. A NULL counts as an empty list; NULL if both are."""
    for side, other in ((left, right), (right, left)):
        if pa.types.is_null(side.type):
            return other
    is_null = [clause.call(node, "is_null", side) for side in (left, right)]
    joined = clause.call(node, "list_concat", left, right)
    both_null = clause.call(node, "and", *is_null)
    return clause.call(node, "case", both_null, Literal(None, joined.type), joined)


def _read_dimensions(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``array_dims(a)``: a text such as ``[1:2][1:3]``; NULL for an empty list."""
    value = clause.read(node.expressions[0]) if len(node.expressions) == 1 else None
    if value is None or not is_list(value.type):
        raise clause.source.error(node, "array_dims() takes a list")
    parts: list[Expression] = []
    part = value
    while is_list(part.type):
        length = clause.call(node, "cast", clause.call(node, "length", part), type=pa.string())
        parts += [string_literal("[1:" if not parts else "][1:"), length]
        part = clause.call(node, "list_element", part, integer_literal(1))
    dimensions = clause.call(node, "concat", *parts, string_literal("]"))
    is_empty = clause.call(node, "eq", clause.call(node, "length", value), integer_literal(0))
    return clause.call(node, "case", is_empty, Literal(None, pa.string()), dimensions)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.ArrayConcat: _read_concatenation,
    exp.ArrayContainedBy: _read_containment,
    exp.ArrayContainsAll: _read_containment,
    exp.ArraySize: _read_size,
    exp.ArrayToString: _read_array_to_string,
    exp.Bracket: _read_subscript,
}
READERS_BY_NAME: Final[dict[str, Reader]] = {"array_dims": _read_dimensions}
