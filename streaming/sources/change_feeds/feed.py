"""Feed: how the rows of a stream become changes of relations; and the envelope that carries them.

A feed is a pure function from DataFrame to DataFrame, in Spark expressions only: it runs in the
tasks, in parallel, and works on a batch as on a stream. What comes out is the envelope,

=================  ==========================================================================
relation           string; the input that the row belongs to
weight             long; +1 where the row comes, -1 where it goes
sequence           long or NULL; the order of the events of one key, for inputs with keys
error              string or NULL; why the row cannot be taken
raw                string or NULL; the event as it was, for those
row_<relation>     one struct for each relation, NULL in the rows of the others
=================  ==========================================================================

One struct per relation, because columns of equal name have different types in different relations.
An event is one change of one or more rows; if any of them is wrong, one row with ``error`` stands
for the event and none of its changes is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

from streaming.errors import FeedError
from streaming.sources.change_feeds.sql_expressions import quoted, row

__all__ = [
    "ERROR",
    "NO_KEYS",
    "RAW",
    "RELATION",
    "ROW",
    "SEQUENCE",
    "WEIGHT",
    "ChangeFeed",
    "Keys",
    "check_inputs",
    "held",
    "is_envelope",
    "name_of",
    "needs",
    "sequence_of",
]

RELATION: Final = "relation"
WEIGHT: Final = "weight"
SEQUENCE: Final = "sequence"
ERROR: Final = "error"
RAW: Final = "raw"
ROW: Final = "row_"  # and the name of the relation

Keys = Mapping[str, Sequence[str]]
NO_KEYS: Final[Keys] = MappingProxyType({})


class ChangeFeed(Protocol):
    """A way to read changes from a DataFrame."""

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the changes in ``df``.

        Args:
            df: A streaming or batch DataFrame.
            inputs: The schema of each input of the circuit.
            keys: The key columns of the inputs whose rows are upserts.

        Raises:
            FeedError: The DataFrame lacks what the feed reads.
        """


def name_of(relation: str) -> str:
    """The name of the struct column of a relation."""
    return ROW + relation


def is_envelope(columns: Sequence[str]) -> bool:
    """Whether a table or DataFrame with these columns is an envelope."""
    return {RELATION, WEIGHT, SEQUENCE, ERROR, RAW} <= set(columns)


def needs(feed: object, df: DataFrame, *columns: str | None) -> None:
    """Check that the DataFrame has the columns that a feed reads.

    Raises:
        FeedError: One is not there.
    """
    missing = [column for column in columns if column is not None and column not in df.columns]
    if missing:
        raise FeedError(
            f"{feed} reads the column {missing[0]!r}, and the stream has {df.columns}: select it, "
            "or name another one in the feed"
        )


def check_inputs(feed: object, inputs: Mapping[str, pa.Schema], relation: str | None) -> None:
    """Check that a feed names an input.

    Raises:
        FeedError: It does not, or an input has no columns.
    """
    if relation is not None and relation not in inputs:
        raise FeedError(
            f"{feed} names the relation {relation!r}, inputs are {', '.join(inputs)}: rename it, "
            "or add its schema"
        )
    empty = [name for name, schema in inputs.items() if not len(schema)]
    if empty:
        raise FeedError(f"the input {empty[0]!r} has no columns, and a row of a feed has some")


def held(df: DataFrame, columns: Mapping[str, str], *, keep: Sequence[str] = ()) -> DataFrame:
    """Select columns and SQL expressions that are computed once, however often they are used.

    Spark inlines the columns of one projection into the next, and would parse an event once per
    column of its row; it does not look through a generator.
    """
    return df.selectExpr(*map(quoted, keep), f"inline(array({row(columns)}))")


def sequence_of(feed: object, df: DataFrame, column: str | None) -> str:
    """The order of an event as the stream has it: a named column, else the offset of Kafka.

    A time counts in microseconds, a date in days; what is outside 64 bits orders nothing.

    Raises:
        FeedError: The column has no order of integers, such as texts and fractions.
    """
    if column is None and {"partition", "offset"} <= set(df.columns):
        column = "offset"
    if column is None:
        return "CAST(NULL AS BIGINT)"
    name, type = quoted(column), df.schema[column].dataType
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
        f"{type.simpleString()}: cast it to an integer, or take a time"
    )
