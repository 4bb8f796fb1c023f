"""A database on a simulated disk: no crash or error loses, doubles or half applies a step."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from circuits import BrokenCircuitError
from streaming import Database, DatabaseError, StreamingError
from tests.support.simulated_files import Crash, Fault, SimulatedDisk
from tests.support.simulation import seeds

TEXT = """
    CREATE TABLE t (k BIGINT PRIMARY KEY, s TEXT);
    CREATE TABLE u (k BIGINT, n BIGINT);
    CREATE VIEW v AS SELECT s, count(*) AS c, sum(n) AS total FROM t JOIN u USING (k) GROUP BY s;
"""
STEPS = 8


def rows_of_step(number: int) -> tuple[list[dict], list[dict]]:
    texts = [{"k": k % 5, "s": f"text {k % 3} {number // 4}"} for k in (number, number + 2)]
    return texts, [{"k": number % 5, "n": number}]


def expected_view(steps: int) -> Counter:
    texts: dict[int, str] = {}
    numbers = []
    for step in range(steps):
        changed, added = rows_of_step(step)
        texts |= {row["k"]: row["s"] for row in changed}
        numbers += [(row["k"], row["n"]) for row in added]
    groups: dict[str, list[int]] = {}
    for k, n in numbers:
        if k in texts:
            groups.setdefault(texts[k], []).append(n)
    return Counter((s, len(ns), sum(ns)) for s, ns in groups.items())


def check(db: Database) -> None:
    rows = Counter(tuple(row.values()) for row in db.view("v").to_pylist())
    assert rows == expected_view(db.version), db.version


def play(seed: int) -> None:
    random, disk = Random(f"database {seed}"), SimulatedDisk(seed)
    acknowledged, lives, db = 0, 0, None
    while acknowledged < STEPS:
        if not disk.has_planned_fault and lives < 12 and random.random() < 0.6:
            kind = random.choice(("power", "kill", "error", "full"))
            when = random.choice(("before", "during", "after"))
            disk.plan(Fault(random.randrange(30), kind, when))
        try:
            if db is None:
                lives += 1
                db = Database(TEXT, path=disk.files())
                check(db)
                assert acknowledged <= db.version <= acknowledged + 1, "a step was lost or doubled"
                acknowledged = db.version
                continue
            texts, numbers = rows_of_step(acknowledged)
            with db.transaction():
                db.upsert("t", texts)
                db.insert("u", numbers)
            acknowledged += 1
            assert db.version == acknowledged
            check(db)
        except Crash:
            db = None
        except (StreamingError, BrokenCircuitError) as error:
            assert not isinstance(error, DatabaseError), error
            assert disk.struck, "an error without a cause"
            disk.tidy()
            if db is not None and random.random() < 0.5:
                db.close()  # else the same object goes on
                db = None
            elif db is not None and db.version > acknowledged:
                acknowledged = db.version
        if db is not None and not disk.has_planned_fault:
            check(db)
            acknowledged = max(acknowledged, db.version)
    disk.plan(None)
    if db is None:
        db = Database(TEXT, path=disk.files())
    assert db.version == STEPS
    check(db)
    db.close()


@pytest.mark.parametrize("part", range(2))
def test_no_crash_or_error_loses_or_doubles_a_step(part):
    for seed in list(seeds(120))[part::2]:
        play(seed)
