"""Functions by their names in a dialect: two tables, from a name to the function that it means.

A name has one entry in a dialect (`merge_tables`); `COMMON` has those that mean the same in both.

A name that is in a table (``READERS_BY_NAME`` of `circuits.sql.expressions.spark_functions` and of
`circuits.sql.expressions.duckdb_functions`) is parsed as a call with the arguments as written,
whatever sqlglot would make of it, so one table says what each name means in Spark and one in DuckDB
(and in all other dialects). An entry is a reader of the call. ``named`` makes most of them: it
gives the order of the arguments, constants in place of those that are missing, and in Spark the
implicit casts that Spark's functions make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.casts import spark_cast, spark_text
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.syntax.parsing import NAMED_FUNCTIONS
from circuits.types.functions import signature_of

__all__ = [
    "COMMON",
    "Arguments",
    "Builder",
    "as_instant",
    "as_readers",
    "as_text",
    "coerce",
    "constant",
    "count_error",
    "fixed",
    "literal_text",
    "merge_tables",
    "named",
]

Key = TypeVar("Key")
Value = TypeVar("Value")

Arguments = list[Expression]
Builder = Callable[[Clause, exp.Anonymous, Arguments], Expression]


def merge_tables(*tables: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return the entries of all tables.

    Raises:
        ValueError: Two tables have an entry of one name: it would be unclear which one is used.
    """
    merged: dict[Key, Value] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two readers of {duplicates}; keep one")
        merged.update(table)
    return merged


def as_readers(spark: bool, table: Mapping[str, Builder]) -> dict[str, Reader]:
    """Return the readers of calls, and add their names to those that the parser keeps as names."""
    NAMED_FUNCTIONS[spark].update(table)
    return {name: _as_reader(builder) for name, builder in table.items()}


def _as_reader(builder: Builder) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        return builder(clause, node, [clause.read(part) for part in node.expressions])

    return read


def named(
    function: str,
    order: Sequence[int] | None = None,
    *,
    defaults: Sequence[Expression] = (),
    kinds: str = "",
    least: int = 0,
    result: pa.DataType | None = None,
) -> Builder:
    """Return a reader that calls a function.

    Args:
        function: The name in the function table.
        order: The positions of the arguments in the call, in the order of the function.
        defaults: Values for missing arguments at the end.
        kinds: Kinds of the arguments for Spark's implicit casts (`circuits.types.functions.
            signatures`), in the order of the function; by default those of its signature.
        least: The least number of arguments as written.
        result: A type to which the result is cast.
    """

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) < least:
            raise count_error(clause, node, f"{least} or more")
        if order is not None:
            if len(arguments) > len(order):
                raise count_error(clause, node, f"up to {len(order)}")
            present = [index for index in order if index < len(arguments)]
            arguments = [arguments[index] for index in present]
        signature = signature_of(function)
        wanted = len(kinds) if kinds else signature.max_arguments if signature else None
        if defaults and wanted is not None and len(arguments) < wanted:
            missing = wanted - len(arguments)
            arguments = [*arguments, *defaults[max(0, len(defaults) - missing) :]]
        if clause.source.is_spark:
            letters = kinds or (signature.letters(len(arguments)) if signature else "")
            arguments = coerce(clause, node, arguments, letters)
        value = clause.call(node, function, *arguments)
        if result is not None and value.type != result:
            value = clause.call(node, "cast", value, type=result)
        return value

    return build


def count_error(clause: Clause, node: exp.Expr, expected: str) -> Exception:
    """Return the error for a wrong number of arguments."""
    count = len(node.expressions)
    name = clause.source.name_in_text(node)
    return clause.source.error(node, f"{name}() takes {expected} arguments, not {count}")


def coerce(clause: Clause, node: exp.Expr, arguments: Arguments, kinds: str) -> Arguments:
    """Return the arguments with the implicit casts of Spark to these kinds."""
    coerced = [
        _coerce_one(clause, node, argument, kind)
        for argument, kind in zip(arguments, kinds, strict=False)
    ]
    return [*coerced, *arguments[len(coerced) :]]


def _coerce_one(clause: Clause, node: exp.Expr, value: Expression, kind: str) -> Expression:
    """Return a value cast to a kind, a letter of `circuits.types.functions.signatures`."""
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
    value = spark_text(clause, node, value)
    return clause.call(node, "cast", value, type=pa.string())


def as_instant(builder: Builder) -> Builder:
    """Return a reader whose result is a TIMESTAMP of Spark: a moment with the zone UTC."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        value = builder(clause, node, arguments)
        return clause.call(node, "cast", value, type=pa.timestamp("us", "UTC"))

    return build


def constant(value: Expression) -> Builder:
    """Return a reader of a call without arguments that is a constant."""

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if arguments:
            raise count_error(clause, node, "0")
        return value

    return build


def fixed(count: int | tuple[int, int], function: Callable[..., Expression]) -> Builder:
    """Return a reader that calls ``function(clause, node, *arguments)`` after counting them."""
    least, most = count if isinstance(count, tuple) else (count, count)

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if not least <= len(arguments) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            raise count_error(clause, node, expected)
        return function(clause, node, *arguments)

    return build


def literal_text(clause: Clause, node: exp.Expr, value: Expression, what: str) -> str:
    """Return the value of a literal text."""
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise clause.source.unsupported(node, f"{what} that is not a literal", "write a literal")
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


def _condition(
    clause: Clause, node: exp.Expr, test: Expression, then: Expression, other: Expression
) -> Expression:
    if arrow.is_null(test.type):
        test = Literal(None, pa.bool_())
    return clause.call(node, "case", test, then, other)


COMMON: Final[dict[str, Builder]] = {
    "translate": named("translate"),
    "octet_length": named("octet_length"),
    "bit_length": named("bit_length"),
    "regexp_like": named("regexp_matches", kinds="tt"),
    "base64": named("base64"),
    "md5": named("md5"),
    "sha1": named("sha1"),
    **{
        name: named(name)
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
            "atan2",
            "factorial",
            "soundex",
        )
    },
    "pi": constant(Literal(3.141592653589793, pa.float64())),
    "nvl2": fixed(3, _nvl2),
    "isnull": named("is_null"),
    "isnotnull": fixed(1, _is_not_null),
    "zeroifnull": fixed(1, _zero_if_null),
    "nullifzero": fixed(1, _null_if_zero),
    "equal_null": named("same"),
    "iff": fixed(3, _condition),
    "last_day": named("last_day"),
    "gcd": named("gcd"),
    "lcm": named("lcm"),
}
