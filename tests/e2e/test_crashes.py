"""Drivers that are killed with SIGKILL continue in a new process without lost or extra rows."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming import ViewSink
from tests.oracles.naive_plan import sum_weights
from tests.support.crash_driver import SCHEMA, views
from tests.support.tables import bag_of

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120  # for the end of a driver
CITIES = ["Ulm", "Köln", "Rome", None]
POINTS = [
    ("sink", "before"),
    ("write_outputs", "before"),
    ("write_outputs", "during"),
    ("write_outputs", "after"),
    ("write_data", "before"),
    ("write_data", "during"),
    ("write_data", "after"),
    ("rename", "before"),
    ("rename", "after"),
    ("target_paths", "before"),
    ("target_paths", "during"),
    ("target_cities", "after"),
    ("target_far", "before"),
    ("target_far", "after"),
    ("spark", "before"),
    ("spark", "after"),
]
QUICK_POINTS = [
    ("write_data", "during"),
    ("rename", "before"),
    ("rename", "after"),
    ("spark", "before"),
]


class History:
    """Micro-batches of changes, and what the views are after each, by loops over rows."""

    def __init__(self, batches: int, seed: str) -> None:
        random = Random(seed)
        live: list[tuple[int, int, str | None]] = []
        self.changes: list[list[tuple[int, int, str | None, int]]] = []
        self.views: list[dict[str, Counter]] = []
        for _ in range(batches):
            change = []
            for _ in range(random.randrange(1, 9)):
                if live and random.random() < len(live) / 60:
                    change.append((*live.pop(random.randrange(len(live))), -1))
                else:
                    row = (random.randrange(8), random.randrange(8), random.choice(CITIES))
                    live.append(row)
                    change.append((*row, 1))
            self.changes.append(change)
            self.views.append(compute_views(live))

    def after(self, batch: int) -> dict[str, Counter]:
        return self.views[batch] if batch >= 0 else compute_views([])

    def delta(self, view: str, batch: int) -> Counter:
        new, old = self.after(batch)[view], self.after(batch - 1)[view]
        return sum_weights([*new.items(), *((row, -n) for row, n in old.items())])

    def write(self, folder: Path) -> None:
        """Write a file for each micro-batch; Spark reads them in the order of their times."""
        folder.mkdir()
        for batch in range(len(self.changes)):
            path = folder / f"{batch}.parquet"
            pq.write_table(self.table(batch), path)
            os.utime(path, (10**9 + batch,) * 2)

    def table(self, batch: int) -> pa.Table:
        fields = [*SCHEMA, pa.field("weight", pa.int64())]
        columns = zip(*self.changes[batch], strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def compute_views(live: list[tuple[int, int, str | None]]) -> dict[str, Counter]:
    paths = Counter((a, d) for a, b, _ in live for c, d, _ in live if b == c)
    groups: dict[str | None, list[int]] = {}
    for src, _, city in live:
        groups.setdefault(city, []).append(src)
    cities = Counter((city, len(sources), sum(sources)) for city, sources in groups.items())
    return {"paths": paths, "cities": cities, "far": Counter((d, c) for s, d, c in live if s > 4)}


class Driver:
    """A process group of a driver and its JVM, started ahead of time."""

    def __init__(self, place: Path) -> None:
        self._log = place / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.crash_driver", str(place)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def run(self, point: str = "") -> None:
        """Wait until Spark has started, and let the query run."""
        self.expect("ready")
        self.process.stdin.write(f"{point}\n")
        self.process.stdin.flush()
        self.expect("running")

    def expect(self, word: str) -> None:
        line = self.process.stdout.readline().strip()
        assert line == word, f"{line!r} instead of {word!r}: {self.output()}"

    def output(self) -> str:
        """Return the end of the standard error of all drivers so far."""
        return self._log.read_text()[-3000:]

    def wait(self) -> int:
        """Wait for the end of the driver; return its exit status."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class Crashes:
    """A history, the place where a query runs over it, and drivers one after another."""

    def __init__(self, place: Path, batches: int, seed: str) -> None:
        self.place = place
        self.history = History(batches, seed)
        self.history.write(place / "in")
        self._drivers = [Driver(place)]

    def driver(self, *, last: bool = False) -> Driver:
        """Return the newest driver, after starting the next one if there is a next one."""
        if last:
            return self._drivers[-1]
        self._drivers.append(Driver(self.place))
        return self._drivers[-2]

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()

    def newest(self) -> int:
        names = (self.place / "state" / "manifests").glob("*.json")
        return max((int(path.stem) for path in names), default=-1)

    def check(self) -> int:
        """Check that state and targets are those of the history; return the newest version."""
        newest = self.newest()
        if newest < 0:
            return newest
        copy = self.place / "copy"
        shutil.copytree(self.place / "state", copy)
        with closing(ViewSink(views(), state_dir=copy)) as sink:
            for view, bag in self.history.after(newest).items():
                assert bag_of(sink.table(view)) == bag
        shutil.rmtree(copy)
        for deltas in (self.lake("paths"), self.sql_deltas()):
            # Only the delta of the newest version may be missing in the targets.
            expected = {b: self.history.delta("paths", b) for b in range(newest + 1)}
            all_deltas = {b: delta for b, delta in expected.items() if delta}
            without_newest = {b: delta for b, delta in all_deltas.items() if b < newest}
            assert deltas in (all_deltas, without_newest), f"micro-batches {sorted(deltas)}"
        upserts = self.sql_upserts()
        assert upserts in [self.history.after(b)["cities"] for b in (newest - 1, newest)]
        for batch, rows in self.calls():
            assert Counter(rows) == Counter(
                (*row, n) for row, n in self.history.delta("far", batch).items()
            )
        return newest

    def check_end(self) -> None:
        """Check that all micro-batches are committed, in the state, the targets and Spark's log."""
        last = len(self.history.changes) - 1
        assert self.check() == last
        assert {batch for batch, _ in self.calls()} == set(range(last + 1))
        for deltas in (self.lake("paths"), self.sql_deltas()):
            total = sum_weights(item for delta in deltas.values() for item in delta.items())
            assert total == self.history.after(last)["paths"]
        assert self.sql_upserts() == self.history.after(last)["cities"]
        commits = self.place / "checkpoint" / "commits"
        assert max(int(p.name) for p in commits.iterdir() if p.name.isdecimal()) == last

    def lake(self, view: str) -> dict[int, Counter]:
        folder = self.place / "lake" / view
        if not folder.is_dir():
            return {}
        return deltas_by_batch(tuple(row.values()) for row in pq.read_table(folder).to_pylist())

    def sql_deltas(self) -> dict[int, Counter]:
        rows = self.sql("SELECT batch_id, src, dst, weight FROM paths")
        return deltas_by_batch(rows)

    def sql_upserts(self) -> Counter:
        return Counter(self.sql("SELECT city, n, total FROM cities"))

    def sql(self, text: str) -> list[tuple]:
        path = self.place / "views.db"
        if not path.is_file():
            return []
        with closing(sqlite3.connect(path)) as connection:
            try:
                return connection.execute(text).fetchall()
            except sqlite3.OperationalError as error:
                assert "no such table" in str(error)
                return []

    def calls(self) -> Iterator[tuple[int, list[tuple]]]:
        path = self.place / "calls.jsonl"
        for line in path.read_text().split("\n") if path.is_file() else []:
            # A process that is killed may leave a part of a line.
            if re.fullmatch(r"\[\d+, \[.*\]\]", line):
                batch, rows = json.loads(line)
                yield batch, [tuple(row) for row in rows]


def deltas_by_batch(rows) -> dict[int, Counter]:
    """Return the delta of each micro-batch; a row that is there twice is an error."""
    deltas: dict[int, Counter] = {}
    for batch, *row, weight in rows:
        delta = deltas.setdefault(batch, Counter())
        assert tuple(row) not in delta, f"micro-batch {batch} has {row} twice"
        delta[tuple(row)] = weight
    return deltas


@pytest.fixture
def crashes(tmp_path):
    runs: list[Crashes] = []

    def start(batches: int, seed: str) -> Crashes:
        runs.append(Crashes(tmp_path, batches, seed))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def kill_at(crashes: Crashes, points: list[tuple[str, str]]) -> None:
    """Kill a driver at each point, each in a micro-batch of its own, and let the last one end."""
    for number, (call, when) in enumerate(points):
        batch = 2 * number + 1
        driver = crashes.driver()
        driver.run(f"{call} {when} {batch}")
        assert driver.wait() == -signal.SIGKILL, f"not killed {when} {call}"
        newest = crashes.check()
        assert newest in (batch - 1, batch), f"{when} {call}"
    driver = crashes.driver(last=True)
    driver.run()
    driver.expect("done")
    assert driver.wait() == 0
    crashes.check_end()


@pytest.mark.spark
def test_a_driver_that_is_killed_continues_where_it_stopped(crashes):
    kill_at(crashes(2 * len(QUICK_POINTS) + 1, "short"), QUICK_POINTS)


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_may_be_killed_at_every_point_of_a_micro_batch(crashes):
    kill_at(crashes(2 * len(POINTS) + 1, "matrix"), POINTS)


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_may_be_killed_at_any_instant_of_a_long_run(crashes):
    seed = os.environ.get("DBSP_WCOJ_SEED", str(time.time_ns()))
    random = Random(seed)
    run = crashes(200, seed)
    print("seed", seed)  # pytest shows it when the test fails
    for batch in sorted(random.sample(range(198), 20)):
        driver = run.driver()
        driver.run()
        while run.newest() < batch:
            assert driver.process.poll() is None, driver.output()
            time.sleep(0.002)
        time.sleep(random.random() * 0.15)
        assert driver.process.poll() is None, driver.output()
        driver.kill()
        run.check()
    driver = run.driver(last=True)
    driver.run()
    driver.expect("done")
    assert driver.wait() == 0
    run.check_end()
