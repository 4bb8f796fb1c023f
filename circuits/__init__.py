"""DBSP circuits: views over changing relations, Arrow tables in, Arrow tables out.

A step takes the changed rows of the inputs and returns the changed rows of the views. Views are
written in SQL (`compile_sql`) or Datalog (`compile_datalog`). This layer knows Arrow and the
relational core, and no Spark; it does no I/O.

::

    text  -> sql, datalog      the front ends: a text to plans, one per view
          -> relational        plans as they are written: Cross, Filter, Semi, Outer, Aggregate, ...
          -> lowering          plans as they run: one N-way join per SELECT or rule
          -> graph, operators  the circuit: each operator in non-incremental and incremental form
          -> fixpoint, loop    recursion: operators over rows with their iteration, in rounds
    rows  -> tables            frames, RecordBatches and dicts become Arrow tables
          -> inputs            upserts, strict deletes and retention become plain changes of rows
          -> schema, codec     a row is int64 codes: encoded on the way in, decoded on the way out

=================================  ===============================================================
`circuit`                          ``step``, ``prepare`` and ``commit``: all or nothing
`views`, `query`, `snapshot`       what is kept, asked once, and saved
`definition`, `step`, `state`      a circuit without state; what a step adds to it; all of it
`drawing`                          ``explain``
`ddl`                              columns as text, names of types
`expression`, `functions`          typed scalar expressions, what exists for them
`evaluation`, `predicates`         ... on Arrow columns, ... on codes where those decide
=================================  ===============================================================
"""

from circuits.circuit import Circuit, CircuitStep
from circuits.circuit_spec import CircuitSpec
from circuits.compile import compile_datalog, compile_sql
from circuits.errors import (
    BrokenCircuitError,
    BusyCircuitError,
    CircuitError,
    DatalogError,
    EvaluationError,
    FunctionError,
    InputOptionsError,
    IterationError,
    MissingRowError,
    SchemaError,
    SnapshotError,
    SqlError,
    StaleStepError,
    StepLimitError,
    StepMemoryError,
    TextError,
    UnknownInputError,
    UnknownViewError,
    UnsupportedSqlError,
    UpsertError,
)
from circuits.inputs import InputOptions, RejectedRows, Retention
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.views import Views
from circuits.schema import Schema
from circuits.state.circuit_state import State, StateStep
from circuits.state.snapshot import Snapshot
from dbsp_wcoj.limits import StepLimits

#: The owner of this package; other distributions have a package of this name.
__distribution__ = "dbsp-wcoj"

__all__ = [
    "BrokenCircuitError",
    "BusyCircuitError",
    "Circuit",
    "CircuitError",
    "CircuitSpec",
    "CircuitStep",
    "DatalogError",
    "EvaluationError",
    "FunctionError",
    "InputOptions",
    "InputOptionsError",
    "IterationError",
    "MissingRowError",
    "RejectedRows",
    "Retention",
    "Schema",
    "SchemaError",
    "Snapshot",
    "SnapshotError",
    "SqlError",
    "StaleStepError",
    "State",
    "StateStep",
    "StepLimitError",
    "StepLimits",
    "StepMemoryError",
    "TextError",
    "UnknownInputError",
    "UnknownViewError",
    "UnsupportedSqlError",
    "UpsertError",
    "Views",
    "compile_datalog",
    "compile_sql",
    "incrementalize",
]
