"""Change feed: decodes the rows of a stream to changes of relations, in an envelope.

A change feed is a pure function from DataFrame to DataFrame. It consists of Spark expressions or
one ``mapInArrow``, so it runs in parallel in Spark's tasks, on batches and streams. A sink decodes
rows and plain events without it (`streaming.sources.change_feeds.compiled`). Its result is the
envelope,

=================  ==========================================================================
relation           string; the input that the row belongs to
weight             long; +1 for an inserted row, -1 for a deleted row
sequence           long or NULL; the order of the events of one key, for inputs with keys
error              string or NULL; why the event cannot be decoded
raw                string or NULL; the original event, if there is an error
row_<relation>     one struct for each relation, NULL in the rows of other relations
=================  ==========================================================================

There is one struct per relation, because columns of equal name have different types in different
relations. An event changes one or more rows. If any of them is invalid, the event becomes one row
with ``error``, and none of its changes is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegralType,
    NullType,
    TimestampNTZType,
    TimestampType,
)

from circuits.schema import WEIGHT
from streaming.errors import FeedError
from streaming.sources.change_feeds.sql_expressions import quote_name, row

__all__ = [
    "ERROR",
    "NO_KEYS",
    "RAW",
    "RELATION",
    "ROW_PREFIX",
    "SEQUENCE",
    "WEIGHT",
    "ChangeFeed",
    "Keys",
    "check_columns",
    "check_inputs",
    "compute_once",
    "is_envelope",
    "sequence_expression",
    "struct_column",
]

RELATION: Final = "relation"
SEQUENCE: Final = "sequence"
ERROR: Final = "error"
RAW: Final = "raw"
ROW_PREFIX: Final = "row_"

Keys = Mapping[str, Sequence[str]]
NO_KEYS: Final[Keys] = MappingProxyType({})


class ChangeFeed(Protocol):
    """Decodes the changes in a DataFrame."""

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the changes in ``df``.

        Args:
            df: A streaming or batch DataFrame.
            inputs: The schema of each input of the circuit.
            keys: The key columns of the inputs whose rows are upserts.

        Raises:
            FeedError: The DataFrame lacks a column that the feed reads.
        """


def struct_column(relation: str) -> str:
    """Return the name of the struct column of a relation."""
    return ROW_PREFIX + relation


def is_envelope(columns: Sequence[str]) -> bool:
    """Return whether a table or DataFrame with these columns is an envelope."""
    return {RELATION, WEIGHT, SEQUENCE, ERROR, RAW} <= set(columns)


def check_columns(feed: object, existing: Collection[str], *columns: str | None) -> None:
    """Check that a stream has the columns that a feed reads.

    Raises:
        FeedError: A column is missing.
    """
    missing = [column for column in columns if column is not None and column not in existing]
    if missing:
        raise FeedError(
            f"{feed} reads the column {missing[0]!r}; columns of the stream: {[*existing]}. "
            "Select it, or name another column in the feed"
        )


def check_inputs(feed: object, inputs: Mapping[str, pa.Schema], relation: str | None) -> None:
    """Check that a feed names an input.

    Raises:
        FeedError: The relation is not an input, or an input has no columns.
    """
    if relation is not None and relation not in inputs:
        raise FeedError(
            f"{feed} names the unknown relation {relation!r}; inputs: {', '.join(inputs)}. Rename "
            "it, or add its schema"
        )
    empty = [name for name, schema in inputs.items() if not len(schema)]
    if empty:
        raise FeedError(f"the input {empty[0]!r} has no columns: a feed needs at least one")


def compute_once(
    df: DataFrame, columns: Mapping[str, str], *, keep: Sequence[str] = ()
) -> DataFrame:
    """Select columns and SQL expressions so that Spark computes each expression once.

    Spark copies the expressions of one projection into the next, and would parse an event once per
    column of its row. It does not do so across a generator such as ``inline``.
    """
    return df.selectExpr(*map(quote_name, keep), f"inline(array({row(columns)}))")


def sequence_expression(feed: object, df: DataFrame, column: str | None) -> str:
    """Return the SQL expression that orders the events of a stream.

    It is a named column, or else the offset of Kafka. A time is counted in microseconds, a date in
    days. A value outside 64 bits becomes NULL.

    Raises:
        FeedError: The type of the column is not an integer or a time, but for example a string.
    """
    if column is None and {"partition", "offset"} <= set(df.columns):
        column = "offset"
    if column is None:
        return "CAST(NULL AS BIGINT)"
    name, type = quote_name(column), df.schema[column].dataType
    if isinstance(type, IntegralType | NullType):
        return f"CAST({name} AS BIGINT)"
    if isinstance(type, DecimalType) and type.scale == 0:
        return f"try_cast({name} AS BIGINT)"
    if isinstance(type, TimestampType):
        return f"unix_micros({name})"
    if isinstance(type, TimestampNTZType):
        return f"unix_micros(CAST(concat(CAST({name} AS STRING), 'Z') AS TIMESTAMP))"
    if isinstance(type, DateType):
        return f"CAST(unix_date({name}) AS BIGINT)"
    raise FeedError(
        f"{feed} orders the changes of a key by {column!r}, which is of type "
        f"{type.simpleString()}: cast it to an integer, or use a time"
    )
