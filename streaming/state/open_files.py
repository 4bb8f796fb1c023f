"""Open files: choose the implementation of `Files` for a path, a URI or a pyarrow file system."""

from __future__ import annotations

import os
import re
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.fs as arrow_fs

from streaming.errors import StateError
from streaming.state.arrow_files import ArrowFiles
from streaming.state.files import Files
from streaming.state.local_files import LocalFiles

__all__ = ["open_files"]

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def open_files(location: Any, mode: int | None = None) -> Files:
    """Return the files of a location.

    Args:
        location: A path, a URI of a file system that pyarrow supports, a pair ``(filesystem,
            path)``, or an object with the interface `Files`, which is returned unchanged.
        mode: As for `LocalFiles`; no other file system has permission bits.

    Raises:
        StateError: pyarrow has no file system for the URI.
    """
    if isinstance(location, tuple):
        system, path = location
        return _files_in(system, path, mode)
    if not isinstance(location, str | os.PathLike):
        return cast(Files, location)
    text = os.fspath(location)
    if not _URI.match(text):
        return LocalFiles(os.path.abspath(text), mode)
    try:
        system, path = arrow_fs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(
            f"state_dir {text!r}: {error}; give a path, or a URI that pyarrow supports"
        ) from error
    return _files_in(system, path, mode)


def _files_in(system: arrow_fs.FileSystem, path: str, mode: int | None) -> Files:
    while isinstance(system, arrow_fs.SubTreeFileSystem):
        system, path = system.base_fs, f"{system.base_path.rstrip('/')}/{path}"
    # Arrow closes local files without syncing them.
    local = isinstance(system, arrow_fs.LocalFileSystem)
    return LocalFiles(path, mode) if local else ArrowFiles(system, path)
