"""ConsoleTarget: deltas as readable text, such as those of a view named ``waiting``::

    waiting, micro-batch 7: 2 rows (delta)
     weight  nr  items  worth
         +1   1      1  250.0
         -1   1      2  280.5

The number of rows and the length of values are limited, so a large delta costs no more than a small
one. Each process shows a micro-batch once. After a restart, the target does not know the contents
of the terminal, so it shows the last micro-batch again.
"""

from __future__ import annotations

import sys
from typing import TextIO

import pyarrow as pa
from pyarrow import types

from circuits.schema import WEIGHT
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.functions.casting.interval_texts import cast_intervals
from circuits.types.functions.casting.text_formatting import format_unrepresentable
from streaming.targets.target import ViewDelta

__all__ = ["ConsoleTarget", "format_delta"]


class ConsoleTarget:
    """Writes deltas to a stream.

    Args:
        stream: The stream; None for ``sys.stdout`` at the time of each write.
        rows: The maximum number of rows of a delta that are shown.
        width: The maximum number of characters of a value that are shown.
        empty: True to mention deltas without rows.

    >>> target = ConsoleTarget(rows=2)
    >>> target.write(ViewDelta("n", 3, pa.table({"n": [10, 9, None], "weight": [1, -1, 2]})))
    n, micro-batch 3: 3 rows (delta)
     weight   n
         +1  10
         -1   9
     and 1 more
    """

    #: The terminal shows each slice of a new view, and a restart shows them again.
    replaces_views = True

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        rows: int = 20,
        width: int = 40,
        empty: bool = False,
    ) -> None:
        self.stream = stream
        self.rows = rows
        self.width = width
        self.empty = empty
        self._last: dict[tuple[str, str], int] = {}

    def write(self, delta: ViewDelta) -> None:
        """Show the micro-batch, unless it has been shown already."""
        key = (delta.state_id, delta.view)
        if self._last.get(key, -1) >= delta.batch_id:
            return
        if delta.table.num_rows or self.empty:
            stream = sys.stdout if self.stream is None else self.stream
            stream.write(format_delta(delta, rows=self.rows, width=self.width))
            stream.flush()
        self._last[key] = delta.batch_id


def format_delta(delta: ViewDelta, *, rows: int = 20, width: int = 40) -> str:
    """Format a delta as aligned lines: numbers to the right, other values to the left."""
    count = delta.table.num_rows
    lines = [
        f"{delta.view}, micro-batch {delta.batch_id}: {count} row{'s' * (count != 1)} "
        f"({delta.mode})"
    ]
    first_rows = delta.table.slice(0, rows)
    names = [WEIGHT, *(name for name in first_rows.column_names if name != WEIGHT)]
    columns = [_align_column(name, first_rows.column(name), width) for name in names]
    if first_rows.num_rows:
        lines += [" " + "  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    if count > first_rows.num_rows:
        lines.append(f" and {count - first_rows.num_rows} more")
    return "\n".join(lines) + "\n"


def _align_column(name: str, column: pa.ChunkedArray, width: int) -> list[str]:
    cells = [
        _truncate(name, width),
        *(_truncate(text, width) for text in _format_values(name, column)),
    ]
    widest = max(map(len, cells))
    type_ = column.type
    is_right = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
    return [cell.rjust(widest) if is_right else cell.ljust(widest) for cell in cells]


def _format_values(name: str, column: pa.ChunkedArray) -> list[str]:
    if name == WEIGHT:
        return [f"{weight:+d}" for weight in column.to_pylist()]
    if types.is_temporal(column.type) and not types.is_duration(column.type):
        # Python has fewer years and no nanoseconds.
        chunks = [cast_intervals(chunk, pa.string()) for chunk in column.chunks]
        column = pa.chunked_array(chunks, pa.string())
    column = format_unrepresentable(pa.table([column], [name])).column(0)
    chunks = [expand_encoding(chunk) for chunk in column.chunks]
    if types.is_duration(column.type):
        chunks = [chunk.cast(pa.int64()) for chunk in chunks]
    values = [value for chunk in chunks for value in chunk.to_pylist()]
    return ["NULL" if value is None else str(value) for value in values]


def _truncate(text: str, width: int) -> str:
    """Return the text in one line, cut to a width."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: width + 1])
    return text if len(text) <= width else text[: width - 1] + "…"
