"""Measures a sink with its state in an object store, beside one with its state in a directory.

Claim: the median micro-batch waits for at most 14 requests, whatever its size and that of the
state, and takes at most 3 times the CPU time of one with the state in a directory. A large file
counts as one request, and so does the removal of many files.

Input: random edges ``e(src, dst)`` with the view of triangles, as in `benchmarks.latency`: loads,
then small steps, half of whose rows delete edges. The sink gets the rows as tables, without Spark.

The object store is a server of the S3 protocol on this machine, in a process of its own (moto, an
emulation in Python). Its own time is part of the wall time of a step, and says nothing about a real
service: there, a request takes about 10 to 100 ms, and a step waits for those that follow each
other. Therefore the requests and the bytes are counted; threads that merge files in the background
make others, for which no step waits. CPU time is that of the sink's process, all threads.

At the end the sink is opened again, with the copies of its files on the local disk and without
them, and the sum of the deltas is compared with an independent count.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, Final
from unittest.mock import PropertyMock, patch

import numpy as np
import obstore
import typer

import dbsp_wcoj
from benchmarks.cost import Clock
from benchmarks.counter import count
from benchmarks.latency import Edges, Sizes
from benchmarks.result import Result, Row, terminal
from benchmarks.sink.graph import (
    changes_table,
    count_change,
    micro_batch_of,
    triangles_circuit,
)
from benchmarks.verdict import Verdict
from streaming import ViewSink
from streaming.state.object_store.object_files import ObjectFiles

CLAIM = (
    "The median micro-batch with its state in an object store waits for at most 14 requests, "
    "whatever its size and that of the state, and takes at most 3 times the CPU time of one with "
    "its state in a directory"
)
STEPS, RESTARTS = "Micro-batches", "Restarts"
LOADS, SMALL_STEPS = "loads", "steps after the loads"
DIRECTORY, OBJECT_STORE = "in a directory", "in an object store"
MAX_REQUESTS: Final = 14
MAX_TIMES: Final = 3.0
NO_CHANGES: Final = changes_table(np.empty(0, np.int64), np.empty(0, np.int64))
BUCKET: Final = "bucket"
MAX_START_SECONDS: Final = 60
#: The columns of the state in an object store only.
COMPARED: Final = (
    *("times directory", "target times", "median requests", "target requests", "max requests"),
    *("background requests, mean", "kB sent, mean", "met"),
)
#: The functions of obstore that make a request; `list_with_delimiter` makes one per 1,000 objects.
REQUESTS: Final = ("copy", "delete", "get", "head", "list_with_delimiter", "put")


class CountedRequests:
    """The library obstore, which counts its requests and the bytes that it sends.

    Attributes:
        requests: The calls of the main thread that make a request, which a micro-batch waits for. A
            file of more than 5 MB counts as one, although it is sent in several requests.
        background_requests: Those of other threads, which merge files and remove merged ones.
        sent_bytes: The bytes of all written files.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.background_requests = 0
        self.sent_bytes = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(obstore, name)
        return self._counted(function) if name in REQUESTS else function

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self.requests += 1
            else:
                self.background_requests += 1
            if function is obstore.put:
                store, name, data = arguments
                if isinstance(data, bytes):
                    self.sent_bytes += len(data)
                else:
                    arguments = store, name, self._count_parts(data)
            return function(*arguments, **options)

        return call

    def _count_parts(self, parts: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield the parts of a large file, and count their bytes."""
        for part in parts:
            self.sent_bytes += len(part)
            yield part


def main(
    loads: int = 4,
    load_rows: Annotated[list[int], typer.Option(help="Rows of a load; repeatable.")] = [  # noqa: B006
        25_000,
        100_000,
        1_000_000,
    ],
    steps: int = 100,
    step_rows: int = 1_000,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    dbsp_wcoj.warm_up()
    result, verdict = Result("object_store", CLAIM, {STEPS: [], RESTARTS: []}), Verdict()
    with s3_server() as environment, patch.dict(os.environ, environment):
        for rows in load_rows:
            terminal().print(f"loads of {rows:,} rows ...")
            measure(result, verdict, Sizes(loads, rows, steps, step_rows), seed)
    verdict.close(result, json)


@dataclass
class StepCosts:
    """The costs of the steps of one size; each list has one entry per step."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    background_requests: list[int] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)


def measure(result: Result, verdict: Verdict, sizes: Sizes, seed: int) -> None:
    """Run one stream with the state in both places, and add the rows of the result."""
    costs_of_directory: dict[int, StepCosts] = {}
    for place in (DIRECTORY, OBJECT_STORE):
        library = CountedRequests()
        with (
            tempfile.TemporaryDirectory(prefix="dbsp-wcoj-object-store-") as folder,
            patch.dict(os.environ, {"XDG_CACHE_HOME": f"{folder}/cache"}),
            patch.object(ObjectFiles, "library", PropertyMock(return_value=library)),
        ):
            is_directory = place == DIRECTORY
            state = f"{folder}/state" if is_directory else f"s3://{BUCKET}/{Path(folder).name}"
            costs = _run_stream(verdict, place, state, sizes, seed, library)
            if is_directory:
                costs_of_directory = costs
            for rows, step_costs in costs.items():
                base = None if is_directory else costs_of_directory[rows]
                row = {
                    "micro-batches": LOADS if rows == sizes.load_rows else SMALL_STEPS,
                    "state": place,
                    "rows of a load": sizes.load_rows,
                    "rows/step": rows,
                }
                result.tables[STEPS].append({**row, **_cells(step_costs, base)})
            _measure_restarts(result, place, state, sizes, library)


def _run_stream(
    verdict: Verdict, place: str, state: str, sizes: Sizes, seed: int, library: CountedRequests
) -> dict[int, StepCosts]:
    """Run all steps, and compare the sum of the deltas; return the costs by rows of a step."""
    edges, total = Edges(sizes, seed), 0
    costs: dict[int, StepCosts] = {}
    sink = ViewSink(triangles_circuit(), state_dir=state)
    sink(micro_batch_of(NO_CHANGES), 0)  # the first micro-batch also opens the state
    for number, table in enumerate(edges.tables(), 1):
        before = copy(library)
        clock = Clock()
        sink(micro_batch_of(table), number)
        cost = clock.read()
        of_size = costs.setdefault(table.num_rows, StepCosts())
        of_size.cpu_ms.append(1e3 * cost.cpu)
        of_size.wall_ms.append(1e3 * cost.wall)
        of_size.requests.append(library.requests - before.requests)
        of_size.background_requests.append(library.background_requests - before.background_requests)
        of_size.sent_bytes.append(library.sent_bytes - before.sent_bytes)
        assert sink.last is not None
        total += count_change(sink.last.outputs["triangles"])
    sink.close()
    case = f"{sizes.load_rows:,} rows, {place}"
    verdict.set_truth(case, count(*edges.live()))
    verdict.compare("the sum of the deltas", case, total)
    return costs


def _cells(costs: StepCosts, directory: StepCosts | None) -> Row:
    """Return the cells of the steps of one size; ``directory`` has those to compare with."""
    row: Row = {
        "steps": len(costs.cpu_ms),
        "median ms": median(costs.wall_ms),
        "median CPU ms": median(costs.cpu_ms),
    }
    compared: Row = dict.fromkeys(COMPARED)
    if directory is not None:
        times, requests = median(costs.cpu_ms) / median(directory.cpu_ms), median(costs.requests)
        met = times <= MAX_TIMES and requests <= MAX_REQUESTS
        compared = {
            "times directory": times,
            "target times": MAX_TIMES,
            "median requests": requests,
            "target requests": MAX_REQUESTS,
            "max requests": max(costs.requests),
            "background requests, mean": mean(costs.background_requests),
            "kB sent, mean": mean(costs.sent_bytes) / 1e3,
            "met": met,
        }
    return {**row, **compared}


def _measure_restarts(
    result: Result, place: str, state: str, sizes: Sizes, library: CountedRequests
) -> None:
    """Open the sink again, and add the rows of the result."""
    next_batch = 1 + sizes.loads + sizes.steps
    caches = ("kept", "empty") if place == OBJECT_STORE else ("",)
    for cache in caches:
        with tempfile.TemporaryDirectory(prefix="dbsp-wcoj-cache-") as empty:
            change = {"XDG_CACHE_HOME": empty} if cache == "empty" else {}
            with patch.dict(os.environ, change):
                before = library.requests
                clock = Clock()
                sink = ViewSink(triangles_circuit(), state_dir=state)
                sink(micro_batch_of(NO_CHANGES), next_batch)
                cost = clock.read()
                sink.close()
        next_batch += 1
        result.tables[RESTARTS].append(
            {
                "state": place,
                "rows of a load": sizes.load_rows,
                "copies on the local disk": cache or None,
                "first micro-batch after s": cost.wall,
                "CPU s": cost.cpu,
                "requests": library.requests - before if cache else None,
            }
        )


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run a server with an empty bucket; yield the environment variables of its clients."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _create_bucket(endpoint, server)
            yield {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            }
        finally:
            server.terminate()


def _create_bucket(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    """Create the bucket as soon as the server answers."""
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    deadline = time.monotonic() + MAX_START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(request).close()
            return
        except urllib.error.HTTPError:  # another server has the port
            raise
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the S3 server did not start; its exit status: {server.poll()}")


if __name__ == "__main__":
    typer.run(main)
