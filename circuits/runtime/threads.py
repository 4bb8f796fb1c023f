"""Threads: the workers of a circuit, which share the work of its large steps.

A circuit with ``threads=4`` uses the thread that calls `step`, and up to three of a pool. The pool
starts with the first large step, and ends with the circuit. A small step wakes no other thread
(`dbsp_wcoj.workers`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from circuits.errors import CircuitError
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.workers import Workers

__all__ = ["available_threads", "check_threads", "workers_of"]

R = TypeVar("R")


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


class _LazyPool(Executor):
    """A thread pool that starts with the first task, and again in a forked process."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = Lock()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def submit(self, function: Callable[..., R], /, *arguments: Any, **options: Any) -> Future[R]:
        """Run a function in a thread of the pool."""
        pool = self._pool
        if pool is None or pool[0] != os.getpid():
            pool = self._start()
        return pool[1].submit(function, *arguments, **options)

    def _start(self) -> tuple[int, ThreadPoolExecutor]:
        with self._lock:
            if self._pool is None or self._pool[0] != os.getpid():
                executor = ThreadPoolExecutor(self._threads, thread_name_prefix="circuit")
                self._pool = os.getpid(), executor
            return self._pool
