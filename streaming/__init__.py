"""Live views in Spark Structured Streaming: everything that a Spark job needs, in one import.

::

    from streaming import Output, SqlTarget, ViewSink, compile_sql

    circuit = compile_sql(text, {"orders": schema}, name="open", materialize=["open"])
    sink = ViewSink(circuit, [Output("open", target, mode="upsert", keys=["nr"])], state_dir="s")
    orders.writeStream.foreachBatch(sink).option("checkpointLocation", "checkpoint").start()

``compile_sql`` and ``compile_datalog`` compile views to a circuit. ``ViewSink`` makes the circuit
the function of ``foreachBatch``, exactly once and durable. Each ``Output`` names a view, a target
and an output mode. Change feeds (`streaming.sources.change_feeds`) decode the change events of
databases, and ``merge`` makes one stream of several. ``start_session`` starts a local Spark session
on an installed or bundled Java. Of the three packages only this one does I/O.

A name is imported when it is first used, because the command line must answer at once and the
import of Spark, Arrow and numba takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from streaming.installation import check_circuits, check_packages

if TYPE_CHECKING:
    from circuits import (
        BrokenCircuitError,
        BusyCircuitError,
        Circuit,
        CircuitError,
        DatalogError,
        EvaluationError,
        FunctionError,
        InputOptions,
        InputOptionsError,
        IterationError,
        Lateness,
        MissingRowError,
        ProgramChangeError,
        Retention,
        SchemaError,
        SnapshotError,
        SqlError,
        StaleStepError,
        StepLimitError,
        StepLimits,
        StepMemoryError,
        TextError,
        UnknownInputError,
        UnknownViewError,
        UnsupportedSqlError,
        UpsertError,
        UserFunction,
        UserFunctionError,
        compile_datalog,
        compile_sql,
        udf,
    )
    from dbsp_wcoj import DbspWcojError, __version__, warm_up
    from streaming.data_source.view_data_source import ViewDataSource
    from streaming.database.database import Database
    from streaming.database.result import Result
    from streaming.database.subscriptions import ChangeStream, Subscription
    from streaming.database.transaction import Transaction
    from streaming.errors import (
        BatchOrderError,
        DatabaseError,
        EventsError,
        FailedError,
        FeedError,
        JavaMissingError,
        MicroBatchError,
        MissedBatchesError,
        MonitoringError,
        PageError,
        RecomputationError,
        ReplayError,
        RowError,
        SourceTableError,
        StateDamagedError,
        StateError,
        StateLockedError,
        StateMismatchError,
        StreamingError,
        TargetError,
        UntaggedBatchError,
    )
    from streaming.java import find_java
    from streaming.session import start_session
    from streaming.sink.metrics import BatchMetrics, observe
    from streaming.sink.observer import Published, SinkObserver
    from streaming.sink.output import Output
    from streaming.sink.view_sink import ViewSink
    from streaming.sources.change_feeds import (
        AppendFeed,
        CanalFeed,
        ChangeFeed,
        CompactedFeed,
        DebeziumFeed,
        DeltaFeed,
        Encoding,
        MaxwellFeed,
        UpsertFeed,
        WeightedFeed,
        find_feed,
    )
    from streaming.sources.heartbeat import heartbeat
    from streaming.sources.tagged_union import merge
    from streaming.state.program_change import ChangeOptions, stored_circuit
    from streaming.state.records.dead_letter_files import DeadLetterRetention
    from streaming.targets.console import ConsoleTarget
    from streaming.targets.delta import DeltaTarget
    from streaming.targets.iceberg import IcebergTarget
    from streaming.targets.memory import MemoryTarget
    from streaming.targets.parquet import ParquetTarget
    from streaming.targets.retry import Retry
    from streaming.targets.sql import SqlTarget
    from streaming.targets.target import Target, ViewDelta

__all__ = [
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

__distribution__: Final = "dbsp-wcoj"

_NAMES_OF_MODULES: Final = {
    "circuits": (
        "BrokenCircuitError",
        "BusyCircuitError",
        "Circuit",
        "CircuitError",
        "DatalogError",
        "EvaluationError",
        "FunctionError",
        "InputOptions",
        "InputOptionsError",
        "IterationError",
        "Lateness",
        "MissingRowError",
        "ProgramChangeError",
        "Retention",
        "SchemaError",
        "SnapshotError",
        "SqlError",
        "StaleStepError",
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
        "compile_datalog",
        "compile_sql",
        "udf",
    ),
    "dbsp_wcoj": (
        "DbspWcojError",
        "__version__",
        "warm_up",
    ),
    "streaming.data_source.view_data_source": ("ViewDataSource",),
    "streaming.database.database": ("Database",),
    "streaming.database.result": ("Result",),
    "streaming.database.subscriptions": (
        "ChangeStream",
        "Subscription",
    ),
    "streaming.database.transaction": ("Transaction",),
    "streaming.errors": (
        "BatchOrderError",
        "DatabaseError",
        "EventsError",
        "FailedError",
        "FeedError",
        "JavaMissingError",
        "MicroBatchError",
        "MissedBatchesError",
        "MonitoringError",
        "PageError",
        "RecomputationError",
        "ReplayError",
        "RowError",
        "SourceTableError",
        "StateDamagedError",
        "StateError",
        "StateLockedError",
        "StateMismatchError",
        "StreamingError",
        "TargetError",
        "UntaggedBatchError",
    ),
    "streaming.java": ("find_java",),
    "streaming.session": ("start_session",),
    "streaming.sink.metrics": (
        "BatchMetrics",
        "observe",
    ),
    "streaming.sink.observer": (
        "Published",
        "SinkObserver",
    ),
    "streaming.sink.output": ("Output",),
    "streaming.sink.view_sink": ("ViewSink",),
    "streaming.sources.change_feeds": (
        "AppendFeed",
        "CanalFeed",
        "ChangeFeed",
        "CompactedFeed",
        "DebeziumFeed",
        "DeltaFeed",
        "Encoding",
        "MaxwellFeed",
        "UpsertFeed",
        "WeightedFeed",
        "find_feed",
    ),
    "streaming.sources.heartbeat": ("heartbeat",),
    "streaming.sources.tagged_union": ("merge",),
    "streaming.state.records.dead_letter_files": ("DeadLetterRetention",),
    "streaming.state.program_change": (
        "ChangeOptions",
        "stored_circuit",
    ),
    "streaming.targets.console": ("ConsoleTarget",),
    "streaming.targets.delta": ("DeltaTarget",),
    "streaming.targets.iceberg": ("IcebergTarget",),
    "streaming.targets.memory": ("MemoryTarget",),
    "streaming.targets.parquet": ("ParquetTarget",),
    "streaming.targets.retry": ("Retry",),
    "streaming.targets.sql": ("SqlTarget",),
    "streaming.targets.target": (
        "Target",
        "ViewDelta",
    ),
}
_MODULES: Final = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}

check_circuits()


def __getattr__(name: str) -> Any:
    """Import a name when it is first used.

    Raises:
        AttributeError: The name is unknown.
        ModuleNotFoundError: The name needs PySpark, which is not installed.
        ImportError: Another distribution has replaced one of the packages.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            check_packages()
            raise
        raise ModuleNotFoundError(
            f"streaming.{name} needs PySpark, which is not installed: run pip install "
            "'dbsp-wcoj[spark]', or use the PySpark of the cluster",
            name=error.name,
        ) from error
    except (ImportError, AttributeError):
        check_packages()
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
