"""The page: served to this machine or with a token, read-only, complete in the package."""

from __future__ import annotations

import json
import re
import sys
import threading
import urllib.error
import urllib.request
from importlib.resources import files
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import compile_sql
from streaming import PageError, SinkObserver, ViewSink
from streaming.monitoring import SinkMonitor
from streaming.ui import serve
from streaming.ui.page import check_servable
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, edges

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from streaming.ui.application import RateLimiter

TOKEN = "a-long-token"


class PageClient:
    """A served page; calling the client sends a request: (status, headers, text)."""

    def __init__(self, **options):
        self.sink = ViewSink(compile_sql("SELECT count(*) AS n FROM e", {"e": EDGE}, name="v"))
        self.page = serve(self.sink, port=0, **options)
        self.base = f"http://127.0.0.1:{self.page._server.port}"

    def __call__(self, path="/", *, method="GET", body=None, **headers):
        request = urllib.request.Request(self.base + path, method=method, data=body)
        for name, value in headers.items():
            request.add_header(name, value)
        opener = urllib.request.build_opener(KeepRedirects)
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    def feed(self, number):
        self.sink(Frame(edges((number, number))), number)


class KeepRedirects(urllib.request.HTTPRedirectHandler):
    """Return a redirect as it is instead of following it."""

    def redirect_request(self, *_):
        return None


@pytest.fixture
def ask():
    client = PageClient()
    yield client
    client.page.stop()


@pytest.fixture
def ask_with_token():
    client = PageClient(token=TOKEN)
    yield client
    client.page.stop()


def test_the_page_and_its_files_are_served_with_a_policy_that_allows_nothing_else(ask):
    status, headers, text = ask("/")
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    for path in re.findall(r'(?:src|href)="(/assets/[^"]+)"', text):
        assert ask(path)[0] == 200
    assert ask("/assets/none.js")[0] == ask("/assets/page.html")[0] == ask("/none")[0] == 404


def test_no_file_of_the_page_contains_an_external_address():
    for entry in (files("streaming.ui") / "assets").iterdir():
        text = entry.read_text()
        result = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+\S*", text))
        assert result <= {'http://www.w3.org/2000/svg"', 'http://www.w3.org/2000/svg";'}, entry.name
        assert "innerHTML" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_page_can_only_be_read(ask, method):
    assert ask("/", method=method)[0] == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8765", 200),
        ("[::1]:8765", 200),
        ("127.0.0.2:8765", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("evil.example:8765", 421),
        ("localhost.evil.example", 421),
        ("0.0.0.0:8765", 421),
        ("192.168.0.1", 421),
        ("", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_without_a_token_only_requests_for_a_local_host_name_are_answered(ask, host, status):
    assert ask("/snapshot", Host=host)[0] == status


def test_with_a_token_every_request_needs_it_or_a_session(ask_with_token):
    ask = ask_with_token
    assert ask("/")[0] == ask("/snapshot")[0] == ask("/assets/page.js")[0] == 401
    assert ask("/events")[0] == 401
    status, headers, text = ask("/")
    assert 'action="/sign-in"' in text
    for path in re.findall(r'href="(/assets/[^"]+)"', text):
        assert ask(path)[0] == 200
    assert sign_in(ask, "another-token")[0] == 403
    status, headers, _ = sign_in(ask, TOKEN)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Max-Age" in cookie
    session = cookie.partition(";")[0]
    assert 'src="/assets/page.js"' in ask("/", Cookie=session, Host="any.example")[2]
    assert ask("/snapshot", Cookie=session)[0] == 200
    assert ask("/snapshot", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask("/snapshot", Authorization="Bearer another-token")[0] == 401
    assert ask("/snapshot", Authorization=TOKEN)[0] == 401


def test_a_token_is_accepted_neither_in_an_address_nor_in_a_cookie(ask_with_token):
    ask = ask_with_token
    assert ask.page.address == ask.base + "/"
    for path in ("/", "/snapshot", "/events"):
        assert ask(f"{path}?token={TOKEN}")[0] == 401
    name, _, session = sign_in(ask, TOKEN)[1]["set-cookie"].partition(";")[0].partition("=")
    assert TOKEN not in name + session and len(session) >= 43
    assert ask("/snapshot", Cookie=f"{name}={TOKEN}")[0] == 401
    assert ask("/snapshot", Cookie=f"{name}={session[:-1]}")[0] == 401
    second_session = sign_in(ask, TOKEN)[1]["set-cookie"].partition(";")[0].partition("=")[2]
    assert second_session != session


@pytest.mark.parametrize(
    "body",
    [b"", b"token", b"other=1", b"token=a&token=b", b"token=" + b"x" * 5000, b"\xff", b"{}"],
)
def test_a_body_that_is_no_sign_in_form_is_refused(ask_with_token, body):
    assert ask_with_token("/sign-in", method="POST", body=body)[0] == 400


def test_after_some_failed_attempts_the_token_is_not_checked_for_a_while(ask_with_token):
    ask = ask_with_token
    cookie = sign_in(ask, TOKEN)[1]["set-cookie"].partition(";")[0]
    for _ in range(5):
        assert sign_in(ask, "another-token")[0] == 403
        assert ask("/snapshot", Authorization="Bearer another-token")[0] in (401, 429)
    assert sign_in(ask, TOKEN)[0] == 429
    assert ask("/snapshot", Authorization=f"Bearer {TOKEN}")[0] == 429
    assert ask("/snapshot", Cookie=cookie)[0] == 200


def test_without_a_token_there_is_nothing_to_sign_in_to(ask):
    assert sign_in(ask, TOKEN)[0] == 404


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_from_other_sites_are_refused_and_get_no_cors_headers(ask, site):
    headers = {"Sec-Fetch-Site": site, "Origin": "http://evil.example"}
    for path in ("/snapshot", "/events", "/assets/page.js"):
        assert ask(path, **headers)[0] == 403
    status, headers, _ = ask("/", **headers)
    assert status == 200
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "no-referrer"
    assert ask("/snapshot", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert ask("/snapshot", method="OPTIONS")[0] == 405


@given(
    st.lists(st.sampled_from([0.0, 0.01, 0.1, 1.0, 5.0]), max_size=80),
    st.sampled_from([1.0, 10.0, 200.0]),
    st.integers(1, 20),
)
def test_requests_beyond_a_burst_are_delayed_to_the_rate_per_second(waits, per_second, burst):
    now = 100.0
    limiter = RateLimiter(per_second, burst, clock=lambda: now)
    due = []
    for wait in waits:
        now += wait
        due.append(now + limiter.delay())
        assert due[-1] - now <= len(due) / per_second
    for count in range(burst + 2, len(due) + 1):
        for first, last in zip(due, due[count - 1 :], strict=False):
            assert last - first >= (count - 1 - burst) / per_second - 1e-6
    if len(waits) <= burst:
        assert due == sorted(due) and sum(waits) + 100.0 == pytest.approx(now)
        assert not due or due[-1] == now


def sign_in(ask, token):
    return ask("/sign-in", method="POST", body=urlencode({"token": token}).encode())


def test_events_begin_with_all_data_and_continue_with_changes(ask):
    ask.feed(0)
    result = []
    with urllib.request.urlopen(ask.base + "/events", timeout=10) as stream:
        event = None
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                event = text[7:]
            elif text.startswith("data: "):
                result.append((event, json.loads(text[6:])))
                if len(result) == 1:
                    threading.Thread(target=ask.feed, args=(1,)).start()
                else:
                    break
    (first_event, snapshot), (second_event, update) = result
    assert (first_event, second_event) == ("snapshot", "update")
    assert [batch["id"] for batch in snapshot["recent"]] == [0]
    assert [batch["id"] for batch in update["recent"]] == [1]
    assert update["recent"][0]["values"]["v"] == [2]


def test_a_page_for_other_machines_needs_a_token_and_a_free_port(ask):
    sink = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
    with pytest.raises(PageError, match=r"could open the page on 0\.0\.0\.0: require a token"):
        serve(sink, host="0.0.0.0", port=0)
    with pytest.raises(PageError, match="give 8 or more") as raised:
        serve(sink, port=0, token="short")
    assert "short" not in str(raised.value)
    with pytest.raises(PageError, match="port must be 0-65535"):
        serve(sink, port=70_000)
    with pytest.raises(PageError, match=r"port \d+: Address already in use; choose another"):
        serve(sink, port=ask.page._server.port)
    for host in ("no\0host", "ä" * 70):
        with pytest.raises(PageError, match=r"the page cannot be served on .*host ?name"):
            serve(sink, host=host, port=0, token="a long secret")
    with pytest.raises(PageError, match="Address already in use"):
        check_servable(port=ask.page._server.port)


def test_a_check_gives_its_reason_only_to_visitors_with_the_token(ask, ask_with_token):
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert ask("/readyz")[::2] == (200, "waiting for rows\n")
    assert ask_with_token("/readyz")[::2] == (200, "ok\n")
    assert ask_with_token("/readyz", **bearer)[::2] == (200, "waiting for rows\n")
    for client in (ask, ask_with_token):
        monitor = client.sink._observers[0]
        monitor.batch_failed(3, ValueError("view v"))
    expected = "not ok; the reason needs the token of the page\n"
    for path in ("/readyz", "/healthz"):
        assert ask_with_token(path)[::2] == (503, expected)
        assert "micro-batch 3 failed" in ask_with_token(path, **bearer)[2]
        assert "micro-batch 3 failed" in ask(path)[2]


def test_a_page_observes_the_sink_from_its_start_to_its_stop(ask):
    sink = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
    with pytest.raises(PageError, match="Address already in use"):
        serve(sink, port=ask.page._server.port)
    assert sink._observers == []
    sink.remove_observer(SinkObserver())  # without effect

    monitor = SinkMonitor(sink)
    page = serve(sink, port=0, monitor=monitor)
    assert sink._observers == [monitor, page]
    page.stop()
    assert sink._observers == [monitor]
    monitor.stop()
    page.stop()  # again, without effect

    with serve(sink, port=0) as page:
        sink(Frame(edges((1, 2))), 0)
    sink(Frame(edges((3, 4))), 1)
    assert sink._observers == []
    assert len(page.history.snapshot()["recent"]) == 1


def test_a_missing_package_of_the_page_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "streaming.ui.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(PageError, match=r"needs the package uvicorn.*dbsp-wcoj\[ui\]"):
        check_servable(port=0)


def test_a_page_that_has_ended_gives_the_reason(ask):
    ask.feed(0)
    ask.page.end("the disk is full", failed=True)
    result = json.loads(ask("/snapshot")[2])
    assert result["status"] == {"state": "failed", "reason": "the disk is full"}
