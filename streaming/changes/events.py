"""Events: from what a JSON event says to rows of the envelope.

A feed of JSON (`debezium`, `maxwell`, `canal`, `upsert`) reads an event into columns::

    raw        the text                     relation   the input, NULL when it is none of them
    skip       nothing to do                error      why it cannot be taken
    sequence   its order                    images     array of Image: the rows that come and go
    fields     what the event says of its own columns, NULL where it does not

An image is a row as two JSON objects: ``top``, and ``base`` for the columns that ``top`` does not
have; so "the row before" is what an update says of old columns over what it says of new ones. Here
every column of the relation is looked up in the image (`Cell`), read as its type (`texts`), and
checked; one wrong cell makes the whole event an error row.

A column that an event does not have is NULL: it was added to the table later. Columns that the
relation does not have are not looked at. Of a deletion from an input with keys only the key counts.

Cost: each event is parsed once, each cell looked up once; all of it inside Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from streaming.changes.carriers import carrier
from streaming.changes.feed import Keys, check_inputs, held, let, name_of
from streaming.changes.texts import NANOSECONDS, Cell, Encoding, value_of
from streaming.errors import FeedError

__all__ = [
    "FIELDS",
    "Names",
    "at",
    "envelope_of",
    "image",
    "is_in",
    "is_named",
    "parsed",
    "per_relation",
    "routed",
    "text_at",
    "update_of",
]

SHOWN = 200  # characters of a text in a message
FIELDS = "array<struct<field: string, type: string, name: string, scale: int>>"
LOGICAL = {  # nanoseconds that one counts, by the name of a type of Debezium and Kafka Connect
    "io.debezium.time.Timestamp": 10**6,
    "io.debezium.time.MicroTimestamp": 10**3,
    "io.debezium.time.NanoTimestamp": 1,
    "io.debezium.time.Time": 10**6,
    "io.debezium.time.MicroTime": 10**3,
    "io.debezium.time.NanoTime": 1,
    "io.debezium.time.MicroDuration": 10**3,
    "io.debezium.time.NanoDuration": 1,
    "org.apache.kafka.connect.data.Timestamp": 10**6,
    "org.apache.kafka.connect.data.Time": 10**6,
}

OBJECT = "map<string, variant>"


def _path(*names: str) -> str:
    """The JSON path of a member.

    Raises:
        FeedError: The name cannot be written in a path.
    """
    for name in names:
        if '"' in name and "'" in name:
            raise FeedError(f"the column {name!r} has both kinds of quotes: rename it in the view")
    return "$" + "".join(f"['{n}']" if '"' in n else f'["{n}"]' for n in names)


def at(value: Column, *names: str) -> Column:
    """The member of a JSON object as VARIANT; NULL when there is none, not when it is null."""
    return F.try_variant_get(value, _path(*names), "variant")


def text_at(value: Column, *names: str) -> Column:
    """The member of a JSON object as text; NULL when there is none or it is null."""
    return F.try_variant_get(value, _path(*names), "string")


def is_in(value: Column, *names: str) -> Column:
    """Whether a JSON object has a member that is not null."""
    return ~F.is_variant_null(F.coalesce(at(value, *names), F.parse_json(F.lit("null"))))


def parsed(text: Column) -> Column:
    """One JSON object as VARIANT; NULL for all else, also for two of them, or repeated members."""

    def alone(listed: Column) -> Column:
        one = F.try_variant_get(listed, "$[0]", "variant")
        second = F.try_variant_get(listed, "$[1]", "variant")
        return F.when(second.isNull() & F.try_variant_get(one, "$", OBJECT).isNotNull(), one)

    return let(F.try_parse_json(F.concat(F.lit("["), text, F.lit("]"))), alone)


def any_case(value: Column, name: str) -> Column:
    """The member of a JSON object whose name is this in capitals or not."""
    members = F.map_entries(F.try_variant_get(value, "$", OBJECT))
    same = F.filter(members, lambda member: F.lower(member["key"]) == name.lower())
    return F.get(same, F.lit(0))["value"]


class Names:
    """How the columns of inputs are called in events.

    Args:
        rename: Names in events that are columns of another name: ``{"weight": "mass"}``, or
            ``{"product.weight": "mass"}`` for one relation. The name ``weight`` is that of the
            weight of a row in a circuit, so a column of it has to be renamed.
        match_case: Whether ``ID`` is no ``id``.
    """

    def __init__(self, rename: Mapping[str, str], *, match_case: bool) -> None:
        self._names = {column: name for name, column in rename.items()}
        self._qualified = {
            (name.rpartition(".")[0], column): name.rpartition(".")[2]
            for name, column in rename.items()
            if "." in name
        }
        self._match_case = match_case

    def name(self, relation: str, column: str) -> str:
        """The name in events of a column."""
        return self._qualified.get((relation, column)) or self._names.get(column, column)

    def member(self, value: Column, relation: str, column: str) -> Column:
        """The member of a row of an event that is the column, as VARIANT."""
        name = self.name(relation, column)
        return at(value, name) if self._match_case else any_case(value, name)


def image(weight: int, top: Column, base: Column | None = None) -> Column:
    """A row that comes (1) or goes (-1)."""
    return F.struct(
        F.lit(weight).alias("weight"),
        top.alias("top"),
        (F.lit(None).cast("variant") if base is None else base).alias("base"),
    )


def per_relation(relation: Column, cases: Mapping[str, Column], otherwise: Column) -> Column:
    """The case of an event's relation."""
    chosen = otherwise
    for name, case in cases.items():
        chosen = F.when(relation == name, case).otherwise(chosen)
    return chosen


def update_of(relation: Column, before: Column, after: Column, keys: Keys, names: Names) -> Column:
    """The images of an update, given as image structs of weight -1 and 1.

    Of an input with keys the new row alone, and the old key only if it is another one.
    """
    moved = {
        name: reduce(
            lambda a, b: a | b,
            (
                ~member_text(names, before, name, column).eqNullSafe(
                    member_text(names, after, name, column)
                )
                for column in columns
            ),
        )
        for name, columns in keys.items()
        if columns
    }
    both = per_relation(relation, moved, F.lit(True))
    return F.when(both, F.array(before, after)).otherwise(F.array(after))


def member_text(names: Names, image: Column, relation: str, column: str) -> Column:
    """The text of a column of an image."""
    top = names.member(image["top"], relation, column)
    found = F.coalesce(top, names.member(image["base"], relation, column))
    return F.try_variant_get(found, "$", "string")


def routed(candidates: Sequence[Column], tables: Mapping[str, str]) -> Column:
    """The input of an event, by the first of its names that is known."""
    known = F.create_map(*(F.lit(word) for pair in tables.items() for word in pair))
    return F.coalesce(*(F.try_element_at(known, name) for name in candidates))


def envelope_of(
    events: DataFrame,
    inputs: Mapping[str, pa.Schema],
    *,
    keys: Keys,
    names: Names,
    encoding: Encoding,
    unavailable: str | None = None,
    numbered: bool = False,
) -> DataFrame:
    """The envelope of events that were read as the module says.

    Args:
        events: The columns of the module's docstring, each used once.
        inputs: The schema of each input.
        keys: The key columns of inputs with keys.
        names: How columns are called.
        encoding: How values are written.
        unavailable: A text of ``top`` that says that the value is that of ``base``.
        numbered: Whether the rows of an event are in order: their places become the last 12 bits
            of the sequence.
    """
    check_inputs("the feed", inputs, None)
    kept = ("raw", "sequence", "relation", "error", "images", "fields")
    events = events.filter(~F.col("skip")).select(*kept)
    relation = F.col("relation")
    cells = F.transform(
        "images",
        lambda image: F.struct(
            image["weight"].alias("weight"),
            *(
                F.when(relation == name, _cells(image, name, schema, names, unavailable)).alias(
                    name_of(name)
                )
                for name, schema in inputs.items()
            ),
        ),
    )
    events = held(
        events, "raw", "sequence", "relation", "error", "fields",
        cells=F.when(F.col("error").isNull(), cells),
    )  # fmt: skip
    rows = F.transform(
        "cells",
        lambda row: F.struct(
            row["weight"].alias("weight"),
            *(
                F.when(relation == name, _values(row, name, schema, names, encoding)).alias(
                    name_of(name)
                )
                for name, schema in inputs.items()
            ),
        ),
    )
    events = held(events, "raw", "sequence", "relation", "error", "cells", rows=rows)
    wrong = F.array_compact(
        F.zip_with("cells", "rows", lambda cell, row: _wrong(relation, cell, row, inputs, keys))
    )
    error = F.coalesce("error", F.get(wrong, F.lit(0)))
    events = held(events, "raw", "sequence", "relation", "rows", error=error)
    nothing = F.struct(
        F.lit(1).alias("weight"),
        *(F.lit(None).cast(_struct(schema)).alias(name_of(n)) for n, schema in inputs.items()),
    )
    fine = F.col("error").isNull()
    exploded = events.select(
        "relation", "sequence", "error", F.when(~fine, F.col("raw")).alias("raw"),
        F.posexplode(F.when(fine, F.col("rows")).otherwise(F.array(nothing))).alias("place", "row"),
    )  # fmt: skip
    sequence = F.col("sequence")
    if numbered:
        sequence = F.shiftleft(sequence, 12) + F.least(F.col("place"), F.lit(4095))
    return exploded.select(
        "relation",
        F.col("row")["weight"].cast("long").alias("weight"),
        sequence.cast("long").alias("sequence"),
        "error",
        "raw",
        *(F.col("row")[name_of(name)].alias(name_of(name)) for name in inputs),
    )


def _struct(schema: pa.Schema) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, carrier(f.type)) for f in schema])


def _cells(
    image: Column, relation: str, schema: pa.Schema, names: Names, unavailable: str | None
) -> Column:
    """For each column its text, its kind, and whether the image has it."""

    def cell(column: str) -> Column:
        top = names.member(image["top"], relation, column)
        base = names.member(image["base"], relation, column)
        if unavailable is not None:
            gone = F.try_variant_get(top, "$", "string") == unavailable
            top = F.when(~F.coalesce(gone, F.lit(False)), top)
        found = F.coalesce(top, base)
        return F.struct(
            F.try_variant_get(found, "$", "string").alias("text"),
            F.schema_of_variant(found).alias("kind"),
        )

    return F.struct(*(cell(field.name).alias(f"c{n}") for n, field in enumerate(schema)))


def _values(
    row: Column, relation: str, schema: pa.Schema, names: Names, encoding: Encoding
) -> Column:
    """The row of a relation as the types of its columns."""
    fields = F.col("fields")
    values = []
    for place, field in enumerate(schema):
        cell = row[name_of(relation)][f"c{place}"]
        called = names.name(relation, field.name)
        own = F.get(F.filter(fields, is_named(called)), F.lit(0))
        counted = encoding.unit(field.name)
        unit = F.lit(None if counted is None else NANOSECONDS[counted]).cast("long")
        logical = F.create_map(*(F.lit(word) for pair in LOGICAL.items() for word in pair))
        given = Cell(
            text=cell["text"],
            kind=cell["kind"],
            bytes=own["type"] == "bytes",
            scale=own["scale"],
            unit=F.coalesce(F.try_element_at(logical, own["name"]), unit),
        )
        values.append(value_of(given, field.type, encoding).alias(field.name))
    return F.struct(*values)


def is_named(name: str) -> Callable[[Column], Column]:
    """A test of a field; Spark counts the parameters of a lambda, so it binds no others."""
    return lambda field: field["field"] == name


def _wrong(
    relation: Column, cells: Column, rows: Column, inputs: Mapping[str, pa.Schema], keys: Keys
) -> Column:
    """What is wrong with a row, or NULL."""
    cases = {}
    for name, schema in inputs.items():
        key = tuple(keys.get(name, ()))
        gone = (cells["weight"] < 0) if key else F.lit(False)
        found = []
        for place, field in enumerate(schema):
            cell = cells[name_of(name)][f"c{place}"]
            value = rows[name_of(name)][field.name]
            message = F.concat(
                F.lit(f"column {field.name!r}: "),
                F.left(cell["text"], F.lit(SHOWN)),
                F.lit(f" is no {field.type}"),
            )
            bad = cell["text"].isNotNull() & value.isNull()
            reason = F.when(bad, message)
            if not field.nullable or field.name in key:
                absent = F.lit(f"column {field.name!r} is NULL or missing and must not be")
                reason = F.coalesce(reason, F.when(cell["text"].isNull(), absent))
            found.append(reason if field.name in key else F.when(~gone, reason))
        cases[name] = F.coalesce(*found, F.lit(None).cast("string"))
    return per_relation(relation, cases, F.lit(None).cast("string"))
