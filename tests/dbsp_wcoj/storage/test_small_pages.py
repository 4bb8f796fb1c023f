"""Small pages: a slice of a merge gets and frees memory in proportion to its rows; free memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.small_pages import (
    FREE_MEMORY,
    LARGE_PAGE_BYTES,
    MAX_FREE_BYTES,
    MIN_MAPPED_BYTES,
    Block,
    FreeMemory,
    SmallPages,
)
from dbsp_wcoj.storage.spine import Spine

SMAPS = Path("/proc/self/smaps")
needs_smaps = pytest.mark.skipif(not SMAPS.exists(), reason="no /proc/self/smaps")


def resident_bytes(array: np.ndarray) -> int:
    """Return the bytes of memory that the mappings which overlap an array have now."""
    begin = array.ctypes.data
    end = begin + array.nbytes
    resident, overlaps = 0, False
    for line in SMAPS.read_text().splitlines():
        field, _, rest = line.partition(" ")
        if not field.endswith(":"):
            first, last = (int(address, 16) for address in field.split("-"))
            overlaps = first < end and begin < last
        elif overlaps and field == "Rss:":
            resident += 1024 * int(rest.split()[0])
    return resident


def odd_and_even_rows(rows: int) -> tuple[Run, Run]:
    numbers = np.arange(rows)
    columns = [(numbers // 8, 2 * numbers + odd) for odd in (0, 1)]
    older, newer = (ZSet.from_columns(part) for part in columns)
    return Run.of(older, np.arange(2)), Run.of(newer, np.arange(2))


@needs_smaps
def test_a_slice_of_a_large_merge_gets_memory_in_proportion_to_its_rows():
    older, newer = odd_and_even_rows(1 << 19)
    merge = Merge(older, newer)
    out = merge._out
    assert out.nbytes >= 4 * MIN_MAPPED_BYTES
    resident = resident_bytes(out)
    slices = 0
    while merge.work(1 << 12) is None:
        resident, before = resident_bytes(out), resident
        # At most 6 words for each row, and the pages at the ends of the sections.
        assert resident - before < 3 * 8 * 6 * (1 << 12)
        slices += 1
    assert slices > 50


@needs_smaps
def test_a_write_gets_one_small_page():
    memory = SmallPages(MIN_MAPPED_BYTES // 8, FreeMemory(0))
    array = memory.take_array()
    before = resident_bytes(array)
    array[len(array) // 2] = 1
    assert resident_bytes(array) - before < 1 << 17


@needs_smaps
def test_a_write_to_used_memory_that_allowed_large_pages_gets_one_small_page():
    free = FreeMemory(1 << 30)
    memory = SmallPages(MIN_MAPPED_BYTES // 8, free)
    memory.take_array()[:10] = 1
    memory.allow_large_pages()
    assert memory.release(1)
    later = SmallPages(3 * MIN_MAPPED_BYTES // 8, free)
    array = later.take_array()
    assert free.reused_bytes > 0
    before = resident_bytes(array)
    array[len(array) // 2] = 1
    assert resident_bytes(array) - before < 1 << 17


@pytest.mark.parametrize("words", [1, 1000, MIN_MAPPED_BYTES // 8, MIN_MAPPED_BYTES])
def test_an_array_is_writable_and_keeps_its_memory_alive(words):
    memory = SmallPages(words)
    array = memory.take_array()
    assert array.shape == (words,) and array.dtype == np.int64
    assert array.flags.carray and array.flags.writeable and array.flags.aligned
    array[:] = np.arange(words)
    memory.allow_large_pages()
    memory.release(1)
    del memory
    assert int(array.sum()) == words * (words - 1) // 2


def test_too_much_memory_is_a_memory_error():
    with pytest.raises(MemoryError):
        SmallPages(1 << 58)


def test_memory_is_freed_in_slices_once_nobody_refers_to_the_array():
    memory = SmallPages(MIN_MAPPED_BYTES // 8, FreeMemory(0))
    array = memory.take_array()
    array[:] = 7
    views = [array[5:], memoryview(array), array[::3].T]
    del array
    while views:
        assert not memory.release(MIN_MAPPED_BYTES)
        assert np.all(np.asarray(views[-1]) == 7)
        views.pop()
    slices = 1
    while not memory.release(MIN_MAPPED_BYTES // 8):
        slices += 1
    assert slices == 8
    assert memory.release(1)


def test_a_spine_frees_the_runs_of_a_large_merge_in_slices():
    spine = Spine()
    rows = 1 << 15
    released = []
    for step in range(60):
        numbers = np.arange(rows) + step * rows
        delta = ZSet.from_columns([numbers % 1000, numbers])
        spine.append(Run.of(delta, np.arange(2)))
        released.append(len(spine._to_release))
    # Each merge adds its runs to the list, and the steps after it remove them.
    assert max(released) > 0 and released[-1] < 6
    numbers = np.arange(1 << 10)
    for step in range(200):
        spine.append(Run.of(ZSet.from_columns([numbers, -numbers - step]), np.arange(2)))
    assert not spine._to_release
    spine._check()
    assert spine.rows == 60 * rows + 200 * 1024


def test_a_later_array_gets_released_memory_which_nothing_refers_to():
    free = FreeMemory(1 << 30)
    memory = SmallPages(MIN_MAPPED_BYTES // 8, free)
    array = memory.take_array()
    array[:] = 7
    view = array[5:]
    del array
    assert not memory.release(1 << 30)
    other = SmallPages(MIN_MAPPED_BYTES // 8, free).take_array()
    other[:] = 8
    assert np.all(view == 7) and free.reused_bytes == 0
    del view
    assert memory.release(1)
    assert free.free_bytes == MIN_MAPPED_BYTES
    for words in (MIN_MAPPED_BYTES // 4, MIN_MAPPED_BYTES // 8):  # larger, then smaller again
        memory = SmallPages(words, free)
        array = memory.take_array()
        assert array.shape == (words,) and np.all(array[: MIN_MAPPED_BYTES // 8] == 7)
        del array
        assert memory.release(1)
    assert free.reused_bytes == 3 * MIN_MAPPED_BYTES


def test_free_memory_is_bounded_and_used_by_arrays_of_about_its_size():
    free = FreeMemory(5 * 4096)
    blocks = [Block(mmap.mmap(-1, pages * 4096), pages * 4096) for pages in (1, 3, 2)]
    assert [free.put(block) for block in blocks] == [True, True, False]
    assert free.free_bytes == 4 * 4096
    assert free.take(1) is None  # both are many times larger
    assert free.take(2 * 4096) is blocks[1]
    assert free.take(2 * 4096) is blocks[0] and len(blocks[0].memory) == 2 * 4096
    assert free.take(4096) is None and free.free_bytes == 0


@needs_smaps
def test_trimmed_memory_is_free_and_the_rest_is_kept():
    memory = SmallPages(4 * LARGE_PAGE_BYTES // 8, FreeMemory(0))
    array = memory.take_array()
    array[:] = 7
    memory.trim(LARGE_PAGE_BYTES // 8 + 1)
    assert resident_bytes(array) < 4 * LARGE_PAGE_BYTES
    assert np.all(array[: 2 * LARGE_PAGE_BYTES // 8] == 7)


def test_merges_of_a_growing_spine_get_memory_of_the_merges_before(monkeypatch):
    # An earlier test with a memory limit may have limited the free memory of the process.
    monkeypatch.setattr(FREE_MEMORY, "_max_bytes", MAX_FREE_BYTES)
    spine = Spine()
    rows, steps = 1 << 16, 7
    reused = FREE_MEMORY.reused_bytes
    for step in range(steps):
        numbers = np.arange(rows) * steps + step
        spine.append(Run.of(ZSet.from_columns([numbers, *[-numbers] * 5]), np.arange(6)))
    assert len(spine.runs) == 1  # each step has merged all rows
    merged = sum(8 * 6 * rows * step for step in range(2, steps + 1))
    assert FREE_MEMORY.reused_bytes - reused > merged // 3
    assert FREE_MEMORY.free_bytes <= MAX_FREE_BYTES
    spine._check()
    first, *_ = spine.runs[0].read()[0]
    assert np.array_equal(first, np.arange(rows * steps))
