"""Application: the page, its files and its stream of events, all read-only.

::

    GET /                 the page, or the sign-in form if a token is set and there is no session
    POST /sign-in         the token from that form; begins a session
    GET /assets/NAME      scripts, styles and icon, from this package
    GET /events           server-sent events: ``snapshot`` first, then ``update`` for each change,
                          and ``snapshot`` again when the views have changed
    GET /snapshot         the data of the event ``snapshot``, once, for scripts
    GET /metrics          the metrics of the sink (`streaming.monitoring.prometheus`)
    GET /healthz, /readyz the health of the sink, without a token

Without a token the application answers only requests to the names of this machine, so that a page
of another site cannot read it through its own name for this address (DNS rebinding). With a token
it answers requests to any name, and every request needs a session, which is a cookie, or
``Authorization: Bearer TOKEN``. A token in a URL is ignored, because URLs are stored in histories
and logs.

Requests from pages of other sites are refused in any case, because browsers send the origin of a
request, and no response allows other sites to read it (CORS). The content security policy forbids
everything from elsewhere, so only files of this package are loaded, whatever a value in a row looks
like; values become text nodes, never markup.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.errors import MonitoringError
from streaming.monitoring.monitor import SinkMonitor
from streaming.monitoring.server import import_prometheus
from streaming.ui.access import ATTEMPTS_WINDOW_S, SESSION_LIFETIME_S, Access
from streaming.ui.events import EventStream, EventTexts, OpenStreams
from streaming.ui.history import History

__all__ = ["application"]

COOKIE_PREFIX: Final = "dbsp-wcoj-session"
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
CHECK_PATHS: Final = ("/healthz", "/readyz")
#: Paths that need no session.
PUBLIC_PATHS: Final = ("/sign-in", "/assets/sign-in.css", "/assets/icon.svg", *CHECK_PATHS)
MAX_FORM_BYTES: Final = 4096
FORM_TIMEOUT_S: Final = 5.0
RETRY_AFTER_S: Final = 5
MAX_REQUESTS_PER_S: Final = 200.0
MAX_REQUEST_BURST: Final = 50
#: By the suffix of a file; other files are not served.
MEDIA_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
#: The placeholder for a remark in the form.
REMARK_PLACEHOLDER: Final = b"<!-- remark -->"


def application(
    history: History,
    *,
    token: str | None = None,
    streams: OpenStreams,
    stream_seconds: float,
    is_over: Callable[[], bool] = lambda: False,
    monitor: SinkMonitor | None = None,
) -> Starlette:
    """Create the application of a page.

    Args:
        history: The data of the page.
        token: The token that visitors need; None to answer names of this machine only.
        streams: The open streams of events, and their maximum number.
        stream_seconds: The maximum duration of a stream.
        is_over: Returns True when the server stops, so that streams end.
        monitor: The monitor of the sink; without it, there are no metrics.
    """
    assets = {
        entry.name: entry.read_bytes()
        for entry in (files("streaming.ui") / "assets").iterdir()
        if entry.is_file()
    }
    access = None if token is None else Access(token)
    texts = EventTexts(history)

    def form(status: int, remark: str = "") -> Response:
        html = assets["sign-in.html"].replace(REMARK_PLACEHOLDER, remark.encode())
        return Response(
            html, status, {"connection": "close"}, media_type="text/html; charset=utf-8"
        )

    async def page(request: Request) -> Response:
        if access is not None and not _is_authorized(access, request):
            return form(401)
        return Response(assets["page.html"], media_type="text/html; charset=utf-8")

    async def sign_in(request: Request) -> Response:
        if access is None:
            return _refuse(404, "There is nothing to sign in to.")
        if access.is_blocked(_address(request)):
            return form(429, f"Too many attempts: wait {ATTEMPTS_WINDOW_S:.0f} seconds.")
        token_text = await _token_of_form(request)
        if token_text is None:
            return _refuse(400, "This is not the form to sign in.")
        if not access.is_token(token_text, _address(request)):
            return form(403, "This is not the token.")
        response = RedirectResponse("/", status_code=303)
        is_encrypted = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        response.set_cookie(
            _cookie(request.scope),
            access.begin_session(),
            max_age=int(SESSION_LIFETIME_S),
            httponly=True,
            samesite="strict",
            secure=is_encrypted,
        )
        return response

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        media_type = MEDIA_TYPES.get(name[name.rfind(".") :])
        if media_type is None or name not in assets:
            return _refuse(404, "There is no such file.")
        return Response(assets[name], media_type=media_type)

    async def events(request: Request) -> Response:
        headers = {"x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        if streams.is_full:
            return _refuse(
                503,
                f"{streams.max_streams} pages are open already: close one.",
                {"retry-after": str(RETRY_AFTER_S)},
            )
        return EventStream(
            texts, history, streams, is_over=is_over, seconds=stream_seconds, headers=headers
        )

    async def snapshot(request: Request) -> Response:
        text = (await texts.snapshot()).text
        return Response(text, media_type="application/json")

    metrics_registry: list[Any] = []  # made by the first request

    def metrics_response(accept: str) -> Response:
        assert monitor is not None
        try:
            prometheus = import_prometheus()
        except MonitoringError as error:
            return _refuse(501, str(error))
        if not metrics_registry:
            metrics_registry.append(prometheus.registry_of(monitor))
        text, media_type = prometheus.metrics_text(metrics_registry[0], accept)
        return Response(text, media_type=media_type)

    async def metrics(request: Request) -> Response:
        return await asyncio.to_thread(metrics_response, request.headers.get("accept", ""))

    async def check(request: Request) -> Response:
        assert monitor is not None
        is_health = request.url.path == "/healthz"
        result = monitor.health() if is_health else monitor.readiness()
        # The reason may name views, operators and targets.
        reason = result.reason
        if access is not None and not _is_authorized(access, request):
            reason = "ok" if result.ok else "not ok; the reason needs the token of the page"
        return Response(
            f"{reason}\n", 200 if result.ok else 503, media_type="text/plain; charset=utf-8"
        )

    monitoring = [Route("/metrics", metrics), *(Route(path, check) for path in CHECK_PATHS)]
    return Starlette(
        routes=[
            *(monitoring if monitor is not None else ()),
            Route("/", page),
            Route("/sign-in", sign_in, methods=["POST"]),
            Route("/assets/{name}", asset),
            Route("/events", events),
            Route("/snapshot", snapshot),
        ],
        middleware=[Middleware(Guard, access=access)],
    )


class RateLimiter:
    """Delays requests beyond a rate, because responses take time from the sink.

    Each request takes the next slot of time, of ``1 / per_second`` seconds.

    Args:
        per_second: The maximum rate in the long run.
        burst: The maximum number of requests without a delay.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        per_second: float = MAX_REQUESTS_PER_S,
        burst: int = MAX_REQUEST_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_per_request = 1 / per_second
        self._burst_seconds = burst * self._seconds_per_request
        self._clock = clock
        self._next_slot = float("-inf")

    def delay(self) -> float:
        """Reserve the next slot, and return the seconds until it starts."""
        now = self._clock()
        slot = max(self._next_slot, now - self._burst_seconds)
        self._next_slot = slot + self._seconds_per_request
        return max(0.0, slot - now)


class Guard:
    """Refuses unauthorized requests, and adds the security headers to all responses.

    Args:
        app: The application, which answers authorized requests.
        access: The access control; without it, only requests to this machine's names are answered.
    """

    def __init__(self, app: ASGIApp, access: Access | None) -> None:
        self._app = app
        self._access = access
        self._limiter = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [
                    (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
                ]
                names = {name for name, _ in added}
                others = [(n, v) for n, v in message.get("headers", []) if n.lower() not in names]
                message = {**message, "headers": [*others, *added]}
            await send(message)

        delay = self._limiter.delay()
        if delay:
            await asyncio.sleep(delay)
        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        path = request.url.path
        allowed = ("POST",) if path == "/sign-in" else ("GET", "HEAD")
        if request.method not in allowed:
            return _refuse(405, "This page can only be read.", {"allow": ", ".join(allowed)})
        if path != "/" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _refuse(403, "Pages of other sites cannot read this one.")
        if self._access is None:
            if _is_local(request.headers.get("host", "")):
                return None
            return _refuse(421, f"This page answers to {', '.join(LOCAL_NAMES)} only.")
        if path == "/" or path in PUBLIC_PATHS or _is_authorized(self._access, request):
            return None
        if self._access.is_blocked(_address(request)):
            return _refuse(429, f"Too many attempts: wait {ATTEMPTS_WINDOW_S:.0f} seconds.")
        return _refuse(
            401, "This page needs its token: sign in at /, or send Authorization: Bearer TOKEN."
        )


def _is_authorized(access: Access, request: Request) -> bool:
    """Return whether a request has a session, or the token in its header."""
    session = request.cookies.get(_cookie(request.scope))
    if session is not None and access.is_session(session):
        return True
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or access.is_blocked(_address(request)):
        return False
    return access.is_token(bearer.strip(), _address(request))


async def _token_of_form(request: Request) -> str | None:
    """Return the token of a sign-in form; None for another form, a long or a late one."""
    content = bytearray()
    try:
        async with asyncio.timeout(FORM_TIMEOUT_S):
            async for part in request.stream():
                content += part
                if len(content) > MAX_FORM_BYTES:
                    return None
        (token,) = parse_qs(content.decode("ascii"), strict_parsing=True, max_num_fields=1)["token"]
    except (TimeoutError, ClientDisconnect, ValueError, KeyError):
        return None
    return token.strip()


def _is_local(host: str) -> bool:
    """Return whether a Host header names this machine without a name server."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _cookie(scope: Scope) -> str:
    """Return the name of the cookie, one for each port, because cookies belong to a host."""
    return f"{COOKIE_PREFIX}-{(scope.get('server') or ('', 0))[1]}"


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal that closes the connection, so that refused clients keep none open."""
    return Response(
        f"{text}\n",
        status,
        {"connection": "close", **(headers or {})},
        media_type="text/plain; charset=utf-8",
    )
