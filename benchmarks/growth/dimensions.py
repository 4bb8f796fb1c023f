"""Measures steps by state, delta, skew, views and threads: a function and a table for each."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.counter import count
from benchmarks.engine import QUERY, open_workers
from benchmarks.growth.edges import Keys, columns, generate_keys, split_keys
from benchmarks.growth.loaded_views import LoadedViews, Steps, peak_memory_gb
from benchmarks.result import Row
from benchmarks.verdict import Verdict

# A step over a larger state may take at most this many times as long as over BASE_ROWS rows.
TARGET: Final = 2.0
BASE_ROWS: Final = 1_000_000
# The largest state whose changes are also counted independently.
MAX_COUNTED_ROWS: Final = 1_000_000

# Views that read the relation in the same two orders.
QUERIES: Final = (
    QUERY,
    "n() :- e(a, b), e(b, c), e(c, a)",
    "n() :- e(a, b), e(b, c), a != c",
    "n() :- e(a, b), e(b, c), e(a, c), a < c",
)


@dataclass(frozen=True)
class Setting:
    """Shared by all parts: the seed of the graphs, the verdict, and a function for progress."""

    seed: int
    verdict: Verdict
    report: Callable[[str], None]


def measure_by_state(
    sizes: tuple[int, ...], steps_by_batch: dict[int, int], *, skew: float, setting: Setting
) -> list[Row]:
    """Measure steps of each batch size over each size of state.

    Args:
        sizes: Rows of state, ascending.
        steps_by_batch: Maps the number of rows of a step to the number of such steps.
        skew: Exponent of Zipf's law.
        setting: Seed, verdict and progress.
    """
    graph = "uniform" if skew == 0.0 else f"Zipf {skew:g}"
    rows: list[Row] = []
    base_ms: dict[int, float] = {}  # by batch, over a state of BASE_ROWS rows
    for size in sizes:
        setting.report(f"state, {graph}, {size:,} rows ...")
        max_streamed = max(batch * steps for batch, steps in steps_by_batch.items())
        loaded, loaded_keys, streamed_keys, seconds = _load(
            [QUERY], size, skew, setting.seed, min(max_streamed, size // 4)
        )
        for batch, steps in steps_by_batch.items():
            timed = loaded.insert_and_delete(streamed_keys, batch, steps)
            _check_restored(setting.verdict, f"{graph}, {size}, {batch}", timed)
            if size <= MAX_COUNTED_ROWS:
                _check_inserts(
                    setting.verdict, f"{graph}, {size}, {batch}", loaded_keys, streamed_keys, timed
                )
            median_ms = timed.quantile(0.5)
            if size == BASE_ROWS:
                base_ms[batch] = median_ms
            growth = median_ms / base_ms[batch] if batch in base_ms else None
            target = TARGET if skew == 0.0 and size > BASE_ROWS else None
            rows.append(
                {
                    "graph": graph,
                    "rows": size,
                    "batch": batch,
                    "steps": len(timed.seconds),
                    "step ms": median_ms,
                    "p99 ms": timed.quantile(0.99),
                    "largest ms": timed.quantile(1.0),
                    "mean CPU ms": 1000 * timed.cpu / len(timed.seconds),
                    "growth": growth,
                    "target": target,
                    "met": None if target is None or growth is None else growth <= target,
                    **_candidate_cells(timed),
                    **_memory_cells(loaded, size),
                    "load s": seconds,
                    "peak GB": peak_memory_gb(),
                }
            )
        del loaded, loaded_keys, streamed_keys
        gc.collect()
    return rows


def measure_by_delta(size: int, steps_by_batch: dict[int, int], *, setting: Setting) -> list[Row]:
    """Measure steps of more and more rows over one state."""
    setting.report(f"delta, {size:,} rows of state ...")
    max_streamed = max(batch * steps for batch, steps in steps_by_batch.items())
    loaded, _, streamed_keys, _ = _load([QUERY], size, 0.0, setting.seed, max_streamed)
    rows: list[Row] = []
    for batch, steps in steps_by_batch.items():
        timed = loaded.insert_and_delete(streamed_keys, batch, steps)
        _check_restored(setting.verdict, f"delta {batch}", timed)
        median_ms = timed.quantile(0.5)
        rows.append(
            {
                "rows": size,
                "batch": batch,
                "steps": len(timed.seconds),
                "step ms": median_ms,
                "p99 ms": timed.quantile(0.99),
                "µs/row": 1000 * median_ms / batch,
                **_candidate_cells(timed),
            }
        )
    return rows


def measure_by_skew(
    size: int, exponents: tuple[float, ...], batch: int, steps: int, *, setting: Setting
) -> list[Row]:
    """Measure steps over states with larger and larger hubs."""
    rows: list[Row] = []
    for skew in exponents:
        setting.report(f"skew, Zipf's exponent {skew:g} ...")
        loaded, _, streamed_keys, _ = _load([QUERY], size, skew, setting.seed, batch * steps)
        timed = loaded.insert_and_delete(streamed_keys, batch, steps)
        _check_restored(setting.verdict, f"skew {skew}", timed)
        rows.append(
            {
                "Zipf": skew,
                "rows": size,
                "batch": batch,
                "step ms": timed.quantile(0.5),
                "p99 ms": timed.quantile(0.99),
                **_candidate_cells(timed),
                **_memory_cells(loaded, size),
            }
        )
    return rows


def measure_by_views(
    size: int, view_counts: tuple[int, ...], batch: int, steps: int, *, setting: Setting
) -> list[Row]:
    """Measure steps through more and more views over one relation, of four kinds."""
    rows: list[Row] = []
    for views in view_counts:
        setting.report(f"{views} views ...")
        queries = [QUERIES[k % len(QUERIES)] for k in range(views)]
        loaded, _, streamed_keys, _ = _load(queries, size, 0.0, setting.seed, batch * steps)
        timed = loaded.insert_and_delete(streamed_keys, batch, steps)
        _check_restored(setting.verdict, f"{views} views", timed)
        rows.append(
            {
                "views": views,
                "rows": size,
                "batch": batch,
                "step ms": timed.quantile(0.5),
                "ms/view": timed.quantile(0.5) / views,
                **_candidate_cells(timed),
                **_memory_cells(loaded, size),
            }
        )
    return rows


def measure_by_threads(
    size: int, threads: tuple[int, ...], steps_by_batch: dict[int, int], *, setting: Setting
) -> list[Row]:
    """Measure steps by one and by several threads, over skewed state, which is hard to divide."""
    rows: list[Row] = []
    first_ms: dict[int, float] = {}  # by batch, with the first number of threads
    max_streamed = max(batch * steps for batch, steps in steps_by_batch.items())
    for thread_count in threads:
        setting.report(f"{thread_count} threads ...")
        with open_workers(thread_count):
            loaded, _, streamed_keys, _ = _load([QUERY], size, 0.75, setting.seed, max_streamed)
            for batch, steps in steps_by_batch.items():
                timed = loaded.insert_and_delete(streamed_keys, batch, steps)
                _check_restored(setting.verdict, f"{thread_count} threads, {batch}", timed)
                median_ms = timed.quantile(0.5)
                first_ms.setdefault(batch, median_ms)
                rows.append(
                    {
                        "threads": thread_count,
                        "rows": size,
                        "batch": batch,
                        "step ms": median_ms,
                        "times faster": first_ms[batch] / median_ms,
                        **_candidate_cells(timed),
                    }
                )
    return rows


def _load(
    queries: list[str],
    size: int,
    skew: float,
    seed: int,
    streamed_rows: int,
) -> tuple[LoadedViews, Keys, Keys, float]:
    """Load ``size`` rows into views.

    Returns:
        The views; the keys of the loaded rows, or none if they are too many to count; the keys of
        the rows to stream; and the seconds of loading.
    """
    loaded = LoadedViews(queries)
    loaded_keys, streamed_keys = split_keys(
        generate_keys(size + streamed_rows, exponent=skew, seed=seed), streamed_rows, seed + 1
    )
    seconds = loaded.load(loaded_keys)
    return (
        loaded,
        loaded_keys if size <= MAX_COUNTED_ROWS else loaded_keys[:0],
        streamed_keys,
        seconds,
    )


def _candidate_cells(timed: Steps) -> Row:
    """Return the candidates for each changed row, and the nanoseconds for each candidate.

    A candidate is a proposal or an intersection of the join.
    """
    return {
        "candidates/row": timed.candidates / timed.rows,
        "ns/candidate": timed.nanoseconds_per_candidate,
    }


def _memory_cells(loaded: LoadedViews, rows: int) -> Row:
    """Return the bytes in total, for each row, and relative to uncompressed rows.

    Uncompressed, a row takes two columns of 8 bytes in each arrangement.
    """
    bytes_per_row = loaded.bytes / rows
    return {
        "MB": loaded.bytes / 1e6,
        "bytes/row": bytes_per_row,
        "relative to uncompressed": bytes_per_row / (2 * 8 * loaded.arrangements),
    }


def _check_restored(verdict: Verdict, case: str, timed: Steps) -> None:
    verdict.set_truth("change of insert and delete", 0)
    verdict.compare(case, "change of insert and delete", timed.change)


def _check_inserts(
    verdict: Verdict, case: str, loaded_keys: Keys, streamed_keys: Keys, timed: Steps
) -> None:
    """Compare the change of inserting with independent counts before and after."""
    inserted_rows = timed.rows // 2  # the other changed rows are the same ones, deleted
    after_inserts = np.concatenate([loaded_keys, streamed_keys[:inserted_rows]])
    truth = f"{case}, counted"
    verdict.set_truth(truth, count(*columns(after_inserts)) - count(*columns(loaded_keys)))
    verdict.compare(case, truth, timed.inserted_change)
