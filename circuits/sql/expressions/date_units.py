"""Date functions whose first argument is the name of a unit: DATEADD(MONTH, 1, d), DATEDIFF.

::

    dateadd, date_add, timestampadd (unit, n, moment)     moment + n units
    dateadd, date_add (date, n)                           date + n days
    datediff, date_diff, timestampdiff (unit, a, b)       the number of whole units from a to b
    datediff, date_diff (a, b)                            the number of days from b to a

In calls of ``coerce``, the letter ``i`` is an integer and ``m`` a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.intervals import INTERVAL_UNITS, interval_operand, shift_by_interval
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce, count_error
from circuits.sql.expressions.spark.dates import DATE_ADD, DATE_DIFF
from circuits.sql.expressions.spark.numbers import try_arithmetic
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.functions.type_rules import is_text

__all__ = ["READERS_BY_NAME"]


def _unit_of(clause: Clause, node: exp.Anonymous) -> str:
    """Return the unit that is the first argument, a word or a literal text."""
    first = node.expressions[0]
    singular = first.name.lower().removesuffix("s")
    name = {"dayofyear": "day"}.get(singular, singular)
    if name not in INTERVAL_UNITS or not isinstance(first, exp.Column | exp.Literal | exp.Var):
        units = ", ".join(INTERVAL_UNITS)
        raise clause.source.unsupported(node, f"unit {first.sql()}", f"there are: {units}")
    clause.source.mark_read(first)
    return str(name)


def _read_add(clause: Clause, node: exp.Anonymous) -> Expression:
    parts = node.expressions
    if len(parts) == 2:
        if interval_operand(parts[1]) is not None:
            return shift_by_interval(clause, node, parts[0], parts[1], 1)
        return DATE_ADD(clause, node, [clause.read(part) for part in parts])
    if len(parts) != 3:
        raise count_error(clause, node, "2 to 3")
    name = _unit_of(clause, node)
    moment = clause.read(parts[2])
    count, value = coerce(clause, node, [clause.read(parts[1]), moment], "im")
    months_days_micros = [
        clause.call(node, "multiply", count, integer_literal(amount))
        if amount
        else integer_literal(0)
        for amount in INTERVAL_UNITS[name]
    ]
    is_local = arrow.is_timestamp(value.type) and value.type.tz is None
    moved = clause.call(node, "shift_timestamp", value, *months_days_micros)
    # A TIMESTAMP_NTZ, which has no zone, remains one. A date and a text become a TIMESTAMP of
    # Spark, which has a zone.
    if is_local and not is_text(moment.type):
        return moved
    return clause.call(node, "cast", moved, type=pa.timestamp("us", "UTC"))


def _read_difference(clause: Clause, node: exp.Anonymous) -> Expression:
    parts = node.expressions
    if len(parts) == 2:
        return DATE_DIFF(clause, node, [clause.read(part) for part in parts])
    if len(parts) != 3:
        raise count_error(clause, node, "2 to 3")
    name = _unit_of(clause, node)
    start, end = coerce(clause, node, [clause.read(part) for part in parts[1:]], "mm")
    return clause.call(node, "elapsed_units", end, start, string_literal(name))


def _try_reader(function: str, sign: int) -> Callable[[Clause, exp.Anonymous], Expression]:
    """Return the reader of ``try_add`` or ``try_subtract``, of numbers or of a time."""
    add_numbers = try_arithmetic(function)

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        parts = node.expressions
        if len(parts) == 2 and interval_operand(parts[1]) is not None:
            value = shift_by_interval(clause, node, parts[0], parts[1], sign)
            return clause.call(node, "try", value)
        return add_numbers(clause, node, [clause.read(part) for part in parts])

    return read


READERS_BY_NAME: Final[dict[str, Reader]] = {
    **dict.fromkeys(("dateadd", "date_add", "timestampadd"), _read_add),
    **dict.fromkeys(("datediff", "date_diff", "timestampdiff"), _read_difference),
    "try_add": _try_reader("add", 1),
    "try_subtract": _try_reader("subtract", -1),
}
parse_by_name(READERS_BY_NAME, is_spark_dialect=True)
