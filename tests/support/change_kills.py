"""Kills jobs with SIGKILL while their views change, and checks that no row is lost or doubled.

    python -m tests.support.change_kills PLACE KILLS [SEED]

A job is a process of its own with a sink on a real directory. It acts as Spark: it passes the first
uncommitted micro-batch to the sink, and records the commit in a file. Between micro-batches it adds
views, at once or in slices, and drops views; sometimes it starts with changed views. It dies at a
random call to the file system or a target, before, during or after it; or its parent kills it after
a random time. The next job goes on with the views of the directory.

A target is a folder with a file for each micro-batch, which a target, a function, or a function
that can replace a view writes; some views are published in mode ``complete``. A file that is
written again must have the same rows. After some micro-batches, the sum of the files of each view
equals the view of all rows so far, as DuckDB computes it. If a view is still being published in
slices, the sum is a part of the view after the previous micro-batch.

In some histories, the input has lateness: a micro-batch has late rows, which change nothing, and a
view may publish the groups that are closed. In some, the views are in cells, which run in the
process. In some, the input keeps no rows by itself, and each change gives the rows so far.

At the end the number of kills is printed as JSON: all, those of each kind of history, and all by
what the job did: ``start`` with changed views that were not committed yet, ``add`` or ``drop``
before the micro-batch that commits, ``slices``, or ``none`` of these.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import duckdb
import pyarrow as pa

from circuits import Circuit, InputOptions, Lateness, compile_sql
from circuits.program_edits import add_views, remove_view
from dbsp_wcoj import warm_up
from streaming import ChangeOptions, Output, ViewDelta, ViewSink, stored_circuit
from tests.streaming.sink.test_view_sink import Frame
from tests.support.killed_process import (
    SCHEMA,
    FolderTarget,
    KillingFiles,
    Plan,
    Source,
    run_process,
    table_of,
)
from tests.support.local_cells import LocalFrame, local_cells

KILLS_PER_HISTORY = 20
#: Views, each with a number that is written into it.
TEMPLATES = (
    "SELECT src % {} AS k, count(*) AS n, sum(dst) AS s FROM e GROUP BY 1",
    "SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src WHERE x.src < {}",
    "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.dst WHERE x.dst < {} GROUP BY 1",
    "SELECT DISTINCT dst FROM e WHERE dst > {}",
    "SELECT src, max(dst) AS m FROM e WHERE src > {} GROUP BY src",
    "SELECT src, dst, upper(name) AS name FROM e WHERE dst > {}",
)
#: Views over an input with lateness by ``dst``; the last one publishes closed groups.
LATE_TEMPLATES = (
    *TEMPLATES,
    "SELECT dst // {} AS w, count(*) AS n, max(src) AS m FROM e GROUP BY 1",
    "SELECT dst // {0} AS w, count(*) AS n FROM e GROUP BY 1 EMIT ON WINDOW CLOSE",
)
CLOSED = re.compile(r"(.* dst // (\d+) .*) EMIT ON WINDOW CLOSE")
LATENESS = 40
LATE, CELLS, GIVEN = "late", "cells", "given"
#: The kinds of histories.
KINDS = ("plain", LATE, CELLS, GIVEN, f"{GIVEN} {LATE}", f"{GIVEN} {CELLS}")
#: The kinds of outputs. The last letter of the name of a view is that of its output.
FOLDER, FUNCTION, REPLACING_FUNCTION, COMPLETE = "tfrc"


class LateSource(Source):
    """Micro-batches whose times ``dst`` advance; some rows are late."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.watermarks: list[int] = []

    def live_after(self, number: int) -> list[tuple]:
        rows: Counter = Counter()
        for n in range(number + 1):
            late_before = self.watermarks[n - 1] if n else -LATENESS
            for row in self.table(n).to_pylist():
                if row["dst"] >= late_before:
                    rows[row["src"], row["dst"], row["name"]] += row["weight"]
        return list(rows.elements())

    def _next(self) -> pa.Table:
        number = len(self.watermarks)
        late_before = self.watermarks[-1] if number else -LATENESS
        changes = []
        for _ in range(30):
            on_time = [row for row in self.live if row[1] >= late_before]
            dice = self._random.random()
            if self.live and dice < 0.2:
                is_late = dice < 0.02 or not on_time
                row = self._random.choice(self.live if is_late else on_time)
                changes.append((*row, -1))
                if row[1] >= late_before:
                    self.live.remove(row)
                continue
            time = max(0, 9 * number + self._random.randrange(-60, 30))
            row = (self._random.randrange(60), time, f"name {self._random.randrange(500)}")
            changes.append((*row, 1))
            if time >= late_before:
                self.live.append(row)
        times = [row[1] for row in changes if row[1] >= late_before]
        self.watermarks.append(max([late_before, *(time - LATENESS for time in times)]))
        return table_of(changes)


def pass_delta(session: object, delta: ViewDelta) -> ViewDelta:
    """Give a function the delta itself, without Spark."""
    return delta


class Job:
    """The process that is killed.

    Args:
        place: The folder of state, targets and commits.
        seed: Of the rows.
        life: The number of this job, for its random choices.
        plan: When it dies.
        out: Receives what it does, one letter for each change of it.
        kind: The kind of the history.
    """

    def __init__(
        self, place: Path, seed: str, life: int, plan: Plan, out: int, *, kind: str
    ) -> None:
        self.place, self.plan, self._out = place, plan, out
        self.random = Random(f"job {seed} {life}")
        self.is_late, self.has_cells, self.is_given = (w in kind for w in (LATE, CELLS, GIVEN))
        self.source = LateSource(seed) if self.is_late else Source(seed)
        self._commits = place / "commits"
        self._new_views = 100 * life
        self._doing = ""
        self._added: dict[str, Future[int]] = {}

    def run(self, batches: int, *, is_calm: bool = False) -> None:
        sink = self._start(is_calm=is_calm)
        pending: dict[Future[int], str] = {}
        last = self.committed + batches
        while self.committed < last:
            pending = {future: kind for future, kind in pending.items() if not future.done()}
            is_starting = self._doing == "S"
            if not (is_calm or pending or is_starting) and self.random.random() < 0.8:
                pending = self._change(sink)
            if pending:
                self._tell(next(iter(pending.values())))
            elif not is_starting:
                self._tell("N")
            number = self.committed
            sink(self._frame(number), number)
            self.plan.point("before")
            temporary = self._commits.with_suffix(".tmp")
            temporary.write_text(str(number + 1))
            temporary.rename(self._commits)
            if is_starting and self._stored_fingerprint == sink.circuit.fingerprint:
                self._doing = ""  # not after a replay, which commits no change
            if is_calm or self.random.random() < 0.2:
                self.check(sink, number)
        sink.close()

    def check(self, sink: ViewSink, number: int) -> None:
        """Compare the targets with DuckDB."""
        assert sink.last is not None
        for view in sink.last.outputs:
            rows = FolderTarget.rows(self.place / view)
            if view in self._added and not self._added[view].done():
                assert rows <= self._rows_after(number - 1, view), f"slices of {view}"
            else:
                assert rows == self._rows_after(number, view), view

    def _rows_after(self, number: int, view: str) -> Counter:
        """Return the rows of a view after a micro-batch, as DuckDB computes them."""
        e = self._live_table(number)
        with duckdb.connect() as connection:
            connection.register("e", e)
            query = (self.place / "queries" / view).read_text()
            closed = CLOSED.fullmatch(query)
            if closed is not None:
                watermark = self.source.watermarks[number]
                query = f"FROM ({closed[1]}) WHERE (w + 1) * {closed[2]} <= {watermark}"
            return Counter(connection.sql(query).fetchall())

    def _live_table(self, number: int) -> pa.Table:
        """Return the rows of the input after a micro-batch."""
        columns = list(zip(*self.source.live_after(number), strict=True)) or [(), (), ()]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        return pa.table(arrays, SCHEMA)

    @property
    def _backfill(self) -> dict[str, pa.Table]:
        """The rows that a change gives, as of the newest version."""
        if not self.is_given:
            return {}
        numbers = [int(path.stem) for path in self._manifests]
        return {"e": self._live_table(max(numbers, default=-1))}

    @property
    def _manifests(self) -> list[Path]:
        return list((self.place / "state" / "manifests").glob("*.json"))

    def _frame(self, number: int) -> Frame | LocalFrame:
        table = self.source.table(number)
        return LocalFrame(table) if self.has_cells else Frame(table, "q")

    @property
    def committed(self) -> int:
        return int(self._commits.read_text()) if self._commits.exists() else 0

    @property
    def _stored_fingerprint(self) -> str:
        return stored_circuit(str(self.place / "state")).fingerprint

    def _start(self, *, is_calm: bool) -> ViewSink:
        if self._manifests:
            circuit = stored_circuit(str(self.place / "state"))
            if not is_calm and self.random.random() < 0.4:
                circuit = self._changed(circuit)
                self._tell("S")
        else:
            lateness = Lateness("dst", LATENESS) if self.is_late else None
            keep = None if self.is_given else "all"
            options = {"e": InputOptions(keep=keep, lateness=lateness)}
            columns = "src bigint, dst bigint not null, name string"
            circuit = compile_sql(self._statement("first"), {"e": columns}, input_options=options)
        return ViewSink(
            circuit,
            [self._output(view) for view in circuit.outputs],
            state_dir=KillingFiles(self.place / "state", self.plan),
            change=ChangeOptions(allow_drop=True, backfill=self._backfill),
            mode="distributed" if self.has_cells else "embedded",
            cells=3 if self.has_cells else None,
        )

    def _changed(self, circuit: Circuit) -> Circuit:
        spec = circuit.spec
        if len(spec.plans) > 2 and self.random.random() < 0.5:
            spec = remove_view(spec, self.random.choice(sorted(spec.plans)))
        if len(spec.plans) < 5:
            view = self._new_name()
            spec = add_views(spec, self._statement(view), materialize=materialized(view))
        return Circuit(spec)

    def _change(self, sink: ViewSink) -> dict[Future[int], str]:
        views = sorted(sink.circuit.plans)
        if len(views) >= 5 or (len(views) > 1 and self.random.random() < 0.3):
            change = ChangeOptions(allow_drop=self.is_given)
            return {sink.drop_view(self.random.choice(views), change=change): "D"}
        view = self._new_name(views)
        rows = self.random.choice([None, None, None, 20, 40, 200])
        change = ChangeOptions(rows_per_batch=rows, backfill=self._backfill)
        future = sink.add_view(
            self._statement(view),
            [self._output(view)],
            materialize=materialized(view),
            change=change,
        )
        self._added[view] = future
        return {future: "A" if rows is None else "B"}

    def _new_name(self, present: Collection[str] = ()) -> str:
        """Return a new name; or one of which a target may have rows, or a part of them."""
        names = {folder.name for folder in self.place.glob("v*")} - set(present)
        absent = sorted(name for name in names if name[-1] != FUNCTION)  # it keeps its rows
        if absent and present and self.random.random() < 0.5:
            return self.random.choice(absent)
        self._new_views += 1
        kinds = [FOLDER, FOLDER, FUNCTION, REPLACING_FUNCTION]
        if not self.has_cells:  # they have no whole view
            kinds.append(COMPLETE)
        return f"v{self._new_views}{self.random.choice(kinds)}"

    def _statement(self, view: str) -> str:
        templates = LATE_TEMPLATES if self.is_late else TEMPLATES
        if view[-1] == COMPLETE:  # a view of closed groups is not published whole
            templates = TEMPLATES
        query = self.random.choice(templates).format(self.random.randrange(1, 20))
        folder = self.place / "queries"
        folder.mkdir(exist_ok=True)
        (folder / view).write_text(query)
        return f"CREATE VIEW {view} AS {query};"

    def _output(self, view: str) -> Output:
        folder, kind = FolderTarget(self.place / view, self.plan), view[-1]

        def write_frame(frame: ViewDelta, batch_id: int) -> None:
            assert frame.batch_id == batch_id
            folder.write(replace(frame, previous=None))  # it cannot replace a view

        def write_replacing(frame: ViewDelta, batch_id: int, is_whole: bool) -> None:
            assert (frame.batch_id, frame.is_whole) == (batch_id, is_whole)
            folder.write(frame)

        if kind == FUNCTION:
            return Output(view, write_frame)
        if kind == REPLACING_FUNCTION:
            return Output(view, write_replacing)
        return Output(view, folder, "complete" if kind == COMPLETE else "delta")

    def _tell(self, doing: str) -> None:
        if doing != self._doing:
            self._doing = doing
            os.write(self._out, doing.encode())


def materialized(view: str) -> list[str]:
    """Return the view if its output needs the whole view."""
    return [view] if view[-1] == COMPLETE else []


NAMES: Mapping[str, str] = {
    "S": "start",
    "A": "add",
    "B": "slices",
    "D": "drop",
    "N": "none",
    "": "none",
}


def run_job(
    place: Path, seed: str, life: int, random: Random, *, is_calm: bool, kind: str
) -> tuple[bool, str]:
    """Run a job until it dies or ends; return whether it was killed, and what it did then."""
    calls = None if is_calm or random.random() < 0.4 else random.randrange(60)
    plan = Plan(calls, random.choice(["before", "during", "after"]))

    def body(out: int) -> None:
        job = Job(place, seed, life, plan, out, kind=kind)
        with patch("streaming.targets.frame.frame_of", pass_delta), local_cells():
            job.run(2 if is_calm else 10, is_calm=is_calm)

    is_timed = calls is None and not is_calm
    is_killed, doing = run_process(body, delay=random.uniform(0, 2) if is_timed else None)
    return is_killed, doing[-1:]


def main(place: Path, kills: int, seed: str) -> None:
    warm_up()
    counts: Counter = Counter()
    lives = 0
    history = 0
    kinds: Counter = Counter()
    while counts.total() < kills:
        folder = place / f"history-{history}"
        folder.mkdir(parents=True)
        random = Random(f"kills {seed} {history}")
        before, kind = counts.total(), KINDS[history % len(KINDS)]
        name = f"{seed} {history}"
        while counts.total() < min(kills, before + KILLS_PER_HISTORY):
            lives += 1
            is_killed, doing = run_job(folder, name, lives, random, is_calm=False, kind=kind)
            if is_killed:
                counts[NAMES[doing]] += 1
        run_job(folder, name, lives + 1, random, is_calm=True, kind=kind)
        kinds[kind] += counts.total() - before
        lives += 1
        history += 1
    report = {"kills": counts.total(), "kinds": kinds, "jobs": lives, "during": dict(counts)}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "0")
