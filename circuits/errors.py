"""The errors of the circuit layer, below the one root of the engine.

::

    DbspWcojError
    └── CircuitError
        ├── RuleError                  the rules do not make a circuit
        ├── SchemaError                a table does not fit the schema of its relation
        ├── UnknownInputError          a table for what is no input (UnknownRelationError)
        ├── StaleStepError             a prepared step is committed late or twice
        └── BrokenCircuitError         a commit failed half-way; the state cannot be trusted

Catch ``CircuitError`` for what this layer refuses, ``DbspWcojError`` for all.
"""

from __future__ import annotations

from dbsp_wcoj.errors import DbspWcojError, UnknownRelationError

__all__ = [
    "BrokenCircuitError",
    "CircuitError",
    "RuleError",
    "SchemaError",
    "StaleStepError",
    "UnknownInputError",
]


class CircuitError(DbspWcojError):
    """Any error that the circuit layer raises on purpose."""


class RuleError(CircuitError):
    """The rules are recursive, disagree on a head, or name what is not there."""


class SchemaError(CircuitError):
    """A table lacks a column, has one too many, or holds NULL or values that are no integers."""


class UnknownInputError(CircuitError, UnknownRelationError):
    """A table is given for a relation that is not an input of the circuit."""


class StaleStepError(CircuitError):
    """A prepared step is committed after another one, or for the second time."""


class BrokenCircuitError(CircuitError):
    """A commit failed half-way, so the state is neither the old nor the new one."""
