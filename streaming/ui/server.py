"""Server: serve the application in its own thread.

The socket is bound before the thread starts, so a port in use is an error in the caller of
`Server`, and port 0 selects a free port that is known at once. The thread is a daemon: a page never
keeps a process alive. If the thread ends with an error, the error is logged, and the sink continues
without a page.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
import time
from typing import Any, Final

import uvicorn

from streaming.errors import PageError
from streaming.monitoring.monitor import SinkMonitor
from streaming.ui.access import check_token
from streaming.ui.application import application
from streaming.ui.connections import Connections, Limits, accept
from streaming.ui.events import POLL_INTERVAL_S, OpenStreams
from streaming.ui.history import History

__all__ = ["Server", "check_address"]

log = logging.getLogger(__name__)

START_STOP_TIMEOUT_S: Final = 10.0  # to start and to stop the thread
GRACE_S: Final = 1.0  # to finish responses when the page stops


class Server:
    """Serves a history until ``stop``.

    Args:
        history: The data of the page.
        host: A loopback address; with a token, any address of this machine.
        port: The port; 0 for a free port.
        token: The secret text that visitors have to type; required unless ``host`` is a loopback
            address.
        limits: The limits on the resources of clients; by default derived from the limits of the
            process.
        monitor: The monitor of the sink, for the metrics; None without a sink.

    Raises:
        PageError: Other machines could open the page without a token, or the port is in use.
    """

    def __init__(
        self,
        history: History,
        *,
        host: str = "127.0.0.1",
        port: int = 8765,
        token: str | None = None,
        limits: Limits | None = None,
        monitor: SinkMonitor | None = None,
    ) -> None:
        _check_host(host, token)
        self.connections = Connections(limits or Limits.of_process())
        self._socket = _bind_socket(host, port, self.connections.limits.backlog)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._over = threading.Event()
        self.streams = OpenStreams(self.connections.limits.streams)
        app = application(
            history,
            token=token,
            streams=self.streams,
            stream_seconds=self.connections.limits.stream_seconds,
            is_over=self._over.is_set,
            monitor=monitor,
        )
        config = uvicorn.Config(
            app,
            access_log=False,
            h11_max_incomplete_event_size=self.connections.limits.header_bytes,
            http="h11",
            lifespan="off",
            log_config=None,  # the user configures the logging of this process
            log_level="error",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=int(self.connections.limits.idle_seconds) + 1,
            ws="none",
        )
        self._server = _LimitedServer(config, self.connections)
        self._thread = threading.Thread(target=self._serve, name="dbsp-wcoj-page", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._socket.close()
            raise PageError(f"the page could not be served: {error}") from None
        end = time.monotonic() + START_STOP_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self._socket.close()
                raise PageError(f"the page could not be served on {host}, port {self.port}")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """The URL of the page, without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    @property
    def is_serving(self) -> bool:
        """True until the page is stopped or fails."""
        return self._thread.is_alive() and not self._over.is_set()

    def stop(self) -> None:
        """Stop serving."""
        was_serving = self.is_serving
        self._over.set()
        if was_serving:
            time.sleep(2 * POLL_INTERVAL_S)  # meanwhile the streams send the last event
        self._server.should_exit = True
        self._thread.join(START_STOP_TIMEOUT_S)
        self._socket.close()

    def _serve(self) -> None:
        try:
            # asyncio's own event loop, whatever policy the process has: its ``sock_accept``
            # accepts one connection at a time.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._server.serve(sockets=[self._socket]))
            reason: object = self._server.failure or "it was stopped from outside"
        except BaseException as error:  # only this thread ends
            reason = error
        if not self._over.is_set():
            log.warning(
                "the live page on %s has ended, the sink continues without it: %s",
                self.address,
                str(reason) or type(reason).__name__,
            )


class _LimitedServer(uvicorn.Server):
    """uvicorn's server, which accepts connections within limits."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self.failure: BaseException | None = None
        self._connections = connections
        self._accepting: asyncio.Task[None] | None = None
        self._errors = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections on the socket."""
        (listener,) = sockets or []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_first_error)
        self.servers = []
        options = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        self._accepting = loop.create_task(accept(listener, self._connections, options))
        self._accepting.add_done_callback(self._stop_on_failure)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting; wait for up to ``GRACE_S`` until the responses are complete."""
        if self._accepting is not None:
            self._accepting.cancel()
        end = time.monotonic() + GRACE_S
        while self.server_state.tasks and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._connections.close_all()
        for _ in range(3):  # the event loop runs the callbacks of the closed connections
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def _stop_on_failure(self, accepting: asyncio.Task[None]) -> None:
        """Stop the server if accepting has failed."""
        if not accepting.cancelled():
            self.failure = accepting.exception()
            self.should_exit = True

    def _log_first_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log only the first error of a callback, so that clients cannot fill the log."""
        self._errors += 1
        if self._errors == 1:
            log.warning(
                "an error of the live page, further ones are not logged: %s",
                context.get("message"),
                exc_info=context.get("exception"),
            )


def check_address(host: str, port: int, token: str | None) -> None:
    """Check that a page can be served now on a host and port.

    Raises:
        PageError: As for `Server`.
    """
    _check_host(host, token)
    _bind_socket(host, port, 1).close()


def _check_host(host: str, token: str | None) -> None:
    if token is not None:
        check_token(token)
    if token is None and not _is_local(host):
        raise PageError(
            f"other machines could open the page on {host}: require a token, or serve it only to "
            "this machine, on 127.0.0.1"
        )


def _bind_socket(host: str, port: int, backlog: int) -> socket.socket:
    listener = None
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
        listener.setblocking(False)
    except (OSError, OverflowError, TypeError) as error:  # TypeError: not the name of a host
        if listener is not None:
            listener.close()
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise PageError(
            f"the page cannot be served on {host}, port {port}: {reason}; choose another "
            "port, or 0 for a free port"
        ) from None
    return listener


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
