"""Frames of window functions: ``ROWS``, ``RANGE`` and ``GROUPS BETWEEN ... AND ...``.

A constant bound is a number of the plan. Any other bound is an expression over the row, which
becomes a column of the rows:

================================ =================================================================
``ROWS``, ``GROUPS n PRECEDING`` ``-n`` as a BIGINT; ``n`` for FOLLOWING
``RANGE n PRECEDING``            the value at which the frame begins or ends, in the type of the
                                 order: ``x - n`` for ORDER BY x, ``x + n`` for ORDER BY x DESC
================================ =================================================================

As in DuckDB, a row with a negative offset is an error. So is a row with a NULL offset in ROWS; in
RANGE and GROUPS, its frame begins or ends at the current row. If one offset of RANGE is not
constant, a constant offset of the other bound becomes a column, too: both need one type.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.plan.window import Frame, MonthShift
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.ordering import SortKey
from circuits.sql.expressions.constants import read_constant
from circuits.sql.expressions.intervals import is_interval_sum, read_interval_sum
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.types.arrow_types import value_type
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.functions.casting.coercion import unify

__all__ = ["Bounds", "read_frame"]

#: The columns for the start and the end of a frame; None for a bound that needs no column.
Bounds: TypeAlias = tuple[Expression | None, Expression | None]

_EXCLUSIONS: Final = {
    "NO OTHERS": "none",
    "CURRENT ROW": "current row",
    "GROUP": "group",
    "TIES": "ties",
}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1000, "us": 1}
_DAY_MICROSECONDS: Final = 86_400_000_000
# The parts of an expression with another value in each row.
_VARYING: Final = (exp.Column, exp.AggFunc, exp.Query)
# The sides of a bound in the order of the rows.
_SIDES: Final = {"PRECEDING": -1, "": 0, "FOLLOWING": 1}


def read_frame(
    clause: Clause,
    node: exp.Window,
    spec: exp.WindowSpec | None,
    varying_keys: tuple[SortKey, ...],
    all_keys: tuple[SortKey, ...],
    order_by: exp.Order | None,
) -> tuple[Frame, Bounds, tuple[SortKey, ...]]:
    """Return the frame of a window, the columns for its bounds, and its sort keys.

    Args:
        clause: The clause of the window.
        node: The window.
        spec: The frame as it is written; None for the default.
        varying_keys: The sort keys that are not constants.
        all_keys: All sort keys.
        order_by: The sort keys as they are written.

    Raises:
        SqlError: The frame is not valid.
        UnsupportedSqlError: A part of it is not supported.
    """
    if spec is None:
        return Frame(), (None, None), varying_keys
    source = clause.source
    source.allow_arguments(spec, "kind", "start", "start_side", "end", "end_side", "exclude")
    mode = str(spec.args.get("kind")).lower()
    if mode not in ("rows", "range", "groups"):
        raise source.unsupported(node, f"a frame of {mode.upper()}", "write ROWS, RANGE or GROUPS")
    exclude = spec.args.get("exclude")
    exclusion = str(exclude.name if isinstance(exclude, exp.Expr) else exclude or "NO OTHERS")
    if exclusion.upper() not in _EXCLUSIONS:
        raise source.unsupported(node, f"EXCLUDE {exclusion}")
    sides = [str(spec.args.get(f"{name}_side") or "").upper() for name in ("start", "end")]
    # The bounds that become columns: those that depend on the row; see above for RANGE.
    computed = {name for name in ("start", "end") if _depends_on_row(clause, spec.args.get(name))}
    if computed and _SIDES[sides[0]] > _SIDES[sides[1]]:
        raise source.error(node, "the frame ends before it starts; exchange its bounds")
    if computed and mode == "range":
        computed = {name for name in ("start", "end") if isinstance(spec.args.get(name), exp.Expr)}
    # A window without varying keys needs no order, except for an offset of RANGE: it is added to
    # the one key, even if that is a constant.
    written_keys = varying_keys or all_keys
    keys = written_keys
    if mode == "range":
        keys = tuple(_as_range_key(clause, spec, key) for key in written_keys)
    start, end = (
        None if name in computed else _read_bound(clause, node, spec, name, mode, keys)
        for name in ("start", "end")
    )
    start_shift = start if isinstance(start, MonthShift) else None
    end_shift = end if isinstance(end, MonthShift) else None
    first = start.reach if isinstance(start, MonthShift) else start
    last = end.reach if isinstance(end, MonthShift) else end
    # Bounds on one side, 1 PRECEDING AND 3 PRECEDING, make a frame without rows.
    if sides[0] != sides[1] and first is not None and last is not None and first > last:
        raise source.error(node, "the frame ends before it starts; exchange its bounds")
    frame = Frame(
        mode,  # type: ignore[arg-type]
        first,
        last,
        _EXCLUSIONS[exclusion.upper()],  # type: ignore[arg-type]
        start_shift,
        end_shift,
    )
    if not computed:
        return frame, (None, None), keys if mode == "range" and frame.has_offset else varying_keys
    if mode == "range":
        ordered = _find_ordered(clause, node, written_keys, order_by)
        if keys != written_keys:  # the offset is added to the key after its cast
            ordered = exp.cast(ordered.copy(), exp.DType.DOUBLE)
        return frame, *_compute_values(clause, node, spec, computed, keys[0], ordered)
    bounds = [
        _compute_offset(clause, mode, spec.args[name], side) if name in computed else None
        for name, side in zip(("start", "end"), sides, strict=True)
    ]
    return frame, (bounds[0], bounds[1]), varying_keys


def _depends_on_row(clause: Clause, bound: object) -> bool:
    """Return whether an offset depends on the row; such offsets do not exist in Spark."""
    return (
        isinstance(bound, exp.Expr)
        and not clause.source.is_spark
        and bound.find(*_VARYING) is not None
    )


def _as_range_key(clause: Clause, spec: exp.WindowSpec, key: SortKey) -> SortKey:
    """Return a sort key of a RANGE frame in the type in which its offsets are added.

    A FLOAT stays a FLOAT in Spark. It is a DOUBLE in PostgreSQL, and in DuckDB if an offset is one.
    """
    source = clause.source
    if source.is_spark or not pa.types.is_float32(key.expression.type):
        return key
    bounds = [spec.args.get(name) for name in ("start", "end")]
    offsets = [read_constant(clause, part) for part in bounds if isinstance(part, exp.Expr)]
    is_double = any(pa.types.is_float64(offset.type) for offset in offsets)
    if not is_double and not (offsets and source.is_postgres):
        return key
    return replace(key, expression=clause.call(spec, "cast", key.expression, type=pa.float64()))


def _compute_offset(clause: Clause, mode: str, bound: exp.Expr, side: str) -> Expression:
    """Return the offset of a bound of ROWS or GROUPS, negative before the current row."""
    value = clause.call(bound, "cast", clause.read(bound), type=pa.int64())
    message = f"an offset of a {mode.upper()} frame is negative"
    invalid = [clause.call(bound, "lt", value, integer_literal(0))]
    if mode == "rows":
        message = f"{message} or NULL"
        invalid.append(clause.call(bound, "is_null", value))
    error = _failure(clause, bound, message, pa.int64())
    offset = value if side == "FOLLOWING" else clause.call(bound, "negate", value)
    cases = [part for condition in invalid for part in (condition, error)]
    return clause.call(bound, "case", *cases, offset)


def _find_ordered(
    clause: Clause, node: exp.Window, keys: tuple[SortKey, ...], order_by: exp.Order | None
) -> exp.Expr:
    """Return the one sort key of a RANGE frame as it is written."""
    if len(keys) != 1 or order_by is None:
        raise clause.source.error(node, "RANGE with an offset needs an ORDER BY of one column")
    parts: list[exp.Expr] = [part.this for part in order_by.expressions]
    return next(part for part in parts if clause.read(part) == keys[0].expression)


def _compute_values(
    clause: Clause,
    node: exp.Window,
    spec: exp.WindowSpec,
    computed: set[str],
    key: SortKey,
    ordered: exp.Expr,
) -> tuple[Bounds, tuple[SortKey, ...]]:
    """Return the values at the bounds of a RANGE frame, and the sort key in their type.

    Args:
        clause: The clause of the window.
        node: The window.
        spec: The frame as it is written.
        computed: The bounds, "start" and "end", that become columns.
        key: The sort key.
        ordered: The sort key as it is written.
    """
    source = clause.source
    values: dict[str, Expression] = {}
    for name in computed:
        bound, side = spec.args[name], str(spec.args[f"{name}_side"]).upper()
        operator = exp.Sub if (side == "PRECEDING") != key.descending else exp.Add
        sides = (exp.Paren(this=part.copy()) for part in (ordered, bound))
        shifted = operator(**dict(zip(("this", "expression"), sides, strict=True)))
        shifted.parent = bound.parent  # for the place of an error
        values[name] = clause.read(shifted)
        source.mark_read(bound)
    with source.errors_at(node):
        (value, *shifted_values), type_ = unify((key.expression, *values.values()))
    if not _is_range_type(type_):
        raise source.unsupported(
            node, f"RANGE with an offset over {type_}", "order by a number, a date or a time"
        )
    error = _failure(clause, node, "an offset of a RANGE frame is negative", type_)
    for name, shifted_value in zip(values, shifted_values, strict=True):
        side = str(spec.args[f"{name}_side"]).upper()
        comparison = "gt" if (side == "PRECEDING") != key.descending else "lt"
        is_negative = clause.call(node, comparison, shifted_value, value)
        values[name] = clause.call(node, "case", is_negative, error, shifted_value)
    return (values.get("start"), values.get("end")), (replace(key, expression=value),)


def _failure(clause: Clause, node: exp.Expr, message: str, type_: pa.DataType) -> Expression:
    """Return an expression that raises an error when it is evaluated; it has the given type."""
    error = clause.call(node, "raise_error", string_literal(message))
    return clause.call(node, "cast", error, type=type_)


def _is_range_type(type_: pa.DataType) -> bool:
    """Return whether an offset can be added: floats, and types whose codes are in value order."""
    is_number: bool = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    is_code: bool = pa.types.is_decimal(type_) and type_.precision <= 18
    return is_number or is_code or bool(pa.types.is_temporal(type_) and type_ != INTERVAL)


def _read_bound(
    clause: Clause,
    node: exp.Window,
    spec: exp.WindowSpec,
    name: str,
    mode: str,
    order: tuple[SortKey, ...],
) -> int | float | MonthShift | None:
    """Return a constant bound, negative before the current row; None if it is UNBOUNDED."""
    source = clause.source
    bound = spec.args.get(name)
    side = str(spec.args.get(f"{name}_side") or "").upper()
    if bound is None or bound == "CURRENT ROW":
        return 0
    if bound == "UNBOUNDED":
        required_side = "PRECEDING" if name == "start" else "FOLLOWING"
        if side != required_side:
            raise source.error(node, f"a frame cannot {name} with UNBOUNDED {side}")
        return None
    sign = -1 if side == "PRECEDING" else 1
    if mode == "range":
        offset = _range_offset(clause, node, bound, order)
        if isinstance(offset, MonthShift):
            return replace(offset, months=sign * offset.months, ticks=sign * offset.ticks)
        return sign * offset
    value = read_constant(clause, bound)
    number = value.value if isinstance(value, Literal) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise source.unsupported(
            bound, "this number of rows in a frame", "write a whole number that is not negative"
        )
    return sign * number


def _range_offset(
    clause: Clause, node: exp.Window, bound: exp.Expr, order: tuple[SortKey, ...]
) -> int | float | MonthShift:
    """Return the offset of a RANGE frame as a difference of codes of the order column."""
    source = clause.source
    if len(order) != 1:
        raise source.error(node, "RANGE with an offset needs an ORDER BY of one column")
    type_ = value_type(order[0].expression.type)
    if is_interval_sum(bound):
        return _interval_offset(clause, bound, type_)
    value = read_constant(clause, bound)
    number = value.value if isinstance(value, Literal) else None
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise source.unsupported(bound, "an offset that is not a constant", "write a number")
    if number < 0:
        raise source.error(bound, f"offset {number}: write a number that is not negative")
    if pa.types.is_floating(type_):
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(np.asarray(number, np.float64).astype(type_.to_pandas_dtype()))
        if source.is_spark and not is_finite:
            raise source.unsupported(bound, f"offset {number} over {type_}", "write UNBOUNDED")
        return float(number)
    if pa.types.is_date(type_):
        number = number * (86_400_000 if pa.types.is_date64(type_) else 1)
    elif pa.types.is_decimal(type_) and type_.precision <= 18:
        number = number * 10**type_.scale
    elif not pa.types.is_integer(type_):
        raise source.unsupported(
            bound, f"RANGE with an offset over {type_}", "order by a number, a date or a time"
        )
    if number != int(number):
        raise source.unsupported(
            bound, f"offset {number} over {type_}", "cast the ORDER BY to a double"
        )
    return int(number)


def _interval_offset(clause: Clause, bound: exp.Expr, type_: pa.DataType) -> int | MonthShift:
    source = clause.source
    months, days, micros = read_interval_sum(clause, bound)
    total = days * _DAY_MICROSECONDS + micros
    ticks_per_day = 1
    if pa.types.is_date32(type_):
        number, remainder = divmod(total, _DAY_MICROSECONDS)
    elif pa.types.is_timestamp(type_) and type_.unit == "ns":
        number, remainder = total * 1000, 0
        ticks_per_day = _DAY_MICROSECONDS * 1000
    elif pa.types.is_timestamp(type_):
        number, remainder = divmod(total, _MICROSECONDS[type_.unit])
        ticks_per_day = _DAY_MICROSECONDS // _MICROSECONDS[type_.unit]
    else:
        raise source.error(
            bound, f"an INTERVAL in a frame ordered by a value of type {type_}; write a number"
        )
    if remainder:
        raise source.unsupported(
            bound, f"an interval finer than {type_}", "cast the ORDER BY to TIMESTAMP"
        )
    if number < 0 or months < 0:
        raise source.error(bound, "an interval of a frame must not be negative")
    return MonthShift(months, number, ticks_per_day) if months else number
