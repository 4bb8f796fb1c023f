"""The copies of an object store on the local disk are those of the state, on each machine."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import ViewSink
from streaming.distributed import engine, pipeline
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.object_store import local_cache
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import MappableObjectFiles, ObjectFiles
from tests.streaming.distributed.local_job import LocalCluster
from tests.support.tables import bag_of

E = {"e": "src bigint not null, dst bigint not null"}
COUNTS = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"


class DriverCache(LocalCache):
    """The tasks, which get a copy of it, have a folder of their own."""

    def __reduce__(self):
        return LocalCache, (f"{self.files.location}-of-tasks",)


def copies(folder: Path, kind: str = "data") -> set[str]:
    return {f"data/{path.name}" for path in (folder / kind).iterdir()}


def set_age(folder: Path, name: str, seconds: float, kinds=("data", "checksums")) -> None:
    for kind in kinds:
        moment = time.time() - seconds
        os.utime(folder / kind / name, (moment, moment))


@pytest.mark.parametrize("most", [500, 0], ids=["few rows", "in one job"])
def test_executors_keep_copies_of_the_files_of_their_cells_only(
    location, tmp_path, monkeypatch, most
):
    monkeypatch.setattr(engine, "MAX_FEW_ROWS", most)
    monkeypatch.setattr(pipeline, "MAX_DRIVER_ROWS", -1)
    cluster, folder = LocalCluster(attempts=(1,)), tmp_path / "copies-of-tasks"
    files = MappableObjectFiles(location, DriverCache(tmp_path / "copies"))
    circuit = compile_sql(COUNTS, E)
    sink = ViewSink(circuit, state_dir=files, mode="distributed", cells=2)
    expected = compile_sql(COUNTS, E)
    for number in range(50):
        rows = pa.table({"src": [number % 7, number], "dst": [number, 0]})
        sink(cluster.frame(rows), number)
        assert bag_of(sink.last.outputs["counts"]) == bag_of(expected.step({"e": rows})["counts"])
    sink.close()
    remote = ObjectFiles(location)
    newest = read_manifest(remote, max(list_batch_ids(remote)))
    assert copies(folder) == newest.all_files.keys() - newest.files.keys()
    assert copies(folder, "checksums") == copies(folder)


def test_a_copy_is_found_without_a_listing(tmp_path, monkeypatch):
    cache = LocalCache(tmp_path)
    with monkeypatch.context() as patches:
        for method in ("names", "list_files"):
            patches.setattr(LocalFiles, method, None)
        for name in ("data/a", "data/b"):
            cache.write(name, [name.encode()])
            assert bytes(cache.read(name)) == name.encode()
            assert cache.checksum(name) is not None and cache.map(name, 6) is not None
        cache.remove("data/a", "data/none", "outputs/c")
        assert cache.read("data/a") is cache.map("data/a", 6) is cache.checksum("data/a") is None
        cache.remove_unused()
    assert copies(tmp_path) == copies(tmp_path, "checksums") == {"data/b"}


def test_copies_that_were_not_used_for_a_day_are_removed_where_nothing_is_listed(tmp_path):
    cache = LocalCache(tmp_path)
    cache.remove_unused()  # there is no folder
    day = local_cache.UNUSED_COPY_SECONDS
    ages = {"new": 0, "old": day + 60, "read": day + 60, "mapped": day + 60, "young": day - 60}
    for name, age in ages.items():
        cache.store(f"data/{name}", [b"content"])
        set_age(tmp_path, name, age)
    (tmp_path / "data" / "lost").touch()
    set_age(tmp_path, "lost", day + 60, kinds=["data"])
    for name, age in {"x.tmp": 60, "y.tmp": local_cache.UNFINISHED_COPY_SECONDS + 60}.items():
        (tmp_path / "data" / name).touch()
        set_age(tmp_path, name, age, kinds=["data"])
    modified = os.stat(tmp_path / "data" / "read").st_mtime
    assert cache.read("data/read") is not None and cache.map("data/mapped", 7) is not None
    assert os.stat(tmp_path / "data" / "read").st_mtime == modified
    before = copies(tmp_path)
    LocalCache(tmp_path).remove_unused()  # the last check was less than five minutes ago
    assert copies(tmp_path) == before
    os.utime(tmp_path, (0, 0))
    LocalCache(tmp_path).remove_unused()
    kept = {f"data/{name}" for name in ("new", "read", "mapped", "young")}
    assert copies(tmp_path, "checksums") == kept
    assert copies(tmp_path) == kept | {"data/x.tmp"}
    assert time.time() - os.stat(tmp_path).st_mtime < 60  # so the cache counts as used


def test_a_cache_that_executors_use_is_not_removed_by_the_driver_of_another_job(tmp_path):
    used, other = (LocalCache(tmp_path / n, location=f"s3://{n}") for n in ("used", "other"))
    for cache in (used, other):
        cache.write("data/a", [b"content"])
    month_ago = time.time() - (local_cache.UNUSED_CACHE_DAYS + 1) * local_cache.SECONDS_PER_DAY
    os.utime(tmp_path / "used", (month_ago, month_ago))
    used.remove_unused()
    other.keep_only("data", ["data/a"])
    assert bytes(used.read("data/a")) == b"content"


def test_the_cache_of_a_directory_is_that_of_the_user_of_each_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "driver"))
    sent = pickle.dumps(MappableObjectFiles("s3://bucket/jobs", LocalCache.of("s3://bucket/jobs")))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "executor"))
    received = pickle.loads(sent)
    received.cache.write("data/a", [b"content"])
    (copy,) = (tmp_path / "executor").glob(".cache/dbsp-wcoj/state/*/data/*")
    assert copy.read_bytes() == b"content"
    received.release_copies("data/a")
    assert not copy.exists() and not (tmp_path / "driver").exists()


def test_a_user_without_a_home_folder_has_a_cache_in_the_current_one(tmp_path, monkeypatch):
    def home():
        raise RuntimeError("could not determine the home folder")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.chdir(tmp_path)
    cache = LocalCache.of("s3://bucket/jobs")
    assert Path(cache.files.location).is_relative_to(tmp_path / ".cache")
