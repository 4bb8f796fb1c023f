"""Measures refreshes of a lake, and compares its target tables with those of a recomputation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import median

from benchmarks.medallion.comparison import count_differences
from benchmarks.medallion.lakehouse import RefreshCost, RefreshedLake
from benchmarks.medallion.recompute import Recomputation
from benchmarks.parts import PartsRun
from benchmarks.result import Row


def compare_targets(
    run: PartsRun,
    lake: RefreshedLake,
    recomputation: Recomputation,
    tables: Collection[str],
    name: str,
) -> float:
    """Compare all target tables with recomputed views.

    Args:
        run: Its verdict receives the answers.
        lake: The source and target tables.
        recomputation: Computes the views.
        tables: The names of the source tables.
        name: The name of the refresh in reports.

    Returns:
        The seconds of the recomputation.
    """
    cost, views = recomputation.compute({table: lake.files_of(table) for table in tables})
    for view, expected in views.items():
        differences = count_differences(lake.rows_of(view).cast(expected.schema), expected)
        run.verdict.set_truth(f"{view}, {name}", 0)
        run.verdict.compare("rows that differ", f"{view}, {name}", differences)
    run.report(f"{name}: {len(views)} tables compared; the recomputation took {cost.wall:.1f} s")
    return cost.wall


def medians_of(refreshes: Sequence[RefreshCost], recomputations: Sequence[float]) -> Row:
    """Return the medians of some refreshes, and of the recomputations after them."""
    seconds, recomputed = median(cost.whole.wall for cost in refreshes), median(recomputations)
    return {
        "rows read": int(median(cost.rows_read for cost in refreshes)),
        "rows written": int(median(cost.rows_written for cost in refreshes)),
        "seconds": seconds,
        "CPU s": median(cost.whole.cpu for cost in refreshes),
        "read s": _median(cost.read for cost in refreshes),
        "write s": _median(cost.write for cost in refreshes),
        "recomputed by Spark s": recomputed,
        "times faster": recomputed / seconds,
    }


def _median(seconds: Iterable[float | None]) -> float | None:
    """Return the median of known times; None if there is none."""
    known = [second for second in seconds if second is not None]
    return median(known) if known else None
