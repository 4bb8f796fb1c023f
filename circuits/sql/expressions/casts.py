"""CAST, TRY_CAST and ``::``, with the rules of DuckDB or, in dialect spark, of Spark 4.

Spark differs from DuckDB in these rules (`_apply_spark_rules`, `dialect_text`):

- A cast to an integer cuts off the fraction.
- A float is cast to a decimal by its shortest decimal text, so that 1.005 is 1.01 as a
  DECIMAL(5, 2). NaN and infinity are NULL as a decimal.
- A DOUBLE beyond the largest FLOAT is infinite as a FLOAT.
- A timestamp is a number of seconds since 1970, and the reverse.
- Texts of numbers, booleans, dates and timestamps have other notations
  (`circuits.types.functions.texts.spark_notation`).
- Floats, decimals, dates, timestamps, intervals and nested values are other texts
  (`circuits.types.functions.nested.nested_texts`).
- The fields of structs are cast by position.

PostgreSQL differs in these: a whole float has no fraction as a text, ``1`` and not ``1.0``, a
decimal has a digit before its point, and a cast to VARCHAR(n) or CHAR(n) keeps the first n
characters. A numeric is rounded half away from zero to an integer, also a quotient of numerics,
which is a float here (`postgres.numbers.is_numeric`).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import EvaluationError
from circuits.plan.expressions import Call, Column, Expression, Literal
from circuits.runtime.evaluation import evaluate
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.binding.enums import enum_of_text
from circuits.sql.binding.scope import FIRST_PARAMETER
from circuits.sql.expressions.json_functions.values import call_json, mark_json, value_as_json
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.postgres.numbers import is_numeric, unlimited_numeric
from circuits.sql.expressions.variants.casts import from_variant, to_variant
from circuits.sql.syntax.source import SqlSource
from circuits.sql.syntax.types import PADDED_TEXTS, arrow_type, interval_fields, json_kind_of_type
from circuits.types.arrow_types import VARIANT, field_order, is_nested, part_types
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.enum_type import EnumType
from circuits.types.functions.casting.interval_texts import INTERVAL_UNITS
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_binary, is_interval, is_number, is_text

__all__ = ["READERS", "cast_by_dialect", "cast_value", "dialect_text", "spark_cast"]


_TIMESTAMPS: Final = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ),
    exp.DType.TIMESTAMPNTZ,
)


def _read_cast(clause: Clause, node: exp.Cast) -> Expression:
    return cast_value(clause, node, clause.read(node.this))


def cast_value(clause: Clause, node: exp.Cast, value: Expression) -> Expression:
    """Cast a value; a lenient cast (TRY_CAST) returns NULL where another raises an error.

    In dialect spark, sqlglot parses CAST as a TryCast, too, and ``safe`` tells them apart.
    """
    source = clause.source
    is_lenient = isinstance(node, exp.TryCast)
    if is_lenient and source.is_spark:
        is_lenient = bool(node.args.get("safe"))
    # In Snowflake, TRY_CAST requires a text; here it takes other values, too.
    lenient_arguments = ("safe", "requires_string") if is_lenient else ()
    source.allow_arguments(node, "this", "to", *lenient_arguments)
    if source.is_spark and node.to.this in _TIMESTAMPS and node.to.expressions:
        digits = node.to.expressions[0].name  # others are in `circuits.sql.syntax.spark_syntax`
        raise source.unsupported(
            node, f"a timestamp with {digits} digits of a second", "write 0, 3, 6 or 9"
        )
    target = arrow_type(source, node.to)
    given = value
    if isinstance(target, EnumType):
        return _cast_to_enum(clause, node, value, target, lenient=is_lenient)
    if target == VARIANT:
        return to_variant(clause, node, value)
    if value.type == VARIANT:
        # As in Feldera, an impossible cast is NULL; in Spark and Snowflake, it is an error.
        is_lenient = is_lenient or not (source.is_spark or source.dialect == "snowflake")
        return from_variant(clause, node, value, target, cast_by_dialect, lenient=is_lenient)
    is_json = bool(json_kind_of_type(source, node.to)) and pa.types.is_string(target)
    if is_json and not (source.is_spark or is_text(value.type) or pa.types.is_null(value.type)):
        return value_as_json(clause, node, value, "to_json")
    if source.is_postgres and node.to.this == exp.DType.DECIMAL and not node.to.expressions:
        target = unlimited_numeric(value.type)
    if source.is_spark and is_nested(value.type) and is_nested(target):
        return spark_cast(clause, node, value, target, lenient=is_lenient)
    if source.is_spark and isinstance(node.to.this, exp.Interval):
        return _cast_to_spark_interval(clause, node, value, target, lenient=is_lenient)
    if source.is_spark:
        value = _apply_spark_rules(clause, node, value, target, is_lenient)
        if is_lenient and _is_invalid_spark_integer(value, target):
            return Literal(None, target)
    if is_lenient and not source.is_spark and _has_no_cast(value.type, target):
        return Literal(None, target)
    if not source.is_spark and pa.types.is_duration(value.type) and pa.types.is_string(target):
        value = clause.call(node, "cast", value, type=INTERVAL)
    if source.dialect == "duckdb" and is_nested(value.type) and pa.types.is_string(target):
        return clause.call(node, "nested_text", value)
    if source.is_postgres and is_list(value.type) and pa.types.is_string(target):
        return _limit_postgres_length(clause, node, clause.call(node, "postgres_list_text", value))
    if source.is_postgres and is_list(target) and is_text(value.type):
        levels = integer_literal(_levels_of(target))
        value = clause.call(node, "postgres_list", value, levels)
    if source.dialect == "duckdb" and not is_text(target) and is_text(value.type):
        kind = json_kind_of_type(source, node.to)
        if kind == "json" and is_list(target) and is_text(target.value_type):
            return mark_json(clause, call_json(clause, node, "json_elements", value), kind)
        if clause.json_kind(value):
            function = "try_cast_json" if is_lenient else "cast_json"
            return clause.call(node, function, value, Literal(None, target))
    if source.dialect == "duckdb" and is_nested(target) and is_text(value.type):
        is_fixed = pa.types.is_fixed_size_list(target)
        size = [integer_literal(target.list_size)] if is_fixed else []
        parts = clause.call(node, "nested_of_text", value, Literal(None, target), *size)
        value = clause.call(node, "try", parts) if is_lenient else parts
    if source.is_postgres and pa.types.is_string(target):
        value = dialect_text(clause, node, value)
    is_rounded = pa.types.is_floating(value.type) and pa.types.is_integer(target)
    if source.is_postgres and is_rounded and is_numeric(clause, node.this, value):
        value = clause.call(node, "round", value)
    if source.is_postgres and is_text(value.type) and pa.types.is_boolean(target):
        value = _postgres_boolean_text(clause, node, value)
    bytes_function = None if source.is_spark else _bytes_function(source, value.type, target)
    if bytes_function or (node.to.this == exp.DType.UUID and is_text(value.type)):
        cast = clause.call(node, bytes_function or "uuid_text", value)
        cast = clause.call(node, "try", cast) if is_lenient else cast
    else:
        cast = clause.call(node, "try_cast" if is_lenient else "cast", value, type=target)
    if not source.is_spark:
        cast = _with_json_kind(clause, node, value, cast, lenient=is_lenient)
    if source.is_postgres and pa.types.is_string(target):
        cast = _limit_postgres_length(clause, node, cast)
    type_in_text, fix = "JSON" if is_json else str(target), "correct it, or use TRY_CAST"
    if source.dialect == "duckdb" and is_nested(target):
        type_in_text = node.to.sql("duckdb")
    if pa.types.is_decimal(target) and isinstance(given, Literal) and is_text(given.type):
        is_number = str(given.value).strip().lstrip("+-").lower() in _NO_DECIMALS
        fix = "a decimal is a finite number; cast it to DOUBLE" if is_number else fix
    literal_error = source.error(node, f"{given} is not a valid {type_in_text}; {fix}")
    if source.is_spark and _is_invalid_spark_integer(value, target):
        raise literal_error
    if isinstance(given, Literal) and isinstance(cast, Call):
        # The cast of a literal is folded to a literal, unless its value has no Python equivalent
        # (a date in the year 20000) or its evaluation fails. The latter is an error now.
        try:
            evaluate(cast, (), 1)
        except EvaluationError:
            raise literal_error from None
    return cast


#: Texts of numbers that a float has and a decimal has not.
_NO_DECIMALS: Final = ("nan", "inf", "infinity")


def _with_json_kind(
    clause: Clause, node: exp.Cast, value: Expression, cast: Expression, *, lenient: bool
) -> Expression:
    """Return the result of a cast so that its texts are JSON if, and only if, its type is."""
    kind, value_kind = json_kind_of_type(clause.source, node.to), clause.json_kind(value)
    if not kind:
        if is_nested(cast.type):
            return mark_json(clause, cast, "")
        is_parameter = isinstance(value, Column) and value.index >= FIRST_PARAMETER
        is_unchanged = cast is value and (bool(value_kind) or is_parameter)
        return Call("cast", (value,), cast.type) if is_unchanged else cast
    if is_text(cast.type) and kind == "jsonb":
        return cast  # `circuits.sql.expressions.postgres.json` returns the normal form
    if is_text(value.type) and kind == "json" and not value_kind:
        cast = clause.call(node, "json_of_text", cast)
        cast = clause.call(node, "try", cast) if lenient else cast
    return mark_json(clause, cast, kind)


def _levels_of(data_type: pa.DataType) -> int:
    """Return how many lists are within each other in a type."""
    return 1 + _levels_of(data_type.value_type) if is_list(data_type) else 0


def _cast_to_enum(
    clause: Clause, node: exp.Cast, value: Expression, target: EnumType, *, lenient: bool
) -> Expression:
    if value.type != target and not (is_text(value.type) or pa.types.is_null(value.type)):
        value = clause.call(node, "cast", value, type=pa.string())
    is_constant = isinstance(value, Literal)
    if lenient and isinstance(value, Literal) and value.value not in (None, *target.labels):
        return Literal(None, target)
    label = enum_of_text(clause.source, node, value, target)
    return clause.call(node, "try", label) if lenient and not is_constant else label


def _cast_to_spark_interval(
    clause: Clause, node: exp.Cast, value: Expression, target: pa.DataType, *, lenient: bool
) -> Expression:
    """Return a text or a number of units as an interval with the fields of a type of Spark."""
    first, last = interval_fields(node.to.this)
    if value.type == target or pa.types.is_null(value.type):
        return clause.call(node, "cast", value, type=target)
    if is_text(value.type):
        fields = map(string_literal, (first, last))
        amount = clause.call(node, "parse_interval", value, *fields, Literal(lenient, pa.bool_()))
    elif pa.types.is_integer(value.type) and first == last:
        months, days, micros = INTERVAL_UNITS[first.lower()]
        size = months or days * 86_400_000_000 + micros
        amount = clause.call(node, "multiply", value, integer_literal(size))
    else:
        raise clause.source.unsupported(
            node,
            f"the cast of a {value.type} to an interval",
            "cast a text, or an integer of units",
        )
    if target != INTERVAL:
        return clause.call(node, "duration_of_micros", amount, integer_literal(1))
    return clause.call(node, "make_interval", amount, integer_literal(0), integer_literal(0))


def _limit_postgres_length(clause: Clause, node: exp.Cast, text: Expression) -> Expression:
    """Return the first characters of a text that is cast to VARCHAR(n), CHAR(n) or CHAR.

    Blanks at the end of a CHAR have no meaning in PostgreSQL, so they are left out.
    """
    kind, parameters = node.to.this, node.to.expressions
    if kind not in _SIZED_TEXTS:
        return text
    if parameters or kind in _SINGLE_CHARACTERS:
        size = int(parameters[0].name) if parameters else 1
        text = clause.call(node, "substring", text, integer_literal(1), integer_literal(size))
    if kind in PADDED_TEXTS:
        text = clause.call(node, "rtrim", text, string_literal(" "))
    return text


def _postgres_boolean_text(clause: Clause, node: exp.Expr, text: Expression) -> Expression:
    """Return a text to cast to BOOLEAN, in which ``on`` and ``off`` are words, too."""
    word = clause.call(node, "lower", clause.call(node, "trim", text))
    branches: list[Expression] = []
    for name, value in (("on", "true"), ("off", "false")):
        branches += [clause.call(node, "eq", word, string_literal(name)), string_literal(value)]
    return clause.call(node, "case", *branches, word)


def _bytes_function(source: SqlSource, given: pa.DataType, target: pa.DataType) -> str | None:
    """Return the function for a cast of text to bytes or back: DuckDB's have escapes."""
    if is_text(given) and is_binary(target):
        return "postgres_bytes" if source.is_postgres else "unescape_bytes"
    if is_binary(given) and is_text(target):
        return "postgres_bytes_text" if source.is_postgres else "escape_bytes"
    return None


def _has_no_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether DuckDB has no cast between the types, so that TRY_CAST is NULL."""
    families = {_family_of(source), _family_of(target)}
    return None not in families and len(families) == 2


def _family_of(type: pa.DataType) -> str | None:
    """Return the family of a type; None for other types. DuckDB has no casts between families."""
    if is_number(type) or pa.types.is_boolean(type):
        return "number"
    if pa.types.is_temporal(type) and not is_interval(type):
        return "time"
    return "nested" if is_nested(type) else None


def spark_cast(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType, *, lenient: bool = False
) -> Expression:
    """Return a value cast to a type by the rules of Spark; NULL for an invalid one if lenient."""
    if value.type == VARIANT != target:
        return from_variant(clause, node, value, target, cast_by_dialect, lenient=lenient)
    if is_nested(value.type) and is_nested(target):
        if _has_other_order(value.type, target):
            raise clause.source.unsupported(
                node,
                f"the cast of a {value.type} to {target}, which has the fields in another order",
                "write them in one order",
            )
        value = _apply_rules_to_parts(clause, node, value, target, lenient)
    else:
        value = _apply_spark_rules(clause, node, value, target, lenient)
    return clause.call(node, "try_cast" if lenient else "cast", value, type=target)


def _has_other_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether structs have the same names in another order; Spark casts by position."""
    if not (is_nested(source) and is_nested(target)):
        return False
    parts, targets = part_types(source), part_types(target)
    are_structs = pa.types.is_struct(source) and pa.types.is_struct(target)
    if are_structs and len(parts) == len(targets):
        numbers = list(range(len(parts)))
        return field_order(source, target) != numbers or any(map(_has_other_order, parts, targets))
    return any(map(_has_other_order, parts, targets))


def cast_by_dialect(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType, lenient: bool
) -> Expression:
    """Return a value cast to a type by the rules of the dialect."""
    if clause.source.is_spark:
        return spark_cast(clause, node, value, target, lenient=lenient)
    return clause.call(node, "try_cast" if lenient else "cast", value, type=target)


def _apply_rules_to_parts(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType, lenient: bool
) -> Expression:
    """Return a nested value whose parts are cast by the rules of Spark, if a rule concerns them.

    Raises:
        UnsupportedSqlError: A rule concerns the parts of a struct or map.
    """
    parts, targets = part_types(value.type), part_types(target)
    function = "try_cast" if lenient else "cast"
    for part_type, part_target in zip(parts, targets, strict=False):
        part = Column(FIRST_PARAMETER, part_type)
        with clause.source.errors_at(node):
            is_plain = part_type == part_target or spark_cast(
                clause, node, part, part_target, lenient=lenient
            ) == clause.call(node, function, part, type=part_target)
        if is_plain:
            continue
        if not (is_list(value.type) and is_list(target)):
            raise clause.source.unsupported(
                node, f"the cast of a {value.type} to {target}", "cast its parts"
            )
        body = spark_cast(clause, node, part, part_target, lenient=lenient)
        parameters = (FIRST_PARAMETER, FIRST_PARAMETER + 1)
        with clause.source.errors_at(node):
            return lambda_call("list_transform", value, body, parameters)
    return value


def _apply_spark_rules(
    clause: Clause, node: exp.Expr, value: Expression, target: pa.DataType, lenient: bool
) -> Expression:
    """Return the value to cast, so that the result is that of Spark."""
    is_fractional = pa.types.is_floating(value.type) or pa.types.is_decimal(value.type)
    if pa.types.is_integer(target) and is_fractional:
        is_long = pa.types.is_decimal(value.type) and value.type.precision > _LONG_DIGITS
        if is_long and not pa.types.is_int64(target):
            # Spark rounds such a decimal to a double: 0.99999999999999999999 is 1.
            value = clause.call(node, "cast", value, type=pa.float64())
        whole = clause.call(node, "trunc", value)
        if not (pa.types.is_floating(value.type) and pa.types.is_int64(target)):
            return whole
        # The largest BIGINT as a float is 2**63, which is one more. Spark casts it back.
        is_largest = clause.call(node, "eq", whole, Literal(2.0**63, whole.type))
        whole = clause.call(node, "try_cast" if lenient else "cast", whole, type=target)
        return clause.call(node, "case", is_largest, integer_literal(2**63 - 1), whole)
    if pa.types.is_decimal(target) and pa.types.is_floating(value.type):
        limit = Literal(float(f"1e{38 - target.scale}") if lenient else math.inf, pa.float64())
        is_in_range = clause.call(node, "lt", clause.call(node, "abs", value), limit)
        value = clause.call(node, "case", is_in_range, value, Literal(None, value.type))
        return clause.call(node, "shortest_decimal", value, integer_literal(target.scale))
    if pa.types.is_string(target):
        return dialect_text(clause, node, value)
    if pa.types.is_timestamp(value.type) and is_number(target):
        return _seconds_of(clause, node, value, target)
    if pa.types.is_timestamp(target) and target.tz is not None and is_number(value.type):
        moment = _timestamp_of_seconds(clause, node, value)
        return clause.call(node, "try", moment) if lenient else moment
    if is_text(value.type) and pa.types.is_date(target):
        return clause.call(node, "spark_date_text", value)
    if is_text(value.type) and pa.types.is_timestamp(target):
        return clause.call(node, "spark_timestamp_text", value)
    if is_text(value.type) and pa.types.is_integer(target):
        return clause.call(node, "spark_integer_text", value)
    if is_text(value.type) and pa.types.is_floating(target):
        return clause.call(node, "spark_float_text", value)
    if is_text(value.type) and pa.types.is_decimal(target):
        return clause.call(node, "spark_decimal_text", value)
    if is_text(value.type) and pa.types.is_boolean(target):
        return clause.call(node, "spark_boolean_text", value)
    if pa.types.is_float64(value.type) and pa.types.is_float32(target):
        return _without_overflow(clause, node, value)
    return value


def _without_overflow(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a DOUBLE to cast to a FLOAT, in which it is infinite beyond the largest FLOAT."""
    size = clause.call(node, "abs", value)
    limit = Literal(_FLOAT_OVERFLOW, pa.float64())
    infinite = clause.call(node, "multiply", value, Literal(math.inf, pa.float64()))
    is_beyond = clause.call(node, "ge", size, limit)
    return clause.call(node, "case", is_beyond, infinite, value)


def _seconds_of(
    clause: Clause, node: exp.Expr, moment: Expression, target: pa.DataType
) -> Expression:
    """Return the seconds since 1970, whole ones for an integer."""
    if pa.types.is_integer(target):
        return clause.call(node, "epoch_second", moment)
    micros = clause.call(node, "epoch_microsecond", moment)
    if pa.types.is_floating(target):
        return clause.call(node, "divide", micros, integer_literal(1_000_000))
    return clause.call(node, "divide_ansi", micros, Literal(Decimal(1_000_000), pa.decimal128(7)))


def _timestamp_of_seconds(clause: Clause, node: exp.Expr, seconds: Expression) -> Expression:
    """Return the moment of a number of seconds since 1970."""
    if pa.types.is_decimal(seconds.type):
        # The most digits before the point, so that the product fits.
        seconds = clause.call(node, "round_to_zero", seconds, integer_literal(6))
        target = pa.decimal128(38, min(seconds.type.scale, 6))
        seconds = clause.call(node, "cast", seconds, type=target)
    micros = clause.call(node, "multiply", seconds, integer_literal(1_000_000))
    if not pa.types.is_integer(micros.type):
        micros = clause.call(node, "cast", clause.call(node, "trunc", micros), type=pa.int64())
    return clause.call(node, "timestamp_of_micros", micros)


def _is_invalid_spark_integer(value: Expression, target: pa.DataType) -> bool:
    """Return whether Spark refuses to cast a string literal to an integer: ``'1.5'``, ``'1e3'``."""
    text = value.value if isinstance(value, Literal) else None
    if not isinstance(text, str) or not pa.types.is_integer(target):
        return False
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is None


def dialect_text(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a value in a form whose cast to text is that of the dialect.

    A float is ``1.0E10`` in Spark, ``10000000000`` in PostgreSQL, and ``10000000000.0`` in DuckDB.
    Bytes are hexadecimal digits after ``\\x`` in PostgreSQL. A DECIMAL(2, 2) is ``.05`` in DuckDB
    only, and ``0.05`` in the others. The day after 9999-12-31 is ``+10000-01-01`` in Spark.
    """
    if clause.source.is_postgres and pa.types.is_floating(value.type):
        return clause.call(node, "postgres_float", value)
    if clause.source.is_postgres and is_binary(value.type):
        return clause.call(node, "postgres_bytes_text", value)
    is_fraction = pa.types.is_decimal(value.type) and value.type.scale == value.type.precision
    if is_fraction and (clause.source.is_spark or clause.source.is_postgres):
        return clause.call(node, "spark_text", value)
    if not clause.source.is_spark:
        return value
    if pa.types.is_floating(value.type):
        return clause.call(node, "java_float", value)
    is_day = pa.types.is_date(value.type) or pa.types.is_timestamp(value.type)
    if is_day or is_nested(value.type):
        return clause.call(node, "spark_text", value)
    if is_interval(value.type):
        units = _units_in_text(clause, node, value)
        return clause.call(node, "interval_text", value, *map(string_literal, units))
    return value


def _units_in_text(clause: Clause, node: exp.Expr, value: Expression) -> tuple[str, str]:
    """Return the first and the last unit in the text of an interval, such as DAY and SECOND.

    In Spark they are a part of the type. Here they are known for a literal and for a computed
    interval, not for a column.
    """
    literals = [
        part for part in node.find_all(exp.Interval) if not isinstance(part.parent, exp.DataType)
    ]
    intervals = [part for part in literals if clause.read(part) == value]
    if isinstance(value, Literal) and intervals:
        unit = intervals[0].args.get("unit")
        names = re.findall(r"[A-Za-z]+", intervals[0].this.name)  # of '3 days 2 hours'
        if isinstance(unit, exp.IntervalSpan):
            names = [unit.this.name, unit.expression.name]
        elif unit is not None:
            names = [unit.name]
        units = [_TEXT_UNITS[name.lower().removesuffix("s")] for name in names]
        return min(units, key=_UNITS_IN_ORDER.index), max(units, key=_UNITS_IN_ORDER.index)
    months = _month_fields(node.this) if value.type == INTERVAL else None
    if months is not None:
        return months
    if isinstance(value, Literal):  # computed from constants
        sides = [
            (clause.read(part.left), clause.read(part.right)) for part in node.find_all(exp.Sub)
        ]
        is_days = any(all(pa.types.is_date(side.type) for side in pair) for pair in sides)
        return ("DAY", "DAY") if is_days else ("DAY", "SECOND")
    if isinstance(value, Call) and value.function in _INTERVAL_FUNCTIONS:
        is_days = value.function == "subtract" and any(map(_is_cast_of_date, value.arguments))
        return ("DAY", "DAY") if is_days else ("DAY", "SECOND")
    raise clause.source.unsupported(
        node,
        "the text of an interval whose units are not known",
        "format its parts, which extract() returns",
    )


def _month_fields(node: exp.Expr) -> tuple[str, str] | None:
    """Return the first and last field in the type of an interval of months; None if not known."""
    match node:
        case exp.Paren() | exp.Neg():
            return _month_fields(node.this)
        case exp.Cast() if isinstance(node.to.this, exp.Interval):
            return interval_fields(node.to.this)
        case exp.Interval(args={"unit": exp.Var() as unit}):
            name = _TEXT_UNITS.get(unit.name.lower().removesuffix("s"), "")
            return name, name
        case exp.Add() | exp.Sub():
            sides = [_month_fields(side) for side in (node.left, node.right)]
            fields = [field for side in sides if side for field in side]
            if None in sides or not fields:
                return None
            return min(fields, key=_UNITS_IN_ORDER.index), max(fields, key=_UNITS_IN_ORDER.index)
        case exp.Mul() | exp.Div():
            return "YEAR", "MONTH"
        case exp.Anonymous() if node.name.lower() == "make_ym_interval":
            return "YEAR", "MONTH"
    return None


def _is_cast_of_date(value: Expression) -> bool:
    return (
        isinstance(value, Call)
        and value.function == "cast"
        and bool(pa.types.is_date(value.arguments[0].type))
    )


#: The digits of a decimal that Spark stores as an integer of 64 bits.
_LONG_DIGITS: Final = 18
#: The least float64 that is rounded to an infinite float32.
_FLOAT_OVERFLOW: Final = 2.0**128 - 2.0**103

#: Types of texts with a length; CHAR alone is CHAR(1).
_SINGLE_CHARACTERS: Final = frozenset({exp.DType.CHAR, exp.DType.NCHAR})
_SIZED_TEXTS: Final = PADDED_TEXTS | {exp.DType.VARCHAR, exp.DType.NVARCHAR}

_UNITS_IN_ORDER: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_TEXT_UNITS: Final = {
    "year": "YEAR",
    "month": "MONTH",
    **dict.fromkeys(("day", "week"), "DAY"),
    "hour": "HOUR",
    "minute": "MINUTE",
    **dict.fromkeys(("second", "millisecond", "microsecond"), "SECOND"),
}
#: Functions whose result is an interval of days to seconds.
_INTERVAL_FUNCTIONS: Final = (
    *("subtract", "duration_of_micros", "multiply_interval", "divide_interval"),
)


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.Cast: _read_cast, exp.TryCast: _read_cast}
