"""Recommendations from the likes of the last hour: items that two followed people both like.

The pattern is a diamond: a person follows two others, and both like the same item. One join of four
relations finds it, not a sequence of binary joins. Likes expire after an hour, and with them the
recommendations that depend on them. Items that a person already likes are not recommended.

::

    python examples/live_recommendation.py
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from itertools import combinations

import pyarrow as pa

from circuits import InputOptions, Retention, compile_sql

PEOPLE, ITEMS, HOUR_S, MAX_ITEMS = 400, 60, 3600, 3

SCHEMAS = {
    "follows": pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("who", "whom")]),
    "likes": pa.schema(
        [pa.field(name, pa.int64(), nullable=False) for name in ("who", "item", "ts")]
    ),
}
VIEWS = f"""
    CREATE VIEW liked AS SELECT DISTINCT who, item FROM likes;

    CREATE VIEW diamonds AS
        SELECT f1.who AS person, l1.item, count(*) AS n
        FROM follows f1
        JOIN follows f2 ON f2.who = f1.who AND f2.whom > f1.whom
        JOIN liked l1 ON l1.who = f1.whom
        JOIN liked l2 ON l2.who = f2.whom AND l2.item = l1.item
        WHERE NOT EXISTS (SELECT 1 FROM liked own WHERE own.who = f1.who AND own.item = l1.item)
        GROUP BY f1.who, l1.item;

    CREATE VIEW recommended AS
        SELECT person, item, n FROM diamonds
        QUALIFY row_number() OVER (PARTITION BY person ORDER BY n DESC, item) <= {MAX_ITEMS}
"""


def main(minutes: int = 180) -> None:
    """Insert likes minute by minute, print the changes for one person, and compare regularly."""
    circuit = compile_sql(
        VIEWS,
        SCHEMAS,
        input_options={"likes": InputOptions(retain=Retention("ts", HOUR_S, on_expiry="retract"))},
        outputs=["recommended"],
        materialize=["recommended"],
    )
    rng = random.Random(3)
    follows = {
        (who, whom)
        for who in range(PEOPLE)
        for whom in rng.sample(range(PEOPLE), 12)
        if who != whom
    }
    who, whom = zip(*sorted(follows), strict=True)
    circuit.step({"follows": pa.table({"who": who, "whom": whom})})

    printed_person, likes, seconds = 0, [], []
    for minute in range(minutes):
        new = [
            (rng.randrange(PEOPLE), int(ITEMS * rng.random() ** 2), 60 * minute) for _ in range(25)
        ]
        likes += new
        table = pa.table(dict(zip(("who", "item", "ts"), zip(*new, strict=True), strict=True)))
        start = time.perf_counter()
        delta = circuit.step({"likes": table})["recommended"]
        seconds.append(time.perf_counter() - start)
        for row in delta.to_pylist():
            if row["person"] == printed_person and minute < 40:
                sign, item = "+" if row["weight"] > 0 else "-", row["item"]
                print(f"minute {minute:3}  {sign} item {item:2}, by {row['n']} pairs of people")
        if minute % 20 == 19:
            live = {(who, item) for who, item, ts in likes if ts >= 60 * minute - HOUR_S}
            rows = circuit.views["recommended"].to_pylist()
            recommended = {(row["person"], row["item"], row["n"]) for row in rows}
            assert recommended == recompute(follows, live), f"minute {minute} differs"

    print(f"{len(follows):,} follow; {len(likes):,} likes in {minutes} minutes.")
    count, median_ms = circuit.views["recommended"].num_rows, 1000 * statistics.median(seconds)
    print(f"{count:,} recommendations now; a minute's likes took {median_ms:.1f} ms.")


def recompute(
    follows: set[tuple[int, int]], liked: set[tuple[int, int]]
) -> set[tuple[int, int, int]]:
    """Compute the recommendations from every pair of people that a person follows."""
    items: dict[int, set[int]] = {}
    for who, item in liked:
        items.setdefault(who, set()).add(item)
    followed: dict[int, list[int]] = {}
    for who, whom in follows:
        followed.setdefault(who, []).append(whom)
    recommended = set()
    for person, followed_people in followed.items():
        counts = Counter(
            item
            for first, second in combinations(followed_people, 2)
            for item in items.get(first, set()) & items.get(second, set())
            if item not in items.get(person, set())
        )
        best_items = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_ITEMS]
        recommended.update((person, item, n) for item, n in best_items)
    return recommended


if __name__ == "__main__":
    main()
