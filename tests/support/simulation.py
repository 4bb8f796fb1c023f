"""Simulates a sink, Spark, a target and a disk, with random faults between them.

A schedule is a function of its seed. It plays Spark, which has in its checkpoint what the
micro-batches are and how many are committed, and is right about that: it gives the first
micro-batch that is not committed to the sink, again and again until the sink returns and the commit
is noted. Faults come after a random number of calls: of the file system
(`tests.support.simulated_files`), of reading the rows, of the target, and of noting the commit.
After a crash everything but the disk, the target and the checkpoint is dropped, and a new circuit
and sink begin.

Where power is lost, Spark may have lost its last commits, too, as it syncs none of its files; but
not more than the sink keeps versions.

What has to be true is checked as soon as it can be false:

*   a delta that is given to the target is that of the oracle, every time it is given;
*   when the sink returns, the target has been given the deltas of all views of that micro-batch;
*   an error of the sink has a cause, and without more causes the schedule comes to its end;
*   the views that a new sink loads are right, and so are the deltas of taking away all rows;
*   at the end there is no file on the disk that no version names, but the dead letters of all
    micro-batches, once each.

With ``damage`` a file is also changed, cut or removed, mostly between two sinks. A version that is
whole has to serve if Spark gives the micro-batch after it; else an error may name the file. Never
is a delta wrong.

    python -m tests.support.simulation 17            # play one schedule and print all calls
    python -m tests.support.simulation 17 damage long
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
from streaming.state import parquet, writer
from streaming.state import segment_references as pieces
from streaming.state.local_files import LOCK_FILE
from streaming.state.manifest import MANIFESTS, Manifest, parse_manifest_name
from streaming.state.ownership import EPOCH_FILE as EPOCH
from streaming.targets.output_mode import OutputMode
from streaming.targets.target import ViewDelta
from tests.generators.simulated_streams import CASES, Stream, published_rows, stream
from tests.support.simulated_files import Crash, Fault, SimulatedDisk, SimulatedFiles
from tests.support.tables import bag_of

IDENTITY = "state.json"
SEED = "DBSP_WCOJ_SEED"
STREAMS = 12  # of each case
LOGGED = 60  # calls that are shown of a failing schedule


class Target:
    """A target that stores micro-batches by id, and checks each delta that it gets."""

    def __init__(self, given: Stream) -> None:
        self.seen: list[set[str]] = [set() for _ in given.tables]
        self.files: SimulatedFiles | None = None
        self._given = given

    def write(self, delta: ViewDelta) -> None:
        assert self.files is not None
        self.files.point(f"target, before {delta}")
        bag = bag_of(delta.table)
        expected = published_rows(self._given, delta.view, delta.batch_id, delta.mode, delta.keys)
        assert bag == expected, f"{delta}: {dict(bag)} instead of {dict(expected)}"
        assert delta.table.num_rows == len(bag), f"{delta} is not consolidated"
        self.seen[delta.batch_id].add(delta.view)
        self.files.point(f"target, after {delta}")


class Frame:
    """A micro-batch as Spark gives it."""

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
    """One run of a stream through all that its seed has in store for it."""

    def __init__(self, seed: int, *, damage: bool = False, long: bool = False) -> None:
        self.random = random = Random(f"schedule {seed}")
        # Without a join a circuit is made in no time; what is to be tried is mostly not in it.
        weights = [1 if long or name != "rows" else 20 for name in CASES]
        (case,) = random.choices(list(CASES), weights)
        self.stream = stream(case, random.randrange(STREAMS), long=long)
        self.spec = definition_of(case)
        self.disk = SimulatedDisk(f"disk {seed}")
        self.target = Target(self.stream)
        self.keep = random.choice([2, 2, 3, 5])
        self.modes = CASES[case].modes if random.random() < 0.5 else {}
        self.faults = random.choice([1, 2, 3, 5, 8] if long else [1, 1, 2, 3])
        self.spread = random.choice([3, 10, 30, 100])
        self.damage: Damage | None = None
        self.harmless = not damage
        self.committed = 0
        self.highest = 0
        self.sink: ViewSink | None = None

    def run(self) -> str:
        """How it ended: "done", or "refused" after damage.

        Raises:
            AssertionError: Something was not true.
        """
        end = len(self.stream.tables) - 1
        while self.committed < end:
            self._plan()
            if not self._attempt():
                return "refused"
        self.disk.plan(None)
        self.disk.tidy()
        try:
            self._restart_quietly()
            self._deliver()
        except StreamingError as error:
            if self._explained(error):
                return "refused"
            raise
        if self.damage is None:
            self._check_files()
        return "done"

    def _plan(self) -> None:
        random = self.random
        if self.faults and not self.disk.planned:
            self.faults -= 1
            kind = random.choice(["power", "power", "kill", "error", "error", "full"])
            when = random.choice(["before", "during", "after"])
            self.disk.plan(Fault(int(random.expovariate(1 / self.spread)), kind, when))

    def _attempt(self) -> bool:
        """Give Spark's next micro-batch to the sink; False if damage was found, rightly."""
        try:
            self._harm()
            if self.sink is None:
                self._start()
            self._deliver()
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
            self.disk.struck = False
            self.disk.tidy()
            self._stop_after_error()
        return True

    def _start(self) -> None:
        files = self.disk.files()
        formula = self.random.choice(list(Formula))
        options = replace(self.spec.options, formula=formula)
        circuit = Circuit(replace(self.spec, options=options))
        self.target.files = files
        self.sink = sink_of(circuit, self.target, files, self.keep, self.modes)

    def _deliver(self) -> None:
        """As Spark: the first micro-batch that is not committed, then the commit."""
        assert self.sink is not None and self.target.files is not None
        batch_id = self.committed
        self.highest = max(self.highest, batch_id)
        self.sink(Frame(self.stream.tables[batch_id], self.target.files), batch_id)
        missing = self.stream.deltas[batch_id].keys() - self.target.seen[batch_id]
        assert not missing, f"micro-batch {batch_id} is done, {missing} were not given out"
        self.target.files.point(f"Spark notes commit {batch_id}")
        self.committed += 1

    def _stop_after_error(self) -> None:
        """The query has failed; it is started again on the same sink, or on a new one."""
        if self.random.random() < 0.5:
            return
        sink, self.sink = self.sink, None
        if sink is None:
            return
        self.disk.plan(None)
        sink.close()

    def _restart_quietly(self) -> None:
        """Spark gives the last micro-batch again, to a new sink; the views are looked at."""
        self.disk.kill()
        self._start()
        self.committed -= 1
        self._deliver()
        assert self.sink is not None
        circuit = self.sink.circuit
        for view in circuit.materialized:
            if view in self.stream.views[-2]:
                assert bag_of(circuit.views[view]) == self.stream.views[-2][view], view

    def _check_files(self) -> None:
        there = set(self.disk.names())
        named = set()
        for name in there:
            if name.startswith(f"{MANIFESTS}/"):
                named |= {name, *Manifest.decode(self.disk.content(name), name).files}
        other = {name for name in there if "/" not in name}
        letters = {f"dead_letters/{n:020}.parquet": late for n, late in enumerate(self.stream.late)}
        other |= {name for name, late in letters.items() if late}
        assert there == named | other, f"{there ^ (named | other)} should not, or should, be there"
        for name in letters.keys() & there:
            table = pq.read_table(pa.py_buffer(self.disk.content(name)))
            assert sum(table["weight"].to_pylist()) == letters[name], name
        assert sum(name.startswith(f"{MANIFESTS}/") for name in there) <= self.keep

    def _explained(self, error: Exception) -> bool:
        return self.damage is not None and self.damage.explains(error, self.committed)

    def _harm(self) -> None:
        names = [name for name in self.disk.names() if name not in (LOCK_FILE, EPOCH)]
        if (
            names
            and not self.harmless
            and self.random.random() < (0.5 if self.sink is None else 0.2)
        ):
            self.harmless = True
            self.damage = Damage(self.disk, self.random.choice(names), self.random)


class Damage:
    """A file that is not as it was written, or not there, and what a sink may say to that."""

    def __init__(self, disk: SimulatedDisk, name: str, random: Random) -> None:
        self.name = name
        self._disk = disk
        disk.replace(name, damaged(disk.content(name), random))

    def explains(self, error: Exception, batch_id: int) -> bool:
        """Return whether the sink could do no better than to refuse a micro-batch, and says why."""
        if self.name == IDENTITY:  # which any manifest can tell
            if self._whole_versions():
                return False
        elif batch_id == 0 or batch_id - 1 in self._whole_versions():
            return False
        if isinstance(error, BatchOrderError):  # nobody misses a manifest that is gone
            return self.name.startswith(MANIFESTS) and self.name not in self._disk.names()
        return isinstance(error, StateDamagedError) and self.name in str(error)

    def _whole_versions(self) -> set[int]:
        found = set()
        for name in self._disk.names():
            if parse_manifest_name(name) is not None and name != self.name:
                manifest = Manifest.decode(self._disk.content(name), name)
                if self.name not in manifest.files:
                    found.add(manifest.batch_id)
        return found


def damaged(content: bytes, random: Random) -> bytes | None:
    how = random.randrange(5)
    place = random.randrange(max(len(content), 1))
    if how == 0 or not content:
        return None
    if how == 1:
        return content[:place]
    if how == 2:
        return content + random.randbytes(1 + random.randrange(8))
    if how == 3:
        rest = content[place + 64 :]
        return content[:place] + bytes(len(content) - place - len(rest)) + rest
    flipped = content[place] ^ (1 << random.randrange(8))
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def sink_of(
    circuit: Circuit,
    target: Target,
    files: SimulatedFiles,
    keep: int,
    modes: Mapping[str, OutputMode] = MappingProxyType({}),
) -> ViewSink:
    outputs = [
        Output(view, target, mode.mode, mode.keys)
        for view, mode in ((view, modes.get(view, OutputMode())) for view in circuit.outputs)
    ]
    return ViewSink(circuit, outputs, state_dir=files, keep=keep)


@cache
def definition_of(case: str) -> CircuitSpec:
    return CASES[case].compile().spec


@contextmanager
def small_limits(seed: int) -> Iterator[None]:
    """Limits that tiny streams reach, and no threads or names that are not the seed's."""
    random = Random(f"limits {seed}")
    names = Random(f"names {seed}")
    with ExitStack() as stack:
        for module, name, values in (
            (pieces, "LEVEL_FANOUT", [2, 3, 8]),
            (writer, "MIN_OWN_FILE_BYTES", [100, 1000, 1 << 20]),
            (writer, "MAX_SMALL_SEGMENTS", [3, 6, 64]),
            (writer, "MAX_SHARED_MERGE_ROWS", [2, 10, 1 << 18]),
            (writer, "MAX_PARTS", [3, 64]),
            (writer, "SEGMENTS_PER_REWRITE", [1, 2]),
            (parquet, "MAX_FILE_ROWS", [1, 3, 1 << 20]),
        ):
            stack.enter_context(patch.object(module, name, random.choice(values)))
        # A thread per micro-batch that only logs what takes long.
        stack.enter_context(patch.object(Stopwatch, "__enter__", lambda self: self))
        stack.enter_context(
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4))
        )
        yield


def play(seed: int, *, damage: bool = False, long: bool = False) -> Schedule:
    """Run one schedule, and say how to run it again if it fails."""
    schedule = Schedule(seed, damage=damage, long=long)
    try:
        with small_limits(seed):
            schedule.outcome = schedule.run()
    except BaseException as error:
        kind = " damage" * damage + " long" * long
        calls = "\n    ".join(schedule.disk.log[-LOGGED:])
        error.add_note(
            f"seed={seed}{kind}; replay: python -m tests.support.simulation {seed}{kind}\n"
            f"or {SEED}={seed} pytest tests/streaming/state/test_simulation.py; "
            f"the last calls:\n    {calls}"
        )
        raise
    return schedule


def seeds(number: int) -> Iterable[int]:
    """The seeds to be run: so many, or the one of the environment."""
    chosen = os.environ.get(SEED)
    return range(number) if chosen is None else [int(chosen)]


if __name__ == "__main__":
    played = play(int(sys.argv[1]), damage="damage" in sys.argv, long="long" in sys.argv)
    sys.stdout.write("\n".join([*played.disk.log, played.outcome, ""]))
