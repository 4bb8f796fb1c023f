"""Resident pages: limits how much of the memory-mapped files is in the memory of the process.

A *map* is a memory-mapped file of the state. A page of a map belongs to the resident memory of a
process from the first access until it is removed. Linux removes pages only when the whole machine,
or the container of the process, is short of memory. One access to a file in the cache of the system
maps at least 16 pages, up to 512 where the cache has the file in large pages. So a step that
searches a large state could make most of it resident. Therefore an access maps one page
(`streaming.state.mapped.page_faults`).

`ResidentPages` checks the number of resident pages after each commit. A thread also checks it two
hundred times a second, or more often while it grows fast, because one step may touch more pages
than the limit. A check predicts the number at the next check: the pages now, plus their growth
since the last check. If the prediction exceeds the limit, pages are removed:

1. All pages of *leaves*: the values of the last column of the runs, and the weights. A search
   reads one or two of these pages, and the next search other ones.
2. If the resident pages still exceed a share of the limit (`KEPT_SHARE`, or less if their number
   grows fast): pages of the *index*, a piece at a time, until they do not exceed it. The next
   release continues with the next piece. The index is all other bytes of the maps, in which each
   search finds its leaves. It is smaller, and its pages are read again sooner.

A page that another thread reads can be removed safely, because the next access maps it again. A
step of many rows, such as a load, may touch more pages than the limit again and again. So the
thread pauses after a release (`PAUSE_PER_RELEASE`), and such a step may exceed the limit for some
milliseconds. On a busy machine, the thread may also wait 50 ms for a processor. Therefore the
largest excess of the last commits is subtracted from the limit. The system can reclaim these pages
at any time without writing them, because they are unmodified pages of files.

Cost: one read of ``/proc/self/statm`` for each check. A removed page that is accessed again takes
some microseconds if it is still in the cache of the system, else a read of the disk.

Alternatives considered: removing the least recently used pages only. The system knows which these
are, but a process would have to read a record of each page to find them.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple
from weakref import ref

from streaming.state.files import MappedMemory

__all__ = ["PageRange", "ResidentPages", "resident_file_bytes"]

# The seconds between two checks of the thread.
CHECK_INTERVAL_S: Final = 0.005
# The same if the resident pages have grown by more than this share of the limit since the last
# check.
FAST_CHECK_INTERVAL_S: Final = 0.001
FAST_GROWTH_SHARE: Final = 0.125
# The share of the limit that may be resident after a release; and the smallest such share, if the
# number of resident pages grows fast.
KEPT_SHARE: Final = 0.85
MIN_KEPT_SHARE: Final = 0.5
# The index is released in about this many pieces.
INDEX_PIECES: Final = 16
# Resident bytes of other files are estimated by the minimum that remained after this many releases.
REMEMBERED_RELEASES: Final = 1024
# After a release, the thread pauses for this multiple of the time that the release took.
PAUSE_PER_RELEASE: Final = 1
# The largest excess over the limit since this number of commits is subtracted from the limit, but
# this share of the limit is left.
REMEMBERED_COMMITS: Final = 32
MIN_LIMIT_SHARE: Final = 0.5

log = logging.getLogger(__name__)


class PageRange(NamedTuple):
    """A range of the bytes of a map."""

    mapped: MappedMemory
    start: int
    end: int

    def release(self) -> None:
        """Remove its pages from the memory of the process."""
        self.mapped.release_pages(self.start, self.end)


class ResidentPages:
    """The maps of a state directory, and the limit of their resident pages.

    Pages of other files, such as libraries, do not count. The thread starts with the first maps. It
    ends when there are no maps, or when this object is not referenced any more.

    Args:
        limit: The bytes of resident pages that the maps may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The limit as it was given, and the largest excess over it until each of the last commits.
        self._given_limit = limit
        self._excesses = deque([0], maxlen=REMEMBERED_COMMITS)
        self._maps: tuple[MappedMemory, ...] = ()
        self._leaves: tuple[PageRange, ...] = ()
        # Pieces of the other bytes of the maps; the first one is released next.
        self._index: deque[PageRange] = deque()
        # The resident bytes of all files after each of the last releases of all pages. They belong
        # to other files and, while files are merged, to the maps of the merge.
        self._remaining_bytes = deque([resident_file_bytes()], maxlen=REMEMBERED_RELEASES)
        # The resident bytes of the maps after the last check.
        self._last_resident = 0
        self._grows_fast = False
        self._lock = threading.Lock()
        self._must_stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, maps: Iterable[MappedMemory], leaves: Iterable[PageRange] = ()) -> None:
        """Limit the pages of these maps, and of no others.

        Args:
            maps: The maps.
            leaves: The ranges that are released first. They are disjoint, and those of each map
                are sorted by their start.
        """
        with self._lock:
            self._maps = tuple(maps)
            self._leaves = tuple(leaves)
            self._index = deque(_divide_index(self._maps, self._leaves))
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

    def after_commit(self, limit: int) -> None:
        """Set the limit, less the largest excess of the last commits; then do as `check`.

        Args:
            limit: The new limit in bytes.
        """
        with self._lock:
            self._given_limit = limit
            self._limit = round(max(limit - max(self._excesses), MIN_LIMIT_SHARE * limit))
            self._check()
            self._excesses.append(0)

    def check(self) -> float:
        """Remove pages of the maps if they are predicted to exceed the limit at the next check.

        Returns:
            The seconds that this took; 0 if no pages were removed.
        """
        with self._lock:
            return self._check()

    def _check(self) -> float:
        if not self._maps:
            return 0.0
        seconds = 0.0
        resident = self._resident_bytes()
        self._excesses[-1] = max(self._excesses[-1], resident - self._given_limit)
        growth = max(resident - self._last_resident, 0)
        self._grows_fast = growth > FAST_GROWTH_SHARE * self._limit
        if resident + growth > self._limit:
            start = time.perf_counter()
            kept_bytes = max(self._limit - growth, MIN_KEPT_SHARE * self._limit)
            resident = self._release_some(min(kept_bytes, KEPT_SHARE * self._limit))
            seconds = time.perf_counter() - start
        self._last_resident = resident
        return seconds

    def release(self) -> None:
        """Remove the pages of all maps from the memory of the process."""
        for mapped in self._maps:
            mapped.release_pages()

    def _release_some(self, kept_bytes: float) -> int:
        """Remove the pages of leaves, then of the index until ``kept_bytes`` are resident.

        Returns:
            The resident bytes.
        """
        for leaf in self._leaves:
            leaf.release()
        for _ in range(len(self._index)):
            resident = self._resident_bytes()
            if resident <= kept_bytes:
                return resident
            self._index[0].release()
            self._index.rotate(-1)
        self._remaining_bytes.append(resident_file_bytes())
        return self._resident_bytes()

    def _resident_bytes(self) -> int:
        """Return an estimate of the resident bytes of the maps."""
        return max(resident_file_bytes() - min(self._remaining_bytes), 0)

    def seconds_until_check(self, release_s: float) -> float:
        """Return the pause of the thread after a check, in seconds.

        Args:
            release_s: The seconds for which the check has released pages.
        """
        interval = FAST_CHECK_INTERVAL_S if self._grows_fast else CHECK_INTERVAL_S
        return max(interval, PAUSE_PER_RELEASE * release_s)


def _watch(pages: ref[ResidentPages], must_stop: threading.Event) -> None:
    """Check the pages until ``must_stop`` is set, or ``pages`` is not referenced any more."""
    pause = CHECK_INTERVAL_S
    while not must_stop.wait(pause):
        watched = pages()
        if watched is None:
            return
        pause = watched.seconds_until_check(watched.check())
        del watched


def _divide_index(maps: Iterable[MappedMemory], leaves: Iterable[PageRange]) -> list[PageRange]:
    """Return the bytes of maps without the leaves, in pieces."""
    leaves_of: dict[int, list[PageRange]] = {}
    for leaf in leaves:
        leaves_of.setdefault(id(leaf.mapped), []).append(leaf)
    ranges = []
    for mapped in maps:
        start = 0
        for leaf in leaves_of.get(id(mapped), []):
            ranges.append(PageRange(mapped, start, leaf.start))
            start = leaf.end
        ranges.append(PageRange(mapped, start, len(mapped.memory)))
    size = max(sum(end - start for _, start, end in ranges) // INDEX_PIECES, mmap.PAGESIZE)
    return [
        PageRange(mapped, first, min(first + size, end))
        for mapped, start, end in ranges
        for first in range(start, end, size)
    ]


def resident_file_bytes() -> int:
    """Return the bytes of all resident pages of files of this process; 0 if this is unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    return 0
