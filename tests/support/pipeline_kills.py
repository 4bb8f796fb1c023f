"""Refreshes that are killed, and started again; ``python -m tests.support.pipeline_kills``.

This process forks a child for each change and each refresh. A child dies by SIGKILL at a call to
the state directory or a target: before, during or after it. Then another one refreshes to the end,
and compares the target tables with an answer that is computed in Python.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

from streaming.cli.arguments.pipeline_file import read_pipeline
from streaming.pipeline import pipeline as module
from streaming.pipeline.pipeline import Pipeline
from streaming.targets.delta import DeltaTarget
from streaming.targets.parquet import ParquetTarget
from tests.support.killed_process import KillingFiles, Plan
from tests.support.pipeline_world import PipelineWorld

MAX_CALLS = 25


def main(folder: Path, seed: str, count: int) -> None:
    random = Random(seed)
    world = PipelineWorld(folder, has_feed=random.random() < 0.5)
    run(world.create)
    kills = 0
    for _ in range(count):
        step = random.random()
        run(lambda step=step: world.change(Random(step)))
        plan = Plan(random.randrange(MAX_CALLS), random.choice(["before", "during", "after"]))
        kills += not run(lambda plan=plan: refresh(world, plan), may_die=True)
        if random.random() < 0.5:
            run(lambda step=step: world.change(Random(-step)))
        run(lambda: refresh(world, Plan(None)))
        run(lambda: compare(world))
    print(json.dumps({"kills": kills}))


def refresh(world: PipelineWorld, plan: Plan) -> None:
    """Refresh once; every call to the state and the targets may be the last one."""

    def killing(write):
        def write_and_die(self, delta):
            plan.point("before")
            write(self, delta)
            plan.point("after")

        return write_and_die

    open_files = lambda path: KillingFiles(Path(path), plan)  # noqa: E731
    with (
        mock.patch.object(module, "open_files", open_files),
        mock.patch.object(DeltaTarget, "write", killing(DeltaTarget.write)),
        mock.patch.object(ParquetTarget, "write", killing(ParquetTarget.write)),
        Pipeline(read_pipeline(world.file).definition) as pipeline,
    ):
        pipeline.refresh()
        again = pipeline.refresh()
        assert again.number is None, again


def compare(world: PipelineWorld) -> None:
    expected, actual = world.expected(), world.actual()
    assert actual == expected, f"targets {actual}, expected {expected}"


def run(work: Callable[[], None], *, may_die: bool = False) -> bool:
    """Do work in a child; return False if it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and may_die:
        return False
    if status:
        raise SystemExit(f"a child ended with status {status}")
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
