"""The decorator of the kernels that Python calls: compiled once, without the GIL, kept on disk.

numba invalidates a cached kernel when the file that it stands in changes, not when a file that it
calls into does. So the stamp of every cached kernel is made of all kernel sources.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from numba import njit

__all__ = ["compiled"]


def _stamp() -> str:
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


STAMP: Final = _stamp()


def compiled(function: Callable[..., Any]) -> Any:
    """Compile ``function`` for the argument types of its first call, or load it from the cache."""
    dispatcher = njit(nogil=True, cache=True)(function)
    # The only way in: numba has no public setting for what a cache entry depends on.
    dispatcher._cache._cache_file._source_stamp = STAMP
    return dispatcher
