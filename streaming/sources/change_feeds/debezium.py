"""Debezium: change events of databases, as JSON with or without an embedded schema.

::

    {"before": {…}, "after": {…}, "source": {"db": …, "table": …}, "op": "u", "ts_ms": …}
    {"schema": {…}, "payload": {the same}}

If there is a payload, it is the event: members beside it, other than ``schema``, are not read.

========  ==========================================================================
op        change
========  ==========================================================================
c, r      inserts the after image
u         deletes the before image, inserts the after image
d         deletes the before image
t         an error: the rows that a truncation deletes are not in the event
m         none (a message, skipped)
========  ==========================================================================

A tombstone (NULL) is skipped. The before image (the row before the change) is complete only if the
database logs it: in PostgreSQL with ``REPLICA IDENTITY FULL``, in MySQL with
``binlog_row_image=FULL``. An update or deletion without a before image cannot delete the old row
and is an error, unless the input has keys: then the key and the after image are enough. Some
converters fill columns that were not logged with NULL, "" or 0, and such an image looks complete.
Therefore declare keys for tables with REPLICA IDENTITY DEFAULT, or ``strict``, which raises an
error when a missing row is deleted.

The schema in the event defines how numbers are encoded. If the event has no schema, `Encoding`
defines it. A decimal or an integer that is a string is the number itself (Debezium's mode "string")
or the base64 of its unscaled bytes ("precise"); a string that could be both is an error. A time
that is a number needs ``time_unit``. Dates are days since 1970.

The order of events matters only for inputs with keys. If the option ``sequence`` names no column,
events are ordered by the first of these that exists: the offset of Kafka; PostgreSQL's ``lsn``;
MySQL's file, position and row; ``source.ts_ms``; ``ts_ms``.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.sources.change_feeds.events import (
    UNREADABLE,
    ColumnNames,
    deleted_image,
    first_reason,
    inserted_image,
    is_keyed,
    member,
    nonnull_member,
    number,
    open_events,
    route_relation,
    text,
    unknown_table,
    update_images,
)
from streaming.sources.change_feeds.feed import NO_KEYS, Keys, compute_once
from streaming.sources.change_feeds.row_images import build_envelope
from streaming.sources.change_feeds.sql_expressions import (
    case,
    excerpt_of,
    literal,
    row,
    with_binding,
)
from streaming.sources.change_feeds.text_values import Encoding

__all__ = ["DebeziumFeed"]

MAX_FILE_SUFFIX = 40  # the last characters of a binlog's name, which contain its number
UNAVAILABLE = "__debezium_unavailable_value"
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
SCHEMA_TYPE = (
    "struct<fields: array<struct<field: string, type: string, name: string, "
    "parameters: struct<scale: string>, fields: array<struct<field: string, type: string, "
    "name: string, parameters: struct<scale: string>>>>>>"
)
# Nanoseconds per unit, by the name of a type of Debezium or Kafka Connect.
NANOSECONDS_BY_TYPE = {
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


@dataclass(frozen=True)
class DebeziumFeed:
    """Change events of Debezium.

    Args:
        value: The column that holds the event, a string or binary.
        tables: The input of each table: ``{"inventory.orders": "orders"}``. A table is named
            ``table``, ``schema.table``, ``database.table`` or ``database.schema.table``. By default
            a table belongs to the input of the same name.
        relation: The input of all rows, whatever their table.
        ignore_unknown_tables: Skip events of other tables; by default they are errors.
        rename: The column of the input for each name in events that differs from it.
        match_case: True if ``ID`` and ``id`` are different names.
        missing_columns_are_null: True if a column that a deleted row lacks is NULL, because the
            column was added to the table later. By default such a row is incomplete, unless the
            schema of the event lacks the column as well.
        sequence: A column that orders events.
        encoding: The encodings that the events do not define.
        unavailable: The placeholder for an unchanged value that the database did not log. In a
            column of bytes it is in base64 or hex, in a column of arrays it is in an array.
    """

    value: str = "value"
    tables: Mapping[str, str] = field(default_factory=dict)
    relation: str | None = None
    ignore_unknown_tables: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    match_case: bool = True
    missing_columns_are_null: bool = False
    sequence: str | None = None
    encoding: Encoding = field(default=Encoding(decimals="either", epoch_days=True))
    unavailable: str = UNAVAILABLE

    def envelope(
        self, df: DataFrame, inputs: Mapping[str, pa.Schema], *, keys: Keys = NO_KEYS
    ) -> DataFrame:
        """Return the changes of a stream of events, see `ChangeFeed.envelope`."""
        names = ColumnNames(self.rename, self.match_case, inputs)
        events = open_events(
            self,
            df,
            inputs,
            value=self.value,
            sequence=self.sequence,
            relations=(self.relation, *self.tables.values()),
        )
        body = with_binding("inner", nonnull_member("event", "payload"), "coalesce(inner, event)")
        schema = f"try_variant_get(event, '$.schema', '{SCHEMA_TYPE}')"
        events = compute_once(
            events, {"body": body, "schema": schema}, keep=("raw", "stream_order")
        )
        events = compute_once(
            events,
            {
                "op": text("body", "op"),
                "relation": self._relation(inputs),
                "sequence": f"coalesce(stream_order, {_sequence()})",
                "column_types": with_binding("columns", _columns(), _column_types()),
                "before": nonnull_member("body", "before"),
                "after": nonnull_member("body", "after"),
            },
            keep=("raw", "body"),
        )
        keyed = is_keyed(keys)
        # Key columns that the before image lacks are unchanged.
        old = deleted_image("before", base=f"if({keyed}, after, NULL)")
        # Values that the database did not log are unchanged.
        new = inserted_image("after", base=f"if({self._unlogged_test()}, before, NULL)")
        updated = f"if(before IS NULL, array({new}), {update_images(old, new, keys, names)})"
        images = f"CASE op WHEN 'u' THEN {updated} WHEN 'd' THEN array({old}) ELSE array({new}) END"
        events = events.selectExpr(
            "raw",
            "sequence",
            "relation",
            "column_types",
            f"{self._skip()} AS skip",
            f"{self._error(inputs, keys, names)} AS error",
            f"{images} AS images",
        )
        return build_envelope(
            events,
            inputs,
            keys=keys,
            names=names,
            encoding=self.encoding,
            unavailable=self.placeholders,
            described=True,
        )

    def _placeholder_texts(self) -> tuple[str, ...]:
        """Return the placeholder as a text, and as bytes in base64 and hex."""
        data = self.unavailable.encode()
        base64_texts = b64encode(data).decode(), urlsafe_b64encode(data).decode()
        return (self.unavailable, *base64_texts, data.hex(), data.hex().upper())

    def _placeholder_bytes(self) -> str:
        """Return the bytes of the placeholder as a JSON array of numbers."""
        return json.dumps(list(self.unavailable.encode()), separators=(",", ":"))

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The texts of a cell whose value the database did not log."""
        arrays = json.dumps([self.unavailable]), self._placeholder_bytes()
        return (*dict.fromkeys((*self._placeholder_texts(), *arrays)),)

    def _unlogged_test(self) -> str:
        """Return the SQL condition that the event may contain an unlogged value's placeholder."""
        byte_numbers = self._placeholder_bytes()[1:-1]
        texts = dict.fromkeys(self._placeholder_texts())
        parts = (*texts, byte_numbers, byte_numbers.replace(",", ", "))
        return f"({' OR '.join(f'contains(raw, {literal(part)})' for part in parts)})"

    def _relation(self, inputs: Mapping[str, pa.Schema]) -> str:
        if self.relation is not None:
            return literal(self.relation)
        database, schema, table = (text("body", "source", n) for n in ("db", "schema", "table"))
        candidates = [
            f"concat_ws('.', {database}, {schema}, {table})",
            f"concat(coalesce({schema}, {database}), '.', {table})",
            f"concat({database}, '.', {table})",
            table,
        ]
        return route_relation(candidates, self.tables or {name: name for name in inputs})

    def _skip(self) -> str:
        # Some converters write a tombstone as {"schema": null, "payload": null}.
        is_tombstone = f"is_variant_null({member('body', 'payload')})"
        skip = f"coalesce(op = 'm' OR (op IS NULL AND {is_tombstone}), false)"
        if self.ignore_unknown_tables:
            skip += " OR (op IS NOT NULL AND relation IS NULL)"
        return skip

    def _error(
        self, inputs: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]], names: ColumnNames
    ) -> str:
        keyed = is_keyed(keys)
        advice = (
            " before image: have the database log it (PostgreSQL: REPLICA IDENTITY FULL, MySQL: "
            "binlog_row_image=FULL), or declare the keys of the input"
        )
        relations = list(inputs)
        is_incomplete = case(
            "relation",
            relations,
            lambda name: self._is_before_incomplete(name, inputs[name], names),
            "false",
        )
        is_lost = case(
            "relation",
            relations,
            lambda name: self._is_value_lost(name, inputs[name], keys.get(name, ()), names),
            "false",
        )
        return first_reason(
            {
                "body IS NULL": literal(UNREADABLE),
                "op IS NULL": literal(
                    "the event has no op: it is not an event of Debezium, or is flattened"
                ),
                "relation IS NULL": unknown_table(text("body", "source", "table")),
                "op = 't'": literal(
                    "the rows that a truncation deletes are not in the event: delete them one by "
                    "one"
                ),
                "op NOT IN ('c', 'r', 'u', 'd')": f"concat('op is ', {excerpt_of('op')})",
                "op <> 'd' AND after IS NULL": literal("the event has no after image"),
                "op = 'd' AND before IS NULL": literal("a deletion without a" + advice),
                f"op = 'u' AND before IS NULL AND NOT {keyed}": literal(
                    "an update without a" + advice
                ),
                f"op IN ('u', 'd') AND NOT {keyed} AND {is_incomplete}": literal(
                    "an update or deletion with an incomplete" + advice
                ),
                f"{self._unlogged_test()} AND {is_lost}": literal(
                    "an unchanged value is neither in the after image nor in the before image: "
                    "have the database log it (PostgreSQL: REPLICA IDENTITY FULL)"
                ),
            }
        )

    def _is_before_incomplete(self, relation: str, schema: pa.Schema, names: ColumnNames) -> str:
        """Return the SQL condition that the before image lacks a column that the table has."""
        tests = []
        for column in schema:
            name = names.name(relation, column.name)
            in_schema = f"exists(column_types, f -> f.field = {literal(name)})"
            is_expected = f"coalesce({in_schema}, {str(not self.missing_columns_are_null).lower()})"
            in_after = f"{names.member('after', relation, column.name)} IS NOT NULL"
            not_in_before = f"{names.member('before', relation, column.name)} IS NULL"
            tests.append(f"({not_in_before} AND if(op = 'u', {in_after}, {is_expected}))")
        return f"({' OR '.join(tests)})"

    def _is_value_lost(
        self, relation: str, schema: pa.Schema, key: Sequence[str], names: ColumnNames
    ) -> str:
        """Return the SQL condition that a value is needed that the database did not log.

        A value of the new row may be in either image. The old row must be known as a whole; with a
        ``key``, a deletion needs only the key, and an update has it in the new row.
        """
        tests = []
        for column in schema:
            after, before = (
                names.member(side, relation, column.name) for side in ("after", "before")
            )
            placeholders = ", ".join(map(literal, self.placeholders))
            unlogged_before = f"coalesce(CAST({before} AS STRING) IN ({placeholders}), false)"
            unlogged_after = f"coalesce(CAST({after} AS STRING) IN ({placeholders}), false)"
            tests.append(f"({unlogged_after} AND ({before} IS NULL OR {unlogged_before}))")
            if not key:
                tests.append(f"({unlogged_before} AND op IN ('u', 'd'))")
            elif column.name in key:
                tests.append(f"({unlogged_before} AND op = 'd')")
        return f"({' OR '.join(tests)})"


def _sequence() -> str:
    """Return the order of an event by the fields of its source.

    It is NULL for a position in a binlog of MySQL that does not fit: another field would give a
    number that cannot be compared with positions.
    """
    # 17 bits of the file's number, 34 of the position, 12 of the row in the event.
    suffix = f"right({text('body', 'source', 'file')}, {MAX_FILE_SUFFIX})"
    file = f"try_cast(regexp_extract({suffix}, '([0-9]+)$', 1) AS BIGINT)"
    position = number("body", "source", "pos")
    row_number = f"least(coalesce({number('body', 'source', 'row')}, 0), 4095)"
    fits = f"file < {2**17} AND position BETWEEN 0 AND {2**34 - 1}"
    mysql = f"shiftleft(file, 46) + shiftleft(position, 12) + {row_number}"
    times = f"coalesce({number('body', 'source', 'ts_ms')}, {number('body', 'ts_ms')})"
    order = f"CASE WHEN file IS NULL OR position IS NULL THEN {times} WHEN {fits} THEN {mysql} END"
    order = with_binding("file", file, with_binding("position", position, order))
    return f"coalesce({number('body', 'source', 'lsn')}, {order})"


def _columns() -> str:
    """Return the descriptions of the columns in the schema of an event."""
    sides = "filter(schema.fields, f -> f.field IN ('before', 'after'))"
    return f"flatten(transform({sides}, f -> coalesce(f.fields, array())))"


def _column_types() -> str:
    """Return the column ``column_types`` (`streaming.sources.change_feeds.events`)."""
    column_type = row(
        {
            "field": "f.field",
            "bytes": f"f.type = 'bytes' AND coalesce(f.name, '') = {literal(CONNECT_DECIMAL)}",
            "scale": "try_cast(f.parameters.scale AS INT)",
            "unit": case(
                "f.name",
                list(NANOSECONDS_BY_TYPE),
                lambda name: f"{NANOSECONDS_BY_TYPE[name]}L",
                "NULL",
            ),
        }
    )
    return f"CASE WHEN size(columns) > 0 THEN transform(columns, f -> {column_type}) END"
