"""Debezium: change events of databases, as JSON with or without the schema in it.

::

    {"before": {…}, "after": {…}, "source": {"db": …, "table": …}, "op": "u", "ts_ms": …}
    {"schema": {…}, "payload": {the same}}

========  ==========================================================================
op        change
========  ==========================================================================
c, r      the row after comes
u         the row before goes, the row after comes
d         the row before goes
t         an error: the rows that a truncation takes are not in the event
m         none
========  ==========================================================================

A tombstone (NULL) is skipped. The row before is whole only if the database logs it: in PostgreSQL
with ``REPLICA IDENTITY FULL``, in MySQL with ``binlog_row_image=FULL``. An update or deletion
without it cannot take the old row out of a relation, and is an error, unless the input has keys:
then the event says all there is to say, "the row of this key is now this".

What numbers mean is read from the schema in the event; without it, from `Encoding`: a text for a
decimal or an integer is base64 of its unscaled bytes (Debezium's "precise"), and a number for a
time needs ``time_unit``. Dates are days since 1970.

The order of events (it matters for inputs with keys only) is, unless a column is named: the offset
of Kafka; PostgreSQL's ``lsn``; MySQL's file, position and row; else ``source.ts_ms``, ``ts_ms``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

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
    is_named,
    parsed,
    per_relation,
    routed,
    text_at,
    update_of,
)
from streaming.changes.feed import NO_KEYS, Keys, check_inputs, held, named, needs, sequence_of
from streaming.changes.texts import Encoding

__all__ = ["Debezium"]

UNAVAILABLE = "__debezium_unavailable_value"
SCHEMA = (
    "struct<fields: array<struct<field: string, type: string, name: string, "
    "parameters: struct<scale: string>, fields: array<struct<field: string, type: string, "
    "name: string, parameters: struct<scale: string>>>>>>"
)


@dataclass(frozen=True)
class Debezium:
    """Change events of Debezium.

    Args:
        value: The column that holds the event, a string or binary.
        tables: Which input takes the rows of a table: ``{"inventory.orders": "orders"}``. A table
            is named ``table``, ``schema.table``, ``database.table`` or all three. Without it a
            table is the input of its name.
        relation: The input that takes all rows, whatever their table.
        ignore_unknown_tables: Skip events of other tables; else they are errors.
        rename: Names of columns in events that are other columns of the input.
        match_case: Whether ``ID`` is no ``id``.
        evolved: Whether columns that the row of a deletion lacks are NULL, for they were added to
            the table later; else such a row is not whole, unless the event's schema says so.
        sequence: A column that orders events.
        encoding: What the events leave open.
        unavailable: The text that stands for an unchanged value which the database did not log.
    """

    value: str = "value"
    tables: Mapping[str, str] = field(default_factory=dict)
    relation: str | None = None
    ignore_unknown_tables: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    match_case: bool = True
    evolved: bool = False
    sequence: str | None = None
    encoding: Encoding = field(default=Encoding(decimals="base64", epoch_days=True))
    unavailable: str = UNAVAILABLE

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
        wrapped = is_in(F.col("event"), "payload", "op")
        given = held(
            given,
            "raw",
            "order",
            whole=F.col("event").isNotNull(),
            body=F.when(wrapped, at(F.col("event"), "payload")).otherwise(F.col("event")),
            schema=F.try_variant_get(F.col("event"), "$.schema", SCHEMA),
        )
        body = F.col("body")
        given = held(
            given,
            "raw",
            "whole",
            "body",
            op=text_at(body, "op"),
            relation=self._relation(body, inputs),
            sequence=F.coalesce(F.col("order"), _sequence(body)),
            fields=_fields(F.col("schema")),
        )
        op, relation = F.col("op"), F.col("relation")
        before, after = (F.when(is_in(body, side), at(body, side)) for side in ("before", "after"))
        given = held(
            given, "raw", "whole", "body", "op", "relation", "sequence", "fields",
            before=before, after=after,
        )  # fmt: skip
        before, after = F.col("before"), F.col("after")
        goes, comes = image(-1, before), image(1, after, before)
        keyed = relation.isin([name for name, columns in keys.items() if columns])
        old = image(-1, before, F.when(keyed, after))  # what it lacks of a key is as it was
        updated = (
            F.when(before.isNotNull(), update_of(relation, old, comes, keys, names))
            .otherwise(F.array(comes))
        )  # fmt: skip
        images = (
            F.when(op == "u", updated)
            .when(op == "d", F.array(goes))
            .otherwise(F.array(image(1, after)))
        )
        events = given.select(
            "raw",
            "sequence",
            "relation",
            "fields",
            self._skip().alias("skip"),
            self._error(inputs, keys, names).alias("error"),
            images.alias("images"),
        )
        return envelope_of(
            events,
            inputs,
            keys=keys,
            names=names,
            encoding=self.encoding,
            unavailable=self.unavailable,
        )

    def _relation(self, body: Column, inputs: Mapping[str, pa.Schema]) -> Column:
        if self.relation is not None:
            return F.lit(self.relation)
        database, schema, table = (
            text_at(body, "source", name) for name in ("db", "schema", "table")
        )
        dot = F.lit(".")
        candidates = [
            F.concat(database, dot, schema, dot, table),
            F.concat(schema, dot, table),
            F.concat(database, dot, table),
            table,
        ]
        return routed(candidates, self.tables or {name: name for name in inputs})

    def _skip(self) -> Column:
        skip = F.coalesce(F.col("op") == "m", F.lit(False))
        if self.ignore_unknown_tables:
            skip = skip | (F.col("whole") & F.col("relation").isNull() & F.col("op").isNotNull())
        return skip

    def _error(self, inputs: Mapping[str, pa.Schema], keys: Keys, names: Names) -> Column:
        op, relation = F.col("op"), F.col("relation")
        before, after = F.col("before"), F.col("after")
        keyed = relation.isin([name for name, columns in keys.items() if columns])
        table = F.coalesce(text_at(F.col("body"), "source", "table"), F.lit("no table"))
        advice = (
            " the row before: have the database log it (PostgreSQL: REPLICA IDENTITY FULL, MySQL: "
            "binlog_row_image=FULL), or declare the keys of the input"
        )
        return (
            F.when(~F.col("whole"), "the text is no JSON object, or repeats a member")
            .when(op.isNull(), "the event has no op: it is none of Debezium, or was flattened")
            .when(
                relation.isNull(),
                F.concat(F.lit("the event is of "), table, F.lit(", which is no input")),
            )
            .when(op == "t", "a truncation does not say which rows go: delete them one by one")
            .when(~op.isin("c", "r", "u", "d"), F.concat(F.lit("op is "), op))
            .when(op.isin("c", "r", "u") & after.isNull(), "the event has no row after")
            .when((op == "d") & before.isNull(), F.lit("a deletion without" + advice))
            .when((op == "u") & ~keyed & before.isNull(), F.lit("an update without" + advice))
            .when(
                op.isin("u", "d")
                & ~keyed
                & per_relation(relation, self._partial(inputs, names), F.lit(False)),
                F.lit("an update or deletion with a part only of" + advice),
            )
            .when(
                F.col("raw").contains(self.unavailable)
                & per_relation(relation, self._gone(inputs, names), F.lit(False)),
                F.lit("an unchanged value is not in the event, nor in" + advice),
            )
        )

    def _partial(self, inputs: Mapping[str, pa.Schema], names: Names) -> dict[str, Column]:
        """Whether the row before lacks a column that the table has."""
        before, after, op = F.col("before"), F.col("after"), F.col("op")
        fields = F.col("fields")
        cases = {}
        for relation, schema in inputs.items():
            tests = []
            for column in schema:
                name = names.name(relation, column.name)
                known = F.exists(fields, is_named(name))
                had = F.when(op == "u", names.member(after, relation, column.name).isNotNull())
                had = had.otherwise(F.coalesce(known, F.lit(not self.evolved)))
                tests.append(names.member(before, relation, column.name).isNull() & had)
            cases[relation] = reduce(lambda a, b: a | b, tests)
        return cases

    def _gone(self, inputs: Mapping[str, pa.Schema], names: Names) -> dict[str, Column]:
        """Whether a value is unavailable, also in the row before."""
        cases = {}
        for relation, schema in inputs.items():
            tests = []
            for column in schema:
                now, then = (
                    F.try_variant_get(
                        names.member(F.col(side), relation, column.name), "$", "string"
                    )
                    for side in ("after", "before")
                )
                absent = names.member(F.col("before"), relation, column.name).isNull()
                missing = F.coalesce(then == self.unavailable, F.lit(False))
                lost = (now == self.unavailable) & (absent | missing)
                alone = missing & (F.col("op") == "d")
                tests.append(F.coalesce(lost, F.lit(False)) | alone)
            cases[relation] = reduce(lambda a, b: a | b, tests)
        return cases


def _sequence(body: Column) -> Column:
    """The order of an event by what its source says."""

    def number(*names: str) -> Column:
        return F.try_variant_get(body, "$." + ".".join(names), "long")

    # 17 bits of the file's number, 34 of the position, 12 of the row in the event.
    file = F.regexp_extract(text_at(body, "source", "file"), r"(\d+)$", 1).try_cast("long")
    row = F.least(F.coalesce(number("source", "row"), F.lit(0)), F.lit(4095))
    place = F.shiftleft(number("source", "pos"), 12) + row
    mysql = F.when(file.isNotNull(), F.shiftleft(file, 46) + place)
    return F.coalesce(number("source", "lsn"), mysql, number("source", "ts_ms"), number("ts_ms"))


def _fields(schema: Column) -> Column:
    """Name, type, logical type and scale of the columns, where the event has a schema."""
    sides = F.filter(schema["fields"], lambda f: f["field"].isin("before", "after"))
    nested = F.flatten(F.transform(sides, lambda f: F.coalesce(f["fields"], F.array())))
    every = F.when(F.size(nested) > 0, nested)
    return F.transform(
        every,
        lambda f: F.struct(
            f["field"].alias("field"),
            f["type"].alias("type"),
            f["name"].alias("name"),
            f["parameters"]["scale"].try_cast("int").alias("scale"),
        ),
    ).cast(FIELDS)
