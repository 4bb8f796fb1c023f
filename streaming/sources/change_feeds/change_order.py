"""Order: whether a stream says which of several changes of a key is the last.

A micro-batch has no order of rows. An input with keys therefore needs a column that orders the
changes of a key: ``InputOptions(keys=..., sequence=...)`` names one, many feeds bring one, and a
stream may have a column ``sequence``. Without any, a micro-batch with two different changes of one
key is refused. An initial load is the first one that has them, so the warning has to come before
it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.sources.change_feeds.canal import CanalFeed
from streaming.sources.change_feeds.debezium import DebeziumFeed
from streaming.sources.change_feeds.feed import RELATION, SEQUENCE, ChangeFeed, is_envelope
from streaming.sources.change_feeds.flat import AppendFeed, DeltaFeed, UpsertFeed, WeightedFeed
from streaming.sources.change_feeds.maxwell import MaxwellFeed
from streaming.sources.change_feeds.upsert import CompactedFeed

__all__ = ["OFFSETS", "OrderCheck", "has_order", "missing_order_warning"]

#: The columns of Kafka by which feeds order changes when no other column is named.
OFFSETS: Final = frozenset({"partition", "offset"})

log = logging.getLogger(__name__)


def has_order(feed: ChangeFeed | None, columns: Collection[str]) -> bool:
    """Return whether a stream orders the changes of a key.

    Args:
        feed: How its rows are read; None for rows as they are.
        columns: The columns of the stream.

    >>> has_order(None, ["nr", "sequence"]), has_order(UpsertFeed(), ["nr"])
    (True, False)
    """
    match feed:
        case None:
            return SEQUENCE in columns
        case DebeziumFeed() | CanalFeed() | MaxwellFeed():
            return True  # by what the events say of themselves
        case DeltaFeed():
            return feed.version in columns
        case AppendFeed():
            return set(columns) >= OFFSETS
        case WeightedFeed() | UpsertFeed() | CompactedFeed():
            return feed.sequence is not None or set(columns) >= OFFSETS
    return True  # a feed of the user's own


def missing_order_warning(relation: str) -> str:
    """The warning about an input with keys whose changes nothing orders.

    >>> missing_order_warning("orders")[:60]
    "input 'orders' has keys, and nothing orders the changes of a"
    """
    return (
        f"input {relation!r} has keys, and nothing orders the changes of a key: a micro-batch with "
        "two different changes of one key will be refused; name the column that orders them, "
        "InputOptions(keys=..., sequence='updated_at') or sequence=updated_at on the command line"
    )


class OrderCheck:
    """Warns once of each input with keys whose changes nothing orders.

    Args:
        feed: How the rows of the stream are read.
        relations: The inputs with keys whose rules name no sequence.
    """

    def __init__(self, feed: ChangeFeed | None, relations: Collection[str]) -> None:
        self._feed = feed
        self._unknown = set(relations)

    @property
    def is_pending(self) -> bool:
        """True while it is unknown for some input whether a column orders its changes."""
        return bool(self._unknown)

    def check_columns(self, columns: Collection[str]) -> None:
        """Warn by the columns of the stream, before any of its rows is read."""
        if not self._unknown or (self._feed is None and is_envelope([*columns])):
            return
        if not has_order(self._feed, columns):
            for name in sorted(self._unknown):
                log.warning("%s", missing_order_warning(name))
        self._unknown.clear()

    def check_rows(self, table: pa.Table) -> None:
        """Warn by the first rows of each input, of an envelope, which may be of several feeds."""
        if not self._unknown or not table.num_rows:
            return
        has_sequence = pc.is_valid(table.column(SEQUENCE))
        for name in sorted(self._unknown):
            mine = pc.fill_null(pc.equal(table.column(RELATION), name), False)
            if not pc.any(mine).as_py():
                continue
            self._unknown.discard(name)
            if not pc.any(pc.and_(mine, has_sequence)).as_py():
                log.warning("%s", missing_order_warning(name))
