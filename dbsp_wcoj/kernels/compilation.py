"""Compilation: the decorators that make a function a kernel, compiled once and cached on disk.

numba invalidates a cached kernel when the file that defines it changes, but not when a file that it
calls into changes. Therefore a cached kernel has a stamp of all sources that it depends on
(`dbsp_wcoj.kernels.source_stamps`). A wheel may bring the machine code
(`dbsp_wcoj.kernels.precompiled`).

Compiling takes seconds per kernel and happens only when the cache has no entry for it. An observer
is notified before and after each compilation (`observe_compilation`). The default observer writes
one line to the log. On a terminal it also shows the name of the kernel that is being compiled,
because half a minute of silence looks like a hang.

Most of the compile time goes to functions that kernels call: numba compiles each one to machine
code, and again inside each function that calls it. Three rules reduce it:

- such functions have no entry point from Python (`subroutine`);
- they are called with few argument types, because numba compiles a function again for each literal;
- the large parts of a join are kernels that are called by their address (`address_of`).
"""

import sys
from collections.abc import Callable
from functools import cache
from logging import getLogger
from typing import Any, Final, Protocol

from numba import njit, types
from numba.core import event
from numba.core.registry import CPUDispatcher

from dbsp_wcoj.kernels.precompiled import KernelCacheFile
from dbsp_wcoj.kernels.source_stamps import source_stamp

__all__ = [
    "CompilationObserver",
    "address_of",
    "inline_subroutine",
    "kernel",
    "observe_compilation",
    "subroutine",
]


class CompilationObserver(Protocol):
    """Receives the start and the end of each compilation of a kernel."""

    def on_start(self, kernel: str) -> None:
        """The compilation of this kernel begins."""

    def on_finish(self, kernel: str) -> None:
        """The kernel is compiled and cached on disk for later processes."""


class LoggedCompilation:
    """Writes one line to the log ``dbsp_wcoj`` when the first kernel of a process is compiled.

    If standard error is a terminal, a line there shows the kernel that is being compiled.
    """

    def __init__(self) -> None:
        self._kernel_count = 0
        self._line_width = 0

    def on_start(self, kernel: str) -> None:
        self._kernel_count += 1
        if self._kernel_count == 1:
            getLogger("dbsp_wcoj").warning(
                "compiling the kernels for this machine: once, one to two minutes for all of them; "
                "they are cached on disk. dbsp_wcoj.warm_up() does it ahead of time"
            )
        line = f"compiling kernel {self._kernel_count}: {kernel}"
        self._line_width = len(line)
        self._show(line)

    def on_finish(self, kernel: str) -> None:
        self._show(" " * self._line_width + "\r")

    def _show(self, line: str) -> None:
        terminal = sys.stderr  # None where a program has no console
        if terminal is not None and terminal.isatty():
            terminal.write("\r" + line)
            terminal.flush()


class _Listener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Forwards the compilation events of kernels, not those of the subroutines inside them."""

    def __init__(self) -> None:
        self.observer: CompilationObserver = LoggedCompilation()
        self._compiling: str | None = None

    def on_start(self, event: Any) -> None:
        name = _kernel_name(event)
        if self._compiling is None and name in KERNELS:
            self._compiling = name
            self.observer.on_start(name)

    def on_end(self, event: Any) -> None:
        name = _kernel_name(event)
        if name is not None and name == self._compiling:
            self._compiling = None
            self.observer.on_finish(name)


def _kernel_name(compilation: Any) -> str | None:
    """Return the module and function name of the code that numba compiles."""
    function = getattr(compilation.data.get("dispatcher"), "py_func", None)
    if function is None:
        return None
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


#: The kernels, by their names as they are passed to observers.
KERNELS: Final[dict[str, Any]] = {}
_LISTENER: Final = _Listener()
event.register("numba:compile", _LISTENER)


def observe_compilation(observer: CompilationObserver) -> CompilationObserver:
    """Set the observer of later compilations and return the previous observer."""
    before, _LISTENER.observer = _LISTENER.observer, observer
    return before


class _Subroutine(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A function that only kernels call: numba saves the time to compile a Python entry point."""

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is called by kernels only")


def subroutine(function: Callable[..., Any], **options: Any) -> Any:
    """Let kernels call ``function``; it is compiled into each kernel that calls it."""
    options |= {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _Subroutine(function, targetoptions={"nopython": True, "boundscheck": None, **options})


def inline_subroutine(function: Callable[..., Any]) -> Any:
    """Like `subroutine`, for a small function that runs once per value; LLVM inlines it."""
    return subroutine(function, forceinline=True)


@cache
def address_of(kernel: Any) -> int:
    """Return the address at which another kernel can call ``kernel``, whose arguments are int64.

    This compiles the kernel or loads it from the cache. A kernel that is called by address is
    compiled once, not once per caller, and only if a plan needs it.
    """
    arguments = (types.int64,) * kernel.py_func.__code__.co_argcount
    kernel.compile(arguments)
    address: int = types.CompileResultWAP(kernel.overloads[arguments]).address
    return address


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` for the argument types of its first call, or load it from the cache."""
    dispatcher = njit(nogil=True, cache=True)(function)
    # numba has no public setting for where it looks for machine code, and on what that depends.
    cache = dispatcher._cache
    module = function.__module__.removeprefix(f"{__package__}.")
    cache._cache_file = KernelCacheFile(
        cache._cache_file, f"{module}.{function.__qualname__}", source_stamp(module)
    )
    KERNELS[f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"] = dispatcher
    return dispatcher
