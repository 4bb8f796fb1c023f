"""Server: the application, served in a thread of its own.

uvicorn is given a socket that is bound already, so that a port in use is an error of who asks for
the page, and port 0 is a free one that is known at once. The thread is a daemon: a page never
keeps a process alive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import threading
import time
from typing import Final

import uvicorn

from streaming.errors import PageError
from streaming.ui.application import OFTEN, application
from streaming.ui.history import History

__all__ = ["Server", "check_place"]

SHORTEST: Final = 8  # characters of a token

PATIENCE: Final = 10.0  # seconds to begin and to end


class Server:
    """Serves a history until ``stop``.

    Args:
        history: What is shown.
        host: An address of this machine, or with a token any.
        port: 0 for a free one.
        token: What a visitor has to know; for other hosts than this machine.

    Raises:
        PageError: Others could come without a token, or the port is in use.
    """

    def __init__(
        self,
        history: History,
        *,
        host: str = "127.0.0.1",
        port: int = 8765,
        token: str | None = None,
    ) -> None:
        _check_host(host, token)
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._token = token
        self._over = threading.Event()
        config = uvicorn.Config(
            application(history, token=token, is_over=self._over.is_set),
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="dbsp-wcoj-page", daemon=True)
        self._thread.start()
        end = time.monotonic() + PATIENCE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self._socket.close()
                raise PageError(f"the page could not be served on {host}, port {self.port}")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """Where the page is; with the token, if it needs one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        token = "" if self._token is None else f"?token={self._token}"
        return f"http://{host}:{self.port}/{token}"

    def stop(self) -> None:
        """Stop serving."""
        self._over.set()
        time.sleep(2 * OFTEN)  # in which pages are told the last
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def check_place(host: str, port: int, token: str | None) -> None:
    """Refuse a place where a page cannot be served, as far as can be told now.

    Raises:
        PageError: As for `Server`.
    """
    _check_host(host, token)
    _bound(host, port).close()


def _check_host(host: str, token: str | None) -> None:
    if token is not None and len(token) < SHORTEST:
        raise PageError(
            f"the token has {len(token)} characters: give {SHORTEST} or more, such as "
            f"{secrets.token_urlsafe(12)}"
        )
    if token is None and not _is_local(host):
        raise PageError(
            f"the page would be open to others on {host}: give a token that they have to "
            "know, or keep it to this machine on 127.0.0.1"
        )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(64)
    except OSError as error:
        found.close()
        raise PageError(
            f"the page cannot be served on {host}, port {port}: {error.strerror or error}; choose "
            "another port, or 0 for a free one"
        ) from None
    return found


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
