"""Check whether a folder that may not exist yet can be written to, without creating it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["check_writable", "error_reason"]


def check_writable(folder: Path) -> None:
    """Check that files can be created in a folder, or the folder itself if it does not exist.

    Raises:
        OSError: They cannot be created; the error names the part of the path that prevents it.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise OSError(errno.ENOTDIR, "is a file, not a folder", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, "no permission to write", str(existing))
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, "is on a read-only file system", str(existing))


def error_reason(error: Exception) -> str:
    """Return the reason of an operating system error, without its number.

    >>> error_reason(OSError(errno.ENOTDIR, "is a file, not a folder", "out"))
    'out is a file, not a folder'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename} {error.strerror}"
    return str(error)
