"""Unreadable pages: a page of a map that cannot be read is an error of the step that reads it.

If the disk fails to read a page of a map, or another program has cut the file short, the system
sends the signal SIGBUS to the thread that reads the page. By default this ends the process. In a
thread that reads within `guard_reads`, a handler continues instead::

    a thread reads a page that cannot be read
        the handler replaces the page by zeros, and records the file
        the thread continues with wrong numbers, which nobody may use
    `check_reads`, or the end of the guard, raises `UnreadablePageError`, which names the file

Zeros are safe to read: all positions in a run are relative to its start and not negative, so a
search stays within the run. At the end of the guard, the page becomes unreadable again, because
other threads must not use the zeros. In a thread without a guard, the signal has the effect that
it had before.

Cost: nothing until a page cannot be read. It needs Linux on a 64-bit processor; elsewhere such a
page ends the process.

Alternatives considered: reading files by ``pread``, which returns an error. Every search would have
to look up in a table whether, and where, a page is in memory.
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

# Linux on 64-bit processors: constants of the system, and the position of the address that could
# not be read in ``siginfo_t``.
SA_SIGINFO: Final = 4
MAP_FIXED: Final = 0x10
ADDRESS_POSITION: Final = 16
IS_SUPPORTED: Final = sys.platform == "linux" and sys.maxsize > 2**32


class UnreadablePageError(OSError):
    """A page of a mapped file cannot be read; the message names the file."""


class GuardedMap(Protocol):
    """A map of a file.

    Attributes:
        path: The path of the file, for messages.
        address: The address of its first byte.
        size: The bytes of the file.
    """

    path: str
    address: int
    size: int


@dataclass(eq=False)
class _Guard:
    """The pages that were replaced while a thread was guarded: the file and address of each."""

    pages: list[tuple[str, int]] = field(default_factory=list)

    def check(self, cause: BaseException | None = None) -> None:
        """Raise an error if a page was replaced."""
        if self.pages:
            path, _ = self.pages[0]
            raise UnreadablePageError(errno.EIO, os.strerror(errno.EIO), path) from cause


class _SignalAction(ctypes.Structure):
    """The type ``struct sigaction`` of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


# A tuple is replaced as a whole: the handler may read it at any time, in any thread.
_maps: tuple[ref[GuardedMap], ...] = ()
# The guard of each thread, by the thread's identifier.
_guards: dict[int, _Guard] = {}
_library: Any = ctypes.PyDLL(None)
# What the signal did before `_install`.
_previous = _SignalAction()
_lock = threading.Lock()


def guard_map(mapped: GuardedMap) -> None:
    """Let the pages of a map be replaced if they cannot be read, until it is not used any more."""
    global _maps
    with _lock:
        _maps = (*[entry for entry in _maps if entry() is not None], ref(mapped))


@contextmanager
def guard_reads() -> Iterator[None]:
    """Raise an error if this thread reads an unreadable page of a map in this block.

    Raises:
        UnreadablePageError: It has read one; whatever was computed in the block may be wrong.
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
        guard.check(error)  # the error may be an effect of the wrong numbers
        raise
    finally:
        _guards.pop(thread, None)
        for _, address in guard.pages:
            _make_unreadable(address)


def check_reads() -> None:
    """Raise an error if this thread has read an unreadable page in its block of `guard_reads`.

    Raises:
        UnreadablePageError: It has read one.
    """
    guard = _guards.get(threading.get_ident())
    if guard is not None:
        guard.check()


def _install() -> None:
    """Handle the signal; no effect if this is already so."""
    with _lock:
        current = _SignalAction()
        _library.sigaction(signal.SIGBUS, None, ctypes.byref(current))
        if current.handler == _handler_address:
            return
        ctypes.memmove(ctypes.byref(_previous), ctypes.byref(current), ctypes.sizeof(current))
        action = _SignalAction(handler=_handler_address, flags=SA_SIGINFO)
        _library.sigaction(signal.SIGBUS, ctypes.byref(action), None)


def _handle(_signal: int, information: int, _context: int) -> None:
    """Replace the page that this thread cannot read, or restore what the signal did before.

    Then the thread reads the page again.
    """
    is_replaced = False
    # An error here would not end the thread, but let it read the page again and again.
    with suppress(BaseException):
        address = ctypes.c_size_t.from_address(information + ADDRESS_POSITION).value
        is_replaced = _replace_page(address)
    if not is_replaced:
        _library.sigaction(signal.SIGBUS, ctypes.byref(_previous), None)


def _replace_page(address: int) -> bool:
    """Replace the page at an address by zeros; return False if it is not for this thread."""
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
    """Let every read of a page send the signal: it becomes a page beyond the end of a file."""
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
