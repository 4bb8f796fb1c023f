"""The sink goes on whatever its page suffers, and the page answers again afterwards.

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
        command = [sys.executable, "-m", "tests.page_driver", str(LIMIT), str(folder), token]
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
        for one in self.sockets:
            one.close()
        self.sockets.clear()

    def close(self):
        self.let_go()
        self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.fixture
def victim(tmp_path, request):
    found = Victim(tmp_path / "state", getattr(request, "param", ""))
    found.tell("step")
    yield found
    found.close()


HALF_OPEN = b""
HALF_HEADER = b"GET /snapshot HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
STREAM = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_BODY = (
    b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
)


@pytest.mark.parametrize(
    ("victim", "sent"),
    [("", HALF_OPEN), ("", HALF_HEADER), ("", STREAM), (TOKEN, HALF_OPEN), (TOKEN, HALF_BODY)],
    indirect=["victim"],
    ids=["half-open", "half-header", "stream", "half-open-token", "half-body-token"],
)
def test_hundreds_of_connections_leave_the_sink_its_files_and_the_page_answers_again(victim, sent):
    for _ in range(3):
        victim.connect(LIMIT, sent)
        said = victim.tell("step")
        assert said["open"] < 3 * LIMIT // 4
    assert said["steps"] == 40
    victim.let_go()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert len(victim.ask_until_answered(**headers)["recent"]) == 40
