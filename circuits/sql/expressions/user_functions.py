"""User-defined functions in SQL: calls by name, like those of built-in functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from circuits.errors import FunctionError, SqlError
from circuits.plan.expressions import Expression
from circuits.sql.binding.aggregate_names import AGGREGATE_NAMES
from circuits.sql.binding.clause import Clause, Reader, ReaderTable
from circuits.sql.syntax.source import SqlSource
from circuits.user_functions import UserFunction, call_user_function

__all__ = ["is_unused_name", "with_user_functions"]


def with_user_functions(
    readers: ReaderTable, functions: Mapping[str, UserFunction], dialect: str
) -> ReaderTable:
    """Return the readers with those of user-defined functions.

    Args:
        readers: The readers of the built-in functions.
        functions: The functions by lower-case name.
        dialect: The dialect of the text.

    Raises:
        FunctionError: A name is that of a built-in function, or a word of SQL.
    """
    if not functions:
        return readers
    is_spark = SqlSource("", dialect).is_spark
    built_in = {*readers.function_names(is_spark=is_spark), *AGGREGATE_NAMES}
    for name in functions:
        if name in built_in or not is_unused_name(name, dialect):
            raise FunctionError(
                f"user-defined function {name!r} has the name of a function or a word of SQL "
                f"in dialect {dialect!r}: choose another name"
            )
    user_readers = {name: _reader_of(name, function) for name, function in functions.items()}
    return replace(
        readers,
        by_name={**readers.by_name, **user_readers},
        spark_by_name={**readers.spark_by_name, **user_readers},
    )


def is_unused_name(name: str, dialect: str) -> bool:
    """Return whether the parser has no meaning of its own for a call of this name."""
    try:
        (tree,) = SqlSource(f"SELECT {name}(a)", dialect).parse()
    except SqlError:
        return False
    (call,) = tree.expressions
    return isinstance(call, exp.Anonymous) and call.name.lower() == name


def _reader_of(name: str, function: UserFunction) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if clause.parameters:  # those of the lambdas around the call
            raise clause.source.unsupported(
                node,
                f"user-defined function {name}() in a lambda",
                "let the function take the list, or unnest the list first",
            )
        arguments = [clause.read(part) for part in node.expressions]
        with clause.source.errors_at(node):
            return call_user_function(name, function, arguments)

    return read
