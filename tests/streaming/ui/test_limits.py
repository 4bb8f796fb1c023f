"""The sink continues whatever happens to its page, and the page recovers.

The sink and its page run in a process of their own that may have few open files.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

LIMIT = 96  # open files
TOKEN = "a-token-of-the-test"
PATIENCE_S = 60  # a guard against a hang, never reached


class Victim:
    """A process with a sink and a page, and the sockets that trouble it."""

    def __init__(self, folder, token=""):
        command = [
            sys.executable,
            "-m",
            "tests.support.page_driver",
            str(LIMIT),
            str(folder),
            token,
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = self._heard()["address"]
        self.place = ("127.0.0.1", urlsplit(self.address).port)
        self.sockets = []

    def _heard(self):
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def tell(self, command):
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._heard()

    def connect(self, count, sent=b"", receive_bytes=None):
        """Open connections as fast as they are accepted; those that wait are left to wait."""
        for _ in range(count):
            one = socket.socket()
            if receive_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            one.settimeout(0.02)
            with contextlib.suppress(OSError):
                one.connect(self.place)
                one.sendall(sent)
            self.sockets.append(one)

    def ask(self, path="snapshot", **headers):
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask_until_answered(self, **headers):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                status, text = self.ask(**headers)
            except OSError:
                status, text = 0, ""
            if status == 200:
                return json.loads(text)
            assert time.monotonic() < end, f"no answer, the last was {status} {text}"
            time.sleep(0.1)

    def let_go(self):
        for client in self.sockets:
            client.close()
        self.sockets.clear()

    def close(self):
        self.let_go()
        self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def victim_of(tmp_path_factory):
    """One process for all tests of a token, as it has to survive all of them."""
    known = {}

    def victim(token):
        if token not in known:
            known[token] = Victim(tmp_path_factory.mktemp("page") / "state", token)
        known[token].let_go()
        return known[token]

    yield victim
    for one in known.values():
        one.close()


HALF_HEADER = b"GET /snapshot HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
STREAM = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_BODY = (
    b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("token", "sent"),
    [("", b""), ("", HALF_HEADER), ("", STREAM), (TOKEN, b""), (TOKEN, STREAM), (TOKEN, HALF_BODY)],
)
def test_hundreds_of_connections_leave_the_sink_its_files_and_the_page_answers_again(
    victim_of, token, sent
):
    victim = victim_of(token)
    before = victim.tell("step")["steps"]
    for _ in range(3):
        victim.connect(LIMIT, sent)
        message = victim.tell("step")
        assert message["open"] < 3 * LIMIT // 4
    assert message["steps"] == before + 30
    victim.let_go()
    assert victim.ask_until_answered(**BEARER)["batches"] == message["steps"]


def test_unread_streams_use_little_memory_and_the_page_answers_again(victim_of):
    victim = victim_of("")
    for _ in range(3):
        victim.connect(20, STREAM, receive_bytes=4096)
        for _ in range(3):
            message = victim.tell("step")
        assert message["open"] < 3 * LIMIT // 4
    victim.let_go()
    assert victim.ask_until_answered()["batches"] == message["steps"]


def test_a_process_without_free_files_is_waited_for(victim_of):
    victim = victim_of("")
    victim.tell("hoard")
    victim.connect(10, STREAM)
    with pytest.raises(OSError):
        victim.ask()
    assert any("cannot accept connections now" in text for text in victim.tell("wait")["log"])
    victim.tell("release")
    message = victim.tell("step")
    victim.let_go()
    assert victim.ask_until_answered()["batches"] == message["steps"]


def test_a_page_that_ends_by_an_error_is_logged_and_the_sink_continues(tmp_path):
    victim = Victim(tmp_path / "state")
    try:
        victim.connect(3, STREAM)
        victim.tell("step")
        victim.tell("close-listener")
        victim.connect(3, STREAM)
        assert victim.tell("step")["steps"] == 20
        victim.tell("kill-page")
        assert victim.tell("step")["steps"] == 30
        message = victim.tell("wait")["log"]
        assert any("has ended, the sink continues without it" in text for text in message)
        with pytest.raises(OSError):
            victim.ask()
        assert victim.tell("stop") == {"stopped": True}
    finally:
        victim.close()
