"""Subscriptions: the changes of a view after each step.

::

    Subscription    calls a function in the thread of the step
    ChangeStream    an async iterator; a reader that is slower than the steps gets the sum of the
                    changes that it has not seen, so that memory follows the rows that differ

Every change is delivered once, in the order of the steps. If a change cannot be delivered, the
subscription ends, and an iterator raises the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Lock
from types import TracebackType
from typing import Final

import pyarrow as pa

from circuits.schema import WEIGHT, Schema
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.errors import DbspWcojError

__all__ = ["ChangeStream", "Subscription"]

#: A `ChangeStream` adds up the tables that wait for its reader when there are this many.
MAX_WAITING_TABLES: Final = 64

log = logging.getLogger(__name__)


class Subscription:
    """Calls a function with the changed rows of a view, after each step that changes it.

    Also a context manager, which ends the subscription.

    Attributes:
        view: The name of the view.
    """

    def __init__(
        self,
        view: str,
        callback: Callable[[pa.Table], object],
        remove: Callable[[Subscription], None],
    ) -> None:
        self.view = view
        self._callback = callback
        self._remove = remove
        self._is_closed = False

    def deliver(self, changes: pa.Table) -> None:
        """Call the function; an error of it is logged, because the step has taken effect."""
        if self._is_closed:  # by the callback of another subscription
            return
        try:
            self._callback(changes)
        except Exception:
            log.exception("a callback for the changes of view %r failed", self.view)

    def close(self) -> None:
        """End the subscription; the function gets no further changes. No effect if it has ended."""
        self._is_closed = True
        self._remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ChangeStream(AsyncIterator[pa.Table]):
    """An async iterator over the changed rows of a view; one reader at a time.

    An item has the changes of the steps since the previous item, added up. It has at least one row.

    Args:
        view: The name of the view.
        close: Called by `close`.
    """

    def __init__(self, view: str, close: Callable[[], None]) -> None:
        self.view = view
        self._close = close
        self._lock = Lock()
        self._waiting: list[pa.Table] = []
        self._is_closed = False
        self._error: Exception | None = None
        self._wake: Callable[[], object] | None = None  # of the reader that waits

    @property
    def waiting(self) -> int:
        """The number of tables that wait for the reader, at most `MAX_WAITING_TABLES`."""
        with self._lock:
            return len(self._waiting)

    def put(self, changes: pa.Table) -> None:
        """Add the changes of a step; any thread may call this.

        If the changes that wait cannot be added up, the iteration ends with the error.
        """
        with self._lock:
            self._waiting.append(changes)
            try:
                if len(self._waiting) >= MAX_WAITING_TABLES:
                    self._waiting = [_sum(self.view, self._waiting)]
            except DbspWcojError as error:  # such as a weight that leaves int64
                self._waiting, self._error, self._is_closed = [], error, True
            is_failed = self._error is not None
            self._wake_reader()
        if is_failed:
            self._close()

    def close(self) -> None:
        """End the iteration, after the changes that wait; any thread may call this."""
        self._close()
        with self._lock:
            self._is_closed = True
            self._wake_reader()

    def fail(self, error: Exception) -> None:
        """End the iteration with an error, after the changes that wait."""
        with self._lock:
            self._error = error
            self._is_closed = True
            self._wake_reader()

    def _wake_reader(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            try:
                wake()
            except RuntimeError:
                log.debug("the event loop of a reader has ended")

    def __aiter__(self) -> ChangeStream:
        return self

    async def __anext__(self) -> pa.Table:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting:
                    error, self._error = self._error, None
                    if error is not None:
                        raise error
                    if self._is_closed:
                        raise StopAsyncIteration
                    loop, ready = asyncio.get_running_loop(), asyncio.Event()

                    def wake(
                        loop: asyncio.AbstractEventLoop = loop, ready: asyncio.Event = ready
                    ) -> None:
                        loop.call_soon_threadsafe(ready.set)

                    self._wake = wake
            if not waiting:
                await ready.wait()
                continue
            try:
                changes = waiting[0] if len(waiting) == 1 else _sum(self.view, waiting)
            except DbspWcojError:
                self.close()
                with self._lock:
                    self._waiting = []
                raise
            if changes.num_rows:
                return changes

    async def aclose(self) -> None:
        """As `close`."""
        self.close()


def _sum(view: str, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the sum of changes: each row once, with the sum of its weights."""
    columns = tables[0].schema
    schema, codecs = Schema.of(view, columns.remove(columns.get_field_index(WEIGHT))), Codecs()
    zsets = [schema.to_zset(table, codecs) for table in tables]
    return schema.to_table(sum(zsets, ZSet.empty(schema.arity)), codecs)
