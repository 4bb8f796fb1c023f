"""Read the sources of ``dbsp-wcoj run`` as one stream of Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from circuits.schema import WEIGHT
from streaming.cli.arguments.source import (
    DELTA_COLUMNS,
    FLAT_FEEDS,
    FORMATS_BY_NAME,
    WEIGHTED_FEEDS,
    SourceArgument,
)
from streaming.cli.terminal.spark_error import is_lost_connection, is_spark_error, spark_reason
from streaming.errors import EventsError
from streaming.sources.change_feeds import ChangeFeed, find_feed
from streaming.sources.change_feeds.feed import RELATION, SEQUENCE, is_envelope
from streaming.sources.tagged_union import merge
from streaming.state.parquet import stored_type

__all__ = ["merge_streams", "read_stream", "relation_schema"]

#: Columns of a stream that are not columns of its relation.
METADATA_COLUMNS: Final = (WEIGHT, SEQUENCE, RELATION)
#: The packages of sources that have the version of Spark.
PACKAGES: Final = {"kafka": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"}
NOT_FOUND: Final = re.compile(r"_DATA_SOURCE_NOT_ENABLED\]|\[DATA_SOURCE_NOT_FOUND\]")


def read_stream(session: SparkSession, source: SourceArgument) -> DataFrame:
    """Open the stream of a source.

    Raises:
        EventsError: Spark does not know the source, or refuses the options.
    """
    reader = session.readStream.format(source.format)
    if (source.path is not None or "path" in source.options) and source.feed in FLAT_FEEDS:
        schema = source.stream_schema()
        assert schema is not None  # from the files, or declared
        readable = [field.with_type(stored_type(field.type)) for field in schema]
        reader = reader.schema(from_arrow_schema(pa.schema(readable)))
        if source.format == "csv":
            reader = reader.option("header", "true")
        if source.format in ("csv", "json"):
            # Otherwise Spark silently replaces a value that does not fit by NULL.
            reader = reader.option("mode", "FAILFAST")
    for key, value in source.options.items():
        reader = reader.option(key, value)
    try:
        path = source.path
        if path is not None and path.is_file():  # a stream of Spark reads a folder
            path, reader = path.parent, reader.option("pathGlobFilter", path.name)
        frame = reader.load(None if path is None else str(path))
        reads_weights = source.format in FORMATS_BY_NAME and source.feed in WEIGHTED_FEEDS
        # In another mode, a weight that is no integer is NULL as well, and must be an error.
        is_strict = source.options.get("mode", "FAILFAST").upper() == "FAILFAST"
        if reads_weights and is_strict and WEIGHT in frame.columns:
            # Spark reads NULL from a file without the column.
            one = F.lit(1).cast(frame.schema[WEIGHT].dataType)
            frame = frame.withColumn(WEIGHT, F.coalesce(WEIGHT, one))
        if "select" in source.settings:
            # ``select`` is one text with several expressions; struct() takes them all.
            return frame.selectExpr(f"struct({source.settings['select']}) AS row").select("row.*")
    except Exception as error:  # Java's own, too
        if not is_spark_error(error) or is_lost_connection(error):
            raise
        reason = spark_reason(error)
        if NOT_FOUND.search(reason):
            package = PACKAGES.get(source.format or "", "GROUP:NAME:VERSION")
            reason += f" Its package is missing: add --conf spark.jars.packages={package}"
        raise EventsError(f"{source.label}: {reason}") from error
    return frame


def relation_schema(source: SourceArgument, frame: DataFrame) -> pa.Schema:
    """Return the columns of a relation.

    Raises:
        FeedError: The feed needs a schema, and there is none.
    """
    if source.feed not in FLAT_FEEDS:
        declared = source.schema()
        assert declared is not None  # otherwise schema() raises
        return declared
    metadata = (*METADATA_COLUMNS, *(DELTA_COLUMNS if source.feed == "delta" else ()))
    declared = {} if source.declared is None else {f.name: f.type for f in source.declared}
    columns = []
    for field in to_arrow_schema(frame.schema):
        type_ = declared.get(field.name)
        if type_ is not None and stored_type(type_) == field.type:
            field = field.with_type(type_)  # Spark does not have this type, such as ENUM
        if field.name not in metadata:
            columns.append(field)
    return pa.schema(columns)


def merge_streams(
    sources: Mapping[str, SourceArgument],
    frames: Mapping[str, DataFrame],
    schemas: Mapping[str, pa.Schema],
) -> tuple[DataFrame, dict[str, Any]]:
    """Merge the sources into one stream; return it and the options that ``ViewSink`` needs."""
    if len(frames) == 1:
        ((name, frame),) = frames.items()
        feed = sources[name].feed
        if feed is not None or is_envelope(frame.columns):
            return frame, {"feed": None if feed is None else _feed(sources[name])}
        return frame, {"relation": name}
    feeds = {name: _feed(source) for name, source in sources.items() if "feed" in source.settings}
    keys = {name: source.keys for name, source in sources.items() if source.keys}
    return merge(frames, feeds=feeds, inputs=schemas, keys=keys), {}


def _feed(source: SourceArgument) -> ChangeFeed:
    """Return the feed of a source; all rows of its stream belong to the source's relation."""
    feed: Any = find_feed(source.settings["feed"])
    option_names = {field.name for field in fields(feed)}
    options = {"relation": source.name} if "relation" in option_names else {}
    if source.is_ordered_by_stream:
        if "sequence" not in option_names:
            raise EventsError(
                f"{source.label}: sequence={source.settings['sequence']} is not a column of the "
                f"relation, and feed={source.feed} does not accept a column of the stream"
            )
        options["sequence"] = source.settings["sequence"]
    return replace(feed, **options)  # type: ignore[no-any-return]
