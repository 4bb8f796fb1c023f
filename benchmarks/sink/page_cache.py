"""Page cache: let a measurement read its files from the disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["drop_from_page_cache"]


def drop_from_page_cache(folder: Path) -> None:
    """Drop the pages of all files of a folder from memory, after they are written to disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
