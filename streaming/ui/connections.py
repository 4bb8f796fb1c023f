"""Connections of the live page: limits on their number, memory and duration.

The page shares its process with the sink. So every resource that a client of the page can use has
a limit, and the larger part of the file descriptors is reserved for the sink:

======================  ==========================================================================
connections             in total and per address. When a limit is reached, the page closes the
                        connection that has waited longest without a complete request, and accepts
                        the new one; if no connection is waiting, it closes the new connection
file descriptors        a new connection is closed while the process has few of them left
accepting               one connection at a time, with a pause after each. A burst waits in the
                        queue of the kernel, where it costs this process nothing. When accepting
                        fails (EMFILE), the page waits and tries again
time for a request      from the connection to the end of the request header, regardless of how
                        the bytes are spread over this time
time between requests   from the end of a response to the end of the next request header
time to read            a connection is closed if its client reads nothing of a response for so
                        long
header, buffers         bytes of a request header; bytes that the kernel and the process buffer
======================  ==========================================================================

Alternatives considered: uvicorn's ``limit_concurrency`` counts connections, but sends a response
instead of closing them. Its keep-alive timer starts only after a request, and a single byte stops
the timer. It has no time limit for the request header. A semaphore before accepting would limit the
descriptors, too, but clients that send nothing could then keep all others waiting.
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

ACCEPT_PAUSE_S: Final = 0.004  # after an accepted connection
BUSY_PAUSE_S: Final = 0.01  # after a connection if a limit was reached, so that one was closed
RETRY_S: Final = 0.5  # after accepting has failed
#: The errors that accepting raises while the process or the machine lacks resources.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Limits:
    """Limits on the resources that clients of the page can use.

    Attributes:
        connections: Maximum number of open connections.
        per_address: Maximum number of open connections from one address.
        streams: Maximum number of event streams (server-sent events).
        request_seconds: Time from the connection to the end of the first request header.
        idle_seconds: Time from the end of a response to the end of the next request header, and
            the time that a client has to read the last response of a connection.
        stalled_seconds: Maximum time in which a client reads nothing of a response.
        stream_seconds: Maximum duration of an event stream; browsers then open another one.
        header_bytes: Maximum size of a request header.
        buffer_bytes: Size of the kernel's send buffer of one connection.
        backlog: Number of connections that the kernel queues before they are accepted.
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
        """The default limits, with at most an eighth of the open files of the process."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return cls()
        connections = max(4, min(cls.connections, files // 8))
        return cls(
            connections=connections,
            per_address=max(4, connections // 2),
            streams=max(1, connections // 4),
        )


class Connections:
    """The open connections of a page; decides which one to close to make room for a new one.

    Args:
        limits: The maximum number of connections, in total and per address.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        #: Logger for errors in requests.
        self.log = logging.Logger(log.name, logging.ERROR)
        self.log.parent = log
        self.log.addFilter(_FirstError())
        #: Number of connections closed or rejected because a limit was reached.
        self.refused = 0
        self._addresses: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()
        # Connections without a complete request, in the order in which they began to wait.
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def make_room(self, address: str, descriptor: int) -> bool:
        """Return whether a new connection may stay, after closing another one if necessary.

        Args:
            address: The address that the new connection comes from.
            descriptor: The file descriptor of the new connection. The kernel assigns the lowest
                free number, so the process uses at least this many descriptors.
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
        """Register a connection, which now waits for its first request."""
        self._addresses[connection] = address
        self._counts[address] += 1
        self._waiting[connection] = None

    def remove(self, connection: Connection) -> None:
        """Remove a connection, if it is registered."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            self._counts += Counter()  # addresses without connections are dropped
        self._waiting.pop(connection, None)

    def wait(self, connection: Connection, *, is_waiting: bool) -> None:
        """Record that a connection now waits for a request, or that its request has arrived."""
        self._waiting.pop(connection, None)
        if is_waiting and connection in self._addresses:
            self._waiting[connection] = None

    def close_all(self) -> None:
        """Close every connection at once."""
        for connection in list(self._addresses):
            connection.abort()

    def _refuse(self, reason: str) -> bool:
        if not self.refused:
            log.warning(
                "the live page closes connections: %s; this is logged once, the sink continues",
                reason,
            )
        self.refused += 1
        return False


class _FirstError(logging.Filter):
    """Logs only the first error, so that clients cannot fill the log.

    A request that violates the HTTP protocol is not an error of the page and is never logged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_first = True

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, h11.ProtocolError):
            return False
        is_first, self._is_first = self._is_first, False
        return is_first


class Connection(H11Protocol):
    """One connection, with a time limit for each of its states.

    While the connection waits for a request, its deadline is fixed and does not move when bytes
    arrive. While the response is sent, the connection has no deadline; it is closed only if the
    client reads nothing for ``stalled_seconds``.

    Args:
        connections: The open connections of the page, which this one is added to.
        address: The address of the client.
        options: Arguments of uvicorn's protocol.
    """

    def __init__(self, connections: Connections, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.logger = connections.log
        self._connections = connections
        self._address = address
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # The request that is being answered, and its response.
        self._open_cycle: object | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        # One read returns at most this much, so a header that is too long is never read whole.
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
        """Parse received bytes; they may complete a request."""
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        super().on_response_complete()
        self._update_deadline()

    def pause_writing(self) -> None:
        """The client reads too slowly: start the timer that closes the connection."""
        super().pause_writing()
        self._set_stalled(is_stalled=True)

    def resume_writing(self) -> None:
        """The client has read something: stop the timer."""
        super().resume_writing()
        self._set_stalled(is_stalled=False)

    def abort(self) -> None:
        """Close the connection at once, without sending the buffered bytes."""
        self._connections.remove(self)
        self.transport.abort()

    def _update_deadline(self) -> None:
        """Set the deadline if the connection has begun or finished a response, or is closing."""
        cycle = self.cycle
        open_cycle = None if cycle is None or cycle.response_complete else cycle
        if open_cycle is self._open_cycle and not self.transport.is_closing():
            return
        self._open_cycle = open_cycle
        self._connections.wait(self, is_waiting=open_cycle is None)
        is_over = open_cycle is None or self.transport.is_closing()
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
        connections: The open connections of the page, which new ones are added to.
        options: Arguments of uvicorn's protocol.

    Raises:
        OSError: The listener cannot be used any more.
    """
    loop = asyncio.get_running_loop()
    is_logged = False
    while True:
        try:
            client, address = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno == errno.ECONNABORTED:
                continue
            if error.errno not in EXHAUSTED:
                raise
            if not is_logged:
                log.warning(
                    "the live page cannot accept connections now: %s; it tries again, the sink "
                    "continues",
                    error.strerror,
                )
            is_logged = True
            connections.close_longest_waiting()
            await asyncio.sleep(RETRY_S)
            continue
        refused, host = connections.refused, str(address[0])
        try:
            if connections.make_room(host, client.fileno()):
                _set_kernel_limits(client, connections.limits)
                connection = Connection(connections, host, **options)
                await loop.connect_accepted_socket(partial(_identity, connection), client)
            else:
                client.close()
        except OSError:  # the client has closed it already
            client.close()
        await asyncio.sleep(ACCEPT_PAUSE_S if connections.refused == refused else BUSY_PAUSE_S)


def _identity(connection: Connection) -> Connection:
    return connection


def _set_kernel_limits(client: socket.socket, limits: Limits) -> None:
    """Limit the kernel's send buffer, and how long the kernel keeps an unreachable connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.buffer_bytes)
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        milliseconds = int(1000 * limits.stalled_seconds)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
