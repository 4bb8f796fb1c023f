"""Runs a driver in a child process, and watches its time and memory.

If a system exceeds its limit of time or memory, it is stopped with all its children; the messages
until then count. The memory in use is watched from outside. The limit of the operating system
(``RLIMIT_AS``) would not do, because it counts addresses, and some systems reserve terabytes of
addresses that they never use.
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
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.cost import Cost
from benchmarks.peers.job import Job
from benchmarks.peers.systems import System
from benchmarks.peers.usage import cpu_seconds_of, resident_bytes

Message = dict[str, Any]

LOADING = 120.0  # seconds a system may take to load
_STARTING = 60.0  # seconds until its first message
_POLL = 0.1  # seconds between two readings of the memory in use
_CLOSING = 20.0  # seconds that a system may take to close after its last message
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class DriverRun:
    """The messages of a driver that has ended; ``failure`` is None if it completed its job.

    ``cost_since_message`` is the time from the last message to the end; ``peak`` is the largest
    number of bytes in use.
    """

    messages: list[Message]
    failure: str | None
    cost_since_message: Cost
    peak: int

    def messages_of(self, event: str) -> list[Message]:
        return [message for message in self.messages if message["event"] == event]


def watch(
    arguments: list[str],
    *,
    limit: float,
    memory: int,
    interpreter: str = sys.executable,
    loading: float = LOADING,
) -> DriverRun:
    """Run Python with the arguments until it ends, is too slow or too large.

    Args:
        arguments: The arguments of the interpreter.
        limit: Seconds allowed between two messages; the first may take a minute.
        memory: Bytes that the process and its children may use.
        interpreter: The Python to run.
        loading: Seconds allowed between the message of event ``load`` and the next.
    """
    with tempfile.TemporaryFile() as error_output:
        process = subprocess.Popen(
            [interpreter, *arguments],
            stdout=subprocess.PIPE,
            stderr=error_output,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,  # so that it can be stopped with its children
        )
        assert process.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_forward, args=(process.stdout, lines))
        reader.start()
        messages: list[Message] = []
        failure: str | None = None
        message_time, message_cpu, peak, allowed = time.perf_counter(), 0.0, 0, _STARTING
        cpu = 0.0  # seconds when last read: after the end of the process they cannot be read
        try:
            while True:
                try:
                    line = lines.get(timeout=_POLL)
                except queue.Empty:
                    used_bytes = resident_bytes(process.pid)
                    peak, cpu = max(peak, used_bytes), max(cpu, cpu_seconds_of(process.pid))
                    if used_bytes > memory:
                        failure = f"out of memory at {memory / (1 << 30):.3g} GB"
                    elif time.perf_counter() - message_time > allowed:
                        failure = f"stopped after {allowed:.3g} s"
                    if failure:
                        break
                    continue
                if line is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=_CLOSING)
                    break
                messages.append(message := json.loads(line))
                allowed = loading if message["event"] == "load" else limit
                message_time, message_cpu = time.perf_counter(), message.get("cpu so far", 0.0)
            cost = Cost(time.perf_counter() - message_time, max(cpu, message_cpu) - message_cpu)
        finally:
            _end(process)
            reader.join()
            process.stdout.close()
        # `_end` kills a process that does not close in time after its last message: no failure.
        if failure is None and process.returncode not in (0, -signal.SIGKILL):
            failure = f"failed: {_last_line(error_output, process.returncode)}"
    if failure and failure.startswith("stopped") and messages[-1:]:
        failure += " of loading" if messages[-1]["event"] == "load" else ""
    return DriverRun(messages, failure, cost, peak)


def _forward(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    """Put the lines that are a JSON object in the queue; None after the end of the output."""
    for line in stream:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def _last_line(error_output: IO[bytes], status: int) -> str:
    error_output.seek(0)
    lines = error_output.read().decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), f"exit {status}")


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(job: Job, system: System, *, limit: float, loading: float = LOADING) -> DriverRun:
    """Write the job and run the driver, in the environment of the system's package."""
    if not system.installed:
        return DriverRun([], f"not installed: {system.package}", Cost(0.0, 0.0), 0)
    job.write()
    arguments = ["-m", "benchmarks.peers.driver", str(job.folder)]
    interpreter = system.interpreter
    return watch(
        arguments, limit=limit, memory=job.memory, interpreter=interpreter, loading=loading
    )
