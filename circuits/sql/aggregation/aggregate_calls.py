"""Calls of aggregate functions, as expressions over a few primitive aggregates.

::

    var_samp(x)      comoment(x, x) / (count(x) - 1), NULL for less than two values
    count_if(c)      count(case when c then 1 end)
    max_by(x, y)     first(x order by y desc), of the rows where neither is NULL

Here comoment(x, y) is the sum of the products of the deviations of x and y from their means. The
primitive aggregates are those of `circuits.types.functions.aggregate_type`. Each definition gets an
`AggregateReader` (`circuits.sql.aggregation.aggregate_reader`), and registers primitive aggregates
with it. Statistics and the functions that depend on an order have files of their own.

Where systems differ, the dialect decides: whether a percentile interpolates, the statistics of
values that are all equal, and the default separator of a list of texts. Approximate functions are
computed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.aggregation import json_aggregates, ordered_aggregates, statistics
from circuits.sql.aggregation.aggregate_reader import (
    FLOAT,
    AggregateDefinition,
    AggregateReader,
    Read,
    Register,
)
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.ordering import SortKey
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.type_rules import is_interval, is_temporal

__all__ = ["read_aggregate"]


def read_aggregate(
    clause: Clause, node: exp.Expr, register: Register, window_order: tuple[SortKey, ...] = ()
) -> Expression:
    """Return the value of a call of an aggregate function.

    Args:
        clause: The clause of its arguments, its order and its FILTER.
        node: The call, with the words after it: FILTER, WITHIN GROUP, IGNORE NULLS.
        register: Returns the value of a primitive aggregate.
        window_order: The ORDER BY of the window, if the call has an OVER. It is the order of the
            values of a list or text for which the call itself has no ORDER BY.

    Raises:
        SqlError: The function does not take these arguments.
        UnsupportedSqlError: The function is not supported.
    """
    reader = AggregateReader(clause, node, register, DEFINITIONS, window_order)
    return reader.definition.read(reader)


def _primitive_reader(function: str) -> Read:
    """Return the reader of a primitive aggregate of one argument."""

    def read(reader: AggregateReader) -> Expression:
        value = reader.apply_filter(reader.argument(0))
        distinct = reader.distinct and function not in ("bit_and", "bit_or")
        return reader.aggregate(function, value, distinct=distinct)

    return read


def _read_sum(reader: AggregateReader) -> Expression:
    """Return the sum.

    Except in Spark, the sum of booleans is the number of those that are true.
    In Spark, the type of a sum of decimals has ten digits more than theirs. In PostgreSQL a sum of
    BIGINT is NUMERIC, so that a division keeps its fraction.
    """
    value = reader.apply_filter(_as_number(reader, reader.argument(0)))
    if pa.types.is_boolean(value.type) and not reader.is_spark:
        value = reader.cast(value, pa.int64())
    if _is_interval(reader, value):
        return _sum_intervals(reader, value)
    total = reader.aggregate("sum", value, distinct=reader.distinct)
    if reader.source.is_postgres and pa.types.is_int64(value.type):
        return reader.cast(total, pa.decimal128(38, 0))
    if not reader.is_spark or not pa.types.is_decimal(value.type):
        return total
    digits = min(38, value.type.precision + 10)
    return reader.cast(total, pa.decimal128(digits, value.type.scale))


def _read_try_sum(reader: AggregateReader) -> Expression:
    """Return the sum, or NULL if its type cannot hold it."""
    value = reader.apply_filter(_as_number(reader, reader.argument(0)))
    if pa.types.is_floating(value.type):
        return reader.aggregate("sum", value, distinct=reader.distinct)
    target = pa.int64()
    if pa.types.is_decimal(value.type):
        target = pa.decimal128(min(38, value.type.precision + 10), value.type.scale)
    wide = pa.decimal256(76, target.scale) if pa.types.is_decimal(target) else pa.decimal128(38, 0)
    total = reader.aggregate("sum", reader.cast(value, wide), distinct=reader.distinct)
    return reader.call("try", reader.cast(total, target))


def _read_average(reader: AggregateReader) -> Expression:
    """Return the mean; in Spark, the mean of decimals is a decimal with four digits more."""
    value = reader.argument(0)
    if reader.is_spark and pa.types.is_timestamp(value.type):  # the mean of seconds since 1970
        value = spark_cast(reader.clause, reader.function, value, FLOAT)
    value = reader.apply_filter(_as_number(reader, value))
    if _is_interval(reader, value):
        return _mean_interval(reader, value)
    if not reader.is_spark and not reader.source.is_postgres and is_temporal(value.type):
        return _mean_time(reader, value)
    if not reader.is_spark or not pa.types.is_decimal(value.type):
        return reader.aggregate("avg", value, distinct=reader.distinct)
    total = reader.aggregate("sum", value, distinct=reader.distinct)
    divisor = _divisor(reader, value)
    precision, scale = value.type.precision, value.type.scale
    target = pa.decimal128(min(38, precision + 4), min(38, scale + 4))
    # A cast of the quotient in its usual type would lose digits: that has six after the point.
    return reader.clause.call(reader.function, "divide_ansi", total, divisor, type=target)


def _mean_time(reader: AggregateReader, value: Expression) -> Expression:
    """Return the mean of dates or timestamps as in DuckDB, rounded half towards zero.

    The mean of dates is a timestamp.
    """
    if pa.types.is_date(value.type):
        value = reader.cast(value, pa.timestamp("us"))
    ticks = reader.call("epoch_microsecond", value)
    total = reader.aggregate("sum", ticks, distinct=reader.distinct)
    divisor = _divisor(reader, ticks)
    added = reader.call("subtract", divisor, integer_literal(1))
    mean = reader.cast(_divide_rounded(reader, total, divisor, added), pa.int64())
    return reader.cast(reader.call("timestamp_of_micros", mean), value.type)


def _divide_rounded(
    reader: AggregateReader, total: Expression, divisor: Expression, added: Expression
) -> Expression:
    """Return the sign of a total times (2 * abs(total) + added) / (2 * divisor), rounded down.

    This is the quotient, rounded half away from zero if the divisor is added, and half towards zero
    if one less is.
    """
    doubled = reader.call("multiply", reader.call("abs", total), integer_literal(2))
    rounded = reader.call(
        "int_divide_ansi",
        reader.call("add", doubled, added),
        reader.call("multiply", divisor, integer_literal(2)),
    )
    return reader.call("multiply", rounded, reader.call("sign", total))


def _divisor(reader: AggregateReader, value: Expression) -> Expression:
    """Return the number of values; NULL if there are none."""
    count = reader.aggregate("count", value, distinct=reader.distinct)
    return reader.call("case", reader.call("gt", count, integer_literal(0)), count, NULL)


def _is_interval(reader: AggregateReader, value: Expression) -> bool:
    """Return whether a value is an interval in a dialect that adds them; DuckDB does not."""
    adds_intervals = reader.is_spark or reader.source.is_postgres
    return adds_intervals and is_interval(value.type)


def _sum_intervals(reader: AggregateReader, value: Expression) -> Expression:
    """Return the sum of intervals; months, days and shorter units are added for themselves."""
    if value.type != INTERVAL or reader.is_spark:
        return _as_interval(reader, _sum_ticks(reader, value), value.type)
    if reader.distinct:
        raise reader.source.unsupported(
            reader.function, "DISTINCT of intervals in a sum", "add the rows of a SELECT DISTINCT"
        )
    parts = (
        reader.aggregate("sum", reader.call("interval_field", value, string_literal(part)))
        for part in ("months", "days", "microseconds")
    )
    return reader.call("make_interval", *parts)


def _sum_ticks(reader: AggregateReader, value: Expression) -> Expression:
    """Return the sum of the microseconds of intervals, or of their months."""
    if value.type == INTERVAL:
        ticks = reader.call("interval_field", value, string_literal("months"))
    else:
        ticks = reader.call("micros_of_duration", value)
    return reader.aggregate("sum", ticks, distinct=reader.distinct)


def _as_interval(reader: AggregateReader, ticks: Expression, type_: pa.DataType) -> Expression:
    if type_ == INTERVAL:
        return reader.call("make_interval", ticks, integer_literal(0), integer_literal(0))
    return reader.call("duration_of_micros", ticks, integer_literal(1))


def _mean_interval(reader: AggregateReader, value: Expression) -> Expression:
    """Return the mean of intervals in microseconds or months, rounded half away from zero."""
    if value.type == INTERVAL and not reader.is_spark:
        count = reader.aggregate("count", value)
        return reader.call("divide_interval", _sum_intervals(reader, value), count)
    total = _sum_ticks(reader, value)
    divisor = _divisor(reader, value)
    return _as_interval(reader, _divide_rounded(reader, total, divisor, divisor), value.type)


def _as_number(reader: AggregateReader, value: Expression) -> Expression:
    """Return a text as a double in Spark, another value as it is."""
    if reader.is_spark and pa.types.is_string(value.type):
        return reader.cast(value, FLOAT)
    return value


def _read_count(reader: AggregateReader) -> Expression:
    if reader.argument_count == 0 or reader.is_star(0):
        if reader.distinct:
            raise reader.source.unsupported(
                reader.function,
                "DISTINCT of several columns",
                "count the rows of a SELECT DISTINCT in FROM",
            )
        # With a FILTER, count an expression that is NULL for the other rows.
        filtered_one = reader.apply_filter(integer_literal(1))
        has_filter = filtered_one != integer_literal(1)
        return reader.aggregate("count", *((filtered_one,) if has_filter else ()))
    values = [reader.argument(index) for index in range(reader.argument_count)]
    if reader.distinct:
        return reader.aggregate("count", *map(reader.apply_filter, values), distinct=True)
    if len(values) == 1:
        return reader.aggregate("count", reader.apply_filter(values[0]))
    return reader.aggregate("count", reader.apply_filter(integer_literal(1), *values))


def _read_count_if(reader: AggregateReader) -> Expression:
    condition = _read_condition(reader)
    counted = reader.call("case", condition, integer_literal(1), NULL)
    count = reader.aggregate("count", reader.apply_filter(counted), distinct=reader.distinct)
    if reader.is_spark:
        return count
    # In DuckDB the count is NULL if the condition is NULL in all rows, as a sum would be.
    not_null = reader.aggregate("count", reader.apply_filter(condition))
    return reader.call("case", reader.call("gt", not_null, integer_literal(0)), count, NULL)


def _read_condition(reader: AggregateReader) -> Expression:
    """Return the argument as a boolean; in DuckDB, an integer other than 0 is true."""
    value = reader.argument(0)
    if pa.types.is_null(value.type):
        return reader.clause.call(reader.function, "cast", value, type=pa.bool_())
    if not pa.types.is_boolean(value.type):
        if pa.types.is_integer(value.type) and not reader.is_spark:
            return reader.call("ne", value, integer_literal(0))
        raise reader.source.error(
            reader.function, f"{reader.name}() needs a condition, not a value of type {value.type}"
        )
    return value


def _bool_reader(is_and: bool) -> Read:
    """Return the reader of ``bool_and`` or ``bool_or``.

    ``bool_and`` is true if no condition is false, ``bool_or`` if a condition is true. Both are NULL
    if all conditions are NULL.
    """

    def read(reader: AggregateReader) -> Expression:
        condition = _read_condition(reader)
        deciding = reader.call("not", condition) if is_and else condition
        not_null_count = reader.aggregate("count", reader.apply_filter(condition))
        deciding_count = reader.aggregate(
            "count", reader.apply_filter(reader.call("case", deciding, integer_literal(1), NULL))
        )
        result = reader.call("eq" if is_and else "gt", deciding_count, integer_literal(0))
        has_value = reader.call("gt", not_null_count, integer_literal(0))
        return reader.call("case", has_value, result, NULL)

    return read


def _read_approx_distinct(reader: AggregateReader) -> Expression:
    return reader.aggregate("count", reader.apply_filter(reader.argument(0)), distinct=True)


def _read_float_sum(reader: AggregateReader) -> Expression:
    value = reader.apply_filter(reader.as_float(reader.argument(0)))
    return reader.aggregate("sum", value, distinct=reader.distinct)


def _read_product(reader: AggregateReader) -> Expression:
    value = reader.apply_filter(reader.as_float(reader.argument(0)))
    return reader.aggregate("product", value, distinct=reader.distinct)


#: The functions by name; `circuits.sql.binding.aggregate_names` has their synonyms.
DEFINITIONS: Final[Mapping[str, AggregateDefinition]] = MappingProxyType(
    {
        **statistics.DEFINITIONS,
        **ordered_aggregates.DEFINITIONS,
        **json_aggregates.DEFINITIONS,
        "approx_count_distinct": AggregateDefinition(_read_approx_distinct, (1, 2)),
        "avg": AggregateDefinition(_read_average),
        "bit_and": AggregateDefinition(_primitive_reader("bit_and")),
        "bit_or": AggregateDefinition(_primitive_reader("bit_or")),
        "bit_xor": AggregateDefinition(_primitive_reader("bit_xor")),
        "bool_and": AggregateDefinition(_bool_reader(True)),
        "bool_or": AggregateDefinition(_bool_reader(False)),
        "count": AggregateDefinition(_read_count, (0, None)),
        "count_if": AggregateDefinition(_read_count_if),
        "fsum": AggregateDefinition(_read_float_sum),
        "product": AggregateDefinition(_read_product),
        "sum": AggregateDefinition(_read_sum),
        "try_sum": AggregateDefinition(_read_try_sum),
    }
)
