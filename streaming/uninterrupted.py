"""Uninterrupted calls: Ctrl-C takes effect after a call, not in the middle of it.

Python raises `KeyboardInterrupt` in the main thread, between any two instructions. So a function
that must not stop half-way runs in a new thread, and the caller waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar

__all__ = ["run_uninterrupted"]

T = TypeVar("T")


def run_uninterrupted(function: Callable[[], T]) -> T:
    """Call a function, and raise an interrupt that arrives meanwhile only after it has returned.

    An interrupt that arrives before the function begins is raised without calling it.

    Args:
        function: The function; it should be short. It runs in another thread, so it must not
            acquire a lock that the caller holds.

    Returns:
        What the function returns.

    Raises:
        BaseException: The error that the function raises; else the interrupt.
        RuntimeError: No thread can be started; the function was not called.

    >>> run_uninterrupted(lambda: 1 + 1)
    2
    """
    results: list[T] = []
    errors: list[BaseException] = []
    lock = Lock()
    # One of them becomes True: the function is called, or an interrupt prevents the call.
    state = {"is_begun": False, "is_cancelled": False}

    def run() -> None:
        with lock:
            if state["is_cancelled"]:
                return
            state["is_begun"] = True
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, name="dbsp-wcoj-change")
    interrupts: list[BaseException] = []
    while True:
        # An interrupt, also a second one, may be raised in any line, so all lines are in the block.
        try:
            if not interrupts:
                thread.start()
            else:
                with lock:
                    state["is_cancelled"] = not state["is_begun"]
                if state["is_cancelled"]:
                    break
            thread.join()
            break
        except BaseException as error:
            interrupts.append(error)
    if errors:
        raise errors[0]
    if interrupts:
        raise interrupts[-1]
    return results[0]
