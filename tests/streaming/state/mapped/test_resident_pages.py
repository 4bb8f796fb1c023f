"""Resident pages: maps stay within their limit, and the thread ends with them."""

from __future__ import annotations

import gc
import mmap
import threading
import time
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.run import Run
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import FileChecksum
from streaming.state.mapped import resident_pages
from streaming.state.mapped.resident_pages import (
    KEPT_SHARE,
    REMEMBERED_COMMITS,
    REMEMBERED_RELEASES,
    PageRange,
    ResidentPages,
    resident_file_bytes,
)
from streaming.state.part_reader import PartReader
from streaming.state.segment import encode_run
from streaming.state.segment_references import SegmentReference

PAGES = 4096
SIZE = PAGES * mmap.PAGESIZE


@pytest.fixture
def mapped(tmp_path):
    gc.collect()  # maps of earlier tests would count until they are collected
    (tmp_path / "a").write_bytes(bytes(SIZE))
    return LocalFiles(tmp_path).map("a", SIZE)


@pytest.fixture
def no_thread(monkeypatch):
    monkeypatch.setattr(resident_pages, "CHECK_INTERVAL_S", 1e6)


def touch(mapped, pages):
    """Read a byte of each of the first ``pages`` pages; the system may map some more."""
    return int(np.asarray(mapped.memory)[: pages * mmap.PAGESIZE : mmap.PAGESIZE].sum())


def watchers():
    return [thread for thread in threading.enumerate() if "resident-pages" in thread.name]


@pytest.mark.usefixtures("no_thread")
def test_pages_above_the_limit_are_removed_and_can_be_read_again(mapped):
    pages = ResidentPages(SIZE // 2)
    pages.watch([mapped])
    base = resident_file_bytes()
    for _ in range(3):
        touch(mapped, PAGES)
        assert resident_file_bytes() - base > SIZE // 2
        pages.check()
        assert resident_file_bytes() - base <= KEPT_SHARE * SIZE // 2
    pages.watch(())


@pytest.mark.usefixtures("no_thread")
def test_pages_of_leaves_are_removed_before_those_of_the_index(tmp_path):
    maps = []
    for name in "ab":
        # In pieces, because the system maps all pages of a large page in its cache at once.
        LocalFiles(tmp_path).write(name, [bytes(SIZE)])
        maps.append(LocalFiles(tmp_path).map(name, SIZE))
    pages = ResidentPages(SIZE)
    leaves = [PageRange(mapped, SIZE // 8, SIZE) for mapped in maps]
    pages.watch(maps, leaves)
    base = resident_file_bytes()
    for mapped in maps:
        touch(mapped, PAGES)
    pages.check()
    assert SIZE // 8 < resident_file_bytes() - base <= SIZE // 4
    # With other leaves, the index is too large, and removed a piece at a time.
    pages.watch(maps, [PageRange(mapped, SIZE // 2, SIZE) for mapped in maps])
    for mapped in maps:
        touch(mapped, PAGES)
    pages.check()
    assert SIZE // 4 < resident_file_bytes() - base <= KEPT_SHARE * SIZE
    pages.watch(())


@pytest.mark.usefixtures("no_thread")
def test_the_index_is_released_in_turn(mapped):
    pages = ResidentPages(0)
    watched = Mock(wraps=mapped, memory=mapped.memory)
    pages.watch([watched], [PageRange(watched, SIZE // 4, SIZE // 2)])
    touch(mapped, PAGES)
    pages.check()
    ranges = sorted(call.args for call in watched.release_pages.call_args_list)
    # No byte is released twice, and pieces are released until few pages remain.
    assert ranges[0][0] == 0 and ranges[-1][1] > SIZE // 2
    assert all(end == start for (_, end), (start, _) in pairwise(ranges))
    pages.watch(())


@pytest.mark.usefixtures("no_thread")
def test_pages_below_the_limit_stay_unless_they_would_exceed_it_by_growing_as_before(mapped):
    pages = ResidentPages(SIZE // 2)
    watched = Mock(wraps=mapped, memory=mapped.memory)
    pages.watch([watched])
    touch(mapped, PAGES // 8)
    for _ in range(3):  # they do not grow any more
        pages.check()
    watched.release_pages.assert_not_called()
    touch(mapped, 3 * PAGES // 8)
    pages.check()
    watched.release_pages.assert_called()
    pages.watch(())


@pytest.mark.usefixtures("no_thread")
def test_resident_pages_of_other_files_do_not_count(mapped, monkeypatch):
    # Not those of this process: the system may remove pages of other files at any time.
    resident = {"watched": 0, "other": 0}
    monkeypatch.setattr(resident_pages, "resident_file_bytes", lambda: sum(resident.values()))

    def release(start, end):
        resident["watched"] = max(resident["watched"] - (end - start), 0)

    pages = ResidentPages(SIZE // 2)
    watched = Mock(memory=mapped.memory, release_pages=release)
    pages.watch([watched])
    resident["other"] = SIZE
    # After this many releases, the minimum that remained shows that other files have these pages.
    releases = [pages.check() > 0 for _ in range(3 * REMEMBERED_RELEASES)]
    assert sum(releases) == REMEMBERED_RELEASES
    resident["watched"] = SIZE
    assert pages.check() > 0
    assert resident["watched"] <= SIZE // 2
    pages.watch(())


@pytest.mark.usefixtures("no_thread")
def test_the_excess_of_the_last_commits_is_subtracted_from_the_limit(mapped, monkeypatch):
    resident = 0
    monkeypatch.setattr(resident_pages, "resident_file_bytes", lambda: resident)
    pages = ResidentPages(100)
    watched = Mock(wraps=mapped, memory=mapped.memory)
    pages.watch([watched])

    def is_released_at(size):
        nonlocal resident
        resident = size
        pages.check()  # until the next check, the pages do not grow
        watched.release_pages.reset_mock()
        pages.check()
        return watched.release_pages.called

    assert not is_released_at(90)
    assert is_released_at(120)
    resident = 90
    pages.after_commit(100)
    assert is_released_at(90) and not is_released_at(80)
    for _ in range(REMEMBERED_COMMITS):
        pages.after_commit(100)
    assert not is_released_at(90)
    assert is_released_at(1000)
    pages.after_commit(100)
    assert is_released_at(51) and not is_released_at(50)
    pages.watch(())


def test_the_thread_removes_pages_while_another_thread_reads_them(mapped):
    pages = ResidentPages(SIZE // 4)
    released = threading.Event()
    watched = Mock(wraps=mapped, memory=mapped.memory)
    watched.release_pages.side_effect = lambda *pages: (
        mapped.release_pages(*pages),
        released.set(),
    )
    pages.watch([watched])
    deadline = time.monotonic() + 60
    while not released.is_set() and time.monotonic() < deadline:
        assert touch(mapped, PAGES) == 0
    assert released.is_set()
    pages.watch(())


@pytest.mark.parametrize("end", ["no maps", "dropped"])
def test_the_thread_ends_with_its_maps_or_its_object(mapped, end):
    before = set(watchers())
    pages = ResidentPages(SIZE)
    pages.watch([mapped])
    pages.watch([mapped, mapped])
    (thread,) = set(watchers()) - before
    if end == "no maps":
        pages.watch(())
    else:
        del pages
        gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_file_that_is_merged_is_verified_with_few_resident_pages(tmp_path):
    rows = 1_000_000
    columns = np.stack([np.arange(rows) // 4, np.arange(rows)])
    run = Run.of(ZSet.from_columns(columns, np.ones(rows, np.int64)), np.arange(2))
    chunks = encode_run("e [0,1]", run.to_parts())
    files = LocalFiles(tmp_path)
    files.write("data/a", chunks)
    reference = SegmentReference("data/a", 0, run.rows, run.nbytes)
    reader = PartReader(files, {"data/a": FileChecksum.of(chunks)}, files)
    before = resident_file_bytes()
    assert reader.read_run(("e", (0, 1)), reference).rows == rows
    assert resident_file_bytes() - before < run.nbytes / 4
