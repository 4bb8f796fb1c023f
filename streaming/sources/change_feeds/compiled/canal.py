"""Canal: the images of events (`streaming.sources.change_feeds.canal`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp_wcoj.kernels.json.scan import ARRAY, FALSE
from streaming.sources.change_feeds.canal import ROW_TYPES, CanalFeed
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
    row_array,
    scalar,
)

__all__ = ["CanalDecoder"]

DATA, OLD = range(2)
EVENT: Final = {
    "database": scalar("database"),
    "table": scalar("table"),
    "type": scalar("type"),
    "isDdl": scalar("isDdl"),
    "data": row_array("data", DATA),
    "old": row_array("old", OLD),
    "es": scalar("es"),
    "id": scalar("id"),
}
ID_BITS: Final = 18
MAX_TIME_MS: Final = 1000 * 2**33 - 1  # that a sequence has room for
MAX_STREAM_ORDER: Final = 2**51 - 1
ROW_BITS: Final = 12


class CanalDecoder:
    """Finds the images of events of Canal."""

    def __init__(
        self,
        feed: CanalFeed,
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
        refused |= ~events.is_absent("isDdl") & (events.kinds("isDdl") != FALSE)
        data_counts, old_counts = _count_rows(events, DATA), _count_rows(events, OLD)
        has_old = events.kinds("old") == ARRAY
        refused |= ~has_old & ~events.is_absent("old")
        for kind, relation, numbers in route_events(
            events, self._feed, self._relations, ROW_TYPES, refused
        ):
            bad = events.kinds("data")[numbers] != ARRAY
            if kind == "UPDATE":
                bad |= ~has_old[numbers] | (old_counts[numbers] != data_counts[numbers])
            refused[numbers[bad]] = True
            is_chosen = np.zeros(len(events), np.bool_)
            is_chosen[numbers[~bad]] = True
            yield self._group(events, kind, relation, is_chosen, orders, refused)

    def _group(
        self,
        events: ScannedEvents,
        kind: str,
        relation: RelationImages,
        is_chosen: Mask,
        orders: pa.ChunkedArray,
        refused: Mask,
    ) -> ImageGroup:
        of_events = is_chosen[events.rows[:, 0]]
        data = np.flatnonzero(of_events & (events.rows[:, 1] == DATA))
        owners = events.rows[data, 0].astype(np.int64)
        has_old = np.full(len(data), kind == "UPDATE")
        old = np.full(len(data), -1, np.int64)
        if kind == "UPDATE":  # the rows of both arrays of an event are in the same order
            old = np.flatnonzero(of_events & (events.rows[:, 1] == OLD))
            if relation.is_keyed:
                bad = np.zeros(len(data), np.bool_)
                has_old = relation.key_changes(events, Images(old, data), data, bad)
                refused[owners[bad]] = True
        # The images of an event are in the order of its rows, the old image before the new one.
        repeats = 1 + has_old.astype(np.int64)
        of_image = np.repeat(np.arange(len(data)), repeats)
        firsts = np.cumsum(repeats) - repeats
        is_old = np.zeros(len(of_image), np.bool_)
        is_old[firsts[has_old]] = True
        rows = np.where(is_old, old[of_image], data[of_image])
        fallback_rows = np.where(is_old, data[of_image], -1)
        weights = np.where(is_old | (kind == "DELETE"), -1, 1)
        of_event = owners[of_image]
        sequences = None
        if relation.is_keyed and len(of_event):
            starts = np.flatnonzero(np.diff(of_event, prepend=-1))
            lengths = np.diff(starts, append=len(of_event))
            positions = np.arange(len(of_event)) - np.repeat(starts, lengths)
            sequences = self._sequences(events, of_event, positions, orders, refused)
        return ImageGroup(relation.name, of_event, Images(rows, fallback_rows), weights, sequences)

    def _sequences(
        self,
        events: ScannedEvents,
        numbers: Integers,
        positions: Integers,
        orders: pa.ChunkedArray,
        refused: Mask,
    ) -> pa.Array:
        order = orders.take(pa.array(numbers)).combine_chunks()
        if order.null_count:
            time, has_time = read_number(events, "es", numbers, refused)
            id, has_id = read_number(events, "id", numbers, refused)
            refused[numbers[has_time & ((time < 0) | (time > MAX_TIME_MS))]] = True
            refused[numbers[has_id & (id < 0)]] = True
            low = np.where(has_id, id, 0) & (2**ID_BITS - 1)
            own = ((np.where(has_time, time, 0) // 1000) << ID_BITS) | low
            order = pc.coalesce(order, pa.array(own, mask=~has_time))
        values = np.asarray(pc.fill_null(order, 0).to_numpy(zero_copy_only=False))
        is_absent = np.asarray(order.is_null().to_numpy(zero_copy_only=False), np.bool_)
        is_absent |= (values < -MAX_STREAM_ORDER - 1) | (values > MAX_STREAM_ORDER)
        shifted = np.where(is_absent, 0, values) << ROW_BITS
        numbered = shifted | np.minimum(positions, 2**ROW_BITS - 1)
        return pa.array(numbered, mask=is_absent)


def _count_rows(events: ScannedEvents, role: int) -> Integers:
    """Return the number of rows of each event in a role."""
    of_role = events.rows[events.rows[:, 1] == role, 0]
    return np.bincount(of_role, minlength=len(events)).astype(np.int64)
