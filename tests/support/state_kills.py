"""Kills jobs with SIGKILL while their state is compacted, swept, mapped or committed.

    python -m tests.support.state_kills PLACE FOLDER KILLS [SEED]

PLACE says what the jobs do, and in which phase most of them die:

- ``compaction``: between micro-batches the sink is closed, and the state is compacted offline.
- ``memory``: the memory limit is one byte, so all runs are maps of files. Limits are small, so that
  dictionaries are swept, and files are merged in the background, all the time.
- ``object_store``: the state is on a server of the S3 protocol, with and without local copies, and
  is sometimes compacted. A process dies before, after or some milliseconds into a request; most of
  them in the request that commits a version on the condition that its name is free.

A job acts as Spark: it passes the first uncommitted micro-batch to the sink, and records the commit
in a file. Each micro-batch inserts many new strings and deletes rows. The next job goes on with the
same state.

A target is a folder with a file for each micro-batch. A file that is written again must have the
same rows. After the first micro-batch of each job, and after some others, each view of the sink and
the sum of its target's files equal the view of all rows so far, as DuckDB computes it.

At the end the number of kills is printed as JSON, in all and during each phase. A kill may hit
several phases, or none of them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from circuits import compile_sql
from circuits.state import dictionary_sweep
from dbsp_wcoj import warm_up
from dbsp_wcoj.values.interner import Interner
from streaming import Output, ViewSink
from streaming.state import compaction, writer
from streaming.state.files import Bytes, Files
from streaming.state.mapped.file_merge import FileMerge
from streaming.state.mapped.memory_limit import MemoryLimit
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import ObjectFiles
from streaming.state.offline_compaction import compact_state
from tests.streaming.sink.test_view_sink import Frame
from tests.support.killed_process import (
    SCHEMA,
    FolderTarget,
    KillingFiles,
    Plan,
    Source,
    die,
    run_process,
)
from tests.support.s3_server import BUCKET, s3_server
from tests.support.tables import bag_of

KILLS_PER_HISTORY = 10
VIEWS = {
    "names": "SELECT upper(name) AS name, count(*) AS n FROM e GROUP BY 1",
    "pairs": "SELECT x.name, y.name AS other FROM e x JOIN e y ON x.dst = y.src",
    "newest": "SELECT src % 50 AS k, max(name) AS m, sum(dst) AS s FROM e GROUP BY 1",
}
#: The phases of each place, by the letter that a job writes when one begins. It writes the small
#: letter at the end.
PHASES = {
    "compaction": {"K": "offline compaction"},
    "memory": {
        "B": "background compaction",
        "F": "merge of files",
        "X": "exchange of runs for maps",
        "W": "sweep of dictionaries",
    },
    "object_store": {"P": "conditional commit", "K": "offline compaction"},
}


class Phases:
    """The phases that are going on in a job.

    Args:
        plan: Receives them.
        out: The pipe to the parent.
    """

    def __init__(self, plan: Plan, out: int) -> None:
        self._active, self._out = plan.phases, out
        self._swept: set[int] = set()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        self._begin(phase)
        try:
            yield
        finally:
            self._end(phase)

    def observe(self) -> None:
        """Follow the work in the background, and lower the limits so that there is much of it."""
        for module, limit, value in (
            (dictionary_sweep, "MIN_NEW_VALUES", 300),
            (dictionary_sweep, "MIN_WORK", 200),
            (dictionary_sweep, "WORK_PER_VALUE", 4),
            (dictionary_sweep, "_CODES_PER_SLICE", 50),
            (compaction, "ROWS_PER_SLICE", 64),
            (compaction, "MIN_REMOVED_ROWS", 200),
            (writer, "MAX_MERGED_BYTES", 1 << 9),
            (writer, "MIN_OWN_FILE_BYTES", 1 << 12),
        ):
            assert hasattr(module, limit)
            setattr(module, limit, value)
        self._wrap(FileMerge, "merge", "F")
        self._wrap(MemoryLimit, "after_commit", "X")
        compaction.start_thread = self._start_thread
        begin, advance, abandon = (
            getattr(Interner, f"{verb}_sweep") for verb in ("begin", "advance", "abandon")
        )

        def begin_sweep(interner: Interner) -> Any:
            self._swept.add(id(interner))
            self._begin("W")
            return begin(interner)

        def advance_sweep(interner: Interner, work: int) -> Any:
            result = advance(interner, work)
            if result[0]:
                self._end_sweep(interner)
            return result

        def abandon_sweep(interner: Interner) -> None:
            abandon(interner)
            self._end_sweep(interner)

        for function in (begin_sweep, advance_sweep, abandon_sweep):
            setattr(Interner, function.__name__, function)

    def _begin(self, phase: str) -> None:
        self._active.add(phase)
        os.write(self._out, phase.encode())

    def _end(self, phase: str) -> None:
        self._active.discard(phase)
        os.write(self._out, phase.lower().encode())

    def _end_sweep(self, interner: Interner) -> None:
        self._swept.discard(id(interner))
        if not self._swept and "W" in self._active:
            self._end("W")

    def _wrap(self, owner: type, name: str, phase: str) -> None:
        method = getattr(owner, name)

        @wraps(method)
        def observed(*args: Any, **options: Any) -> Any:
            with self.during(phase):
                return method(*args, **options)

        setattr(owner, name, observed)

    def _start_thread(self, function: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            if isinstance(function, partial):  # the removal of files
                function()
                return
            with self.during("B"):
                function()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


class KillingObjectFiles(ObjectFiles):
    """A state directory on an object store, in which a request kills the process."""

    def __init__(
        self, location: str, cache: LocalCache | None, plan: Plan, phases: Phases, random: Random
    ) -> None:
        super().__init__(location, cache)
        self._plan, self._phases, self._random = plan, phases, random

    def create(self, name: str, data: Bytes) -> None:
        if not name.startswith("manifests/"):
            super().create(name, data)
            return
        with self._phases.during("P"):
            super().create(name, data)

    @contextmanager
    def _os_errors(self, name: str, target: str | None = None) -> Iterator[None]:
        if self._plan.point("before"):
            threading.Timer(self._random.uniform(0, 0.01), die).start()
            with super()._os_errors(name, target):
                yield
            time.sleep(60)
        with super()._os_errors(name, target):
            yield
        self._plan.point("after")


class Job:
    """The process that is killed.

    Args:
        place: What it does.
        folder: The folder of state, targets and commits.
        location: The URI of the state on an object store.
        seed: Of the rows.
        life: The number of this job, for its random choices.
        plan: When it dies.
        out: Receives the phases.
    """

    def __init__(
        self, place: str, folder: Path, location: str, seed: str, life: int, plan: Plan, out: int
    ) -> None:
        self._place, self._folder, self._location, self._plan = place, folder, location, plan
        self._random = Random(f"job {seed} {life}")
        self._source = Source(seed, rows=200, values=1000, names=10**9, deletions=0.45)
        self._commits = folder / "commits"
        self._phases = Phases(plan, out)
        if place == "memory":
            self._phases.observe()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._apply(self._random.randrange(1, 4))
            compactions = {"compaction": 1.0, "object_store": 0.3, "memory": 0.0}
            if self._random.random() < compactions[self._place]:
                with self._phases.during("K"):
                    compact_state(self._files())
        self._apply(1)

    @property
    def committed(self) -> int:
        return int(self._commits.read_text()) if self._commits.exists() else 0

    def _files(self) -> Files:
        if self._place != "object_store":
            return KillingFiles(self._folder / "state", self._plan)
        cache = self._random.choice([None, LocalCache(self._folder / "copies")])
        return KillingObjectFiles(self._location, cache, self._plan, self._phases, self._random)

    def _apply(self, batches: int) -> None:
        text = "".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items())
        sink = ViewSink(
            compile_sql(text, {"e": SCHEMA}, materialize=True),
            [Output(view, FolderTarget(self._folder / view, self._plan)) for view in VIEWS],
            state_dir=self._files(),
            memory_limit=1 if self._place == "memory" else None,
        )
        for n in range(batches):
            number = self.committed
            sink(Frame(self._source.table(number), "q"), number)
            self._plan.point("before")
            temporary = self._commits.with_suffix(".tmp")
            temporary.write_text(str(number + 1))
            temporary.rename(self._commits)
            if n == 0 or self._random.random() < 0.2:
                self._check(sink, number)
        sink.close()

    def _check(self, sink: ViewSink, number: int) -> None:
        """Compare views and targets with DuckDB."""
        columns = list(zip(*self._source.live_after(number), strict=True)) or [(), (), ()]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        e = pa.Table.from_arrays(arrays, schema=SCHEMA)
        with duckdb.connect() as connection:
            connection.register("e", e)
            for view, query in VIEWS.items():
                expected = Counter(connection.sql(query).fetchall())
                assert bag_of(sink.table(view)) == expected, f"{view} after {number}"
                target = FolderTarget.rows(self._folder / view)
                assert target == expected, f"target of {view} after {number}"


def run_job(
    place: str, folder: Path, location: str, seed: str, life: int, random: Random, *, is_calm: bool
) -> tuple[bool, set[str]]:
    """Run a job until it dies or ends; return whether it was killed, and the phases at its end."""
    phase = random.choice([*[*PHASES[place]] * 3, ""])
    is_timed = not is_calm and random.random() < 0.4
    # Requests and calls in all phases are many; a commit is one request.
    calls = random.randrange({"": 60, "P": 6, "X": 6, "F": 10}.get(phase, 30))
    when = random.choice(["before", "during", "after"])
    plan = Plan(None if is_timed or is_calm else calls, when, phase)
    scale = 2.0 if not phase else random.choice([0.002, 0.02, 0.1])

    def body(out: int) -> None:
        Job(place, folder, location, seed, life, plan, out).run(1 if is_calm else 5)

    is_killed, written = run_process(
        body,
        delay=random.uniform(0, scale) if is_timed else None,
        phase=phase,
        skip=random.randrange(3),
    )
    active: set[str] = set()
    for letter in written:
        if letter.isupper():
            active.add(letter)
        else:
            active.discard(letter.upper())
    return is_killed, {PHASES[place][letter] for letter in active}


@contextmanager
def server_process() -> Iterator[None]:
    """Run a server of the S3 protocol in a process of its own, and set its variables here."""
    read_end, write_end = os.pipe()
    stop_read, stop_write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(stop_write)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
        with s3_server() as environment:
            os.write(write_end, json.dumps(environment).encode())
            os.close(write_end)
            os.read(stop_read, 1)  # until the parent ends
            os._exit(0)
    os.close(write_end)
    os.close(stop_read)
    with os.fdopen(read_end) as pipe:
        os.environ.update(json.load(pipe))
    yield
    os.close(stop_write)
    os.waitpid(pid, 0)


def run_histories(place: str, folder: Path, kills: int, seed: str) -> None:
    phases: Counter = Counter()
    killed = lives = history = 0
    while killed < kills:
        folder_of_history = folder / f"history-{history}"
        folder_of_history.mkdir(parents=True)
        location = f"s3://{BUCKET}/history-{history}/state"
        random = Random(f"kills {seed} {history}")
        run = partial(run_job, place, folder_of_history, location, f"{seed} {history}")
        last = min(kills, killed + KILLS_PER_HISTORY)
        while killed < last:
            lives += 1
            is_killed, active = run(lives, random, is_calm=False)
            killed += is_killed
            phases.update((active or {"none of them"}) if is_killed else ())
        lives += 1
        run(lives, random, is_calm=True)
        history += 1
    print(json.dumps({"kills": killed, "jobs": lives, "during": dict(phases)}))


def main(place: str, folder: Path, kills: int, seed: str) -> None:
    if place == "object_store":
        with server_process():  # before this process has threads
            warm_up()
            run_histories(place, folder, kills, seed)
    else:
        warm_up()
        run_histories(place, folder, kills, seed)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["0"])[0])
