"""Permissions of the files and folders of a state directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.circuit import Circuit
from streaming import StateError, ViewSink
from streaming.cli.commands.run import _parse_mode
from streaming.distributed.rescaling import rescale_state
from streaming.state.local_files import LocalFiles
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import LINK, ROWS, feed, sink_on, views
from tests.support.tables import table_of


@pytest.fixture(autouse=True)
def common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(state_dir: Path) -> tuple[set[int], set[int]]:
    """Return the modes of the folders, and those of the files."""
    paths = [*state_dir.rglob("*")]
    return (
        {stat.S_IMODE(path.stat().st_mode) for path in (state_dir, *paths) if path.is_dir()},
        {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()},
    )


def feed_with_bad_row(sink: ViewSink, number: int) -> None:
    rows = table_of(LINK, ROWS[number]).append_column("weight", pa.array(["1", "no"]))
    sink(Frame(rows, "q"), number)


@pytest.mark.parametrize(
    ("options", "folders", "files"),
    [({}, 0o700, 0o600), ({"state_mode": 0o750}, 0o750, 0o640)],
)
def test_only_the_user_can_read_state_and_dead_letters_by_default(
    tmp_path, options, folders, files
):
    state_dir = tmp_path / "deep" / "state"
    sink = ViewSink(views(), state_dir=state_dir, bad_rows="dead_letter", **options)
    for number in range(5):
        feed_with_bad_row(sink, number)
    sink.close()
    assert list((state_dir / "dead_letters").iterdir())
    assert modes(state_dir) == ({folders}, {files})
    assert stat.S_IMODE(state_dir.parent.stat().st_mode) == 0o755


def test_an_existing_directory_keeps_its_mode(tmp_path):
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o755)
    feed(sink_on(state_dir), 0)
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in state_dir.iterdir()} == {0o700, 0o600}


def test_rescaling_keeps_the_mode_of_files(tmp_path):
    sink = ViewSink(Circuit(views().spec), state_dir=tmp_path / "embedded", state_mode=0o770)
    feed(sink, 0)
    sink.close()
    assert modes(tmp_path / "embedded") == ({0o770}, {0o660})
    circuit = compile_sql("SELECT city, count(*) AS n FROM link GROUP BY city", {"link": LINK})
    sink = ViewSink(circuit, state_dir=tmp_path / "state", state_mode=0o770)
    feed(sink, 0)
    sink.close()
    rescale_state(LocalFiles(tmp_path / "state"), cells=2)
    assert modes(tmp_path / "state") == ({0o770}, {0o660})


@pytest.mark.parametrize("mode", [0o077, 0, -1, 0o10700, "700", None])
def test_a_mode_without_access_for_the_user_is_refused(tmp_path, mode):
    with pytest.raises(StateError, match="state_mode="):
        ViewSink(views(), state_dir=tmp_path, state_mode=mode)


def test_the_command_reads_a_mode_as_octal_digits():
    assert (_parse_mode("700"), _parse_mode("0750"), _parse_mode("2770")) == (0o700, 0o750, 0o2770)
    for text in ("7", "rwx", "0x1f", "999", "077", ""):
        with pytest.raises(StateError, match="mode"):
            _parse_mode(text)
