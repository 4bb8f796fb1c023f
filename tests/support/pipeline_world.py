"""A pipeline over a Delta table and a folder of Parquet files that change, and its right answer."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

ORDERS = pa.schema({"nr": pa.int64(), "customer": pa.int64(), "worth": pa.int64()})
CUSTOMERS = pa.schema({"id": pa.int64(), "city": pa.string()})
SQL = {
    "b_gold.sql": """
-- Reads a view of another file.
CREATE MATERIALIZED VIEW cities AS
SELECT city, count(*) AS n, sum(worth) AS worth FROM lines GROUP BY city
""",
    "nested/a_silver.sql": """
CREATE MATERIALIZED VIEW lines AS
SELECT o.nr, o.worth, c.city FROM orders o JOIN customers c ON c.id = o.customer;
CREATE MATERIALIZED VIEW strangers AS
SELECT nr FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer) -- end
""",
}
PIPELINE = """
query = "sql"
[inputs.orders]
path = "orders"
schema = "nr long, customer long, worth long"
removed_files = "delete"
[inputs.customers]
path = "customers"
[[outputs]]
view = "cities"
target = "delta"
path = "lake/cities"
keys = ["city"]
[[outputs]]
view = "lines"
target = "parquet"
path = "lake/lines"
mode = "delta"
[[outputs]]
target = "delta"
path = "lake/{view}"
[state]
path = "state"
"""


class PipelineWorld:
    """The files of a pipeline, and their changes; a function of the seed.

    Args:
        folder: The folder of the pipeline.
        has_feed: True if the Delta table has a change data feed.
    """

    def __init__(self, folder: Path, *, has_feed: bool = False) -> None:
        self.folder = folder
        self._has_feed = has_feed

    @property
    def file(self) -> Path:
        return self.folder / "shop.toml"

    def create(self) -> None:
        import deltalake

        for name, text in SQL.items():
            path = self.folder / "sql" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.file.write_text(PIPELINE)
        (self.folder / "orders").mkdir()
        deltalake.write_deltalake(
            self.folder / "customers",
            pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]}),
            configuration={"delta.enableChangeDataFeed": str(self._has_feed).lower()},
        )
        self.state_file.write_text(json.dumps({"next": 1, "files": []}))

    @property
    def state_file(self) -> Path:
        return self.folder / "world.json"

    def change(self, random: Random) -> None:
        """Change the tables."""
        import deltalake

        world = json.loads(self.state_file.read_text())
        for _ in range(random.randint(1, 3)):
            number = world["next"]
            kind = random.choice(["file", "file", "remove", "append", "update", "delete"])
            if kind == "file":
                rows = [
                    (number * 10 + i, random.randint(1, 4), random.randint(1, 9)) for i in range(3)
                ]
                columns = zip(*rows, strict=True)
                table = pa.table([pa.array(c) for c in columns], schema=ORDERS)
                file = self.folder / "orders" / f"{number}.parquet"
                pq.write_table(table, file)
                os.utime(file, (number, number))
                world["files"].append(number)
            elif kind == "remove" and world["files"]:
                removed = world["files"].pop(random.randrange(len(world["files"])))
                (self.folder / "orders" / f"{removed}.parquet").unlink()
            customers = deltalake.DeltaTable(self.folder / "customers")
            if kind == "append":
                row = pa.table({"id": [random.randint(1, 4)], "city": [random.choice(CITIES)]})
                if row.column("id")[0].as_py() not in ids(customers):
                    deltalake.write_deltalake(self.folder / "customers", row, mode="append")
            elif kind == "update":
                city = f"'{random.choice(CITIES)}'"
                customers.update(predicate=f"id = {random.randint(1, 4)}", updates={"city": city})
            elif kind == "delete":
                customers.delete(f"id = {random.randint(1, 4)}")
            world["next"] = number + 1
        self.state_file.write_text(json.dumps(world))

    def expected(self) -> dict[str, Counter]:
        """Return the rows of the views, computed in Python."""
        import deltalake

        files = (self.folder / "orders").glob("*.parquet")
        orders = [row for file in files for row in pq.read_table(file).to_pylist()]
        table = deltalake.DeltaTable(self.folder / "customers").to_pyarrow_table()
        city_of = {row["id"]: row["city"] for row in table.to_pylist()}
        lines: Counter = Counter()
        strangers: Counter = Counter()
        cities: dict[str, list[int]] = {}
        for order in orders:
            city = city_of.get(order["customer"])
            if city is None:
                strangers[order["nr"],] += 1
                continue
            lines[order["nr"], order["worth"], city] += 1
            cities.setdefault(city, []).append(order["worth"])
        totals = Counter((city, len(worths), sum(worths)) for city, worths in cities.items())
        return {"lines": lines, "strangers": strangers, "cities": totals}

    def actual(self) -> dict[str, Counter]:
        """Return the rows of the target tables."""
        import deltalake

        views = {}
        for view in ("strangers", "cities"):
            table = deltalake.DeltaTable(self.folder / "lake" / view).to_pyarrow_table()
            views[view] = Counter(tuple(row.values()) for row in table.to_pylist())
        lines: Counter = Counter()
        for file in (self.folder / "lake" / "lines").glob("[!.]*.parquet"):
            for row in pq.read_table(file, partitioning=None).to_pylist():
                lines[row["nr"], row["worth"], row["city"]] += row["weight"]
        views["lines"] = Counter({row: n for row, n in lines.items() if n})
        return views


CITIES = ["Rome", "Oslo", "Bari"]


def ids(table) -> set[int]:
    return set(table.to_pyarrow_table().column("id").to_pylist())
