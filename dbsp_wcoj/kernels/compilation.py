"""The decorators of kernels: compiled once, without the GIL, those that Python calls kept on disk.

numba invalidates a cached kernel when the file that it stands in changes, not when a file that it
calls into does. So the stamp of every cached kernel is made of all kernel sources.

Compiling takes seconds per kernel, and only happens where the cache has no kernel of that name. An
observer is told before each and after it (`observe_compilation`); the default one writes one line
to the log, and on a terminal shows the kernel that is compiled now, because half a minute of
silence looks like a hang.

Most of these seconds go to functions that kernels call: numba compiles each to machine code, and
again within each function that calls it. So they have no way in from Python (`subroutine`), are
called with few kinds of arguments (numba compiles a function anew for a literal), and the large
parts of a join are kernels that are called by their address (`address_of`).
"""

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import Any, Final, Protocol

from numba import njit, types
from numba.core import event
from numba.core.registry import CPUDispatcher

__all__ = [
    "CompilationObserver",
    "address_of",
    "kernel",
    "inline_subroutine",
    "observe_compilation",
    "subroutine",
]


class CompilationObserver(Protocol):
    """Receives the start and the end of each compilation of a kernel."""

    def started(self, kernel: str) -> None:
        """A kernel of this name is compiled now."""

    def finished(self, kernel: str) -> None:
        """It is compiled, and kept on disk for later processes."""


class LoggedCompilation:
    """Writes one line to the log ``dbsp_wcoj`` when the first kernel of a process is compiled.

    Where standard error is a terminal, a line there names each kernel while it is compiled.
    """

    def __init__(self) -> None:
        self._kernels = 0
        self._width = 0

    def started(self, kernel: str) -> None:
        self._kernels += 1
        if self._kernels == 1:
            getLogger("dbsp_wcoj").warning(
                "compiling the kernels of the join for this machine: once, up to about half a "
                "minute; they are kept on disk. dbsp_wcoj.warm_up() does it ahead of time"
            )
        line = f"compiling kernel {self._kernels}: {kernel}"
        self._width = len(line)
        self._show(line)

    def finished(self, kernel: str) -> None:
        self._show(" " * self._width + "\r")

    def _show(self, line: str) -> None:
        terminal = sys.stderr  # None where a program has no console
        if terminal is not None and terminal.isatty():
            terminal.write("\r" + line)
            terminal.flush()


class _Listener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Passes numba's events of our kernels on; functions that a kernel calls are part of it."""

    def __init__(self) -> None:
        self.observer: CompilationObserver = LoggedCompilation()
        self._compiling: str | None = None

    def on_start(self, event: Any) -> None:
        name = _kernel_name(event)
        if self._compiling is None and name in KERNELS:
            self._compiling = name
            self.observer.started(name)

    def on_end(self, event: Any) -> None:
        name = _kernel_name(event)
        if name is not None and name == self._compiling:
            self._compiling = None
            self.observer.finished(name)


def _kernel_name(compilation: Any) -> str | None:
    """The name of what numba compiles: module and function."""
    function = getattr(compilation.data.get("dispatcher"), "py_func", None)
    if function is None:
        return None
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def _hash_sources() -> str:
    digest = sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCE_STAMP: Final = _hash_sources()
#: The names of the kernels that Python calls, as observers are told them.
KERNELS: Final[set[str]] = set()
_LISTENER: Final = _Listener()
event.register("numba:compile", _LISTENER)


def observe_compilation(observer: CompilationObserver) -> CompilationObserver:
    """Tell this observer of kernels that are compiled from now on; return the one before."""
    before, _LISTENER.observer = _LISTENER.observer, observer
    return before


class _Subroutine(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A function for kernels only: numba compiles no way into it from Python, which takes time."""

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is called by kernels only")


def subroutine(function: Callable[..., Any], **options: Any) -> Any:
    """Let kernels call ``function``, which is compiled with each kernel that does."""
    options |= {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _Subroutine(function, targetoptions={"nopython": True, "boundscheck": None, **options})


def inline_subroutine(function: Callable[..., Any]) -> Any:
    """As `subroutine`, for a small function that is called for every value."""
    return subroutine(function, forceinline=True)


@cache
def address_of(kernel: Any) -> int:
    """Return the address at which a kernel of int64 arguments is called by another one.

    The kernel is compiled, or loaded from the cache. A kernel that is called so is compiled once
    and not with each that calls it, and only where a plan needs it.
    """
    arguments = (types.int64,) * kernel.py_func.__code__.co_argcount
    kernel.compile(arguments)
    address: int = types.CompileResultWAP(kernel.overloads[arguments]).address
    return address


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` for the argument types of its first call, or load it from the cache."""
    dispatcher = njit(nogil=True, cache=True)(function)
    # The only way in: numba has no public setting for what a cache entry depends on.
    dispatcher._cache._cache_file._source_stamp = SOURCE_STAMP
    KERNELS.add(f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}")
    return dispatcher
