"""State directories that earlier versions wrote are opened, and those of newer ones are refused."""

from __future__ import annotations

import shutil
from unittest.mock import patch

import pytest

from streaming import StateError, StateMismatchError
from streaming.sink.view_sink import ViewSink
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.directory_identity import FORMAT_VERSION
from streaming.state.local_files import LocalFiles
from streaming.state.offline_compaction import compact_state
from streaming.state.writer import Writer
from tests.support.state_formats import (
    ALL,
    FIXTURES,
    STORED,
    feed,
    program,
    tables_of,
    write_fixture,
)
from tests.support.tables import bag_of

FORMATS = sorted(int(path.name) for path in FIXTURES.iterdir())


def check_views(sink: ViewSink) -> None:
    fresh = program()
    for number in range(ALL):
        fresh.step(tables_of(number))
    for view, table in fresh.views.items():
        assert bag_of(sink.table(view)) == bag_of(table), view


@pytest.mark.parametrize("format", FORMATS)
def test_a_state_of_each_format_goes_on(format, tmp_path):
    shutil.copytree(FIXTURES / str(format), tmp_path / "state")
    sink = ViewSink(program(), state_dir=tmp_path / "state")
    for number in range(STORED - 1, ALL):  # the last stored micro-batch is replayed
        feed(sink, number)
    check_views(sink)
    sink.close()


def test_the_format_is_raised_by_the_first_commit_and_not_before(tmp_path):
    """Until then, an error may advise to go back to the earlier version."""
    shutil.copytree(FIXTURES / str(FORMAT_VERSION - 1), tmp_path / "state")
    path = tmp_path / "state" / "state.json"
    before = path.read_bytes()
    sink = ViewSink(program(), state_dir=tmp_path / "state")
    feed(sink, STORED - 1)  # a replay
    assert path.read_bytes() == before
    feed(sink, STORED)
    assert decode_checked(path.read_bytes(), "state.json")["format"] == FORMAT_VERSION
    sink.close()

    shutil.copyfile(FIXTURES / str(FORMAT_VERSION - 1) / "state.json", path)
    with (
        patch.object(Writer, "make_manifest", side_effect=StateError("does not fit")),
        pytest.raises(StateError, match="does not fit"),
    ):
        compact_state(LocalFiles(tmp_path / "state"))
    assert path.read_bytes() == before
    compact_state(LocalFiles(tmp_path / "state"))
    assert decode_checked(path.read_bytes(), "state.json")["format"] == FORMAT_VERSION


def test_raising_the_format_keeps_the_views_that_the_directory_was_opened_with(tmp_path):
    """After a crash between the commit of a change of the views and their description."""
    shutil.copytree(FIXTURES / str(FORMAT_VERSION - 1), tmp_path / "state")
    path = tmp_path / "state" / "state.json"
    body = decode_checked(path.read_bytes(), "state.json")
    path.write_bytes(encode_checked({**body, "fingerprints": {"view old": "0"}}))
    sink = ViewSink(program(), state_dir=tmp_path / "state")
    for number in range(STORED - 1, ALL):
        feed(sink, number)
    sink.close()
    expected = {**body, "format": FORMAT_VERSION}
    assert decode_checked(path.read_bytes(), "state.json") == expected


def test_the_current_format_has_a_fixture(tmp_path):
    assert FORMATS[-1] == FORMAT_VERSION, "run python -m tests.support.state_formats"
    write_fixture(tmp_path / "state")
    sink = ViewSink(program(), state_dir=tmp_path / "state")
    for number in range(STORED, ALL):
        feed(sink, number)
    check_views(sink)
    sink.close()


def test_a_newer_format_is_refused_by_name(tmp_path):
    shutil.copytree(FIXTURES / str(FORMATS[-1]), tmp_path / "state")
    path = tmp_path / "state" / "state.json"
    body = decode_checked(path.read_bytes(), "state.json")
    path.write_bytes(encode_checked({**body, "format": FORMAT_VERSION + 1}))
    sink = ViewSink(program(), state_dir=tmp_path / "state")
    with pytest.raises(StateMismatchError, match=f"has format {FORMAT_VERSION + 1}, this version"):
        feed(sink, STORED)
