"""A state directory on a server of the S3 protocol."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streaming import (
    BatchOrderError,
    ParquetTarget,
    StateDamagedError,
    StateError,
    StateLockedError,
    ViewSink,
)
from streaming.cli.app import app
from streaming.state.files import AtomicFiles
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, manifest_name, read_manifest
from streaming.state.object_store import local_cache, object_files
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import MappableObjectFiles, ObjectFiles
from streaming.state.open_files import open_files
from streaming.targets.target import ViewDelta
from tests.streaming.sink.test_replays import bad
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import check, feed, sink_on, views


def test_the_operations_of_an_object_store(location):
    files = ObjectFiles(location)
    assert isinstance(files, AtomicFiles) and not isinstance(LocalFiles("x"), AtomicFiles)
    assert (files.names("data"), files.names(""), files.size("data/a")) == ([], [], None)
    files.write("data/a", [b"one ", memoryview(b"two"), pa.py_buffer(b"!")])
    data = files.read("data/a")
    assert bytes(data) == b"one two!" and not data.readonly
    files.write("data/a", [b"new"])
    files.write("top", [b""])
    assert (files.size("data/a"), files.size("top"), files.size("data")) == (3, 0, None)
    assert (files.names("data"), files.names("")) == (["data/a"], ["top"])
    (status,) = files.list_files("data")
    assert (status.name, status.size) == ("data/a", 3) and status.modified > 1e9
    for create in (lambda: files.create("data/a", b"3"), lambda: files.rename_new("top", "data/a")):
        with pytest.raises(FileExistsError, match="data/a"):
            create()
    files.rename("data/a", "data/b")
    files.rename_new("data/b", "data/c")
    assert files.names("data") == ["data/c"] and bytes(files.read("data/c")) == b"new"
    for _ in range(2):
        files.remove("data/c")
    for missing in (lambda: files.read("data/c"), lambda: files.rename("data/c", "data/d")):
        with pytest.raises(FileNotFoundError, match=f"{location}/data/c"):
            missing()


def test_a_large_object_is_sent_in_parts(location, monkeypatch):
    monkeypatch.setattr(object_files, "MAX_SINGLE_PUT_BYTES", 100)
    files = ObjectFiles(location)
    chunks = [bytes([n % 251]) * (1 << 20) for n in range(11)]
    files.write("data/a", chunks)
    assert files.size("data/a") == 11 << 20 and files.read("data/a") == b"".join(chunks)
    # Buffers of other items than bytes, as those of runs.
    words = np.arange(3 << 17)
    files.write("data/b", [memoryview(words), pa.py_buffer(words), words[:5]])
    assert files.read("data/b") == words.tobytes() * 2 + words[:5].tobytes()


@pytest.mark.parametrize("bytes_at_once", [0, 100, 1 << 24])
def test_an_object_has_all_chunks_of_an_iterator(location, tmp_path, bytes_at_once, monkeypatch):
    monkeypatch.setattr(object_files, "MAX_SINGLE_PUT_BYTES", bytes_at_once)
    files = ObjectFiles(location, LocalCache(tmp_path))
    chunks = [bytes([n]) * 70 for n in range(5)]
    files.write("data/a", (chunk for chunk in chunks))
    assert bytes(ObjectFiles(location).read("data/a")) == b"".join(chunks)
    assert LocalCache(tmp_path).read("data/a") == b"".join(chunks)


def test_appended_lines_move_to_a_second_object_when_they_are_many(location, monkeypatch):
    files = ObjectFiles(location)
    files.append("lines", "one\n")
    files.append("lines", "two\n")
    monkeypatch.setattr("streaming.state.files.MAX_REWRITTEN_BYTES", 7)
    files.append("lines", "three\n")
    assert bytes(files.read("lines.1")) == b"one\ntwo\n"
    assert bytes(files.read("lines")) == b"three\n"


def test_one_request_reads_a_small_object_and_does_not_read_a_large_one(location, tmp_path):
    files = ListedRequests(location, LocalCache(tmp_path))
    files.write("a", [b"12345678"])
    files.requests.clear()
    assert files.read_at_most("a", 8) == b"12345678"
    assert files.read_at_most("a", 7) is None
    assert files.requests == [("read_at_most", "a")] * 2
    with pytest.raises(FileNotFoundError, match=f"{location}/missing"):
        files.read_at_most("missing", 8)


def test_exactly_one_of_several_writers_creates_an_object(location):
    def create(number: int) -> bool:
        try:
            ObjectFiles(location).create("manifests/1", b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(create, range(16)))
    assert created.count(True) == 1
    assert int(bytes(ObjectFiles(location).read("manifests/1"))) == created.index(True)


def test_errors_of_the_service_name_the_object(location, monkeypatch):
    missing = ObjectFiles("s3://no-such-bucket/state")
    with pytest.raises(OSError, match="s3://no-such-bucket/state/a"):
        missing.write("a", [b""])
    with pytest.raises(StateError, match="s3://no-such-bucket/state"):
        feed(sink_on(missing), 0)
    for wrong in ("s3://", "s3://bucket/state?endpoint_override=x"):
        with pytest.raises(StateError, match="s3://bucket/folder"):
            open_files(wrong)


@pytest.mark.parametrize("error", ["PermissionDeniedError", "GenericError"])
def test_an_error_of_a_copy_names_both_objects(location, error):
    import obstore

    class Denied(ObjectFiles):
        """The service denies to write the target."""

        @property
        def library(self):
            copy = Mock(side_effect=getattr(obstore.exceptions, error)("denied"))
            return SimpleNamespace(exceptions=obstore.exceptions, copy=copy)

    files, other = Denied(location), ObjectFiles(f"{location}-copy")
    copies = {
        f"{location}-copy/data/a": lambda: files.copy_to(other, "data/a", 1),
        f"{location}/data/b": lambda: files.rename("data/a", "data/b"),
    }
    for target, copy in copies.items():
        with pytest.raises(OSError, match=f"{location}/data/a'? -> '?{target}"):
            copy()


@pytest.mark.parametrize("as_path", [False, True])
@pytest.mark.parametrize("bytes_at_once", [1, object_files.MAX_SINGLE_PUT_BYTES])
def test_a_sink_keeps_its_state_on_an_object_store(location, as_path, bytes_at_once, monkeypatch):
    monkeypatch.setattr(object_files, "MAX_SINGLE_PUT_BYTES", bytes_at_once)
    place = Path(location) if as_path else location  # a path has lost one slash
    sink = sink_on(place)
    feed(sink, 0, 1, 2)
    sink = pickle.loads(pickle.dumps(sink))
    feed(sink, 2, 3)
    sink.close()
    sink = sink_on(place)
    feed(sink, 3, 4)
    check(sink, 5)
    files = open_files(place)
    assert files.location == location and list_batch_ids(files) == [2, 3, 4]
    assert not [name for name in files.names("") + files.names("manifests") if "tmp" in name]


def test_a_replaced_sink_fails_and_removes_nothing(location):
    first, second = sink_on(location), sink_on(location)
    feed(first, 0, 1)
    feed(second, 1, 2)
    with pytest.raises(StateLockedError):
        feed(first, 2)
    feed(second, 3)
    check(second, 4)


class LateFiles(ObjectFiles):
    """A function is called before a manifest is created: the request is delayed."""

    before = staticmethod(lambda: None)

    def create(self, name, data):
        if name.startswith("manifests/"):
            self.before()
        super().create(name, data)


def test_a_commit_that_takes_effect_after_a_takeover_is_continued_from(location):
    files = LateFiles(location)
    first, second, third = sink_on(files), sink_on(location), sink_on(location)
    feed(first, 0)
    files.before = lambda: feed(second, 0)  # a replay: takes over, and commits nothing
    with pytest.raises(StateLockedError):
        feed(first, 1)
    assert list_batch_ids(files) == [0, 1]
    with pytest.raises(StateLockedError, match=r"version 1 .* was written by another sink"):
        feed(second, 1)
    feed(second, 1, 2)
    check(second, 3)
    feed(third, 2, 3)
    check(third, 4)


def test_files_of_a_delayed_commit_are_not_removed_before_the_first_commit(location):
    files = LateFiles(location)
    first, second = sink_on(files), sink_on(location)
    feed(first, 0)
    ObjectFiles(location).write("data/unused", [b""])
    files.before = lambda: feed(second, 0)
    with pytest.raises(StateLockedError):
        feed(first, 1)
    assert "data/unused" in files.names("data")
    third = sink_on(location)
    feed(third, 1, 2)
    assert "data/unused" not in files.names("data")
    check(third, 3)


def test_damage_is_detected_and_repaired(location):
    sink = sink_on(location)
    feed(sink, 0, 1, 2)
    sink.close()
    files = ObjectFiles(location)
    files.write(manifest_name(2), [b"{}"])
    with pytest.raises(StateDamagedError):
        feed(sink_on(location), 3)
    sink = sink_on(location)
    feed(sink, 2, 3)
    check(sink, 4)


def test_dead_letters_metrics_and_parquet_targets_on_an_object_store(location):
    sink = ViewSink(views(), state_dir=location, bad_rows="dead_letter")
    sink(Frame(bad(), "q"), 0)
    files = ObjectFiles(location)
    (name,) = files.names("dead_letters")
    assert pq.read_table(pa.py_buffer(files.read(name))).num_rows == 1
    assert json.loads(bytes(files.read("metrics.jsonl")))["dead_letters"] == 1
    target = ParquetTarget(f"{location}/out")
    rows = pa.table({"n": [1], "weight": [1]})
    for _ in range(2):
        target.write(ViewDelta("v", 0, rows, state_id="s"))
    (name,) = ObjectFiles(f"{location}/out").names("")
    assert pq.read_table(pa.py_buffer(ObjectFiles(f"{location}/out").read(name))).num_rows == 1


def test_commands_accept_a_state_directory_on_an_object_store(location):
    sink = sink_on(location)
    feed(sink, *range(5))
    sink.close()

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == status, result.output
        return result.output

    described = json.loads(run("inspect", location, "--check", "--json"))
    assert described["location"] == location and described["writer"] is None
    assert [version["batch"] for version in described["versions"]] == [2, 3, 4]
    assert all(version["damage"] is None for version in described["versions"])
    assert all(version["written"] > 1e9 for version in described["versions"])
    assert "after micro-batch 4" in run("plan-change", location, "SELECT city FROM link", status=1)
    run("compact", location)
    sink = sink_on(location)
    feed(sink, 4, 5)
    check(sink, 6)
    assert not [name for name in ObjectFiles(location).names("data") if "-" not in name]


def test_a_local_cache_saves_requests_and_is_not_trusted(location, tmp_path):
    class CountedFiles(ObjectFiles):
        """Counts the data files that are requested; every other one is in the cache."""

        requested = 0

        def _os_errors(self, name, target=None):
            CountedFiles.requested += name.startswith("data/")
            return super()._os_errors(name, target)

    folder = tmp_path / "copies"
    sink = sink_on(ObjectFiles(location, LocalCache(folder)))
    feed(sink, *range(6))
    sink.close()
    files = CountedFiles(location, LocalCache(folder))
    names = files.names("data")
    assert [copy.name for copy in sorted((folder / "data").iterdir())] == [
        name.removeprefix("data/") for name in names
    ]
    assert [bytes(files.read(name)) for name in names] and CountedFiles.requested == 0
    for copy, damaged in zip((folder / "data").iterdir(), (b"", b"damaged"), strict=False):
        copy.write_bytes(damaged)
    remote = ObjectFiles(location)
    assert all(files.read(name) == remote.read(name) for name in names)
    assert CountedFiles.requested == 2
    files.remove(names[0])
    remote.remove(names[1])
    files.names("data")
    assert len(list((folder / "data").iterdir())) == len(names) - 2


def by_write(files, name, data):
    files.write(name, [data])


def by_rename(files, name, data):
    files.write("top", [data])
    files.rename("top", name)


def by_rename_of_a_cached_name(files, name, data):
    files.write("data/b", [data])
    files.rename("data/b", name)


def by_rename_new(files, name, data):
    """Another machine has removed the object, so its copy remains here."""
    ObjectFiles(files.location).remove(name)
    files.write("top", [data])
    files.rename_new("top", name)


def by_copy(files, name, data):
    source = ObjectFiles(f"{files.location}-source")
    source.write(name, [data])
    assert source.copy_to(files, name, len(data))


@pytest.mark.parametrize(
    "replace", [by_write, by_rename, by_rename_of_a_cached_name, by_rename_new, by_copy]
)
def test_a_replaced_object_is_not_read_from_its_old_copy(location, tmp_path, replace):
    files = MappableObjectFiles(location, LocalCache(tmp_path))
    for n in range(8):  # the order of two checksums differs
        old, new = b"old %d" % n, b"new %d" % n
        files.write("data/a", [old])
        assert bytes(files.read("data/a")) == old
        replace(files, "data/a", new)
        assert bytes(files.read("data/a")) == new
        assert bytes(files.map("data/a", len(new)).memory) == new
        assert files.checksum("data/a") == zlib.crc32(new)
        assert len(list((tmp_path / "data").iterdir())) == 1


def test_a_replaced_object_has_no_old_copy_if_the_new_one_cannot_be_copied(location, tmp_path):
    class FullDisk(LocalCache):
        def store(self, name, chunks):
            raise OSError("no space left on this device")

    files = ObjectFiles(location, LocalCache(tmp_path))
    files.write("data/a", [b"old"])
    ObjectFiles(location, FullDisk(tmp_path)).write("data/a", [b"new"])
    assert bytes(files.read("data/a")) == b"new"


def test_a_cache_keeps_one_copy_of_a_file(tmp_path):
    cache = LocalCache(tmp_path)
    for n in range(8):
        cache.store("data/a", [b"%d" % n])
        cache.store("data/a", [b"%d" % n])
        assert cache.read("data/a") == b"%d" % n
        assert len(list((tmp_path / "data").iterdir())) == 1


class RemovedCopies(LocalCache):
    """After each of the next downloads something happens, such as a listing of another sink."""

    def __init__(self, folder, downloads, happen):
        super().__init__(folder)
        self.downloads, self.happen = downloads, happen

    def store(self, name, chunks):
        super().store(name, chunks)
        if self.downloads:
            self.downloads -= 1
            self.happen(self)


def list_without_the_object(cache):
    """List `data/` as before the object was written."""
    cache.keep_only("data", [])


def read_map(files, name):
    return zlib.crc32(files.map(name, 16).memory)


def read_checksum(files, name):
    return files.checksum(name)


@pytest.mark.parametrize("read", [read_map, read_checksum])
def test_a_copy_that_is_removed_before_it_is_read_is_downloaded_again(location, tmp_path, read):
    content = b"0123456789abcdef"
    ObjectFiles(location).write("data/a", [content])
    once = RemovedCopies(tmp_path, 1, list_without_the_object)
    files = MappableObjectFiles(location, once)
    assert read(files, "data/a") == zlib.crc32(content)
    assert once.downloads == 0
    once.remove("data/a")
    once.downloads = 3
    with pytest.raises(OSError, match="a copy of data/a was removed or changed"):
        read(files, "data/a")
    assert once.downloads == 1


def test_a_listing_of_another_process_does_not_remove_a_copy_that_is_written(location, tmp_path):
    ObjectFiles(location).write("data/a", [b"0123456789abcdef"])
    other = ObjectFiles(location, LocalCache(tmp_path))

    class Interrupted(LocalCache):
        """After the last chunk of a copy, `happen` is called."""

        stored = 0

        def store(self, name, chunks):
            self.stored += 1
            super().store(name, self.interrupt(chunks))

        def interrupt(self, chunks):
            yield from chunks
            happen(tmp_path)

    def list_data(folder):
        other.remove_all(["data/b"])
        assert other.names("data") == ["data/a"]

    def remove_unfinished_copies(folder):
        for path in (folder / "data").glob("*.tmp"):
            path.unlink()

    happen = list_data
    cache = Interrupted(tmp_path)
    files = MappableObjectFiles(location, cache)
    assert bytes(files.map("data/a", 16).memory) == b"0123456789abcdef"
    assert cache.stored == 1
    files.remove_copies("data/a")
    happen = remove_unfinished_copies
    with pytest.raises(OSError, match="a copy of data/a was removed or changed"):
        files.map("data/a", 16)
    assert cache.stored == 3


def test_an_error_while_an_object_is_downloaded_names_the_object(location, tmp_path):
    ObjectFiles(location).write("data/a", [b"0123456789abcdef"])

    class Removed(MappableObjectFiles):
        def _stream(self, name):
            yield b"0123"
            ObjectFiles(location).remove(name)
            yield from super()._stream(name)

    files = Removed(location, LocalCache(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"'{location}/data/a'"):
        files.map("data/a", 16)
    assert not list((tmp_path / "data").iterdir())


def test_a_listing_removes_the_copies_that_were_not_finished_long_ago(tmp_path):
    cache = LocalCache(tmp_path)
    cache.store("data/a", [b"1"])
    times = {"young": time.time(), "old": time.time() - local_cache.UNFINISHED_COPY_SECONDS - 60}
    for name, modified in times.items():
        path = tmp_path / "data" / f"a.{name}.tmp"
        path.touch()
        os.utime(path, (modified, modified))
    cache.keep_only("data", ["data/a"])
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(names) == 2 and names[1] == "a.young.tmp"


def test_a_map_of_a_missing_object_or_of_another_size_is_an_error(location, tmp_path):
    def remove_object(cache):
        cache.remove("data/a")
        remote.remove("data/a")

    remote = ObjectFiles(location)
    remote.write("data/a", [b"0123456789abcdef"])
    files = MappableObjectFiles(location, RemovedCopies(tmp_path, 1, remove_object))
    with pytest.raises(StateDamagedError, match="data/a has 16 bytes, it was written with 8"):
        MappableObjectFiles(location, LocalCache(tmp_path / "other")).map("data/a", 8)
    for _ in range(2):  # it is removed after the download, and before it
        with pytest.raises(FileNotFoundError, match=f"No such file .*{location}/data/a"):
            files.map("data/a", 16)


def test_a_cache_that_cannot_be_used_is_ignored(location, tmp_path):
    (tmp_path / "file").touch()
    sink = sink_on(ObjectFiles(location, LocalCache(tmp_path / "file")))
    feed(sink, 0, 1)
    check(sink, 2)


def test_a_missing_package_is_an_error_that_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StateError, match=r"pip install 'dbsp-wcoj\[s3\]'"):
        open_files("s3://bucket/folder")


class ListedRequests(ObjectFiles):
    """Records the operation and the folder of each request."""

    def __init__(self, location, cache):
        super().__init__(location, cache)
        self.requests = []

    def _os_errors(self, name, target=None):
        operation = sys._getframe(1).f_code.co_name.strip("_")
        self.requests.append((operation, name.partition("/")[0] if "/" in name else name))
        return super()._os_errors(name, target)


def test_the_requests_of_a_micro_batch_are_those_of_the_documentation(location, tmp_path):
    """A later change of the number must change the documentation, too."""
    files = ListedRequests(location, LocalCache(tmp_path))
    sink = sink_on(files)
    feed(sink, *range(4))  # from now on, each commit removes a version
    files.requests.clear()
    feed(sink, 4)
    owner = ("read_at_most", "epoch.json")
    metrics = [("read_at_most", "metrics.jsonl"), ("write", "metrics.jsonl")]
    views = len(sink.circuit.outputs)
    assert files.requests == [
        ("write", "data"),
        *[("write", "outputs")] * views,
        ("objects", "data"),
        ("objects", "outputs"),
        owner,
        ("create", "manifests"),
        owner,
        ("remove_all", "manifests"),
        ("remove_all", "outputs"),
        *metrics,
    ]
    page = (Path(__file__).parents[4] / "docs/how-to/cluster.md").read_text()
    fixed = len(files.requests) - views
    assert f"makes {fixed} requests and 1 for each view" in page
    assert f"makes {fixed} + v requests" in object_files.__doc__
    sink.close()


@pytest.fixture
def removals(monkeypatch):
    """The number of names in each request that removes objects, as the server receives them."""
    application = pytest.importorskip("moto.server").DomainDispatcherApplication
    sizes, call = [], application.__call__

    def record(self, environ, start_response):
        if environ["REQUEST_METHOD"] == "POST" and environ["QUERY_STRING"] == "delete":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
            sizes.append(body.count(b"<Key>"))
        assert environ["REQUEST_METHOD"] != "DELETE"
        return call(self, environ, start_response)

    monkeypatch.setattr(application, "__call__", record)
    return sizes


def test_many_objects_are_removed_by_few_requests(location, tmp_path, removals):
    files = ObjectFiles(location, LocalCache(tmp_path))
    names = [f"data/{n} & <ü>" for n in range(3)]
    for name in [*names, "data/kept"]:
        files.write(name, [b"1"])
    files.remove_all([*names, "data/missing"])
    assert files.names("data") == ["data/kept"] and removals == [4]
    assert len(list((tmp_path / "data").iterdir())) == 1  # the copies are removed, too
    files.remove_all([])
    files.remove_all(["data/kept"])
    assert files.names("data") == [] and removals == [4, 1]
    removals.clear()
    files.remove_all([f"data/{n}" for n in range(2500)])
    assert sorted(removals) == [500, 1000, 1000]


def test_a_start_removes_the_files_of_a_crash_by_one_request(location, removals):
    sink = sink_on(location)
    feed(sink, 0, 1)
    sink.close()
    files = ObjectFiles(location)
    unused = [f"{folder}/unused-{n}" for folder in ("data", "outputs") for n in range(20)]
    for name in unused:
        files.write(name, [b""])
    removals.clear()
    sink = sink_on(location)
    feed(sink, 2)
    check(sink, 3)
    assert removals == [len(unused)]
    assert not {*files.names("data"), *files.names("outputs")} & {*unused}


def test_files_that_cannot_be_removed_are_removed_by_a_later_start(location):
    class FailingRemovals(ObjectFiles):
        def _os_errors(self, name, target=None):
            if sys._getframe(1).f_code.co_name == "remove_all":
                raise OSError("no answer")
            return super()._os_errors(name, target)

    sink = sink_on(FailingRemovals(location))
    feed(sink, *range(6))
    check(sink, 6)
    sink.close()
    files = ObjectFiles(location)
    assert list_batch_ids(files) == list(range(6))
    sink = sink_on(location)
    feed(sink, 6)
    check(sink, 7)
    assert list_batch_ids(files) == [4, 5, 6]
    named = {name for n in (4, 5, 6) for name in read_manifest(files, n).all_files}
    assert named == {*files.names("data"), *files.names("outputs")}


class PartlyRemoving(ObjectFiles):
    """Requests that remove manifests fail for those of some micro-batches."""

    kept = frozenset()

    def remove_all(self, names):
        kept = {manifest_name(number) for number in self.kept} & {*names}
        super().remove_all([name for name in names if name not in kept])
        if kept:
            raise OSError("internal error of the service")


def test_a_replay_after_a_partly_executed_removal_is_refused(location):
    def run(kept, *numbers):
        files = PartlyRemoving(location)
        files.kept = kept
        sink = sink_on(files)
        feed(sink, *numbers)
        sink.close()
        return list_batch_ids(files)

    assert run(range(9), *range(6)) == [0, 1, 2, 3, 4, 5]
    assert run({0}, 6) == [0, 4, 5, 6]
    for number, missing in ((0, 1), (2, 2)):  # the checkpoint is an old copy
        with pytest.raises(BatchOrderError, match=rf"micro-batch {number} .* version {missing} is"):
            feed(sink_on(location), number)
    assert list_batch_ids(ObjectFiles(location)) == [0, 4, 5, 6]
    sink = sink_on(location)
    feed(sink, 6, 7)
    check(sink, 8)
    assert list_batch_ids(ObjectFiles(location)) == [5, 6, 7]
