"""Row texts: format rows as short texts for the page.

A value becomes a text of at most ``MAX_CELL_CHARS`` characters, and NULL becomes None. Only the
requested rows are read, so a large delta costs no more than a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from circuits.schema import WEIGHT
from circuits.types.arrow_types import NUMBERS, family_of
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.functions.casting.interval_texts import cast_intervals
from circuits.types.functions.casting.text_formatting import format_unrepresentable

__all__ = [
    "MAX_CELL_CHARS",
    "Int64Array",
    "Row",
    "columns_of",
    "is_number",
    "keys_of",
    "make_takeable",
    "row_texts",
    "rows_of",
    "weights_of",
]

MAX_CELL_CHARS: Final = 60

Int64Array: TypeAlias = npt.NDArray[np.int64]
Row: TypeAlias = tuple[str | None, ...]


def columns_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the name of each column except ``weight``, and whether it holds numbers.

    >>> columns_of(pa.schema([("n", pa.int64()), ("weight", pa.int64())]))
    [{'name': 'n', 'number': True}]
    """
    return [
        {"name": field.name, "number": is_number(field.type)}
        for field in schema
        if field.name != WEIGHT
    ]


def weights_of(table: pa.Table) -> Int64Array:
    """Return the weights of the rows of a table."""
    weights: Int64Array = table.column(WEIGHT).to_numpy()
    return weights


def rows_of(table: pa.Table, max_rows: int) -> list[tuple[int, Row]]:
    """Return the weight and the values of each of the first ``max_rows`` rows.

    >>> rows_of(pa.table({"a": [1, None], "weight": [1, -1]}), 5)
    [(1, ('1',)), (-1, (None,))]
    """
    table = table.slice(0, max_rows)
    weights = weights_of(table).tolist()
    columns = [table.column(name) for name in table.column_names if name != WEIGHT]
    if not columns:
        return [(weight, ()) for weight in weights]
    return list(zip(weights, row_texts(columns), strict=True))


def keys_of(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[tuple[str, ...]]:
    """Return the rows of some columns as untruncated texts, which are equal if the values are.

    >>> keys_of([pa.array([1, None]), pa.array(["a", "b"])])
    [('1', "'a'"), ('None', "'b'")]
    """
    return list(zip(*(map(repr, _values(column)) for column in columns), strict=True))


def row_texts(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Row]:
    """Return the rows of some columns as short texts; NULL is None."""
    return list(
        zip(*([_text(value) for value in _values(column)] for column in columns), strict=True)
    )


def is_number(type: pa.DataType) -> bool:
    """Return whether the type is an integer, float or decimal type."""
    return family_of(type) in NUMBERS


def make_takeable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column in a layout that Arrow's ``take`` supports.

    Arrow cannot take rows of type ``string_view`` or ``binary_view``, also if they are the values
    of a dictionary. They become ``large_string`` or ``large_binary``, and dictionaries are decoded.
    """
    if column.type in (pa.string_view(), pa.binary_view()) or types.is_dictionary(column.type):
        return pa.chunked_array([expand_encoding(chunk) for chunk in column.chunks])
    return column


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if types.is_temporal(column.type):
        # Python has fewer years and no nanoseconds.
        is_duration = types.is_duration(column.type)
        type_ = pa.int64() if is_duration else pa.string()
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        column = pa.chunked_array([cast_intervals(chunk, type_) for chunk in chunks], type_)
    column = format_unrepresentable(pa.table([column], ["column"])).column(0)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [value for chunk in chunks for value in expand_encoding(chunk).to_pylist()]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: MAX_CELL_CHARS + 1])
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"
