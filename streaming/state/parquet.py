"""Parquet: what a view publishes, as the bytes of files of a bounded number of rows.

Not compressed and without dictionaries: the files live for a few micro-batches, and encoding
well takes longer than writing more bytes. An empty table has one file without rows, so that its
columns are known. Letters, which no manifest names, have checksums in their pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["parquet_parts"]

PART_ROWS: Final = 1 << 20


def parquet_parts(table: pa.Table, *, whole: bool = False) -> Iterator[pa.Buffer]:
    """The files of a table, one after another.

    Args:
        table: What is to be written.
        whole: Whether it is to be one file, however many rows there are.

    >>> [file] = parquet_parts(pa.table({"n": [1, 2]}))
    >>> pq.read_table(pa.BufferReader(file)).to_pylist()
    [{'n': 1}, {'n': 2}]
    """
    step = max(table.num_rows, 1) if whole else PART_ROWS
    for start in range(0, max(table.num_rows, 1), step):
        sink = pa.BufferOutputStream()
        pq.write_table(
            table.slice(start, step),
            sink,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=whole,
            store_schema=True,
        )
        yield sink.getvalue()
