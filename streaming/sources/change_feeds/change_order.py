"""Change order: check that a stream orders the changes of each key.

A micro-batch has no order of rows. Therefore an input with keys needs a column that orders the
changes of a key: ``InputOptions(keys=..., sequence=...)`` names one, many feeds provide one, and a
stream may have a column ``sequence``. Without such a column, a micro-batch with two different
changes of one key is refused. A stream may run for long before this happens, so the check logs a
warning when the first rows are read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.sources.change_feeds.canal import CanalFeed
from streaming.sources.change_feeds.compacted import CompactedFeed
from streaming.sources.change_feeds.debezium import DebeziumFeed
from streaming.sources.change_feeds.feed import RELATION, SEQUENCE, ChangeFeed, is_envelope
from streaming.sources.change_feeds.flat import AppendFeed, DeltaFeed, UpsertFeed, WeightedFeed
from streaming.sources.change_feeds.maxwell import MaxwellFeed

__all__ = ["OFFSET_COLUMNS", "OrderCheck", "has_order", "missing_order_warning"]

#: The columns of a Kafka stream that order changes unless another column is named.
OFFSET_COLUMNS: Final = frozenset({"partition", "offset"})

log = logging.getLogger(__name__)


def has_order(feed: ChangeFeed | None, columns: Collection[str]) -> bool:
    """Return whether a stream orders the changes of a key.

    Args:
        feed: The change feed that decodes the rows; None for rows without a feed.
        columns: The columns of the stream.

    >>> has_order(None, ["nr", "sequence"]), has_order(UpsertFeed(), ["nr"])
    (True, False)
    """
    match feed:
        case None:
            return SEQUENCE in columns
        case DebeziumFeed() | CanalFeed() | MaxwellFeed():
            return True  # the events have their own order
        case DeltaFeed():
            return feed.version in columns
        case AppendFeed():
            return set(columns) >= OFFSET_COLUMNS
        case WeightedFeed() | UpsertFeed() | CompactedFeed():
            return feed.sequence is not None or set(columns) >= OFFSET_COLUMNS
    return True  # a feed of the user's own


def missing_order_warning(relation: str) -> str:
    """Return the warning about an input with keys whose changes have no order.

    >>> missing_order_warning("orders")[:60]
    "input 'orders' has keys, and no column orders the changes of"
    """
    return (
        f"input {relation!r} has keys, and no column orders the changes of a key: a micro-batch "
        "with two different changes of one key will be refused; name the column that orders them, "
        "InputOptions(keys=..., sequence='updated_at') or sequence=updated_at on the command line"
    )


class OrderCheck:
    """Logs one warning for each input with keys whose changes have no order.

    Args:
        feed: The change feed that decodes the rows; None for rows without a feed.
        relations: The inputs with keys whose options name no sequence.
    """

    def __init__(self, feed: ChangeFeed | None, relations: Collection[str]) -> None:
        self._feed = feed
        self._unchecked = set(relations)

    @property
    def is_pending(self) -> bool:
        """True while some input is not checked yet."""
        return bool(self._unchecked)

    def check_columns(self, columns: Collection[str]) -> None:
        """Check the columns of the stream, before any of its rows is read."""
        if not self._unchecked:
            return
        if self._feed is None and is_envelope([*columns]):
            return  # the rows show which inputs have an order: `check_rows`
        if not has_order(self._feed, columns):
            for name in sorted(self._unchecked):
                log.warning("%s", missing_order_warning(name))
        self._unchecked.clear()

    def check_rows(self, table: pa.Table) -> None:
        """Check the first rows of each input in an envelope, which may combine several feeds."""
        if not self._unchecked or not table.num_rows:
            return
        has_sequence = pc.is_valid(table.column(SEQUENCE))
        for name in sorted(self._unchecked):
            is_of_input = pc.fill_null(pc.equal(table.column(RELATION), name), False)
            if not pc.any(is_of_input).as_py():
                continue
            self._unchecked.discard(name)
            if not pc.any(pc.and_(is_of_input, has_sequence)).as_py():
                log.warning("%s", missing_order_warning(name))
