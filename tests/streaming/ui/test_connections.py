"""Connections of the page: their number, and their time limits."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from streaming import ViewSink
from streaming.ui.history import History
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, edges

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from streaming.ui import connections as connections_module
from streaming.ui.connections import Connections, Limits
from streaming.ui.server import Server

GUARD_S = 20  # a guard against a hang, never reached
LINE = b"GET /snapshot HTTP/1.1\r\n"
REQUEST = LINE + b"Host: localhost\r\n\r\n"
STREAM = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"


class PageWithSockets:
    """A served page with given limits, and raw sockets to it."""

    def __init__(self, **limits):
        circuit = compile_sql("SELECT src, dst FROM e", {"e": EDGE}, name="v")
        self.sink = ViewSink(circuit)
        self.history = History(circuit, name="test")
        self.sink.add_observer(self.history)
        self.server = Server(self.history, port=0, limits=Limits(**limits))
        self._sockets = []

    def connect(self, sent=b"", receive_bytes=None):
        client = socket.socket()
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(GUARD_S)
        client.connect(("127.0.0.1", self.server.port))
        if sent:
            client.sendall(sent)
        self._sockets.append(client)
        return client

    def status(self, sent=REQUEST):
        return int(response_head(self.connect(sent)).split()[1])

    def wait_for(self, count):
        """Wait until the page has ``count`` connections."""
        end = time.monotonic() + GUARD_S
        while len(self.server.connections) != count:
            assert time.monotonic() < end, len(self.server.connections)
            time.sleep(0.01)

    def close(self):
        for client in self._sockets:
            client.close()
        self.server.stop()


@pytest.fixture
def serve_page():
    pages = []

    def serve(**limits):
        pages.append(PageWithSockets(**limits))
        return pages[-1]

    yield serve
    for page in pages:
        page.close()


def response_head(connection):
    """Return the status line and headers of a response; empty if the connection is closed."""
    result = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in result:
            part = connection.recv(1)
            if not part:
                return b""
            result += part
    return result


def is_closed(connection):
    """Read until the connection is closed; it times out if it is not."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65_536):
            pass
    return True


@pytest.mark.parametrize(
    "sent", [b"", b"G", LINE, LINE + b"Host: localhost\r\n", REQUEST, REQUEST + b"GET /"]
)
def test_a_connection_without_a_complete_request_is_closed_after_its_timeout(serve_page, sent):
    page = serve_page(request_seconds=0.3, idle_seconds=0.3)
    assert is_closed(page.connect(sent))
    page.wait_for(0)


@pytest.mark.parametrize("before", [b"", REQUEST])
def test_slow_bytes_do_not_extend_a_timeout(serve_page, before):
    page = serve_page(request_seconds=0.5, idle_seconds=0.5)
    connection = page.connect(before + LINE + b"Host: localhost\r\nX-Slow: ")
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 20 * GUARD_S:
            connection.sendall(b"x")
            sent += 1
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and not connection.recv(65_536):
                break
    assert 0 < sent < 20 * GUARD_S
    page.wait_for(0)


def test_a_connection_is_reused_for_further_requests(serve_page):
    page = serve_page(request_seconds=2.0)
    connection = page.connect()
    for _ in range(5):
        connection.sendall(REQUEST)
        result = response_head(connection)
        assert result.startswith(b"HTTP/1.1 200")
        size = int(result.lower().partition(b"content-length:")[2].split()[0])
        while size:
            size -= len(connection.recv(size))
    assert len(page.server.connections) == 1


@pytest.mark.parametrize("size", [10_000, 40_000, 1_000_000])
def test_a_header_has_a_limited_size(serve_page, size):
    page = serve_page(request_seconds=GUARD_S)
    connection = page.connect(LINE + b"Host: localhost\r\n")
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"X-Large: " + b"x" * size + b"\r\n\r\n")
    assert response_head(connection)[9:12] in ((b"200",) if size == 10_000 else (b"400", b""))
    assert page.status() == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff" * 500,
        b"\r\n\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%00?%gg HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: \xff;;==;\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Content-Length: 9999999999\r\n\r\n" + b"x" * 200_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_malformed_requests_are_not_logged_and_do_not_stop_the_page(serve_page, sent, caplog):
    page = serve_page(request_seconds=0.3, idle_seconds=0.3)
    with caplog.at_level(logging.WARNING), contextlib.suppress(ConnectionError):
        assert is_closed(page.connect(sent))
    page.wait_for(0)
    assert caplog.records == []
    assert page.status() == 200


def test_a_new_connection_replaces_the_one_that_waited_longest(serve_page, caplog):
    page = serve_page(connections=4, per_address=4, request_seconds=GUARD_S)
    idle = [page.connect() for _ in range(4)]
    page.wait_for(4)
    assert page.status() == 200
    assert is_closed(idle[0])
    newest = page.connect()
    assert is_closed(idle[1])
    readable, _, _ = select.select([*idle[2:], newest], [], [], 0.2)
    assert readable == []
    assert caplog.records == []


def test_the_number_of_streams_is_bounded_and_none_is_closed_for_a_new_one(serve_page, caplog):
    page = serve_page(connections=4, per_address=4, streams=4)
    streams = [page.connect(STREAM) for _ in range(4)]
    assert all(response_head(stream).startswith(b"HTTP/1.1 200") for stream in streams)
    assert is_closed(page.connect())
    (message,) = caplog.messages
    assert "4 of one address are open" in message
    streams.pop().close()
    page.wait_for(3)
    assert page.status() == 200


def test_too_many_streams_are_asked_to_retry_later(serve_page):
    page = serve_page(streams=2)
    streams = [page.connect(STREAM) for _ in range(2)]
    assert all(response_head(stream).startswith(b"HTTP/1.1 200") for stream in streams)
    result = response_head(page.connect(STREAM))
    assert result.startswith(b"HTTP/1.1 503") and b"retry-after: 5" in result.lower()
    assert page.status() == 200
    streams[0].close()
    end = time.monotonic() + GUARD_S
    while page.status(STREAM) != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_stream_ends_after_its_maximum_duration(serve_page):
    page = serve_page(stream_seconds=0.3)
    connection = page.connect(STREAM)
    assert response_head(connection).startswith(b"HTTP/1.1 200")
    result = b""
    while not result.endswith(b"0\r\n\r\n"):
        part = connection.recv(65_536)
        assert part
        result += part
    assert b"event: snapshot" in result


@pytest.mark.parametrize("sent", [STREAM, REQUEST, REQUEST * 50])
def test_a_client_that_does_not_read_is_disconnected(serve_page, sent):
    page = serve_page(stalled_seconds=0.5, idle_seconds=0.5, buffer_bytes=4096)
    page.history.name = "x" * 1_200_000  # more than all buffers
    connection = page.connect(sent, receive_bytes=4096)
    page.wait_for(1)
    page.sink(Frame(edges((1, 2))), 0)
    page.wait_for(0)
    page.history.name = "test"
    assert page.status() == 200
    assert connection.fileno() >= 0


def test_an_event_is_built_once_for_all_streams(serve_page, monkeypatch):
    page = serve_page()
    created = []
    snapshot, since = page.history.snapshot, page.history.since
    monkeypatch.setattr(page.history, "snapshot", lambda: created.append(None) or snapshot())
    monkeypatch.setattr(page.history, "since", lambda n: created.append(n) or since(n))
    streams = [page.connect(STREAM) for _ in range(10)]
    assert all(response_head(stream).startswith(b"HTTP/1.1 200") for stream in streams)
    for stream in streams:
        while b"event: snapshot" not in stream.recv(65_536):
            pass
    assert created == [None]
    page.sink(Frame(edges((1, 2))), 0)
    for stream in streams:
        while b"event: update" not in stream.recv(65_536):
            pass
    assert created == [None, 0]


def test_a_repeated_error_is_logged_once(serve_page, monkeypatch, caplog):
    page = serve_page()
    monkeypatch.setattr(page.history, "snapshot", lambda: 1 / 0)
    assert [page.status() for _ in range(3)] == [500, 500, 500]
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


class StubConnection:
    """A connection without a socket."""

    def __init__(self, connections):
        self.connections = connections

    def abort(self):
        self.connections.remove(self)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("connect", "ask", "answer", "leave")),
            st.sampled_from("abc"),
            st.integers(0, 9),
        ),
        max_size=60,
    )
)
@settings(max_examples=50)
def test_the_number_of_connections_never_exceeds_the_limits(steps):
    connections = Connections(Limits(connections=5, per_address=3))
    opened = {}  # of a connection: its address, and if it waits for a request
    for step, address, index in steps:
        if step == "connect":
            waiting = [
                connection
                for connection, (_, is_waiting) in opened.items()
                if is_waiting and connection in connections._addresses
            ]
            of_address = [
                connection
                for connection in connections._addresses
                if opened[connection][0] == address
            ]
            is_full = len(of_address) >= 3 or len(connections) >= 5
            replaceable = [
                connection
                for connection in waiting
                if opened[connection][0] == address or len(of_address) < 3
            ]
            has_room = connections.make_room(address, 10)
            assert has_room == (not is_full or bool(replaceable))
            if has_room:
                connection = StubConnection(connections)
                connections.add(connection, address)
                opened[connection] = address, True
        elif opened:
            connection = list(opened)[index % len(opened)]
            if step == "leave":
                connections.remove(connection)
            elif connection in connections._addresses:
                opened[connection] = opened[connection][0], step == "answer"
                connections.wait(connection, is_waiting=step == "answer")
        assert len(connections) <= 5
        assert max(connections._counts.values(), default=0) <= 3
        assert set(connections._waiting) <= set(connections._addresses)
        assert sum(connections._counts.values()) == len(connections)


@pytest.mark.parametrize(
    ("files", "max_connections"), [(16, 4), (256, 32), (1024, 64), (10**6, 64), (-1, 64)]
)
def test_the_page_uses_at_most_an_eighth_of_the_open_files_of_its_process(
    monkeypatch, files, max_connections
):
    monkeypatch.setattr(connections_module.resource, "getrlimit", lambda _: (files, files))
    limits = Limits.of_process()
    assert limits.connections == max_connections
    assert 1 <= limits.streams < limits.per_address <= limits.connections
    connections = Connections(limits)
    assert connections.make_room("a", 1) or files == 1
    if files > 0:
        assert not connections.make_room("a", files - files // 4)
        assert connections.make_room("a", files - files // 4 - 1)
