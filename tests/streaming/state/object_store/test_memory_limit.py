"""A memory limit over a state directory on an object store: runs are maps of cached files."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest

from streaming import StateDamagedError, StateError
from streaming.state.local_files import LocalFiles
from streaming.state.object_store import local_cache
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import MappableObjectFiles, ObjectFiles
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.state.mapped.test_memory_limit import (
    EDGE,
    NOTHING,
    arrangements,
    count_triangles,
    edge_sink,
    mapped_files,
    mapped_text_bytes,
)
from tests.support.fed_sink import check, feed, sink_on
from tests.support.tables import bag_of, table_of


@pytest.fixture
def files(location, tmp_path):
    return MappableObjectFiles(location, LocalCache(tmp_path / "copies"))


def copies(tmp_path):
    """Return the names of the copies of the data files."""
    return {f"data/{path.name}" for path in (tmp_path / "copies" / "data").iterdir()}


def test_every_run_is_the_map_of_a_copy(files, tmp_path):
    for first in range(0, 12, 3):
        sink = sink_on(files, memory_limit=NOTHING)
        for number in range(first, first + 3):
            feed(sink, number)
            check(sink, number + 1)
            runs = [run for a in arrangements(sink) for run in a.spine.runs]
            assert runs and all(run.is_mapped for run in runs)
            expected = sum(run.nbytes for run in runs) + mapped_text_bytes(sink)
            assert sink.metrics[-1].mapped_bytes == expected
        sink.close()
    # The record of the maps is beside them: it describes this disk only.
    assert "verified.json" not in files.names("")
    assert (tmp_path / "copies" / "verified.json").exists()


def test_the_cache_has_only_files_of_the_state(files, tmp_path):
    sink = edge_sink(files, memory_limit=NOTHING)
    random, total = np.random.default_rng(0), Counter()
    for number in range(40):
        rows = [tuple(row) for row in random.integers(0, 60, (50, 2)).tolist()]
        sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
        total.update(rows)
        assert len(copies(tmp_path)) <= len(files.names("data")) + 1
    (view,) = sink.circuit.outputs
    assert bag_of(sink.table(view)) == count_triangles(total)
    assert copies(tmp_path) == set(files.names("data"))
    mapped = mapped_files(tmp_path / "copies" / "data")
    assert mapped and not any(name.endswith("(deleted)") for name in mapped)
    sink.close()


def test_a_start_on_another_machine_loads_the_copies_that_it_maps(files, location, tmp_path):
    sink = sink_on(files, memory_limit=NOTHING)
    feed(sink, *range(6))
    sink.close()
    other = MappableObjectFiles(location, LocalCache(tmp_path / "other"))
    sink = sink_on(other, memory_limit=NOTHING)
    feed(sink, 5, 6)
    check(sink, 7)
    assert all(run.is_mapped for a in arrangements(sink) for run in a.spine.runs)
    sink.close()


@pytest.mark.parametrize("damage", [b"", b"damaged", None])
def test_a_damaged_copy_is_loaded_again(files, tmp_path, damage):
    sink = sink_on(files, memory_limit=NOTHING)
    feed(sink, *range(6))
    sink.close()
    for path in (tmp_path / "copies" / "data").iterdir():
        path.write_bytes(path.read_bytes()[::-1] if damage is None else damage)
    sink = sink_on(files, memory_limit=NOTHING)
    feed(sink, 5, 6)
    check(sink, 7)
    sink.close()


def test_a_damaged_object_is_an_error_of_the_state(files, tmp_path):
    sink = sink_on(files, memory_limit=NOTHING)
    feed(sink, *range(3))
    sink.close()
    for name in files.names("data"):
        ObjectFiles(files.location).write(name, [bytes(files.read(name))[::-1]])
    for path in (tmp_path / "copies" / "data").iterdir():
        path.unlink()
    with pytest.raises(StateDamagedError, match="has the checksum"):
        feed(sink_on(files, memory_limit=NOTHING), 3)


@contextmanager
def full_disk():
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/copy")
    with patch.object(LocalFiles, "write", Mock(side_effect=error)):
        yield


def test_runs_stay_in_memory_while_the_local_disk_is_full(files, caplog):
    sink = sink_on(files, memory_limit=NOTHING)
    with full_disk():
        feed(sink, 0, 1, 2)
    check(sink, 3)
    assert "runs stay in memory" in caplog.text and "No space left" in caplog.text
    feed(sink, 3)
    check(sink, 4)
    assert all(run.is_mapped for a in arrangements(sink) for run in a.spine.runs)
    sink.close()


def test_a_start_whose_copies_do_not_fit_on_the_local_disk_is_an_error(files, tmp_path):
    edges = [table_of(EDGE, [(n, n + 1)], [1]) for n in range(3)]
    sink = edge_sink(files, memory_limit=NOTHING)
    for number, table in enumerate(edges[:2]):
        sink(Frame(table, "q"), number)
    sink.close()
    other = MappableObjectFiles(files.location, LocalCache(tmp_path / "other"))
    sink = edge_sink(other, memory_limit=NOTHING)
    with full_disk(), pytest.raises(StateError, match=r"cannot be read: .*No space left"):
        sink(Frame(edges[2], "q"), 2)
    sink(Frame(edges[2], "q"), 2)  # the disk has space again
    assert sink.metrics[-1].mapped_bytes > 0
    sink.close()


def test_a_limit_without_a_cache_is_refused(location):
    with pytest.raises(StateError, match="on S3 with a local cache"):
        sink_on(ObjectFiles(location), memory_limit=NOTHING)
    assert not ObjectFiles(location).names("")


def test_caches_that_no_job_uses_are_removed(location, monkeypatch, tmp_path):
    folder = tmp_path / "state"
    caches = [LocalCache(folder / name, location=name) for name in ("old", "new", "own")]
    for cache in caches:
        cache.write("data/a", [b"content"])
    (folder / "other").mkdir()  # it is not a cache
    month_ago = time.time() - (local_cache.UNUSED_CACHE_DAYS + 1) * local_cache.SECONDS_PER_DAY
    for name in ("old", "own", "other"):
        os.utime(folder / name, (month_ago, month_ago))
    caches[2].keep_only("data", ["data/a"])
    assert sorted(path.name for path in folder.iterdir()) == ["new", "other", "own"]
    assert bytes(caches[2].read("data/a")) == b"content"


def test_a_cache_in_a_folder_of_its_own_removes_nothing_beside_it(tmp_path):
    cache, state = LocalCache(tmp_path / "cache"), tmp_path / "state"
    (state / "data").mkdir(parents=True)
    cache.write("data/a", [b"content"])
    os.utime(state, (0, 0))
    cache.keep_only("data", ["data/a"])
    os.utime(tmp_path / "cache", (0, 0))
    cache.remove_unused()
    assert (state / "data").is_dir()


def test_a_broken_link_beside_the_caches_does_not_keep_unused_ones(monkeypatch, tmp_path):
    caches = [LocalCache(tmp_path / name, location=name) for name in ("own", "unused")]
    for cache in caches:
        cache.write("data/a", [b"content"])
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    os.utime(tmp_path / "unused", (0, 0))
    monkeypatch.setattr(
        Path, "iterdir", lambda path: (path / name for name in sorted(os.listdir(path)))
    )
    caches[0].keep_only("data", ["data/a"])
    assert sorted(os.listdir(tmp_path)) == ["broken", "own"]
