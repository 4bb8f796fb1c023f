"""Simulates a sink, Spark, a target and a disk, with random faults between them.

A schedule is a function of its seed. It acts as Spark, whose checkpoint has the micro-batches and
the number of commits: it passes the first uncommitted micro-batch to the sink, again and again,
until the sink returns and the commit is recorded. Faults occur after a random number of calls to
the file system (`tests.support.simulated_files`), to read the rows, to the target, or to record a
commit. After a crash everything but the disk, the target and the checkpoint is dropped, and a new
circuit and sink start.

If power is lost, Spark may also lose its last commits, because it does not sync its files; but not
more of them than the sink keeps versions.

The schedule checks these properties as soon as they could be violated:

*   a delta that the target receives is that of the oracle, every time;
*   when the sink returns, the target has received the deltas of all views of that micro-batch;
*   an error of the sink has a cause, and without further faults the schedule ends;
*   the views that a new sink loads are correct, and so are the deltas of deleting all rows;
*   at the end the only files on the disk are those that a version lists, and the dead letters of
    all micro-batches, each once.

With ``damage`` a file is also changed, cut or removed, mostly between two sinks. If the version
before the next micro-batch is intact, the sink must continue from it; otherwise it may raise an
error that names the file. A delta is never wrong.

    python -m tests.support.simulation 17            # play one schedule and print all calls
    python -m tests.support.simulation 17 damage long
    python -m tests.support.simulation 17 objects    # on an object store
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from random import Random
from types import MappingProxyType, SimpleNamespace
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from dbsp_wcoj import Formula
from streaming import BatchOrderError, StateDamagedError, StreamingError, ViewSink
from streaming.sink.metrics import Stopwatch
from streaming.sink.output import Output
from streaming.state import compaction, parquet, segment_references, versions, writer
from streaming.state.local_files import LOCK_FILE
from streaming.state.manifest import MANIFESTS, Manifest, parse_manifest_name
from streaming.state.ownership import EPOCH_FILE as EPOCH
from streaming.state.records.dead_letter_files import find_batch_id
from streaming.targets.output_mode import OutputMode
from streaming.targets.target import ViewDelta
from tests.generators.simulated_streams import CASES, Stream, published_rows, stream
from tests.support.polled_thread import PolledThread
from tests.support.simulated_files import Crash, Fault, SimulatedDisk, SimulatedFiles
from tests.support.tables import bag_of

IDENTITY = "state.json"
SEED = "DBSP_WCOJ_SEED"
STREAMS = 12  # the number of streams of each case
MAX_SHOWN_CALLS = 60  # the last calls of a failing schedule


class Target:
    """A target that checks each delta, and records the views of each micro-batch."""

    def __init__(self, stream: Stream) -> None:
        self.received: list[set[str]] = [set() for _ in stream.tables]
        self.files: SimulatedFiles | None = None
        self._stream = stream

    def write(self, delta: ViewDelta) -> None:
        assert self.files is not None
        self.files.point(f"target, before {delta}")
        bag = bag_of(delta.table)
        expected = published_rows(self._stream, delta.view, delta.batch_id, delta.mode, delta.keys)
        assert bag == expected, f"{delta}: {dict(bag)} instead of {dict(expected)}"
        assert delta.table.num_rows == len(bag), f"{delta} is not consolidated"
        self.received[delta.batch_id].add(delta.view)
        self.files.point(f"target, after {delta}")


class Frame:
    """The DataFrame of a micro-batch, as far as a sink uses it."""

    def __init__(self, table: pa.Table, files: SimulatedFiles) -> None:
        self._table = table
        self._files = files
        context = SimpleNamespace(getLocalProperty=lambda key: "query")
        self.sparkSession = SimpleNamespace(sparkContext=context)

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    def toArrow(self) -> pa.Table:  # Spark's name
        self._files.point("read the rows")
        return self._table


class Schedule:
    """One run of a stream, with the faults of a seed.

    Attributes:
        keep: The number of versions that the sink keeps.
        faults: The number of faults that are still to come.
        mean_calls: The mean number of calls before a fault.
        damage: The damaged file, if any.
        can_damage: True until a file is damaged.
        committed: The number of micro-batches that Spark has committed.
        highest: The highest batch id that the sink has received.
    """

    def __init__(
        self, seed: int, *, damage: bool = False, long: bool = False, objects: bool = False
    ) -> None:
        self.random = random = Random(f"schedule {seed}")
        # The circuit without a join is quick to compile, and most faults do not depend on the
        # views.
        weights = [1 if long or name != "rows" else 20 for name in CASES]
        (case,) = random.choices(list(CASES), weights)
        self.stream = stream(case, random.randrange(STREAMS), long=long)
        self.spec = spec_of(case)
        self.disk = SimulatedDisk(f"disk {seed}", has_objects=objects)
        self.target = Target(self.stream)
        self.keep = random.choice([2, 2, 3, 5])
        # With a limit of one byte, every part of the state is mapped after every commit.
        self.memory_limit = Random(f"memory {seed}").choice([None, 1])
        self.modes = CASES[case].modes if random.random() < 0.5 else {}
        self.faults = random.choice([1, 2, 3, 5, 8] if long else [1, 1, 2, 3])
        self.mean_calls = random.choice([3, 10, 30, 100])
        self.damage: Damage | None = None
        self.can_damage = damage
        self.committed = 0
        self.highest = 0
        self.sink: ViewSink | None = None

    def run(self) -> str:
        """Return how the schedule ended: "done", or "refused" after damage.

        Raises:
            AssertionError: A property is violated.
        """
        end = len(self.stream.tables) - 1
        while self.committed < end:
            self._plan_fault()
            if not self._attempt():
                return "refused"
        self.disk.plan(None)
        self.disk.tidy()
        try:
            self._restart_without_faults()
            self._deliver()
        except StreamingError as error:
            if self._explained(error):
                return "refused"
            raise
        if self.damage is None:
            self._check_files()
        return "done"

    def _plan_fault(self) -> None:
        random = self.random
        if self.faults and not self.disk.has_planned_fault:
            self.faults -= 1
            kind = random.choice(["power", "power", "kill", "error", "error", "full"])
            when = random.choice(["before", "during", "after"])
            self.disk.plan(Fault(int(random.expovariate(1 / self.mean_calls)), kind, when))

    def _attempt(self) -> bool:
        """Pass Spark's next micro-batch to the sink; return False if damage explains its error."""
        try:
            self._damage_file()
            if self.sink is None:
                self._start()
            self._deliver()
            # The fault of a compaction, which does not fail the micro-batch, excuses no later one.
            # A delayed takeover may have fenced the sink, which fails later.
            self.disk.struck = self.disk.full or self.disk.has_late_request
        except Crash as crash:
            self.sink = None
            if crash.power and self.random.random() < 0.3:
                oldest = max(self.highest - self.keep + 1, 0)
                self.committed = max(oldest, self.committed - self.random.randrange(self.keep))
        except Exception as error:
            if not self.disk.struck:
                if self._explained(error):
                    return False
                raise
            self.disk.struck = self.disk.has_late_request = False
            self.disk.tidy()
            self._stop_after_error()
        return True

    def _start(self) -> None:
        files = self.disk.files()
        formula = self.random.choice(list(Formula))
        options = replace(self.spec.options, formula=formula)
        circuit = Circuit(replace(self.spec, options=options))
        self.target.files = files
        self.sink = sink_of(circuit, self.target, files, self.keep, self.modes, self.memory_limit)

    def _deliver(self) -> None:
        """Pass the first uncommitted micro-batch to the sink, then commit it, as Spark does."""
        assert self.sink is not None and self.target.files is not None
        batch_id = self.committed
        self.highest = max(self.highest, batch_id)
        self.sink(Frame(self.stream.tables[batch_id], self.target.files), batch_id)
        missing = self.stream.deltas[batch_id].keys() - self.target.received[batch_id]
        assert not missing, f"micro-batch {batch_id} is done, {missing} were not published"
        self.target.files.point(f"Spark records commit {batch_id}")
        self.committed += 1

    def _stop_after_error(self) -> None:
        """Start the failed query again, on the same sink or on a new one."""
        if self.random.random() < 0.5:
            return
        sink, self.sink = self.sink, None
        if sink is None:
            return
        self.disk.plan(None)
        sink.close()

    def _restart_without_faults(self) -> None:
        """Replay the last micro-batch with a new sink, and check its views."""
        self.disk.kill()
        self.disk.let_delayed_requests_arrive(10**9)
        self._start()
        self.committed -= 1
        self._deliver()
        assert self.sink is not None
        circuit = self.sink.circuit
        for view in circuit.materialized:
            if view in self.stream.views[-2]:
                assert bag_of(circuit.views[view]) == self.stream.views[-2][view], view

    def _check_files(self) -> None:
        assert self.sink is not None
        self.sink.close()
        existing = set(self.disk.names())
        listed = set()
        for name in existing:
            if name.startswith(f"{MANIFESTS}/"):
                listed |= {name, *Manifest.decode(self.disk.content(name), name).files}
        other = {name for name in existing if "/" not in name}
        dead_letters = {name for name in existing if name.startswith("dead_letters/")}
        expected = listed | other | dead_letters
        assert existing == expected, f"unexpected or missing files: {existing ^ expected}"
        batch_ids = sorted(map(find_batch_id, dead_letters))
        assert batch_ids == [n for n, late in enumerate(self.stream.late) if late], dead_letters
        for name in dead_letters:
            table = pq.read_table(pa.py_buffer(self.disk.content(name)))
            assert sum(table["weight"].to_pylist()) == self.stream.late[find_batch_id(name)], name
        assert sum(name.startswith(f"{MANIFESTS}/") for name in existing) <= self.keep

    def _explained(self, error: Exception) -> bool:
        return self.damage is not None and self.damage.explains(error, self.committed)

    def _damage_file(self) -> None:
        names = [name for name in self.disk.names() if name not in (LOCK_FILE, EPOCH)]
        if names and self.can_damage and self.random.random() < (0.5 if self.sink is None else 0.2):
            self.can_damage = False
            self.damage = Damage(self.disk, self.random.choice(names), self.random)


class Damage:
    """A changed or removed file, and the errors of a sink that it explains."""

    def __init__(self, disk: SimulatedDisk, name: str, random: Random) -> None:
        self.name = name
        self._disk = disk
        disk.replace(name, damage_content(disk.content(name), random))

    def explains(self, error: Exception, batch_id: int) -> bool:
        """Return whether the damage forces the sink to refuse a micro-batch with this error."""
        if self.name == IDENTITY:  # any manifest has the identity, too
            if self._whole_versions():
                return False
        elif batch_id == 0 or batch_id - 1 in self._whole_versions():
            return False
        if isinstance(error, BatchOrderError):
            # The sink cannot know that a manifest was removed, only that a batch id is missing.
            return self.name.startswith(MANIFESTS) and self.name not in self._disk.names()
        return isinstance(error, StateDamagedError) and self.name in str(error)

    def _whole_versions(self) -> set[int]:
        batch_ids = set()
        for name in self._disk.names():
            if parse_manifest_name(name) is not None and name != self.name:
                manifest = Manifest.decode(self._disk.content(name), name)
                if self.name not in manifest.files:
                    batch_ids.add(manifest.batch_id)
        return batch_ids


def damage_content(content: bytes, random: Random) -> bytes | None:
    """Return content that is removed (None), cut, extended, partly zeroed, or has a flipped bit."""
    kind = random.randrange(5)
    position = random.randrange(max(len(content), 1))
    if kind == 0 or not content:
        return None
    if kind == 1:
        return content[:position]
    if kind == 2:
        return content + random.randbytes(1 + random.randrange(8))
    if kind == 3:
        tail = content[position + 64 :]
        return content[:position] + bytes(len(content) - position - len(tail)) + tail
    flipped = content[position] ^ (1 << random.randrange(8))
    return content[:position] + bytes([flipped]) + content[position + 1 :]


def sink_of(
    circuit: Circuit,
    target: Target,
    files: SimulatedFiles,
    keep: int,
    modes: Mapping[str, OutputMode] = MappingProxyType({}),
    memory_limit: int | None = None,
) -> ViewSink:
    outputs = [
        Output(view, target, mode.mode, mode.keys)
        for view, mode in ((view, modes.get(view, OutputMode())) for view in circuit.outputs)
    ]
    return ViewSink(circuit, outputs, state_dir=files, keep=keep, memory_limit=memory_limit)


@cache
def spec_of(case: str) -> CircuitSpec:
    return CASES[case].compile().spec


@contextmanager
def small_limits(seed: int) -> Iterator[None]:
    """Set limits that tiny streams reach, and make all threads and names depend on the seed."""
    random = Random(f"limits {seed}")
    names = Random(f"names {seed}")
    with ExitStack() as stack:
        for module, name, values in (
            (segment_references, "LEVEL_FANOUT", [2, 3, 8]),
            (writer, "MIN_OWN_FILE_BYTES", [100, 1000, 1 << 20]),
            (writer, "MAX_SMALL_SEGMENTS", [3, 6, 64]),
            (writer, "MAX_MERGED_BYTES", [0, 200, 1 << 18]),
            (writer, "MAX_STORED_PARTS", [3, 64]),
            (versions, "MIN_LARGE_FILE_BYTES", [0, 2000, 1 << 20]),
            (compaction, "ROWS_PER_SLICE", [1, 1 << 20]),
            (compaction, "STEPS_AFTER_FAILURE", [1, 3]),
            (writer, "SEGMENTS_PER_REWRITE", [1, 2]),
            (parquet, "MAX_FILE_ROWS", [1, 3, 1 << 20]),
        ):
            stack.enter_context(patch.object(module, name, random.choice(values)))
        polls = Random(f"polls {seed}")
        stack.enter_context(
            patch.object(
                compaction, "start_thread", lambda run: PolledThread(run, polls.randrange(4))
            )
        )
        # It would start a thread for each micro-batch, which only logs long phases.
        stack.enter_context(patch.object(Stopwatch, "__enter__", lambda self: self))
        stack.enter_context(
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4))
        )
        yield


def play(seed: int, *, damage: bool = False, long: bool = False, objects: bool = False) -> Schedule:
    """Run one schedule, and say how to run it again if it fails."""
    schedule = Schedule(seed, damage=damage, long=long, objects=objects)
    try:
        with small_limits(seed):
            schedule.outcome = schedule.run()
    except BaseException as error:
        kind = " damage" * damage + " long" * long + " objects" * objects
        calls = "\n    ".join(schedule.disk.log[-MAX_SHOWN_CALLS:])
        error.add_note(
            f"seed={seed}{kind}; replay: python -m tests.support.simulation {seed}{kind}\n"
            f"or {SEED}={seed} pytest tests/streaming/state/test_simulation.py; "
            f"the last calls:\n    {calls}"
        )
        raise
    return schedule


def seeds(number: int) -> Iterable[int]:
    """Return the seeds to run: the first ``number``, or the one of the environment variable."""
    chosen = os.environ.get(SEED)
    return range(number) if chosen is None else [int(chosen)]


if __name__ == "__main__":
    kinds = {kind: kind in sys.argv for kind in ("damage", "long", "objects")}
    schedule = play(int(sys.argv[1]), **kinds)
    sys.stdout.write("\n".join([*schedule.disk.log, schedule.outcome, ""]))
