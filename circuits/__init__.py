"""DBSP circuits: views over changing relations, Arrow tables in, Arrow tables out.

A step takes the changed rows of the inputs and returns the changed rows of the views. Views are
written in SQL (`compile_sql`) or Datalog (`compile_datalog`). This layer knows Arrow and the
relational core, and no Spark; it does no I/O.
"""

from circuits.circuit import Circuit, CircuitStep
from circuits.compile import compile_datalog, compile_sql
from circuits.errors import (
    BrokenCircuitError,
    CircuitError,
    DatalogError,
    EvaluationError,
    FunctionError,
    SchemaError,
    SnapshotError,
    SqlError,
    StaleStepError,
    TextError,
    UnknownInputError,
    UnknownViewError,
    UnsupportedSqlError,
)
from circuits.schema import Schema
from circuits.snapshot import Snapshot
from circuits.views import Views

__all__ = [
    "BrokenCircuitError",
    "Circuit",
    "CircuitError",
    "CircuitStep",
    "DatalogError",
    "EvaluationError",
    "FunctionError",
    "Schema",
    "SchemaError",
    "Snapshot",
    "SnapshotError",
    "SqlError",
    "StaleStepError",
    "TextError",
    "UnknownInputError",
    "UnknownViewError",
    "UnsupportedSqlError",
    "Views",
    "compile_datalog",
    "compile_sql",
]
