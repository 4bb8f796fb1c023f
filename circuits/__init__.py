"""DBSP circuits: views over changing relations, Arrow tables in, Arrow tables out.

A step takes the changed rows of the inputs and returns the changed rows of the views. This layer
knows Arrow and the relational core, and no Spark; it does no I/O.
"""

from circuits.circuit import Circuit, CircuitStep
from circuits.distinct import Distinct
from circuits.errors import (
    BrokenCircuitError,
    CircuitError,
    RuleError,
    SchemaError,
    StaleStepError,
    UnknownInputError,
)
from circuits.schema import Schema

__all__ = [
    "BrokenCircuitError",
    "Circuit",
    "CircuitError",
    "CircuitStep",
    "Distinct",
    "RuleError",
    "Schema",
    "SchemaError",
    "StaleStepError",
    "UnknownInputError",
]
