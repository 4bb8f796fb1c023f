"""Unreadable pages: a page that cannot be read is an error, in every other thread the signal."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from contextlib import closing
from unittest.mock import patch

import numpy as np
import pytest

from streaming import StateError
from streaming.state.local_files import LocalFiles
from streaming.state.mapped.mapped_file import MappedFile
from streaming.state.mapped.unreadable_pages import (
    UnreadablePageError,
    check_reads,
    guard_reads,
)
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.state.mapped.test_memory_limit import (
    EDGE,
    EDGE_ROWS,
    NOTHING,
    count_triangles,
    edge_sink,
)
from tests.support.tables import bag_of, table_of

SIZE = 4 * mmap.PAGESIZE


def map_and_cut(folder):
    """Return a map of a file that was cut after its first page: reads beyond it fail."""
    (folder / "a").write_bytes(b"x" * SIZE)
    mapped = LocalFiles(folder).map("a", SIZE)
    os.truncate(folder / "a", mmap.PAGESIZE)
    return mapped


def sum_of(mapped):
    return int(np.asarray(mapped.memory).sum())


def test_a_page_that_cannot_be_read_is_an_error_at_the_end_of_the_guard(tmp_path):
    mapped = map_and_cut(tmp_path)
    reached_end = False
    with pytest.raises(UnreadablePageError, match=r"Input/output error: .*/a'"), guard_reads():
        assert sum_of(mapped) == mmap.PAGESIZE * ord("x")
        with pytest.raises(UnreadablePageError):
            check_reads()
        reached_end = True
    assert reached_end
    check_reads()
    with pytest.raises(UnreadablePageError), guard_reads():  # the pages are unreadable again
        sum_of(mapped)
    with guard_reads():
        assert mapped.memory[0] == ord("x")


def test_an_error_that_wrong_numbers_caused_is_replaced(tmp_path):
    mapped = map_and_cut(tmp_path)
    with pytest.raises(UnreadablePageError) as raised, guard_reads():
        sum_of(mapped)
        raise ValueError("a consequence")
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="no page was read"), guard_reads():
        raise ValueError("no page was read")


def test_an_inner_guard_raises_the_error_and_the_outer_one_again(tmp_path):
    mapped = map_and_cut(tmp_path)
    raises = pytest.raises
    with raises(UnreadablePageError), guard_reads(), raises(UnreadablePageError), guard_reads():
        sum_of(mapped)
    with guard_reads():
        assert mapped.memory[0] == ord("x")


def test_each_thread_has_its_own_guard(tmp_path):
    mapped, errors = map_and_cut(tmp_path), []

    def read():
        try:
            with guard_reads():
                sum_of(mapped)
        except UnreadablePageError as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    with guard_reads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors


UNGUARDED = """
import os, sys
from pathlib import Path
from streaming.state.mapped.unreadable_pages import UnreadablePageError, guard_reads
from tests.streaming.state.mapped.test_unreadable_pages import map_and_cut, sum_of
mapped = map_and_cut(Path(sys.argv[1]))
try:
    with guard_reads():
        sum_of(mapped)
except UnreadablePageError:
    print("guarded", flush=True)
sum_of(mapped)
"""


def test_without_a_guard_the_signal_ends_the_process(tmp_path):
    command = [sys.executable, "-c", UNGUARDED, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.stdout == "guarded\n"
    assert process.returncode == -7  # SIGBUS


def test_a_file_that_is_cut_short_during_a_step_fails_the_step_and_is_named(tmp_path):
    """The rows of the step are neither written nor in memory; a copy of the file repairs it."""
    with closing(edge_sink(tmp_path, memory_limit=NOTHING)) as sink:
        for number, rows in enumerate(EDGE_ROWS):
            sink(Frame(table_of(EDGE, rows, [1] * len(rows)), "q"), number)
        files = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}
        check = MappedFile.check

        def cut_after_check(mapped):
            check(mapped)
            mapped.release_pages()
            os.truncate(mapped.path, 0)

        new = [(9, 4), (4, 4), (2, 1)]
        with (
            patch.object(MappedFile, "check", cut_after_check),
            pytest.raises(StateError, match=r"cannot be read: .*Input/output error.*data/"),
        ):
            sink(Frame(table_of(EDGE, new, [1] * len(new)), "q"), 3)
        for path, content in files.items():
            path.write_bytes(content)
        sink(Frame(table_of(EDGE, new, [1] * len(new)), "q"), 3)
        total = dict.fromkeys([row for rows in (*EDGE_ROWS, new) for row in rows], 1)
        (view,) = sink.circuit.outputs
        assert bag_of(sink.table(view)) == count_triangles(total)
