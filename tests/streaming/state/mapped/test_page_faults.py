"""Page faults: a read makes one page resident, or also its neighbours."""

from __future__ import annotations

import ctypes
import mmap
import os
from unittest.mock import Mock

import numpy as np
import pytest

from streaming.state.local_files import LocalFiles
from streaming.state.mapped import page_faults
from streaming.state.mapped.page_faults import expect_single_pages
from streaming.state.mapped.resident_pages import resident_file_bytes

PAGES = 4096
SIZE = PAGES * mmap.PAGESIZE
STRIDE = 64  # a read of one page in this many


@pytest.fixture
def mapped(tmp_path):
    files = LocalFiles(tmp_path)
    files.write("a", [bytes(SIZE)])
    return files.map("a", SIZE)


@pytest.fixture
def without_handle():
    page_faults._open.cache_clear()
    yield
    page_faults._open.cache_clear()


def read_pages(mapped) -> int:
    """Read one page in `STRIDE`; return how many pages became resident."""
    mapped.release_pages()
    before = resident_file_bytes()
    assert not np.asarray(mapped.memory)[:: STRIDE * mmap.PAGESIZE].any()
    return (resident_file_bytes() - before) // mmap.PAGESIZE


def test_a_read_makes_one_page_resident_if_random_access_is_expected(mapped):
    read = PAGES // STRIDE
    assert read_pages(mapped) >= 8 * read
    if not expect_single_pages(mapped.address, mapped.size):
        pytest.skip("the system does not map single pages")
    mapped.expect_random_access()
    for _ in range(2):
        # Some pages are those of Python itself.
        assert read <= read_pages(mapped) < 2 * read


@pytest.mark.usefixtures("without_handle")
@pytest.mark.parametrize("refusal", ["system call", "feature", "machine"])
def test_reads_make_neighbours_resident_if_the_system_refuses_anything_else(
    mapped, monkeypatch, refusal
):
    if refusal == "system call":
        library = Mock(**{"syscall.return_value": -1})
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    elif refusal == "machine":
        monkeypatch.setattr(page_faults, "SYSTEM_CALL", {})
    else:
        library = Mock(**{"syscall.side_effect": lambda *_: os.open("/dev/null", os.O_RDONLY)})
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    assert not expect_single_pages(mapped.address, mapped.size)
    assert read_pages(mapped) >= PAGES // STRIDE


def test_a_range_that_is_not_mapped_is_left_as_it_is(mapped):
    assert not expect_single_pages(mapped.address - mapped.address % mmap.PAGESIZE, 1 << 50)
    assert not np.asarray(mapped.memory).any()
