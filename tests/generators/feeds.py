"""Two inputs, events of Debezium, and functions to encode and decode them, for tests of feeds."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa

from circuits.schema import Schema

R = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(30, 9)),
        ("rate", pa.float64()),
        ("sold", pa.bool_()),
    ]
)
S = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int8())])
SCHEMAS = {"r": R, "s": S}
INPUTS = {name: Schema.of(name, schema) for name, schema in SCHEMAS.items()}
KEYS = {"r": ("id",), "s": ("id",)}
#: The constraints of the inputs that the decoder reads: only their keys.
RULES = {name: SimpleNamespace(keys=key) for name, key in KEYS.items()}


def to_json(value):
    """Write a value as JSON, decimals as numbers without an exponent."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)


#: A valid row, and the same with a value that Debezium has not logged.
GOOD = {"id": 1, "name": "x", "price": None, "rate": 1, "sold": True}
UNLOGGED = GOOD | {"name": "__debezium_unavailable_value"}


def event(op="c", before=None, after=GOOD, table="r", **other_fields):
    """Return the text of a Debezium event."""
    return to_json(
        {"before": before, "after": after, "op": op, "source": {"table": table}} | other_fields
    )


def bag(table):
    """Return the weight of each row of a table."""
    weights = Counter()
    for row in table.to_pylist():
        weight = row.pop("weight")
        weights[tuple(row.values())] += weight
    return {row: weight for row, weight in weights.items() if weight}


def frame_of(spark, texts):
    """Return a DataFrame of texts, or of pairs of key and text; ``seq`` is their order."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    columns = [
        ("key", StringType()),
        ("value", StringType()),
        ("seq", LongType()),
        ("b", BinaryType()),
    ]
    rows = [
        (None, t, n, None) if not isinstance(t, tuple) else (*t, n, None)
        for n, t in enumerate(texts)
    ]
    return spark.createDataFrame(
        rows, StructType([StructField(name, type) for name, type in columns])
    )


def reader_of(spark):
    """Return a function that decodes texts, or pairs of key and text, by a feed."""

    def read(feed, texts, *, keys=None, schemas=SCHEMAS):
        return feed.envelope(frame_of(spark, texts), schemas, keys=keys or {}).toArrow()

    return read
