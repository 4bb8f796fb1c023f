"""Change streams of the demo: messages with a window, files of changes, oracles."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import EventsError
from streaming.demo.events import college_messages, parse_window, read_events, replay_messages
from streaming.demo.oracle import read_oracle


def messages(*rows):
    return pa.table(
        {
            name: pa.array([row[i] for row in rows], pa.int64())
            for i, name in enumerate(("src", "dst", "ts"))
        }
    )


def changes(stream):
    columns = (stream.source, stream.target, stream.weight, stream.time)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def summed(source, target, weight):
    total = Counter()
    for a, b, w in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
        total[a, b] += w
    return {row: w for row, w in total.items() if w}


def test_a_message_is_deleted_after_the_window_and_before_insertions_of_the_same_time():
    stream = replay_messages(messages((1, 2, 100), (3, 4, 107), (1, 2, 103)), 7)
    assert changes(stream) == [
        (1, 2, 1, 100),
        (1, 2, 1, 103),
        (1, 2, -1, 107),
        (3, 4, 1, 107),
        (1, 2, -1, 110),
        (3, 4, -1, 114),
    ]
    assert stream.ends.tolist() == [1, 2, 4, 5, 6]


def test_without_a_window_messages_are_not_deleted():
    stream = replay_messages(messages((1, 2, 1), (1, 2, 2)), None)
    assert stream.weight.tolist() == [1, 1]
    assert summed(*stream.live_after(2)) == {(1, 2): 2}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)), min_size=1),
    st.sampled_from([None, 1, 3, 50]),
)
def test_the_changes_applied_so_far_give_the_live_messages(rows, window):
    stream = replay_messages(messages(*rows), window)
    for end in stream.ends.tolist():
        applied = summed(stream.source[:end], stream.target[:end], stream.weight[:end])
        assert applied == summed(*stream.live_after(end))
    if window is not None:
        assert applied == {}


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(1, 12))
def test_cuts_are_ends_of_transactions_in_order_and_the_last_is_the_whole_stream(times, batches):
    stream = replay_messages(messages(*((1, 2, ts) for ts in times)), None)
    cuts = stream.cuts(batches)
    assert cuts[-1] == len(stream)
    assert set(cuts.tolist()) <= set(stream.ends.tolist())
    assert (np.diff(cuts) > 0).all()
    assert len(cuts) <= batches


def test_college_messages_have_the_published_size():
    table = college_messages()
    people = np.unique(np.concatenate([table["src"].to_numpy(), table["dst"].to_numpy()]))
    assert (table.num_rows, len(people)) == (59_835, 1_899)
    stream = replay_messages(table, parse_window("7d"))
    assert (len(stream), int((stream.weight < 0).sum())) == (119_670, 59_835)


@pytest.mark.parametrize("window", ["7", "d", "0d", "-1d", "7 days", "", "none7"])
def test_a_window_that_is_not_a_duration_is_refused(window):
    with pytest.raises(EventsError, match="as in 7d"):
        parse_window(window)


GOOD = {"src": [1, 1], "dst": [2, 2], "ts": [1, 2], "op": [1, -1]}


def write(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dst": None}, "has no column 'dst', only src, ts, op"),
        ({"src": [1, None]}, "row 1: src is NULL in 1 rows"),
        ({"src": ["a", "b"]}, "column 'src' is of type string"),
        ({"op": [1, 2]}, "row 1: op is 2, it must be 1 or -1"),
        ({"src": [], "dst": [], "ts": [], "op": []}, "has no rows"),
    ],
)
def test_a_file_that_is_not_a_change_stream_is_refused(tmp_path, change, words):
    columns = {name: values for name, values in (GOOD | change).items() if values is not None}
    with pytest.raises(EventsError, match=words):
        read_events(write(tmp_path / "events.parquet", columns))


def test_a_missing_file_or_one_that_is_not_parquet_is_refused(tmp_path):
    with pytest.raises(EventsError, match="no file"):
        read_events(tmp_path / "gone.parquet")
    (tmp_path / "text.parquet").write_text("src,dst\n")
    with pytest.raises(EventsError, match="cannot be read as Parquet"):
        read_events(tmp_path / "text.parquet")


def test_a_window_is_for_messages_and_not_for_changes(tmp_path):
    path = write(tmp_path / "events.parquet", GOOD)
    with pytest.raises(EventsError, match="remove --window"):
        read_events(path, "7d")
    assert len(read_events(path, "none")) == 2
    bare = write(tmp_path / "messages.parquet", {k: GOOD[k] for k in ("src", "dst", "ts")})
    assert len(read_events(bare)) == 4
    assert len(read_events(bare, "none")) == 2


def test_changes_of_one_tx_are_one_transaction_whatever_their_time(tmp_path):
    path = write(tmp_path / "events.parquet", GOOD | {"tx": [5, 5]})
    assert read_events(path).ends.tolist() == [2]
    assert read_events(write(tmp_path / "plain.parquet", GOOD)).ends.tolist() == [1, 2]


def oracle(tmp_path, columns, events=GOOD):
    stream = read_events(write(tmp_path / "events.parquet", events))
    return read_oracle(write(tmp_path / "oracle.parquet", columns), stream)


def test_an_oracle_is_queried_by_time_by_transaction_or_by_number_of_changes(tmp_path):
    live = {"live_triangles": [3, 4], "live_edges": [5, 6]}
    assert oracle(tmp_path, {"ts": [1, 2], **live}).at(1) == {"undirected": 3, "edges": 5}
    assert oracle(tmp_path, {"events_applied": [1, 2], **live}).at(2) == {
        "undirected": 4,
        "edges": 6,
    }
    both = GOOD | {"tx": [7, 7]}
    answers = oracle(tmp_path, {"tx": [7], "live_directed_3cycles": [9]}, both)
    assert (answers.at(2), answers.at(1)) == ({"cycles": 9}, {})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ts": [1, 2], "triangles": [0, 0]}, "it is not an oracle"),
        ({"ts": [1, 3], "live_triangles": [0, 0]}, "row for ts 3"),
        ({"ts": [1], "live_triangles": [0]}, "or does not end after the 2 changes"),
        ({"ts": [2, 1], "live_triangles": [0, 0]}, "is not ascending"),
        ({"live_triangles": [0]}, "has no column 'ts'"),
    ],
)
def test_an_oracle_of_another_stream_is_refused(tmp_path, columns, words):
    with pytest.raises(EventsError, match=words):
        oracle(tmp_path, columns)
