"""Freed memory: it is returned to the system if there may be much of it."""

from __future__ import annotations

import mmap
import subprocess
import sys

import pytest

from dbsp_wcoj.storage.small_pages import Block, FreeMemory
from streaming.state.mapped import freed_memory
from streaming.state.mapped.freed_memory import (
    UNUSED_BYTES_DIVISOR,
    FreedMemory,
)

LIMIT = 32_000
STEP = LIMIT // UNUSED_BYTES_DIVISOR


@pytest.fixture(autouse=True)
def free_memory(monkeypatch):
    """Let the test limit the free memory of its own, not that of the process."""
    free = FreeMemory(1 << 30)
    monkeypatch.setattr(freed_memory, "FREE_MEMORY", free)
    return free


def test_memory_is_returned_when_there_is_more_than_the_state_and_what_remained_before(
    monkeypatch,
):
    returned = []
    # The private memory before each call, and what remains if it is returned.
    private, remaining = [10_000], [0]
    monkeypatch.setattr(freed_memory, "private_bytes", lambda: private[0])

    def free():
        returned.append(private[0])
        private[0] = remaining[0]

    monkeypatch.setattr(freed_memory, "free_unused_memory", free)
    freed = FreedMemory(LIMIT)
    for heap, before, after, is_returned in [
        (0, 10_000 + STEP, 0, False),
        (5_000, 15_000 + STEP, 0, False),  # the state has grown
        (0, 15_000, 12_000, True),  # it has been freed, and the memory was not returned
        (0, 12_000 + STEP, 0, False),  # 12,000 could not be returned
        (0, 11_000, 0, False),
        (0, 11_001 + STEP, 11_000, True),
    ]:
        private[0], remaining[0] = before, after
        assert freed.after_commit(heap) == is_returned
    assert returned == [15_000, 11_001 + STEP]


def test_the_memory_of_merged_runs_is_limited(free_memory):
    for _ in range(4):
        free_memory.put(Block(mmap.mmap(-1, 1000), 1000))
    FreedMemory(freed_memory.FREE_MEMORY_DIVISOR * 2500)
    assert free_memory.free_bytes == 2000
    assert not free_memory.put(Block(mmap.mmap(-1, 1000), 1000))
    FreedMemory(freed_memory.FREE_MEMORY_DIVISOR * 10**6)  # the least limit is in effect
    assert not free_memory.put(Block(mmap.mmap(-1, 1000), 1000))


FREE_ARRAYS = """
import numpy as np
from streaming.state.mapped.freed_memory import MAPPED_ARRAY_BYTES, FreedMemory, private_bytes

FreedMemory(32_000)
words = 2 * MAPPED_ARRAY_BYTES // 8
np.ones(8 * words)  # by default, glibc would have smaller arrays on its heap from now on
arrays = [np.ones(words) for _ in range(128)]
last = np.ones(words)  # it would keep the memory of the others on the heap
before = private_bytes()
del arrays
assert before - private_bytes() >= 120 * 8 * words and last.all()
"""


def test_the_memory_of_an_array_is_returned_when_it_is_freed():
    # In a new process: here, the arrays may be in memory that was free before.
    subprocess.run([sys.executable, "-c", FREE_ARRAYS], check=True)
