"""Threads: the workers of a circuit, which share the work of its large steps.

A circuit with ``threads=4`` uses the thread that calls `step`, and up to three of a pool. The pool
starts with the first large step. Its threads end when the circuit is garbage collected, or with the
process, which does not wait for them. A small step wakes no other thread (`dbsp_wcoj.workers`).
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from circuits.errors import CircuitError
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.workers import Workers

__all__ = ["available_threads", "check_threads", "workers_of"]


def available_threads() -> int:
    """Return the number of cores that this process may use: the default of ``threads=``."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int | None) -> None:
    """Check the value of ``threads=``.

    Raises:
        ArgumentTypeError: It is not a number.
        CircuitError: It is less than 1.
    """
    if threads is None:
        return
    check_type("threads", threads, int, "a number of threads, or None for all available cores")
    if threads < 1:
        raise CircuitError(f"threads={threads}: give 1 or more, or None for all available cores")


def workers_of(threads: int | None) -> Workers | None:
    """Return the workers of a circuit; None for one thread.

    Args:
        threads: The number of threads; None for `available_threads`.
    """
    count = available_threads() if threads is None else threads
    return None if count == 1 else Workers(_LazyPool(count - 1), count)


class _LazyPool:
    """A thread pool that starts with the first function, and again in a forked process.

    An interrupt during `submit` leaves no lock behind, because it only calls built-in functions. A
    `concurrent.futures.ThreadPoolExecutor` uses `threading.Semaphore` and `threading.Event`, whose
    locks an interrupt can leave held, so that no thread runs a function any more.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._started = 0
        self._functions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, function: Callable[[object], None], argument: object, /) -> None:
        """Call a function in a thread of the pool.

        Raises:
            RuntimeError: The system starts no further thread.
        """
        if self._process != os.getpid():
            self._begin_process()
        if self._started < self._threads:
            # In this order: an interrupt between the lines leaves one thread too many, not too few.
            start_new_thread(_run_functions, (self._functions,))
            self._started += 1
        self._functions.put(partial(function, argument))

    def __del__(self) -> None:
        self._functions.put(None)


def _run_functions(functions: SimpleQueue[Callable[[], None] | None]) -> None:
    """Call the functions of a queue, in a thread of the pool, until one is None."""
    while (function := functions.get()) is not None:
        with suppress(BaseException):  # the job of a task has noted its error
            function()
        del function  # it refers to the circuit
    functions.put(None)  # for the next thread
