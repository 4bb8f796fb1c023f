"""Flat feeds: rows that have the columns of one relation, or of several relations.

=========  ===============================================================================
append     every row is inserted
weighted   a column holds the weight of the row; a negative weight deletes
delta      the change data feed of a Delta table, or of ``spark.readStream.changes``
upsert     a row replaces the previous row of its key; for inputs with keys
=========  ===============================================================================

Each feed has one relation, or a column that names the relation of each row. A row has the columns
of its relation, by name. `streaming.sources.envelope` checks the values and raises an error for a
missing column when the micro-batch is read.

All rows of one commit of a Delta table have the same version. Among them deleted rows are ordered
before inserted rows, so that after an update an input with keys has the new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.errors import FeedError
from streaming.sources.change_feeds.feed import (
    NO_KEYS,
    Keys,
    check_columns,
    check_inputs,
    sequence_expression,
    struct_column,
)
from streaming.sources.change_feeds.sql_expressions import quote_name
from streaming.sources.change_feeds.weights import excerpt_column, parse_weight

__all__ = ["AppendFeed", "DeltaFeed", "UpsertFeed", "WeightedFeed", "flat_envelope"]


@dataclass(frozen=True)
class AppendFeed:
    """Every row is inserted.

    Args:
        relation: The input of all rows; not needed if there is one input.
        column: The column that names the input of each row; ignored if ``relation`` is given.
    """

    relation: str | None = None
    column: str = "relation"

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the rows as changes, see `ChangeFeed.envelope`."""
        order = F.expr(sequence_expression(self, df, None))
        return flat_envelope(self, df, inputs, F.lit(1), order)


@dataclass(frozen=True)
class WeightedFeed:
    """Rows with a weight; a negative weight deletes.

    Args:
        weight: The column of the weights.
        relation: As for `AppendFeed`.
        column: As for `AppendFeed`.
        sequence: A column that orders the changes of a key.
    """

    weight: str = "weight"
    relation: str | None = None
    column: str = "relation"
    sequence: str | None = None

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the rows as changes, see `ChangeFeed.envelope`."""
        check_columns(self, df, self.weight, self.sequence)
        weight, error = parse_weight(_column(self.weight))
        order = F.expr(sequence_expression(self, df, self.sequence))
        return flat_envelope(self, df, inputs, weight, order, error=error)


@dataclass(frozen=True)
class DeltaFeed:
    """The change data feed of a Delta table.

    Args:
        relation: As for `AppendFeed`.
        column: As for `AppendFeed`.
        change: The column of the kind of change.
        version: The column of the commit.
    """

    relation: str | None = None
    column: str = "relation"
    change: str = "_change_type"
    version: str = "_commit_version"

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the rows as changes, see `ChangeFeed.envelope`."""
        check_columns(self, df, self.change)
        change = _column(self.change)
        inserted = change.isin("insert", "update_postimage")
        deleted = change.isin("delete", "update_preimage")
        error = F.when(
            ~F.coalesce(inserted | deleted, F.lit(False)),
            F.concat(
                F.lit(f"{self.change} is "),
                F.coalesce(excerpt_column(change), F.lit("NULL")),
                F.lit(", not insert, update_preimage, update_postimage or delete"),
            ),
        )
        order: Column = F.lit(None).cast("long")
        if self.version in df.columns:
            order = _column(self.version).cast("long") * 2 + F.when(inserted, 1).otherwise(0)
        weight = F.when(deleted, -1).otherwise(1)
        return flat_envelope(self, df, inputs, weight, order, error=error)


@dataclass(frozen=True)
class UpsertFeed:
    """A row replaces the previous row of its key.

    Args:
        relation: As for `AppendFeed`.
        column: As for `AppendFeed`.
        deleted: A column that is true if the key is deleted; NULL is false.
        weight: A column that is negative if the key is deleted, and 0 if the row has no effect.
        sequence: A column that orders the rows of a key; the default is the offset of Kafka.
    """

    relation: str | None = None
    column: str = "relation"
    deleted: str | None = None
    weight: str | None = None
    sequence: str | None = None

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the rows as changes, see `ChangeFeed.envelope`."""
        check_columns(self, df, self.deleted, self.weight, self.sequence)
        weight, errors = F.lit(1).cast("long"), [F.lit(None).cast("string")]
        if self.weight is not None:
            number, error = parse_weight(_column(self.weight))
            weight = F.signum(number).cast("long")
            errors.append(error)
        if self.deleted is not None:
            flag = _column(self.deleted)
            is_deleted = flag.try_cast("boolean")
            weight = F.when(F.coalesce(is_deleted, F.lit(False)), -1).otherwise(weight)
            errors.append(
                F.when(
                    flag.isNotNull() & is_deleted.isNull(),
                    F.concat(
                        F.lit(f"{self.deleted} is "),
                        excerpt_column(flag),
                        F.lit(", neither true nor false"),
                    ),
                )
            )
        order = F.expr(sequence_expression(self, df, self.sequence))
        relations = [self.relation] if self.relation is not None else list(inputs)
        if not any(keys.get(name) for name in relations):
            raise FeedError(
                f"{self} is for inputs with keys, and {', '.join(relations)} has none: declare "
                "input_options={...: InputOptions(keys=...)}, or use the feed 'weighted'"
            )
        return flat_envelope(self, df, inputs, weight, order, error=F.coalesce(*errors))


def flat_envelope(
    feed: AppendFeed | WeightedFeed | DeltaFeed | UpsertFeed,
    df: DataFrame,
    inputs: Mapping[str, pa.Schema],
    weight: Column,
    sequence: Column,
    *,
    error: Column | None = None,
) -> DataFrame:
    """Return the envelope of rows that have the columns of their relations."""
    check_inputs(feed, inputs, feed.relation)
    relation = feed.relation
    if relation is None and feed.column not in df.columns:
        if len(inputs) != 1:
            raise FeedError(
                f"the rows do not name their relation, one of {', '.join(inputs)}: add a column "
                f"{feed.column!r}, or name the relation in the feed"
            )
        relation = next(iter(inputs))
    relation_name = F.lit(relation) if relation is not None else _column(feed.column).cast("string")
    schemas = {relation: inputs[relation]} if relation is not None else inputs
    structs = []
    for name, schema in schemas.items():
        columns = [_column(field.name) for field in schema if field.name in df.columns]
        if not columns:
            raise FeedError(
                f"the stream lacks all columns of {name!r}, which are {', '.join(schema.names)}; "
                f"it has {df.columns}: select them"
            )
        row = F.struct(*columns)
        struct = row if relation is not None else F.when(relation_name == name, row)
        structs.append(struct.alias(struct_column(name)))
    reason = F.lit(None).cast("string") if error is None else error
    if relation is None:
        is_known = F.coalesce(relation_name.isin(*inputs), F.lit(False))
        name_text = F.coalesce(excerpt_column(relation_name), F.lit("NULL"))
        unknown = F.concat(
            F.lit("unknown relation "), name_text, F.lit(f"; inputs are {', '.join(inputs)}")
        )
        reason = F.coalesce(F.when(~is_known, unknown), reason)
    row_text = F.to_json(F.struct(*map(_column, df.columns)))
    return df.select(
        relation_name.alias("relation"),
        weight.cast("long").alias("weight"),
        sequence.cast("long").alias("sequence"),
        reason.alias("error"),
        F.when(reason.isNotNull(), row_text).alias("raw"),
        *structs,
    )


def _column(name: str) -> Column:
    """Return the column of exactly this name, which may contain dots."""
    return F.col(quote_name(name))
