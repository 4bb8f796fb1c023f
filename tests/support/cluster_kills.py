"""Kills processes of a standalone cluster at random moments, while a distributed sink runs on it.

    python -m tests.support.cluster_kills kill [--kills 100] [--seed 0]
    python -m tests.support.cluster_kills straggler

``kill`` ends executors, their Python workers, worker daemons and the driver with SIGKILL, and
starts again what Spark does not start itself. Each file of rows is one micro-batch, and the target
writes a file for each delta. After each kill, all deltas so far are compared with those of the
embedded circuit: a lost or a doubled row changes one of them.

``straggler`` stops and continues the processes of one of two workers, so that they run for a tenth
of the time, and measures the micro-batches without and with speculation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from circuits import Circuit, compile_sql
from tests.support.tables import bag_of

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
WEIGHTED = pa.schema([*SCHEMA, ("weight", pa.int64())])
VIEWS = """
    CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW degrees AS SELECT src, count(DISTINCT dst) AS n, max(dst) AS most FROM e
        GROUP BY src;
    CREATE VIEW ends AS SELECT dst, count(*) AS n, min(src) AS least FROM e GROUP BY dst;
    CREATE VIEW best AS SELECT src, dst FROM e
        QUALIFY row_number() OVER (PARTITION BY src ORDER BY dst DESC) <= 2;
"""
NODES = 300
TIMEOUT_S = 600  # for the next micro-batch after a kill
BACKLOG = 4  # files that wait
#: What is killed, and how often relative to the others.
KINDS = {"executor": 5, "python worker": 3, "worker": 2, "driver": 3}


def views() -> Circuit:
    return compile_sql(VIEWS, {"e": SCHEMA})


class Edges:
    """Random insertions and deletions of edges, half of which leave one node."""

    def __init__(self, seed: int, sizes: tuple[int, ...] = (40, 700, 1500)) -> None:
        self._rng = random.Random(f"edges {seed}")
        self._present: list[tuple[int, int]] = []
        self._sizes = sizes

    def next_table(self) -> pa.Table:
        rng, rows = self._rng, []
        for _ in range(rng.choice(self._sizes)):
            if len(self._present) > 3000 or (self._present and rng.random() < 0.3):
                at = rng.randrange(len(self._present))
                self._present[at], self._present[-1] = self._present[-1], self._present[at]
                rows.append((*self._present.pop(), -1))
            else:
                edge = (rng.choice((0, rng.randrange(NODES))), rng.randrange(NODES))
                self._present.append(edge)
                rows.append((*edge, 1))
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(c, pa.int64()) for c in columns], WEIGHTED)


class Cluster:
    """A standalone master, two workers with one core each, and a driver; `close` ends them."""

    def __init__(self, place: Path, *settings: str) -> None:
        import pyspark

        from streaming.java import use_java

        use_java()
        self.place, self._settings = place, settings
        self._home = Path(pyspark.__file__).parent
        self._environment = os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        self._ports = _free_ports(4)
        self.master = f"spark://127.0.0.1:{self._ports[0]}"
        self._number = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        for name in ("in", "out"):
            (place / name).mkdir(exist_ok=True)
        port, ui = str(self._ports[0]), str(self._ports[1])
        local = ("--host", "127.0.0.1")
        self._spark("master", "master.Master", *local, "--port", port, "--webui-port", ui)
        self.wait_for_text("master", "I have been elected leader")
        self.workers = ["worker1", "worker2"]
        for name in self.workers:
            self.start_worker(name)
        self.start_driver()

    def start_worker(self, name: str) -> None:
        ui, work = str(self._ports[1 + int(name[-1])]), str(self.place / name)
        self._spark(
            name,
            "worker.Worker",
            *("--host", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", ui),
            *("-d", work, self.master),
        )

    def start_driver(self) -> None:
        module = "tests.support.cluster_kills"
        arguments = (str(self.place), self.master, *self._settings)
        self._start("driver", sys.executable, "-m", module, "drive", *arguments)

    def batches(self) -> list[int]:
        """Return the numbers of the micro-batches that the current driver has begun."""
        lines = self.logs["driver"].read_text(errors="replace").splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("batch ")]

    def process_ids(self, name: str, *texts: str) -> list[int]:
        """Return the processes in the session of a started one, whose command has the texts."""
        session, found = self.processes[name].pid, []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(entry.name)) != session:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has ended meanwhile
                continue
            if all(text in command for text in texts):
                found.append(int(entry.name))
        return found

    def kill(self, name: str) -> None:
        """Kill a started process and all that it has started."""
        process = self.processes[name]
        for pid in [process.pid, *self.process_ids(name)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def wait_for_text(self, name: str, text: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while text not in self.logs[name].read_text(errors="replace"):
            if time.monotonic() > end:
                raise TimeoutError(f"{name} did not say {text!r}: {self.logs[name]}")
            time.sleep(0.05)

    def close(self) -> None:
        for name in reversed(self.processes):
            self.kill(name)

    def _spark(self, name: str, kind: str, *arguments: str) -> None:
        command = str(self._home / "bin" / "spark-class")
        self._start(name, command, f"org.apache.spark.deploy.{kind}", *arguments)

    def _start(self, name: str, *command: str) -> None:
        self._number += 1
        self.logs[name] = self.place / f"{self._number:03}-{name}.log"
        with self.logs[name].open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class Feed:
    """The files of rows, and the check of the deltas that the sink has published for them."""

    def __init__(self, cluster: Cluster, edges: Edges) -> None:
        self._cluster, self._edges = cluster, edges
        self._circuit = views()
        self._tables: list[pa.Table] = []
        self.checked = 0  # micro-batches

    @property
    def files(self) -> int:
        """The number of files so far."""
        return len(self._tables)

    def fill(self) -> None:
        """Write files until `BACKLOG` of them wait."""
        begun = max(self._cluster.batches(), default=-1) + 1
        while self.files < max(begun, self.checked) + BACKLOG:
            self.add_file()

    def add_file(self) -> None:
        table, number = self._edges.next_table(), self.files
        folder = self._cluster.place
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (10**9 + number,) * 2)
        path.rename(folder / "in" / path.name)
        self._tables.append(table)

    def check(self, end: int) -> None:
        """Compare the deltas of the micro-batches up to this number with those of one process."""
        for number in range(self.checked, end):
            for view, delta in self._circuit.step({"e": self._tables[number]}).items():
                path = self._cluster.place / "out" / f"{number}-{view}.parquet"
                if bag_of(pq.read_table(path)) != bag_of(delta):
                    raise AssertionError(f"micro-batch {number}: {view} has another delta")
        self.checked = max(self.checked, end)


def kill_at_random(place: Path, kills: int, seed: int) -> None:
    """Kill processes, and check all deltas; print a line for each kill."""
    rng = random.Random(f"kills {seed}")
    cluster = Cluster(place)
    counts: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        feed = Feed(cluster, Edges(seed))
        _wait_for_batch(cluster, feed, 2)
        done = 0
        while done < kills:
            _run_for(cluster, feed, rng.uniform(0, 3))
            (kind,) = rng.choices([*KINDS], [*KINDS.values()])
            before = max(cluster.batches(), default=-1)
            begin = time.monotonic()
            if not _kill_one(cluster, kind, rng):
                continue
            done += 1
            counts[kind] += 1
            # The sink has committed the one that ran, if the next one begins.
            counts["stopped query"] += _wait_for_batch(cluster, feed, before + 1)
            seconds[kind].append(time.monotonic() - begin)
            feed.check(max(cluster.batches()))
            print(
                f"{done}: {kind} killed in micro-batch {before}, next one after "
                f"{seconds[kind][-1]:.1f} s; {feed.checked} micro-batches are right",
                flush=True,
            )
        _finish(cluster, feed)
        for kind, values in seconds.items():
            if values:
                print(f"{kind}: {len(values)} kills, median {statistics.median(values):.1f} s")
        state = [path for path in (place / "state").rglob("*") if path.is_file()]
        print(f"{dict(counts)}: {feed.checked} micro-batches, nothing lost, nothing doubled")
        print(f"{len(state)} files in the state directory")
    finally:
        cluster.close()


def _kill_one(cluster: Cluster, kind: str, rng: random.Random) -> bool:
    """Kill one process of a kind, and start again what Spark does not; False if there is none."""
    if kind == "driver":
        cluster.kill("driver")
        cluster.start_driver()
        return True
    name = rng.choice(cluster.workers)
    if kind == "worker":
        with contextlib.suppress(ProcessLookupError):
            os.kill(cluster.processes[name].pid, signal.SIGKILL)
        cluster.kill(name)
        cluster.start_worker(name)
        return True
    texts = ("CoarseGrainedExecutorBackend",) if kind == "executor" else ("pyspark.daemon",)
    found = cluster.process_ids(name, *texts)
    if not found:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(found), signal.SIGKILL)
    return True


def _wait_for_batch(cluster: Cluster, feed: Feed, number: int) -> int:
    """Feed until a micro-batch begins; start a driver that has ended; return how often it had."""
    end, starts = time.monotonic() + TIMEOUT_S, 0
    while max(cluster.batches(), default=-1) < number:
        if time.monotonic() > end:
            raise TimeoutError(f"micro-batch {number} does not begin: {cluster.logs['driver']}")
        if cluster.processes["driver"].poll() is not None:  # Spark gave the query up
            cluster.start_driver()
            starts += 1
        feed.fill()
        time.sleep(0.02)
    return starts


def _run_for(cluster: Cluster, feed: Feed, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        feed.fill()
        time.sleep(0.02)


def _finish(cluster: Cluster, feed: Feed) -> None:
    """Let the sink read all files, end it, and check all deltas."""
    (cluster.place / "stop").write_text(str(feed.files))
    end = time.monotonic() + TIMEOUT_S
    while cluster.processes["driver"].poll() != 0:
        if time.monotonic() > end:
            raise TimeoutError(f"the driver does not end: {cluster.logs['driver']}")
        if cluster.processes["driver"].poll() is not None:
            cluster.start_driver()
        time.sleep(0.1)
    feed.check(feed.files)


SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.minTaskRuntime=100ms",
    "spark.speculation.multiplier=1.5",
    "spark.speculation.quantile=0.5",
)


def measure_straggler(place: Path, seed: int, batches: int, rows: int) -> None:
    """Print the times of micro-batches without and with a slow worker and speculation."""
    medians = {}
    for name, settings, is_slow in (
        ("two equal workers", (), False),
        ("one worker slowed 10 times", (), True),
        ("the same with speculation", SPECULATION, True),
    ):
        folder = place / name.replace(" ", "-")
        folder.mkdir()
        cluster = Cluster(folder, *settings)
        try:
            feed = Feed(cluster, Edges(seed, (rows,)))
            _wait_for_batch(cluster, feed, 5)
            with _slowed(cluster, "worker1") if is_slow else contextlib.nullcontext():
                times: list[float] = []
                number = max(cluster.batches())
                while len(times) < batches:
                    begin = time.monotonic()
                    _wait_for_batch(cluster, feed, number + 1)
                    times.append(time.monotonic() - begin)
                    number = max(cluster.batches())
                medians[name] = statistics.median(times[1:])
                print(
                    f"{name}: median {medians[name]:.2f} s, greatest {max(times[1:]):.2f} s",
                    flush=True,
                )
            _finish(cluster, feed)
        finally:
            cluster.close()
    equal, *slow = medians.values()
    print("times the median of equal workers:", *(f"{value / equal:.1f}" for value in slow))


@contextlib.contextmanager
def _slowed(cluster: Cluster, name: str) -> Iterator[None]:
    """Let all processes of a worker run for a tenth of the time."""
    ends = threading.Event()

    def send(sent: signal.Signals, process_ids: list[int]) -> None:
        for pid in process_ids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)

    def slow_down() -> None:
        found: list[int] = []
        number = 0
        while not ends.is_set():
            if number % 10 == 0:
                found = cluster.process_ids(name)
            send(signal.SIGSTOP, found)
            ends.wait(0.09)
            send(signal.SIGCONT, found)
            time.sleep(0.01)
            number += 1
        send(signal.SIGCONT, cluster.process_ids(name))

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def drive(place: Path, master: str, *settings: str) -> None:
    """Run the sink, until all files are read that ``PLACE/stop`` says."""
    from streaming import ViewSink
    from tests.support.cluster_driver import FileTarget, session_of

    session = session_of(master, place, dict(setting.split("=", 1) for setting in settings))
    sink = ViewSink(
        views(), FileTarget(place / "out"), state_dir=place / "state", mode="distributed", cells=4
    )

    def process_batch(frame: Any, batch_id: int) -> None:
        print(f"batch {batch_id}", flush=True)
        sink(frame, batch_id)

    stream = (
        session.readStream.schema("src long, dst long, weight long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(place / "in"))
    )
    query = (
        stream.writeStream.foreachBatch(process_batch)
        .option("checkpointLocation", str(place / "checkpoint"))
        .start()
    )
    stop = place / "stop"
    while not query.awaitTermination(1):
        if stop.exists():
            last = int(stop.read_text()) - 1
            if (place / "checkpoint" / "commits" / str(last)).exists():
                break
    query.stop()
    sink.close()
    session.stop()


def _free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def main() -> None:
    if sys.argv[1:2] == ["drive"]:
        drive(Path(sys.argv[2]), *sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kill", "straggler"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="cluster-"))
    if given.what == "kill":
        kill_at_random(place, given.kills, given.seed)
    else:
        measure_straggler(place, given.seed, given.batches, given.rows)
    shutil.rmtree(place)  # kept if something failed


if __name__ == "__main__":
    main()
