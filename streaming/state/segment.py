"""Segments: files with the rows that one step adds to the state.

The state of a circuit consists of arrangements and dictionaries. An arrangement is a relation in
one column order, kept as sorted runs; a dictionary assigns integer codes to strings. A step adds
*parts* to them: a run of an arrangement (as int64 words, as it is in memory), or the new strings of
a dictionary (in the order of their codes). A segment is an Arrow IPC file with one record batch and
one row per part::

    part: string | words: large_list<int64> | bytes: large_binary
    "relation e [0,1]"   header, levels, weights     -
    "text"               offsets, codes              the strings, concatenated

If the codes of a part are consecutive numbers, only the first one is written.

Any Arrow reader can open it. The small parts of a step share a segment, because each file costs a
sync; a large part has its own. Reading copies nothing: words and bytes are views of the memory that
was read or mapped. The checksum in the manifest is compared first. A checksum can be forged, so a
segment must have exactly this form: no compression, no position outside of the file, ascending
offsets.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp_wcoj.values.coded_strings import CodedStrings
from streaming.errors import StateDamagedError
from streaming.state.files import Bytes

__all__ = [
    "SegmentPart",
    "decode_segment",
    "encode_run",
    "encode_segment",
    "part_name",
    "read_string_part",
    "split_part_name",
    "string_part",
]

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

SEGMENT_SCHEMA: Final = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),
        pa.field("words", pa.large_list(pa.field("item", pa.int64(), nullable=False)), False),
        pa.field("bytes", pa.large_binary(), nullable=False),
    ]
)
# `encode_segment` does not copy buffers of at least this size.
MIN_CHUNK_BYTES: Final = 1 << 16
_PART_NAME: Final = re.compile(r"(.*) \[(\d+(?:,\d+)*)\]")
NO_BYTES: Final[ByteArray] = np.empty(0, np.uint8)
#: An Arrow file begins with these bytes; a stream of messages and a footer follow.
ARROW_MAGIC: Final = b"ARROW1\0\0"
# The numbers of two fields in Arrow's flatbuffers: `header` of the table Message, and `compression`
# of the table RecordBatch (format/Message.fbs).
MESSAGE_HEADER_FIELD: Final = 2
COMPRESSION_FIELD: Final = 3


@dataclass(frozen=True, eq=False)
class SegmentPart:
    """A run, or some strings of a dictionary, as it is in a file.

    Attributes:
        name: The name of the arrangement (`part_name`) or dictionary.
        words: The words of the run, or the offsets and codes of the strings.
        bytes: The strings, concatenated.
        is_mapped: True if the memory is a shared map of the file.
    """

    name: str
    words: Int64Array
    bytes: ByteArray = field(default_factory=lambda: NO_BYTES)
    is_mapped: bool = False

    @property
    def size(self) -> int:
        """The number of bytes of its content."""
        return self.words.nbytes + self.bytes.nbytes


class _Chunks:
    """A file for pyarrow: keeps what is written to it, large buffers without a copy."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[Bytes] = []
        self._small: list[Bytes] = []  # the small buffers after these chunks
        self._position = 0

    def write(self, data: Bytes) -> int:
        size = memoryview(data).nbytes
        if size >= MIN_CHUNK_BYTES:
            self._join_small()
            self._chunks.append(data)
        else:
            self._small.append(data)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def chunks(self) -> list[Bytes]:
        """Return all bytes, in chunks that are not empty."""
        self._join_small()
        return self._chunks

    def _join_small(self) -> None:
        if self._small:
            self._chunks.append(b"".join(self._small))
            self._small.clear()


def encode_segment(parts: Sequence[SegmentPart]) -> list[Bytes]:
    """Encode parts as the bytes of a file, in chunks; large parts are not copied.

    >>> words = np.arange(3)
    >>> file = memoryview(bytearray(b"".join(encode_segment([SegmentPart("r [0]", words)]))))
    >>> (part,) = decode_segment(file)
    >>> part.name, part.words.tolist(), part.bytes.tolist()
    ('r [0]', [0, 1, 2], [])
    """
    columns = [
        pa.array([part.name for part in parts], pa.string()),
        pa.LargeListArray.from_arrays(
            _offsets([part.words for part in parts]),
            pa.array(_concatenate([part.words for part in parts])),
            type=SEGMENT_SCHEMA.field("words").type,
        ),
        pa.Array.from_buffers(
            pa.large_binary(),
            len(parts),
            [
                None,
                pa.py_buffer(_offsets([part.bytes for part in parts])),
                pa.py_buffer(_concatenate([part.bytes for part in parts])),
            ],
        ),
    ]
    sink = _Chunks()
    with pa.ipc.new_file(sink, SEGMENT_SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=SEGMENT_SCHEMA))
    return sink.chunks()


def encode_run(name: str, words: Sequence[Int64Array]) -> list[Bytes]:
    """Encode a run as the bytes of a file with one part, in chunks; no words are copied.

    Args:
        name: The name of its arrangement (`part_name`).
        words: The words of the run, in several arrays (`Run.to_parts`).

    >>> words = np.arange(3)
    >>> file = b"".join(encode_run("r [0]", [words[:2], words[2:]]))
    >>> file == b"".join(encode_segment([SegmentPart("r [0]", words)]))
    True
    """
    size = sum([part.nbytes for part in words])
    if size < MIN_CHUNK_BYTES:
        return encode_segment([SegmentPart(name, np.concatenate(words))])
    # Arrow encodes the file with memory of the same size in place of the words. Nobody reads this
    # memory, so the system supplies no pages for it.
    placeholder = np.frombuffer(
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ), np.int64
    )
    chunks: list[Bytes] = []
    for chunk in encode_segment([SegmentPart(name, placeholder)]):
        is_placeholder = np.shares_memory(np.frombuffer(chunk, np.uint8), placeholder)
        chunks += words if is_placeholder else [chunk]
    return chunks


def string_part(name: str, strings: CodedStrings) -> SegmentPart:
    """Return a part of a dictionary.

    >>> texts = CodedStrings(np.array([0, 1, 3]), np.frombuffer(b"abb", np.uint8), np.array([4, 5]))
    >>> part = string_part("text", texts)
    >>> part.words.tolist(), read_string_part(part, 2).codes.tolist()
    ([0, 1, 3, 4], [4, 5])
    """
    offsets, data, codes = strings
    is_consecutive = len(codes) and codes[-1] - codes[0] == len(codes) - 1
    return SegmentPart(
        name, np.concatenate((offsets, codes[:1] if is_consecutive else codes)), data
    )


def read_string_part(part: SegmentPart, count: int) -> CodedStrings | None:
    """Return the strings of a part of a dictionary; None if it has other than ``count`` strings."""
    offsets, codes = part.words[: count + 1], part.words[count + 1 :]
    if count and len(codes) == 1:
        codes = np.arange(codes[0], codes[0] + count)
    if len(offsets) != count + 1 or len(codes) != count:
        return None
    return CodedStrings(offsets, part.bytes, codes)


def part_name(trace: str, order: Sequence[int]) -> str:
    """Return the name of a part of an arrangement; a part of a dictionary has its name.

    >>> part_name("relation e", (0, 1))
    'relation e [0,1]'
    """
    return f"{trace} [{','.join(map(str, order))}]"


def split_part_name(name: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the trace and the column order of `part_name`; a dictionary has no order.

    >>> split_part_name("relation e [0,1]"), split_part_name("text")
    (('relation e', (0, 1)), ('text', None))
    """
    match = _PART_NAME.fullmatch(name)
    if match is None:
        return name, None
    return match[1], tuple(int(column) for column in match[2].split(","))


def decode_segment(
    data: memoryview, name: str = "a segment", *, is_mapped: bool = False
) -> list[SegmentPart]:
    """Decode the parts of a file as views of its memory; O(parts).

    Args:
        data: The memory, writable.
        name: The name of the file, for messages.
        is_mapped: True if the memory is a shared map of the file.

    Raises:
        StateDamagedError: This is not a segment, although its checksum matched.
    """
    try:
        return _read_parts(data, _read_batch(data), is_mapped=is_mapped)
    except (pa.ArrowException, OSError, StopIteration, ValueError, struct.error) as error:
        raise StateDamagedError(
            f"{name} is not a segment of this library ({type(error).__name__}: {error}): restore "
            "the state directory from a copy"
        ) from error


def _read_batch(data: memoryview) -> pa.RecordBatch:
    """Return the only batch of a file; O(parts)."""
    if bytes(data[: len(ARROW_MAGIC)]) != ARROW_MAGIC:
        raise ValueError("not an Arrow file")
    stream = pa.BufferReader(pa.py_buffer(data).slice(len(ARROW_MAGIC)))
    messages = pa.ipc.MessageReader.open_stream(stream)
    schema = pa.ipc.read_schema(messages.read_next_message())
    if not schema.equals(SEGMENT_SCHEMA):
        raise ValueError(f"columns {schema.names}")
    message = messages.read_next_message()
    if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
        raise ValueError("not an uncompressed record batch")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    columns = [*batch.columns, batch.column("words").values]
    if any(column.null_count for column in columns):
        raise ValueError("a column contains NULL")
    return batch


def _read_parts(data: memoryview, batch: pa.RecordBatch, *, is_mapped: bool) -> list[SegmentPart]:
    """Return the parts of the only batch of a file, as views of the file's memory."""
    memory = np.frombuffer(data, np.uint8)
    if not batch.num_rows:
        return []
    words, strings = batch.column("words"), batch.column("bytes")
    word_offsets = words.offsets.to_numpy()
    word_buffer = words.values.buffers()[1]
    _, offset_buffer, byte_buffer = strings.buffers()
    byte_offsets = np.frombuffer(offset_buffer, np.int64)[: batch.num_rows + 1]

    def slice_memory(buffer: pa.Buffer | None, start: int, end: int) -> ByteArray:
        # A slice of ``memory`` is writable; a numpy view of an Arrow buffer is not.
        if buffer is None or start == end:
            return NO_BYTES
        position = buffer.address - memory.ctypes.data
        if position < 0 or position + end > len(memory):
            raise ValueError("a part is not in the file")
        return memory[position + start : position + end]

    parts = []
    for i, name in enumerate(batch.column("part").to_pylist()):
        first_word, end_word = int(word_offsets[i]), int(word_offsets[i + 1])
        part_words = slice_memory(word_buffer, 8 * first_word, 8 * end_word).view(np.int64)
        part_bytes = slice_memory(byte_buffer, int(byte_offsets[i]), int(byte_offsets[i + 1]))
        parts.append(SegmentPart(name, part_words, part_bytes, is_mapped))
    return parts


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a record batch's message declares compressed buffers."""

    def field_at(table: int, number: int) -> int:
        """Return the position of a field of a flatbuffer table; 0 if the field is missing."""
        # A table begins with its distance from its vtable, which lists the offsets of its fields.
        (distance,) = struct.unpack_from("<i", metadata, table)
        vtable = table - distance
        if not 0 <= vtable <= len(metadata):
            raise ValueError("a message is not a flatbuffer")
        (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
        field_entry = 4 + 2 * number
        if field_entry + 2 > vtable_bytes:
            return 0
        (offset,) = struct.unpack_from("<H", metadata, vtable + field_entry)
        return table + offset if offset else 0

    (root,) = struct.unpack_from("<I", metadata, 0)
    header = field_at(root, MESSAGE_HEADER_FIELD)
    (batch,) = struct.unpack_from("<I", metadata, header)
    return field_at(header + batch, COMPRESSION_FIELD) != 0


def _offsets(arrays: Sequence[npt.NDArray[np.generic]]) -> Int64Array:
    """Return the offsets of arrays in their concatenation."""
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    return offsets


def _concatenate(arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
