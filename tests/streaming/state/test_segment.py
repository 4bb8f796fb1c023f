from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming.state.segment import SegmentPart, decode_segment, encode_segment

PIECES = st.lists(
    st.tuples(
        st.text(max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1)), st.binary(max_size=9)
    ),
    min_size=1,
    max_size=6,
)


def memory(pieces):
    return memoryview(bytearray(encode_segment(pieces)))


@given(PIECES)
def test_what_is_read_is_what_was_written(contents):
    pieces = [
        SegmentPart(name, np.array(words, np.int64), np.frombuffer(data, np.uint8))
        for name, words, data in contents
    ]
    result = decode_segment(memory(pieces))
    assert [(p.name, p.words.tolist(), p.bytes.tobytes()) for p in result] == [
        (name, words, data) for name, words, data in contents
    ]


def test_words_are_writable_views_of_the_memory_that_was_read():
    data = memory([SegmentPart("a", np.arange(3)), SegmentPart("b", np.arange(5))])
    for piece in decode_segment(data):
        assert piece.words.flags.writeable and piece.words.flags.aligned
        assert np.shares_memory(piece.words, np.frombuffer(data, np.uint8))


def test_any_reader_of_arrow_can_open_a_segment():
    data = encode_segment(
        [SegmentPart("text", np.array([0, 1, 3]), np.frombuffer(b"abc", np.uint8))]
    )
    assert pa.ipc.open_file(data).read_all().to_pylist() == [
        {"part": "text", "words": [0, 1, 3], "bytes": b"abc"}
    ]
