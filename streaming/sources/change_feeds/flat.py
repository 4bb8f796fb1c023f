"""Flat feeds: rows that have the columns of one relation, or of several relations.

=========  ===============================================================================
append     every row is inserted
weighted   a column holds the weight of the row; a negative weight deletes
delta      the change data feed of a Delta table, or of ``spark.readStream.changes``
upsert     a row replaces the previous row of its key; for inputs with keys
=========  ===============================================================================

A feed reads the weight, the order and the errors of rows in Arrow (`FlatDecoder`): a sink after it
has collected the rows, and ``mapInArrow`` in Spark's tasks.

Each feed has one relation, or a column that names the relation of each row. A row has the columns
of its relation, by name. `streaming.sources.envelope` checks the values and raises an error for a
missing column when the micro-batch is read.

All rows of one commit of a Delta table have the same version. Among them deleted rows are ordered
before inserted rows, so that after an update an input with keys has the new row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from circuits.excerpt import shorten
from circuits.types.arrow_types import empty_table
from streaming.errors import FeedError
from streaming.sources.change_feeds.feed import (
    ERROR,
    NO_KEYS,
    RAW,
    RELATION,
    SEQUENCE,
    WEIGHT,
    Keys,
    check_columns,
    check_inputs,
    struct_column,
)
from streaming.sources.change_feeds.stream_columns import read_sequence, sequence_column
from streaming.sources.change_feeds.weights import excerpts, invalid_weight_reasons, parse_weights
from streaming.sources.dead_letters import rows_as_json

__all__ = ["AppendFeed", "DeltaFeed", "FlatDecoder", "FlatFeed", "UpsertFeed", "WeightedFeed"]

TRUE_TEXTS = ("t", "true", "y", "yes", "1")
FALSE_TEXTS = ("f", "false", "n", "no", "0")


@dataclass(frozen=True)
class RowChanges:
    """The changes of rows.

    Attributes:
        weights: 1 for an inserted row, a negative number for a deleted one.
        sequences: The order of the rows of a key, or NULL.
        errors: Why a row is invalid, NULL if it is valid; may be several columns.
    """

    weights: pa.ChunkedArray
    sequences: pa.ChunkedArray
    errors: Sequence[pa.ChunkedArray] = ()


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
        return flat_envelope(self, df, inputs, keys)

    def check(self, columns: Collection[str], inputs: Mapping[str, pa.Schema], keys: Keys) -> None:
        """Check the columns of a stream, see `FlatDecoder`."""

    def read_changes(self, table: pa.Table) -> RowChanges:
        """Return the changes of rows, see `RowChanges`."""
        return RowChanges(_repeat(1, table), _sequences(self, table, None))


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
        return flat_envelope(self, df, inputs, keys)

    def check(self, columns: Collection[str], inputs: Mapping[str, pa.Schema], keys: Keys) -> None:
        """Check the columns of a stream, see `FlatDecoder`."""
        check_columns(self, columns, self.weight, self.sequence)

    def read_changes(self, table: pa.Table) -> RowChanges:
        """Return the changes of rows, see `RowChanges`."""
        weights, errors = _read_weights(self, table.column(self.weight), self.weight)
        return RowChanges(weights, _sequences(self, table, self.sequence), errors)


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
        return flat_envelope(self, df, inputs, keys)

    def check(self, columns: Collection[str], inputs: Mapping[str, pa.Schema], keys: Keys) -> None:
        """Check the columns of a stream, see `FlatDecoder`."""
        check_columns(self, columns, self.change)

    def read_changes(self, table: pa.Table) -> RowChanges:
        """Return the changes of rows, see `RowChanges`."""
        change = table.column(self.change).cast(pa.string())
        inserted = pc.is_in(change, pa.array(["insert", "update_postimage"]))
        deleted = pc.is_in(change, pa.array(["delete", "update_preimage"]))
        invalid = pc.invert(pc.or_(inserted, deleted))
        errors: list[pa.ChunkedArray] = []
        if pc.any(invalid).as_py():
            end = ", not insert, update_preimage, update_postimage or delete"
            reasons = pc.binary_join_element_wise(f"{self.change} is ", excerpts(change), end, "")
            errors.append(_only(reasons, invalid))
        order = _repeat(None, table, pa.int64())
        if self.version in table.column_names:
            order = self._order(table.column(self.version), inserted)
        weights = pc.if_else(pc.fill_null(deleted, False), -1, 1).cast(pa.int64())
        return RowChanges(weights, order, errors)

    def _order(self, versions: pa.ChunkedArray, inserted: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the order of rows: the version, and in it deleted rows before inserted ones."""
        try:
            doubled = pc.multiply_checked(versions.cast(pa.int64()), 2)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FeedError(
                f"{self} reads versions from the column {self.version!r} of type {versions.type}, "
                f"and one is not an integer of 63 bits: {shorten(str(error))}. Name another column"
            ) from error
        return pc.add(doubled, inserted.cast(pa.int64()))


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
        return flat_envelope(self, df, inputs, keys)

    def check(self, columns: Collection[str], inputs: Mapping[str, pa.Schema], keys: Keys) -> None:
        """Check the columns of a stream, see `FlatDecoder`."""
        check_columns(self, columns, self.deleted, self.weight, self.sequence)
        relations = [self.relation] if self.relation is not None else list(inputs)
        if not any(keys.get(name) for name in relations):
            raise FeedError(
                f"{self} is for inputs with keys, and {', '.join(relations)} has none: declare "
                "input_options={...: InputOptions(keys=...)}, or use the feed 'weighted'"
            )

    def read_changes(self, table: pa.Table) -> RowChanges:
        """Return the changes of rows, see `RowChanges`."""
        weights = _repeat(1, table)
        errors: list[pa.ChunkedArray] = []
        if self.weight is not None:
            weights, errors = _read_weights(self, table.column(self.weight), self.weight)
            weights = pc.sign(weights).cast(pa.int64())
        if self.deleted is not None:
            flags = table.column(self.deleted)
            is_deleted = _read_booleans(self, flags, self.deleted)
            weights = pc.if_else(pc.fill_null(is_deleted, False), -1, weights)
            invalid = pc.and_(pc.is_valid(flags), pc.is_null(is_deleted))
            if pc.any(invalid).as_py():
                reasons = pc.binary_join_element_wise(
                    f"{self.deleted} is ", excerpts(flags), ", neither true nor false", ""
                )
                errors = [*errors, _only(reasons, invalid)]
        return RowChanges(weights, _sequences(self, table, self.sequence), errors)


#: A feed whose rows have the columns of their relations.
FlatFeed = AppendFeed | WeightedFeed | DeltaFeed | UpsertFeed


class FlatDecoder:
    """Decodes the rows of a stream with a flat feed to an envelope.

    Args:
        feed: The feed.
        columns: The columns of the stream.
        inputs: The schema of each input.
        keys: The key columns of inputs with keys.

    Raises:
        FeedError: The feed does not fit the columns or the inputs.
    """

    def __init__(
        self,
        feed: FlatFeed,
        columns: Sequence[str],
        inputs: Mapping[str, pa.Schema],
        keys: Keys = NO_KEYS,
    ) -> None:
        feed.check(columns, inputs, keys)
        check_inputs(feed, inputs, feed.relation)
        if len({*columns}) < len(columns):
            raise FeedError(f"a column name occurs twice in {[*columns]}: rename one of them")
        relation = feed.relation
        if relation is None and feed.column not in columns:
            if len(inputs) != 1:
                raise FeedError(
                    f"the rows do not name their relation, one of {', '.join(inputs)}: add a "
                    f"column {feed.column!r}, or name the relation in the feed"
                )
            relation = next(iter(inputs))
        self.feed = feed
        self._relation = relation
        self._inputs = list(inputs)
        self.row_columns: dict[str, list[str]] = {}
        for name in self._inputs if relation is None else [relation]:
            names = [column for column in inputs[name].names if column in columns]
            if not names:
                raise FeedError(
                    f"the stream lacks all columns of {name!r}, which are "
                    f"{', '.join(inputs[name].names)}; it has {[*columns]}: select them"
                )
            self.row_columns[name] = names

    def decode(self, table: pa.Table) -> pa.Table:
        """Return the envelope of rows.

        Raises:
            FeedError: A column that the feed reads has a wrong type.
        """
        changes = self.feed.read_changes(table)
        if self._relation is not None:
            names = _repeat(self._relation, table)
        else:
            names = table.column(self.feed.column).cast(pa.string())
        errors = [*self._unknown_relations(names), *changes.errors]
        reasons = pc.coalesce(*errors) if errors else _repeat(None, table, pa.string())
        columns: dict[str, Any] = {
            RELATION: names,
            WEIGHT: changes.weights,
            SEQUENCE: changes.sequences,
            ERROR: reasons,
            RAW: _texts_of_rows(table, reasons),
        }
        for name, row_columns in self.row_columns.items():
            rows = table.select(row_columns)
            structs = pa.chunked_array(
                [pa.RecordBatch.to_struct_array(batch) for batch in rows.to_batches()],
                pa.struct(rows.schema),
            )
            if self._relation is None:
                structs = _only(structs, pc.equal(names, name))
            columns[struct_column(name)] = structs
        return pa.table(columns)

    def _unknown_relations(self, names: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
        """Yield the errors of rows whose relation is not an input, if there are any."""
        if self._relation is not None:
            return
        unknown = pc.invert(pc.is_in(names, pa.array(self._inputs)))
        if pc.any(unknown).as_py():
            end = f"; inputs are {', '.join(self._inputs)}"
            reasons = pc.binary_join_element_wise("unknown relation ", excerpts(names), end, "")
            yield _only(reasons, unknown)


def flat_envelope(
    feed: FlatFeed, df: DataFrame, inputs: Mapping[str, pa.Schema], keys: Keys
) -> DataFrame:
    """Return the envelope of rows that have the columns of their relations."""
    decoder = FlatDecoder(feed, df.columns, inputs, keys)
    # This checks the types of the columns.
    feed.read_changes(empty_table(to_arrow_schema(df.schema, timezone="UTC")))
    fields = [
        StructField(RELATION, StringType()),
        StructField(WEIGHT, LongType()),
        StructField(SEQUENCE, LongType()),
        StructField(ERROR, StringType()),
        StructField(RAW, StringType()),
    ]
    for name, columns in decoder.row_columns.items():
        row = StructType([df.schema[column] for column in columns])
        fields.append(StructField(struct_column(name), row))
    return df.mapInArrow(decode_batches(decoder.decode), StructType(fields))


def decode_batches(
    decode: Callable[[pa.Table], pa.Table],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of ``mapInArrow`` that decodes each batch."""

    def decode_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from decode(pa.Table.from_batches([batch])).to_batches()

    return decode_all


def _repeat(value: Any, table: pa.Table, type: pa.DataType | None = None) -> pa.ChunkedArray:
    """Return a column of one value."""
    return pa.chunked_array([pa.repeat(pa.scalar(value, type), table.num_rows)])


def _only(values: pa.ChunkedArray, mask: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values, NULL where a mask is not true."""
    return pc.if_else(pc.fill_null(mask, False), values, pa.scalar(None, values.type))


def _sequences(feed: FlatFeed, table: pa.Table, column: str | None) -> pa.ChunkedArray:
    return read_sequence(feed, table, sequence_column(column, table.column_names))


def _read_weights(
    feed: FlatFeed, column: pa.ChunkedArray, name: str
) -> tuple[pa.ChunkedArray, list[pa.ChunkedArray]]:
    """Return weights, and the reasons of the invalid ones."""
    weights = parse_weights(column.cast(pa.int8()) if types.is_boolean(column.type) else column)
    if weights is None:
        raise FeedError(
            f"{feed} reads weights from the column {name!r} of type {column.type}: cast it to an "
            "integer"
        )
    if not weights.null_count:
        return weights, []
    return weights, [_only(invalid_weight_reasons(column), pc.is_null(weights))]


def _read_booleans(feed: FlatFeed, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column as booleans, NULL for NaN, and for a text that is neither true nor false."""
    type = column.type
    if types.is_boolean(type) or types.is_null(type):
        return column.cast(pa.bool_())
    if types.is_integer(type) or types.is_floating(type) or types.is_decimal(type):
        zero = Decimal(0) if types.is_decimal(type) else 0
        is_true = pc.not_equal(column, pa.scalar(zero, type))
        return _only(is_true, pc.invert(pc.is_nan(column))) if types.is_floating(type) else is_true
    if types.is_string(type) or types.is_large_string(type):
        words = pc.ascii_lower(pc.ascii_trim_whitespace(column))
        is_true = pc.is_in(words, pa.array(TRUE_TEXTS, type))
        return _only(is_true, pc.or_(is_true, pc.is_in(words, pa.array(FALSE_TEXTS, type))))
    raise FeedError(
        f"{feed} reads the column {name!r} of type {type}: cast it to a boolean, or name a column "
        "of booleans"
    )


def _texts_of_rows(table: pa.Table, reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the invalid rows as JSON, NULL for the valid ones."""
    if reasons.null_count == table.num_rows:
        return _repeat(None, table, pa.string())
    is_invalid = np.asarray(reasons.is_valid().to_numpy(), np.bool_)
    texts = rows_as_json(table.filter(pa.array(is_invalid))).cast(pa.string())
    return texts.take(pa.array(np.cumsum(is_invalid) - 1, mask=~is_invalid))
