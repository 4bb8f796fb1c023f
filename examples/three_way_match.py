"""Orders, shipments and invoices matched three ways, while late changes correct them.

Each ordered item should be sent and billed, in the quantity and at the price of the order. The view
combines the three relations by outer joins, so it shows what is missing on any side. It follows
corrections of prices, second deliveries, and cancellations of orders that have been sent.

::

    python examples/three_way_match.py
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from circuits import InputOptions, compile_sql

SCHEMAS = {
    "orders": pa.schema({"nr": pa.int64(), "quantity": pa.int64(), "cents": pa.int64()}),
    "shipments": pa.schema({"nr": pa.int64(), "parcel": pa.int64(), "quantity": pa.int64()}),
    "invoices": pa.schema({"nr": pa.int64(), "cents": pa.int64()}),
}
INPUT_OPTIONS = {  # an order, parcel or invoice with the same key replaces the earlier one
    "orders": InputOptions(keys=["nr"]),
    "shipments": InputOptions(keys=["nr", "parcel"]),
    "invoices": InputOptions(keys=["nr"]),
}
VIEWS = """
    CREATE VIEW sent AS SELECT nr, sum(quantity) AS quantity FROM shipments GROUP BY nr;

    CREATE VIEW match AS
        SELECT
            nr,
            CASE
                WHEN o.quantity IS NULL THEN 'no order'
                WHEN s.quantity > o.quantity THEN 'too much sent'
                WHEN i.cents <> o.cents THEN 'wrong price'
                WHEN s.quantity IS NULL AND i.cents IS NULL THEN 'open'
                WHEN s.quantity IS NULL OR s.quantity < o.quantity THEN 'to be sent'
                WHEN i.cents IS NULL THEN 'to be billed'
                ELSE 'matched'
            END AS state
        FROM orders o
        FULL JOIN sent s USING (nr)
        FULL JOIN invoices i USING (nr);

    CREATE VIEW totals AS SELECT state, count(*) AS n FROM match GROUP BY state
"""
WRONG_STATES = ("wrong price", "too much sent", "no order")
STATES = ("open", "to be sent", "to be billed", "matched", *WRONG_STATES)


@dataclass
class Books:
    """The current rows in plain dictionaries, for the check."""

    orders: dict[int, tuple[int, int]] = field(default_factory=dict)
    shipments: dict[tuple[int, int], int] = field(default_factory=dict)
    invoices: dict[int, int] = field(default_factory=dict)


def main(days: int = 30, orders: int = 400) -> None:
    """Run a month of trade; print the totals of each fifth day, and the history of one order."""
    circuit = compile_sql(
        VIEWS, SCHEMAS, input_options=INPUT_OPTIONS, materialize=["match", "totals"]
    )
    diary = trade(days, orders)
    books = Books()
    history: dict[int, list[str]] = defaultdict(list)

    print("day " + "".join(f"{state:>15}" for state in STATES))
    for day, changes in enumerate(diary):
        deltas = circuit.step({name: pa.Table.from_pylist(rows) for name, rows in changes.items()})
        for row in deltas["match"].to_pylist():
            if row["weight"] > 0:
                history[row["nr"]].append(f"day {day}: {row['state']}")
        record(books, changes)
        totals = {row["state"]: row["n"] for row in circuit.views["totals"].to_pylist()}
        expected = Counter(state_of(books, nr) for nr in order_numbers(books))
        assert totals == expected, f"day {day}"
        if day % 5 == 4:
            print(f"{day:3} " + "".join(f"{totals.get(state, 0):15,}" for state in STATES))

    nr = max(history, key=lambda nr: len(history[nr]))
    print(f"\nOrder {nr}: " + "; ".join(history[nr]) + ".")
    wrong = [
        row["nr"] for row in circuit.views["match"].to_pylist() if row["state"] in WRONG_STATES
    ]
    print(f"To be looked at: {len(wrong)} orders, {', '.join(map(str, wrong[:10]))} …")


def trade(days: int, orders: int) -> list[dict[str, list[dict[str, Any]]]]:
    """Generate the rows of each day by relation; weight -1 deletes the row of a key."""
    rng = random.Random(8)
    diary: list[dict[str, list[dict[str, Any]]]] = [defaultdict(list) for _ in range(days)]

    def add(day: int, relation: str, weight: int = 1, **row: int) -> None:
        if day < days:
            diary[day][relation].append({**row, "weight": weight})

    for nr in range(orders):
        day = rng.randrange(days)
        sent, billed = day + rng.randint(1, 4), day + rng.randint(1, 6)
        quantity, cents = rng.randint(2, 9), rng.randint(100, 9_999)
        add(day, "orders", nr=nr, quantity=quantity, cents=cents)
        first = rng.choice([quantity, quantity, quantity, 1])
        add(sent, "shipments", nr=nr, parcel=1, quantity=first)
        if first < quantity:  # a second parcel follows, sometimes with one item too many
            second = quantity - first + (rng.random() < 0.2)
            add(sent + 3, "shipments", nr=nr, parcel=2, quantity=second)
        is_wrong = rng.random() < 0.15
        add(billed, "invoices", nr=nr, cents=cents + 100 * is_wrong)
        if is_wrong and rng.random() < 0.7:  # a late correction
            add(billed + 5, "invoices", nr=nr, cents=cents)
        if rng.random() < 0.05:  # cancelled, perhaps after it was sent
            add(day + 7, "orders", weight=-1, nr=nr, quantity=quantity, cents=cents)
    return diary


def record(books: Books, changes: dict[str, list[dict[str, Any]]]) -> None:
    """Apply the changes of a day to the books."""
    for row in changes.get("orders", ()):
        if row["weight"] > 0:
            books.orders[row["nr"]] = row["quantity"], row["cents"]
        else:
            del books.orders[row["nr"]]
    for row in changes.get("shipments", ()):
        books.shipments[row["nr"], row["parcel"]] = row["quantity"]
    for row in changes.get("invoices", ()):
        books.invoices[row["nr"]] = row["cents"]


def order_numbers(books: Books) -> set[int]:
    """Return the numbers of all orders that are ordered, shipped or invoiced."""
    return {*books.orders, *(nr for nr, _ in books.shipments), *books.invoices}


def state_of(books: Books, nr: int) -> str:
    """Compute the state of an order from the books."""
    parcels = [quantity for (order, _), quantity in books.shipments.items() if order == nr]
    if nr not in books.orders:
        return "no order"
    quantity, cents = books.orders[nr]
    if sum(parcels) > quantity:
        return "too much sent"
    if books.invoices.get(nr, cents) != cents:
        return "wrong price"
    if not parcels and nr not in books.invoices:
        return "open"
    if sum(parcels) < quantity:
        return "to be sent"
    return "matched" if nr in books.invoices else "to be billed"


if __name__ == "__main__":
    main()
