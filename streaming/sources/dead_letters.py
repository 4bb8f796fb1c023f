"""Dead letters: the invalid rows of a stream, each with the reason.

A row is invalid (a *bad row*) if it cannot be decoded, if an input rejects it, or if it makes the
step of the circuit fail. A table of dead letters has five columns::

    relation   string; NULL if the row names no relation
    row        string: the row as JSON, or the original event
    weight     int64
    reason     string
    batch_id   int64; NULL until `DeadLetters.with_batch_id`

A policy decides what happens. ``"fail"`` raises `RowError` with the first bad row, and the
micro-batch has no effect. ``"dead_letter"`` stores and counts the bad rows, and processes the
others.

Cost: rows are converted to JSON column by column, in Arrow (`rows_as_json`). So a micro-batch with
only bad rows costs about as much as printing it. Python converts only the distinct binary values,
and the distinct texts with characters that JSON escapes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.excerpt import excerpt, shorten
from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested.json_columns import (
    JsonStyle,
    json_column,
    map_values,
    quote_texts,
)
from circuits.types.functions.type_rules import is_binary
from streaming.errors import RowError, StreamingError

__all__ = [
    "DEAD_LETTER_SCHEMA",
    "POLICIES",
    "BadRowPolicy",
    "DeadLetters",
    "apply_policy",
    "check_policy",
    "rows_as_json",
]

BadRowPolicy = Literal["fail", "dead_letter"]
POLICIES: Final = ("fail", "dead_letter")

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("relation", pa.string()),
        ("row", pa.string()),
        ("weight", pa.int64()),
        ("reason", pa.string()),
        ("batch_id", pa.int64()),
    ]
)
MAX_ROW_CHARACTERS: Final = 500  # characters of a row in a message
#: Bytes of rows that are converted to JSON at once; a character takes up to six bytes in JSON.
MAX_JSON_BYTES: Final = 2**27
#: Characters of a reason in a message.
MAX_REASON_CHARACTERS: Final = 2000


@dataclass(frozen=True)
class DeadLetters:
    """Invalid rows, with the reasons.

    >>> letters = DeadLetters.from_rows("r", pa.table({"n": [1], "s": ['a "b"']}), "late", [1])
    >>> letters.table.to_pylist()[0]["row"]
    '{"n": 1, "s": "a \\\\"b\\\\""}'
    >>> len(letters + letters)
    2
    """

    table: pa.Table

    @classmethod
    def empty(cls) -> DeadLetters:
        """Return no dead letters."""
        return cls(DEAD_LETTER_SCHEMA.empty_table())

    @classmethod
    def from_rows(
        cls,
        relation: str | pa.ChunkedArray | None,
        rows: pa.Table,
        reason: str | pa.ChunkedArray,
        weights: pa.ChunkedArray | npt.NDArray[np.int64] | list[int] | None = None,
    ) -> DeadLetters:
        """Return dead letters of rows, as JSON.

        Args:
            relation: The relation of all rows, or a column with one for each row.
            rows: The rows, without weight.
            reason: The reason of all rows, or a column with one for each row.
            weights: The weight of each row; 1 if omitted.
        """
        return cls.from_texts(relation, rows_as_json(rows), reason, weights)

    @classmethod
    def from_texts(
        cls,
        relation: str | pa.ChunkedArray | None,
        texts: pa.Array | pa.ChunkedArray,
        reason: str | pa.ChunkedArray,
        weights: pa.ChunkedArray | npt.NDArray[np.int64] | list[int] | None = None,
    ) -> DeadLetters:
        """Return dead letters of texts (rows or events); other arguments as in `from_rows`."""
        size = len(texts)
        if weights is None:
            weights = np.ones(size, np.int64)
        weight_column: Any = weights
        if not isinstance(weights, pa.ChunkedArray):
            weight_column = pa.array(weights, pa.int64())
        columns = [
            _as_column(relation, size),
            texts.cast(pa.string()),
            weight_column.cast(pa.int64()),
            _as_column(reason, size),
            pa.nulls(size, pa.int64()),
        ]
        return cls(pa.table(columns, schema=DEAD_LETTER_SCHEMA))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __add__(self, other: DeadLetters) -> DeadLetters:
        return DeadLetters(pa.concat_tables([self.table, other.table]))

    def with_batch_id(self, batch_id: int) -> DeadLetters:
        """Return the dead letters with the id of their micro-batch."""
        ids = pa.array(np.full(len(self), batch_id, np.int64))
        return DeadLetters(self.table.set_column(4, DEAD_LETTER_SCHEMA.field(4), ids))


def check_policy(policy: str) -> None:
    """Check the name of a policy.

    Raises:
        StreamingError: The policy is unknown.
    """
    if policy not in POLICIES:
        raise StreamingError(f"bad_rows={policy!r}: it must be one of {', '.join(POLICIES)}")


def apply_policy(letters: DeadLetters, *, bad_rows: BadRowPolicy, batch_id: int) -> DeadLetters:
    """Return the dead letters to store, with the id of their micro-batch.

    Raises:
        RowError: There are dead letters, and the policy is to fail.
    """
    if not len(letters) or bad_rows == "dead_letter":
        return letters.with_batch_id(batch_id)
    first = letters.table.slice(0, 1).to_pylist()[0]
    relation = first["relation"]
    where = f"relation {excerpt(relation)}" if relation else "without a relation"
    row = shorten(first["row"] or "", MAX_ROW_CHARACTERS)
    reason = shorten(first["reason"] or "", MAX_REASON_CHARACTERS)
    count = len(letters) - 1
    others = f", and {count} more rows are invalid" if count else ""
    raise RowError(
        f"micro-batch {batch_id}: row {row} with weight {first['weight']}, {where}: "
        f"{reason}{others}; nothing of the micro-batch was applied: correct the source, "
        'or use bad_rows="dead_letter" to store such rows with the reason and continue'
    )


def rows_as_json(rows: pa.Table) -> pa.ChunkedArray:
    """Return each row as the text of a JSON object.

    >>> rows_as_json(pa.table({"a": [1.5, None], "b": ["x\\ty", "z"]})).to_pylist()
    ['{"a": 1.5, "b": "x\\\\ty"}', '{"a": null, "b": "z"}']
    """
    if rows.nbytes > MAX_JSON_BYTES and rows.num_rows > 1:  # one array holds up to 2 GiB of text
        half = rows.num_rows // 2
        parts = [rows_as_json(part) for part in (rows.slice(0, half), rows.slice(half))]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
    if not rows.num_columns:
        return pa.chunked_array([pa.array(["{}"] * rows.num_rows, pa.string())])
    members = []
    for i, name in enumerate(rows.column_names):
        separator = ", " if i else "{"
        key = json.dumps(name, ensure_ascii=False)
        members += [f"{separator}{key}: ", _values_as_json(rows.column(i))]
    joined = pc.binary_join_element_wise(*members, "}", "")
    return joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


def _as_column(value: str | pa.ChunkedArray | None, size: int) -> pa.Array | pa.ChunkedArray:
    """Return a column unchanged; repeat a single value."""
    if isinstance(value, pa.ChunkedArray | pa.Array):
        return value.cast(pa.string())
    return pa.repeat(pa.scalar(value, pa.string()), size)


def _values_as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column as JSON texts, NULL as null."""
    chunks = [json_column(chunk, _STYLE) for chunk in column.chunks]
    return pc.fill_null(pa.chunked_array(chunks, pa.string()), "null")


def _write_scalars(array: pa.Array) -> pa.Array:
    """Return scalars as JSON; a date or time beyond the years of Arrow as a text that says so."""
    if types.is_decimal(array.type):
        return array.cast(pa.string())
    if types.is_floating(array.type):
        text = array.cast(pa.string())
        return pc.if_else(pc.is_finite(array), text, quote_texts(text))
    return quote_texts(_as_texts(array))


def _as_texts(array: pa.Array) -> pa.Array:
    """Return scalars as texts, bytes in base64; the keys of maps may have parts themselves."""
    if is_nested(array.type):
        return json_column(array, _STYLE)
    if is_binary(array.type):
        return map_values(array, lambda value: base64.b64encode(value).decode())
    return array.cast(pa.string())


_STYLE: Final = JsonStyle(_write_scalars, _as_texts)
