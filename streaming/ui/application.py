"""Application: the page, its files, and its stream of events, read-only.

::

    GET /                 the page
    GET /assets/NAME      its scripts, styles and icon, from this package
    GET /events           server-sent events: ``whole`` first, then ``more`` when there is more
    GET /snapshot         what ``whole`` has, once, for scripts

It answers to the names of this machine only, so that a page of another site cannot read it through
a name of its own that leads here (DNS rebinding). With a token it answers to any name, and every
request has to bring the token: once in the address, ``/?token=...``, which becomes a cookie and is
gone from the address; or as ``Authorization: Bearer ...``.

The policy sent along allows nothing from elsewhere, so what is not in this package is not loaded,
whatever a value in a row may look like; and values become text nodes only, never markup.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.ui.history import History

__all__ = ["OFTEN", "application"]

OFTEN: Final = 0.2  # seconds between two looks at the history, and so between two events
ALIVE: Final = 10.0  # seconds after which a comment says that the server is there
COOKIE: Final = "dbsp-wcoj-token"
LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
ASSETS: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def application(
    history: History,
    *,
    token: str | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Starlette:
    """The application of a page.

    Args:
        history: What it shows.
        token: What every request has to bring; without it, only names of this machine are
            answered to.
        is_over: Whether streams of events are to end, for the server stops.
    """
    assets = {
        entry.name: entry.read_bytes()
        for entry in (files("streaming.ui") / "assets").iterdir()
        if entry.is_file()
    }

    async def page(request: Request) -> Response:
        if token is not None and "token" in request.query_params:
            response: Response = RedirectResponse("/", status_code=303)
            secure = request.url.scheme == "https"
            name = _cookie(request.scope)
            response.set_cookie(name, token, httponly=True, samesite="strict", secure=secure)
            return response
        return Response(assets["page.html"], media_type="text/html; charset=utf-8")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        kind = ASSETS.get(name[name.rfind(".") :])
        if kind is None or name not in assets:
            return _refused(404, "There is no such file.")
        return Response(assets[name], media_type=kind)

    async def events(request: Request) -> Response:
        headers = {"x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(
            _events(history, is_over), media_type="text/event-stream", headers=headers
        )

    async def snapshot(request: Request) -> Response:
        text = await asyncio.to_thread(lambda: _json(history.whole()))
        return Response(text, media_type="application/json")

    return Starlette(
        routes=[
            Route("/", page),
            Route("/assets/{name}", asset),
            Route("/events", events),
            Route("/snapshot", snapshot),
        ],
        middleware=[Middleware(Guard, token=token)],
    )


class Guard:
    """Lets only requests through that may be answered, and adds the headers of all answers.

    Args:
        app: What answers.
        token: As for ``application``.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                names = {name for name, _ in own}
                kept = [(n, v) for n, v in message.get("headers", []) if n.lower() not in names]
                message = {**message, "headers": [*kept, *own]}
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return _refused(405, "This page can only be read.")
        if self._token is None:
            host = request.headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() in LOCAL:
                return None
            return _refused(421, f"This page answers to {', '.join(LOCAL)} only.")
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = [
            request.cookies.get(_cookie(request.scope), ""),
            request.query_params.get("token", "") if request.url.path == "/" else "",
            bearer if scheme.lower() == "bearer" else "",
        ]
        if any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given):
            return None
        return _refused(401, "This page needs its token: open it once as /?token=...")


def _cookie(scope: Scope) -> str:
    """A name for each port, for cookies are those of a host."""
    return f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}"


async def _events(history: History, is_over: Callable[[], bool]) -> AsyncIterator[str]:
    """Events until the server stops; when the reader leaves, the framework cancels it."""
    whole = await asyncio.to_thread(history.whole)
    version, taken = whole["version"], whole["taken"]
    yield f"retry: 1000\nevent: whole\ndata: {_json(whole)}\n\n"
    silent = 0.0
    ending = False
    while not ending:
        await asyncio.sleep(OFTEN)
        ending = is_over()  # and what was said last is still told
        silent += OFTEN
        if history.version != version:
            more = await asyncio.to_thread(history.since, taken)
            version, taken = more["version"], more["taken"]
            yield f"event: more\ndata: {_json(more)}\n\n"
            silent = 0.0
        elif silent >= ALIVE:
            yield ": still here\n\n"
            silent = 0.0


def _json(value: Any) -> str:
    """One line; not-a-number has no JSON and becomes null."""
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


def _refused(status: int, text: str) -> Response:
    return Response(f"{text}\n", status_code=status, media_type="text/plain; charset=utf-8")
