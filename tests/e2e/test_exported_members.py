"""The public names: adding or removing one requires a change of this list."""

from __future__ import annotations

import pytest

import circuits
import dbsp_wcoj
import streaming
from circuits import errors as circuit_errors
from dbsp_wcoj import errors
from streaming import errors as streaming_errors

PUBLIC = [
    "ArgumentTypeError",
    "ArityError",
    "Budget",
    "ColumnTypeError",
    "CustomFormula",
    "DbspWcojError",
    "DeltaQuery",
    "DeltaTerm",
    "Formula",
    "FormulaError",
    "LimitError",
    "PreparedStep",
    "Query",
    "QuerySyntaxError",
    "Relations",
    "RelationsStep",
    "Stats",
    "StepLimits",
    "Trace",
    "UnknownRelationError",
    "UnsafeVariableError",
    "VariableOrderError",
    "WeightError",
    "WeightOverflowError",
    "ZSet",
    "__version__",
    "generic_join",
    "generic_join_chunks",
    "warm_up",
]


PUBLIC_CIRCUITS = [
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
PUBLIC_STREAMING = [
    "AppendFeed",
    "BatchMetrics",
    "BatchOrderError",
    "BrokenCircuitError",
    "BusyCircuitError",
    "CanalFeed",
    "ChangeFeed",
    "ChangeOptions",
    "ChangeStream",
    "Circuit",
    "CircuitError",
    "CompactedFeed",
    "ConsoleTarget",
    "Database",
    "DatabaseError",
    "DatalogError",
    "DbspWcojError",
    "DeadLetterRetention",
    "DebeziumFeed",
    "DeltaFeed",
    "DeltaTarget",
    "Encoding",
    "EvaluationError",
    "EventsError",
    "FailedError",
    "FeedError",
    "FunctionError",
    "IcebergTarget",
    "InputOptions",
    "InputOptionsError",
    "IterationError",
    "JavaMissingError",
    "Lateness",
    "MaxwellFeed",
    "MemoryTarget",
    "MicroBatchError",
    "MissedBatchesError",
    "MissingRowError",
    "MonitoringError",
    "Output",
    "PageError",
    "ParquetTarget",
    "ProgramChangeError",
    "Published",
    "RecomputationError",
    "ReplayError",
    "Result",
    "Retention",
    "Retry",
    "RowError",
    "SchemaError",
    "SinkObserver",
    "SnapshotError",
    "SourceTableError",
    "SqlError",
    "SqlTarget",
    "StaleStepError",
    "StateDamagedError",
    "StateError",
    "StateLockedError",
    "StateMismatchError",
    "StepLimitError",
    "StepLimits",
    "StepMemoryError",
    "StreamingError",
    "Subscription",
    "Target",
    "TargetError",
    "TextError",
    "Transaction",
    "UnknownInputError",
    "UnknownViewError",
    "UnsupportedSqlError",
    "UntaggedBatchError",
    "UpsertError",
    "UpsertFeed",
    "UserFunction",
    "UserFunctionError",
    "ViewDataSource",
    "ViewDelta",
    "ViewSink",
    "WeightedFeed",
    "__version__",
    "compile_datalog",
    "compile_sql",
    "find_feed",
    "find_java",
    "heartbeat",
    "merge",
    "observe",
    "start_session",
    "stored_circuit",
    "udf",
    "warm_up",
]
LAYERS = [
    (dbsp_wcoj, errors, PUBLIC),
    (circuits, circuit_errors, PUBLIC_CIRCUITS),
    (streaming, streaming_errors, PUBLIC_STREAMING),
]
for_each_layer = pytest.mark.parametrize(
    ("package", "tree", "public"), LAYERS, ids=[package.__name__ for package, _, _ in LAYERS]
)


@for_each_layer
def test_the_exported_names_are_exactly_the_promised_ones_and_sorted(package, tree, public):
    assert list(package.__all__) == public == sorted(public)


@for_each_layer
def test_every_exported_name_exists_and_is_documented(package, tree, public):
    for name in public:
        assert getattr(package, name).__doc__, name


@for_each_layer
def test_every_error_of_the_tree_is_exported_and_is_a_dbsp_wcoj_error(package, tree, public):
    for name in tree.__all__:
        assert name in public
        assert issubclass(getattr(package, name), dbsp_wcoj.DbspWcojError)
