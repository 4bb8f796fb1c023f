"""Functions of Flink that Spark lacks, in dialect spark: split_index, truncate and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Builder,
    check_count,
    coerce,
    literal_text,
)
from circuits.sql.expressions.spark.arithmetic import with_type_of_argument
from circuits.sql.expressions.spark.operands import to_number

__all__ = ["BUILDERS"]

_TIMESTAMP_FORMAT: Final = string_literal("yyyy-MM-dd HH:mm:ss")


def _split_index(
    clause: Clause, node: exp.Expr, text: Expression, separator: Expression, index: Expression
) -> Expression:
    """Read ``split_index(text, separator, index)``: the part at an index from 0, or NULL."""
    text, separator, index = coerce(clause, node, [text, separator, index], "tti")
    if not literal_text(clause, node, separator, "a separator"):
        raise clause.source.unsupported(
            node, "split_index() with an empty separator", "give a text that separates the parts"
        )
    empty = clause.call(node, "eq", text, string_literal(""))
    parts = clause.call(node, "split", clause.call(node, "case", empty, NULL, text), separator)
    return clause.call(node, "list_get", parts, index)


def _element(clause: Clause, node: exp.Expr, values: Expression) -> Expression:
    """Read ``element(list)``: the only element, NULL of an empty list; else an error."""
    length = clause.call(node, "list_length", values)
    has_more = clause.call(node, "gt", length, integer_literal(1))
    first = clause.call(node, "list_element", values, integer_literal(1))
    message = string_literal("element() of a list with more than one element")
    error = clause.call(node, "raise_error", message)
    error = clause.call(node, "cast", error, type=first.type)
    return clause.call(node, "case", has_more, error, first)


def _convert_tz(
    clause: Clause, node: exp.Expr, text: Expression, source: Expression, target: Expression
) -> Expression:
    """Read ``convert_tz(text, zone, zone)``; NULL for a text that is not a time."""
    text, source, target = coerce(clause, node, [text, source, target], "ttt")
    time = clause.call(node, "try_date_parse", text, _TIMESTAMP_FORMAT)
    instant = clause.call(node, "from_zone", time, source)
    local = clause.call(node, "to_zone", instant, target)
    return clause.call(node, "date_format", local, _TIMESTAMP_FORMAT)


def _truncate(
    clause: Clause, node: exp.Expr, value: Expression, digits: Expression | None = None
) -> Expression:
    """Read ``truncate(number[, digits])``, which rounds towards zero."""
    value = to_number(clause, node, value)
    function = "round_text_to_zero" if arrow.is_floating(value.type) else "round_to_zero"
    return clause.call(node, function, value, digits or integer_literal(0))


def _matches(pattern: str) -> Callable[..., Expression]:
    """Return the builder of a test of a text; false for NULL, as in Flink."""

    def build(clause: Clause, node: exp.Expr, text: Expression) -> Expression:
        (text,) = coerce(clause, node, [text], "t")
        found = clause.call(node, "regexp_matches", text, string_literal(pattern))
        return clause.call(node, "is_true", found)

    return build


BUILDERS: Final[dict[str, Builder]] = {
    "convert_tz": check_count(3, _convert_tz),
    "element": check_count(1, _element),
    # As in Flink, the letters and digits are those of Unicode.
    "is_alpha": check_count(1, _matches(r"^\p{L}+$")),
    "is_decimal": check_count(1, _matches(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")),
    "is_digit": check_count(1, _matches(r"^\p{Nd}+$")),
    "split_index": check_count(3, _split_index),
    "truncate": with_type_of_argument(check_count((1, 2), _truncate)),
}
