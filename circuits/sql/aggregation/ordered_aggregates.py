"""Aggregate functions that depend on an order: first, max_by, mode, percentiles, lists of values.

Functions that name no order but depend on one (``first``, ``string_agg``) take the order of their
window, then that of the values, so that a result depends on the rows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.aggregation.aggregate_reader import AggregateDefinition, AggregateReader, Read
from circuits.sql.binding.enums import is_enum
from circuits.sql.binding.nested_order import has_order_key, order_key, value_of_key
from circuits.sql.binding.ordering import SortKey, reverse_order
from circuits.sql.expressions.casts import dialect_text
from circuits.sql.expressions.literals import NULL, integer_literal
from circuits.types.arrow_types import VARIANT
from circuits.types.codecs.codec import Codecs
from circuits.types.functions.type_rules import is_binary

__all__ = ["DEFINITIONS"]


def _first_reader(*, is_last: bool = False, ignores_nulls: bool = False) -> Read:
    """Return the reader of ``first`` and its relatives.

    Args:
        is_last: True for the last value.
        ignores_nulls: True if NULL is left out unless the call has RESPECT NULLS; not in dialect
            spark, where only IGNORE NULLS, or TRUE as the second argument, leaves NULL out.
    """

    def read(reader: AggregateReader) -> Expression:
        value = reader.argument(0)
        if reader.argument_count == 2 and not reader.is_spark:
            raise reader.source.error(
                reader.function,
                f"{reader.name}() takes one argument; {reader.name}(x) FILTER (WHERE x IS NOT "
                "NULL) leaves NULL out",
            )
        if ignores_nulls and not reader.is_spark:
            leaves_nulls_out = reader.nulls != "respect"
        else:
            leaves_nulls_out = reader.nulls == "ignore"
        if reader.argument_count == 2 and reader.constant(1, "flag"):
            leaves_nulls_out = True
        order = reader.order or (() if reader.distinct else reader.window_order)
        order = reverse_order(order) if is_last else order
        if not reader.order:
            # Of rows that are equal in the order of the window, a value is preferred to NULL.
            order = (*order, SortKey(value, is_last, False))
        arguments = reader.filter_arguments(value, *((value,) if leaves_nulls_out else ()))
        return reader.aggregate("first", *arguments, order=order)

    return read


def _best_reader(*, is_max: bool) -> Read:
    """Return the reader of ``max_by(x, y[, n])`` or of ``min_by``."""

    def read(reader: AggregateReader) -> Expression:
        value, by = reader.argument(0), reader.argument(1)
        if by.type == VARIANT:
            reader.source.refuse_order(reader.function, by.type, f"{reader.name}()")
        arguments = reader.filter_arguments(value, by, *(() if reader.is_spark else (value,)))
        has_key = reader.is_spark and has_order_key(by.type)
        order = SortKey.of(order_key(by) if has_key else by, descending=is_max)
        if reader.argument_count == 3:
            return _read_first_values(reader, 2, arguments, order)
        return reader.aggregate("first", *arguments, order=(order,))

    return read


def _extremes_reader(function: str) -> Read:
    """Return the reader of ``max(x[, n])`` or of ``min``; with n, the n greatest values, a list."""

    def read(reader: AggregateReader) -> Expression:
        value = reader.argument(0)
        if reader.argument_count == 1 and reader.is_spark and has_order_key(value.type):
            key = reader.aggregate(function, reader.apply_filter(order_key(value)))
            return value_of_key(key, value.type)
        if not is_enum(value.type):
            reader.source.refuse_order(reader.function, value.type, f"{function}()")
        order = SortKey.of(value, descending=function == "max")
        key = order.expression
        if reader.argument_count == 1:
            return order.restore(reader.aggregate(function, reader.apply_filter(key)))
        if reader.is_spark:
            raise reader.source.error(reader.function, f"{reader.name}() takes one argument")
        arguments = reader.filter_arguments(key, key)
        return order.restore_list(_read_first_values(reader, 1, arguments, order))

    return read


def _read_first_values(
    reader: AggregateReader,
    count_index: int,
    arguments: tuple[Expression, ...],
    order: SortKey,
) -> Expression:
    """Return the list of the first values in an order; an argument is their number."""
    count = reader.constant(count_index, "count")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise reader.source.error(
            reader.function, f"the count of {reader.name}() is a whole number from 1 on"
        )
    _check_lists(reader, arguments[0])
    values = reader.aggregate("list", *arguments, distinct=reader.distinct, order=(order,))
    return reader.call("list_slice", values, integer_literal(1), integer_literal(count))


def _read_mode(reader: AggregateReader) -> Expression:
    key = reader.order[0] if reader.within_group else SortKey.of(reader.argument(0))
    if reader.within_group and reader.order[0].descending:
        raise reader.source.unsupported(
            reader.function,
            "mode() WITHIN GROUP (ORDER BY ... DESC)",
            "leave DESC out; of values that are equally frequent, the least is returned",
        )
    return key.restore(reader.aggregate("mode", reader.apply_filter(key.expression)))


def _quantile_reader(kind: str) -> Read:
    """Return the reader of percentiles.

    Args:
        kind: "cont" to interpolate between values; "disc" for a value of a row; "median" for
            "cont" at 0.5; "default" for "cont" in dialect spark, else "disc".
    """

    def read(reader: AggregateReader) -> Expression:
        fractions: list[float] | float
        if reader.within_group:
            if len(reader.order) != 1 or reader.argument_count != 1:
                raise reader.source.error(
                    reader.function, f"{reader.name}(fraction) WITHIN GROUP (ORDER BY one value)"
                )
            key = reader.order[0]
            fractions = reader.fractions(0)
        else:
            key = SortKey.of(reader.argument(0))
            if reader.argument_count == 1:
                if kind != "median":
                    raise reader.source.error(
                        reader.function, f"{reader.name}() needs a fraction from 0 to 1"
                    )
                fractions = 0.5
            else:
                fractions = reader.fractions(1)
            if reader.argument_count == 3:
                reader.constant(2, "accuracy")  # raises an error if it is not a constant
        is_continuous = kind in ("cont", "median") or (kind == "default" and reader.is_spark)
        function, value = "quantile_disc", key.expression
        if is_continuous and key.enum is not None:
            reader.source.refuse_order(reader.function, key.enum, f"{reader.name}()")
        if is_continuous:
            function, value = _interpolate(reader, value, is_median=kind == "median")
        elif reader.is_spark and kind == "disc" and reader.within_group:
            value = reader.as_float(value)
        masked = reader.apply_filter(value)
        order = (SortKey(masked, key.descending, False),)

        def quantile(fraction: float) -> Expression:
            value = reader.aggregate(
                function, masked, distinct=reader.distinct, order=order, options=(fraction,)
            )
            return key.restore(value)

        if not isinstance(fractions, list):
            return quantile(fractions)
        values = [quantile(fraction) for fraction in fractions]
        if not values:
            raise reader.source.error(reader.function, f"{reader.name}() needs a fraction")
        has_no_rows = reader.call("is_null", values[0])
        return reader.call("case", has_no_rows, NULL, reader.call("make_list", *values))

    return read


def _interpolate(
    reader: AggregateReader, value: Expression, *, is_median: bool
) -> tuple[str, Expression]:
    """Return the function that interpolates between values of this type, and the value for it.

    As in DuckDB, times are cast to microseconds, except that the median of timestamps without a
    zone keeps their unit.
    """
    type_ = value.type.value_type if pa.types.is_dictionary(value.type) else value.type
    target = None
    if pa.types.is_date(type_) and not reader.is_spark:
        target = pa.timestamp("us")
    elif pa.types.is_timestamp(type_) and not (is_median and type_.tz is None):
        target = pa.timestamp("us", type_.tz)
    elif pa.types.is_time32(type_):
        target = pa.time64("us")
    if target is not None and target != type_:
        return "quantile_cont", reader.clause.call(reader.function, "cast", value, type=target)
    if pa.types.is_temporal(type_) or (pa.types.is_float32(type_) and not reader.is_spark):
        return "quantile_cont", value
    keeps_decimals = not (reader.is_spark or reader.source.is_postgres)
    if pa.types.is_decimal(type_) and type_.precision <= 18 and keeps_decimals:
        return "quantile_cont", value
    if (pa.types.is_string(type_) or pa.types.is_large_string(type_)) and not reader.is_spark:
        return "quantile_disc", value
    return "quantile_cont", reader.as_float(value)


def _read_string_agg(reader: AggregateReader) -> Expression:
    value = reader.argument(0)
    separator = "" if reader.is_spark else ","
    if reader.argument_count > 1:
        separator = reader.constant(1, "separator")
        if separator is None:
            if not reader.is_spark:
                return Literal(None, pa.string())
            separator = ""
        if not isinstance(separator, str):
            raise reader.source.error(
                reader.function, f"the separator of {reader.name}() is a text"
            )
    reader.check_distinct_order(value)
    text = _as_text(reader, value)
    masked = reader.apply_filter(text)
    order = tuple(
        replace(key, expression=masked) if key.expression == text else key
        for key in reader.order_or(SortKey(masked, False, False))
    )
    return reader.aggregate(
        "string_agg", masked, distinct=reader.distinct, order=order, options=(separator,)
    )


def _as_text(reader: AggregateReader, value: Expression) -> Expression:
    if pa.types.is_string(value.type):
        return value
    if reader.source.is_postgres and is_binary(value.type):
        raise reader.source.unsupported(
            reader.function, f"{reader.name}() of bytes", "write encode(b, 'hex')"
        )
    value = dialect_text(reader.clause, reader.function, value)
    if pa.types.is_string(value.type):
        return value
    return reader.clause.call(reader.function, "cast", value, type=pa.string())


def _read_list(reader: AggregateReader) -> Expression:
    value = reader.argument(0)
    # collect_list of Spark leaves NULL out.
    leaves_nulls_out = bool(reader.function.args.get("nulls_excluded")) and reader.is_spark
    leaves_nulls_out = reader.nulls == "ignore" or (leaves_nulls_out and not reader.nulls)
    _check_lists(reader, value)
    required = (value,) if leaves_nulls_out else ()
    key = SortKey.of(value)
    if reader.distinct and key.enum is not None:
        reader.check_distinct_order(key.expression)
        order = reader.order or (key,)
        arguments = reader.filter_arguments(key.expression, *required)
        values = reader.aggregate("list", *arguments, distinct=True, order=order)
        return key.restore_list(values)
    reader.check_distinct_order(value)
    order = reader.order_or(SortKey(value, False, False))
    arguments = reader.filter_arguments(value, *required)
    return _never_null_in_spark(
        reader, reader.aggregate("list", *arguments, distinct=reader.distinct, order=order)
    )


def _never_null_in_spark(reader: AggregateReader, value: Expression) -> Expression:
    """Return a list of no values as Spark does: empty; in DuckDB it is NULL."""
    if not reader.is_spark:
        return value
    empty = reader.clause.call(reader.function, "make_list")
    empty = reader.clause.call(reader.function, "cast", empty, type=value.type)
    return reader.clause.call(reader.function, "coalesce", value, empty)


def _check_lists(reader: AggregateReader, value: Expression) -> None:
    """Refuse a list, if no column can have its type."""
    try:
        Codecs().codec(pa.list_(value.type))
    except SchemaError:
        raise reader.source.unsupported(
            reader.function, f"{reader.name}(), a list", "use string_agg()", reader.name
        ) from None


def _read_histogram(reader: AggregateReader) -> Expression:
    """Return a map from each value, or each of the given bins, to the number of its rows."""
    if reader.argument_count == 2:
        return _read_bins(reader, "list_histogram_bins")
    value = reader.argument(0)
    _check_lists(reader, value)
    order = (SortKey(value, False, False),)
    arguments = reader.filter_arguments(value, value)
    values = reader.aggregate("list", *arguments, distinct=reader.distinct, order=order)
    return reader.call("sorted_list_histogram", values)


def _read_bins(reader: AggregateReader, function: str) -> Expression:
    """Return a map from each bin to the number of its values."""
    value, bins_node = reader.argument(0), reader.argument_node(1)
    if not isinstance(bins_node, exp.Array):
        raise reader.source.unsupported(
            bins_node, f"{reader.name}() with bins that are not a list", "write [1, 2, 5]"
        )
    reader.argument(1)
    bins = [reader.cast(reader.clause.read(part), value.type) for part in bins_node.expressions]
    if not all(isinstance(part, Literal) and part.value is not None for part in bins):
        raise reader.source.unsupported(
            bins_node, f"{reader.name}() with bins that are not constant", "write [1, 2, 5]"
        )
    values = reader.aggregate(
        "list",
        *reader.filter_arguments(value, value),
        distinct=reader.distinct,
        order=(SortKey(value, False, False),),
    )
    return reader.call(function, values, *bins)


def _read_map(reader: AggregateReader) -> Expression:
    """Return a map from each key to its value; a key in two rows is an error of the step."""
    key, value = reader.argument(0), reader.argument(1)
    _check_lists(reader, key)
    _check_lists(reader, value)
    order = (SortKey(key, False, False),)
    keys = reader.aggregate("list", *reader.filter_arguments(key, key), order=order)
    values = reader.aggregate("list", *reader.filter_arguments(value, key), order=order)
    return reader.call("make_map", keys, values)


def _read_set(reader: AggregateReader) -> Expression:
    value = reader.argument(0)
    _check_lists(reader, value)
    values = reader.aggregate(
        "list",
        *reader.filter_arguments(value, value),
        distinct=True,
        order=(SortKey(value, False, False),),
    )
    return _never_null_in_spark(reader, values)


def _bitmap_reader(function: str) -> Read:
    """Return the reader of an aggregate of bitmaps: a function of the list of distinct values."""

    def read(reader: AggregateReader) -> Expression:
        return reader.call(function, _read_set(reader))

    return read


DEFINITIONS: Final[Mapping[str, AggregateDefinition]] = {
    "any_value": AggregateDefinition(
        _first_reader(ignores_nulls=True), (1, 2), takes_within_group=True, nulls=True
    ),
    "approx_quantile": AggregateDefinition(_quantile_reader("disc"), (2, 3)),
    "array_agg": AggregateDefinition(_read_list, takes_within_group=True, nulls=True),
    "bitmap_and_agg": AggregateDefinition(_bitmap_reader("bitmap_and"), distinct=False),
    "bitmap_construct_agg": AggregateDefinition(
        _bitmap_reader("bitmap_of_positions"), distinct=False
    ),
    "bitmap_or_agg": AggregateDefinition(_bitmap_reader("bitmap_or"), distinct=False),
    "collect_set": AggregateDefinition(_read_set),
    "first": AggregateDefinition(_first_reader(), (1, 2), takes_within_group=True, nulls=True),
    "histogram": AggregateDefinition(_read_histogram, arguments=(1, 2)),
    "histogram_exact": AggregateDefinition(
        lambda reader: _read_bins(reader, "list_histogram_exact"), arguments=(2, 2)
    ),
    "last": AggregateDefinition(
        _first_reader(is_last=True), (1, 2), takes_within_group=True, nulls=True
    ),
    "map_agg": AggregateDefinition(_read_map, (2, 2), distinct=False, takes_within_group=True),
    "max": AggregateDefinition(_extremes_reader("max"), (1, 2)),
    "max_by": AggregateDefinition(_best_reader(is_max=True), (2, 3)),
    "median": AggregateDefinition(_quantile_reader("median")),
    "min": AggregateDefinition(_extremes_reader("min"), (1, 2)),
    "min_by": AggregateDefinition(_best_reader(is_max=False), (2, 3)),
    "mode": AggregateDefinition(_read_mode, distinct=False, ordered_set=True),
    "quantile": AggregateDefinition(_quantile_reader("default"), (1, 2), ordered_set=True),
    "quantile_cont": AggregateDefinition(_quantile_reader("cont"), (1, 2), ordered_set=True),
    "quantile_disc": AggregateDefinition(_quantile_reader("disc"), (1, 2), ordered_set=True),
    "string_agg": AggregateDefinition(_read_string_agg, (1, 2), takes_within_group=True),
}
