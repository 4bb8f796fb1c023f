"""On a full disk a micro-batch fails as a whole, and succeeds when there is space."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming import Output, ParquetTarget, StateError, TargetError, ViewSink
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import ROWS, batch, check, feed, sink_on, views

PAGE_BYTES = 4096
DISK_PAGES = 80


@pytest.fixture
def disk(tmp_path):
    """A file system of a few pages."""
    state_dir = tmp_path / "disk"
    state_dir.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_PAGES * PAGE_BYTES}", "none", str(state_dir)]
    completed = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if completed.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {completed.stderr.strip()}")
    yield state_dir
    subprocess.run(["umount", "--lazy", str(state_dir)], check=True)


@contextmanager
def fill_disk(state_dir: Path, free_pages: int):
    """Leave ``free_pages`` pages of the disk free."""
    stat = os.statvfs(state_dir)
    ballast = state_dir / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(stat.f_bavail - free_pages, 1) * PAGE_BYTES)
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.parametrize("memory_limit", [None, 1])
@pytest.mark.parametrize("free_pages", range(4))
def test_a_full_disk_refuses_a_micro_batch_as_a_whole_until_there_is_space(
    disk, free_pages, memory_limit
):
    sink = sink_on(disk / "state", memory_limit=memory_limit)
    feed(sink, 0, 1)
    with (
        fill_disk(disk, free_pages),
        pytest.raises(StateError, match="No space left on device") as raised,
    ):
        feed(sink, 2)
    assert "micro-batch 2 cannot be written" in str(raised.value)
    assert f"{disk}/state/" in str(raised.value)
    assert "start the query again" in str(raised.value)
    check(sink, 2)
    sink.close()
    restarted = sink_on(disk / "state", memory_limit=memory_limit)
    check(restarted, 2)
    feed(restarted, 2, 3)
    check(restarted, 4)


@pytest.mark.parametrize("memory_limit", [None, 1])
def test_each_micro_batch_is_written_once_there_is_space_again(disk, memory_limit):
    sink = sink_on(disk / "state", memory_limit=memory_limit)
    for number in range(len(ROWS)):
        with fill_disk(disk, number % 4):
            try:
                feed(sink, number)
            except StateError:
                check(sink, number)
        # A micro-batch that was published already is published again.
        feed(sink, number)
    check(sink, len(ROWS))
    assert not list(disk.rglob("*.tmp"))


def test_a_target_without_space_receives_the_delta_again(disk, tmp_path):
    sink = ViewSink(
        views(), [Output("paths", ParquetTarget(disk / "out"))], state_dir=tmp_path / "state"
    )
    sink(Frame(batch(0)), 0)
    with fill_disk(disk, 0), pytest.raises(TargetError, match="No space left on device"):
        sink(Frame(batch(1)), 1)
    assert len(list((disk / "out").glob("*.parquet"))) == 1
    sink.close()
    sink = ViewSink(
        views(), [Output("paths", ParquetTarget(disk / "out"))], state_dir=tmp_path / "state"
    )
    sink(Frame(batch(1)), 1)
    assert len(list((disk / "out").glob("*.parquet"))) == 2
    check(sink, 2)


@pytest.mark.parametrize("limit", [0, 100, 1000])
def test_a_limit_of_file_sizes_refuses_a_micro_batch_as_a_whole(tmp_path, limit):
    sink = sink_on(tmp_path)
    feed(sink, 0, 1)
    old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old_limits[1]))
    try:
        with pytest.raises(StateError, match="File too large"):
            feed(sink, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
    check(sink, 2)
    feed(sink, 2, 3)
    check(sink, 4)
