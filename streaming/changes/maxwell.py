"""Maxwell: change events of MySQL, one flat JSON object per row.

::

    {"database": …, "table": …, "type": "update", "data": {…}, "old": {…}, "xid": …, "xoffset": …}

``data`` is the row (of a deletion the one that goes); ``old`` holds the former values of the
columns that an update changed: one that is there and null was NULL, one that is absent is as in
``data``. Rows of a bootstrap (``bootstrap-insert``) are rows that come; its start and end, and
changes of tables, are skipped, but dropping the table of an input is an error, for the rows that
go with it are not in the event.

Without a column that orders events, or Kafka's offset, the order is ``xid`` and ``xoffset`` (the
last row of a transaction, which says ``commit``, has no offset), else ``position``, else ``ts``.
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
    at,
    envelope_of,
    image,
    is_in,
    parsed,
    routed,
    text_at,
    update_of,
)
from streaming.changes.feed import NO_KEYS, Keys, check_inputs, held, named, needs, sequence_of
from streaming.changes.texts import Encoding

__all__ = ["Maxwell"]

ROWS = ("insert", "update", "delete", "bootstrap-insert")
DROPS = ("table-drop", "database-drop")


@dataclass(frozen=True)
class Maxwell:
    """Change events of Maxwell; the arguments are those of `Debezium`."""

    value: str = "value"
    tables: Mapping[str, str] = field(default_factory=dict)
    relation: str | None = None
    ignore_unknown_tables: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    match_case: bool = True
    sequence: str | None = None
    encoding: Encoding = field(default=Encoding())

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
            type=text_at(event, "type"),
            relation=self._relation(event, inputs),
            data=F.when(is_in(event, "data"), at(event, "data")),
            old=F.when(is_in(event, "old"), at(event, "old")),
            sequence=F.coalesce(F.col("order"), _sequence(event)),
        )
        type, relation = F.col("type"), F.col("relation")
        data, old = F.col("data"), F.col("old")
        updated = update_of(relation, image(-1, old, data), image(1, data), keys, names)
        images = (
            F.when(type == "update", updated)
            .when(type == "delete", F.array(image(-1, data)))
            .otherwise(F.array(image(1, data)))
        )
        unknown = relation.isNull()
        skip = type.isNotNull() & ~type.isin(*ROWS) & ~(type.isin(*DROPS) & ~unknown)
        if self.ignore_unknown_tables:
            skip = skip | (type.isNotNull() & unknown)
        error = (
            F.when(event.isNull(), "the text is no JSON object, or repeats a member")
            .when(type.isNull(), "the event has no type: it is none of Maxwell")
            .when(
                unknown,
                F.concat(
                    F.lit("the event is of "),
                    F.coalesce(text_at(event, "table"), F.lit("no table")),
                    F.lit(", which is no input"),
                ),
            )
            .when(type.isin(*DROPS), "the table was dropped, and the event does not hold its rows")
            .when(data.isNull(), "the event has no data")
            .when((type == "update") & old.isNull(), "an update without old")
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
        return envelope_of(events, inputs, keys=keys, names=names, encoding=self.encoding)

    def _relation(self, event: Column, inputs: Mapping[str, pa.Schema]) -> Column:
        if self.relation is not None:
            return F.lit(self.relation)
        database, table = text_at(event, "database"), text_at(event, "table")
        candidates = [F.concat(database, F.lit("."), table), table]
        return routed(candidates, self.tables or {name: name for name in inputs})


def _sequence(event: Column) -> Column:
    """The order of an event by what it says of itself."""

    def number(name: str) -> Column:
        return F.try_variant_get(event, f"$.{name}", "long")

    # 20 bits of the row in its transaction; the last row has no number.
    row = F.least(F.coalesce(number("xoffset"), F.lit(2**20 - 1)), F.lit(2**20 - 1))
    transaction = F.shiftleft(number("xid"), 20) + row
    position = text_at(event, "position")
    file = F.regexp_extract(position, r"(\d+):\d+$", 1).try_cast("long")
    place = F.regexp_extract(position, r":(\d+)$", 1).try_cast("long")
    return F.coalesce(transaction, F.shiftleft(file, 40) + place, number("ts"))
