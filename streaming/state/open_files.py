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
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import MappableObjectFiles

__all__ = ["open_files"]

# A path in a command line has one slash of the two.
_S3: Final = re.compile(r"s3a?:/+", re.IGNORECASE)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def open_files(location: Any, mode: int | None = None) -> Files:
    """Return the files of a location.

    Args:
        location: A path, a URI such as ``s3://bucket/folder``, another URI of a file system that
            pyarrow supports, a pair ``(filesystem, path)``, or an object with the interface
            `Files`, which is returned unchanged.
        mode: As for `LocalFiles`; no other file system has permission bits.

    Raises:
        StateError: The URI is invalid, pyarrow has no file system for it, or a package is missing.
    """
    if isinstance(location, tuple):
        system, path = location
        return _files_in(system, path, mode)
    if not isinstance(location, str | os.PathLike):
        return cast(Files, location)
    text = os.fspath(location)
    if not _URI.match(text):
        return LocalFiles(os.path.abspath(text), mode)
    if match := _S3.match(text):
        return _object_files(f"s3://{text[match.end() :]}")
    try:
        system, path = arrow_fs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(
            f"state_dir {text!r}: {error}; give a path, or a URI that pyarrow supports"
        ) from error
    return _files_in(system, path, mode)


def _object_files(location: str) -> Files:
    if "?" in location or location.strip("/") == "s3:":
        raise StateError(
            f"{location}: give the bucket and the folder, as in s3://bucket/folder; the endpoint, "
            "the region and the credentials are in environment variables such as AWS_ENDPOINT_URL"
        )
    try:
        return MappableObjectFiles(location, LocalCache.of(location))
    except ModuleNotFoundError as error:
        raise StateError(
            f"{location}: object stores need the package obstore, which is not installed: run "
            "pip install 'dbsp-wcoj[s3]'"
        ) from error
    except ValueError as error:
        raise StateError(
            f"{location} is not usable: {error}; give a URI such as s3://bucket/folder"
        ) from error


def _files_in(system: arrow_fs.FileSystem, path: str, mode: int | None) -> Files:
    while isinstance(system, arrow_fs.SubTreeFileSystem):
        system, path = system.base_fs, f"{system.base_path.rstrip('/')}/{path}"
    # Arrow closes local files without syncing them.
    local = isinstance(system, arrow_fs.LocalFileSystem)
    return LocalFiles(path, mode) if local else ArrowFiles(system, path)
