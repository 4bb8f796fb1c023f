"""Events: the data of a history as JSON, and as a stream of server-sent events.

A stream creates its next event after the reader has received the previous one. So a slow reader
misses no data that the history still has, and buffers at most one event. The text of an event is
created once for all streams that need it.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from streaming.ui.history import History

__all__ = ["POLL_INTERVAL_S", "EventStream", "EventTexts", "OpenStreams", "events_of"]

#: Seconds between two reads of the history, and so the minimum time between two events.
POLL_INTERVAL_S: Final = 0.2
#: Seconds without an event after which a comment is sent to keep the stream open.
KEEP_ALIVE_INTERVAL_S: Final = 10.0
#: In `EventTexts`, the key of the text with all data. Every other key is a number of micro-batches,
#: and its text has the data after them.
SNAPSHOT: Final = -1


class EventText(NamedTuple):
    """The version of the history and of its views, its micro-batches, and the data as JSON text."""

    version: int
    views_version: int
    batches: int
    text: str


class EventTexts:
    """The history as JSON text, created once for each version and shared by all streams.

    Args:
        history: The history.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        # By key: the version of the history, and the task that creates the text.
        self._tasks: dict[int, tuple[int, asyncio.Task[EventText]]] = {}

    async def snapshot(self) -> EventText:
        """Return all data."""
        return await self._text(SNAPSHOT)

    async def since(self, batches: int) -> EventText:
        """Return the data after the first ``batches`` micro-batches."""
        return await self._text(batches)

    async def _text(self, key: int) -> EventText:
        version = self._history.version
        if key not in self._tasks or self._tasks[key][0] != version:
            tasks = self._tasks.items()
            for old_key in [old for old, (created, _) in tasks if created != version]:
                del self._tasks[old_key]
            task = asyncio.create_task(asyncio.to_thread(self._format, key))
            self._tasks[key] = version, task
        return await asyncio.shield(self._tasks[key][1])

    def _format(self, key: int) -> EventText:
        data = self._history.snapshot() if key == SNAPSHOT else self._history.since(key)
        return EventText(data["version"], data["views_version"], data["batches"], _json(data))


class OpenStreams:
    """Counts the open streams of events.

    Args:
        max_streams: The maximum number of streams.
    """

    def __init__(self, max_streams: int) -> None:
        self.max_streams = max_streams
        self.open = 0

    @property
    def is_full(self) -> bool:
        """True if the maximum number of streams is open."""
        return self.open >= self.max_streams


class EventStream(StreamingResponse):
    """A stream of events of a history, until the server stops or the maximum duration ends.

    Args:
        texts: The JSON texts of the history.
        history: The history.
        streams: Counts this stream.
        is_over: Returns True when the server stops.
        seconds: The maximum duration; browsers then open another stream.
        headers: Additional headers.
    """

    def __init__(
        self,
        texts: EventTexts,
        history: History,
        streams: OpenStreams,
        *,
        is_over: Callable[[], bool],
        seconds: float,
        headers: dict[str, str],
    ) -> None:
        events = events_of(texts, history, is_over, seconds)
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


async def events_of(
    texts: EventTexts, history: History, is_over: Callable[[], bool], seconds: float
) -> AsyncIterator[str]:
    """Yield the events of a stream; the framework cancels this when the client disconnects.

    Args:
        texts: The JSON texts of the history.
        history: The history.
        is_over: Returns True when the server stops.
        seconds: The maximum duration.
    """
    end = time.monotonic() + seconds
    version, views_version, batches, text = await texts.snapshot()
    yield f"retry: 1000\nevent: snapshot\ndata: {text}\n\n"
    silent_seconds = 0.0
    ending = False
    while not ending:
        await asyncio.sleep(POLL_INTERVAL_S)
        # Before the stream ends, the code below sends the last change.
        ending = is_over() or time.monotonic() > end
        silent_seconds += POLL_INTERVAL_S
        if history.version != version:
            event, shown_views = "update", views_version
            version, views_version, next_batches, text = await texts.since(batches)
            if views_version != shown_views:
                event = "snapshot"
                version, views_version, next_batches, text = await texts.snapshot()
            batches = next_batches
            yield f"event: {event}\ndata: {text}\n\n"
            silent_seconds = 0.0
        elif silent_seconds >= KEEP_ALIVE_INTERVAL_S:
            yield ": keep-alive\n\n"
            silent_seconds = 0.0


def _json(value: Any) -> str:
    """Convert a value to one line of JSON; NaN and infinity become null."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None, also inside dicts and lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
