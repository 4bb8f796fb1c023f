"""The errors of the Spark layer, below the one root of the engine.

::

    DbspWcojError
    └── StreamingError
        ├── JavaMissingError          no Java 17 or newer, neither installed nor as a wheel
        ├── EventsError               a file of changes, names or counts that cannot be replayed
        ├── FeedError                 a change feed that is declared or shaped in a way it cannot be
        ├── TargetError               a target cannot take the deltas of a view
        ├── PageError                 a live page cannot be served
        ├── FailedError               a command began its work and could not end it
        ├── StateError                the state directory
        │   ├── StateMismatchError    it belongs to other views, or to another version
        │   ├── StateDamagedError     a file of it is missing or is not as it was written
        │   └── StateLockedError      another sink is writing to it
        └── MicroBatchError           a micro-batch that is refused; the state has not changed
            ├── BatchOrderError       its id does not follow the state's
            ├── ReplayError           it came again with other rows
            ├── RowError              rows that cannot be taken, where the policy is to fail
            └── UntaggedBatchError    its rows do not say to which relation they belong

Inside ``foreachBatch`` Spark wraps them in its own ``StreamingQueryException``, with the message.
"""

from __future__ import annotations

from dbsp_wcoj.errors import DbspWcojError

__all__ = [
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
]


class StreamingError(DbspWcojError):
    """Any error that the Spark layer raises on purpose."""


class JavaMissingError(StreamingError):
    """Spark needs a Java runtime and there is none that it can use."""


class EventsError(StreamingError):
    """A file is missing, or lacks columns, or holds values that make no change stream."""


class FeedError(StreamingError):
    """A change feed is unknown, or lacks what it is decoded from."""


class TargetError(StreamingError):
    """A target cannot take the deltas of a view."""


class PageError(StreamingError):
    """A live page cannot be served where or how it is asked for."""


class FailedError(StreamingError):
    """A command began its work and could not end it."""


class StateError(StreamingError):
    """The state directory cannot be used as it is."""


class StateMismatchError(StateError):
    """The state directory belongs to other views or schemas, or was written by a newer version."""


class StateDamagedError(StateError):
    """A file of the state directory is missing, cut short or changed."""


class StateLockedError(StateError):
    """Another sink is writing to the state directory."""


class MicroBatchError(StreamingError):
    """A micro-batch is refused; the state is as it was before."""


class BatchOrderError(MicroBatchError):
    """The batch id skips micro-batches, goes back too far, or comes from another checkpoint."""


class ReplayError(MicroBatchError):
    """A micro-batch came again with other rows: the source cannot be replayed."""


class RowError(MicroBatchError):
    """Rows cannot be taken, and the policy is to fail."""


class UntaggedBatchError(MicroBatchError):
    """Several relations share the stream and a row does not name its own."""
