"""Debezium: the images of events (`streaming.sources.change_feeds.debezium`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp_wcoj.kernels.json.scan import MISSING, OBJECT
from streaming.sources.change_feeds.compiled.cells import Description, Images
from streaming.sources.change_feeds.compiled.images import (
    ImageGroup,
    RelationImages,
    group_events,
    read_number,
)
from streaming.sources.change_feeds.compiled.scanner import (
    EventShape,
    Integers,
    Mask,
    ScannedEvents,
    enter,
    row,
    scalar,
)
from streaming.sources.change_feeds.debezium import (
    CONNECT_DECIMAL,
    NANOSECONDS_BY_TYPE,
    DebeziumFeed,
)

__all__ = ["DebeziumDecoder"]

BEFORE, AFTER = range(2)
SOURCE: Final = {
    "db": scalar("source.db"),
    "schema": scalar("source.schema"),
    "table": scalar("source.table"),
    "lsn": scalar("source.lsn"),
    "file": scalar("source.file"),
    "pos": scalar("source.pos"),
    "row": scalar("source.row"),
    "ts_ms": scalar("source.ts_ms"),
}
BODY: Final = {
    "op": scalar("op"),
    "before": row("before", BEFORE),
    "after": row("after", AFTER),
    "source": enter("source", "source"),
    "ts_ms": scalar("ts_ms"),
}
ROOT: Final = BODY | {"schema": scalar("schema"), "payload": enter("payload", "payload")}
PAYLOAD: Final = BODY | {"payload": scalar("inner payload")}
MAX_SCHEMA_BYTES: Final = 2**20  # of a schema that is kept
# The parts of MySQL's position in a sequence.
MAX_FILE, MAX_POSITION, MAX_ROW = 2**17, 2**34 - 1, 4095


class DebeziumDecoder:
    """Finds the images of events of Debezium."""

    def __init__(
        self,
        feed: DebeziumFeed,
        columns: Mapping[str, int],
        relations: Mapping[str, RelationImages],
    ) -> None:
        self._feed = feed
        self._relations = relations
        self._tables = feed.tables
        self.shape = EventShape({"": ROOT, "payload": PAYLOAD, "source": SOURCE}, columns)

    def groups(
        self, events: ScannedEvents, orders: pa.ChunkedArray, refused: Mask
    ) -> Iterator[ImageGroup]:
        """Yield the images of a slice of events, see `EventDecoder.groups`."""
        payloads = events.kinds("payload")
        refused |= (payloads != MISSING) & (payloads != OBJECT)
        refused |= events.kinds("inner payload") != MISSING
        for slot in BODY:
            refused |= (payloads == OBJECT) & ~events.is_within(slot, "payload")
        sources = events.kinds("source")
        refused |= (sources != MISSING) & (sources != OBJECT)
        before_rows, after_rows = events.row_of(BEFORE), events.row_of(AFTER)
        for slot, rows in (("before", before_rows), ("after", after_rows)):
            refused |= ~events.is_absent(slot) & (rows < 0)
        by = ("op", "source.db", "source.schema", "source.table", "schema")
        for first, numbers in group_events(events, by, refused):
            try:
                op = events.text(first, "op")
                relation_name = self._route(events, first)
                descriptions = describe_columns(events.json(first, "schema"))
            except ValueError:
                refused[numbers] = True
                continue
            if op is not None and relation_name is None and self._feed.ignore_unknown_tables:
                continue
            relation = self._relations.get(relation_name or "")
            if op not in ("c", "r", "u", "d") or relation is None:
                refused[numbers] = True
                continue
            yield from self._images(
                events,
                op,
                relation,
                numbers,
                before_rows[numbers],
                after_rows[numbers],
                descriptions,
                orders,
                refused,
            )

    def _route(self, events: ScannedEvents, event: int) -> str | None:
        if self._feed.relation is not None:
            return self._feed.relation
        database, schema, table = (
            events.text(event, f"source.{name}") for name in ("db", "schema", "table")
        )
        owner = schema if schema is not None else database
        names = [".".join(name for name in (database, schema, table) if name is not None)]
        if table is not None:
            names += [] if owner is None else [f"{owner}.{table}"]
            names += [] if database is None else [f"{database}.{table}"]
            names.append(table)
        return next((self._tables[name] for name in names if name in self._tables), None)

    def _images(
        self,
        events: ScannedEvents,
        op: str,
        relation: RelationImages,
        numbers: Integers,
        before: Integers,
        after: Integers,
        descriptions: Mapping[str, Description] | None,
        orders: pa.ChunkedArray,
        refused: Mask,
    ) -> Iterator[ImageGroup]:
        keyed = relation.is_keyed
        none = np.full(len(numbers), -1, np.int64)
        bad = np.zeros(len(numbers), np.bool_)
        if op == "d":
            bad |= before < 0
        else:
            bad |= after < 0
        has_before = before >= 0
        if op == "u" and not keyed:
            bad |= ~has_before
        has_old = np.zeros(len(numbers), np.bool_)
        if op in "ud":
            has_old = has_before.copy()
        if has_before.any():
            missing_before = relation.missing(events, before)
            missing_after = relation.missing(events, after)
            if op == "d":
                expected = not self._feed.missing_columns_are_null or descriptions is not None
                bad |= missing_before.any(axis=1) & (expected and not keyed)
            else:
                # If a value was not logged, columns that the after image lacks are unchanged.
                bad |= has_before & (missing_after & ~missing_before).any(axis=1)
                bad |= has_old & (missing_before & ~missing_after).any(axis=1) & (not keyed)
        old = Images(before, after if keyed else none)
        if op == "u" and keyed:
            changes = relation.key_changes(events, old, after, bad)
            has_old &= changes
        refused[numbers[bad]] = True
        sequences = self._sequences(events, numbers, orders, refused) if keyed else None
        parts = []
        if op in "ud":
            parts.append((np.flatnonzero(has_old & ~bad), old, -1))
        if op != "d":
            parts.append((np.flatnonzero(~bad), Images(after, none), 1))
        chosen = np.concatenate([part for part, _, _ in parts])
        yield ImageGroup(
            relation.name,
            numbers[chosen],
            Images(
                np.concatenate([images.rows[part] for part, images, _ in parts]),
                np.concatenate([images.fallback_rows[part] for part, images, _ in parts]),
            ),
            np.concatenate([np.full(len(part), weight, np.int64) for part, _, weight in parts]),
            None if sequences is None else sequences.take(pa.array(chosen)),
            descriptions or {},
        )

    def _sequences(
        self, events: ScannedEvents, numbers: Integers, orders: pa.ChunkedArray, refused: Mask
    ) -> pa.Array:
        """Return the order of events: that of the stream, else by the fields of the source."""
        order = orders.take(pa.array(numbers)).combine_chunks()
        if not order.null_count:
            return order
        lsn, has_lsn = read_number(events, "source.lsn", numbers, refused)
        if has_lsn.all():
            own, is_valid = lsn, has_lsn
        else:
            position, has_position = read_number(events, "source.pos", numbers, refused)
            is_file = ~events.is_absent("source.file")[numbers]
            own, is_valid = self._times(events, numbers, refused)
            if is_file.any():
                file = np.zeros(len(numbers), np.int64)
                for i in np.flatnonzero(is_file):
                    file[i] = self._file_number(events, int(numbers[i]))
                refused[numbers[file == -2]] = True
                row, has_row = read_number(events, "source.row", numbers, refused)
                row = np.minimum(np.where(has_row, row, 0), MAX_ROW)
                in_binlog = is_file & (file >= 0) & has_position
                fits = (file < MAX_FILE) & (position >= 0) & (position <= MAX_POSITION)
                binlog = (np.where(fits & (file >= 0), file, 0) << 46) + (
                    np.where(fits, position, 0) << 12
                )
                own = np.where(in_binlog, binlog + row, own)
                is_valid = np.where(in_binlog, fits, is_valid)
            own, is_valid = np.where(has_lsn, lsn, own), has_lsn | is_valid
        return pc.coalesce(order, pa.array(own, mask=~is_valid))

    def _times(
        self, events: ScannedEvents, numbers: Integers, refused: Mask
    ) -> tuple[Integers, Mask]:
        of_source, has_source = read_number(events, "source.ts_ms", numbers, refused)
        of_event, has_event = read_number(events, "ts_ms", numbers, refused)
        return np.where(has_source, of_source, of_event), has_source | has_event

    def _file_number(self, events: ScannedEvents, event: int) -> int:
        """Return the number at the end of a binlog's name; -1 if none, -2 if it is not plain."""
        try:
            name = events.text(event, "source.file") or ""
        except ValueError:
            return -2
        return _file_number(name)


@lru_cache(maxsize=1024)
def _file_number(name: str) -> int:
    digits = name[len(name.rstrip("0123456789")) :] if name.isascii() else "x" * 20
    if len(digits) > 18 or len(name) > 40:
        return -2
    return int(digits) if digits else -1


@lru_cache(maxsize=64)
def describe_columns(schema: bytes | None) -> Mapping[str, Description] | None:
    """Return how the schema of an event describes columns; None if it describes none.

    Raises:
        ValueError: The schema is not plain, or too long.
    """
    if schema is None:
        return None
    if len(schema) > MAX_SCHEMA_BYTES:
        raise ValueError
    parsed = json.loads(schema)
    sides = parsed.get("fields") if isinstance(parsed, dict) else None
    if not isinstance(sides, list):
        raise ValueError
    result: dict[str, Description] = {}
    for side in sides:
        _check_field(side)
        for column in side.get("fields") or ():
            _check_field(column)
            if side["field"] not in ("before", "after"):
                continue
            scale = (column.get("parameters") or {}).get("scale")
            is_bytes = column["type"] == "bytes" and (column.get("name") or "") == CONNECT_DECIMAL
            unit = NANOSECONDS_BY_TYPE.get(column.get("name") or "")
            description = Description(is_bytes, None if scale is None else int(scale), unit)
            result.setdefault(column["field"], description)
    return result or None


def _check_field(field: object) -> None:
    """Check that the description of a field has members of the usual types.

    Raises:
        ValueError: It does not.
    """
    if not isinstance(field, dict) or not isinstance(field.get("type"), str):
        raise ValueError
    parameters = field.get("parameters")
    if not isinstance(field.get("field"), str) or not isinstance(field.get("name") or "", str):
        raise ValueError
    if not isinstance(parameters or {}, dict):
        raise ValueError
    scale = (parameters or {}).get("scale")
    if scale is not None and not (isinstance(scale, str) and scale.isascii() and scale.isdigit()):
        raise ValueError
    if not isinstance(field.get("fields") or [], list):
        raise ValueError
