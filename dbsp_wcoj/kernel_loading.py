"""Kernel loading: load a kernel before it is called, so that its first call cannot be cut off.

The first call of a kernel in a process loads its machine code, or compiles it, which takes up to
half a minute. An interrupt in that time changes nothing. But it would look like one in the call if
the caller has already noted that the state is changing. So such a caller loads the kernel first.
"""

from __future__ import annotations

from typing import Any

from numba import typeof

__all__ = ["load_kernel"]


def load_kernel(kernel: Any, *arguments: Any) -> None:
    """Load a kernel for the types of these arguments, or compile it, without a call.

    Complexity:
        O(1) if it is loaded; up to half a minute if it must be compiled.
    """
    kernel.compile(tuple(map(typeof, arguments)))
