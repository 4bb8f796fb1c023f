"""Several processes use one state directory without a lock, in an order that a seed determines.

Each process is a thread, but only one runs at a time: before each call to the file system, to the
target and of Spark, it waits for its turn. So a process may stop between any two calls, others may
take over the directory and commit, and then it goes on. A process is a sink that continues from
Spark's last commit, or an offline compaction.

At the end one more sink runs alone. These properties are checked:

*   a delta that the target receives is that of the oracle, every time;
*   a process fails only with an error of the package, and only if another one has taken over;
*   the last sink continues from the last micro-batch that Spark has committed, without an error,
    and its views are correct;
*   at the end the only files are those that a version lists, the descriptions of the directory, and
    the dead letters of each micro-batch, once.

    python -m tests.support.takeovers 17         # play one schedule and print all calls
    python -m tests.support.takeovers 17 objects
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from copy import copy

from circuits import Circuit
from streaming import StreamingError
from streaming.state.manifest import manifest_name
from streaming.state.offline_compaction import compact_state
from tests.support.simulated_files import SimulatedDisk, SimulatedFiles, SimulatedObjects
from tests.support.simulation import Frame, Schedule, sink_of, small_limits, spec_of
from tests.support.tables import bag_of

MAX_PROCESSES = 5
MAX_SHOWN_CALLS = 120


class SharedFiles(SimulatedFiles):
    """Files without a lock, for a process that waits for its turn before each call."""

    def __init__(self, disk: SimulatedDisk, process: Process) -> None:
        super().__init__(disk, process.number)
        self._process = process

    def lock(self) -> None:
        self.point("no lock")

    def unlock(self) -> None:
        self.point("no unlock")

    def _run(self, call: str, *args):
        self._process.wait_for_turn()
        return super()._run(f"{call}  -- process {self.process}", *args)


class SharedObjects(SimulatedObjects):
    """An object store, for a process that waits for its turn before each request."""

    def __init__(self, disk: SimulatedDisk, process: Process) -> None:
        super().__init__(disk, process.number)
        self._process = process

    def _run(self, call: str, *args):
        self._process.wait_for_turn()
        return super()._run(f"{call}  -- process {self.process}", *args)


class Process:
    """A thread that runs only while `run_until_next_call` does."""

    def __init__(self, number: int, function: Callable[[Process], None]) -> None:
        self.number = number
        self.error: BaseException | None = None
        self.is_done = False
        self._function = function
        self._may_run, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def run_until_next_call(self) -> None:
        """Let the thread make one call, and run until the next one or its end."""
        self._may_run.release()
        self._has_stopped.acquire()

    def wait_for_turn(self) -> None:
        """Wait until the next `run_until_next_call`; the thread itself calls this."""
        if threading.current_thread() is self._thread:
            self._has_stopped.release()
            self._may_run.acquire()

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self._function(self)
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._has_stopped.release()


class TakeoverSchedule(Schedule):
    """One run of a stream by several processes.

    Attributes:
        outcomes: The name of the error of each process, or "done".
    """

    def __init__(self, seed: int, *, objects: bool = False) -> None:
        super().__init__(seed, objects=objects)
        self.outcomes: list[str] = []
        self.faults = 0
        self._end = len(self.stream.tables) - 1
        self._created = 0

    def run(self) -> str:
        """Run the schedule.

        Raises:
            AssertionError: A property is violated.
        """
        random, living = self.random, []
        while self._created < MAX_PROCESSES or living:
            is_start = self._created < MAX_PROCESSES and (not living or random.random() < 0.2)
            if is_start:
                living.append(self._new_process())
            process = random.choice(living)
            for _ in range(int(random.expovariate(1 / random.choice([2, 20, 100]))) + 1):
                process.run_until_next_call()
                if process.is_done:
                    living.remove(process)
                    self._record(process)
                    break
        self._finish_alone()
        return "done"

    def _finish_alone(self) -> None:
        """Run the rest of the stream on a new sink, and check its views and the files."""
        self.disk.kill()
        self._start()
        assert self.sink is not None
        names = self.disk.names()
        # A writer that was replaced may have committed the version that Spark asks for next. If it
        # has not, Spark may have lost its last record, and replays that micro-batch.
        if manifest_name(self.committed) not in names:
            self.committed -= manifest_name(self.committed - 1) in names
        while self.committed <= self._end:
            self._deliver()
            for view in self.sink.circuit.materialized:
                if view in (views := self.stream.views[self.committed - 1]):
                    assert bag_of(self.sink.circuit.views[view]) == views[view], view
        self._check_files()

    def _new_process(self) -> Process:
        self._created += 1
        has_version = any(name.startswith("manifests/") for name in self.disk.names())
        is_compaction = has_version and self.random.random() < 0.2
        return Process(self._created, self._compact if is_compaction else self._run_sink)

    def _record(self, process: Process) -> None:
        error = process.error
        if error is not None:
            is_alone = process.number == self._created == 1
            if is_alone or not isinstance(error, StreamingError):
                raise error
            self.disk.log.append(f"-- process {process.number}: {type(error).__name__}: {error}")
        self.outcomes.append("done" if error is None else type(error).__name__)

    def _compact(self, process: Process) -> None:
        compact_state(self._files_of(process), spec=spec_of(self.stream.name))

    def _files_of(self, process: Process) -> SharedFiles | SharedObjects:
        return (SharedObjects if self.disk.has_objects else SharedFiles)(self.disk, process)

    def _run_sink(self, process: Process) -> None:
        files = self._files_of(process)
        circuit, target = Circuit(spec_of(self.stream.name)), copy(self.target)
        target.files = files
        sink = sink_of(circuit, target, files, self.keep, self.modes, self.memory_limit)
        batch_id = self.committed
        for _ in range(self.random.randrange(1, 4)):
            if batch_id >= self._end:
                break
            sink(Frame(self.stream.tables[batch_id], files), batch_id)
            files.point(f"Spark records commit {batch_id}")
            batch_id += 1
            self.committed = max(self.committed, batch_id)
        if self.random.random() < 0.5:
            sink.close()


def play_takeovers(seed: int, *, objects: bool = False) -> TakeoverSchedule:
    """Run one schedule, and say how to run it again if it fails."""
    schedule = TakeoverSchedule(seed, objects=objects)
    try:
        with small_limits(seed):
            schedule.run()
    except BaseException as error:
        calls = "\n    ".join(schedule.disk.log[-MAX_SHOWN_CALLS:])
        error.add_note(
            f"replay: python -m tests.support.takeovers {seed}{' objects' * objects}; the last "
            f"calls:\n    {calls}"
        )
        raise
    return schedule


if __name__ == "__main__":
    played = play_takeovers(int(sys.argv[1]), objects="objects" in sys.argv)
    sys.stdout.write("\n".join([*played.disk.log, *played.outcomes, ""]))
