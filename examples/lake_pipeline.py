"""A pipeline in a data lake: views in files of SQL over Delta tables, refreshed three times.

Customers and orders are Delta tables that change: rows are inserted, updated and deleted. The
command ``dbsp-wcoj pipeline refresh`` keeps two other tables equal to two views. After each refresh
they are compared with the views computed again in Python.

::

    pip install '.[cli,sinks,spark]'    # in the checkout
    python examples/lake_pipeline.py
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streaming.cli.app import app

SILVER = """
CREATE MATERIALIZED VIEW lines AS
SELECT o.nr, o.worth, c.city FROM orders o JOIN customers c ON c.id = o.customer
"""
GOLD = """
CREATE MATERIALIZED VIEW cities AS
SELECT city, count(*) AS n, sum(worth) AS worth FROM lines GROUP BY city
"""
PIPELINE = """
query = "sql"

[inputs.orders]
path = "orders"

[inputs.customers]
path = "customers"

[[outputs]]
target = "delta"
path = "lake/{view}"

[state]
path = "state"
"""
CITIES = ["Aachen", "Basel", "Ghent", "Lyon", "Turin"]


def main() -> None:
    """Create tables and a pipeline; change the tables and refresh, three times."""
    rng = random.Random(4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create(folder, rng)
        for number in range(3):
            app(["pipeline", "refresh", str(folder / "shop.toml")], standalone_mode=False)
            check(folder)
            if number < 2:
                change(folder, rng, first=(number + 1) * 1000)
        print("After each refresh, the tables were equal to the views.")


def create(folder: Path, rng: random.Random) -> None:
    """Write the files of the pipeline, and the first rows of the tables."""
    (folder / "sql").mkdir()
    (folder / "sql" / "silver.sql").write_text(SILVER)
    (folder / "sql" / "gold.sql").write_text(GOLD)
    (folder / "shop.toml").write_text(PIPELINE)
    cities = [rng.choice(CITIES) for _ in range(100)]
    write_deltalake(folder / "customers", pa.table({"id": list(range(100)), "city": cities}))
    write_deltalake(folder / "orders", orders(rng, 0, 1000))


def change(folder: Path, rng: random.Random, first: int) -> None:
    """Insert orders, delete and correct others; a customer moves."""
    write_deltalake(folder / "orders", orders(rng, first, 20), mode="append")
    DeltaTable(folder / "orders").delete(f"nr < {first // 100}")
    DeltaTable(folder / "orders").update(
        predicate=f"nr = {first - 1}", updates={"worth": "worth + 1"}
    )
    DeltaTable(folder / "customers").update(predicate="id = 7", updates={"city": "'Ghent'"})


def orders(rng: random.Random, first: int, count: int) -> pa.Table:
    """Return new orders."""
    return pa.table(
        {
            "nr": list(range(first, first + count)),
            "customer": [rng.randrange(100) for _ in range(count)],
            "worth": [rng.randrange(1, 1000) for _ in range(count)],
        }
    )


def check(folder: Path) -> None:
    """Compare the target tables with the views, computed again."""
    city_of = {row["id"]: row["city"] for row in read(folder / "customers")}
    lines = [(row["nr"], row["worth"], city_of[row["customer"]]) for row in read(folder / "orders")]
    number = Counter(city for _, _, city in lines)
    worth: Counter[str] = Counter()
    for _, amount, city in lines:
        worth[city] += amount
    cities = [(city, number[city], worth[city]) for city in number]
    assert sorted(tuple(row.values()) for row in read(folder / "lake" / "lines")) == sorted(lines)
    assert sorted(tuple(row.values()) for row in read(folder / "lake" / "cities")) == sorted(cities)


def read(path: Path) -> list[dict[str, object]]:
    """Return the rows of a Delta table."""
    rows: list[dict[str, object]] = pa.table(DeltaTable(path).to_pyarrow_table()).to_pylist()
    return rows


if __name__ == "__main__":
    main()
