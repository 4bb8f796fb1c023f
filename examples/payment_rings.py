"""Rings of payments: money that returns to its first account within a day, over 3 to 6 accounts.

Spark reads the payments as files of three hours each. There is one view for each length of a ring,
a cyclic join of that many payments, and a custom target prints the alerts. Payments expire after
two days, so the state does not grow. The generator hides rings among the payments, which the views
must find, all of them and at once. It also hides similar patterns, which the views must not find:
rings that take too long, rings whose payments are in the wrong order of time, and rings that never
close.

::

    python examples/payment_rings.py
"""

from __future__ import annotations

import os
import random
import tempfile
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from circuits import InputOptions, Retention, compile_datalog
from streaming import ViewDelta, ViewSink, start_session

HOUR, DAY = 3_600, 86_400  # seconds
DAY_COUNT = 4
FILE_SECONDS = 3 * HOUR  # of payments in one file
LENGTHS = range(3, 7)


class Payment(NamedTuple):
    """A payment from one account to another; the time is in seconds."""

    payer: int
    payee: int
    ts: int


PAY = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in Payment._fields])


def ring_rule(length: int) -> str:
    """Return the rule for rings of a length: payments in order of time, by different accounts.

    >>> print(ring_rule(3))
    ring3(a, b, c, t1, t3) :-
        pay(a, b, t1), pay(b, c, t2), pay(c, a, t3),
        t1 < t2, t2 < t3, t3 <= t1 + 86400, a <> b, a <> c, b <> c.
    """
    accounts = "abcdef"[:length]
    times = [f"t{i}" for i in range(1, length + 1)]
    columns = zip(accounts, accounts[1:] + accounts[0], times, strict=True)
    payments = ", ".join(f"pay({payer}, {payee}, {time})" for payer, payee, time in columns)
    conditions = [
        *(f"{earlier} < {later}" for earlier, later in pairwise(times)),
        f"{times[-1]} <= t1 + {DAY}",
        *(f"{a} <> {b}" for a, b in combinations(accounts, 2)),
    ]
    head = ", ".join([*accounts, "t1", times[-1]])
    return f"ring{length}({head}) :-\n    {payments},\n    {', '.join(conditions)}."


class Alerts:
    """A target that prints rings when they close; it prints a ring once, even after a replay."""

    def __init__(self) -> None:
        self.rings: set[tuple[int, ...]] = set()

    def write(self, delta: ViewDelta) -> None:
        """Print the inserted rows of a view; deleted rows have only expired."""
        for row in delta.table.to_pylist():
            *accounts, first, last = [row[name] for name in row if name != "weight"]
            if row["weight"] > 0 and tuple(accounts) not in self.rings:
                self.rings.add(tuple(accounts))
                chain = " → ".join(map(str, [*accounts, accounts[0]]))
                day, hour = divmod(last // HOUR, 24)
                took = (last - first) / HOUR
                print(f"day {day} {hour:2} h  ALERT  {chain}  in {took:.1f} h")


def main() -> None:
    """Hide rings in four days of payments, stream them, and compare the alerts with the rings."""
    payments, planted = plant(random.Random(5))
    circuit = compile_datalog(
        "\n".join(map(ring_rule, LENGTHS)),
        {"pay": PAY},
        input_options={"pay": InputOptions(retain=Retention("ts", 2 * DAY, on_expiry="retract"))},
    )
    alerts = Alerts()
    spark = start_session("payment rings")
    with tempfile.TemporaryDirectory() as directory:
        write_files(payments, Path(directory, "in"))
        query = (
            spark.readStream.schema("payer long, payee long, ts long")
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{directory}/in")
            .writeStream.foreachBatch(ViewSink(circuit, alerts))
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    print(f"{len(payments):,} payments, {len(planted)} rings planted, {len(alerts.rings)} found.")
    assert alerts.rings == planted, alerts.rings ^ planted


def plant(rng: random.Random) -> tuple[list[Payment], set[tuple[int, ...]]]:
    """Generate payments in order of time, and the rings among them; a ring begins at its payer.

    Other payments have one direction, from people (0-1999) to shops (2000-2099) to suppliers
    (2100-2119), so the only rings are the planted ones, among the accounts from 3000 on.
    """
    payments = []
    for _ in range(5_000):
        ts = rng.randrange(DAY_COUNT * DAY)
        person, shop = rng.randrange(2_000), rng.randrange(2_000, 2_100)
        payments.append(Payment(person, shop, ts))
        if rng.random() < 0.3:
            payments.append(Payment(shop, rng.randrange(2_100, 2_120), ts + 60))
    planted = set()
    account = 3_000
    for length in LENGTHS:
        for kind in ("ring", "ring", "ring", "slow", "backwards", "open"):
            accounts = [account + i for i in range(length)]
            account += length
            span = DAY if kind != "slow" else DAY + HOUR
            start = rng.randrange((DAY_COUNT - 2) * DAY)
            between = rng.sample(range(start + 1, start + span), length - 2)
            times = sorted([start, *between, start + span])  # the longest time that the rule allows
            if kind == "backwards":
                times.reverse()
            payees = [*accounts[1:], accounts[0]]
            ring = [*map(Payment, accounts, payees, times)]
            payments += ring[:-1] if kind == "open" else ring
            if kind == "ring":
                planted.add(tuple(accounts))
            # The accounts also receive payments from people, and pay shops.
            payments += [Payment(rng.randrange(2_000), a, start) for a in accounts]
            payments += [Payment(a, rng.randrange(2_000, 2_100), start + 2) for a in accounts]
    return sorted(payments, key=lambda payment: payment.ts), planted


def write_files(payments: list[Payment], directory: Path) -> None:
    """Write one file for every three hours; Spark reads the oldest file first."""
    directory.mkdir()
    for number, (_, group) in enumerate(
        groupby(payments, lambda payment: payment.ts // FILE_SECONDS)
    ):
        rows = [payment._asdict() for payment in group]
        path = directory / f"{number:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, PAY), path)
        os.utime(path, (number, number))


if __name__ == "__main__":
    main()
