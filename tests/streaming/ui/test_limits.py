"""Overload or failure of the page does not stop its sink, and the page recovers.

The sink and its page run in a process of their own with a low limit of open files.
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

MAX_OPEN_FILES = 96
TOKEN = "a-token-of-the-test"
GUARD_S = 60  # a guard against a hang, never reached


class SinkProcess:
    """A process with a sink and a page, and the sockets that overload it."""

    def __init__(self, folder, token=""):
        command = [
            sys.executable,
            "-m",
            "tests.support.page_driver",
            str(MAX_OPEN_FILES),
            str(folder),
            token,
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = self._read_reply()["address"]
        self.socket_address = ("127.0.0.1", urlsplit(self.address).port)
        self.sockets = []

    def _read_reply(self):
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def send_command(self, command):
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._read_reply()

    def connect(self, count, sent=b"", receive_bytes=None):
        """Open connections without waiting until the page accepts them."""
        for _ in range(count):
            client = socket.socket()
            if receive_bytes:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            client.settimeout(0.02)
            with contextlib.suppress(OSError):
                client.connect(self.socket_address)
                client.sendall(sent)
            self.sockets.append(client)

    def ask(self, path="snapshot", **headers):
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask_until_answered(self, **headers):
        end = time.monotonic() + GUARD_S
        while True:
            try:
                status, text = self.ask(**headers)
            except OSError:
                status, text = 0, ""
            if status == 200:
                return json.loads(text)
            assert time.monotonic() < end, f"no answer, the last was {status} {text}"
            time.sleep(0.1)

    def close_sockets(self):
        for client in self.sockets:
            client.close()
        self.sockets.clear()

    def close(self):
        self.close_sockets()
        self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(GUARD_S)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def process_with_token(tmp_path_factory):
    """One process for all tests with the same token, as it has to survive all of them."""
    processes = {}

    def get(token):
        if token not in processes:
            processes[token] = SinkProcess(tmp_path_factory.mktemp("page") / "state", token)
        processes[token].close_sockets()
        return processes[token]

    yield get
    for process in processes.values():
        process.close()


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
def test_after_hundreds_of_connections_the_sink_has_files_and_the_page_answers(
    process_with_token, token, sent
):
    process = process_with_token(token)
    before = process.send_command("step")["steps"]
    for _ in range(3):
        process.connect(MAX_OPEN_FILES, sent)
        reply = process.send_command("step")
        assert reply["open"] < 3 * MAX_OPEN_FILES // 4
    assert reply["steps"] == before + 30
    process.close_sockets()
    assert process.ask_until_answered(**BEARER)["batches"] == reply["steps"]


def test_unread_streams_use_little_memory_and_the_page_answers_again(process_with_token):
    process = process_with_token("")
    for _ in range(3):
        process.connect(20, STREAM, receive_bytes=4096)
        for _ in range(3):
            reply = process.send_command("step")
        assert reply["open"] < 3 * MAX_OPEN_FILES // 4
    process.close_sockets()
    assert process.ask_until_answered()["batches"] == reply["steps"]


def test_the_page_accepts_again_when_files_are_free(process_with_token):
    process = process_with_token("")
    process.send_command("hoard")
    process.connect(10, STREAM)
    with pytest.raises(OSError):
        process.ask()
    assert any(
        "cannot accept connections now" in text for text in process.send_command("wait")["log"]
    )
    process.send_command("release")
    reply = process.send_command("step")
    process.close_sockets()
    assert process.ask_until_answered()["batches"] == reply["steps"]


def test_a_page_that_fails_is_logged_and_the_sink_continues(tmp_path):
    process = SinkProcess(tmp_path / "state")
    try:
        process.connect(3, STREAM)
        process.send_command("step")
        process.send_command("close-listener")
        process.connect(3, STREAM)
        assert process.send_command("step")["steps"] == 20
        process.send_command("kill-page")
        assert process.send_command("step")["steps"] == 30
        log = process.send_command("wait")["log"]
        assert any("has ended, the sink continues without it" in text for text in log)
        with pytest.raises(OSError):
            process.ask()
        assert process.send_command("stop") == {"stopped": True}
    finally:
        process.close()
