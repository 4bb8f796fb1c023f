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

A process that is killed while it sends a large file leaves the parts that it has sent. The library
cannot list them, so a rule of the bucket has to remove them (``AbortIncompleteMultipartUpload``).

Cost: a request for most calls, up to four for `append`; `write` sends large files in parts. A
micro-batch with v views makes 10 + v requests: v write the rows of the views, 2 list a folder, and
2 remove the oldest version.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.errors import StateDamagedError
from streaming.state.files import Bytes, Files, FileStatus, append_by_rewriting
from streaming.state.mapped.mapped_file import MappedFile, ScratchFile
from streaming.state.object_store.local_cache import LocalCache

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

__all__ = ["MappableObjectFiles", "ObjectFiles"]

# A larger object is sent in parts.
MAX_SINGLE_PUT_BYTES: Final = 1 << 24
# The service copies an object of at most this size by one request.
MAX_COPIED_BYTES: Final = 5 << 30
# How often an object is copied to the cache, if its copies are removed before they are read.
MAX_DOWNLOADS: Final = 2

T = TypeVar("T")


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
            self.store  # noqa: B018 - raises an error if the arguments are invalid
        except self.library.exceptions.BaseError as error:
            raise ValueError(f"{location}: {_first_line(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the directory without its connections."""
        return self.__dict__ | {"_open_store": None}

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Create an object of these bytes, or replace it; durable when this returns.

        The chunks are read up to three times: to count their bytes, to send them, and to copy them
        to the cache. So those of an iterator are collected in memory first.
        """
        if isinstance(chunks, Iterator):
            chunks = list(chunks)
        data = _join_small(chunks)
        self.remove_copies(name)
        with self._os_errors(name):
            # The library sends buffers of bytes only, and not those of longer words.
            parts = (memoryview(chunk).cast("B") for chunk in chunks)
            self.library.put(self.store, name, parts if data is None else data)
        if self._cache is not None:
            self._cache.write(name, chunks if data is None else [data])

    def create(self, name: str, data: Bytes) -> None:
        """Create an object, unless the name is used; the service decides this atomically.

        Raises:
            FileExistsError: The name is used, perhaps by an earlier attempt of this call whose
                answer was lost.
        """
        self.remove_copies(name)
        with self._os_errors(name):
            self.library.put(self.store, name, bytes(data), mode="create", use_multipart=False)

    def copy_to(self, other: ObjectFiles, name: str, size: int) -> bool:
        """Copy an object to the same name in another directory, by one request.

        Returns:
            False, and nothing was done, if the service cannot do this: the directories are in
            different buckets or have different options, or the object is too large.
        """
        source, target = self.store, other.store
        if source.config != target.config or size > MAX_COPIED_BYTES:
            return False
        other.remove_copies(name)
        with self._os_errors(name, f"{other.location}/{name}"):
            self.library.copy(
                self._open(f"s3://{source.config['bucket']}"),
                "/".join(filter(None, (source.prefix, name))),
                "/".join(filter(None, (target.prefix, name))),
            )
        return True

    def sync(self, name: str) -> None:
        """Do nothing: an object is durable."""

    def rename(self, old: str, new: str) -> None:
        """Copy an object and remove the old one; these are two requests."""
        self.remove_copies(new)
        with self._os_errors(old, f"{self.location}/{new}"):
            self.library.copy(self.store, old, new)
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
            data = self.library.get(self.store, name).bytes()
        if self._cache is not None:
            self._cache.write(name, [memoryview(data)])
        return memoryview(bytearray(data))

    def read_at_most(self, name: str, max_bytes: int) -> bytes | None:
        """Return the bytes of an object; None, without reading them, if they are more than these.

        The cache is not used.
        """
        with self._os_errors(name):
            answer = self.library.get(self.store, name)
            return None if answer.meta["size"] > max_bytes else bytes(answer.bytes())

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""
        try:
            with self._os_errors(name):
                return int(self.library.head(self.store, name)["size"])
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, sorted, each with its folder.

        A listing of ``data`` also removes the local copies of all objects that are not in it.
        """
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
        self.remove_all([name])

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove objects, by one request for 1,000 of them; a missing object is not an error.

        Raises:
            OSError: Some of the objects may remain.
        """
        if not names:
            return
        with contextlib.suppress(FileNotFoundError), self._os_errors(names[0]):
            self.library.delete(self.store, list(names))
        self.remove_copies(*names)

    def remove_copies(self, *names: str) -> None:
        """Remove the copies of objects from the cache.

        This is done before an object is replaced, so that no copy of the old one remains if this
        process ends then, or the cache cannot store the new one.
        """
        if self._cache is not None:
            self._cache.remove(*names)

    def release_copies(self, *names: str) -> None:
        """Remove the copies of objects that this process does not need any more.

        Copies that no process of this machine has used for long are removed, too. Only processes
        that do not list the folder need this (`streaming.state.object_store.local_cache`).
        """
        if self._cache is not None:
            self._cache.remove(*names)
            self._cache.remove_unused()

    def append(self, name: str, text: str) -> None:
        """Append text, see `append_by_rewriting`."""
        append_by_rewriting(self, name, text)

    def lock(self) -> None:
        """Do nothing: an object store has no locks."""

    def unlock(self) -> None:
        """Do nothing: an object store has no locks."""

    @property
    def library(self) -> Any:
        """The library obstore, which an extra installs."""
        import obstore

        return obstore

    @property
    def store(self) -> S3Store:
        """The connection to the directory of the bucket; it is opened when it is first used."""
        if self._open_store is None:
            self._open_store = self._open(self.location)
        return self._open_store

    def _open(self, location: str) -> S3Store:
        from obstore.store import S3Store

        return S3Store.from_url(location, **self._config)

    def _objects(self, folder: str) -> Sequence[ObjectMeta]:
        with self._os_errors(folder):
            listing = self.library.list_with_delimiter(self.store, folder or None)
            objects: Sequence[ObjectMeta] = listing["objects"]
            return objects

    @contextlib.contextmanager
    def _os_errors(self, name: str, target: str | None = None) -> Iterator[None]:
        """Raise errors of the library as an `OSError` that names the object.

        Args:
            name: The name of the object.
            target: The URI to which the object is copied, which the error names, too.
        """
        path = f"{self.location}/{name}"
        exceptions = self.library.exceptions
        try:
            yield
        except FileNotFoundError:
            missing = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, missing, path, None, target) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        except exceptions.PermissionDeniedError as error:
            raise PermissionError(errno.EACCES, _first_line(error), path, None, target) from error
        except exceptions.BaseError as error:
            paths = path if target is None else f"{path} -> {target}"
            raise OSError(f"{paths}: {_first_line(error)}") from error


class MappableObjectFiles(ObjectFiles):
    """A directory of a bucket, of which files can be mapped: the map is of a copy in the cache.

    Args:
        location: As for `ObjectFiles`.
        cache: Copies of the files on the local disk.
        config: As for `ObjectFiles`.
    """

    def __init__(self, location: str, cache: LocalCache, **config: Any) -> None:
        super().__init__(location, cache, **config)
        self.cache = cache

    @property
    def record_files(self) -> Files:
        """The directory on the local disk that has the copies."""
        return self.cache.files

    def map(self, name: str, size: int) -> MappedFile:
        """Return a copy of a file as shared memory, which is not memory of the process.

        Args:
            name: The name of the file, in the folder of data files.
            size: The size that it must have, at least 1.

        Raises:
            StateDamagedError: The object has another size.
            FileNotFoundError: It is missing.
            OSError: The local disk has no space for the copy, or the copy was removed repeatedly.
        """
        return self._use_copy(name, lambda: self.cache.map(name, size), size)

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of a file; a damaged copy of it is replaced.

        Raises:
            FileNotFoundError: The object is missing.
            OSError: As for `map`.
        """
        return self._use_copy(name, lambda: self.cache.checksum(name))

    def scratch(self, folder: str, words: int) -> ScratchFile:
        """Return writable memory in a file of the cache, which has no name.

        Raises:
            OSError: The disk has too little space.
        """
        return self.cache.scratch(words)

    def _use_copy(self, name: str, use: Callable[[], T | None], size: int | None = None) -> T:
        """Return the result of a function of a copy; while it is None, download the copy.

        Raises:
            StateDamagedError: The object has another size than this one.
        """
        downloads = 0
        while (result := use()) is None:
            if downloads and size is not None:
                self._check_size(name, size)  # if it is correct, the copy was removed meanwhile
            if downloads == MAX_DOWNLOADS:
                location = self.cache.files.location
                raise OSError(f"{location}: a copy of {name} was removed or changed")
            self._download(name)
            downloads += 1
        return result

    def _check_size(self, name: str, size: int) -> None:
        """Raise an error if an object is missing, or has another size."""
        found = self.size(name)
        if found is None:
            path = f"{self.location}/{name}"
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if found != size:
            raise StateDamagedError(
                f"{self.location}/{name} has {found} bytes, it was written with {size}"
            )

    def _download(self, name: str) -> None:
        """Copy an object to the cache, where another process may remove the copy at any time.

        Only a part of the object is in memory at a time.
        """
        self.cache.store(name, self._stream(name))

    def _stream(self, name: str) -> Iterator[Bytes]:
        """Request an object; yield its bytes. Errors of the local disk are not raised here."""
        with self._os_errors(name):
            yield from self.library.get(self.store, name).stream()


def _join_small(chunks: Iterable[Bytes]) -> bytes | None:
    """Return chunks as one, unless they have more than ``MAX_SINGLE_PUT_BYTES``."""
    views, size = [], 0
    for chunk in chunks:
        views.append(memoryview(chunk).cast("B"))
        size += views[-1].nbytes
        if size > MAX_SINGLE_PUT_BYTES:
            return None
    return b"".join(views)


def _first_line(error: Exception) -> str:
    """Return the message of an error without the details for developers."""
    return str(error).partition("\n")[0]
