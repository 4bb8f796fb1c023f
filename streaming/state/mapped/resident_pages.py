"""Resident pages: limits how much of the mapped files is in the memory of the process.

A page of a map belongs to the resident memory of a process from the first access until it is
removed. The system removes pages only when the whole machine, or the container of the process, is
short of memory; and one access to a file in the cache of the system maps up to 16 pages. So a step
that searches a large state could make most of it resident. `ResidentPages` removes the pages of all
maps when they would exceed a limit if they grew once more as since the last check. It checks after
each commit, and in a thread two hundred times a second, because one step may touch more pages than
the limit. To remove a page that another thread reads is safe: the next access maps it again.

A step of many rows, such as a load, may touch more pages than the limit again and again. If they
were removed each time, the step would do little but map them again. So the thread removes pages
only for a share of the time (`PAUSE_PER_RELEASE`), and such a step may exceed the limit until its
commit. The pages are unchanged pages of files, so the system can take them back at any time without
writing them.

Cost: one read of ``/proc/self/statm`` for each check. A removed page that is accessed again takes
some microseconds if it is still in the cache of the system, else a read of the disk.

Alternatives considered: to remove the pages that have not been used for longest. The system knows
them, but a process cannot ask for them without reading a record of each page.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final
from weakref import ref

import pyarrow as pa

from streaming.state.files import MappedMemory

__all__ = ["ResidentPages", "free_unused_memory", "resident_file_bytes"]

# The seconds between two checks of the thread.
CHECK_INTERVAL_S: Final = 0.005
# The least number of bytes that remained after so many releases is that of other files.
REMEMBERED_RELEASES: Final = 8
# The thread does nothing for so many times the time of its last release.
PAUSE_PER_RELEASE: Final = 16

log = logging.getLogger(__name__)


class ResidentPages:
    """The maps of a state directory, and the limit of their resident pages.

    Pages of other files, such as libraries, do not count. The thread runs while there are maps. It
    ends with this object.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._maps: tuple[MappedMemory, ...] = ()
        # The resident pages of all files after the last releases: those of other files, and for a
        # while those of a merge in files.
        self._remaining_bytes = deque([resident_file_bytes()], maxlen=REMEMBERED_RELEASES)
        # The pages of maps after the last check, in bytes.
        self._last_resident = 0
        self._must_stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, maps: Iterable[MappedMemory]) -> None:
        """Limit the pages of these maps, and of no others."""
        self._maps = tuple(maps)
        if not self._maps:
            self._must_stop.set()
            self._thread = None
        elif self._thread is None:
            self._must_stop = threading.Event()
            thread = threading.Thread(
                target=_watch,
                args=(ref(self), self._must_stop),
                name="dbsp-wcoj-resident-pages",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:  # the process may not have more threads
                log.debug("pages of maps are limited after commits only: %s", error)
            else:
                self._thread = thread

    def check(self) -> float:
        """Remove the pages of all maps if they may exceed the limit before the next check.

        Returns:
            The seconds that this took; 0 if no pages were removed.
        """
        if not self._maps:
            return 0.0
        seconds = 0.0
        resident = max(resident_file_bytes() - min(self._remaining_bytes), 0)
        growth = max(resident - self._last_resident, 0)
        if resident + growth > self._limit:
            start = time.perf_counter()
            self.release()
            seconds = time.perf_counter() - start
            self._remaining_bytes.append(resident_file_bytes())
            resident = 0
        self._last_resident = resident
        return seconds

    def release(self) -> None:
        """Remove the pages of all maps from the memory of the process."""
        for mapped in self._maps:
            mapped.release_pages()


def _watch(pages: ref[ResidentPages], must_stop: threading.Event) -> None:
    """Check the pages until the object is gone or the maps are."""
    pause = CHECK_INTERVAL_S
    while not must_stop.wait(pause):
        watched = pages()
        if watched is None:
            return
        pause = max(CHECK_INTERVAL_S, PAUSE_PER_RELEASE * watched.check())
        del watched


def resident_file_bytes() -> int:
    """Return the resident pages of files of this process, in bytes; 0 if they are unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def free_unused_memory() -> None:
    """Return freed memory to the system that the allocators of C and Arrow keep for later use."""
    pa.default_memory_pool().release_unused()
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # it is a function of glibc
        trim(0)
