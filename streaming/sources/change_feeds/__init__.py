"""Change feeds: decode the change events of databases and data lakes to rows with weights.

A feed converts a change event to *row images*: the row before the change with weight -1, which is
deleted, and the row after it with weight 1, which is inserted. It writes them to an envelope, a
table with one row per image::

    event       {"op": "u", "before": {"nr": 1, "item": "desk"}, "after": {"nr": 1, "item": "lamp"}}

    envelope    relation    weight    sequence    row_orders
                orders          -1          17    {1, desk}
                orders           1          17    {1, lamp}

``FEEDS`` lists the feeds by name. Each feed is a frozen dataclass of its options and a pure
function from DataFrame to envelope (`streaming.sources.change_feeds.feed`):

>>> FEEDS["debezium"](tables={"inventory.orders": "orders"}).value
'value'
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from streaming.errors import FeedError
from streaming.sources.change_feeds.canal import CanalFeed
from streaming.sources.change_feeds.compacted import CompactedFeed
from streaming.sources.change_feeds.debezium import DebeziumFeed
from streaming.sources.change_feeds.feed import ChangeFeed
from streaming.sources.change_feeds.flat import AppendFeed, DeltaFeed, UpsertFeed, WeightedFeed
from streaming.sources.change_feeds.maxwell import MaxwellFeed
from streaming.sources.change_feeds.text_values import Encoding

__all__ = [
    "FEEDS",
    "AppendFeed",
    "CanalFeed",
    "ChangeFeed",
    "CompactedFeed",
    "DebeziumFeed",
    "DeltaFeed",
    "Encoding",
    "MaxwellFeed",
    "UpsertFeed",
    "WeightedFeed",
    "find_feed",
]

FEEDS: Final[Mapping[str, Callable[..., ChangeFeed]]] = MappingProxyType(
    {
        "append": AppendFeed,
        "weighted": WeightedFeed,
        "delta": DeltaFeed,
        "debezium": DebeziumFeed,
        "maxwell": MaxwellFeed,
        "canal": CanalFeed,
        "upsert": UpsertFeed,
        "compacted": CompactedFeed,
    }
)


def find_feed(feed: str | ChangeFeed) -> ChangeFeed:
    """Return the feed of a name; a feed is returned unchanged.

    Raises:
        FeedError: The name is unknown.

    >>> find_feed("append")
    AppendFeed(relation=None, column='relation')
    """
    if not isinstance(feed, str):
        return feed
    if feed not in FEEDS:
        raise FeedError(f"unknown feed {feed!r}; feeds: {', '.join(FEEDS)}")
    return FEEDS[feed]()
