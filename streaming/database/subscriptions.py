"""Subscriptions: the changes of a view after each step.

::

    Subscription    calls a function in the thread of the step
    ChangeStream    an async iterator; a reader that is slower than the steps gets the sum of the
                    changes that it has not seen, so that memory follows the rows that differ

Every change is delivered once, in the order of the steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from threading import Lock
from types import TracebackType
from typing import Final

import pyarrow as pa

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

    def deliver(self, changes: pa.Table) -> None:
        """Call the function; an error of it is logged, because the step has taken effect."""
        try:
            self._callback(changes)
        except Exception:
            log.exception("a callback for the changes of view %r failed", self.view)

    def close(self) -> None:
        """End the subscription; the function gets no further changes. No effect if it has ended."""
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
        add: Adds up tables of changes.
        close: Called by `close`, once.
    """

    def __init__(
        self, add: Callable[[Iterable[pa.Table]], pa.Table], close: Callable[[], None]
    ) -> None:
        self._add = add
        self._close = close
        self._lock = Lock()
        self._waiting: list[pa.Table] = []
        self._is_closed = False
        self._wake: Callable[[], object] | None = None  # of the reader that waits

    @property
    def waiting(self) -> int:
        """The number of tables that wait for the reader, at most `MAX_WAITING_TABLES`."""
        with self._lock:
            return len(self._waiting)

    def put(self, changes: pa.Table) -> None:
        """Add the changes of a step; any thread may call this."""
        with self._lock:
            self._waiting.append(changes)
            if len(self._waiting) >= MAX_WAITING_TABLES:
                self._waiting = [self._add(self._waiting)]
            self._wake_reader()

    def close(self) -> None:
        """End the iteration, after the changes that wait; any thread may call this."""
        self._close()
        with self._lock:
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
            changes = waiting[0] if len(waiting) == 1 else self._add(waiting)
            if changes.num_rows:
                return changes

    async def aclose(self) -> None:
        """As `close`."""
        self.close()
