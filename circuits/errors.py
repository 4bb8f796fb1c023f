"""The errors of the circuit layer, below the one root of the engine.

::

    DbspWcojError
    └── CircuitError
        ├── SchemaError                a table does not fit the schema of its relation
        ├── UnknownInputError          a table for an unknown input (UnknownRelationError)
        ├── UnknownViewError           a view that does not exist or is not materialized (KeyError)
        ├── InputOptionsError          options, or a watermark, that do not fit their input
        ├── UpsertError                a key has several changes in a step, in an unknown order
        ├── MissingRowError            a strict input gets a deletion of a row that does not exist
        ├── SnapshotError              a snapshot of other views or of another format
        ├── ProgramChangeError         the state of a program cannot become that of another one
        ├── FunctionError              an unknown function, or arguments of the wrong types
        ├── IterationError             a recursion has not converged within max_iterations
        ├── StepLimitError (LimitError)    a step exceeds its limits
        │   └── StepMemoryError (MemoryError)  a step runs out of memory
        ├── EvaluationError            an expression fails for a row: overflow, bad cast
        │   └── UserFunctionError      a user-defined function fails for a row
        ├── TextError (ValueError)     a text that does not compile; has a line and a column
        │   ├── SqlError               ... in SQL
        │   │   └── UnsupportedSqlError    valid SQL that is not supported
        │   └── DatalogError           ... in Datalog: syntax, unsafe variable, negative cycle
        ├── StaleStepError             a prepared step is committed late or twice
        ├── BusyCircuitError           another thread makes a step, and the timeout is over
        └── BrokenCircuitError         a commit failed half-way; the state is unusable

Catch ``CircuitError`` for all errors of this layer, ``DbspWcojError`` for those of all layers.
"""

from __future__ import annotations

from dbsp_wcoj.errors import DbspWcojError, LimitError, UnknownRelationError

__all__ = [
    "BrokenCircuitError",
    "BusyCircuitError",
    "CircuitError",
    "DatalogError",
    "EvaluationError",
    "FunctionError",
    "InputOptionsError",
    "IterationError",
    "MissingRowError",
    "ProgramChangeError",
    "SchemaError",
    "SnapshotError",
    "SqlError",
    "StaleStepError",
    "StepLimitError",
    "StepMemoryError",
    "TextError",
    "UnknownInputError",
    "UnknownViewError",
    "UnsupportedSqlError",
    "UpsertError",
    "UserFunctionError",
]


class CircuitError(DbspWcojError):
    """The base class of all errors of the circuit layer."""


class SchemaError(CircuitError):
    """A table lacks a column or has a surplus one, or a type or value is not supported."""


class UnknownInputError(CircuitError, UnknownRelationError):
    """A step has a table for a relation that is not an input of the circuit."""


class UnknownViewError(CircuitError, KeyError):
    """A view that the circuit does not have, or does not materialize."""

    __str__ = Exception.__str__  # KeyError would show its message in quotes


class InputOptionsError(CircuitError):
    """An option does not fit its input: an unknown column, or a duration or watermark of a wrong
    type.
    """


class UpsertError(CircuitError):
    """A key has several different changes in one step, and it is unknown which is the last."""


class MissingRowError(CircuitError):
    """A strict input gets a deletion of a row, or of a key, that does not exist."""


class SnapshotError(CircuitError):
    """A snapshot is of other views or inputs, or has an unknown format."""


class ProgramChangeError(CircuitError):
    """The state of a program cannot become the state of another one."""


class FunctionError(CircuitError):
    """A function is unknown, or does not accept these types or this number of arguments."""


class IterationError(CircuitError):
    """A recursion has not converged after the limit of iterations; nothing was changed."""


class StepLimitError(CircuitError, LimitError):
    """A step, or a query, uses more rows, bytes or seconds than its limits allow.

    The state is as it was before the step.

    Args:
        message: The view, the operator, the value, the limit and how to fix it.
        view: The name of the view that the operator is part of.
        operator: The operator, as `Circuit.explain` shows it.
        limit: The name of the limit.
        allowed: The value of the limit.
        reached: The value that the step reached.
    """

    def __init__(
        self,
        message: str,
        view: str | None = None,
        operator: str | None = None,
        limit: str = "",
        allowed: float | None = None,
        reached: float | None = None,
    ) -> None:
        super().__init__(message, limit, allowed, reached)
        self.args = (message, view, operator, limit, allowed, reached)
        self.view = view
        self.operator = operator

    def with_view(self, view: str | None, where: str = "") -> StepLimitError:
        """Return the same error with the name of another view.

        A cell of a distributed view reports the name of the part that it computes; the user knows
        the name of the view.

        Args:
            view: The name of the view; None for none.
            where: A text after the name, such as the cell.
        """
        message = str(self).removeprefix(f"view {self.view!r}: ")
        message = f"{where}{message}" if view is None else f"view {view!r}: {where}{message}"
        error = type(self)(message, view, self.operator, self.limit, self.allowed, self.reached)
        error.__cause__ = self.__cause__
        for note in getattr(self, "__notes__", ()):
            error.add_note(note)
        return error


class StepMemoryError(StepLimitError, MemoryError):
    """A step, or a query, runs out of memory; the state is as it was before."""


class EvaluationError(CircuitError):
    """An expression cannot be evaluated for a row: a number overflows, a text is not a date."""


class UserFunctionError(EvaluationError):
    """A user-defined function raises an error, or returns a value that is not of its type."""


class TextError(CircuitError, ValueError):
    """A text that does not compile to a circuit.

    Args:
        message: The fault, the alternatives, and an excerpt with a caret.
        line: The line of the fault, from 1.
        column: The column of the fault, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class SqlError(TextError):
    """The text is not valid SQL, or names an unknown relation, column or function."""


class UnsupportedSqlError(SqlError):
    """The text uses unsupported SQL; the engine raises this rather than give a wrong answer."""


class DatalogError(TextError):
    """The text is not a Datalog program, or the program is unsafe or not stratified."""


class StaleStepError(CircuitError):
    """A prepared step is stale: it or another one was committed since, or it was abandoned."""


class BusyCircuitError(CircuitError):
    """Another thread is still in a step after the timeout, or this thread is already in one."""


class BrokenCircuitError(CircuitError):
    """A commit failed half-way, so the state is neither the old nor the new one."""
