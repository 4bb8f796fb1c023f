"""A simulated file system in memory that may lose whatever a crash of the machine may lose.

It implements `Files` for a machine whose power can fail. Every file system keeps synced data; the
fate of all other data after a crash is drawn from a seed:

*   the bytes of a file since its last sync: for each file independently, they are all kept,
    missing, cut short, as before, zeros, or a mixture of blocks of all these and garbage;
*   a name that was created, renamed or removed since the last sync of its folder: for each name
    independently, any of its states since then. So a rename may be lost and a later one kept, both
    names of a rename may exist or neither, and a removed file may exist again. A file system
    without a journal guarantees no more; ext4 and XFS do;
*   a new folder, with its contents: kept for certain only after the folder "" is synced;
*   after a failed sync, the next sync of that file succeeds without writing the data: the kernel
    reports a failed write-back once, and drops the pages (Rebello et al., "Can Applications Recover
    from fsync Failures?", USENIX ATC 2020).

A process may also be killed while the machine runs; then everything written is kept, and remains
unsynced. Any call may fail with an error after none, half or all of its work. A fault is planned by
the number of calls until it happens, so a run is a function of its seed.

`SimulatedObjects` is an object store instead: a write is atomic and durable when it returns. If the
process dies during a write, or receives an error, then the request was lost, has taken effect, or
takes effect some calls later.

A crash is not an ``Exception``, so that no code that handles errors runs after it. Every later call
of the dead process raises it again and does nothing.

Writing over a file that this process has read fails the test: the real one may be mapped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Final, Literal, TypeVar

import numpy as np

from streaming.errors import StateDamagedError, StateLockedError
from streaming.state.files import Bytes, FileStatus
from streaming.state.local_files import LOCK_FILE

BLOCK: Final = 64  # bytes that reach the disk, or not, together
ERRORS: Final = (errno.EIO, errno.ENOSPC)

Kind = Literal["power", "kill", "error", "full"]
When = Literal["before", "during", "after"]
T = TypeVar("T")


class Crash(BaseException):
    """The process has ended; with ``power``, the machine has lost power."""

    def __init__(self, message: str, *, power: bool) -> None:
        super().__init__(message)
        self.power = power


@dataclass(frozen=True)
class Fault:
    """A fault of the call after the next ``calls`` calls.

    "full" is an error of that call and of all writes after it until `SimulatedDisk.tidy`.
    """

    calls: int
    kind: Kind
    when: When = "before"


class Inode:
    """A file: its bytes as processes see them, and earlier bytes that a crash may restore."""

    __slots__ = ("bytes", "earlier", "ignores_sync", "is_read")

    def __init__(self, content: bytes = b"") -> None:
        self.bytes = content
        self.earlier: list[bytes] = []  # contents since the last sync, the synced one first
        self.ignores_sync = False  # after a failed sync, until the next change
        self.is_read = False

    def change(self, content: bytes) -> None:
        self.earlier.append(self.bytes)
        self.bytes = content
        self.ignores_sync = False

    def sync(self) -> None:
        if not self.ignores_sync:
            self.earlier.clear()

    def after_crash(self, random: Random) -> Inode:
        if not self.earlier:
            return Inode(self.bytes)
        fate = random.randrange(7)
        if fate == 0:
            return Inode(self.bytes)
        if fate == 1:
            return Inode(self.earlier[0])
        if fate == 2:
            return Inode()
        if fate == 3:
            return Inode(cut(self.bytes, random))
        if fate == 4:
            return Inode(bytes(len(self.bytes)))
        return Inode(self._torn(random))

    def _torn(self, random: Random) -> bytes:
        contents = [self.bytes, self.bytes, *self.earlier]
        blocks = []
        for start in range(0, len(self.bytes), BLOCK):
            width = min(BLOCK, len(self.bytes) - start)
            if random.random() < 0.1:
                blocks.append(random.randbytes(width))
            else:
                content = random.choice(contents)
                blocks.append(content[start : start + width].ljust(width, b"\0"))
        return b"".join(blocks)


class SimulatedDisk:
    """A directory on the disk of a machine; `files` opens it for a process.

    >>> disk = SimulatedDisk(seed=3)
    >>> files = disk.files()
    >>> files.write("data/a", [b"one"]); files.sync("data/a"); files.sync_folder("data")
    >>> files.sync_folder("")
    >>> files.write("data/b", [b"two"])
    >>> disk.lose_power()
    >>> bytes(disk.files().read("data/a"))
    b'one'
    """

    def __init__(self, seed: int | str, *, has_objects: bool = False) -> None:
        self.has_objects = has_objects
        self.random = Random(seed)
        self.calls = 0
        self.log: list[str] = []
        self.full = False
        self.struck = False  # True after a fault, until the caller resets it
        self.holder: SimulatedFiles | None = None
        self._names: dict[str, Inode] = {}
        self._unsynced: dict[str, dict[str, list[Inode | None]]] = {"": {}}
        self._new_folders: set[str] = set()
        self._living: list[SimulatedFiles] = []
        self._processes = 0
        #: The disk with the local cache of an object store; it has no faults.
        self._cache_disk = SimulatedDisk(seed) if has_objects else None
        self._fault: Fault | None = None
        # Requests of dead processes, and the number of calls after which they take effect.
        self.has_late_request = False
        self.delayed: list[tuple[int, Callable[[], None]]] = []

    def let_delayed_requests_arrive(self, calls: int = 1) -> None:
        """Count calls; apply the requests that arrive before the last of them."""
        waiting = [(left - calls, do) for left, do in self.delayed]
        self.delayed = [(left, do) for left, do in waiting if left > 0]
        for left, do in waiting:
            if left <= 0:
                self.struck = self.has_late_request = True
                self.log.append("-- a delayed request arrives")
                with contextlib.suppress(FileExistsError):
                    do()

    def files(self) -> SimulatedFiles:
        """Return the directory for a process that starts now."""
        self._processes += 1
        files = (SimulatedObjects if self.has_objects else SimulatedFiles)(self, self._processes)
        self._living.append(files)
        return files

    def plan(self, fault: Fault | None) -> None:
        """Plan a fault; it replaces a planned fault that has not happened."""
        self._fault = fault
        self.calls = 0

    @property
    def has_planned_fault(self) -> bool:
        """True if a fault is still to come."""
        return self._fault is not None

    def tidy(self) -> None:
        """Free space on the disk."""
        self.full = False

    def kill(self) -> None:
        """End all processes; everything written is kept, and unsynced data remains unsynced."""
        for files in self._living:
            files.alive = False
        self._living.clear()
        self.holder = None
        for inode in self._names.values():
            inode.is_read = False
        self.log.append("-- killed")

    def lose_power(self) -> None:
        """End all processes, and draw the fate of all unsynced data."""
        self.kill()
        self.log.append("-- power lost")
        # If each name were drawn by itself, many names would never be all lost or all kept.
        # The probability that a change is kept.
        keep_probability = self.random.choice((0.0, 1.0, 0.5))
        lost = {folder for folder in sorted(self._new_folders) if self._is_lost(keep_probability)}
        for names in self._unsynced.values():
            for name, states in names.items():
                if self._is_lost(keep_probability):
                    state = states[0] if keep_probability == 0.0 else self.random.choice(states)
                    self._put(name, state)
            names.clear()
        for name in [name for name in self._names if folder_of(name) in lost]:
            del self._names[name]
        for folder in lost:
            del self._unsynced[folder]
        self._new_folders.clear()
        survivors: dict[int, Inode] = {}  # one file may be left with two names
        for name, inode in self._names.items():
            if id(inode) not in survivors:
                # A generator for each file: its length must not change the fate of other files.
                survivors[id(inode)] = inode.after_crash(Random(self.random.getrandbits(64)))
            self._names[name] = survivors[id(inode)]

    def names(self) -> list[str]:
        """Return the names of all files, the lock file included."""
        return sorted(self._names)

    def content(self, name: str) -> bytes:
        """Return the bytes of a file; this is not a call of a process."""
        return self._names[name].bytes

    def replace(self, name: str, content: bytes | None) -> None:
        """Damage a file: replace its bytes, or remove it (None)."""
        self._put(name, None if content is None else Inode(content))
        self.log.append(f"-- damaged {name}")

    def next_fault(self, call: str) -> Fault | None:
        """Count a call; return the fault that happens in it, if any."""
        self.log.append(call)
        fault = self._fault
        self.calls += 1
        if fault is not None and self.calls > fault.calls:
            self._fault = None
            self.struck = True
            self.log.append(f"-- {fault.kind} {fault.when} it")
            return fault
        if self.full and call.startswith(("write", "append", "create")):
            return Fault(0, "full", "during")
        return None

    def strike(self, fault: Fault, call: str) -> None:
        """Apply the effect of a fault, and raise its error or crash."""
        if fault.kind == "power":
            self.lose_power()
        elif fault.kind == "kill":
            self.kill()
        else:
            code = self.random.choice(ERRORS)
            if fault.kind == "full":
                self.full = True
                code = errno.ENOSPC
            raise OSError(code, os.strerror(code), call)
        raise Crash(f"{fault.kind} {fault.when} {call}", power=fault.kind == "power")

    def inode(self, name: str) -> Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._names[name]

    def link(self, name: str, inode: Inode | None) -> None:
        """Change the file of a name; a crash may undo this until the folder is synced."""
        folder = folder_of(name)
        if folder not in self._unsynced:
            self._unsynced[folder] = {}
            self._new_folders.add(folder)
        self._unsynced[folder].setdefault(name, []).append(self._names.get(name))
        self._put(name, inode)

    def sync_names(self, folder: str) -> None:
        if folder in self._unsynced:
            self._unsynced[folder].clear()
        if not folder:
            self._new_folders.clear()

    def _put(self, name: str, inode: Inode | None) -> None:
        if inode is None:
            self._names.pop(name, None)
        else:
            self._names[name] = inode

    def _is_lost(self, keep_probability: float) -> bool:
        return self.random.random() >= keep_probability


class SimulatedFiles:
    """The interface `Files` of a `SimulatedDisk`, for one process."""

    def __init__(self, disk: SimulatedDisk, process: int) -> None:
        self.location = "simulated"
        self.process = process
        self.alive = True
        self._disk = disk

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        content = b"".join(memoryview(chunk).cast("B") for chunk in chunks)
        disk = self._disk

        def begin() -> Inode:
            if name not in disk._names:
                disk.link(name, Inode())
            inode = disk._names[name]
            assert not inode.is_read, f"{name} is written over while it may be mapped"
            return inode

        def write_half() -> None:
            begin().change(cut(content, disk.random))

        self._run(f"write {name} ({len(content)})", lambda: begin().change(content), write_half)

    def sync(self, name: str) -> None:
        def fail() -> None:
            self._disk.inode(name).ignores_sync = True

        self._run(f"sync {name}", lambda: self._disk.inode(name).sync(), fail)

    def rename(self, old: str, new: str) -> None:
        def move() -> None:
            inode = self._disk.inode(old)
            if old != new:
                self._disk.link(new, inode)
                self._disk.link(old, None)

        self._run(f"rename {old} {new}", move)

    def rename_new(self, old: str, new: str) -> None:
        def move() -> None:
            inode = self._disk.inode(old)
            if new in self._disk._names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
            self._disk.link(new, inode)
            self._disk.link(old, None)

        self._run(f"rename_new {old} {new}", move)

    def sync_folder(self, folder: str) -> None:
        self._run(f"sync_folder {folder!r}", lambda: self._disk.sync_names(folder))

    def read(self, name: str) -> memoryview:
        def map_content() -> memoryview:
            inode = self._disk.inode(name)
            inode.is_read = True
            return memoryview(bytearray(inode.bytes))

        return self._run(f"read {name}", map_content)

    @property
    def record_files(self) -> SimulatedFiles:
        cache_disk = self._disk._cache_disk
        return self if cache_disk is None else cache_disk.files()

    def map(self, name: str, size: int) -> SimulatedMap:
        def map_content() -> SimulatedMap:
            inode = self._disk.inode(name)
            inode.is_read = True
            return SimulatedMap(inode, size)

        return self._run(f"map {name}", map_content)

    def checksum(self, name: str) -> int:
        return self._run(f"checksum {name}", lambda: zlib.crc32(self._disk.inode(name).bytes))

    def scratch(self, folder: str, words: int) -> SimpleNamespace:
        def reserve() -> SimpleNamespace:
            return SimpleNamespace(
                # As the array of a map, it does not own its memory.
                take_array=lambda: np.zeros(words, np.int64)[:],
                release_pages=lambda: None,
                expect_random_access=lambda: None,
            )

        return self._run(f"scratch {folder} ({words})", reserve)

    def size(self, name: str) -> int | None:
        inode = self._run(f"size {name}", lambda: self._disk._names.get(name))
        return None if inode is None else len(inode.bytes)

    def names(self, folder: str) -> list[str]:
        return self._run(
            f"names {folder!r}",
            lambda: [name for name in self._disk.names() if folder_of(name) == folder],
        )

    def list_files(self, folder: str) -> list[FileStatus]:
        def list_now() -> list[FileStatus]:
            disk = self._disk
            names = [name for name in disk.names() if folder_of(name) == folder]
            return [FileStatus(name, len(disk.inode(name).bytes), time.time()) for name in names]

        return self._run(f"list_files {folder!r}", list_now)

    def remove(self, name: str) -> None:
        def delete() -> None:
            if name in self._disk._names:
                self._disk.link(name, None)

        self._run(f"remove {name}", delete)

    def append(self, name: str, text: str) -> None:
        def add(part: str) -> None:
            if name not in self._disk._names:
                self._disk.link(name, Inode())
            inode = self._disk._names[name]
            inode.change(inode.bytes + part.encode())

        self._run(f"append {name}", lambda: add(text), lambda: add(text[: len(text) // 2]))

    def lock(self) -> None:
        def take_lock() -> None:
            holder = self._disk.holder
            if holder is not None and holder is not self:
                raise StateLockedError(
                    f"state directory {self.location} is written to by another sink, in process "
                    f"{holder.process}"
                )
            self._disk.holder = self
            if LOCK_FILE not in self._disk._names:
                self._disk.link(LOCK_FILE, Inode())

        self._run("lock", take_lock)

    def unlock(self) -> None:
        def release_lock() -> None:
            if self._disk.holder is self:
                self._disk.holder = None

        self._run("unlock", release_lock)

    def point(self, call: str) -> None:
        """Let a fault happen here as in any call, although this call does nothing."""
        self._run(call, lambda: None)

    def _run(self, call: str, do: Callable[[], T], half: Callable[[], None] | None = None) -> T:
        disk = self._disk
        if not self.alive:
            raise Crash(f"{call} of a dead process", power=False)
        fault = disk.next_fault(call)
        if fault is None:
            return do()
        if fault.when == "after":
            do()
        elif call.startswith("sync "):
            if half is not None and fault.kind in ("error", "full"):
                half()
        elif half is not None and fault.when == "during":
            half()
        disk.strike(fault, call)
        raise AssertionError("a fault raises")


class SimulatedMap:
    """A map of a file, as far as the state uses it; the file stays readable when it is removed."""

    def __init__(self, inode: Inode, size: int) -> None:
        self._inode = inode
        self._size = size
        self.check()
        self.memory = memoryview(bytearray(inode.bytes))
        self.identity = (zlib.crc32(inode.bytes),)  # damage changes it

    def check(self) -> None:
        size = len(self._inode.bytes)
        if size != self._size:
            raise StateDamagedError(f"a mapped file has {size} bytes, expected {self._size}")

    def expect_random_access(self) -> None:
        pass

    def expect_few_reads(self, is_expected: bool) -> None:
        pass

    def release_pages(self, start: int = 0, end: int | None = None) -> None:
        pass


class SimulatedObjects(SimulatedFiles):
    """The interface `AtomicFiles`: a directory on an object store, without a lock."""

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        content = b"".join(memoryview(chunk).cast("B") for chunk in chunks)
        self._request(f"write {name} ({len(content)})", lambda: self._put(name, content))

    def create(self, name: str, data: Bytes) -> None:
        content = bytes(data)

        def create_now() -> None:
            if name in self._disk._names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            self._put(name, content)

        self._request(f"create {name} ({len(content)})", create_now)

    def read_at_most(self, name: str, max_bytes: int) -> bytes | None:
        content = bytes(self.read(name))
        return content if len(content) <= max_bytes else None

    def append(self, name: str, text: str) -> None:
        old = self._disk._names.get(name)
        content = (b"" if old is None else old.bytes) + text.encode()
        self._request(f"append {name}", lambda: self._put(name, content))

    def sync(self, name: str) -> None:
        """Do nothing."""

    def sync_folder(self, folder: str) -> None:
        """Do nothing."""

    def rename(self, old: str, new: str) -> None:
        raise AssertionError(f"{old} is renamed to {new} on an object store")

    def rename_new(self, old: str, new: str) -> None:
        raise AssertionError(f"{old} is renamed to {new} on an object store")

    def remove(self, name: str) -> None:
        self.remove_all([name])

    def remove_all(self, names: Sequence[str]) -> None:
        def delete(deleted: Sequence[str]) -> None:
            for name in deleted:
                self._disk._put(name, None)

        def delete_some() -> None:
            delete(self._disk.random.sample(names, self._disk.random.randint(0, len(names))))

        if names:
            self._run(f"remove {' '.join(names)}", lambda: delete(names), delete_some)

    def lock(self) -> None:
        """Do nothing."""

    def unlock(self) -> None:
        """Do nothing."""

    def _put(self, name: str, content: bytes) -> None:
        self._disk._put(name, Inode(content))

    def _request(self, call: str, do: Callable[[], None]) -> None:
        """Make a request; if the process dies during it, its effect is unknown."""
        disk = self._disk

        def send_last_request() -> None:
            if disk.random.random() < 0.5:
                disk.delayed.append((1 + int(disk.random.expovariate(1 / 20)), do))

        self._run(call, do, send_last_request)

    def _run(self, call: str, do: Callable[[], T], half: Callable[[], None] | None = None) -> T:
        self._disk.let_delayed_requests_arrive()
        return super()._run(call, do, half)


def cut(content: bytes, random: Random) -> bytes:
    return content[: int(random.random() * (len(content) + 1))]


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]
