"""Generates the events of Nexmark: persons, auctions and bids, as Arrow tables.

The rules are those of the generator of Apache Beam and Flink: of 50 events one is a person, three
are auctions and 46 are bids. Half of the bids are on a hot auction, three quarters of the bids are
by a hot bidder, three quarters of the auctions are by a hot seller, and half of the bids come
through one of four hot channels. The hot person or auction is the last one whose number is a
multiple of 100. Prices are log-uniform. Event times advance by 0.1 ms per event by default. The
random numbers, names and texts are our own, so the rows are not those of another generator.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["TABLES", "generate", "micro_batches"]

EVENTS_PER_EPOCH: Final = 50
PERSONS_PER_EPOCH: Final = 1
AUCTIONS_PER_EPOCH: Final = 3
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
HOT_DISTANCE: Final = 100  # the numbers of hot persons and auctions are multiples of it
IN_FLIGHT_AUCTIONS: Final = 100  # bids that are not on the hot auction are on one of the last ones
ACTIVE_PERSONS: Final = 1000  # bidders and sellers that are not hot are among the last ones
MICROSECONDS_PER_EVENT: Final = 100
BEGIN: Final = 1_767_225_600_000_000  # 2026-01-01, in microseconds
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
# A city for each state.
CITIES: Final = ("Phoenix", "Palo Alto", "Boise", "Portland", "Seattle", "Cheyenne")

TABLES: Final = """
CREATE TABLE person (
    id BIGINT NOT NULL, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR,
    state VARCHAR, date_time TIMESTAMP NOT NULL, extra VARCHAR
);
CREATE TABLE auction (
    id BIGINT NOT NULL, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT,
    date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL,
    category BIGINT NOT NULL, extra VARCHAR
);
CREATE TABLE bid (
    auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel VARCHAR,
    url VARCHAR, date_time TIMESTAMP NOT NULL, extra VARCHAR
);
"""

Integers = NDArray[np.int64]


def generate(
    first: int, count: int, *, seed: int = 0, interval: int = MICROSECONDS_PER_EVENT
) -> dict[str, pa.Table]:
    """Return the rows of ``count`` events from number ``first`` on, by relation.

    Args:
        first: The number of the first event.
        count: The number of events.
        seed: With ``first``, the seed of the random numbers.
        interval: The microseconds between two events.
    """
    random = np.random.default_rng((seed, first))
    number = np.arange(first, first + count, dtype=np.int64)
    epoch, offset = np.divmod(number, EVENTS_PER_EPOCH)
    time = BEGIN + number * interval // 1000 * 1000  # whole milliseconds
    is_person = offset < PERSONS_PER_EPOCH
    is_auction = ~is_person & (offset < PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH)
    is_bid = ~is_person & ~is_auction
    # The numbers of the last person and the last auction at each event.
    person = epoch
    auction = np.where(
        is_person,
        epoch * AUCTIONS_PER_EPOCH - 1,
        epoch * AUCTIONS_PER_EPOCH + np.minimum(offset, AUCTIONS_PER_EPOCH) - 1,
    )
    return {
        "person": _persons(random, person[is_person], time[is_person]),
        "auction": _auctions(
            random, auction[is_auction], person[is_auction], time[is_auction], interval
        ),
        "bid": _bids(random, auction[is_bid], person[is_bid], time[is_bid]),
    }


def micro_batches(events: int, size: int, *, seed: int = 0) -> list[dict[str, pa.Table]]:
    """Return the rows of the first events, ``size`` of them at a time."""
    return [generate(first, size, seed=seed) for first in range(0, events, size)]


def _persons(random: np.random.Generator, person: Integers, time: Integers) -> pa.Table:
    city = random.integers(0, len(STATES), len(person))
    ids = (person + FIRST_ID).tolist()
    return pa.table(
        {
            "id": person + FIRST_ID,
            "name": [f"name {number % 997}" for number in ids],
            "email_address": [f"{number}@example.org" for number in ids],
            "credit_card": [f"{number * 7919 % 10**16:016d}" for number in ids],
            "city": np.take(CITIES, city),
            "state": np.take(STATES, city),
            "date_time": _times(time),
            "extra": _texts(random, len(person)),
        }
    )


def _auctions(
    random: np.random.Generator,
    auction: Integers,
    person: Integers,
    time: Integers,
    interval: int,
) -> pa.Table:
    count = len(auction)
    seller = _choose(random, person, count, cold_one_in=4, active=ACTIVE_PERSONS, hot_offset=0)
    initial = _prices(random, count)
    events_in_flight = IN_FLIGHT_AUCTIONS * EVENTS_PER_EPOCH // AUCTIONS_PER_EPOCH
    span_ms = events_in_flight * interval // 1000
    duration = (1 + random.integers(0, max(2 * span_ms, 1), count)) * 1000  # microseconds
    return pa.table(
        {
            "id": auction + FIRST_ID,
            "item_name": [f"item {number % 499}" for number in auction.tolist()],
            "description": _texts(random, count),
            "initial_bid": initial,
            "reserve": initial + _prices(random, count),
            "date_time": _times(time),
            "expires": _times(time + duration),
            "seller": seller,
            "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
            "extra": _texts(random, count),
        }
    )


def _bids(
    random: np.random.Generator, auction: Integers, person: Integers, time: Integers
) -> pa.Table:
    count = len(auction)
    cold_channels = np.array([f"channel-{number}" for number in range(10_000)])
    number = random.integers(0, len(cold_channels), count)
    is_hot = random.random(count) < 0.5
    channel = np.where(is_hot, np.take(HOT_CHANNELS, number % 4), cold_channels[number])
    pages = np.array([f"https://www.nexmark.com/a/b{page}/item.htm?query=1" for page in range(97)])
    # The address ends with the id of the channel, unless the channel is hot or its number is a
    # multiple of ten.
    address_ends = np.where(
        is_hot | (number % 10 == 0), "", np.char.add("&channel_id=", number.astype(np.str_))
    )
    return pa.table(
        {
            "auction": _choose(
                random, auction, count, cold_one_in=2, active=IN_FLIGHT_AUCTIONS, hot_offset=0
            ),
            "bidder": _choose(
                random, person, count, cold_one_in=4, active=ACTIVE_PERSONS, hot_offset=1
            ),
            "price": _prices(random, count),
            "channel": channel,
            "url": np.char.add(pages[number % 97], address_ends),
            "date_time": _times(time),
            "extra": _texts(random, count),
        }
    )


def _choose(
    random: np.random.Generator,
    last: Integers,
    count: int,
    *,
    cold_one_in: int,
    active: int,
    hot_offset: int,
) -> Integers:
    """Choose ``count`` ids of persons or auctions.

    Args:
        random: The source of random numbers.
        last: For each row, the number of the last person or auction.
        count: The number of rows.
        cold_one_in: One in so many rows is cold: it does not get the hot id.
        active: A cold row gets one of so many last ids.
        hot_offset: The hot number is so much larger than a multiple of `HOT_DISTANCE`.
    """
    hot = last // HOT_DISTANCE * HOT_DISTANCE + hot_offset
    span = np.minimum(last, active) + 1
    cold = last - (random.random(count) * span).astype(np.int64)
    is_hot = random.integers(0, cold_one_in, count) > 0
    return np.where(is_hot, hot, cold) + FIRST_ID


def _prices(random: np.random.Generator, count: int) -> Integers:
    return np.round(10.0 ** (random.random(count) * 6) * 100).astype(np.int64)


def _times(microseconds: Integers) -> pa.Array:
    return pa.array(microseconds, pa.timestamp("us"))


def _texts(random: np.random.Generator, count: int) -> NDArray[np.str_]:
    letters = random.integers(97, 123, (count, 24), dtype=np.uint32)
    return letters.view("<U24").reshape(count)
