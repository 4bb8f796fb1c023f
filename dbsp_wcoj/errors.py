"""The errors of the relational core.

Every message shows three things: the value, the limit that it breaks, and how to fix it. Catch
``DbspWcojError`` for all of them, or the one that you can handle.

::

    DbspWcojError
    ├── QuerySyntaxError (ValueError)         text that is not a query; has a line and a column
    ├── UnsafeVariableError                   a variable that no atom binds
    ├── UnknownRelationError                  a relation name that the query does not use
    ├── ArgumentTypeError (TypeError)         an argument of the wrong Python type
    ├── ArityError                            too many or too few columns, terms or views
    ├── WeightError                           weights of the wrong type or number
    ├── WeightOverflowError (ArithmeticError) a weight outside int64
    ├── ColumnTypeError                       values that a column cannot hold or order
    ├── LimitError                            a step that uses more than its limits allow
    ├── FormulaError                          a delta formula that does not exist or is not exact
    └── VariableOrderError                    an order that does not permute the variables

``UnknownRelationError`` is deliberately not a ``KeyError``: a ``KeyError`` prints its message in
quotes, and an ``except KeyError`` around a step would hide it.

All of them can be pickled, because Spark sends them from executors to the driver.
"""

from __future__ import annotations

__all__ = [
    "ArgumentTypeError",
    "ArityError",
    "ColumnTypeError",
    "DbspWcojError",
    "FormulaError",
    "LimitError",
    "QuerySyntaxError",
    "UnknownRelationError",
    "UnsafeVariableError",
    "VariableOrderError",
    "WeightError",
    "WeightOverflowError",
]


class DbspWcojError(Exception):
    """Any error that this package raises on purpose."""


class QuerySyntaxError(DbspWcojError, ValueError):
    """The text is not a query.

    Args:
        message: What was found, what was expected, and an excerpt with a caret.
        line: Line of the fault, from 1.
        column: Column of the fault, from 1.

    >>> error = QuerySyntaxError("expected ')'", line=1, column=7)
    >>> error.line, error.column
    (1, 7)
    """

    def __init__(self, message: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class UnsafeVariableError(DbspWcojError):
    """A variable is used in the head or in a comparison, and no atom of the body binds it."""


class UnknownRelationError(DbspWcojError):
    """A relation name is unknown."""


class ArgumentTypeError(DbspWcojError, TypeError):
    """An argument has the wrong Python type."""


class ArityError(DbspWcojError):
    """A row, an atom or a list has another length than its relation or query."""


class WeightError(DbspWcojError):
    """Weights are not integers, or there is not exactly one for each row."""


class WeightOverflowError(DbspWcojError, ArithmeticError):
    """A weight does not fit in int64; weights never wrap around."""


class ColumnTypeError(DbspWcojError):
    """A column holds values of a type that cannot be stored or ordered there."""


class LimitError(DbspWcojError):
    """A computation exceeds a limit of rows, bytes or seconds; or a limit is not valid.

    Args:
        message: The amount used, and the amount allowed.
        limit: The name of the limit, as in `dbsp_wcoj.limits.StepLimits`.
        allowed: The value of the limit.
        reached: The amount that exceeded it.

    >>> error = LimitError("11 rows", "max_step_rows", 10, 11)
    >>> str(error), error.limit, error.allowed, error.reached
    ('11 rows', 'max_step_rows', 10, 11)
    """

    def __init__(
        self,
        message: str,
        limit: str = "",
        allowed: float | None = None,
        reached: float | None = None,
    ) -> None:
        super().__init__(message, limit, allowed, reached)
        self.limit = limit
        self.allowed = allowed
        self.reached = reached

    def __str__(self) -> str:
        return str(self.args[0])


class FormulaError(DbspWcojError):
    """A delta formula is unknown, not exact, or does not fit the number of atoms."""


class VariableOrderError(DbspWcojError):
    """A variable order is not a permutation of the query's variables."""
