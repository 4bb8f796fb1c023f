"""Lend threads to the code of the core package, as a circuit does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dbsp_wcoj.workers import Workers, working_with

__all__ = ["working_threads"]


@contextmanager
def working_threads(threads: int) -> Iterator[None]:
    """Let the code in this thread use so many threads, itself included."""
    with ThreadPoolExecutor(threads) as executor, working_with(Workers(executor, threads)):
        yield
