"""DBSP circuits: views over changing relations, Arrow tables in, Arrow tables out.

A step takes the changed rows of the inputs and returns the changed rows of the views. Views are
written in SQL (`compile_sql`) or Datalog (`compile_datalog`). This layer knows Arrow and the
relational core, but not Spark, and does no I/O.

::

    text  -> sql, datalog     the front ends: a text to logical plans, one per view
          -> plan             plan nodes, and the rewrite from logical to physical plans
          -> runtime          the circuit graph and its operators, each with a non-incremental form
                              Q and an incremental form; nested circuits for recursion
    rows  -> inputs           rows to Arrow tables; upserts, strict deletes and retention
          -> schema, types    a row is int64 codes: encoded on the way in, decoded on the way out
    state -> state            everything that a circuit keeps: snapshots, import and export

=================  ===============================================================================
`compile`          the entry points
`circuit`          `Circuit` and `CircuitStep`: prepare, commit, abandon; views; query; explain
`circuit_spec`     a circuit without state: plans, schemas and options, with fingerprints
`options`          `CircuitOptions`: the settings of a circuit
`schema`           the columns of a relation
`user_functions`   ``udf``: functions of Python that views call
`limits`           the errors of a step that exceeds its limits
=================  ===============================================================================

>>> from circuits import compile_sql
>>> circuit = compile_sql("SELECT count(*) AS n FROM e", {"e": "src bigint, dst bigint"})
>>> circuit.step({"e": [{"src": 1, "dst": 2}]})["view"].to_pylist()
[{'n': 1, 'weight': 1}]
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
    ProgramChangeError,
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
    UserFunctionError,
)
from circuits.inputs import InputOptions, Lateness, RejectedRows, Retention
from circuits.notice import SqlNotice
from circuits.options import CircuitOptions
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.views import Views
from circuits.schema import Schema
from circuits.state.circuit_state import State, StateStep
from circuits.state.snapshot import Snapshot
from circuits.user_functions import UserFunction, udf
from dbsp_wcoj.limits import StepLimits
from dbsp_wcoj.version import __version__

#: Identifies this package: other distributions contain packages named ``circuits``, too. The check
#: is in `streaming.installation`.
__distribution__ = "dbsp-wcoj"

__all__ = [
    "BrokenCircuitError",
    "BusyCircuitError",
    "Circuit",
    "CircuitError",
    "CircuitOptions",
    "CircuitSpec",
    "CircuitStep",
    "DatalogError",
    "EvaluationError",
    "FunctionError",
    "InputOptions",
    "InputOptionsError",
    "IterationError",
    "Lateness",
    "MissingRowError",
    "ProgramChangeError",
    "RejectedRows",
    "Retention",
    "Schema",
    "SchemaError",
    "Snapshot",
    "SnapshotError",
    "SqlError",
    "SqlNotice",
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
    "UserFunction",
    "UserFunctionError",
    "Views",
    "__version__",
    "compile_datalog",
    "compile_sql",
    "incrementalize",
    "udf",
]
