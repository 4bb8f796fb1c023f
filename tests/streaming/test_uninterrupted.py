"""An interrupt at any line of the caller leaves only before or after the uninterrupted call."""

from __future__ import annotations

import threading

import pytest

from streaming.uninterrupted import run_uninterrupted
from tests.support.interrupts import Interrupted, interrupted

FILES = ("streaming/uninterrupted.py",)


class Call:
    """A call that lasts until the caller waits for it, or has left."""

    def __init__(self):
        self.is_ended = False
        self.may_end = threading.Event()

    def __call__(self):
        self.may_end.wait(0.05)  # so that a caller that does not wait leaves earlier
        self.is_ended = True


def run_and_interrupt(line):
    """Return whether the call had ended when the caller left, whether it ends later, the lines."""
    call = Call()
    with interrupted(line, FILES) as counted:
        run_uninterrupted(call)
    was_ended = call.is_ended
    call.may_end.set()
    for thread in threading.enumerate():
        if thread.name == "dbsp-wcoj-change":
            thread.join()
    return was_ended, call.is_ended, counted[0]


def test_an_interrupt_at_any_line_leaves_before_or_after_the_call():
    lines = run_and_interrupt(None)[2]
    assert lines > 10
    results = {line: run_and_interrupt(line)[:2] for line in range(1, lines + 1)}
    assert [line for line, (was_ended, is_ended) in results.items() if was_ended != is_ended] == []
    assert {was_ended for was_ended, _ in results.values()} == {False, True}


def test_an_error_of_the_call_is_raised_rather_than_an_interrupt():
    def fail():
        raise ValueError("of the call")

    with pytest.raises(ValueError, match="of the call"):
        run_uninterrupted(fail)


@pytest.mark.parametrize("interrupts", [1, 2, 3])
def test_an_interrupt_during_the_call_is_raised_after_it(monkeypatch, interrupts):
    calls = []
    join = threading.Thread.join

    def interrupted_join(thread, timeout=None):
        if len(calls) < interrupts:
            calls.append("interrupt")
            raise Interrupted
        join(thread, timeout)

    begun, gate = threading.Event(), threading.Event()

    def change():
        begun.set()
        gate.wait(0.05)
        calls.append("ended")

    start = threading.Thread.start

    def start_and_wait(thread):
        start(thread)
        begun.wait()

    monkeypatch.setattr(threading.Thread, "join", interrupted_join)
    monkeypatch.setattr(threading.Thread, "start", start_and_wait)
    with pytest.raises(Interrupted):
        run_uninterrupted(change)
    assert calls == ["interrupt"] * interrupts + ["ended"]
