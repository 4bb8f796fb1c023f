"""Page: a live page of a running sink.

::

    sink = ViewSink(circuit, targets, state_dir="state/")
    page = serve(sink)                  # prints nothing; page.address is its URL
    query = stream.writeStream.foreachBatch(sink).start()
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from circuits import Circuit
from streaming.errors import PageError
from streaming.monitoring.monitor import SinkMonitor
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.sink.view_sink import ViewSink
from streaming.ui.history import History

if TYPE_CHECKING:
    from streaming.ui.server import Server

__all__ = ["PORT", "Page", "check_servable", "serve"]

log = logging.getLogger(__name__)

PORT: Final = 8765
PACKAGES: Final = ("starlette", "uvicorn", "anyio", "h11", "click")


class Page(SinkObserver):
    """A served page and its history.

    Args:
        circuit: The circuit of the views, as it is before the first micro-batch of the page.
        name: The title of the page.
        host: The address to serve the page on. Other machines can open the page unless this is a
            loopback address.
        port: The port; 0 for a free port.
        token: The secret text that visitors have to type; required if other machines can open the
            page. See `streaming.ui.access.read_token_file`.
        monitor: The monitor of the sink, if the page also serves ``/metrics``, ``/healthz`` and
            ``/readyz`` (`streaming.monitoring`).

    Raises:
        PageError: The page cannot be served on this host and port, or a package is not installed.
    """

    def __init__(
        self,
        circuit: Circuit,
        *,
        name: str = "views",
        host: str = "127.0.0.1",
        port: int = PORT,
        token: str | None = None,
        monitor: SinkMonitor | None = None,
    ) -> None:
        server = _import_server()
        self._callbacks = contextlib.ExitStack()
        self.history = History(circuit, name=name)
        self._server: Server = server.Server(
            self.history, host=host, port=port, token=token, monitor=monitor
        )

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
        """The URL of the page, without the token; the page itself asks for the token."""
        return self._server.address

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Add a micro-batch to the page; call it directly if there is a circuit but no sink.

        An error of the page is logged, so that it does not stop the stream.
        """
        try:
            self.history.batch_completed(published, metrics)
        except Exception:
            log.warning(
                "the live page could not show micro-batch %d", published.batch_id, exc_info=True
            )

    def views_changed(self, circuit: Circuit) -> None:
        """Show other views from now on."""
        self.history.views_changed(circuit)

    def end(self, reason: str = "", *, failed: bool = False) -> None:
        """Show on the page that the stream has ended, and the reason."""
        self.history.end(reason, failed=failed)

    def wait_for_interrupt(self, console: Any) -> None:
        """Continue to serve until Ctrl-C if ``console``, of the library rich, is a terminal."""
        if not console.is_terminal:
            return
        console.print("The page is served until Ctrl-C.", style="dim")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call a function when the page is stopped, such as one that removes an observer."""
        self._callbacks.callback(callback)

    def stop(self) -> None:
        """Stop serving."""
        with self._callbacks:
            self._server.stop()


def check_servable(*, host: str = "127.0.0.1", port: int = PORT, token: str | None = None) -> None:
    """Check that a page can be served, before there is a circuit.

    Raises:
        PageError: Other machines could open the page without a token, the port is in use, or a
            package is not installed.
    """
    _import_server().check_address(host, port, token)


def _import_server() -> ModuleType:
    try:
        return import_module("streaming.ui.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise PageError(
            f"the page needs the package {error.name}, which is not installed: "
            "run pip install 'dbsp-wcoj[ui]'"
        ) from None


def serve(
    sink: ViewSink,
    *,
    name: str = "views",
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    monitor: SinkMonitor | None = None,
) -> Page:
    """Serve a live page of a sink, from its next micro-batch on until the page is stopped.

    The page also serves ``/metrics``, ``/healthz`` and ``/readyz`` (`streaming.monitoring`).

    Args:
        sink: A sink in this process. In Spark Connect the sink runs in another process, which has
            no page.
        name: The title of the page.
        host: As for `Page`.
        port: As for `Page`.
        token: As for `Page`.
        monitor: The monitor of the sink; by default a new one.

    Raises:
        PageError: As for `Page`.
    """
    with contextlib.ExitStack() as on_error:
        if monitor is None:
            monitor = SinkMonitor(sink)
            on_error.callback(monitor.stop)
        page = Page(sink.circuit, name=name, host=host, port=port, token=token, monitor=monitor)
        page.on_stop(on_error.pop_all().close)
    page.on_stop(partial(sink.remove_observer, page))
    sink.add_observer(page)
    return page
