"""Live views in Spark Structured Streaming.

``ViewSink`` makes a circuit the function of ``foreachBatch``; ``start_session`` starts a local
session on a Java that was found or brought along. The only layer with I/O.
"""

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
from streaming.session import start_session
from streaming.view_sink import Published, ViewSink

__all__ = [
    "BatchOrderError",
    "EventsError",
    "FeedError",
    "JavaMissingError",
    "MicroBatchError",
    "Published",
    "ReplayError",
    "RowError",
    "StateDamagedError",
    "StateError",
    "StateLockedError",
    "StateMismatchError",
    "StreamingError",
    "TargetError",
    "UntaggedBatchError",
    "ViewSink",
    "find_java",
    "merge",
    "start_session",
]
