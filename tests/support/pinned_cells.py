"""Runs a sink with pinned cells on a cluster, and prints what its steps found in memory.

    python -m tests.support.pinned_cells PLACE

It steps cells on two executors of one core each, kills one of them, and goes on. It prints JSON:
the number of steps, those that found the circuit of their cell in memory, the number of blocks in
the memory of each executor, whether all deltas are those of the embedded circuit, and the number of
blocks after the sink was closed. The first micro-batches, and those after the loss, are not counted
(`WARM_UP`), because no executor has the cells.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming import ViewSink
from streaming.distributed.task_pins import LOCALITY
from tests.support.cluster_driver import session_of, views
from tests.support.cluster_executors import find_executors
from tests.support.tables import bag_of

WARM_UP = 2
BATCHES = 4  # before an executor is lost, and then again
ROWS = 600  # more than the driver reads itself
TIMEOUT_S = 60.0
STATUS_DELAY_S = 1.0  # until Spark's counters are up to date


def edges(batch_id: int) -> pa.Table:
    numbers = range(batch_id * ROWS, (batch_id + 1) * ROWS)
    return pa.table({"src": [n % 83 for n in numbers], "dst": [n * n % 97 for n in numbers]})


def count_blocks(session: SparkSession) -> list[int]:
    """Return the number of blocks of tables in the memory of each executor."""
    time.sleep(STATUS_DELAY_S)
    executors = session.sparkContext._jsc.sc().statusStore().executorList(True)
    all_executors = [executors.apply(number) for number in range(executors.size())]
    return [found.rddBlocks() for found in all_executors if found.id() != "driver"]


def list_executors(session: SparkSession) -> set[str]:
    """Return the addresses of the driver and of the executors."""
    addresses = session.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet()
    return {*addresses.mkString(" ").split(" ")}


def wait_for_executor(session: SparkSession, before: set[str]) -> None:
    """Wait until another executor has replaced the one that was killed."""
    end = time.monotonic() + TIMEOUT_S
    while len(executors := list_executors(session)) < len(before) or executors == before:
        assert time.monotonic() < end, f"no executor has replaced one of {before}: {executors}"
        time.sleep(0.05)


def main(place: Path) -> None:
    settings = {LOCALITY: "false", "spark.locality.wait": "60s"}  # the machine may be busy
    session = session_of("local-cluster[2,1,1024]", place, settings)
    sink = ViewSink(views(), state_dir=place / "state", mode="distributed", cells=4, pin_cells=True)
    embedded = views()
    counts: Counter[str] = Counter()
    is_equal = True
    for batch_id in range(2 * BATCHES):
        if batch_id == BATCHES:
            before = list_executors(session)
            os.kill(find_executors(os.getsid(0))[0], signal.SIGKILL)
        if batch_id == BATCHES + 1:
            wait_for_executor(session, before)
        table = edges(batch_id)
        sink(session.createDataFrame(table), batch_id)
        assert sink.last is not None
        for view, delta in embedded.step({"e": table}).items():
            is_equal &= bag_of(sink.last.outputs[view]) == bag_of(delta)
        if batch_id % BATCHES >= WARM_UP:
            metrics = sink.metrics[-1]
            counts.update(steps=metrics.cell_steps, found=metrics.open_cell_steps)
    blocks = count_blocks(session)
    sink.close()
    result = {"equal": is_equal, "blocks": blocks, "closed": count_blocks(session)}
    print(json.dumps({**counts, **result}))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
