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

import pyarrow.parquet as pq
import pytest

from streaming import ViewSink
from tests.e2e.test_crashes import History, deltas_by_batch
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.sources.test_feed_reader import BATCHES as FEED_BATCHES
from tests.streaming.sources.test_feed_reader import CITIES
from tests.support.crash_driver import views
from tests.support.tables import bag_of

ROOT = Path(__file__).parents[2]
BATCHES = 4


def run(place: Path, driver: str = "connect_driver") -> dict:
    """Run the query to its end in a process of its own; return what its client saw."""
    completed = subprocess.run(
        [sys.executable, "-m", f"tests.support.{driver}", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.spark
def test_a_query_in_spark_connect_continues_in_a_new_server_and_loses_no_row(tmp_path):
    history = History(BATCHES, "connect")
    history.write(tmp_path / "all")
    (tmp_path / "in").mkdir()
    for until in (BATCHES // 2, BATCHES):
        for number in range(until):
            path = tmp_path / "all" / f"{number}.parquet"
            if path.exists():
                shutil.move(path, tmp_path / "in" / path.name)
        seen = run(tmp_path)
        assert seen["error"] == ""
        expected = history.after(until - 1)
        assert Counter(tuple(row[:-1]) for row in seen["cities"]) == expected["cities"]
    with closing(ViewSink(views(), state_dir=tmp_path / "state")) as sink:
        for view, bag in history.after(BATCHES - 1).items():
            assert bag_of(sink.table(view)) == bag
    deltas = {n: history.delta("paths", n) for n in range(BATCHES)}
    rows = [tuple(row.values()) for row in pq.read_table(tmp_path / "lake" / "paths").to_pylist()]
    assert deltas_by_batch(rows) == {n: delta for n, delta in deltas.items() if delta}
    for number in range(BATCHES):
        rows = pq.read_table(tmp_path / "far" / str(number)).to_pylist()
        bag = Counter({tuple(row.values())[:-1]: row["weight"] for row in rows})
        assert bag == history.delta("far", number)


@pytest.mark.spark
def test_a_query_in_spark_connect_decodes_a_change_feed(tmp_path):
    (tmp_path / "in").mkdir()
    for number, texts in enumerate(FEED_BATCHES):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text("\n".join(texts))
        os.utime(path, (10**9 + number,) * 2)
    seen = run(tmp_path, "connect_feed_driver")
    assert seen["error"] == ""
    assert sorted(seen["cities"], key=lambda row: row["city"]) == CITIES
    letters = [*(tmp_path / "state").joinpath("dead_letters").iterdir()]
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
