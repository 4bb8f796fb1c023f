"""Live views in Spark Structured Streaming.

``ViewSink`` makes a circuit the function of ``foreachBatch``, exactly once and durable. Targets
take what its views give out; feeds (`streaming.changes`) read what databases say of their changes,
and ``merge`` makes one stream of several. ``start_session`` starts a local session on a Java that
was found or brought along. The only layer with I/O.
"""

from streaming.changes import Feed, feed_of
from streaming.errors import (
    BatchOrderError,
    EventsError,
    FeedError,
    JavaMissingError,
    MicroBatchError,
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
from streaming.merge import merge
from streaming.metrics import BatchMetrics, observe
from streaming.outputs import Output, complete, delta, upsert
from streaming.session import start_session
from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.memory import MemoryTarget
from streaming.targets.parquet import ParquetTarget
from streaming.targets.sql import SqlTarget
from streaming.targets.target import Target, ViewDelta
from streaming.view_sink import Published, ViewSink

__all__ = [
    "BatchMetrics",
    "BatchOrderError",
    "ConsoleTarget",
    "DeltaTarget",
    "EventsError",
    "Feed",
    "FeedError",
    "JavaMissingError",
    "MemoryTarget",
    "MicroBatchError",
    "Output",
    "ParquetTarget",
    "Published",
    "ReplayError",
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
    "complete",
    "delta",
    "feed_of",
    "find_java",
    "merge",
    "observe",
    "start_session",
    "upsert",
]
