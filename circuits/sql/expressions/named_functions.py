"""Functions by their names in a dialect: two tables, from a name to the function that it means.

A name has one entry in a dialect (`merge_tables`); `COMMON` has those that mean the same in both.

A name that is in a table (``READERS_BY_NAME`` of `circuits.sql.expressions.spark_functions` and of
`circuits.sql.expressions.duckdb_functions`) is parsed as a call with the arguments as written, even
if sqlglot has a class for it. So one table says what each name means in Spark, and one what it
means in DuckDB and in all other dialects.

An entry is a *builder*: a function of a clause, a call and its arguments, which are read already,
that returns the expression of the call. `call_of` makes most of them: it adds constants for missing
arguments, and in Spark casts the arguments as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.casts import dialect_text, spark_cast
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.functions import signature_of

__all__ = [
    "COMMON",
    "Arguments",
    "Builder",
    "as_instant",
    "as_readers",
    "as_text",
    "call_of",
    "check_count",
    "coerce",
    "constant",
    "count_error",
    "literal_text",
    "merge_tables",
]

Key = TypeVar("Key")
Value = TypeVar("Value")

Arguments = list[Expression]
Builder = Callable[[Clause, exp.Anonymous, Arguments], Expression]


def merge_tables(*tables: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return the entries of all tables.

    Raises:
        ValueError: Two tables have an entry of the same name.
    """
    merged: dict[Key, Value] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two readers of {duplicates}; keep one")
        merged.update(table)
    return merged


def as_readers(spark: bool, table: Mapping[str, Builder]) -> dict[str, Reader]:
    """Return the readers of the functions of a table, whose calls are then parsed by name."""
    parse_by_name(table, is_spark_dialect=spark)
    return {name: _as_reader(builder) for name, builder in table.items()}


def _as_reader(builder: Builder) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        return builder(clause, node, [clause.read(part) for part in node.expressions])

    return read


def call_of(
    function: str,
    *,
    defaults: Sequence[Expression] = (),
    kinds: str = "",
    least: int = 0,
) -> Builder:
    """Return the builder of a call of a function.

    Args:
        function: The name in the function table.
        defaults: The values of the last parameters, used for those without an argument.
        kinds: The kinds of the arguments for Spark's implicit casts, as for `coerce`; by default
            those of the function's signature.
        least: The least number of arguments as written.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) < least:
            raise count_error(clause, node, f"{least} or more")
        signature = signature_of(function)
        most = len(kinds) if kinds else signature.max_arguments if signature else None
        if defaults and most is not None and len(arguments) < most:
            missing = most - len(arguments)
            arguments = [*arguments, *defaults[max(0, len(defaults) - missing) :]]
        if clause.source.is_spark:
            argument_kinds = kinds or (signature.letters(len(arguments)) if signature else "")
            arguments = coerce(clause, node, arguments, argument_kinds)
        return clause.call(node, function, *arguments)

    return build


def count_error(clause: Clause, node: exp.Expr, expected: str) -> Exception:
    """Return the error for a wrong number of arguments."""
    count = len(node.expressions)
    name = clause.source.name_in_text(node)
    return clause.source.error(node, f"{name}() takes {expected} arguments, not {count}")


def coerce(clause: Clause, node: exp.Expr, arguments: Arguments, kinds: str) -> Arguments:
    """Return the arguments with the implicit casts of Spark.

    Args:
        clause: The clause of the call.
        node: The call, for errors.
        arguments: The arguments.
        kinds: A letter for each argument: ``t`` text, ``y`` text or bytes, ``i`` integer, ``f`` and
            ``n`` number, ``d`` date, ``m`` timestamp, ``b`` boolean
            (`circuits.types.functions.signatures`). Further arguments are not cast.
    """
    coerced = [
        _coerce_one(clause, node, argument, kind)
        for argument, kind in zip(arguments, kinds, strict=False)
    ]
    return [*coerced, *arguments[len(coerced) :]]


def _coerce_one(clause: Clause, node: exp.Expr, value: Expression, kind: str) -> Expression:
    """Return a value cast to a kind, which is one of the letters of `coerce`."""
    data_type = value.type
    if arrow.is_null(data_type):
        return value
    is_text = arrow.is_string(data_type) or arrow.is_large_string(data_type)
    target: pa.DataType | None = None
    match kind:
        case "t" if not is_text:
            return as_text(clause, node, value)
        case "y" if not is_text and not arrow.is_binary(data_type):
            return as_text(clause, node, value)
        case "i" if is_text:
            target = pa.int64()
        case "i" if arrow.is_floating(data_type) or arrow.is_decimal(data_type):
            value, target = clause.call(node, "trunc", value), pa.int64()
        case "f" | "n" if is_text:
            target = pa.float64()
        case "d" if is_text or arrow.is_timestamp(data_type):
            target = pa.date32()
        case "m" if is_text:
            target = pa.timestamp("us")
        case "b" if is_text:
            target = pa.bool_()
        case _:
            pass
    return value if target is None else spark_cast(clause, node, value, target)


def as_text(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a value as text, in the format of the dialect."""
    value = dialect_text(clause, node, value)
    return clause.call(node, "cast", value, type=pa.string())


def as_instant(builder: Builder) -> Builder:
    """Return a builder whose result is a TIMESTAMP of Spark: a moment with the zone UTC."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        value = builder(clause, node, arguments)
        return clause.call(node, "cast", value, type=pa.timestamp("us", "UTC"))

    return build


def constant(value: Expression) -> Builder:
    """Return the builder of a call without arguments that is a constant."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if arguments:
            raise count_error(clause, node, "0")
        return value

    return build


def check_count(count: int | tuple[int, int], function: Callable[..., Expression]) -> Builder:
    """Return a builder that checks the number of arguments and unpacks them.

    Args:
        count: The number of arguments, or the least and the greatest.
        function: A function of a clause, a call, and each argument as a parameter of its own.
    """
    least, most = count if isinstance(count, tuple) else (count, count)

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not least <= len(arguments) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            raise count_error(clause, node, expected)
        return function(clause, node, *arguments)

    return build


def literal_text(clause: Clause, node: exp.Expr, value: Expression, description: str) -> str:
    """Return the value of a literal text."""
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise clause.source.unsupported(
            node, f"{description} that is not a literal", "write a literal"
        )
    return value.value


def _nvl2(
    clause: Clause, node: exp.Expr, test: Expression, then: Expression, other: Expression
) -> Expression:
    return clause.call(node, "case", clause.call(node, "is_null", test), other, then)


def _zero_if_null(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "coalesce", value, Literal(0, pa.int32()))


def _null_if_zero(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "nullif", value, integer_literal(0))


def _is_not_null(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    return clause.call(node, "not", clause.call(node, "is_null", value))


def _choose(
    clause: Clause, node: exp.Expr, test: Expression, then: Expression, other: Expression
) -> Expression:
    if arrow.is_null(test.type):
        test = Literal(None, pa.bool_())
    return clause.call(node, "case", test, then, other)


COMMON: Final[dict[str, Builder]] = {
    "translate": call_of("translate"),
    "octet_length": call_of("octet_length"),
    "bit_length": call_of("bit_length"),
    "regexp_like": call_of("regexp_matches", kinds="tt"),
    "base64": call_of("base64"),
    "md5": call_of("md5"),
    "sha1": call_of("sha1"),
    **{
        name: call_of(name)
        for name in (
            "sin",
            "cos",
            "tan",
            "cot",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "degrees",
            "radians",
            "cbrt",
            "soundex",
        )
    },
    "pi": constant(Literal(3.141592653589793, pa.float64())),
    "nvl2": check_count(3, _nvl2),
    "isnull": call_of("is_null"),
    "isnotnull": check_count(1, _is_not_null),
    "zeroifnull": check_count(1, _zero_if_null),
    "nullifzero": check_count(1, _null_if_zero),
    "equal_null": call_of("same"),
    "iff": check_count(3, _choose),
    "last_day": call_of("last_day"),
    "gcd": call_of("gcd"),
    "lcm": call_of("lcm"),
}
