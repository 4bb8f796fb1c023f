"""Connections: how many the page has, what each may hold, and for how long.

The page shares its process with the sink, so whatever a visitor can take has a bound, and the sink
keeps the larger part of the file descriptors:

======================  ==========================================================================
connections             in total and per address. Beyond that the connection that has waited
                        longest without a complete request is closed for the new one; if there is
                        none, the new one is closed
file descriptors        a new connection is closed while the process has few of them left
accepting               one connection at a time, with a pause after each. A burst waits in the
                        queue of the kernel, where it costs this process nothing. When accepting
                        fails (EMFILE), the page waits and tries again
time for a request      from connecting to the end of the header, however the bytes come
time between requests   the same, after an answer
time to read            an answer whose reader takes nothing is cut off
header, buffers         bytes of a header; bytes that the kernel and the process buffer
======================  ==========================================================================

Alternatives considered: uvicorn's ``limit_concurrency`` counts connections, but answers instead of
closing them; its keep-alive time begins after a request, and one byte ends it; it has no limit for
the header's time. A semaphore before accepting would bound the descriptors, too, but lets those who
send nothing keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection", "Connections", "Limits", "accept"]

log = logging.getLogger(__name__)

ACCEPT_PAUSE_S: Final = 0.004
BUSY_PAUSE_S: Final = 0.01
RETRY_S: Final = 0.5
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Limits:
    """What visitors may take.

    Attributes:
        connections: Open connections.
        per_address: Those of one address.
        streams: Streams of events.
        request_seconds: To send a request's header, from connecting on.
        idle_seconds: To send the next one's, and to read the last answer.
        stalled_seconds: For which a reader may take nothing.
        stream_seconds: Of a stream of events; browsers open another one.
        header_bytes: Of a request.
        buffer_bytes: That the kernel keeps for one connection.
        backlog: Connections that the kernel keeps waiting.
    """

    connections: int = 64
    per_address: int = 32
    streams: int = 16
    request_seconds: float = 5.0
    idle_seconds: float = 30.0
    stalled_seconds: float = 30.0
    stream_seconds: float = 3600.0
    header_bytes: int = 16_384
    buffer_bytes: int = 262_144
    backlog: int = 64

    @classmethod
    def of_process(cls) -> Limits:
        """Fewer connections where the process may have few open files: an eighth of them."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return cls()
        most = max(4, min(cls.connections, files // 8))
        return cls(connections=most, per_address=max(4, most // 2), streams=max(1, most // 4))


class Connections:
    """The open connections of a page, and which of them are closed for a new one.

    Args:
        limits: How many there may be.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        #: For errors of requests.
        self.log = logging.Logger(log.name, logging.ERROR)
        self.log.parent = log
        self.log.addFilter(_FirstError())
        #: Connections closed, or not let in, for lack of room.
        self.refused = 0
        self._addresses: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()
        # Those without a complete request, the one that has waited longest first.
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def make_room(self, address: str, descriptor: int) -> bool:
        """Whether there is room for a connection, perhaps by closing another one.

        Args:
            address: Where it comes from.
            descriptor: Its file descriptor. The kernel gives out the lowest that is free, so this
                many are in use.
        """
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY and descriptor >= files - files // 4:
            self.close_longest_waiting()
            return self._refuse("the process has few file descriptors left")
        if self._counts[address] >= self.limits.per_address:
            return self.close_longest_waiting(address) or self._refuse(
                f"{self.limits.per_address} of one address are open"
            )
        if len(self) >= self.limits.connections:
            return self.close_longest_waiting() or self._refuse(f"{len(self)} are open")
        return True

    def close_longest_waiting(self, address: str | None = None) -> bool:
        """Close the connection that has waited longest without a request; False if there is none.

        Complexity:
            O(connections).
        """
        for connection in self._waiting:
            if address in (None, self._addresses[connection]):
                self.refused += 1
                connection.abort()
                return True
        return False

    def add(self, connection: Connection, address: str) -> None:
        """Count a connection; it waits for its first request."""
        self._addresses[connection] = address
        self._counts[address] += 1
        self._waiting[connection] = None

    def remove(self, connection: Connection) -> None:
        """Count a connection no more."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            self._counts += Counter()  # addresses without connections are dropped
        self._waiting.pop(connection, None)

    def wait(self, connection: Connection, *, is_waiting: bool) -> None:
        """Note that a connection waits for a request, from now on, or has sent it."""
        self._waiting.pop(connection, None)
        if is_waiting and connection in self._addresses:
            self._waiting[connection] = None

    def close_all(self) -> None:
        """Close every connection at once."""
        for connection in list(self._addresses):
            connection.abort()

    def _refuse(self, why: str) -> bool:
        if not self.refused:
            log.warning(
                "the live page closes connections: %s; this is said once, the sink goes on", why
            )
        self.refused += 1
        return False


class _FirstError(logging.Filter):
    """Passes one error, for visitors must not be able to fill the log.

    A request that breaks the protocol is no error of the page and is never logged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_first = True

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, h11.ProtocolError):
            return False
        is_first, self._is_first = self._is_first, False
        return is_first


class Connection(H11Protocol):
    """One connection, with a time limit for each of its states.

    Waiting for a request, it has until a fixed moment, however many bytes arrive. While it is
    answered, only a reader that takes nothing ends it.

    Args:
        connections: Where it is counted.
        address: Where it comes from.
        options: As for uvicorn's protocol.
    """

    def __init__(self, connections: Connections, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.logger = connections.log
        self._connections = connections
        self._address = address
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._answering: object | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        # So that a header is never read whole that is longer than it may be.
        transport.max_size = self._connections.limits.header_bytes  # type: ignore[attr-defined]
        self._connections.add(self, self._address)
        self._set_deadline(self._connections.limits.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._connections.remove(self)
        self._set_deadline(None)
        self._set_stalled(is_stalled=False)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take bytes; perhaps they complete a request."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already."""
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        """The reader is slow: it has to take something in time."""
        super().pause_writing()
        self._set_stalled(is_stalled=True)

    def resume_writing(self) -> None:
        """The reader has taken something."""
        super().resume_writing()
        self._set_stalled(is_stalled=False)

    def abort(self) -> None:
        """Close at once, without sending what is buffered."""
        self._connections.remove(self)
        self.transport.abort()

    def _note(self) -> None:
        """Set the deadline of the state that the connection is in, if it is another one."""
        cycle = self.cycle
        now = None if cycle is None or cycle.response_complete else cycle
        if now is self._answering and not self.transport.is_closing():
            return
        self._answering = now
        self._connections.wait(self, is_waiting=now is None)
        is_over = now is None or self.transport.is_closing()
        self._set_deadline(self._connections.limits.idle_seconds if is_over else None)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.abort)

    def _set_stalled(self, *, is_stalled: bool) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        seconds = self._connections.limits.stalled_seconds
        self._stalled = self.loop.call_later(seconds, self.abort) if is_stalled else None


async def accept(listener: socket.socket, connections: Connections, options: Any) -> None:
    """Accept connections until this is cancelled.

    Args:
        listener: A listening socket that does not block.
        connections: Where they are counted.
        options: What uvicorn's protocol is made with.

    Raises:
        OSError: The listener is not usable any more.
    """
    loop = asyncio.get_running_loop()
    is_said = False
    while True:
        try:
            found, address = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno == errno.ECONNABORTED:
                continue
            if error.errno not in EXHAUSTED:
                raise
            if not is_said:
                log.warning(
                    "the live page cannot accept connections now: %s; it tries again, the sink "
                    "goes on",
                    error.strerror,
                )
            is_said = True
            connections.close_longest_waiting()
            await asyncio.sleep(RETRY_S)
            continue
        refused, host = connections.refused, str(address[0])
        try:
            if connections.make_room(host, found.fileno()):
                _bound(found, connections.limits)
                connection = Connection(connections, host, **options)
                await loop.connect_accepted_socket(partial(_same, connection), found)
            else:
                found.close()
        except OSError:  # it has gone already
            found.close()
        await asyncio.sleep(ACCEPT_PAUSE_S if connections.refused == refused else BUSY_PAUSE_S)


def _same(connection: Connection) -> Connection:
    return connection


def _bound(found: socket.socket, limits: Limits) -> None:
    """Bound what the kernel keeps for a connection, and how long for one that has vanished."""
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.buffer_bytes)
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        milliseconds = int(1000 * limits.stalled_seconds)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
