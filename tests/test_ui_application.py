"""The page is served to this machine only, or with a token; read-only, and from the package."""

from __future__ import annotations

import json
import re
import sys
import threading
import urllib.error
import urllib.request
from importlib.resources import files

import pytest

from circuits import compile_sql
from streaming import PageError, ViewSink
from streaming.ui import serve
from streaming.ui.page import check_servable
from tests.tables import EDGE, edges
from tests.test_view_sink import Frame

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

TOKEN = "a-long-token"


class Asked:
    """A page, and answers of it."""

    def __init__(self, **options):
        self.sink = ViewSink(compile_sql("SELECT count(*) AS n FROM e", {"e": EDGE}, name="v"))
        self.page = serve(self.sink, port=0, **options)
        self.base = f"http://127.0.0.1:{self.page._server.port}"

    def __call__(self, path="/", *, method="GET", **headers):
        request = urllib.request.Request(self.base + path, method=method)
        for name, value in headers.items():
            request.add_header(name, value)
        opener = urllib.request.build_opener(Straight)
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    def feed(self, number):
        self.sink(Frame(edges((number, number))), number)


class Straight(urllib.request.HTTPRedirectHandler):
    """Redirects are answers, too."""

    def redirect_request(self, *_):
        return None


@pytest.fixture
def ask():
    asked = Asked()
    yield asked
    asked.page.stop()


@pytest.fixture
def ask_with_token():
    asked = Asked(token=TOKEN)
    yield asked
    asked.page.stop()


def test_the_page_and_its_files_are_served_with_a_policy_that_allows_nothing_else(ask):
    status, headers, text = ask("/")
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    for path in re.findall(r'(?:src|href)="(/assets/[^"]+)"', text):
        assert ask(path)[0] == 200
    assert ask("/assets/none.js")[0] == ask("/assets/page.html")[0] == ask("/none")[0] == 404


def test_nothing_of_the_page_names_an_address_elsewhere():
    for entry in (files("streaming.ui") / "assets").iterdir():
        text = entry.read_text()
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+\S*", text))
        assert found <= {'http://www.w3.org/2000/svg"', 'http://www.w3.org/2000/svg";'}, entry.name
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
        ("evil.example", 421),
        ("evil.example:8765", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_answered_to(ask, host, status):
    assert ask("/snapshot", Host=host)[0] == status


def test_with_a_token_every_request_has_to_bring_it(ask_with_token):
    ask = ask_with_token
    assert ask("/")[0] == ask("/snapshot")[0] == ask("/assets/page.js")[0] == 401
    assert ask("/?token=wrong")[0] == 401
    assert ask("/snapshot?token=" + TOKEN)[0] == 401
    status, headers, _ = ask("/?token=" + TOKEN)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert ask("/", Cookie=cookie.partition(";")[0], Host="any.example")[0] == 200
    assert ask("/snapshot", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_events_begin_with_all_and_go_on_with_what_is_new(ask):
    ask.feed(0)
    found = []
    with urllib.request.urlopen(ask.base + "/events", timeout=10) as stream:
        event = None
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                event = text[7:]
            elif text.startswith("data: "):
                found.append((event, json.loads(text[6:])))
                if len(found) == 1:
                    threading.Thread(target=ask.feed, args=(1,)).start()
                else:
                    break
    (first, whole), (second, more) = found
    assert (first, second) == ("whole", "more")
    assert [batch["id"] for batch in whole["recent"]] == [0]
    assert [batch["id"] for batch in more["recent"]] == [1]
    assert more["recent"][0]["values"]["v"] == [2]


def test_a_page_for_others_needs_a_token_and_a_port_that_is_free(ask):
    circuit = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
    with pytest.raises(PageError, match=r"open to others on 0\.0\.0\.0: give a token"):
        serve(circuit, host="0.0.0.0", port=0)
    with pytest.raises(PageError, match="give 8 or more"):
        serve(circuit, port=0, token="short")
    with pytest.raises(PageError, match=r"port \d+: Address already in use; choose another"):
        serve(circuit, port=ask.page._server.port)
    with pytest.raises(PageError, match="Address already in use"):
        check_servable(port=ask.page._server.port)


def test_without_its_packages_a_page_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "streaming.ui.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(PageError, match=r"needs the package uvicorn.*dbsp-wcoj\[ui\]"):
        check_servable(port=0)


def test_a_page_that_has_ended_says_why(ask):
    ask.feed(0)
    ask.page.end("the disk is full", failed=True)
    found = json.loads(ask("/snapshot")[2])
    assert found["status"] == {"state": "failed", "said": "the disk is full"}
