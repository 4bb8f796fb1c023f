"""State directories on a real disk: which circuits and sinks may use them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from circuits import compile_sql
from dbsp_wcoj import Formula
from streaming import (
    BatchOrderError,
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
)
from streaming.state import local_files
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import decode_checked, encode_checked
from tests.support.compacted_files import CompactedFiles
from tests.support.fed_sink import LINK, VIEWS, check, feed, sink_on, views, write_state

ROOT = Path(__file__).parents[3]


@pytest.fixture
def state_dir(tmp_path):
    write_state(tmp_path / "state", 5)
    return tmp_path / "state"


def changed_views(text=VIEWS, schema=LINK, **options):
    return compile_sql(text, {"link": schema}, **{"materialize": True, **options})


LOSSES = {
    "a removed view": (
        lambda: changed_views(VIEWS.strip().split("\n")[0]),
        "would drop view 'cities', which is not published any more",
    ),
    "another schema": (
        lambda: changed_views(schema=LINK.set(0, pa.field("src", pa.int32()))),
        "the published rows of view 'paths', which has other columns now",
    ),
    "nothing materialized": (
        lambda: changed_views(materialize=False),
        r"the materialized rows of view 'paths'; .* the rows of input 'link' \(columns src, dst",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_change_of_the_views_that_drops_something_is_refused(state_dir, name):
    make_views, message = LOSSES[name]
    for number in (4, 5):
        with pytest.raises(StateMismatchError, match=message) as raised:
            feed(sink_on(state_dir, make_views()), number)
        assert "allow it with ChangeOptions(allow_drop=True)" in str(raised.value)
    feed(sink_on(state_dir), 5)


def test_a_state_serves_the_same_views_in_another_order(state_dir):
    reordered = "\n".join(reversed(VIEWS.strip().split("\n")))
    assert changed_views(reordered).fingerprint == changed_views().fingerprint
    sink = sink_on(state_dir, changed_views(reordered))
    feed(sink, 4, 5, 6)  # the targets check each delta, also of the replayed micro-batch
    check(sink, 7)
    sink.close()
    sink = sink_on(state_dir)
    feed(sink, 6, 7)
    check(sink, 8)


@pytest.mark.parametrize("formula", list(Formula))
def test_a_state_continues_with_another_formula_and_number_of_threads(state_dir, formula):
    sink = sink_on(state_dir, views(formula=formula, threads=3))
    feed(sink, 4, 5)
    check(sink, 6)
    sink.close()
    sink = sink_on(state_dir)
    feed(sink, 5, 6)
    check(sink, 7)


def test_a_newer_format_is_refused(state_dir):
    path = state_dir / "state.json"
    body = decode_checked(path.read_bytes(), "state.json")
    path.write_bytes(encode_checked({**body, "format": 99, "more": [1]}))
    with pytest.raises(StateMismatchError, match="has format 99, this version reads 7") as raised:
        feed(sink_on(state_dir), 5)
    assert "use the version that wrote it" in str(raised.value)


def test_a_deleted_checkpoint_is_refused(state_dir):
    with pytest.raises(BatchOrderError, match="0 is older than the oldest version") as raised:
        feed(sink_on(state_dir), 0, query="new")
    assert "put back the one that belongs to the state, or delete both" in str(raised.value)


def test_a_deleted_state_is_refused(state_dir):
    shutil.rmtree(state_dir)
    with pytest.raises(BatchOrderError, match=r"first micro-batch has id 5, not 0.*is empty"):
        feed(sink_on(state_dir), 5)


def test_gaps_and_old_ids_are_refused(state_dir):
    sink = sink_on(state_dir)
    with pytest.raises(BatchOrderError, match=r"6 follows 4.*: 5 is missing"):
        feed(sink, 6)
    with pytest.raises(BatchOrderError, match=r"9 follows 4.*: 5 to 8 are missing"):
        feed(sink, 9)
    with pytest.raises(BatchOrderError, match=r"1 is older than the oldest version .* 2 to 4"):
        feed(sink, 1)
    feed(sink, 5)
    check(sink, 6)


@pytest.mark.parametrize("number", [2, 4, 5])
def test_the_checkpoint_of_another_query_is_refused(state_dir, number):
    sink = sink_on(state_dir)
    with pytest.raises(BatchOrderError, match=r"is from query other, .* belongs to query q"):
        feed(sink, number, query="other")
    feed(sink, 5)
    check(sink, 6)


def test_a_version_before_the_newest_may_be_replayed(state_dir):
    """A crash of the machine may lose Spark's last commits, which the targets received."""
    sink = sink_on(state_dir)
    feed(sink, 3, 4, 5)
    check(sink, 6)


def test_keeping_fewer_than_two_versions_is_refused(tmp_path):
    with pytest.raises(StateError, match="at least 2"):
        sink_on(tmp_path, keep=1)


def test_a_second_sink_in_the_process_is_refused_until_the_first_is_closed(state_dir):
    first, second = sink_on(state_dir), sink_on(state_dir)
    feed(first, 5)
    with pytest.raises(StateLockedError, match=r"\(this one\): stop that query and close\(\) its"):
        feed(second, 6)
    check(second, 6)  # reading needs no lock
    first.close()
    feed(second, 6)
    check(second, 7)


LOCK_HOLDER = """
import sys
from tests.support.fed_sink import feed, sink_on
sink = sink_on(sys.argv[1])
feed(sink, 5)
print("locked", flush=True)
sys.stdin.readline()
sink.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def test_a_second_sink_in_another_process_is_refused_until_the_first_is_closed_or_killed(
    state_dir, monkeypatch
):
    monkeypatch.setattr(local_files, "LOCK_TIMEOUT_S", 0.2)
    for end in ("close", "kill"):
        process = subprocess.Popen(
            [sys.executable, "-c", LOCK_HOLDER, str(state_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout.readline() == "locked\n"
            sink = sink_on(state_dir)
            with pytest.raises(StateLockedError, match=f"process {process.pid}: stop that query"):
                feed(sink, 6)
            check(sink, 6)
            if end == "kill":
                process.kill()
                process.wait()
            else:
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "closed\n"
            feed(sink, 5)
            check(sink, 6)
            sink.close()
            process.kill()


def test_metrics_have_a_line_for_each_micro_batch(state_dir):
    feed(sink_on(state_dir), 4, 5)
    lines = [json.loads(line) for line in (state_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch_id"] for line in lines] == [0, 1, 2, 3, 4, 4, 5]
    assert [line["replayed"] for line in lines] == [False] * 5 + [True, False]
    assert lines[-1]["rows_in"] == {"link": 2}
    assert set(lines[-1]["seconds"]) >= {"read", "decode", "step", "write", "publish", "all"}
    assert lines[-1]["bytes_written"] > 0
    assert lines[-1]["arrangements"]["text"][0] == 7


def test_views_can_be_read_while_another_sink_writes_them(tmp_path):
    reader = sink_on(tmp_path)
    check(reader, 0)
    assert not list(tmp_path.iterdir())  # a reader leaves no trace, and no lock
    writer = sink_on(tmp_path)
    for number in range(6):
        feed(writer, number)
        check(reader, number + 1)
        check(reader, number + 1)
    with pytest.raises(StateLockedError):
        feed(reader, 6)
    check(reader, 6)
    writer.close()
    feed(reader, 6)
    check(reader, 7)
    check(writer, 7)


def test_a_reader_of_a_version_that_is_dropped_continues_with_a_newer_one(state_dir):
    writer = sink_on(state_dir, keep=2)

    class OvertakenFiles(LocalFiles):
        """After the first manifest was read, the writer does several micro-batches."""

        def read(self, name):
            data = super().read(name)
            if name.startswith("manifests/") and len(writer.metrics) == 1:
                feed(writer, *range(5, 12))
            return data

    feed(writer, 4)
    check(sink_on(OvertakenFiles(state_dir)), 12)


def test_a_reader_of_a_version_that_is_compacted_offline_reads_its_new_files(state_dir):
    files = CompactedFiles(state_dir)
    check(sink_on(files), 5)
    assert files.is_compacted


def test_a_reader_names_a_damaged_file(state_dir):
    writer = sink_on(state_dir)
    feed(writer, 5)
    for path in (state_dir / "data").iterdir():
        path.write_bytes(b"")
    with pytest.raises(StateDamagedError, match="has 0 bytes"):
        sink_on(state_dir).table("paths")
