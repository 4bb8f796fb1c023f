"""Tagged union: merge several streams into one, so that a micro-batch has rows of all of them.

Spark gives each query its own batch ids, and the micro-batches of two queries have no common order.
The union of the streams is one query: a micro-batch has the new rows of every source, and one
checkpoint entry has the offsets of all sources. The rows are in an envelope
(`streaming.sources.change_feeds.feed`) with one struct per relation, so that columns of equal name
may have different types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegralType, StructType

from streaming.errors import FeedError
from streaming.sources.change_feeds import ChangeFeed, find_feed
from streaming.sources.change_feeds.feed import (
    ERROR,
    NO_KEYS,
    RAW,
    RELATION,
    SEQUENCE,
    WEIGHT,
    Keys,
    is_envelope,
    sequence_expression,
    struct_column,
)
from streaming.sources.change_feeds.flat import WeightedFeed
from streaming.sources.change_feeds.sql_expressions import quote_name

__all__ = ["merge"]


def merge(
    frames: Mapping[str, DataFrame],
    *,
    feeds: Mapping[str, str | ChangeFeed] | None = None,
    inputs: Mapping[str, pa.Schema] | None = None,
    keys: Keys = NO_KEYS,
) -> DataFrame:
    """Return one DataFrame with the changes of several.

    Args:
        frames: The rows of each relation, as a streaming DataFrame, optionally with ``weight`` and
            ``sequence``. A DataFrame that is an envelope, or has a feed, may contain rows of any
            relations; its name here need not be a relation.
        feeds: The change feeds that decode DataFrames, by the names in ``frames``.
        inputs: The schemas of the inputs; required with feeds.
        keys: The key columns of inputs with keys; required with feeds.

    Raises:
        FeedError: ``frames`` is empty, a feed has no DataFrame, or schemas are missing.
    """
    feeds = feeds or {}
    if not frames:
        raise FeedError("frames is empty: give merge({'orders': df1, ...})")
    unknown = [name for name in feeds if name not in frames]
    if unknown:
        raise FeedError(f"feed of unknown stream {unknown[0]!r}; streams: {', '.join(frames)}")
    if feeds and not inputs:
        raise FeedError("feeds need the schemas of the inputs: give merge(..., inputs=...)")
    parts = []
    for name, frame in frames.items():
        if name in feeds:
            parts.append(find_feed(feeds[name]).envelope(frame, inputs or {}, keys=keys))
        elif is_envelope(frame.columns):
            parts.append(frame)
        else:
            parts.append(_wrap_rows(name, frame))
    return reduce(lambda union, part: union.unionByName(part, allowMissingColumns=True), parts)


def _with_texts_of_variants(df: DataFrame) -> DataFrame:
    """Return the rows with JSON in the columns of Spark's VARIANT, which an input reads."""
    names = [field.name for field in df.schema if field.dataType.typeName() == "variant"]
    return df.withColumns({name: F.to_json(quote_name(name)) for name in names}) if names else df


def _wrap_rows(relation: str, df: DataFrame) -> DataFrame:
    """Return the envelope of the rows of one relation."""
    df = _with_texts_of_variants(df)
    columns = [name for name in df.columns if name not in (WEIGHT, SEQUENCE)]
    if not columns:
        raise FeedError(
            f"the stream of {relation!r} has only the columns {df.columns}: add columns of rows"
        )
    sequence = SEQUENCE if SEQUENCE in df.columns else None
    if WEIGHT in df.columns and not isinstance(df.schema[WEIGHT].dataType, IntegralType):
        inputs = {
            relation: to_arrow_schema(
                StructType([df.schema[name] for name in columns]), timezone="UTC"
            )
        }
        return WeightedFeed(relation=relation, sequence=sequence).envelope(df, inputs)
    weight = F.col(WEIGHT) if WEIGHT in df.columns else F.lit(1)
    error = F.when(weight.isNull(), F.lit("the weight is NULL, weights are integers of 64 bits"))
    order = sequence_expression("merge", df, sequence)
    row = F.struct(*map(quote_name, columns))
    return df.select(
        F.lit(relation).alias(RELATION),
        weight.cast("long").alias(WEIGHT),
        F.expr(order).alias(SEQUENCE),
        error.alias(ERROR),
        F.when(error.isNotNull(), F.to_json(row)).alias(RAW),
        row.alias(struct_column(relation)),
    )
