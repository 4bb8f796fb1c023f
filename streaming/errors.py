"""The errors of the Spark layer, below the one root of the engine.

::

    DbspWcojError
    └── StreamingError
        ├── JavaMissingError          no Java 17 or newer is installed or bundled
        ├── DatabaseError             a call of a Database is invalid
        ├── EventsError               a file of changes, names or counts is invalid
        ├── FeedError                 a change feed is declared wrongly or lacks a column
        ├── RecomputationError        Spark cannot compute a view of a pipeline
        ├── SourceTableError          a pipeline cannot read the changes of a table
        ├── TargetError               a target cannot write the deltas of a view
        │   └── MissedBatchesError    it does not hold the micro-batches before this one
        ├── PageError                 a live page cannot be served
        ├── MonitoringError           metrics cannot be served
        ├── FailedError               a command failed during its work
        ├── StateError                the state directory cannot be used
        │   ├── StateMismatchError    of other views, or of a newer version of the package
        │   ├── StateDamagedError     a file is missing, cut short or changed
        │   └── StateLockedError      another sink is writing to it
        └── MicroBatchError           a micro-batch is rejected; the state has not changed
            ├── BatchOrderError       its id does not follow that of the state
            ├── ReplayError           it was replayed with different rows
            ├── RowError              rows are not accepted, and the policy is to fail
            └── UntaggedBatchError    its rows do not name their relation

Inside ``foreachBatch`` Spark wraps these errors in a ``StreamingQueryException`` with the message.
"""

from __future__ import annotations

from dbsp_wcoj.errors import DbspWcojError

__all__ = [
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
]


class StreamingError(DbspWcojError):
    """Any error that the Spark layer raises on purpose."""


class JavaMissingError(StreamingError):
    """Spark needs a Java runtime, and no usable one is installed."""


class DatabaseError(StreamingError):
    """A call of a Database is invalid; nothing has changed."""


class EventsError(StreamingError):
    """A file of changes is missing, lacks columns or holds invalid values."""


class FeedError(StreamingError):
    """A change feed is unknown, or the stream lacks a column that it reads."""


class RecomputationError(StreamingError):
    """Spark cannot compute a view of a pipeline; this view has not changed."""


class SourceTableError(StreamingError):
    """A pipeline cannot read the changes of a source table; nothing has changed."""


class TargetError(StreamingError):
    """A target cannot write the deltas of a view."""


class MissedBatchesError(TargetError):
    """A target does not hold the micro-batches before the one that it receives."""


class PageError(StreamingError):
    """A live page cannot be served at the given address or with the given options."""


class MonitoringError(StreamingError):
    """Metrics cannot be served at the given address, or a package for them is missing."""


class FailedError(StreamingError):
    """A command failed during its work."""


class StateError(StreamingError):
    """The state directory cannot be used."""


class StateMismatchError(StateError):
    """The state directory belongs to other views or schemas, or was written by a newer version."""


class StateDamagedError(StateError):
    """A file of the state directory is missing, cut short or changed."""


class StateLockedError(StateError):
    """Another sink is writing to the state directory."""


class MicroBatchError(StreamingError):
    """A micro-batch is rejected; the state has not changed."""


class BatchOrderError(MicroBatchError):
    """The batch id skips micro-batches, goes back too far, or comes from another checkpoint."""


class ReplayError(MicroBatchError):
    """A micro-batch was replayed with different rows: the source is not repeatable."""


class RowError(MicroBatchError):
    """Rows are not accepted, and the policy is to fail."""


class UntaggedBatchError(MicroBatchError):
    """Several relations share the stream and a row does not name its own."""
