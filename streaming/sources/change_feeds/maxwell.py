"""Maxwell: change events of MySQL, one flat JSON object per row.

::

    {"database": …, "table": …, "type": "update", "data": {…}, "old": {…}, "xid": …, "xoffset": …}

``data`` is the inserted or deleted row, or the after image of an update (the row after the update).
``old`` contains the former values of the columns that the update changed. A null in ``old`` means
that the value was NULL; a column that is not in ``old`` has the same value as in ``data``.
The types of the columns are not in the event.

A bootstrap is Maxwell's initial copy of a table. Each of its rows (``bootstrap-insert``) is
inserted. The start and the end of a bootstrap and changes of table definitions are skipped.

These events are errors:

- a drop of the table of an input, because the deleted rows are not in the event;
- a drop of a database with a table of an input. If ``tables`` does not name every table with its
  database, any database may have one;
- an unknown type.

Events are ordered by the ``sequence`` column of the feed or by Kafka's offset. If the stream has
neither, they are ordered by ``xid`` (the transaction) and ``xoffset`` (the row in the transaction);
if these are missing by ``position`` (file and offset in MySQL's binary log), and else by ``ts``.
The last row of a transaction (``commit``) has no ``xoffset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.sources.change_feeds.events import (
    NO_COLUMN_TYPES,
    UNREADABLE,
    ColumnNames,
    deleted_image,
    first_reason,
    inserted_image,
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
from streaming.sources.change_feeds.sql_expressions import excerpt_of, literal
from streaming.sources.change_feeds.text_values import Encoding

__all__ = ["MaxwellFeed"]

MAX_POSITION_SUFFIX = 60  # number of last characters of a position; they contain its numbers
ROW_TYPES = ("insert", "update", "delete", "bootstrap-insert")
DROP_TYPES = ("table-drop", "database-drop")
IGNORED_TYPES = (
    "bootstrap-complete",
    "bootstrap-start",
    "database-alter",
    "database-create",
    "heartbeat",
    "table-alter",
    "table-create",
)


@dataclass(frozen=True)
class MaxwellFeed:
    """Change events of Maxwell. The arguments have the same meaning as in `DebeziumFeed`."""

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
        """Return the changes of a stream of events; see `ChangeFeed.envelope`."""
        names = ColumnNames(self.rename, self.match_case, inputs)
        events = open_events(
            self,
            df,
            inputs,
            value=self.value,
            sequence=self.sequence,
            relations=(self.relation, *self.tables.values()),
        )
        database, table = text("event", "database"), text("event", "table")
        candidates = [f"concat({database}, '.', {table})", table]
        tables = self.tables or {name: name for name in inputs}
        events = compute_once(
            events,
            {
                "type": text("event", "type"),
                "relation": literal(self.relation)
                if self.relation
                else route_relation(candidates, tables),
                "data": nonnull_member("event", "data"),
                "old": nonnull_member("event", "old"),
                "sequence": f"coalesce(stream_order, {_sequence()})",
            },
            keep=("raw", "event"),
        )
        deleted, inserted = deleted_image("data"), inserted_image("data")
        # The before image of an update has the columns of `old`, and all others from `data`.
        update = update_images(deleted_image("old", base="data"), inserted, keys, names)
        images = (
            f"CASE type WHEN 'update' THEN {update} WHEN 'delete' THEN array({deleted}) "
            f"ELSE array({inserted}) END"
        )
        drops_input = (
            f"type IN {DROP_TYPES} AND (relation IS NOT NULL OR {self._drops_database(database)})"
        )
        skip = f"type IN {IGNORED_TYPES} OR (type IN {DROP_TYPES} AND NOT ({drops_input}))"
        if self.ignore_unknown_tables:
            skip = f"({skip}) OR (type IS NOT NULL AND relation IS NULL AND NOT ({drops_input}))"
        # `build_envelope` removes skipped events first, so a reason for one of them has no effect.
        error = first_reason(
            {
                "event IS NULL": literal(UNREADABLE),
                "type IS NULL": literal("the event has no type: it is not an event of Maxwell"),
                f"type NOT IN {ROW_TYPES + DROP_TYPES + IGNORED_TYPES}": (
                    f"concat('the type is ', {excerpt_of('type')})"
                ),
                drops_input: literal(
                    "the table, or its database, was dropped, and the event does not hold its rows"
                ),
                "relation IS NULL": unknown_table(table),
                "data IS NULL": literal("the event has no data"),
                "type = 'update' AND old IS NULL": literal("an update without old"),
            }
        )
        events = events.selectExpr(
            "raw",
            "sequence",
            "relation",
            f"{NO_COLUMN_TYPES} AS column_types",
            f"coalesce({skip}, false) AS skip",
            f"{error} AS error",
            f"{images} AS images",
        )
        return build_envelope(events, inputs, keys=keys, names=names, encoding=self.encoding)

    def _drops_database(self, database: str) -> str:
        """Return the SQL condition that the event drops a database with a table of an input.

        If ``tables`` does not name the database of each table, every dropped database counts.
        """
        databases = {name.rpartition(".")[0] for name in self.tables}
        if not databases or "" in databases:
            return "type = 'database-drop'"
        names = ", ".join(literal(name) for name in sorted(databases))
        return f"(type = 'database-drop' AND coalesce({database} IN ({names}), false))"


def _sequence() -> str:
    """Return the SQL expression that orders an event by its own fields."""
    # The row number takes the last 20 bits; the last row of a transaction has no number.
    max_row = 2**20 - 1
    row_number = f"least(coalesce({number('event', 'xoffset')}, {max_row}), {max_row})"
    transaction = f"try_add(shiftleft({number('event', 'xid')}, 20), {row_number})"
    position = f"right({text('event', 'position')}, {MAX_POSITION_SUFFIX})"
    file = f"try_cast(regexp_extract({position}, '([0-9]+):[0-9]+$', 1) AS BIGINT)"
    offset = f"try_cast(regexp_extract({position}, ':([0-9]+)$', 1) AS BIGINT)"
    binlog = f"try_add(shiftleft({file}, 40), {offset})"
    return f"coalesce({transaction}, {binlog}, {number('event', 'ts')})"
