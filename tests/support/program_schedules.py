"""Schedules of micro-batches, changes of the program, crashes and restarts, on a simulated disk.

A schedule is a function of its seed. It acts as Spark, and as a user who now and then starts the
job with other views, or changes the views of the sink while it runs, at once or in slices. Faults
occur after a random number of calls to the file system or a target; after a crash all but the disk,
the targets and the checkpoint is dropped. The schedule checks after each micro-batch that the
target of every view has the rows of a fresh load of the program.

    python -m tests.support.program_schedules 17          # play one schedule and print all calls
    python -m tests.support.program_schedules 17 cells    # the same with the views in cells
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from streaming import ChangeOptions, Output, ViewSink
from streaming.distributed.execution.executor_cache import CACHE
from streaming.state.manifest import MANIFESTS, Manifest
from streaming.targets.output_mode import Mode
from streaming.targets.target import ViewDelta
from tests.generators.program_histories import (
    COLUMNS,
    VIEWS,
    Program,
    changed_program,
    first_program,
    fresh_views,
    random_rows,
    view_names,
)
from tests.oracles.naive_plan import sum_weights
from tests.support.local_cells import LocalFrame, local_cells
from tests.support.simulated_files import Crash, Fault, SimulatedDisk, SimulatedFiles
from tests.support.simulation import Frame, small_limits
from tests.support.tables import bag_of


class RecordingTarget:
    """A target that remembers each micro-batch, and checks that a replay has the same rows.

    With ``replaces_views``, a whole view replaces all earlier micro-batches, so that the initial
    content of a view arrives in slices. In mode ``complete``, each micro-batch is a whole view.
    """

    def __init__(self, *, replaces_views: bool = False, mode: Mode = "delta") -> None:
        self.replaces_views = replaces_views
        self.mode = mode
        self.batches: dict[int, Counter] = {}
        self.files: SimulatedFiles | None = None

    def write(self, delta: ViewDelta) -> None:
        assert self.files is not None
        self.files.point(f"target, before {delta}")
        bag = bag_of(delta.table)
        if self.replaces_views and delta.is_whole and delta.batch_id not in self.batches:
            self.batches.clear()
        if self.replaces_views and not delta.is_whole and delta.previous is not None:
            assert max(self.batches, default=-1) >= delta.previous
        assert self.batches.setdefault(delta.batch_id, bag) == bag, f"{delta} was other rows before"
        self.files.point(f"target, after {delta}")

    def output(self, view: str) -> Output:
        return Output(view, self, self.mode)

    @property
    def rows(self) -> Counter:
        if self.mode == "complete":
            return self.batches[max(self.batches)]
        return sum_weights([pair for bag in self.batches.values() for pair in bag.items()])


@dataclass
class Job:
    """A program, and the targets of its views."""

    program: Program
    targets: Mapping[str, RecordingTarget]


class ProgramSchedule:
    """One run, with the faults and changes of a seed.

    Args:
        seed: The seed.
        is_distributed: True to run the views in cells.
    """

    def __init__(self, seed: int, *, is_distributed: bool = False) -> None:
        self.random = Random(f"programs {seed}")
        self.disk = SimulatedDisk(f"program disk {seed}")
        self.is_distributed = is_distributed
        self.program = first_program(self.random, is_distributed=is_distributed)
        self.jobs: dict[str, Job] = {}  # by the fingerprint of the circuit
        self.present: dict[str, list] = {name: [] for name in COLUMNS}
        self.committed = 0  # micro-batches that Spark has committed
        self.tables: list[dict[str, pa.Table]] = []
        self.sink: ViewSink | None = None
        # The fingerprint of the last program that was requested of the running sink.
        self.requested = ""
        self.changes: list[Future[int]] = []  # of all sinks
        self.drops: dict[str, Future[int]] = {}  # the last one of each view
        # The last target of each view that replaces views.
        self.replacing: dict[str, RecordingTarget] = {}
        self.whole_views: set[str] = set()  # with an output in mode ``complete`` at some time
        self.faults = self.random.choice([0, 1, 2, 4])
        self.mean_calls = self.random.choice([3, 10, 30])
        # With a limit of one byte, every part of the state is mapped after every commit.
        self.memory_limit = Random(f"memory {seed}").choice([None, 1])

    def run(self) -> None:
        for _ in range(self.random.randint(3, 9)):
            if self.random.random() < 0.4:
                self._stop()
                self.program = self._changed_program()
            while self.sink is not None and self.random.random() < 0.4:
                if self.is_distributed:
                    CACHE.clear()  # other workers step the cells
                with self._survive_fault():
                    self._change_while_running(self.sink)
            self.tables.append(random_rows(self.random, self.program.schemas, self.present))
            while self.committed < len(self.tables):
                self._plan_fault()
                self._attempt()
            self._check()
        self.disk.plan(None)

    def _plan_fault(self) -> None:
        if self.faults and not self.disk.has_planned_fault:
            self.faults -= 1
            kind = self.random.choice(["power", "kill", "error", "full"])
            when = self.random.choice(["before", "during", "after"])
            self.disk.plan(Fault(int(self.random.expovariate(1 / self.mean_calls)), kind, when))

    def _attempt(self) -> None:
        with self._survive_fault():
            if self.sink is None:
                self._start()
            self._deliver()
            self.disk.struck = self.disk.full

    @contextmanager
    def _survive_fault(self) -> Iterator[None]:
        """Go on after a fault in the context as Spark and the user do."""
        try:
            yield
        except Crash:
            self.sink = None
            if self.random.random() < 0.3:  # the user starts other views after the crash
                self.program = self._other_program()
        except Exception:
            if not self.disk.struck:
                raise
            self.disk.struck = False
            self.disk.tidy()
            if self.random.random() < 0.5:  # otherwise the same sink gets the next micro-batch
                self._stop()

    def _change_while_running(self, sink: ViewSink) -> None:
        """Add a view to the sink, at once or in slices, or drop one."""
        program, targets = self.program, dict(self._job_of(sink).targets)
        absent = sorted(set(view_names(self.is_distributed)) - program.views.keys())
        is_added = bool(absent) and (len(program.views) == 1 or self.random.random() < 0.6)
        view = self.random.choice(absent if is_added else sorted(program.views))
        is_materialized = self.random.random() < 0.3 and not self.is_distributed
        drop = self.drops.get(view)
        if is_added and self.is_distributed and drop is not None and not drop.done():
            return  # cells refuse a view that is added again before its drop is committed
        version = self.random.randrange(len(VIEWS[view]))
        if is_added:
            changed = program.with_view(view, version, is_materialized=is_materialized)
        else:
            changed = program.without_view(view)
        fingerprint = changed.compile().fingerprint
        # A program that comes back while the sink runs would have two targets for one view.
        if fingerprint in self.jobs:
            return
        if is_added:
            targets[view] = self._target_of_new_view(view, is_materialized=is_materialized)
            targets[view].files = next(iter(targets.values())).files
            committed = sink.add_view(
                changed.statement(view),
                [targets[view].output(view)],
                materialize=[view] if is_materialized else [],
                change=ChangeOptions(rows_per_batch=self.random.choice([None, 2, 3, 10, 30])),
            )
        else:
            del targets[view]
            committed = sink.drop_view(view, change=ChangeOptions(allow_drop=True))
            self.drops[view] = committed
        self.program = changed
        self.changes.append(committed)
        self.requested = fingerprint
        self.jobs[fingerprint] = Job(changed, targets)

    def _target_of_new_view(self, view: str, *, is_materialized: bool) -> RecordingTarget:
        """Return a target; one that replaces views may have rows of the view from before."""
        if is_materialized and self.random.random() < 0.4:
            self.whole_views.add(view)
            return RecordingTarget(mode="complete")
        if self.random.random() < 0.4:
            return RecordingTarget()
        if view not in self.replacing or self.random.random() < 0.3:
            self.replacing[view] = RecordingTarget(replaces_views=True)
        return self.replacing[view]

    def _other_program(self) -> Program:
        """Return other views over inputs with the same columns, which the replayed rows have."""
        return replace(self._changed_program(), columns=self.program.columns)

    def _changed_program(self) -> Program:
        """Return other views; those with an output in mode ``complete`` stay materialized."""
        changed = changed_program(self.random, self.program)
        materialized = changed.materialized | (self.whole_views & changed.views.keys())
        return replace(changed, materialized=materialized)

    def _start(self) -> None:
        circuit = self.program.compile()
        files = self.disk.files()
        job = self.jobs.get(circuit.fingerprint)
        newest = self._newest_fingerprint()
        if job is None or newest != circuit.fingerprint:
            job = self.jobs[circuit.fingerprint] = Job(self.program, self._targets(circuit, newest))
        for target in job.targets.values():
            target.files = files
        outputs = [target.output(view) for view, target in job.targets.items()]
        self.requested, self.drops = "", {}
        options = ChangeOptions(allow_drop=True)
        self.sink = ViewSink(
            circuit,
            outputs,
            state_dir=files,
            keep=2,
            change=options,
            **self._sink_options,
        )

    @property
    def _sink_options(self) -> dict[str, Any]:
        if self.is_distributed:
            return {"mode": "distributed", "cells": 3}
        return {"memory_limit": self.memory_limit}

    def _targets(self, circuit, newest: str | None) -> dict[str, RecordingTarget]:
        """Return the target of each view: that of the earlier program if the columns are equal."""
        if newest is None:
            return {view: RecordingTarget() for view in circuit.outputs}
        job = self.jobs[newest]
        old = job.program.compile()
        return {
            view: job.targets[view]
            if view in job.targets
            and old.schema(view).arrow == circuit.schema(view).arrow
            and (job.targets[view].mode == "delta" or view in circuit.materialized)
            else RecordingTarget()
            for view in circuit.outputs
        }

    def _newest_fingerprint(self) -> str | None:
        names = [name for name in self.disk.names() if name.startswith(f"{MANIFESTS}/")]
        names = [name for name in names if name.endswith(".json")]
        if not names:
            return None
        return Manifest.decode(self.disk.content(max(names)), max(names)).fingerprint

    def _deliver(self) -> None:
        assert self.sink is not None
        files = next(iter(self._job_of(self.sink).targets.values())).files
        assert files is not None
        table = tagged(self.tables[self.committed], self.sink.circuit.inputs)
        frame = LocalFrame(table) if self.is_distributed else Frame(table, files)
        self.sink(frame, self.committed)
        files.point(f"Spark records commit {self.committed}")
        self.committed += 1

    def _job_of(self, sink: ViewSink) -> Job:
        """Return the job of the views that were requested last."""
        return self.jobs[self.requested or sink.circuit.fingerprint]

    def _stop(self) -> None:
        sink, self.sink = self.sink, None
        if sink is not None:
            self.disk.plan(None)
            sink.close()

    def _check(self) -> None:
        assert self.sink is not None
        if self._newest_fingerprint() != self.sink.circuit.fingerprint:
            return  # a replay was the last micro-batch: the next one commits the change
        job = self.jobs[self.sink.circuit.fingerprint]
        fresh = fresh_views(job.program, self.present)
        for view, target in job.targets.items():
            assert target.rows == fresh[view], f"{view} of {job.program}"
        for view in () if self.is_distributed else job.program.materialized:
            assert bag_of(self.sink.circuit.views[view]) == fresh[view], view


def tagged(tables: Mapping[str, pa.Table], inputs) -> pa.Table:
    """Return the rows of all inputs as one table with the column ``relation``."""
    columns = {}
    for name, table in tables.items():
        for field in table.schema:
            columns.setdefault(field.name, []).append((name, field.type))
    parts = []
    for name, table in tables.items():
        part = {"relation": pa.array([name] * table.num_rows, pa.string())}
        for column, types in columns.items():
            type = types[-1][1]
            if column in table.column_names:
                part[column] = table.column(column).cast(type)
            else:
                part[column] = pa.nulls(table.num_rows, type)
        parts.append(pa.table(part))
    return pa.concat_tables(parts)


def play(seed: int, *, is_distributed: bool = False) -> ProgramSchedule:
    """Run one schedule, and say how to run it again if it fails."""
    schedule = ProgramSchedule(seed, is_distributed=is_distributed)
    try:
        with small_limits(seed), local_cells():
            schedule.run()
    except BaseException as error:
        calls = "\n    ".join(schedule.disk.log[-60:])
        error.add_note(
            f"seed={seed}; replay: python -m tests.support.program_schedules {seed}"
            f"{' cells' * is_distributed}; the last "
            f"calls:\n    {calls}"
        )
        raise
    return schedule


if __name__ == "__main__":
    schedule = play(int(sys.argv[1]), is_distributed="cells" in sys.argv)
    sys.stdout.write("\n".join([*schedule.disk.log, ""]))
