"""Object files: a state directory on S3, or on a service with the same protocol.

An object appears completely or not at all, and is durable when the request returns. Nothing is
renamed: a version is committed by one request that writes its manifest on the condition that the
name is free (``If-None-Match: *``), which the service decides atomically. Reads and listings see
the effects of all requests that have returned, as S3 and compatible services guarantee. There is no
lock; writers are told apart by their epochs (`streaming.state.ownership`).

The address and the credentials of the service come from environment variables: ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL`` and so on; or from the role
of the machine. Files of versions never change, so copies of them are kept on the local disk
(`streaming.state.object_store.local_cache`).

Cost: a request for most calls, up to four for `append`; `write` sends large files in parts. A
micro-batch makes about ten requests, of which some list a folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from streaming.state.files import Bytes, FileStatus
from streaming.state.object_store.local_cache import LocalCache

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

__all__ = ["ObjectFiles"]

# `append` writes the whole object again, and renames a larger one before.
MAX_REWRITTEN_BYTES: Final = 1 << 20
# A larger object is sent in parts.
MAX_BYTES_AT_ONCE: Final = 1 << 24


class ObjectFiles:
    """A directory of a bucket.

    Args:
        location: Its URI, such as ``s3://bucket/folder``.
        cache: Copies of the files on the local disk; None for no copies.
        config: Options of the library obstore, which override the environment variables.

    Raises:
        ValueError: The URI has no bucket, or an option is unknown.
        ModuleNotFoundError: The package obstore is not installed.
    """

    def __init__(self, location: str, cache: LocalCache | None = None, **config: Any) -> None:
        self.location = location.rstrip("/")
        self._cache = cache
        self._config = config
        self._open_store: S3Store | None = None
        try:
            self._store  # noqa: B018 - raises an error if the arguments are invalid
        except self._library.exceptions.BaseError as error:
            raise ValueError(f"{location}: {_first_line(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the directory without its connections."""
        return self.__dict__ | {"_open_store": None}

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Create an object of these bytes, or replace it; durable when this returns."""
        views = [memoryview(chunk).cast("B") for chunk in chunks]
        is_small = sum(view.nbytes for view in views) <= MAX_BYTES_AT_ONCE
        with self._os_errors(name):
            self._library.put(self._store, name, b"".join(views) if is_small else views)
        if self._cache is not None:
            self._cache.write(name, views)

    def create(self, name: str, data: Bytes) -> None:
        """Create an object, unless the name is used; the service decides this atomically.

        Raises:
            FileExistsError: The name is used, perhaps by an earlier attempt of this call whose
                answer was lost.
        """
        with self._os_errors(name):
            self._library.put(self._store, name, bytes(data), mode="create", use_multipart=False)

    def sync(self, name: str) -> None:
        """Do nothing: an object is durable."""

    def rename(self, old: str, new: str) -> None:
        """Copy an object and remove the old one; these are two requests."""
        with self._os_errors(old):
            self._library.copy(self._store, old, new)
        self.remove(old)

    def rename_new(self, old: str, new: str) -> None:
        """Copy an object to an unused name, and remove the old one.

        Raises:
            FileExistsError: The name is used.
        """
        self.create(new, self.read(old))
        self.remove(old)

    def sync_folder(self, folder: str) -> None:
        """Do nothing: names are durable."""

    def read(self, name: str) -> memoryview:
        """Return the bytes of an object as private, writable memory."""
        if self._cache is not None and (cached := self._cache.read(name)) is not None:
            return cached
        with self._os_errors(name):
            data = self._library.get(self._store, name).bytes()
        if self._cache is not None:
            self._cache.write(name, [memoryview(data)])
        return memoryview(bytearray(data))

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""
        try:
            with self._os_errors(name):
                return int(self._library.head(self._store, name)["size"])
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, sorted, each with its folder."""
        names = sorted(object["path"] for object in self._objects(folder))
        if self._cache is not None:
            self._cache.keep_only(folder, names)
        return names

    def list_files(self, folder: str) -> list[FileStatus]:
        """Return the sizes and times of the objects in a folder, sorted by name."""
        statuses = [
            FileStatus(object["path"], object["size"], object["last_modified"].timestamp())
            for object in self._objects(folder)
        ]
        return sorted(statuses, key=lambda status: status.name)

    def remove(self, name: str) -> None:
        """Remove an object; a missing object is not an error."""
        with contextlib.suppress(FileNotFoundError), self._os_errors(name):
            self._library.delete(self._store, name)
        if self._cache is not None:
            self._cache.remove(name)

    def append(self, name: str, text: str) -> None:
        """Append text by writing the object again.

        An object of more than ``MAX_REWRITTEN_BYTES`` is first renamed to ``<name>.1``, replacing
        an older one.
        """
        size = self.size(name)
        if size is not None and size > MAX_REWRITTEN_BYTES:
            self.rename(name, f"{name}.1")
            size = None
        content = b"" if size is None else bytes(self.read(name))
        self.write(name, [content, text.encode()])

    def lock(self) -> None:
        """Do nothing: an object store has no locks."""

    def unlock(self) -> None:
        """Do nothing: an object store has no locks."""

    @property
    def _library(self) -> Any:
        """The library obstore, which an extra installs."""
        import obstore

        return obstore

    @property
    def _store(self) -> S3Store:
        if self._open_store is None:
            from obstore.store import S3Store

            self._open_store = S3Store.from_url(self.location, **self._config)
        return self._open_store

    def _objects(self, folder: str) -> Sequence[ObjectMeta]:
        with self._os_errors(folder):
            listing = self._library.list_with_delimiter(self._store, folder or None)
            objects: Sequence[ObjectMeta] = listing["objects"]
            return objects

    @contextlib.contextmanager
    def _os_errors(self, name: str) -> Iterator[None]:
        """Raise errors of the library as an `OSError` that names the object."""
        path = f"{self.location}/{name}"
        exceptions = self._library.exceptions
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        except exceptions.PermissionDeniedError as error:
            raise PermissionError(errno.EACCES, _first_line(error), path) from error
        except exceptions.BaseError as error:
            raise OSError(f"{path}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the message of an error without the details for developers."""
    return str(error).partition("\n")[0]
