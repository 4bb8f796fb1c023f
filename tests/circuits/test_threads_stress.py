"""Many threads at one circuit, against a model in plain Python (`tests.support.threaded_world`)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.threaded_world import Reader, World, Writer

#: Duration of the slow test, in seconds.
SECONDS = float(os.environ.get("DBSP_WCOJ_STRESS_SECONDS", "60"))
TIMEOUT = 120.0  # seconds after which a thread counts as hanging


@contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Let Python switch between threads after this time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run(world: World, workers: list[Callable[[], Any]], is_over: Callable[[], bool]) -> None:
    """Call each worker repeatedly in its own thread, until ``is_over()`` or an error."""
    failed: list[BaseException] = []

    def work(worker: Callable[[], Any]) -> None:
        try:
            while True:
                worker()
                if failed or is_over():
                    return
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT + SECONDS)
    if failed:
        raise failed[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


def assert_final_state(world: World) -> None:
    """Assert that a reader sees the last version, and that no codes are left over."""
    reader = Reader(world, "views", 0)
    reader()
    assert reader.seen == world.high == world.low
    lengths = world.circuit.committed.lengths
    world.circuit.prepare({}).abandon()
    assert world.circuit.graph.registry.lengths() == lengths
    world.circuit.graph.codecs.interners["text"]._check()


@pytest.mark.parametrize("seconds", [1e-6, 1e-4])
def test_every_read_of_eight_threads_is_one_version_and_none_goes_back(seconds):
    world = World()
    writers = [Writer(world, seed) for seed in range(3)]
    readers = [
        Reader(world, kind, 10 + place)
        for place, kind in enumerate(("views", "queries", "queries", "snapshots", "mixed"))
    ]
    with switch_interval(seconds):
        run(world, [*writers, *readers], lambda: world.events["steps"] >= 60)
    assert all(reader.reads for reader in readers)
    assert_final_state(world)


@pytest.mark.slow
def test_every_read_of_a_long_run_is_one_version():
    rounds, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        formula = ("collapsed", "auto", "recursive")[rounds % 3]
        world = World(formula=formula)
        writers = [Writer(world, 100 * rounds + seed) for seed in range(3)]
        readers = [
            Reader(world, kind, 100 * rounds + 10 + place)
            for place, kind in enumerate(("views", "queries", "queries", "snapshots", "mixed"))
        ]
        until = min(end, time.monotonic() + 30)
        with switch_interval((1e-6, 1e-5, 1e-4, 5e-3)[rounds % 4]):
            run(world, [*writers, *readers], lambda until=until: time.monotonic() > until)
        assert_final_state(world)
        print(rounds, formula, dict(world.events), {r.kind: r.reads for r in readers})
        rounds += 1


def test_coroutines_in_threads_see_versions_as_well():
    world = World()
    writers = [Writer(world, seed) for seed in range(2)]
    readers = [Reader(world, kind, 10) for kind in Reader.KINDS]

    async def repeat(worker: Callable[[], Any]) -> None:
        while world.events["steps"] < 25:
            await asyncio.to_thread(worker)

    async def run_all() -> None:
        await asyncio.gather(*map(repeat, [*writers, *readers]))

    with switch_interval(1e-5):
        asyncio.run(run_all())
    assert_final_state(world)
