"""All file systems for durable state behave alike, except after a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.fs as arrow_fs
import pytest

from streaming import StateError, StateLockedError
from streaming.state import local_files
from streaming.state.arrow_files import ArrowFiles
from streaming.state.files import sync_all
from streaming.state.local_files import MIN_MAPPED_BYTES, WRITE_BYTES, LocalFiles
from streaming.state.open_files import open_files
from tests.support.simulated_files import SimulatedDisk


@pytest.fixture(params=["local", "arrow local", "arrow memory", "simulated"])
def open_again(request, tmp_path):
    """A function that opens the same directory each time, as a sink does when it starts."""
    if request.param == "local":
        return lambda: LocalFiles(tmp_path / "deep" / "state")
    if request.param == "arrow local":
        system = arrow_fs.LocalFileSystem()
        return lambda: ArrowFiles(system, str(tmp_path / "deep" / "state"))
    if request.param == "arrow memory":
        system = arrow_fs._MockFileSystem()
        return lambda: ArrowFiles(system, "deep/state")
    return SimulatedDisk(seed=1).files


@pytest.fixture
def files(open_again):
    return open_again()


def test_written_bytes_are_read_after_opening_the_directory_again(open_again):
    files = open_again()
    files.write("data/a", [b"one ", bytearray(b"two "), memoryview(b"three")])
    files.sync("data/a")
    files.sync_folder("data")
    files.sync_folder("")
    assert bytes(open_again().read("data/a")) == b"one two three"
    assert open_again().size("data/a") == 13


def test_files_and_folders_are_synced_together(open_again):
    files = open_again()
    names = [f"data/{number}" for number in range(20)]
    for name in names:
        files.write(name, [name.encode()])
    sync_all(files, names, ["data", ""])
    assert [bytes(open_again().read(name)).decode() for name in names] == names


@pytest.mark.parametrize("threads", [0, 1])
def test_files_are_synced_if_no_more_threads_can_be_started(tmp_path, monkeypatch, threads):
    synced, start, started = set(), threading.Thread.start, []

    class CountedFiles(LocalFiles):
        def sync(self, name):
            synced.add(name)
            super().sync(name)

    def start_few(thread):
        if len(started) == threads:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    files = CountedFiles(tmp_path)
    names = [f"data/{number}" for number in range(20)]
    for name in names:
        files.write(name, [b"1"])
    monkeypatch.setattr(threading.Thread, "start", start_few)
    files.sync_all(names, ["data", ""])
    assert synced == set(names)
    with pytest.raises(FileNotFoundError):
        files.sync_all(["data/none"], [])


def test_one_file_that_cannot_be_synced_is_an_error_and_the_others_are_synced(tmp_path):
    synced = []

    class FailingFiles(LocalFiles):
        def sync(self, name):
            if name == "data/1":
                raise OSError("the disk is full")
            super().sync(name)
            synced.append(name)

    files = FailingFiles(tmp_path)
    names = [f"data/{number}" for number in range(4)]
    for name in names:
        files.write(name, [b"x"])
    with pytest.raises(OSError, match="the disk is full"):
        sync_all(files, names, ["data"])
    assert sorted(synced) == ["data/0", "data/2", "data/3"]


def test_the_files_of_a_folder_are_listed_with_their_sizes(files):
    assert files.list_files("data") == []
    for name, content in {"data/b": b"12", "data/a": b"1", "c": b"123"}.items():
        files.write(name, [content])
    statuses = files.list_files("data")
    assert [(status.name, status.size) for status in statuses] == [("data/a", 1), ("data/b", 2)]
    assert all(status.modified <= time.time() + 1 for status in statuses)
    assert [(status.name, status.size) for status in files.list_files("")] == [("c", 3)]


def test_arrays_and_arrow_buffers_are_written_as_their_bytes(files):
    numbers = np.arange(3, dtype=np.int64)
    files.write("a", [numbers, pa.py_buffer(b"xy"), memoryview(numbers)])
    assert bytes(files.read("a")) == numbers.tobytes() + b"xy" + numbers.tobytes()


def test_a_local_file_is_written_in_aligned_pieces(tmp_path):
    """Linux then keeps each piece in its cache as one large page, which is fast to map."""
    content = [bytes(100), bytes(3 * WRITE_BYTES), bytes(50)]
    with patch.object(local_files.os, "write", wraps=os.write) as write:
        LocalFiles(tmp_path).write("a", content)
    ends = np.cumsum([len(call.args[1]) for call in write.call_args_list])
    whole = [100, WRITE_BYTES, 2 * WRITE_BYTES, 3 * WRITE_BYTES, 3 * WRITE_BYTES + 100]
    assert ends.tolist() == [*whole, 3 * WRITE_BYTES + 150]


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_a_file_may_be_empty(files, chunks):
    files.write("a", chunks)
    assert (bytes(files.read("a")), files.size("a"), files.names("")) == (b"", 0, ["a"])


@pytest.mark.parametrize("size", [10, MIN_MAPPED_BYTES + 3])
def test_changing_memory_that_was_read_does_not_change_the_file(files, size):
    files.write("a", [bytes(size)])
    array = np.frombuffer(files.read("a"), np.uint8)
    array[:] = 7
    assert bytes(files.read("a")) == bytes(size)


def test_a_file_is_overwritten(files):
    files.write("d/a", [b"a long text"])
    files.write("d/a", [b"short"])
    assert bytes(files.read("d/a")) == b"short"


def test_a_rename_replaces_the_file_with_the_new_name(files):
    files.write("d/a", [b"one"])
    files.write("d/b", [b"two"])
    files.rename("d/a", "d/b")
    assert (bytes(files.read("d/b")), files.names("d")) == (b"one", ["d/b"])


def test_a_rename_to_a_new_name_never_replaces_a_file(files):
    files.write("d/a", [b"one"])
    files.write("d/b", [b"two"])
    files.rename_new("d/a", "d/c")
    assert (bytes(files.read("d/c")), files.names("d")) == (b"one", ["d/b", "d/c"])
    with pytest.raises(FileExistsError, match="d/c"):
        files.rename_new("d/b", "d/c")
    assert (bytes(files.read("d/c")), bytes(files.read("d/b"))) == (b"one", b"two")
    with pytest.raises(FileNotFoundError):
        files.rename_new("d/none", "d/new")


def test_without_hard_links_a_rename_to_a_new_name_replaces_no_file(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fail)
    test_a_rename_to_a_new_name_never_replaces_a_file(LocalFiles(tmp_path))


def test_one_of_many_concurrent_renames_to_a_new_name_succeeds(tmp_path):
    files = LocalFiles(tmp_path)
    for number in range(8):
        files.write(f"d/{number}", [b"%d" % number])
    succeeded = []

    def rename(number: int) -> None:
        try:
            LocalFiles(tmp_path).rename_new(f"d/{number}", "d/manifest")
        except FileExistsError:
            return
        succeeded.append(number)

    threads = [threading.Thread(target=rename, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bytes(files.read("d/manifest"))] == [b"%d" % number for number in succeeded]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o2770])
def test_created_files_have_the_requested_mode_under_any_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        files = LocalFiles(tmp_path / "above" / "state", mode)
        files.lock()
        files.write("data/a", [b"x"])
        files.append("metrics", "x\n")
        files.unlock()
    finally:
        os.umask(before)
    state_dir = tmp_path / "above" / "state"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state_dir, state_dir / "data")} == {mode}
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in state_dir.rglob("*") if path.is_file()
    } == {mode & 0o666}
    assert stat.S_IMODE(state_dir.parent.stat().st_mode) == 0o777 & ~umask


def test_names_are_sorted_and_of_one_folder(files):
    for name in ("d/b", "d/a", "e/c", "top"):
        files.write(name, [b"x"])
    assert files.names("d") == ["d/a", "d/b"]
    assert files.names("e") == ["e/c"]
    assert files.names("") == ["top"]
    assert files.names("nothing") == []


def test_a_directory_that_was_never_written_is_empty(files):
    assert (files.names(""), files.names("d"), files.size("d/a")) == ([], [], None)
    files.sync_folder("")
    files.sync_folder("d")


def test_a_file_can_be_removed_and_removing_a_missing_one_does_nothing(files):
    files.write("d/a", [b"one"])
    files.remove("d/a")
    files.remove("d/a")
    files.remove("e/b")
    assert (files.names("d"), files.size("d/a")) == ([], None)


def test_a_missing_file_is_not_read_and_not_renamed(files):
    files.write("d/b", [b"one"])
    for call in (lambda: files.read("d/a"), lambda: files.rename("d/a", "d/b")):
        with pytest.raises(FileNotFoundError):
            call()
    assert bytes(files.read("d/b")) == b"one"


def test_text_is_appended_to_a_new_file_and_to_an_old_one(files):
    files.append("d/log", "one\n")
    files.append("d/log", "zwölf\n")
    assert bytes(files.read("d/log")).decode() == "one\nzwölf\n"


def test_a_lock_is_reentrant(open_again):
    files = open_again()
    files.lock()
    files.lock()
    files.unlock()
    files.unlock()
    other = open_again()
    other.lock()
    other.unlock()


@pytest.mark.parametrize("open_again", ["local", "simulated"], indirect=True)
def test_a_second_lock_is_refused_naming_the_owner_until_the_first_is_released(open_again):
    first, second = open_again(), open_again()
    first.lock()
    owner = os.getpid() if isinstance(first, LocalFiles) else first.process
    with pytest.raises(StateLockedError, match=f"in process {owner}"):
        second.lock()
    first.unlock()
    second.lock()
    with pytest.raises(StateLockedError):
        first.lock()
    second.unlock()


def test_a_lock_is_released_with_its_last_reference_but_not_by_a_forked_process(tmp_path):
    first = LocalFiles(tmp_path)
    first.lock()
    copy = pickle.loads(pickle.dumps(first))
    with pytest.raises(StateLockedError):
        copy.lock()
    child = os.fork()
    if not child:
        first.unlock()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(StateLockedError):
        copy.lock()
    del first
    copy.lock()


LOCK_HOLDER = """
import sys
from streaming.state.local_files import LocalFiles
files = LocalFiles(sys.argv[1])
files.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(local_files, "LOCK_TIMEOUT_S", 0.2)
    with subprocess.Popen(
        [sys.executable, "-c", LOCK_HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        files = LocalFiles(tmp_path)
        with pytest.raises(StateLockedError, match=rf"in process {holder.pid}: stop that query"):
            files.lock()
        monkeypatch.setattr(local_files, "LOCK_TIMEOUT_S", 60.0)
        threading.Timer(0.3, holder.kill).start()
        files.lock()
        files.unlock()


def test_another_error_of_locking_is_that_of_the_file_system(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file") as raised:
        LocalFiles(tmp_path / "file").lock()
    assert raised.value.errno in (errno.EEXIST, errno.ENOTDIR)


def test_a_created_directory_is_synced_in_its_parent(tmp_path, monkeypatch):
    synced = []
    original = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), original(handle))
    )
    files = LocalFiles(tmp_path / "deep" / "state")
    files.write("data/a", [b"one"])
    files.sync_folder("")
    parents = {path.stat().st_ino for path in (tmp_path, tmp_path / "deep")}
    assert parents <= set(synced)


def test_a_state_directory_is_a_path_a_uri_a_file_system_or_files(tmp_path):
    system = arrow_fs._MockFileSystem()
    for location in (
        tmp_path,
        str(tmp_path),
        tmp_path.as_uri(),
        f"file:{tmp_path}",
        (arrow_fs.LocalFileSystem(), str(tmp_path)),
        (arrow_fs.SubTreeFileSystem("/", arrow_fs.LocalFileSystem()), str(tmp_path)[1:]),
    ):
        assert isinstance(open_files(location), LocalFiles)
        assert open_files(location).location == str(tmp_path)
    assert isinstance(open_files((system, "state")), ArrowFiles)
    files = SimulatedDisk(1).files()
    assert open_files(files) is files


@pytest.mark.parametrize("uri", ["floppy://a", "dbfs:/state"])
def test_a_uri_of_an_unknown_file_system_is_refused(uri):
    with pytest.raises(StateError, match=f"state_dir '{uri}'"):
        open_files(uri)


def test_any_exception_of_a_file_system_becomes_an_oserror(tmp_path):
    fsspec = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(FailingFileSystem()))
    files = ArrowFiles(fsspec, str(tmp_path))
    for call in (
        lambda: files.write("d/a", [b"x"]),
        lambda: files.read("d/a"),
        lambda: files.size("d/a"),
        lambda: files.names("d"),
        lambda: files.remove("d/a"),
        lambda: files.rename("d/a", "d/b"),
        lambda: files.append("d/a", "x"),
    ):
        with pytest.raises(OSError, match="RuntimeError: not today"):
            call()


class FailingFileSystem:
    """An fsspec file system whose calls raise an exception that is not an OSError."""

    protocol = "failing"

    def __getattr__(self, name):
        def fail(*args, **options):
            raise RuntimeError("not today")

        return fail


def test_a_log_that_each_line_rewrites_stays_short(monkeypatch):
    monkeypatch.setattr("streaming.state.files.MAX_REWRITTEN_BYTES", 20)
    files = ArrowFiles(arrow_fs._MockFileSystem(), "d")
    for number in range(20):
        files.append("log", f"line {number}\n")
    remaining = bytes(files.read("log.1")) + bytes(files.read("log"))
    assert remaining.decode().splitlines() == [f"line {n}" for n in range(15, 20)]


def test_a_lock_of_another_process_with_the_same_id_is_waited_for(tmp_path, monkeypatch):
    """In containers that share a volume, both processes may have the id 1."""
    files = LocalFiles(tmp_path)
    with open(tmp_path / local_files.LOCK_FILE, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(f"{os.getpid()}\n")
        other.flush()
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(other, fcntl.LOCK_UN))
        files.lock()
        files.unlock()


def test_a_lock_of_this_process_is_not_waited_for(tmp_path, monkeypatch):
    first, second = LocalFiles(tmp_path), LocalFiles(tmp_path)
    first.lock()
    monkeypatch.setattr(time, "sleep", None)
    with pytest.raises(StateLockedError, match=r"\(this one\)"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()
