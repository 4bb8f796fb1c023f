"""Generated change events of a shop: customers, products, orders, reviews and inventory.

Each event has its number ``seq``, its operation (``c`` create, ``u`` update, ``d`` delete), its
time, and the row after the change; an event that deletes has only the key. The shapes are those of
Feldera's public demo of a medallion pipeline; the values are random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["EVENTS_PER_HOUR", "TABLES", "Shop"]

Integers = npt.NDArray[np.int64]

STATES: Final = [f"s{number:02}" for number in range(50)]
CATEGORIES: Final = [f"Category {number}" for number in range(40)]
STATUSES: Final = ["placed", "paid", "shipped", "delivered", "cancelled"]
WAREHOUSES: Final = 5
HOUR_US: Final = 3_600_000_000
START_US: Final = 1_750_000_000_000_000


@dataclass(frozen=True)
class Activity:
    """The events of a table in an hour.

    Attributes:
        created: New rows.
        updated: Changed rows.
        deleted: Deleted rows.
    """

    created: int
    updated: int
    deleted: int


#: The events of an hour, by table: 4,900.
HOURLY: Final[Mapping[str, Activity]] = {
    "customers": Activity(60, 120, 20),
    "products": Activity(10, 80, 10),
    "orders": Activity(1_500, 1_000, 100),
    "reviews": Activity(700, 80, 20),
    "inventory": Activity(50, 1_140, 10),
}
TABLES: Final = tuple(HOURLY)
EVENTS_PER_HOUR: Final = sum(
    activity.created + activity.updated + activity.deleted for activity in HOURLY.values()
)


class Shop:
    """A shop that changes; a function of the seed.

    Args:
        seed: The seed of all values.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._live: dict[str, Integers] = {name: np.empty(0, np.int64) for name in TABLES}
        self._next: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._events = 0
        self._hour = 0

    def open(self, scale: float) -> dict[str, pa.Table]:
        """Return the events that create the first rows.

        Args:
            scale: 1.0 for 20,000 customers, 2,000 products, 200,000 orders, 60,000 reviews and
                10,000 rows of inventory.
        """
        sizes = {"customers": 20_000, "products": 2_000, "orders": 200_000}
        sizes |= {"reviews": 60_000, "inventory": 10_000}
        return self._events_of(
            {name: Activity(max(1, int(size * scale)), 0, 0) for name, size in sizes.items()}
        )

    def next_hour(self) -> dict[str, pa.Table]:
        """Return the events of the next hour."""
        return self._events_of(HOURLY)

    def change(self, fraction: float) -> dict[str, pa.Table]:
        """Return events for a fraction of the rows of each table, most of them updates."""
        activities = {}
        for name in TABLES:
            count = len(self._live[name]) * fraction
            activities[name] = Activity(int(count * 0.3), int(count * 0.6), int(count * 0.1))
        return self._events_of(activities)

    def _events_of(self, activities: Mapping[str, Activity]) -> dict[str, pa.Table]:
        self._hour += 1
        return {name: self._change(name, activity) for name, activity in activities.items()}

    def _change(self, name: str, activity: Activity) -> pa.Table:
        """Create, update and delete rows of a table."""
        first = self._next[name]
        created = np.arange(first, first + activity.created)
        live = self._random.permutation(self._live[name])
        updated, deleted = np.split(live[: activity.updated + activity.deleted], [activity.updated])
        self._next[name] += activity.created
        self._live[name] = np.concatenate([np.setdiff1d(live, deleted), created])
        ids = np.concatenate([created, updated, deleted])
        operations = np.repeat(["c", "u", "d"], [len(created), len(updated), len(deleted)])
        seq = np.arange(self._events, self._events + len(ids))
        self._events += len(ids)
        times = np.sort(self._random.integers(0, HOUR_US, len(ids))) + self._hour * HOUR_US
        columns: dict[str, Any] = {
            "seq": seq,
            "op": operations,
            "changed_at": pa.array(times + START_US, pa.timestamp("us", "UTC")),
            "id": ids,
        }
        is_deleted = operations == "d"
        for column, values in _ROWS[name](self, ids).items():
            columns[column] = pa.array(values, mask=is_deleted)
        return pa.table(columns)

    def _pick(self, name: str, count: int) -> Integers:
        """Return keys of a table; some rows may be deleted later."""
        return self._random.choice(self._live[name], count)

    def _integers(self, low: int, high: int, count: int) -> Integers:
        return self._random.integers(low, high, count)

    def customers(self, ids: Integers) -> dict[str, Any]:
        """Return the columns of customers after a change."""
        return {
            "name": np.char.add(" customer ", ids.astype(str)),
            "state": np.array(STATES)[self._integers(0, len(STATES), len(ids))],
        }

    def products(self, ids: Integers) -> dict[str, Any]:
        """Return the columns of products after a change; the price is in cents."""
        return {
            "name": np.char.add("product ", ids.astype(str)),
            "category": np.array(CATEGORIES)[ids % len(CATEGORIES)],
            "price": self._integers(100, 100_000, len(ids)),
        }

    def orders(self, ids: Integers) -> dict[str, Any]:
        """Return the columns of orders after a change."""
        return {
            "customer": self._pick("customers", len(ids)),
            "product": self._pick("products", len(ids)),
            "quantity": self._integers(1, 10, len(ids)),
            "price": self._integers(100, 100_000, len(ids)),
            "status": np.array(STATUSES)[self._integers(0, len(STATUSES), len(ids))],
        }

    def reviews(self, ids: Integers) -> dict[str, Any]:
        """Return the columns of reviews after a change; a rating of 0 is not valid."""
        return {
            "customer": self._pick("customers", len(ids)),
            "product": self._pick("products", len(ids)),
            "rating": self._integers(0, 6, len(ids)),
        }

    def inventory(self, ids: Integers) -> dict[str, Any]:
        """Return the columns of inventory after a change."""
        return {
            "product": ids // WAREHOUSES,
            "warehouse": ids % WAREHOUSES,
            "on_hand": self._integers(0, 400, len(ids)),
        }


_ROWS: Final[Mapping[str, Callable[[Shop, Integers], dict[str, Any]]]] = {
    "customers": Shop.customers,
    "products": Shop.products,
    "orders": Shop.orders,
    "reviews": Shop.reviews,
    "inventory": Shop.inventory,
}
