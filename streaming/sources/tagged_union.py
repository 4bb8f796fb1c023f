"""Tagged union: several streams as one, so that a micro-batch is a consistent cut over all of them.

Spark gives each query its own batch ids, and two queries have no common order. The union of the
streams is one query: its micro-batch has the new rows of each source, and one checkpoint entry has
the offsets of all. The rows travel in an envelope (`streaming.sources.change_feeds.feed`) with one
struct per relation, so that columns of equal name may have different types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

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
from streaming.sources.change_feeds.sql_expressions import quote_name
from streaming.sources.change_feeds.weights import parse_weight

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
        frames: A streaming DataFrame per relation: its rows, perhaps with ``weight`` and
            ``sequence``. One that is an envelope already, or has a feed, may hold rows of any
            relations, and its name is only a name.
        feeds: How to read a frame, by its name here.
        inputs: The schemas of the inputs; needed with feeds.
        keys: The key columns of inputs with keys; needed with feeds.

    Raises:
        FeedError: There are no frames, or a feed without schemas or without a frame.
    """
    feeds = feeds or {}
    if not frames:
        raise FeedError("there is no stream to merge: give merge({'orders': df1, ...})")
    strange = [name for name in feeds if name not in frames]
    if strange:
        raise FeedError(f"there is a feed for {strange[0]!r}, and streams are {', '.join(frames)}")
    if feeds and not inputs:
        raise FeedError("feeds are read by the schemas of the inputs: give merge(..., inputs=...)")
    parts = []
    for name, frame in frames.items():
        if name in feeds:
            parts.append(find_feed(feeds[name]).envelope(frame, inputs or {}, keys=keys))
        elif is_envelope(frame.columns):
            parts.append(frame)
        else:
            parts.append(_enveloped(name, frame))
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)


def _enveloped(relation: str, df: DataFrame) -> DataFrame:
    data = [name for name in df.columns if name not in (WEIGHT, SEQUENCE, RELATION)]
    if not data:
        raise FeedError(f"the stream of {relation!r} has columns {df.columns}, and none of a row")
    weight, error = parse_weight(F.col(WEIGHT) if WEIGHT in df.columns else F.lit(1))
    order = sequence_expression("merge", df, SEQUENCE if SEQUENCE in df.columns else None)
    row = F.struct(*map(quote_name, data))
    return df.select(
        F.lit(relation).alias(RELATION),
        weight.alias(WEIGHT),
        F.expr(order).alias(SEQUENCE),
        error.alias(ERROR),
        F.when(error.isNotNull(), F.to_json(row)).alias(RAW),
        row.alias(struct_column(relation)),
    )
