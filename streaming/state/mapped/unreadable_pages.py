"""Unreadable pages: an error, not the end of the process, if a page of a memory map is unreadable.

If the disk fails to read a page of a map, or another program has truncated the file, the system
sends the signal SIGBUS to the thread that reads the page. By default this ends the process. A
thread is *guarded* while it runs a block of `guard_reads`. In a guarded thread, a signal handler
lets the thread continue::

    a thread reads an unreadable page
        the handler replaces the page by zeros, and records the file
        the thread continues with wrong numbers, which must not be used
    `check_reads`, or the end of the block, raises `UnreadablePageError`, which names the file

Zeros are safe to read: all positions in a run are relative to its start and not negative, so a
search stays within the run. At the end of the block the page becomes unreadable again, so that no
other thread uses the zeros. In a thread that is not guarded, the signal has its previous effect.

Cost: one system call per block, and nothing per read until a page is unreadable. The handler needs
Linux on a 64-bit processor; on other systems an unreadable page ends the process.

Alternatives considered: reading files by ``pread``, which returns an error instead of a signal. But
then each search must look up in a table whether and where a page is in memory.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import ref

__all__ = ["UnreadablePageError", "check_reads", "guard_map", "guard_reads"]

# Constants of Linux on 64-bit processors: two flags, and the byte offset in ``siginfo_t`` of
# ``si_addr``, the address that could not be read.
SA_SIGINFO: Final = 4
MAP_FIXED: Final = 0x10
ADDRESS_POSITION: Final = 16
IS_SUPPORTED: Final = sys.platform == "linux" and sys.maxsize > 2**32


class UnreadablePageError(OSError):
    """A page of a mapped file cannot be read; the message names the file."""


class GuardedMap(Protocol):
    """A memory map of a file.

    Attributes:
        path: The path of the file, for messages.
        address: The address of the first byte.
        size: The number of bytes.
    """

    path: str
    address: int
    size: int


@dataclass(eq=False)
class _Guard:
    """The pages that were replaced in one block of `guard_reads`: the file and address of each."""

    pages: list[tuple[str, int]] = field(default_factory=list)

    def check(self, cause: BaseException | None = None) -> None:
        """Raise an error if a page was replaced."""
        if self.pages:
            path, _ = self.pages[0]
            raise UnreadablePageError(errno.EIO, os.strerror(errno.EIO), path) from cause


class _SignalAction(ctypes.Structure):
    """``struct sigaction`` of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


# An immutable tuple, replaced as a whole: the handler may read it at any time, in any thread.
_maps: tuple[ref[GuardedMap], ...] = ()
# The guard of each guarded thread, by the identifier of the thread.
_guards: dict[int, _Guard] = {}
_library: Any = ctypes.PyDLL(None)
# The action of the signal before `_install`.
_previous = _SignalAction()
_lock = threading.Lock()


def guard_map(mapped: GuardedMap) -> None:
    """Let the handler replace unreadable pages of a map, as long as the object exists."""
    global _maps
    with _lock:
        _maps = (*[entry for entry in _maps if entry() is not None], ref(mapped))


@contextmanager
def guard_reads() -> Iterator[None]:
    """Guard this thread during a block; raise an error at its end if it read an unreadable page.

    Raises:
        UnreadablePageError: It has read one, so all results of the block may be wrong.
    """
    thread = threading.get_ident()
    outer = _guards.get(thread)
    if outer is not None:
        yield
        outer.check()
        return
    if not IS_SUPPORTED:
        yield
        return
    _install()
    guard = _Guard()
    try:
        _guards[thread] = guard
        yield
        guard.check()
    except UnreadablePageError:
        raise
    except BaseException as error:
        guard.check(error)  # the wrong numbers may have caused this error
        raise
    finally:
        _guards.pop(thread, None)
        for _, address in guard.pages:
            _make_unreadable(address)


def check_reads() -> None:
    """Raise an error if this thread has read an unreadable page in its block of `guard_reads`.

    It has no effect in a thread that is not guarded.

    Raises:
        UnreadablePageError: It has read one.
    """
    guard = _guards.get(threading.get_ident())
    if guard is not None:
        guard.check()


def _install() -> None:
    """Install the handler of the signal, unless it is installed."""
    with _lock:
        current = _SignalAction()
        _library.sigaction(signal.SIGBUS, None, ctypes.byref(current))
        if current.handler == _handler_address:
            return
        ctypes.memmove(ctypes.byref(_previous), ctypes.byref(current), ctypes.sizeof(current))
        action = _SignalAction(handler=_handler_address, flags=SA_SIGINFO)
        _library.sigaction(signal.SIGBUS, ctypes.byref(action), None)


def _handle(_signal: int, information: int, _context: int) -> None:
    """Replace the page that this thread cannot read, or restore the previous action of the signal.

    When the handler returns, the thread reads the page again.
    """
    is_replaced = False
    # An exception must not leave the handler before the previous action is restored: the thread
    # would read the page, and receive the signal, forever.
    with suppress(BaseException):
        address = ctypes.c_size_t.from_address(information + ADDRESS_POSITION).value
        is_replaced = _replace_page(address)
    if not is_replaced:
        _library.sigaction(signal.SIGBUS, ctypes.byref(_previous), None)


def _replace_page(address: int) -> bool:
    """Replace the page at an address by zeros; return whether this was done.

    It is not done in a thread that is not guarded, or for an address outside of all maps.
    """
    guard = _guards.get(threading.get_ident())
    if guard is None:
        return False
    for mapped in [entry() for entry in _maps]:
        if mapped is not None and mapped.address <= address < mapped.address + mapped.size:
            page = address - address % mmap.PAGESIZE
            if not _map_page(page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1):
                return False
            guard.pages.append((mapped.path, page))
            return True
    return False


def _make_unreadable(page: int) -> None:
    """Make reads of a page send the signal: map an empty file, so that the page is past its end."""
    with suppress(OSError):
        empty_file = os.memfd_create("unreadable")
        try:
            _map_page(page, mmap.MAP_SHARED, empty_file)
        finally:
            os.close(empty_file)


def _map_page(page: int, flags: int, file: int) -> bool:
    result = _library.mmap(page, mmap.PAGESIZE, mmap.PROT_READ, flags | MAP_FIXED, file, 0)
    return bool(result == page)


_library.mmap.restype = ctypes.c_size_t
_library.mmap.argtypes = (
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)(_handle)
_handler_address = ctypes.cast(_handler, ctypes.c_void_p).value
