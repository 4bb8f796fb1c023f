"""Canal: change events of MySQL, as flat messages of several rows.

::

    {"database": …, "table": …, "type": "UPDATE", "isDdl": false, "es": …, "id": …,
     "data": [{…}, {…}], "old": [{…}, {…}]}

Every value is a string. ``data`` contains the rows. For an update, ``old`` contains for each row
the former values of the changed columns, as in `maxwell`. Changes of table definitions are skipped.
A TRUNCATE or drop (ERASE) of an input's table is an error, because the deleted rows are not in the
event. A QUERY that changes rows (MySQL then logs statements, not rows) and an unknown type are
errors too. Bytes are encoded as latin-1.

Without a column that orders events and without Kafka's offset, the order is the second of ``es``
(the time of the change; 33 bits), the low bits of ``id`` (the number of the message; 18 bits) and
the position of the row in the event. This order is wrong if a key changes twice in one second and a
multiple of 262,144 lies between the two ids; such a stream needs a column or Kafka's offset.
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
    number,
    open_events,
    route_relation,
    text,
    unknown_table,
    update_images,
)
from streaming.sources.change_feeds.feed import NO_KEYS, Keys, compute_once
from streaming.sources.change_feeds.row_images import build_envelope
from streaming.sources.change_feeds.sql_expressions import excerpt_of, literal, row, with_binding
from streaming.sources.change_feeds.text_values import Encoding

__all__ = ["CanalFeed"]

DATA_ARRAY = "try_variant_get(event, '$.data', 'array<variant>')"
OLD_ARRAY = "try_variant_get(event, '$.old', 'array<variant>')"
ROW_TYPES = ("INSERT", "UPDATE", "DELETE")
DROP_TYPES = ("TRUNCATE", "ERASE")
IGNORED_TYPES = (
    "ALTER",
    "CINDEX",
    "CREATE",
    "DINDEX",
    "GTID",
    "MHEARTBEAT",
    "QUERY",
    "RENAME",
    "XACOMMIT",
    "XAROLLBACK",
)
DML_PATTERN = r"(?i)^\s*(insert|update|delete|replace|load|merge|call)\b"


@dataclass(frozen=True)
class CanalFeed:
    """Change events of Canal; the arguments are those of `DebeziumFeed`.

    Without ``sequence`` and without Kafka's offset, events are in the order of their second, and
    within it of the low 18 bits of ``id``. Two changes of one key in one second and one micro-batch
    are in the wrong order if a multiple of 262,144 lies between their ids. Read such a stream from
    Kafka, or give it ``sequence``.
    """

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
        database, table = text("event", "database"), text("event", "table")
        candidates = [f"concat({database}, '.', {table})", table]
        tables = self.tables or {name: name for name in inputs}
        events = compute_once(
            events,
            {
                "type": f"upper({text('event', 'type')})",
                "ddl": "coalesce(try_variant_get(event, '$.isDdl', 'boolean'), false)",
                "relation": literal(self.relation)
                if self.relation
                else route_relation(candidates, tables),
                "counts": _counts(),
                "sequence": f"coalesce(stream_order, {_sequence()})",
            },
            keep=("raw", "event"),
        )
        inserted, deleted = inserted_image("element"), deleted_image("element")
        # The before image of an update has the columns in `old`, and all others from `data`.
        before = deleted_image("get(olds, position)", base="element")
        update = update_images(before, inserted, keys, names)
        updates = f"flatten(transform({DATA_ARRAY}, (element, position) -> {update}))"
        images = (
            "CASE type "
            f"WHEN 'UPDATE' THEN {with_binding('olds', OLD_ARRAY, updates)} "
            f"WHEN 'DELETE' THEN transform({DATA_ARRAY}, element -> {deleted}) "
            f"ELSE transform({DATA_ARRAY}, element -> {inserted}) END"
        )
        drops_input = f"type IN {DROP_TYPES} AND relation IS NOT NULL"
        changes_rows = f"coalesce({text('event', 'sql')} RLIKE {literal(DML_PATTERN)}, false)"
        is_dml_statement = f"type = 'QUERY' AND NOT ddl AND {changes_rows}"
        drops_other_table = f"type IN {DROP_TYPES} AND relation IS NULL"
        is_ignored = f"ddl OR type IN {IGNORED_TYPES} OR {drops_other_table}"
        skip = f"({is_ignored}) AND NOT ({drops_input} OR {is_dml_statement})"
        if self.ignore_unknown_tables:
            skip = f"({skip}) OR (type IS NOT NULL AND relation IS NULL)"
        # `build_envelope` removes skipped events first, so a reason for one of them has no effect.
        error = first_reason(
            {
                "event IS NULL": literal(UNREADABLE),
                "type IS NULL": literal("the event has no type: it is not an event of Canal"),
                f"type NOT IN {ROW_TYPES + DROP_TYPES + IGNORED_TYPES}": (
                    f"concat('the type is ', {excerpt_of('type')})"
                ),
                "relation IS NULL": unknown_table(table),
                "type = 'QUERY'": literal("a statement changes rows that are not in the event"),
                drops_input: literal(
                    "the table was emptied or dropped, and its rows are not in the event"
                ),
                "counts.size IS NULL": literal("the event has no data"),
                "counts.rows <> counts.size": literal("an element of data is not a row"),
                "type = 'UPDATE' AND NOT (counts.olds <=> counts.size)": literal(
                    "an update without the old values of each row"
                ),
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
        return build_envelope(
            events, inputs, keys=keys, names=names, encoding=self.encoding, numbered=True
        )


def _counts() -> str:
    """Return a struct of counts: elements of ``data``, objects in ``data``, objects in ``old``.

    The arrays themselves are not passed from one projection to the next: each element would carry
    the names of all members of the event, which takes memory quadratic in their number.
    """

    def count_objects(array: str) -> str:
        return f"size(filter({array}, r -> left(to_json(r), 1) = '{{'))"

    counts = row(
        {
            "size": "if(data IS NULL, NULL, size(data))",
            "rows": count_objects("data"),
            "olds": with_binding(
                "old", OLD_ARRAY, f"if(old IS NULL, NULL, {count_objects('old')})"
            ),
        }
    )
    return with_binding("data", DATA_ARRAY, counts)


def _sequence() -> str:
    """Return the order of an event by its own fields; `build_envelope` adds positions of rows."""
    second = f"{number('event', 'es')} div 1000"
    return f"shiftleft({second}, 18) | (coalesce({number('event', 'id')}, 0) & {2**18 - 1})"
