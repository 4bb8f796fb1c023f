"""The errors of the circuit layer, below the one root of the engine.

::

    DbspWcojError
    └── CircuitError
        ├── SchemaError                a table does not fit the schema of its relation
        ├── UnknownInputError          a table for what is no input (UnknownRelationError)
        ├── UnknownViewError           a view that is not there, or not materialized (KeyError)
        ├── InputOptionsError          options that do not fit their input, or no watermark of it
        ├── UpsertError                a key changes twice in a step, and nothing orders that
        ├── MissingRowError            a strict input is to lose a row that is not there
        ├── SnapshotError              a snapshot of other views or of another format
        ├── FunctionError              no such function, or not for arguments of these types
        ├── IterationError             a recursion does not end within the iterations allowed
        ├── StepLimitError (LimitError)    a step uses more than its limits allow
        │   └── StepMemoryError (MemoryError)  ... or more memory than there is
        ├── EvaluationError            an expression has no value for a row: overflow, bad cast
        ├── TextError (ValueError)     a text that makes no circuit; has a line and a column
        │   ├── SqlError               ... in SQL
        │   │   └── UnsupportedSqlError    SQL that is right but not supported
        │   └── DatalogError           ... in Datalog: syntax, unsafe variable, negative cycle
        ├── StaleStepError             a prepared step is committed late or twice
        ├── BusyCircuitError           another thread makes a step, and is not waited for longer
        └── BrokenCircuitError         a commit failed half-way; the state cannot be trusted

Catch ``CircuitError`` for what this layer refuses, ``DbspWcojError`` for all.
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
]


class CircuitError(DbspWcojError):
    """Any error that the circuit layer raises on purpose."""


class SchemaError(CircuitError):
    """A table lacks a column or has one too many, or a type or a value that has no code."""


class UnknownInputError(CircuitError, UnknownRelationError):
    """A table is given for a relation that is not an input of the circuit."""


class UnknownViewError(CircuitError, KeyError):
    """A view that the circuit does not have, or does not keep whole."""

    __str__ = Exception.__str__  # KeyError would show its message in quotes


class InputOptionsError(CircuitError):
    """A rule does not fit its input: no such column, no such duration, no watermark of its type."""


class UpsertError(CircuitError):
    """A key changes several times in one step, and nothing says which change is the last."""


class MissingRowError(CircuitError):
    """A strict input is given a deletion of a row, or of a key, that is not there."""


class SnapshotError(CircuitError):
    """A snapshot is of other views or inputs, or of a format that is not known here."""


class FunctionError(CircuitError):
    """A function does not exist, or does not take arguments of these types or this number."""


class IterationError(CircuitError):
    """A recursion still changes after the largest number of iterations; the step is refused."""


class StepLimitError(CircuitError, LimitError):
    """A step, or a query, uses more rows, bytes or seconds than its limits allow.

    The state is as it was before the step.

    Args:
        message: The view, the operator, what was used and what is allowed, and how to fix it.
        view: The name of the view that the operator is part of.
        operator: The operator, as `Circuit.explain` shows it.
        limit: The name of the limit.
        allowed: Its value.
        reached: What was reached.
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

    def renamed(self, view: str | None, where: str = "") -> StepLimitError:
        """The same error of another view, as a part of a circuit that runs elsewhere has it."""
        message = str(self).removeprefix(f"view {self.view!r}: ")
        message = f"{where}{message}" if view is None else f"view {view!r}: {where}{message}"
        found = type(self)(message, view, self.operator, self.limit, self.allowed, self.reached)
        found.__cause__ = self.__cause__
        return found


class StepMemoryError(StepLimitError, MemoryError):
    """A step, or a query, needs more memory than there is; the state is as it was before."""


class EvaluationError(CircuitError):
    """An expression has no value for some row: a number overflows, a text is no date."""


class TextError(CircuitError, ValueError):
    """A text that does not make a circuit.

    Args:
        message: What was found, what is possible, and an excerpt with a caret.
        line: Line of the fault, from 1.
        column: Column of the fault, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class SqlError(TextError):
    """The text is no SQL, or names what is not there."""


class UnsupportedSqlError(SqlError):
    """The text is SQL of a kind that is not supported; never a wrong answer instead."""


class DatalogError(TextError):
    """The text is no Datalog program, or one that is unsafe or not stratified."""


class StaleStepError(CircuitError):
    """A prepared step is committed after another one, or for the second time."""


class BusyCircuitError(CircuitError):
    """Another thread is making a step and was waited for long enough, or this one is within one."""


class BrokenCircuitError(CircuitError):
    """A commit failed half-way, so the state is neither the old nor the new one."""
