"""Canal: change events of MySQL, as flat messages of several rows.

::

    {"database": …, "table": …, "type": "UPDATE", "isDdl": false, "es": …, "id": …,
     "data": [{…}, {…}], "old": [{…}, {…}]}

Every value is a text. ``data`` holds the rows, ``old`` for each row of an update the former values
of the columns that it changed, as in `maxwell`. Changes of tables are skipped; but a TRUNCATE of an
input's table, or its end (ERASE), is an error, for the rows that go are not in the event. Bytes are
written as latin-1.

Without a column that orders events, or Kafka's offset, the order is the second of ``es`` (33 bits),
the end of ``id`` (18 bits) and the place of the row in the event; a key that changes twice in one
second across a multiple of 262,144 ids needs one of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.changes.events import (
    FIELDS,
    Names,
    envelope_of,
    image,
    parsed,
    routed,
    text_at,
    update_of,
)
from streaming.changes.feed import NO_KEYS, Keys, check_inputs, held, named, needs, sequence_of
from streaming.changes.texts import Encoding

__all__ = ["Canal"]

DROPS = ("TRUNCATE", "ERASE")


@dataclass(frozen=True)
class Canal:
    """Change events of Canal; the arguments are those of `Debezium`."""

    value: str = "value"
    tables: Mapping[str, str] = field(default_factory=dict)
    relation: str | None = None
    ignore_unknown_tables: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    match_case: bool = True
    sequence: str | None = None
    encoding: Encoding = field(default=Encoding(binary="latin1"))

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the changes of a stream of events, see `Feed.envelope`."""
        needs(self, df, self.value, self.sequence)
        for name in (self.relation, *self.tables.values()):
            check_inputs(self, inputs, name)
        names = Names(self.rename, match_case=self.match_case)
        text = F.make_valid_utf8(named(self.value).cast("string"))
        given = held(
            df.filter(named(self.value).isNotNull()),
            raw=text,
            event=parsed(text),
            order=sequence_of(df, self.sequence, F.lit(None)),
        )
        event = F.col("event")
        given = held(
            given,
            "raw",
            "event",
            type=F.upper(text_at(event, "type")),
            ddl=F.coalesce(F.try_variant_get(event, "$.isDdl", "boolean"), F.lit(False)),
            relation=self._relation(event, inputs),
            data=F.try_variant_get(event, "$.data", "array<variant>"),
            old=F.try_variant_get(event, "$.old", "array<variant>"),
            sequence=F.coalesce(F.col("order"), _sequence(event)),
        )
        type, relation, ddl = F.col("type"), F.col("relation"), F.col("ddl")
        data, old = F.col("data"), F.col("old")
        updated = F.flatten(
            F.transform(
                data,
                lambda row, place: update_of(
                    relation, image(-1, F.get(old, place), row), image(1, row), keys, names
                ),
            )
        )
        images = (
            F.when(type == "UPDATE", updated)
            .when(type == "DELETE", F.transform(data, lambda row: image(-1, row)))
            .otherwise(F.transform(data, lambda row: image(1, row)))
        )
        unknown = relation.isNull()
        ends = type.isin(*DROPS)
        rows = type.isin("INSERT", "UPDATE", "DELETE")
        skip = type.isNotNull() & (ddl | ~rows) & ~(ends & ~unknown)
        if self.ignore_unknown_tables:
            skip = skip | (type.isNotNull() & unknown)
        known = F.size(F.filter(old, lambda row: F.schema_of_variant(row).startswith("OBJECT")))
        error = (
            F.when(event.isNull(), "the text is no JSON object, or repeats a member")
            .when(type.isNull(), "the event has no type: it is none of Canal")
            .when(
                unknown,
                F.concat(
                    F.lit("the event is of "),
                    F.coalesce(text_at(event, "table"), F.lit("no table")),
                    F.lit(", which is no input"),
                ),
            )
            .when(ends, "the table was emptied or dropped, and the event does not hold its rows")
            .when(data.isNull(), "the event has no data")
            .when(
                F.exists(data, lambda row: ~F.schema_of_variant(row).startswith("OBJECT")),
                "data holds what is no row",
            )
            .when(
                (type == "UPDATE") & (F.coalesce(known, F.lit(-1)) != F.size(data)),
                "an update without the old values of each row",
            )
        )
        events = given.select(
            "raw",
            "sequence",
            "relation",
            F.lit(None).cast(FIELDS).alias("fields"),
            F.coalesce(skip, F.lit(False)).alias("skip"),
            error.alias("error"),
            images.alias("images"),
        )
        return envelope_of(
            events, inputs, keys=keys, names=names, encoding=self.encoding, numbered=True
        )

    def _relation(self, event: Column, inputs: Mapping[str, pa.Schema]) -> Column:
        if self.relation is not None:
            return F.lit(self.relation)
        database, table = text_at(event, "database"), text_at(event, "table")
        candidates = [F.concat(database, F.lit("."), table), table]
        return routed(candidates, self.tables or {name: name for name in inputs})


def _sequence(event: Column) -> Column:
    """The order of an event by what it says of itself, with room for the place of a row."""

    def number(name: str) -> Column:
        return F.try_variant_get(event, f"$.{name}", "long")

    second = F.floor(number("es") / 1000).cast("long")
    batch = F.coalesce(number("id"), F.lit(0)).bitwiseAND(F.lit(2**18 - 1))
    return F.shiftleft(second, 18) + batch
