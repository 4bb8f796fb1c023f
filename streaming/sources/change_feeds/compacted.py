"""Compacted topics: rows by key as JSON; a NULL value is a tombstone that deletes the key.

::

    key {"id": 7}     value {"id": 7, "name": "ann"}      inserts or replaces the row of key 7
    key {"id": 7}     value NULL                          deletes the row of key 7

The key columns are read from the value, else from the key, so a value need not repeat them. Only
inputs with keys can have this feed: the stream does not contain before images, so the circuit keeps
the last row of each key. The order of the rows of a key is the offset of Kafka, or a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.errors import FeedError
from streaming.sources.change_feeds.events import (
    NO_COLUMN_TYPES,
    UNREADABLE,
    ColumnNames,
    deleted_image,
    inserted_image,
    parse_object,
)
from streaming.sources.change_feeds.feed import (
    NO_KEYS,
    Keys,
    check_columns,
    check_inputs,
    compute_once,
    sequence_expression,
)
from streaming.sources.change_feeds.row_images import build_envelope
from streaming.sources.change_feeds.sql_expressions import literal, quote_name
from streaming.sources.change_feeds.text_values import Encoding

__all__ = ["CompactedFeed"]


@dataclass(frozen=True)
class CompactedFeed:
    """A topic that holds the last row of each key.

    Args:
        relation: The input; not needed if there is one input.
        key: The column of the key, JSON as string or binary.
        value: The column of the row, JSON as string or binary; NULL deletes the key.
        rename: As for `DebeziumFeed`.
        match_case: As for `DebeziumFeed`.
        sequence: A column that orders the rows of a key.
        encoding: The encodings that the JSON does not define.
    """

    relation: str | None = None
    key: str = "key"
    value: str = "value"
    rename: Mapping[str, str] = field(default_factory=dict)
    match_case: bool = True
    sequence: str | None = None
    encoding: Encoding = field(default=Encoding())

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the changes of a topic, see `ChangeFeed.envelope`."""
        check_columns(self, df.columns, self.key, self.value, self.sequence)
        check_inputs(self, inputs, self.relation)
        relation = self.relation or (next(iter(inputs)) if len(inputs) == 1 else None)
        if relation is None or not keys.get(relation):
            raise FeedError(
                f"{self} is for one input with keys, of {', '.join(inputs)}: name it, and declare "
                "input_options={...: InputOptions(keys=...)}"
            )
        key, value = (f"CAST({quote_name(name)} AS STRING)" for name in (self.key, self.value))
        order = sequence_expression(self, df, self.sequence)
        texts = {
            "key_text": f"make_valid_utf8({key})",
            "row_text": f"make_valid_utf8({value})",
            "is_utf8": f"coalesce(is_valid_utf8({key}), true) "
            f"AND coalesce(is_valid_utf8({value}), true)",
            "sequence": order,
        }
        events = compute_once(df, texts)
        parsed = {
            name: f"CASE WHEN is_utf8 THEN {parse_object(text)} END"
            for name, text in (("key", "key_text"), ("new_row", "row_text"))
        }
        events = compute_once(events, parsed, keep=("key_text", "row_text", "sequence"))
        error = (
            "CASE WHEN (key IS NULL AND key_text IS NOT NULL) "
            "OR (new_row IS NULL AND row_text IS NOT NULL) "
            f"THEN {literal(f'of the key or the value, {UNREADABLE}')} "
            "WHEN key IS NULL AND new_row IS NULL THEN 'neither key nor value' END"
        )
        # Key columns that the row lacks are read from the key.
        deleted, inserted = deleted_image("key"), inserted_image("new_row", base="key")
        events = events.selectExpr(
            "concat_ws(' ', key_text, row_text) AS raw",
            "sequence",
            f"{literal(relation)} AS relation",
            f"{NO_COLUMN_TYPES} AS column_types",
            "false AS skip",
            f"{error} AS error",
            f"if(row_text IS NULL, array({deleted}), array({inserted})) AS images",
        )
        names = ColumnNames(self.rename, self.match_case, inputs)
        return build_envelope(events, inputs, keys=keys, names=names, encoding=self.encoding)
