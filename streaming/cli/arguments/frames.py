"""Frames: the sources of the command line as one stream of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from streaming.cli.arguments.source import FLAT, WEIGHT, SourceArgument
from streaming.cli.terminal.spark_error import reason_of
from streaming.errors import EventsError
from streaming.sources.change_feeds import Feed, feed_of
from streaming.sources.change_feeds.feed import RELATION, SEQUENCE, is_envelope
from streaming.sources.tagged_union import merge

__all__ = ["frame_of", "schema_of", "stream_of"]

#: Columns of a stream that are none of its relation.
NOT_COLUMNS: Final = (WEIGHT, SEQUENCE, RELATION)
DELTA_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")


def frame_of(session: SparkSession, source: SourceArgument) -> DataFrame:
    """The stream of a source, as Spark reads it.

    Raises:
        EventsError: Spark has no such source, or does not take the options.
    """
    reader = session.readStream.format(source.format)
    if (source.path is not None or "path" in source.options) and source.feed in FLAT:
        schema = source.schema()
        assert schema is not None  # files tell it, or it is declared
        reader = reader.schema(from_arrow_schema(schema))
        if source.format == "csv":
            reader = reader.option("header", "true")
        if source.format in ("csv", "json"):
            # Else Spark makes NULL of what does not fit, and nobody is told.
            reader = reader.option("mode", "FAILFAST")
    for key, value in source.options.items():
        reader = reader.option(key, value)
    try:
        place = source.path
        if place is not None and place.is_file():  # Spark's streams are of folders
            place, reader = place.parent, reader.option("pathGlobFilter", place.name)
        frame = reader.load(None if place is None else str(place))
        if "select" in source.own:
            return frame.selectExpr(f"struct({source.own['select']}) AS row").select("row.*")
    except PySparkException as error:
        raise EventsError(f"--source {source.name}: {reason_of(error)}") from error
    return frame


def schema_of(source: SourceArgument, frame: DataFrame) -> pa.Schema:
    """The columns of the relation.

    Raises:
        FeedError: A feed's events do not tell them, and no schema is given.
    """
    if source.feed not in FLAT:
        declared = source.schema()
        assert declared is not None  # or it is an error
        return declared
    others = (*NOT_COLUMNS, *(DELTA_COLUMNS if source.feed == "delta" else ()))
    return pa.schema([f for f in to_arrow_schema(frame.schema) if f.name not in others])


def stream_of(
    sources: Mapping[str, SourceArgument],
    frames: Mapping[str, DataFrame],
    schemas: Mapping[str, pa.Schema],
) -> tuple[DataFrame, dict[str, Any]]:
    """One stream of all sources, and what ``ViewSink`` has to be told of it."""
    if len(frames) == 1:
        ((name, frame),) = frames.items()
        feed = sources[name].feed
        if feed is not None or is_envelope(frame.columns):
            return frame, {"feed": None if feed is None else _feed(sources[name])}
        return frame, {"relation": name}
    feeds = {name: _feed(source) for name, source in sources.items() if "feed" in source.own}
    keys = {name: source.keys for name, source in sources.items() if source.keys}
    return merge(frames, feeds=feeds, inputs=schemas, keys=keys), {}


def _feed(source: SourceArgument) -> Feed:
    """The feed of a source, all rows of which are of its relation, whatever their table."""
    feed: Any = feed_of(source.own["feed"])
    names = {field.name for field in fields(feed)}
    given = {"relation": source.name} if "relation" in names else {}
    if source.is_ordered_by_stream:
        if "sequence" not in names:
            raise EventsError(
                f"--source {source.name}: feed={source.feed} takes no column of the stream as "
                f"sequence, and {source.own['sequence']} is no column of the relation"
            )
        given["sequence"] = source.own["sequence"]
    return replace(feed, **given)  # type: ignore[no-any-return]
