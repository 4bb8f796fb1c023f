"""String parts: slices of stored dictionaries, and files written from slices."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.values.coded_strings import CodedStrings, concatenate_strings
from streaming.state import segment, string_parts
from streaming.state.segment import SegmentPart, encode_segment, read_string_part, string_part
from streaming.state.string_parts import StoredStrings, encode_strings


def coded_strings(strings, codes):
    offsets = np.cumsum([0, *map(len, strings)])
    data = np.frombuffer(b"".join(strings), np.uint8)
    return CodedStrings(offsets, data, np.array(codes, np.int64))


@st.composite
def dictionaries(draw):
    """Draw parts with strings; the codes ascend from part to part."""
    strings = draw(st.lists(st.binary(max_size=4), max_size=12))
    gaps = draw(
        st.one_of(
            st.just([1] * len(strings)),
            st.lists(st.integers(1, 3), min_size=len(strings), max_size=len(strings)),
        )
    )
    codes = np.cumsum(gaps).tolist()
    ends = sorted({*draw(st.lists(st.integers(0, len(strings)), max_size=3)), len(strings)})
    starts = [0, *ends[:-1]]
    return [coded_strings(strings[a:b], codes[a:b]) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("min_chunk_bytes", [1, 1 << 16])
@given(dictionaries())
def test_slices_of_parts_give_the_file_of_all_their_strings(min_chunk_bytes, parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(string_parts, "STRINGS_PER_SLICE", 2)
        for module in (segment, string_parts):
            patch.setattr(module, "MIN_CHUNK_BYTES", min_chunk_bytes)
        check_slices(parts)


def check_slices(parts):
    expected = concatenate_strings(parts)
    releases = []
    stored = StoredStrings(
        [(string_part("text", part), len(part.codes)) for part in parts],
        lambda: releases.append(True),
    )
    assert stored.are_valid
    slices = list(stored)
    assert all(len(strings.codes) <= 2 for strings in slices)
    assert len(releases) == len(slices)
    actual = concatenate_strings(slices)
    assert [array.tolist() for array in actual] == [array.tolist() for array in expected]

    encoded = encode_strings("text", partial(iter, slices))
    part = string_part("text", expected)
    assert (encoded.rows, encoded.size) == (len(expected.codes), part.size)
    file = b"".join(encode_segment([part]))
    assert b"".join(encoded.chunks) == b"".join(encoded.chunks) == file


@pytest.mark.parametrize(
    "words",
    [
        [],
        [0],
        [0, 1],
        [0, 1, 3],  # no code
        [0, 1, 3, -1],
        [0, 1, 3, 2**63 - 2],  # the second code is too large
        [1, 1, 3, 7],
        [0, 1, 2, 7],
        [0, 4, 3, 7],
        [0, 2**63 - 1, 3, 7],
        [0, -1, 3, 7],
        [0, 2**62 + 1, -(2**62) - 1, 3, 7],  # the differences do not fit in int64
        [0, 1, 3, 7, 7],
        [0, 1, 3, 7, 6],
        [0, 1, 3, -1, 6],
        [0, 1, 3, 7, 8, 9],
    ],
)
def test_words_that_are_not_offsets_and_codes_are_not_valid(words):
    data = np.frombuffer(b"abc", np.uint8)
    # The words of two strings; those with 3 in the fourth place are of three strings.
    count = 3 if len(words) == 5 and words[3] == 3 else 2
    part = SegmentPart("text", np.array(words, np.int64), data)
    assert not StoredStrings([(part, count)]).are_valid
    for valid in ([0, 1, 3, 7], [0, 1, 3, 2**63 - 3], [0, 1, 3, 7, 9], [0, 0, 3, 0]):
        part = SegmentPart("text", np.array(valid), data)
        assert StoredStrings([(part, 2)]).are_valid
        (strings,) = StoredStrings([(part, 2)])
        expected = read_string_part(part, 2)
        assert [array.tolist() for array in strings] == [array.tolist() for array in expected]
