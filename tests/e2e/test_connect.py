"""The sink in Spark Connect, where the function of foreachBatch is pickled into another process."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from streaming import ViewSink
from tests.e2e.test_crashes import History, deltas_by_batch
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.sources.test_feed_reader import BATCHES as FEED_BATCHES
from tests.streaming.sources.test_feed_reader import CITIES
from tests.support.connect_feed_driver import read_cities
from tests.support.crash_driver import views
from tests.support.tables import bag_of

ROOT = Path(__file__).parents[2]
BATCHES = 4


class Run(NamedTuple):
    """Two runs of a client, each with a server of its own.

    Attributes:
        place: The folder of the views.
        history: The changes of the views; the second run has those of the second half.
        seen: The rows of a view after each run.
        feed_place: The folder of the feed, which the second run reads as well.
    """

    place: Path
    history: History
    seen: list[list[list[object]]]
    feed_place: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    place, feed_place = (tmp_path_factory.mktemp(name) for name in ("views", "feed"))
    history = History(BATCHES, "connect")
    history.write(place / "all")
    (place / "in").mkdir()
    (feed_place / "in").mkdir()
    for number, texts in enumerate(FEED_BATCHES):
        path = feed_place / "in" / f"{number}.txt"
        path.write_text("\n".join(texts))
        os.utime(path, (10**9 + number,) * 2)
    seen = []
    for until, places in ((BATCHES // 2, [place]), (BATCHES, [place, feed_place])):
        for number in range(until):
            path = place / "all" / f"{number}.parquet"
            if path.exists():
                shutil.move(path, place / "in" / path.name)
        seen.append(run_client(*places))
    return Run(place, history, seen, feed_place)


def run_client(*places: Path) -> list[list[object]]:
    """Run the queries to their end in a process of its own; return what its client saw."""
    completed = subprocess.run(
        [sys.executable, "-m", "tests.support.connect_driver", *map(str, places)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    seen = json.loads(completed.stdout.splitlines()[-1])
    assert seen["error"] == ""
    return seen["cities"]


@pytest.mark.spark
def test_a_query_in_spark_connect_continues_in_a_new_server_and_loses_no_row(run):
    place, history = run.place, run.history
    for until, cities in zip((BATCHES // 2, BATCHES), run.seen, strict=True):
        expected = history.after(until - 1)
        assert Counter(tuple(row[:-1]) for row in cities) == expected["cities"]
    with closing(ViewSink(views(), state_dir=place / "state")) as sink:
        for view, bag in history.after(BATCHES - 1).items():
            assert bag_of(sink.table(view)) == bag
    deltas = {n: history.delta("paths", n) for n in range(BATCHES)}
    rows = [tuple(row.values()) for row in pq.read_table(place / "lake" / "paths").to_pylist()]
    assert deltas_by_batch(rows) == {n: delta for n, delta in deltas.items() if delta}
    for number in range(BATCHES):
        rows = pq.read_table(place / "far" / str(number)).to_pylist()
        bag = Counter({tuple(row.values())[:-1]: row["weight"] for row in rows})
        assert bag == history.delta("far", number)


@pytest.mark.spark
def test_a_query_in_spark_connect_decodes_a_change_feed(run):
    assert sorted(read_cities(run.feed_place), key=lambda row: row["city"]) == CITIES
    letters = [*(run.feed_place / "state").joinpath("dead_letters").iterdir()]
    assert len(letters) == 1


def test_a_pickled_sink_finds_its_state_in_the_directory(tmp_path):
    history = History(3, "pickled")
    sink = ViewSink(views(), state_dir=tmp_path)
    for number in range(2):
        sink(Frame(history.table(number)), number)
    sink.close()
    other = pickle.loads(pickle.dumps(sink))
    other(Frame(history.table(2)), 2)
    for view, bag in history.after(2).items():
        assert bag_of(other.table(view)) == bag


def test_a_sink_without_a_directory_is_not_pickled():
    with pytest.raises(pickle.PicklingError, match=r"give ViewSink\(state_dir=\.\.\.\)"):
        pickle.dumps(ViewSink(views()))
