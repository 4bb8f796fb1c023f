"""Live views in Spark Structured Streaming.

``ViewSink`` makes a circuit the function of ``foreachBatch``, exactly once and durable. Targets
take what its views give out; feeds (`streaming.sources.change_feeds`) read what databases say of
their changes, and ``merge`` makes one stream of several. ``start_session`` starts a local session
on a Java that was found or brought along. The only layer with I/O.

Names are imported when they are first used, for the command line has to answer at once, and Spark,
Arrow and numba take seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streaming.errors import (
        BatchOrderError,
        EventsError,
        FailedError,
        FeedError,
        JavaMissingError,
        MicroBatchError,
        PageError,
        ReplayError,
        RowError,
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
    from streaming.sink.output import Output
    from streaming.sink.view_sink import Published, ViewSink
    from streaming.sources.change_feeds import Feed, feed_of
    from streaming.sources.tagged_union import merge
    from streaming.targets.console import ConsoleTarget
    from streaming.targets.delta import DeltaTarget
    from streaming.targets.memory import MemoryTarget
    from streaming.targets.parquet import ParquetTarget
    from streaming.targets.retry import Retry
    from streaming.targets.sql import SqlTarget
    from streaming.targets.target import Target, ViewDelta

__all__ = [
    "BatchMetrics",
    "BatchOrderError",
    "ConsoleTarget",
    "DeltaTarget",
    "EventsError",
    "FailedError",
    "Feed",
    "FeedError",
    "JavaMissingError",
    "MemoryTarget",
    "MicroBatchError",
    "Output",
    "PageError",
    "ParquetTarget",
    "Published",
    "ReplayError",
    "Retry",
    "RowError",
    "SqlTarget",
    "StateDamagedError",
    "StateError",
    "StateLockedError",
    "StateMismatchError",
    "StreamingError",
    "Target",
    "TargetError",
    "UntaggedBatchError",
    "ViewDelta",
    "ViewSink",
    "feed_of",
    "find_java",
    "merge",
    "observe",
    "start_session",
]

_MODULES: Final = {
    "streaming.sources.change_feeds": (
        "Feed",
        "feed_of",
    ),
    "streaming.errors": (
        "BatchOrderError",
        "EventsError",
        "FailedError",
        "FeedError",
        "JavaMissingError",
        "MicroBatchError",
        "PageError",
        "ReplayError",
        "RowError",
        "StateDamagedError",
        "StateError",
        "StateLockedError",
        "StateMismatchError",
        "StreamingError",
        "TargetError",
        "UntaggedBatchError",
    ),
    "streaming.java": ("find_java",),
    "streaming.sources.tagged_union": ("merge",),
    "streaming.sink.metrics": (
        "BatchMetrics",
        "observe",
    ),
    "streaming.sink.output": ("Output",),
    "streaming.session": ("start_session",),
    "streaming.targets.console": ("ConsoleTarget",),
    "streaming.targets.delta": ("DeltaTarget",),
    "streaming.targets.memory": ("MemoryTarget",),
    "streaming.targets.parquet": ("ParquetTarget",),
    "streaming.targets.retry": ("Retry",),
    "streaming.targets.sql": ("SqlTarget",),
    "streaming.targets.target": (
        "Target",
        "ViewDelta",
    ),
    "streaming.sink.view_sink": (
        "Published",
        "ViewSink",
    ),
}
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used.

    Raises:
        AttributeError: There is no such name.
        ModuleNotFoundError: The name needs PySpark, which is not installed.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise ModuleNotFoundError(
            f"streaming.{name} needs PySpark, which is not installed: run pip install "
            "'dbsp-wcoj[spark]', or use the PySpark of the cluster",
            name=error.name,
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
