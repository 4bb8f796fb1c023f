"""Segments: encoding and decoding as Arrow files without copies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming.state.segment import SegmentPart, decode_segment, encode_segment

CONTENTS = st.lists(
    st.tuples(
        st.text(max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1)), st.binary(max_size=9)
    ),
    min_size=1,
    max_size=6,
)


def encoded(parts):
    """Return the bytes of a segment in writable memory, as they are read from a file."""
    return memoryview(bytearray(b"".join(encode_segment(parts))))


@given(CONTENTS)
def test_a_segment_is_decoded_from_its_encoding(contents):
    parts = [
        SegmentPart(name, np.array(words, np.int64), np.frombuffer(data, np.uint8))
        for name, words, data in contents
    ]
    result = decode_segment(encoded(parts))
    assert [(p.name, p.words.tolist(), p.bytes.tobytes()) for p in result] == [
        (name, words, data) for name, words, data in contents
    ]


def test_words_are_writable_views_of_the_memory_that_was_read():
    data = encoded([SegmentPart("a", np.arange(3)), SegmentPart("b", np.arange(5))])
    for part in decode_segment(data):
        assert part.words.flags.writeable and part.words.flags.aligned
        assert np.shares_memory(part.words, np.frombuffer(data, np.uint8))


def test_a_segment_is_an_arrow_file():
    data = encoded([SegmentPart("text", np.array([0, 1, 3]), np.frombuffer(b"abc", np.uint8))])
    assert pa.ipc.open_file(pa.py_buffer(data)).read_all().to_pylist() == [
        {"part": "text", "words": [0, 1, 3], "bytes": b"abc"}
    ]


def test_large_words_are_encoded_without_a_copy():
    words = np.arange(1 << 14)
    small = SegmentPart("small", np.arange(3))
    chunks = encode_segment([SegmentPart("large", words)])
    assert any(np.shares_memory(np.frombuffer(chunk, np.uint8), words) for chunk in chunks)
    assert len(chunks) == 3 and len(encode_segment([small, small])) == 1
    (part,) = decode_segment(memoryview(bytearray(b"".join(chunks))))
    assert np.array_equal(part.words, words)
