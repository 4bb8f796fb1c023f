"""Race: run a peer in a process of its own, and stop it at a limit.

The peer says when a count begins and what it came to (`benchmarks.peers`). A count that is not
done within the limit ends the process; its CPU seconds are those that the system charged to the
process since that count began.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.cost import Clock, Cost, median
from benchmarks.graph import Graph

_LOADING = 900.0  # seconds a peer may take to load; not counted


class PeerError(Exception):
    """A peer ended by itself without an answer."""


@dataclass(frozen=True)
class Raced:
    """The median cost of a peer's counts; ``answer`` is None when it was stopped."""

    answer: int | None
    cost: Cost
    counts: int


def race(peer: str, graph: Graph, threads: int, *, repeat: int, limit: float) -> Raced:
    """Let a peer count ``repeat`` times, each within ``limit`` seconds.

    Raises:
        PeerError: The peer failed; its last words are in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder, "edges.parquet")
        graph.write(edges)
        arguments = [peer, str(edges), str(threads), str(repeat)]
        return _watch(["-m", "benchmarks.peers", *arguments], repeat, limit)


def _watch(arguments: list[str], repeat: int, limit: float) -> Raced:
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_forward, args=(process.stdout, lines))
        reader.start()
        answers: set[int] = set()
        costs: list[Cost] = []
        charged = 0.0
        try:
            for _ in range(repeat):
                charged = _message(lines, _LOADING, complaints)["begun"]
                clock = Clock()
                try:
                    found = _message(lines, limit, complaints)
                except queue.Empty:
                    wall = clock.read().wall
                    cpu = _end(process) - charged
                    return Raced(None, Cost(wall, cpu), len(costs))
                answers.add(int(found["answer"]))
                costs.append(Cost(found["wall"], found["cpu"]))
        except queue.Empty:
            raise PeerError(f"{arguments[2]} did not load within {_LOADING:.0f} s") from None
        finally:
            if process.returncode is None:
                _end(process)
            reader.join()
            process.stdout.close()
    if len(answers) != 1:
        raise PeerError(f"{arguments[2]} gave different answers: {sorted(answers)}")
    return Raced(answers.pop(), median(costs), len(costs))


def _forward(stream: IO[str], lines: queue.Queue[str]) -> None:
    """An empty line says that the process has closed its output."""
    for line in stream:
        lines.put(line)
    lines.put("")


def _message(lines: queue.Queue[str], timeout: float, complaints: IO[bytes]) -> dict[str, float]:
    line = lines.get(timeout=timeout)
    if not line:
        complaints.seek(0)
        raise PeerError(complaints.read().decode(errors="replace")[-2000:] or "no output")
    message: dict[str, float] = json.loads(line)
    return message


def _end(process: subprocess.Popen[str]) -> float:
    """Kill the process and give the CPU seconds that it was charged in all."""
    # Not `process.kill`, which reaps a process that has ended by itself, and its usage with it.
    os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime
