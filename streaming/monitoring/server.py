"""Server: /metrics, /healthz and /readyz on a port of their own, without the live page.

::

    GET /metrics     the metrics in the format of Prometheus
    GET /healthz     200 if the sink is healthy, otherwise 503; the reason in one line
    GET /readyz      200 if the sink is ready, otherwise 503; the reason in one line

The answers contain numbers and names of inputs, views, operators and constants of the query, but no
rows. The connections are not encrypted and need no token, so the server listens on this machine
only unless another host is given.

The server runs in the process of the sink. So that clients cannot use up its threads, the number of
connections and the seconds of each are limited, and further connections are closed at once.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from streaming.errors import MonitoringError
from streaming.monitoring.monitor import Check, SinkMonitor
from streaming.sink.view_sink import ViewSink

__all__ = ["MetricsServer", "check_metrics_address", "import_prometheus", "serve_metrics"]

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 8
MAX_CONNECTION_S: Final = 10.0
STOP_POLL_INTERVAL_S: Final = 0.1
TEXT: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves the metrics and the health of a sink until ``stop``.

    Args:
        monitor: The monitor of the sink.
        host: The address to serve on. Every machine that reaches it can read the metrics.
        port: The port; 0 for a free port.

    Raises:
        MonitoringError: The port is in use, or the extra ``metrics`` is not installed.
    """

    def __init__(self, monitor: SinkMonitor, *, host: str = "127.0.0.1", port: int) -> None:
        self.monitor = monitor
        prometheus = import_prometheus()
        registry = prometheus.registry_of(monitor)

        class Handler(_Handler):
            def metrics(self) -> tuple[bytes, str]:
                text: tuple[bytes, str] = prometheus.metrics_text(
                    registry, self.headers.get("accept", "")
                )
                return text

            def check(self, name: str) -> Check:
                return monitor.health() if name == "healthz" else monitor.readiness()

        self._callbacks = ExitStack()
        self._server = _bind(host, port, Handler)
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(STOP_POLL_INTERVAL_S,),
            name="dbsp-wcoj-metrics",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """The URL of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call a function when the server is stopped, such as one that removes an observer."""
        self._callbacks.callback(callback)

    def stop(self) -> None:
        """Stop serving."""
        with self._callbacks:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; each connection has a thread of its own."""

    timeout = MAX_CONNECTION_S
    server_version = "dbsp-wcoj"
    sys_version = ""

    def metrics(self) -> tuple[bytes, str]:
        raise NotImplementedError

    def check(self, name: str) -> Check:
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer with metrics or the result of a check."""
        path = self.path.partition("?")[0].rstrip("/")
        status = HTTPStatus.OK
        try:
            if path == "/metrics":
                body, media_type = self.metrics()
            elif path in ("/healthz", "/readyz"):
                result = self.check(path[1:])
                body, media_type = f"{result.reason}\n".encode(), TEXT
                status = HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE
            else:
                body, media_type = b"/metrics, /healthz or /readyz\n", TEXT
                status = HTTPStatus.NOT_FOUND
        except Exception as error:  # the sink continues, whatever happens here
            log.warning("%s cannot be answered", path, exc_info=True)
            body, media_type = f"{type(error).__name__}\n".encode(), TEXT
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log no line for a request."""


class _LimitedServer(ThreadingHTTPServer):
    """Serves a limited number of connections, each for a limited time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._free_connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind the socket, without a look-up of the name of the host."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; close the connection if there are too many."""
        if not self._free_connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no more threads
            self._free_connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and close its connection after a time even if the client is slow."""
        watchdog = threading.Timer(MAX_CONNECTION_S, self.shutdown_request, (request,))
        watchdog.daemon = True
        try:
            watchdog.start()
            super().process_request_thread(request, client_address)
        finally:
            watchdog.cancel()
            self._free_connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, such as a client that has gone."""


class _LimitedServerV6(_LimitedServer):
    address_family = socket.AF_INET6


def check_metrics_address(host: str, port: int) -> None:
    """Check that metrics can be served now on a host and port.

    Raises:
        MonitoringError: As for `MetricsServer`.
    """
    import_prometheus()
    _bind(host, port, _Handler).server_close()


def import_prometheus() -> ModuleType:
    """Return `streaming.monitoring.prometheus`, which needs an extra.

    Raises:
        MonitoringError: The extra is not installed.
    """
    try:
        return import_module("streaming.monitoring.prometheus")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise MonitoringError(
            "metrics need the package prometheus_client, which is not installed: "
            "run pip install 'dbsp-wcoj[metrics]'"
        ) from None


def serve_metrics(
    sink: ViewSink,
    *,
    host: str = "127.0.0.1",
    port: int,
    max_commit_age: float | None = None,
) -> MetricsServer:
    """Serve the metrics and the health of a sink, from its next micro-batch on until it is stopped.

    Args:
        sink: A sink in this process. In Spark Connect the sink runs in another process.
        host: As for `MetricsServer`.
        port: As for `MetricsServer`.
        max_commit_age: As for `SinkMonitor`.

    Raises:
        MonitoringError: As for `MetricsServer`.
    """
    check_metrics_address(host, port)
    with ExitStack() as on_error:
        monitor = SinkMonitor(sink, max_commit_age=max_commit_age)
        on_error.callback(monitor.stop)
        server = MetricsServer(monitor, host=host, port=port)
        server.on_stop(on_error.pop_all().close)
    return server


def _bind(host: str, port: int, handler: type[_Handler]) -> _LimitedServer:
    kind = _LimitedServerV6 if ":" in host else _LimitedServer
    try:
        return kind((host, port), handler)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise MonitoringError(
            f"metrics cannot be served on {host}, port {port}: {reason}; choose another port, or 0 "
            "for a free port"
        ) from None
