"""Maxwell: the images of events (`streaming.sources.change_feeds.maxwell`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp_wcoj.kernels.json.scan import MISSING, NULL, STRING
from streaming.sources.change_feeds.compiled.cells import Images
from streaming.sources.change_feeds.compiled.images import (
    ImageGroup,
    RelationImages,
    read_number,
)
from streaming.sources.change_feeds.compiled.routing import route_events
from streaming.sources.change_feeds.compiled.scanner import (
    EventShape,
    Integers,
    Mask,
    ScannedEvents,
    row,
    scalar,
)
from streaming.sources.change_feeds.maxwell import ROW_TYPES, MaxwellFeed

__all__ = ["MaxwellDecoder"]

DATA, OLD = range(2)
EVENT: Final = {
    "database": scalar("database"),
    "table": scalar("table"),
    "type": scalar("type"),
    "data": row("data", DATA),
    "old": row("old", OLD),
    "xid": scalar("xid"),
    "xoffset": scalar("xoffset"),
    "position": scalar("position"),
    "ts": scalar("ts"),
}
MAX_ROW: Final = 2**20 - 1
MAX_TRANSACTION: Final = 2**42
POSITION: Final = re.compile(r"(?:.*[^0-9])?([0-9]{1,6}):([0-9]{1,12})", re.ASCII)


class MaxwellDecoder:
    """Finds the images of events of Maxwell."""

    def __init__(
        self,
        feed: MaxwellFeed,
        columns: Mapping[str, int],
        relations: Mapping[str, RelationImages],
    ) -> None:
        self._feed = feed
        self._relations = relations
        self.shape = EventShape({"": EVENT}, columns)

    def groups(
        self, events: ScannedEvents, orders: pa.ChunkedArray, refused: Mask
    ) -> Iterator[ImageGroup]:
        """Yield the images of a slice of events, see `EventDecoder.groups`."""
        data_rows, old_rows = events.row_of(DATA), events.row_of(OLD)
        for kind, relation, numbers in route_events(
            events, self._feed, self._relations, ROW_TYPES, refused
        ):
            data, old = data_rows[numbers], old_rows[numbers]
            bad = data < 0
            if kind == "update":
                bad |= old < 0
            old_images = Images(old, data)
            has_old = np.full(len(numbers), kind == "update")
            if kind == "update" and relation.is_keyed:
                has_old &= relation.key_changes(events, old_images, data, bad)
            refused[numbers[bad]] = True
            olds, news = np.flatnonzero(has_old & ~bad), np.flatnonzero(~bad)
            chosen = np.concatenate((olds, news))
            none = np.full(len(news), -1, np.int64)
            images = Images(
                np.concatenate((old[olds], data[news])), np.concatenate((data[olds], none))
            )
            weights = np.repeat([-1, -1 if kind == "delete" else 1], [len(olds), len(news)])
            sequences = None
            if relation.is_keyed:
                sequences = self._sequences(events, numbers, orders, refused).take(pa.array(chosen))
            yield ImageGroup(relation.name, numbers[chosen], images, weights, sequences)

    def _sequences(
        self, events: ScannedEvents, numbers: Integers, orders: pa.ChunkedArray, refused: Mask
    ) -> pa.Array:
        """Return the order of events: that of the stream, else by the fields of the event."""
        order = orders.take(pa.array(numbers)).combine_chunks()
        if not order.null_count:
            return order
        transaction, is_transaction = read_number(events, "xid", numbers, refused)
        row, has_row = read_number(events, "xoffset", numbers, refused)
        row = np.minimum(np.where(has_row, row, MAX_ROW), MAX_ROW)
        refused[numbers[is_transaction & (np.abs(transaction) > MAX_TRANSACTION)]] = True
        own = (np.where(is_transaction, transaction, 0) << 20) + row
        time, has_time = read_number(events, "ts", numbers, refused)
        is_valid = is_transaction | has_time
        own = np.where(is_transaction, own, time)
        positions = events.kinds("position")[numbers]
        for i in np.flatnonzero(~is_transaction & (positions != MISSING) & (positions != NULL)):
            place = None
            if positions[i] == STRING:
                place = read_position(events.text(int(numbers[i]), "position") or "")
            if place is None:
                refused[numbers[i]] = True
            else:
                own[i], is_valid[i] = place, True
        return pc.coalesce(order, pa.array(own, mask=~is_valid))


@lru_cache(maxsize=1024)
def read_position(text: str) -> int | None:
    """Return a position in a binlog as one number; None if it is not plain."""
    match = POSITION.fullmatch(text) if len(text) <= 60 else None
    return None if match is None else (int(match[1]) << 40) + int(match[2])
