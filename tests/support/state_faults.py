"""Damages a state directory on the real disk at random, and checks what a sink then does.

A trial copies a directory of some micro-batches, damages one or two of its files, and lets a sink
continue: with the next micro-batch or a replay of the last one, and after a restart. There are two
valid outcomes::

    the deltas and the views are those of the model          (the fault had no effect)
    an error of this library, and no wrong delta;            (the fault had an effect)
        after the fault is undone, the state is that of the last commit

Anything else is a finding: a wrong delta or view (silent), an error of another kind (untyped), or a
trial that does not end.

    python -m tests.support.state_faults 1000         # 1000 trials, and the number of each outcome
    python -m tests.support.state_faults 1 17         # one trial, of seed 17
    python -m tests.support.state_faults 200 0 1      # 200 trials of seeds 0 to 199, in cells

Half of the other directories have views with windows, sessions, lists and functions of Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from circuits import compile_sql, udf
from circuits.circuit import Circuit
from streaming import StreamingError, ViewSink
from streaming.distributed.execution.executor_cache import CACHE
from streaming.state import local_files
from streaming.state.manifest import parse_manifest_name
from tests.streaming.distributed.test_attempts import Context
from tests.streaming.distributed.test_engine import (
    INPUT_OPTIONS,
    SCHEMAS,
    Frame,
    batches,
    circuit_spec,
    outputs,
)
from tests.support import fed_sink as fed
from tests.support.threaded_world import backwards, bag_of

BATCHES = 5  # in the directory, before it is damaged
MAX_BATCHES = BATCHES + 9  # with those that a trial adds
TIME_LIMIT_S = 600  # of a trial
SECRET = b"outside of the directory"


class Embedded:
    """Views in one process."""

    name = "embedded"

    def __init__(self) -> None:
        self._spec = fed.views().spec

    def sink(self, place: Path) -> ViewSink:
        return fed.sink_on(place, Circuit(self._spec))

    def feed(self, sink: ViewSink, number: int) -> None:
        fed.feed(sink, number)  # its target checks the deltas

    def check(self, sink: ViewSink, batches: int) -> None:
        fed.check(sink, batches)


class NewConstructs:
    """Views with windows, sessions, lists, a user-defined function and the newest time."""

    name = "new constructs"
    views = """
        CREATE VIEW ranked AS SELECT src, dst, row_number() OVER w AS n, lag(dst) OVER w AS p
            FROM e WINDOW w AS (PARTITION BY src ORDER BY dst);
        CREATE VIEW sessions AS SELECT src, SESSION_START(dst, 1) AS t, count(*) AS n
            FROM e GROUP BY src, SESSION(dst, 1);
        CREATE VIEW listed AS SELECT src, list(dst ORDER BY dst) AS l, {'n': count(*)} AS s
            FROM e GROUP BY src;
        CREATE VIEW parts AS SELECT u.x, count(*) AS n FROM e, unnest([src, dst]) AS u(x)
            GROUP BY u.x;
        CREATE VIEW called AS SELECT id, backwards(name) AS t FROM p;
    """

    def __init__(self) -> None:
        self._spec = compile_sql(
            self.views,
            SCHEMAS,
            materialize=True,
            input_options=INPUT_OPTIONS,
            functions={"backwards": udf(backwards, returns=pa.string())},
        ).spec
        self._tables = batches(MAX_BATCHES, "new constructs")
        steady = ViewSink(Circuit(self._spec))
        self._deltas, self._views = [], [self._bags(steady)]
        for number, table in enumerate(self._tables):
            steady(Frame(None, table), number)
            self._deltas.append(self._outputs(steady))
            self._views.append(self._bags(steady))

    def sink(self, place: Path) -> ViewSink:
        return ViewSink(Circuit(self._spec), state_dir=place)

    def feed(self, sink: ViewSink, number: int) -> None:
        sink(Frame(None, self._tables[number]), number)
        assert self._outputs(sink) == self._deltas[number], f"micro-batch {number}"

    def check(self, sink: ViewSink, batches: int) -> None:
        assert self._bags(sink) == self._views[batches]

    @staticmethod
    def _outputs(sink: ViewSink) -> dict[str, Counter]:
        assert sink.last is not None
        return {name: bag_of(table) for name, table in sink.last.outputs.items()}

    def _bags(self, sink: ViewSink) -> dict[str, Counter]:
        return {name: bag_of(sink.table(name)) for name in self._spec.plans}


class InCells:
    """Views in cells, whose tasks run in this process."""

    name = "cells"

    def __init__(self) -> None:
        self._spec = circuit_spec()
        self._tables = batches(MAX_BATCHES, "faults")
        steady = ViewSink(Circuit(self._spec))
        self._deltas = []
        for number, table in enumerate(self._tables):
            steady(Frame(None, table), number)
            self._deltas.append(outputs(steady))

    def sink(self, place: Path) -> ViewSink:
        CACHE.clear()  # a cached file would hide its damage
        circuit = Circuit(self._spec)
        return ViewSink(circuit, state_dir=place, mode="distributed", cells=3)

    def feed(self, sink: ViewSink, number: int) -> None:
        session: Any = SimpleNamespace(sparkContext=Context(number))
        sink(Frame(session, self._tables[number]), number)
        assert outputs(sink) == self._deltas[number], f"micro-batch {number}"

    def check(self, sink: ViewSink, batches: int) -> None:
        """Check nothing: no cell has a whole view, but later deltas would be wrong."""


Case = Embedded | NewConstructs | InCells


@dataclass
class Damage:
    """The faults of a directory, and how to undo them."""

    place: Path
    outside: Path
    descriptions: list[str] = field(default_factory=list)
    undo_steps: list[Callable[[], None]] = field(default_factory=list)

    def undo(self) -> None:
        """Restore every path that nobody has changed since the fault."""
        for undo_step in reversed(self.undo_steps):
            undo_step()

    def change(self, path: Path, write: Callable[[Path], object], description: str) -> None:
        """Replace the content of a path by what ``write`` creates there."""
        before = state_of(path)
        remove(path)
        path.parent.mkdir(exist_ok=True)
        write(path)
        after = state_of(path)
        self.descriptions.append(f"{description} {path.relative_to(self.place)}")

        def undo() -> None:
            if before[0] == "folder" and path.is_dir():
                for name, state in before[1].items():
                    if not os.path.lexists(path / name):
                        restore(path / name, state)
            elif state_of(path) == after:
                restore(path, before)

        self.undo_steps.append(undo)


State = tuple[str, Any]


def state_of(path: Path) -> State:
    """Return the content at a path, to compare and restore it."""
    if path.is_symlink():
        return "link", os.readlink(path)
    if path.is_dir():
        return "folder", {entry.name: state_of(entry) for entry in path.iterdir()}
    if path.is_file():
        return "file", path.read_bytes()
    return ("other", None) if path.exists() else ("nothing", None)


def restore(path: Path, state: State) -> None:
    remove(path)
    kind, content = state
    path.parent.mkdir(exist_ok=True)
    if kind == "file":
        path.write_bytes(content)
    elif kind == "link":
        path.symlink_to(content)
    elif kind == "folder":
        path.mkdir()
        for name, entry in content.items():
            restore(path / name, entry)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def contents(path: Path) -> list[Path]:
    """Return the files of a folder that can be damaged."""
    return [entry for entry in path.iterdir() if entry.is_file() and not entry.is_symlink()]


def bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def apply_fault(damage: Damage, random: Random) -> None:
    """Apply one random fault."""
    place = damage.place
    # Each folder is equally likely, however many files it has.
    folders = [place, place / "manifests", place / "data", place / "outputs"]
    folder = random.choice([candidate for candidate in folders if candidate.is_dir()])
    files = sorted(contents(folder))
    if not files:
        return
    path, other = random.choice(files), random.choice(files)
    data, other_data = bytes_of(path), bytes_of(other)
    end = random.randrange(max(len(data), 1))
    manifests = [
        parse_manifest_name(f"manifests/{path.name}") for path in place.glob("manifests/*")
    ]
    newest = max((number for number in manifests if number is not None), default=0)

    def writes(content: bytes) -> Callable[[Path], object]:
        return lambda path: path.write_bytes(content)

    def flip_bits() -> bytes:
        changed = bytearray(data or b"\0")
        for _ in range(random.choice([1, 1, 3, 20])):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        return bytes(changed)

    kinds: list[Callable[[], None]] = [
        lambda: damage.change(path, writes(flip_bits()), "flip"),
        lambda: damage.change(path, writes(data[:end]), "cut"),
        lambda: damage.change(path, writes(data + random.randbytes(9)), "lengthen"),
        lambda: damage.change(path, writes(data[:end] + bytes(len(data) - end)), "zero"),
        lambda: damage.change(path, writes(b""), "empty"),
        lambda: damage.change(path, writes(random.randbytes(len(data))), "garble"),
        lambda: damage.change(path, lambda path: None, "delete"),
        lambda: (
            damage.change(path, writes(other_data), f"swap with {other.name}"),
            damage.change(other, writes(data), f"swap with {path.name}"),
        ),
        lambda: (
            damage.change(path, lambda path: None, "rename"),
            damage.change(path.with_name(new_name(path, newest, random)), writes(data), "as"),
        ),
        lambda: damage.change(other, writes(data), f"copy of {path.name} over"),
        lambda: damage.change(
            path.with_name(new_name(path, newest, random)), writes(data), f"copy of {path.name} as"
        ),
        lambda: damage.change(path, lambda path: path.mkdir(), "folder for"),
        lambda: damage.change(path, lambda path: os.mkfifo(path), "FIFO for"),
        lambda: damage.change(
            path, lambda path: path.symlink_to(damage.outside), "link outside for"
        ),
        lambda: damage.change(path, lambda path: path.symlink_to(other), "link inside for"),
        lambda: damage.change(
            folder / new_name(path, newest, random), writes(random.randbytes(99)), "garbage in"
        ),
        lambda: folder == place or damage.change(folder, lambda path: None, "delete folder"),
        lambda: folder == place or damage.change(folder, lambda path: path.mkdir(), "empty folder"),
        lambda: damage.change(
            place / "manifests" / f"{newest:020}.json",
            writes(bytes_of(place / "manifests" / f"{newest - random.randrange(1, 3):020}.json")),
            "older copy over",
        ),
    ]
    random.choice(kinds)()


def new_name(path: Path, newest: int, random: Random) -> str:
    if path.parent.name == "manifests":
        return f"{newest + random.choice([1, 1, 2, 5, -1]):020}.json"
    return random.choice([f"{path.name}.tmp", f"x{path.name}", ".hidden", "stray"])


class Trial:
    """One directory, one or two faults, and a sink that continues."""

    def __init__(self, case: Case, original: Path, seed: int) -> None:
        self.case = case
        self.random = Random(f"state fault {seed}")
        self.root = Path(tempfile.mkdtemp(prefix="fault-"))
        self.place = self.root / "state"
        self.outside = self.root / "outside"
        self.outside.write_bytes(SECRET)
        shutil.copytree(original, self.place)
        self.damage = Damage(self.place, self.outside)
        self.committed = BATCHES - 1
        self.sinks: list[ViewSink] = []

    def run(self) -> str:
        """Return "unharmed" or "refused".

        Raises:
            AssertionError: A delta or a view was wrong, or files outside were touched.
            Exception: The error is not one of this library.
        """
        try:
            with time_limit(TIME_LIMIT_S):
                return self._run()
        finally:
            for sink in self.sinks:
                sink.close()
            assert self.outside.read_bytes() == SECRET, "a file outside was changed"
            shutil.rmtree(self.root)

    def _run(self) -> str:
        random, running = self.random, None
        if random.random() < 0.3:
            running = self._sink()
            self._feed(running, self.committed + 1)
        for _ in range(random.choice([1, 1, 1, 2])):
            apply_fault(self.damage, random)
        replayed = running is None and random.random() < 0.4
        first = self.committed if replayed else self.committed + 1
        try:
            self._continue(running, first)
        except StreamingError as error:
            self._close_sinks()
            self.damage.undo()
            try:
                self._continue(None, self.committed + 1)
            except StreamingError as later:
                raise AssertionError(f"damaged although the fault is undone: {later}") from error
            return f"refused: {type(error).__name__}"
        return "unharmed"

    def _continue(self, sink: ViewSink | None, first: int) -> None:
        sink = sink or self._sink()
        for number in (first, first + 1):
            self._feed(sink, number)
        self.case.check(sink, self.committed + 1)
        self._close_sinks()
        sink = self._sink()
        self._feed(sink, self.committed)  # a replay
        self._feed(sink, self.committed + 1)
        self.case.check(sink, self.committed + 1)
        self._close_sinks()

    def _feed(self, sink: ViewSink, number: int) -> None:
        self.case.feed(sink, number)
        self.committed = max(self.committed, number)

    def _sink(self) -> ViewSink:
        self.sinks.append(self.case.sink(self.place))
        return self.sinks[-1]

    def _close_sinks(self) -> None:
        for sink in self.sinks:
            sink.close()


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise an error in a trial that does not end in time."""

    def raise_timeout(*arguments: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write_directory(case: Case, place: Path) -> Path:
    """Create the directory of some micro-batches."""
    sink = case.sink(place)
    for number in range(BATCHES):
        case.feed(sink, number)
    sink.close()
    return place


def trials(
    seeds: range, *, share_in_cells: float = 0.2, report: Callable[[str], None] = lambda line: None
) -> tuple[Counter[str], list[str]]:
    """Return the outcomes of the trials, and the findings.

    ``share_in_cells`` is the probability that a trial uses a directory with cells.
    """
    local_files.LOCK_TIMEOUT_S = 0.2
    outcomes: Counter[str] = Counter()
    findings = []
    with tempfile.TemporaryDirectory() as root:
        embedded, constructs, in_cells = (
            (case, Path(root) / case.name) for case in (Embedded(), NewConstructs(), InCells())
        )
        for case, place in (embedded, constructs, in_cells):
            write_directory(case, place)
        for seed in seeds:
            random = Random(f"case {seed}")
            case, place = random.choice([embedded, constructs])
            if random.random() < share_in_cells:
                case, place = in_cells
            trial = Trial(case, place, seed)
            try:
                outcome = trial.run()
            except Exception as error:
                where = "".join(traceback.format_exception(error)[-6:])
                kind = "silent" if isinstance(error, AssertionError) else "untyped"
                findings.append(
                    f"seed {seed}, {case.name}, {kind}: {trial.damage.descriptions}\n{where}"
                )
                outcome = "finding"
                report(findings[-1])
            outcomes[f"{case.name}, {outcome}"] += 1
            if outcomes.total() % 20 == 0:
                report(f"{outcomes.total()} trials: {dict(outcomes)}")
    return outcomes, findings


if __name__ == "__main__":
    number, start, *shares = [*map(int, sys.argv[1:]), *([0] if len(sys.argv) < 3 else [])]
    outcomes, findings = trials(
        range(start, start + number), share_in_cells=[0.2, *shares][-1], report=print
    )
    for name, count in sorted(outcomes.items()):
        print(f"{count:6} {name}")
    sys.exit(bool(findings))
