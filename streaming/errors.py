"""The errors of the Spark layer, below the one root of the engine.

::

    DbspWcojError
    └── StreamingError
        ├── JavaMissingError          no Java 17 or newer, neither installed nor as a wheel
        ├── EventsError               a file of changes, names or counts that cannot be replayed
        └── MicroBatchError           a micro-batch that is refused; the state has not changed
            ├── BatchOrderError       its id is neither the next one nor the last one
            └── UntaggedBatchError    its rows do not say to which relation they belong

Inside ``foreachBatch`` Spark wraps them in its own ``StreamingQueryException``, with the message.
"""

from __future__ import annotations

from dbsp_wcoj.errors import DbspWcojError

__all__ = [
    "BatchOrderError",
    "EventsError",
    "JavaMissingError",
    "MicroBatchError",
    "StreamingError",
    "UntaggedBatchError",
]


class StreamingError(DbspWcojError):
    """Any error that the Spark layer raises on purpose."""


class JavaMissingError(StreamingError):
    """Spark needs a Java runtime and there is none that it can use."""


class EventsError(StreamingError):
    """A file is missing, or lacks columns, or holds values that make no change stream."""


class MicroBatchError(StreamingError):
    """A micro-batch is refused; the state is as it was before."""


class BatchOrderError(MicroBatchError):
    """The batch id skips micro-batches, or goes back further than the last one."""


class UntaggedBatchError(MicroBatchError):
    """Several relations share the stream and a row does not name its own."""
