"""Change feeds: what databases and lakes say of their changes, as rows with weights.

``FEEDS`` names them; each is a frozen dataclass of its options, and a pure function from DataFrame
to envelope (`streaming.sources.change_feeds.feed`):

>>> FEEDS["debezium"](tables={"inventory.orders": "orders"}).value
'value'
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from streaming.errors import FeedError
from streaming.sources.change_feeds.canal import Canal
from streaming.sources.change_feeds.debezium import Debezium
from streaming.sources.change_feeds.feed import Feed
from streaming.sources.change_feeds.flat import Append, Delta, Upsert, Weighted
from streaming.sources.change_feeds.maxwell import Maxwell
from streaming.sources.change_feeds.text_values import Encoding
from streaming.sources.change_feeds.upsert import Compacted

__all__ = [
    "FEEDS",
    "Append",
    "Canal",
    "Compacted",
    "Debezium",
    "Delta",
    "Encoding",
    "Feed",
    "Maxwell",
    "Upsert",
    "Weighted",
    "feed_of",
]

FEEDS: Final[Mapping[str, Callable[..., Feed]]] = MappingProxyType(
    {
        "append": Append,
        "weighted": Weighted,
        "delta": Delta,
        "debezium": Debezium,
        "maxwell": Maxwell,
        "canal": Canal,
        "upsert": Upsert,
        "compacted": Compacted,
    }
)


def feed_of(feed: str | Feed) -> Feed:
    """Return a feed given by itself or by its name.

    Raises:
        FeedError: There is none of that name.

    >>> feed_of("append")
    Append(relation=None, column='relation')
    """
    if not isinstance(feed, str):
        return feed
    if feed not in FEEDS:
        raise FeedError(f"there is no feed {feed!r}; there are {', '.join(FEEDS)}")
    return FEEDS[feed]()
