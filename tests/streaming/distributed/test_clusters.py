"""A distributed sink on clusters of processes, one of which is killed in the middle of a run."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from streaming import JavaMissingError
from streaming.java import use_java
from tests.support.cluster_driver import views
from tests.support.cluster_executors import find_executors
from tests.support.cluster_kills import kill_at_random
from tests.support.spark_settings import SMALL_JVM
from tests.support.tables import bag_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
HOME = Path(pyspark.__file__).parent
TIMEOUT_S = 150  # for each step of a process
BATCHES = 5
KILL_BATCH = 2  # the micro-batch in which a process is killed; its rows are shuffled


def changes() -> list[pa.Table]:
    """Insert and delete edges."""
    rng = random.Random("cluster")
    present: list[tuple[int, int]] = []
    result = []
    for _ in range(BATCHES):
        rows = []
        for _ in range(60):
            if present and rng.random() < 0.3:
                rows.append((*present.pop(rng.randrange(len(present))), -1))
            else:
                present.append((rng.randrange(12), rng.randrange(12)))
                rows.append((*present[-1], 1))
        columns = zip(*rows, strict=True)
        result.append(
            pa.table(dict(zip(("src", "dst", "weight"), map(list, columns), strict=True)))
        )
    return result


class Processes:
    """The processes of one test; `close` ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        try:
            use_java()
        except JavaMissingError as error:
            pytest.skip(f"no Java: {error}")
        if not (HOME / "bin" / "spark-class").is_file():
            pytest.skip(f"{HOME} has no bin/spark-class, so no cluster can be started")
        self._environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM["spark.driver.extraJavaOptions"],
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE if name == "driver" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def spark(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a master or a worker of Spark."""
        spark_class = str(HOME / "bin" / "spark-class")
        return self.start(name, spark_class, f"org.apache.spark.deploy.{kind}", *arguments)

    def output(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, text: str, times: int = 1) -> None:
        end = time.monotonic() + TIMEOUT_S
        while self.output(name).count(text) < times:
            assert time.monotonic() < end, (
                f"{name} did not say {text!r}: {self.output(name)[-3000:]}"
            )
            time.sleep(0.05)

    def close(self) -> None:
        for process in reversed(self._started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    (tmp_path / "in").mkdir()
    for number, table in enumerate(changes()):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (10**9 + number,) * 2)
    result = Processes(tmp_path)
    yield result
    result.close()


def end_worker(worker: subprocess.Popen[str]) -> None:
    """Kill a worker; its executor goes with it."""
    worker.kill()
    worker.wait()


def end_executor(driver: subprocess.Popen[str]) -> None:
    """Kill one of the executors that a driver has started."""
    os.kill(min(find_executors(driver.pid)), signal.SIGKILL)


def run(
    processes: Processes,
    master: str,
    kill: Callable[[subprocess.Popen[str]], None],
) -> None:
    """Run the driver to its end, kill a process on the way, and compare all published deltas."""
    place = processes.folder
    driver = processes.start(
        "driver", sys.executable, "-m", "tests.support.cluster_driver", str(place), master
    )
    assert driver.stdout is not None
    for batch in range(BATCHES):
        line = driver.stdout.readline().strip()
        assert line == f"batch {batch}", f"{line!r}: {processes.output('driver')[-4000:]}"
        if batch == KILL_BATCH:
            time.sleep(0.2)  # into the jobs of the micro-batch
            kill(driver)
    line = driver.stdout.readline().strip()
    assert line == "done", f"{line!r}: {processes.output('driver')[-4000:]}"
    assert driver.wait(TIMEOUT_S) == 0
    circuit = views()
    for batch, table in enumerate(changes()):
        for view, delta in circuit.step({"e": table}).items():
            result = pq.read_table(place / "out" / f"{batch}-{view}.parquet")
            assert bag_of(result) == bag_of(delta), f"micro-batch {batch}, {view}"
    assert "Lost executor" in processes.output("driver") or "lost" in processes.output("driver")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def test_the_view_stays_exact_when_a_worker_of_a_standalone_cluster_is_killed(processes):
    port, *ui = free_ports(4)
    local = ("--host", "127.0.0.1")
    processes.spark(
        "master", "master.Master", *local, "--port", str(port), "--webui-port", str(ui[0])
    )
    processes.wait_for("master", "I have been elected leader")
    master = f"spark://127.0.0.1:{port}"
    workers = [
        processes.spark(
            f"worker{number}",
            "worker.Worker",
            *local,
            *("-c", "1", "-m", "1g", "--webui-port", str(ui[number])),
            *("-d", str(processes.folder / f"work{number}"), master),
        )
        for number in (1, 2)
    ]
    processes.wait_for("master", "Registering worker", times=2)
    run(processes, master, lambda _: end_worker(workers[0]))


@pytest.mark.slow
def test_the_view_stays_exact_when_an_executor_of_a_local_cluster_is_killed(processes):
    run(processes, "local-cluster[2,1,1024]", end_executor)


@pytest.mark.slow
def test_pinned_cells_are_found_in_memory_also_after_an_executor_is_lost(processes):
    place = processes.folder
    driver = processes.start(
        "driver", sys.executable, "-m", "tests.support.pinned_cells", str(place)
    )
    text, _ = driver.communicate(timeout=TIMEOUT_S)
    assert driver.returncode == 0, processes.output("driver")[-4000:]
    result = json.loads(text.splitlines()[-1])
    assert result["equal"]
    assert result["found"] == result["steps"] > 0
    assert result["blocks"] == [1, 1]  # one partition of the marker on each executor
    assert result["closed"] == [0, 0]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_processes_are_killed_at_random(processes):
    place = processes.folder / "kills"
    place.mkdir()
    kill_at_random(place, kills=12, seed=3)
