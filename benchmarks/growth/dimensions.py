"""Measures steps by state, delta, skew, views and threads: a function and a table for each."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.counter import count
from benchmarks.engine import QUERY, thread_pool
from benchmarks.growth.edges import Keys, columns, generate_keys, split_keys
from benchmarks.growth.held import LoadedViews, Steps, peak_memory_gb
from benchmarks.result import Row
from benchmarks.verdict import Verdict

TARGET: Final = 2.0
# The size of state that others are compared with, and the largest that is counted independently.
BASE: Final = 1_000_000
COUNTED: Final = 1_000_000

# Views that read the relation in the same two orders.
QUERIES: Final = (
    QUERY,
    "n() :- e(a, b), e(b, c), e(c, a)",
    "n() :- e(a, b), e(b, c), a != c",
    "n() :- e(a, b), e(b, c), e(a, c), a < c",
)


@dataclass(frozen=True)
class Setting:
    """Shared by all parts: the seed of the graphs, the verdict, and where progress is printed."""

    seed: int
    verdict: Verdict
    say: Callable[[str], None]


def measure_by_state(
    sizes: tuple[int, ...], batches: dict[int, int], *, skew: float, setting: Setting
) -> list[Row]:
    """Measure steps of each batch size over each size of state.

    Args:
        sizes: Rows of state, ascending.
        batches: Number of steps by rows of a step.
        skew: Exponent of Zipf's law.
        setting: Seed, verdict and progress.
    """
    graph = "uniform" if skew == 0.0 else f"Zipf {skew:g}"
    rows: list[Row] = []
    base: dict[int, float] = {}
    for size in sizes:
        setting.say(f"state, {graph}, {size:,} rows ...")
        most = max(batch * steps for batch, steps in batches.items())
        held, kept, streamed, seconds = _loaded(
            [QUERY], size, skew, setting.seed, min(most, size // 4)
        )
        for batch, steps in batches.items():
            there = held.insert_and_delete(streamed, batch, steps)
            _check(setting.verdict, f"{graph}, {size}, {batch}", there)
            if size <= COUNTED:
                _check_count(setting.verdict, f"{graph}, {size}, {batch}", kept, streamed, there)
            middle = there.quantile(0.5)
            if size == BASE:
                base[batch] = middle
            growth = middle / base[batch] if batch in base else None
            target = TARGET if skew == 0.0 and size > BASE else None
            rows.append(
                {
                    "graph": graph,
                    "rows": size,
                    "batch": batch,
                    "steps": len(there.seconds),
                    "step ms": middle,
                    "p99 ms": there.quantile(0.99),
                    "largest ms": there.quantile(1.0),
                    "mean CPU ms": 1000 * there.cpu / len(there.seconds),
                    "growth": growth,
                    "target": target,
                    "met": None if target is None or growth is None else growth <= target,
                    **_bound(there),
                    **_memory(held, size),
                    "load s": seconds,
                    "peak GB": peak_memory_gb(),
                }
            )
        del held, kept, streamed
        gc.collect()
    return rows


def measure_by_delta(size: int, batches: dict[int, int], *, setting: Setting) -> list[Row]:
    """Measure steps of more and more rows over one state."""
    setting.say(f"delta, {size:,} rows of state ...")
    most = max(batch * steps for batch, steps in batches.items())
    held, _, streamed, _ = _loaded([QUERY], size, 0.0, setting.seed, most)
    rows: list[Row] = []
    for batch, steps in batches.items():
        there = held.insert_and_delete(streamed, batch, steps)
        _check(setting.verdict, f"delta {batch}", there)
        middle = there.quantile(0.5)
        rows.append(
            {
                "rows": size,
                "batch": batch,
                "steps": len(there.seconds),
                "step ms": middle,
                "p99 ms": there.quantile(0.99),
                "µs/row": 1000 * middle / batch,
                **_bound(there),
            }
        )
    return rows


def measure_by_skew(
    size: int, exponents: tuple[float, ...], batch: int, steps: int, *, setting: Setting
) -> list[Row]:
    """Measure steps over states with larger and larger hubs."""
    rows: list[Row] = []
    for skew in exponents:
        setting.say(f"skew, Zipf's exponent {skew:g} ...")
        held, _, streamed, _ = _loaded([QUERY], size, skew, setting.seed, batch * steps)
        there = held.insert_and_delete(streamed, batch, steps)
        _check(setting.verdict, f"skew {skew}", there)
        rows.append(
            {
                "Zipf": skew,
                "rows": size,
                "batch": batch,
                "step ms": there.quantile(0.5),
                "p99 ms": there.quantile(0.99),
                **_bound(there),
                **_memory(held, size),
            }
        )
    return rows


def measure_by_views(
    size: int, numbers: tuple[int, ...], batch: int, steps: int, *, setting: Setting
) -> list[Row]:
    """Measure steps through more and more views over one relation, of four kinds."""
    rows: list[Row] = []
    for views in numbers:
        setting.say(f"{views} views ...")
        queries = [QUERIES[k % len(QUERIES)] for k in range(views)]
        held, _, streamed, _ = _loaded(queries, size, 0.0, setting.seed, batch * steps)
        there = held.insert_and_delete(streamed, batch, steps)
        _check(setting.verdict, f"{views} views", there)
        rows.append(
            {
                "views": views,
                "rows": size,
                "batch": batch,
                "step ms": there.quantile(0.5),
                "ms/view": there.quantile(0.5) / views,
                **_bound(there),
                **_memory(held, size),
            }
        )
    return rows


def measure_by_threads(
    size: int, threads: tuple[int, ...], batches: dict[int, int], *, setting: Setting
) -> list[Row]:
    """Measure steps by one and by several threads, over skewed state, which is hard to divide."""
    rows: list[Row] = []
    first: dict[int, float] = {}
    most = max(batch * steps for batch, steps in batches.items())
    for used in threads:
        setting.say(f"{used} threads ...")
        with thread_pool(used) as executor:
            held, _, streamed, _ = _loaded([QUERY], size, 0.75, setting.seed, most, executor, used)
            for batch, steps in batches.items():
                there = held.insert_and_delete(streamed, batch, steps)
                _check(setting.verdict, f"{used} threads, {batch}", there)
                middle = there.quantile(0.5)
                first.setdefault(batch, middle)
                rows.append(
                    {
                        "threads": used,
                        "rows": size,
                        "batch": batch,
                        "step ms": middle,
                        "times faster": first[batch] / middle,
                        **_bound(there),
                    }
                )
    return rows


def _loaded(
    queries: list[str], size: int, skew: float, seed: int, streamed: int, *workers: Any
) -> tuple[LoadedViews, Keys, Keys, float]:
    """Load views; return them, rows to count (empty if many), rows to stream, and the seconds."""
    held = LoadedViews(queries, *workers)
    kept, rest = split_keys(
        generate_keys(size + streamed, exponent=skew, seed=seed), streamed, seed + 1
    )
    seconds = held.load(kept)
    return held, kept if size <= COUNTED else kept[:0], rest, seconds


def _bound(there: Steps) -> Row:
    """Return candidates by row, and nanoseconds by candidate."""
    return {"candidates/row": there.candidates / there.rows, "ns/candidate": there.nanoseconds}


def _memory(held: LoadedViews, rows: int) -> Row:
    """Return the bytes by row, also divided by 8 for each column of each arrangement."""
    by_row = held.bytes / rows
    return {
        "MB": held.bytes / 1e6,
        "bytes/row": by_row,
        "by 8 a column": by_row / (16 * held.arrangements),
    }


def _check(verdict: Verdict, what: str, there: Steps) -> None:
    verdict.set_truth("nothing left", 0)
    verdict.compare(what, "nothing left", there.change)


def _check_count(verdict: Verdict, what: str, kept: Keys, streamed: Keys, there: Steps) -> None:
    """Compare the change of inserting with independent counts before and after."""
    after = np.concatenate([kept, streamed[: there.rows // 2]])
    truth = f"{what}, counted"
    verdict.set_truth(truth, count(*columns(after)) - count(*columns(kept)))
    verdict.compare(what, truth, there.changed)
