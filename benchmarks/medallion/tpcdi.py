"""Measures refreshes of views in the manner of TPC-DI, against Spark that computes them again.

Claim: after a day of changes, a refresh of the eight views of ``tpcdi.sql`` takes less time than
their recomputation by Spark, with durable state, from Delta tables to Delta tables.

Input: generated tables of a broker, in the manner of the data integration benchmark TPC-DI [1], not
its data: change events of customers and accounts, trades, cash transactions, and daily prices. The
views keep all versions of customers and accounts (slowly changing dimensions of type 2), join each
trade with the versions of its time, and have running balances and the extremes of 52 weeks. A day
adds events for 0.5 % of the customers and accounts, and as many trades, cash transactions and
prices as each day before. After each refresh, Spark computes all views from all rows, and the rows
of the target tables are compared with its rows. Spark writes Parquet files, not Delta tables.

References:
    [1] Poess, Rabl, Jacobsen, Caufield. TPC-DI: the first industry benchmark for data integration.
        PVLDB 7(13), 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

import dbsp_wcoj
from benchmarks.medallion.lakehouse import RefreshCost, RefreshedLake
from benchmarks.medallion.measurement import compare_targets, medians_of
from benchmarks.medallion.recompute import Recomputation, SparkRecomputation
from benchmarks.parts import PartsRun, open_run
from benchmarks.result import Result, Row
from circuits.sql import view_statements

CLAIM: Final = (
    "After a day of changes, a refresh of eight views in the manner of TPC-DI takes less time than "
    "their recomputation by Spark, from Delta tables to Delta tables"
)
REFRESHES: Final = "Refreshes of views in the manner of TPC-DI"
SQL: Final = Path(__file__).with_name("tpcdi.sql")
#: The key of the table of each view.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "dim_customer": ("version",),
    "dim_account": ("version",),
    "fact_trade": ("id",),
    "fact_holdings": ("account", "symbol"),
    "fact_cash_balances": ("account", "day"),
    "fact_market_history": ("symbol", "day"),
    "gold_tiers": ("tier",),
    "gold_prospects": ("city",),
}
Integers = npt.NDArray[np.int64]
TABLES: Final = ("customers", "accounts", "trades", "cash", "market")
FIRST_DAYS: Final = 100
DAY_US: Final = 86_400_000_000
START_DAY: Final = 20_000
CITIES: Final = 50
SYMBOLS_PER_SCALE: Final = 500


class Broker:
    """The tables of a broker, day after day; a function of the seed.

    Args:
        seed: The seed of all values.
        scale: 1.0 for 10,000 customers, 20,000 accounts, and 2,000 trades a day.
    """

    def __init__(self, seed: int, scale: float) -> None:
        self._random = np.random.default_rng(seed)
        self._customers = max(20, int(10_000 * scale))
        self._trades_per_day = max(20, int(2_000 * scale))
        self._symbols = max(5, int(SYMBOLS_PER_SCALE * scale))
        self._seq = self._trade = self._day = 0

    def first_days(self) -> dict[str, pa.Table]:
        """Return the rows of the first days, in which all customers and accounts are created."""
        customers, accounts = np.arange(self._customers), np.arange(2 * self._customers)
        tables = {
            "customers": self._customer_events(customers, "c"),
            "accounts": self._account_events(accounts, "c"),
        }
        self._day = 1
        days = [self._facts() for _ in range(FIRST_DAYS)]
        return tables | {name: pa.concat_tables([day[name] for day in days]) for name in days[0]}

    def next_day(self) -> dict[str, pa.Table]:
        """Return the rows of one more day."""
        pick = self._random.choice
        changed = pick(self._customers, max(2, self._customers // 200), replace=False)
        accounts = pick(2 * self._customers, max(4, self._customers // 100), replace=False)
        tables = {
            "customers": self._customer_events(changed[1:], "u"),
            "accounts": pa.concat_tables(
                [
                    self._account_events(accounts[2:], "u"),
                    self._account_events(accounts[:2], "d"),
                ]
            ),
        }
        return tables | self._facts()

    def _events(self, ids: Integers, operation: str) -> dict[str, pa.Array]:
        self._seq += len(ids)
        times = (START_DAY + self._day) * DAY_US + self._random.integers(0, DAY_US // 2, len(ids))
        return {
            "seq": pa.array(np.arange(self._seq - len(ids), self._seq)),
            "op": pa.array([operation] * len(ids)),
            "changed_at": pa.array(times, pa.timestamp("us", "UTC")),
            "id": pa.array(ids),
        }

    def _customer_events(self, ids: Integers, operation: str) -> pa.Table:
        cities = self._random.integers(0, CITIES, len(ids))
        columns = self._events(ids, operation)
        columns["tier"] = pa.array(self._random.integers(1, 4, len(ids)))
        columns["city"] = pa.array([f"city {city}" for city in cities])
        return pa.table(columns)

    def _account_events(self, ids: Integers, operation: str) -> pa.Table:
        columns = self._events(ids, operation)
        columns["customer"] = pa.array(self._random.integers(0, self._customers, len(ids)))
        columns["broker"] = pa.array(self._random.integers(0, 100, len(ids)))
        return pa.table(columns)

    def _facts(self) -> dict[str, pa.Table]:
        """Return the trades, cash transactions and prices of a day."""
        count, day = self._trades_per_day, START_DAY + self._day
        self._trade, self._day = self._trade + count, self._day + 1
        integers = self._random.integers
        days = pa.array(np.full(count, day, np.int32)).cast(pa.date32())
        lows = integers(100, 1_000, self._symbols)
        return {
            "trades": pa.table(
                {
                    "id": np.arange(self._trade - count, self._trade),
                    "traded_at": pa.array(
                        day * DAY_US + np.sort(integers(0, DAY_US, count)),
                        pa.timestamp("us", "UTC"),
                    ),
                    "account": integers(0, 2 * self._customers, count),
                    "symbol": integers(0, self._symbols, count),
                    "quantity": integers(-100, 100, count),
                    "price": integers(100, 1_000, count),
                }
            ),
            "cash": pa.table(
                {
                    "account": integers(0, 2 * self._customers, count),
                    "day": days,
                    "amount": integers(-10_000, 10_000, count),
                }
            ),
            "market": pa.table(
                {
                    "symbol": np.arange(self._symbols),
                    "day": days.slice(0, 1).take(pa.array(np.zeros(self._symbols, np.int64))),
                    "close": lows + 10,
                    "high": lows + integers(10, 50, self._symbols),
                    "low": lows,
                }
            ),
        }


class BrokerLake(RefreshedLake):
    """Source tables and target tables of the broker.

    Args:
        folder: An empty folder.
        seed: The seed of the rows.
        scale: As in `Broker`.
    """

    def __init__(self, folder: Path, seed: int, scale: float) -> None:
        super().__init__(folder, "tpcdi.toml")
        self._broker = Broker(seed, scale)

    def open(self) -> None:
        """Write the first rows and the pipeline file."""
        lines = [f'query = "{SQL}"', '[state]\npath = "state"', '[run]\ndialect = "spark"']
        lines += [f'[inputs.{name}]\npath = "tables/{name}"' for name in TABLES]
        for view, keys in KEYS.items():
            lines.append(f'[[outputs]]\nview = "{view}"\ntarget = "delta"\npath = "lake/{view}"')
            lines.append(f"keys = {list(keys)}")
        self.pipeline_file.write_text("\n".join(lines))
        self.append(self._broker.first_days())

    def append_day(self) -> int:
        """Append the rows of one more day; return their number."""
        tables = self._broker.next_day()
        self.append(tables)
        return sum(table.num_rows for table in tables.values())


def main(
    scale: Annotated[float, typer.Option(help="1.0 for 200,000 trades at first.")] = 1.0,
    days: Annotated[int, typer.Option(min=1, help="The days; one refresh for each.")] = 3,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure; exit status 1 if a table is wrong."""
    result = Result("tpcdi_refresh", CLAIM, {})
    dbsp_wcoj.warm_up()
    with open_run("tpcdi_refresh", (), seed=seed, json=json) as run:
        spark = SparkRecomputation(run.start_spark(), run.folder / "spark", read_queries())
        result.tables[REFRESHES] = measure(run, spark, days=days, scale=scale)
        run.verdict.close(result, json)


def read_queries() -> dict[str, str]:
    """Return the query of each view, after those that it reads."""
    return {view.name: view.query for view in view_statements(SQL.read_text(), "spark")}


def measure(run: PartsRun, recomputation: Recomputation, *, days: int, scale: float) -> list[Row]:
    """Refresh the views after each day; return the table."""
    (run.folder / "broker").mkdir()
    lake = BrokerLake(run.folder / "broker", run.seed, scale)
    lake.open()
    refreshes: list[RefreshCost] = []
    recomputations: list[float] = []
    with lake.open_pipeline() as pipeline:
        for day in range(days + 1):
            if day:
                lake.append_day()
            refreshes.append(lake.refresh(pipeline))
            recomputations.append(compare_targets(run, lake, recomputation, TABLES, f"day {day}"))
    return [
        _row("the first: all rows", refreshes[:1], recomputations[:1]),
        _row("one day (median)", refreshes[1:], recomputations[1:]),
    ]


def _row(name: str, refreshes: list[RefreshCost], recomputations: list[float]) -> Row:
    medians = medians_of(refreshes, recomputations)
    met = median(recomputations) > median(cost.whole.wall for cost in refreshes)
    return {"refresh": name, **medians, "met": met}


if __name__ == "__main__":
    typer.run(main)
