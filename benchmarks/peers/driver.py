"""The child process of a measurement: loads one system, measures it, and prints lines of JSON.

A job is a folder with ``job.json`` and arrays. Each line is an event: work begins, or work is
measured. So the parent knows which work takes too long (`benchmarks.peers.process`). BULK counts
until it has counted ``repeat`` times, or ``seconds`` are used up. LIVE runs each phase for at most
``seconds``, but at least one step, so a slow system takes fewer steps; it repeats everything,
including the load, until it has run ``repeat`` times or all phases together are long enough. LSQB
runs its steps until ``seconds`` are used up, but at least six.

Phases of LIVE start from the same state and lead back to it: inserts, deletes of what was
inserted (in another order), updates (each step deletes and inserts as many edges) and their
reverse.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.job import Job
from benchmarks.peers.pattern import PATTERNS
from benchmarks.peers.roster import SYSTEMS
from benchmarks.peers.systems import Edges, Maintainer, Resources
from benchmarks.peers.usage import cpu_seconds

_WARM_UP_EDGES = 10  # edges in the step of LIVE that is not timed
_MIN_STEPS = 6  # steps of LSQB; four of them are a warm-up
_RECOUNTS = 2  # counts of LSQB before any change; the count of the load is a warm-up
_MIN_PHASE_S = 0.05  # a shorter phase is within the noise


def main() -> None:
    """Run the job of the folder that is the only argument."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    job = Job.read(Path(sys.argv[1]))
    {"bulk": _bulk, "live": _live, "lsqb": _lsqb}[job.part](job)


def _exit_with_parent(parent: int) -> None:
    """Exit when the parent process has ended, because then nothing else would stop this one."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _bulk(job: Job) -> None:
    system = SYSTEMS[job.system]
    edges: Edges = np.load(job.folder / "edges.npy")
    _send("load")
    with system.counter(PATTERNS[job.pattern], edges, _resources(job)) as counter:
        system.check(counter.plan)
        counting_s = 0.0
        for number in range(job.repeat):
            if number and counting_s > job.seconds:
                break
            _send("count")
            start, start_cpu = time.perf_counter(), cpu_seconds()
            answer = counter.count()
            wall, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
            counting_s += wall
            _send("counted", answer=answer, wall=wall, cpu=cpu)
        index = getattr(counter, "index", None)
        if index is not None:
            _send("indexed", wall=index().wall)


def _live(job: Job) -> None:
    system = SYSTEMS[job.system]
    loaded: Edges = np.load(job.folder / "edges.npy")
    unloaded: Edges = np.load(job.folder / "unloaded.npy")
    for _ in range(job.repeat):
        _send("load")
        system.load_module()  # importing is not timed
        gc.collect()
        gc.freeze()  # the garbage collector then skips all modules
        start, start_cpu = time.perf_counter(), cpu_seconds()
        with system.maintainer(PATTERNS[job.pattern], loaded, _resources(job)) as maintainer:
            _send("loaded", wall=time.perf_counter() - start, cpu=cpu_seconds() - start_cpu)
            if _run_phases(maintainer, job, loaded, unloaded) >= _MIN_PHASE_S:
                break


def _lsqb(job: Job) -> None:
    # Imported here, because the environment of pydbsp, which does not run LSQB, has no pyarrow.
    import pyarrow.parquet as pq

    from benchmarks import lsqb

    system = SYSTEMS[job.system]
    files = sorted(job.folder.glob("*.parquet"))
    relations = {path.name.split(".")[1]: pq.read_table(path) for path in files}
    steps = list(lsqb.alternate_changes(relations, np.load(job.folder / "row_numbers.npy")))
    context = system.view(job.pattern, relations, _resources(job))
    gc.collect()
    gc.freeze()
    _send("load")
    start = time.perf_counter()
    with context as view:
        answer = view.count()
        _send("loaded", number=0, answer=answer, wall=time.perf_counter() - start)
        for _ in range(_RECOUNTS if system.recounts else 0):
            start = time.perf_counter()
            answer = view.count()
            _send("recounted", number=0, answer=answer, count=time.perf_counter() - start)
        start = time.perf_counter()
        for number, (weight, rows) in enumerate(steps, start=1):
            if number > _MIN_STEPS and time.perf_counter() - start > job.seconds:
                break
            _send("step")
            gc.collect()
            step_start = time.perf_counter()
            view.change(rows, weight)
            count_start = time.perf_counter()
            answer = view.count()
            end = time.perf_counter()
            wall, count = end - step_start, end - count_start
            _send("stepped", number=number, answer=answer, wall=wall, count=count)


def _run_phases(maintainer: Maintainer, job: Job, loaded: Edges, unloaded: Edges) -> float:
    """Run all phases and their reverse; return the seconds of the shortest."""
    # A warm-up: one step that is not timed, and its reverse.
    warm_up_edges = unloaded[:, :_WARM_UP_EDGES]
    maintainer.step(*_weighted(warm_up_edges, None))
    added = 0 if job.deletes else _WARM_UP_EDGES  # edges inserted so far
    if job.deletes:
        maintainer.step(*_weighted(None, warm_up_edges))
    shortest = math.inf
    for number, (batch, change, max_steps) in enumerate(job.phases, start=1):
        steps = max(1, min(max_steps, unloaded.shape[1] // batch))
        if change == "update":
            half = batch // 2
            forward = [
                (_part(unloaded, half, step), _part(loaded, half, step)) for step in range(steps)
            ]
        else:
            new_edges = (_part(unloaded[:, added:], batch, step) for step in range(steps))
            forward = [(edges, None) for edges in new_edges if edges.size]
        steps_run, wall = _run_phase(maintainer, job, batch, change, forward, added)
        shortest = min(shortest, wall)
        if change == "update":
            if number < len(job.phases):  # nothing reads the state after the last
                backward = [(deleted, new) for new, deleted in forward[:steps_run]]
                _run_phase(maintainer, job, batch, "update back", backward)
            continue
        rows = np.concatenate([new for new, _ in forward[:steps_run]], axis=1)
        if not job.deletes:
            added += rows.shape[1]
            continue
        rows = rows[:, np.random.default_rng(2).permutation(rows.shape[1])]
        backward = [(None, _part(rows, batch, step)) for step in range(steps_run)]
        _, wall = _run_phase(maintainer, job, batch, "delete", backward, rows.shape[1])
        shortest = min(shortest, wall)
    return shortest


def _run_phase(
    maintainer: Maintainer,
    job: Job,
    batch: int,
    change: str,
    steps: list[tuple[Edges | None, Edges | None]],
    added_before: int = 0,
) -> tuple[int, float]:
    """Run the steps of a phase, and send its measurement; return their number and the wall seconds.

    Deletes, and the reverse of updates, always run to their end, so that the state is restored.

    Args:
        maintainer: The system.
        job: Its limit of time.
        batch: Rows in a step.
        change: ``insert``, ``delete``, ``update`` or ``update back``.
        steps: The inserted and the deleted edges of each step.
        added_before: The number of edges inserted by earlier phases.
    """
    may_stop = change in ("insert", "update")
    prepared = [_weighted(new, deleted) for new, deleted in steps]
    _send("phase", batch=batch, change=change)
    gc.collect()
    seconds: list[float] = []
    answer = 0
    start_cpu, start = cpu_seconds(), time.perf_counter()
    for edges, weights in prepared:
        step_start = time.perf_counter()
        if seconds and may_stop and step_start - start > job.seconds:
            break
        answer = maintainer.step(edges, weights)
        seconds.append(time.perf_counter() - step_start)
    wall, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
    rows = sum(edges.shape[1] for edges, _ in prepared[: len(seconds)])
    # The state after the phase, for the check of the answer: how many of the unloaded edges it
    # contains, and how many of the loaded ones it lacks.
    added = {"insert": added_before + rows, "update": rows // 2}.get(change, 0)
    _send(
        "measured",
        batch=batch,
        change=change,
        steps=len(seconds),
        rows=rows,
        wall=wall,
        cpu=cpu,
        p50=float(np.median(seconds)),
        p99=float(np.quantile(seconds, 0.99, method="higher")),
        answer=answer,
        added=added,
        deleted=rows // 2 if change == "update" else 0,
    )
    return len(seconds), wall


def _weighted(new: Edges | None, deleted: Edges | None) -> tuple[Edges, NDArray[np.int64]]:
    """Return the changed edges of a step and their weights; deletes come first."""
    parts = [part for part in (deleted, new) if part is not None]
    signs = [sign for part, sign in ((deleted, -1), (new, 1)) if part is not None]
    weights = [np.full(part.shape[1], sign) for part, sign in zip(parts, signs, strict=True)]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)), np.concatenate(weights)


def _part(edges: Edges, batch: int, number: int) -> Edges:
    """Return the edges of step ``number``."""
    return edges[:, number * batch : (number + 1) * batch]


def _resources(job: Job) -> Resources:
    return Resources(job.threads, job.memory, job.folder)


def _send(event: str, **fields: Any) -> None:
    """Print an event as a line of JSON."""
    sys.stdout.write(json.dumps({"event": event, "cpu so far": cpu_seconds(), **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
