"""Edge list: the text files of the SNAP collection, read as a table of integers.

A line is an edge: two or three integers between tabs or blanks. Lines that begin with ``#`` are
comments, and empty lines are skipped. A file that ends in ``.gz`` is decompressed. The columns are
``src``, ``dst`` and, for three integers, ``value`` (a time, a sign or a weight, depending on the
file).

This module replaces blanks by tabs, and then pyarrow parses the lines. Pyarrow's errors do not name
the line, so after an error Python searches for the first bad line.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv

from streaming.errors import EventsError

__all__ = ["edge_list_schema", "read_edge_list"]

COLUMNS: Final = ("src", "dst", "value")
_COMMENT: Final = re.compile(rb"^[ \t]*#[^\n]*\n?", re.MULTILINE)
_BLANKS: Final = re.compile(rb"[ \t]+")
_LINE_ENDS: Final = re.compile(rb"^\t|[\t\r]+$", re.MULTILINE)
_INTEGER: Final = re.compile(rb"-?[0-9]{1,19}")
_MAX_INT64: Final = 2**63 - 1
_MAX_SHOWN_BYTES: Final = 60


def read_edge_list(path: Path) -> pa.Table:
    """Read all edges of a file, in order, as non-null int64 columns.

    Raises:
        EventsError: The file cannot be read or has no edges, or a line does not have as many
            integers as the first edge. The message contains the number and the text of the line.

    Complexity:
        O(bytes) time; the decompressed file and its table are in memory together.
    """
    data = _without_comments(_read(path))
    schema = edge_list_schema(path)
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            read_options=pyarrow.csv.ReadOptions(column_names=schema.names),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=schema, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        arrow_error = EventsError(f"{path} is not an edge list: {str(error).splitlines()[0]}")
        raise _first_bad_line(path, len(schema)) or arrow_error from None
    return table.cast(schema)  # to fields without NULL


def edge_list_schema(path: Path) -> pa.Schema:
    """Return the columns of a file, according to its first edge; later lines are not read.

    Raises:
        EventsError: The file cannot be read, has no edges, or its first line is not an edge.
    """
    try:
        with _open(path) as file:
            for number, line in _edges(file):
                values = line.split()
                if not 2 <= len(values) <= len(COLUMNS):
                    raise _not_an_edge(path, number, line, "two or three integers")
                fields = [pa.field(name, pa.int64(), False) for name in COLUMNS[: len(values)]]
                return pa.schema(fields)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    raise EventsError(f"{path} has no edges: each line has two or three integers, or begins with #")


def _read(path: Path) -> bytes:
    try:
        with _open(path) as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _open(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _without_comments(data: bytes) -> bytes:
    """Remove comments, and separate the integers by one tab.

    >>> _without_comments(b"# a graph\\n1 2\\r\\n 3 \\t4 \\n#5 6\\n")
    b'1\\t2\\n3\\t4\\n'
    """
    if b"#" in data:
        data = _COMMENT.sub(b"", data)
    if b" " in data or b"\t\t" in data or data[:1] == b"\t":
        data = _BLANKS.sub(b"\t", data)
    return _LINE_ENDS.sub(b"", data)


def _edges(file: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is neither empty nor a comment."""
    for number, line in enumerate(file, 1):
        line = line.strip()
        if line and not line.startswith(b"#"):
            yield number, line


def _first_bad_line(path: Path, columns: int) -> EventsError | None:
    """Return the error of the first line that does not consist of this many 64-bit integers."""
    with _open(path) as file:
        for number, line in _edges(file):
            values = line.split()
            if len(values) != columns or not all(map(_is_int64, values)):
                return _not_an_edge(path, number, line, f"{columns} integers of 64 bits")
    return None


def _is_int64(value: bytes) -> bool:
    return _INTEGER.fullmatch(value) is not None and -_MAX_INT64 - 1 <= int(value) <= _MAX_INT64


def _not_an_edge(path: Path, number: int, line: bytes, expected: str) -> EventsError:
    excerpt = line[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")
    return EventsError(
        f"{path}, line {number:,}: {excerpt!r} is not an edge: write {expected} between tabs or "
        "blanks, or begin the line with # if it is a comment"
    )


def _unreadable(path: Path, error: Exception) -> EventsError:
    return EventsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
