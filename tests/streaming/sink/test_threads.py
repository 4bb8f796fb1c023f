"""Reads of a sink during micro-batches: each read is the state after one of them."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from streaming import ViewSink
from streaming.ui.history import History
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import batch, check, expected, feed, sink_on, views, write_state
from tests.support.tables import bag_of

BATCHES = 12
TIMEOUT_S = 60.0


class SlowFrame:
    """A micro-batch whose rows can be read only after ``go_on`` is set."""

    def __init__(self, number: int) -> None:
        self._frame = Frame(batch(number), "q")
        self.is_reached, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)

    def toArrow(self) -> pa.Table:
        self.is_reached.set()
        assert self.go_on.wait(TIMEOUT_S)
        return self._frame.toArrow()


@pytest.mark.parametrize("durable", [True, False])
def test_views_are_those_before_the_micro_batch_that_runs(durable, tmp_path):
    state_dir = tmp_path / "state" if durable else None
    sink = sink_on(state_dir)
    feed(sink, 0, 1)
    slow_frame = SlowFrame(2)
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(sink, slow_frame, 2)
        assert slow_frame.is_reached.wait(TIMEOUT_S)
        try:
            check(sink, 2)
            rows = sink.circuit.query("SELECT city || '?' AS c FROM link")
            assert rows.num_rows == len(expected(2)["cities"])
            assert "cities" in sink.explain() and len(sink.metrics) == 2
            second = pool.submit(sink, Frame(batch(3), "q"), 3)
            with pytest.raises(TimeoutError):
                second.result(0.2)
        finally:
            slow_frame.go_on.set()
        running.result(TIMEOUT_S)
        second.result(TIMEOUT_S)
    check(sink, 4)
    sink.close()


def test_a_reader_of_a_sink_that_starts_again_waits_for_its_state_only(tmp_path):
    write_state(tmp_path / "state", 3)
    sink = sink_on(tmp_path / "state")
    slow_frame = SlowFrame(3)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(sink, slow_frame, 3)
        try:
            # Also if the sink is still loading.
            assert (
                bag_of(pool.submit(sink.table, "cities").result(TIMEOUT_S)) == expected(3)["cities"]
            )
        finally:
            slow_frame.go_on.set()
        running.result(TIMEOUT_S)
    check(sink, 4)
    sink.close()


@pytest.mark.parametrize("durable", [True, False])
def test_each_read_beside_a_running_sink_is_the_state_after_one_micro_batch(durable, tmp_path):
    sink = ViewSink(views(), state_dir=tmp_path / "state" if durable else None)
    history = History(sink.circuit, name="views")
    sink.add_observer(history)
    known = [expected(n) for n in range(BATCHES + 1)]
    state = {"low": 0, "high": 0}
    failed: list[BaseException] = []

    def repeat_read(read: Callable[[], Callable[[int], bool]]) -> Callable[[], None]:
        def work() -> None:
            seen = 0
            try:
                while not failed:
                    last = state["low"] == BATCHES
                    low = state["low"]
                    is_state_after = read()
                    high = state["high"]
                    fits = [n for n in range(max(low, seen), high + 1) if is_state_after(n)]
                    assert fits, (read, low, seen, high)
                    seen = fits[0]
                    if last:
                        return
            except BaseException as error:
                failed.append(error)

        return work

    def table(name: str) -> Callable[[], Callable[[int], bool]]:
        def read() -> Callable[[int], bool]:
            bag = bag_of(sink.table(name))
            return lambda n: known[n][name] == bag

        return read

    query_numbers = iter(range(10**9))

    def query() -> Callable[[int], bool]:
        suffix = f"new {next(query_numbers)}"
        rows = sink.circuit.query(
            f"SELECT city || '{suffix}' AS c, count(*) AS n FROM link GROUP BY 1"
        )
        bag = bag_of(rows)
        return lambda n: (
            Counter({(city + suffix, count): 1 for (city, count) in known[n]["cities"]}) == bag
        )

    def page() -> Callable[[int], bool]:
        snapshot = history.snapshot()
        json.dumps([snapshot, history.since(0)])
        batches = snapshot["batches"]
        assert batches == len(snapshot["recent"])
        return lambda n: batches in (n - 1, n)

    def metrics() -> Callable[[int], bool]:
        batches = len(sink.metrics)
        sink.explain()
        return lambda n: batches in (n - 1, n)

    readers = [table("paths"), table("cities"), query, query, page, metrics]
    threads = [threading.Thread(target=repeat_read(read), daemon=True) for read in readers]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(BATCHES):
            state["high"] = number + 1
            sink(Frame(batch(number), "q"), number)
            state["low"] = number + 1
        for thread in threads:
            thread.join(TIMEOUT_S)
    finally:
        sys.setswitchinterval(before)
    if failed:
        raise failed[0]
    assert not any(thread.is_alive() for thread in threads)
    check(sink, BATCHES)
    lengths = sink.circuit.committed.lengths
    assert lengths["text"] == len({city for (city, _) in known[BATCHES]["cities"]})
    sink.close()
    if durable:
        restarted = sink_on(tmp_path / "state")
        feed(restarted, BATCHES - 1)
        check(restarted, BATCHES)
        restarted.close()
