"""Events: the data of a history as JSON, and as a stream of server-sent events.

A stream creates its next event after the reader has received the previous one. So a slow reader
misses no data that the history still has, and buffers at most one event. The text of an event is
created once for all streams that need it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from streaming.ui.history import History

__all__ = ["POLL_INTERVAL_S", "EventStream", "EventTexts", "OpenStreams"]

#: Time between two reads of the history, and so the minimum time between two events.
POLL_INTERVAL_S: Final = 0.2
#: Time after which a comment keeps an idle stream alive.
KEEP_ALIVE_INTERVAL_S: Final = 10.0
#: The key of the text with all data; other keys are numbers of micro-batches.
WHOLE: Final = -1


class EventTexts:
    """The history as JSON text, created once for each version and shared by all streams.

    Args:
        history: The history.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._made: dict[int, tuple[int, asyncio.Task[tuple[int, int, str]]]] = {}

    async def whole(self) -> tuple[int, int, str]:
        """Return the version, the number of micro-batches, and the text of all data."""
        return await self._text(WHOLE)

    async def since(self, batches: int) -> tuple[int, int, str]:
        """Return the same tuple for the data after a number of micro-batches."""
        return await self._text(batches)

    async def _text(self, batches: int) -> tuple[int, int, str]:
        version = self._history.version
        found = self._made.get(batches)
        if found is None or found[0] != version:
            for old in [one for one, (made, _) in self._made.items() if made != version]:
                del self._made[old]
            task = asyncio.create_task(asyncio.to_thread(self._make, batches))
            self._made[batches] = found = version, task
        return await asyncio.shield(found[1])

    def _make(self, batches: int) -> tuple[int, int, str]:
        data = self._history.whole() if batches == WHOLE else self._history.since(batches)
        return data["version"], data["batches"], _json(data)


class OpenStreams:
    """Counts the open streams of events.

    Args:
        most: The maximum number of streams.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0

    @property
    def is_full(self) -> bool:
        """True if there is no room for another client."""
        return self.open >= self.most


class EventStream(StreamingResponse):
    """A stream of events of a history, until the server stops or its time is up.

    Args:
        texts: The JSON texts of the history.
        history: The history.
        streams: Counts this stream.
        is_over: Returns True when the server stops.
        seconds: The maximum duration; browsers then open another stream.
        headers: Further headers.
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
        events = _events(texts, history, is_over, seconds)
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


async def _events(
    texts: EventTexts, history: History, is_over: Callable[[], bool], seconds: float
) -> AsyncIterator[str]:
    """Yield events; the framework cancels this when the client disconnects."""
    end = time.monotonic() + seconds
    version, batches, text = await texts.whole()
    yield f"retry: 1000\nevent: whole\ndata: {text}\n\n"
    silent = 0.0
    ending = False
    while not ending:
        await asyncio.sleep(POLL_INTERVAL_S)
        ending = is_over() or time.monotonic() > end  # after sending the last change
        silent += POLL_INTERVAL_S
        if history.version != version:
            version, batches, text = await texts.since(batches)
            yield f"event: more\ndata: {text}\n\n"
            silent = 0.0
        elif silent >= KEEP_ALIVE_INTERVAL_S:
            yield ": still here\n\n"
            silent = 0.0


def _json(value: Any) -> str:
    """Convert a value to one line of JSON; NaN and infinity become null."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
