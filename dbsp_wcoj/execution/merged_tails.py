"""Merged tails: a large step merges the newest runs of a relation and its delta before it joins.

A term reads the old version of a relation, which is the sum of the runs of the spine, or the new
version, which is the sum of these and the delta. The newest runs are the *tail*::

    runs before the step       100,000   9,000   700       and a delta that deletes 8,000 of these
    old, as the terms read it  100,000   9,700             the tail is merged
    new, as the terms read it  100,000   1,700             the tail and the delta are merged

A join intersects the lists of each run of one relation with those of each run of another, so it
takes less time with fewer runs. Rows that the delta deletes soon after they were inserted are not
read at all in the new version. The spine merges its runs only when the step is committed. It then
uses the sum of the newest run and the delta, if the tail is this one run (`Spine.merge_ahead`).

The tail has at most `MAX_TAIL_ROWS_PER_ROW` rows for each row of the delta, so merging takes a
small part of the time of the join; `GROWTH_FACTOR` rows if it is one run, which the spine will
merge with the delta anyway. If each run has one weight, but the sum would have several, the
join reads the runs as they are: lists with equal weights are intersected faster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dbsp_wcoj.kernels.storage.list_bitmaps import NO_BITMAPS
from dbsp_wcoj.kernels.storage.run_layout import WEIGHT_SUMS
from dbsp_wcoj.kernels.storage.spine import (
    FIRST_RUN,
    GROWTH_FACTOR,
    LIST_BITMAPS,
    RUN_COUNT,
)
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.zset import Int64Array

__all__ = ["MIN_MERGED_ROWS", "MergedRelation", "merge_tail"]

# Runs are merged for the step of a delta of at least this many rows.
MIN_MERGED_ROWS: Final = 1024
# The most rows of the tail, for each row of the delta.
MAX_TAIL_ROWS_PER_ROW: Final = 4


class MergedRelation(NamedTuple):
    """A relation before and after a step, with merged runs.

    Attributes:
        old: The runs before the step as the kernels read them, like `Spine.table`.
        new: The runs after the step; None if they are those of ``old`` and the delta.
        runs: The merged runs, which this object keeps alive.
    """

    old: Int64Array
    new: Int64Array | None
    runs: tuple[Run, ...]


def merge_tail(spine: Spine, delta: Run) -> MergedRelation | None:
    """Merge the tail of a spine and a delta.

    Args:
        spine: The relation before the step.
        delta: The delta in the same column order.

    Returns:
        The relation; None if it is better to read the spine and the delta.

    Complexity:
        O(rows of the delta · log(runs of the tail)).
    """
    runs = spine.visible_runs
    first, tail_rows = len(runs), 0
    max_rows = MAX_TAIL_ROWS_PER_ROW * delta.rows
    while first and not runs[first - 1].is_mapped and tail_rows + runs[first - 1].rows <= max_rows:
        first -= 1
        tail_rows += runs[first].rows
    if first == len(runs) > 1 and not runs[-1].is_mapped:
        # The spine will merge the newest run and the delta, so the sum costs nothing.
        first -= runs[-1].rows <= GROWTH_FACTOR * delta.rows
    if first == len(runs):
        return None
    tail = _merge_all(runs[first:])
    if tail is None:
        return None
    # The tail first: the sum then has its one weight, if the delta only cancels rows.
    merged = spine.merge_ahead(delta) if tail is runs[-1] else Run.merged(tail, delta)
    if not _is_readable(merged, (tail, delta)):
        if first == len(runs) - 1:
            return None
        return MergedRelation(_replace_tail(spine, first, tail), None, (tail,))
    old, new = (_replace_tail(spine, first, run) for run in (tail, merged))
    return MergedRelation(old, new, (tail, merged))


def _merge_all(runs: tuple[Run, ...]) -> Run | None:
    """Return the sum of some runs; None if it is slower to read than they are."""
    merged = Run.merged(*runs) if len(runs) == 2 else Run.sum_of(runs, Run.merged)
    return merged if _is_readable(merged, runs) else None


def _is_readable(merged: Run, runs: tuple[Run, ...]) -> bool:
    """Return False if a sum has several weights although each of its runs has one."""
    return any(_has_weights(run) for run in runs) or not _has_weights(merged)


def _has_weights(run: Run) -> bool:
    """Return whether the rows of a run have different weights."""
    header = run.buffer if run.index is None else run.index
    return bool(header[WEIGHT_SUMS])


def _replace_tail(spine: Spine, first: int, run: Run) -> Int64Array:
    """Return the table of a spine with one run in place of those from position ``first`` on."""
    table = spine.table.copy()
    table[RUN_COUNT] = first
    if first == 0:
        table[LIST_BITMAPS] = NO_BITMAPS
    if run.rows:
        table[FIRST_RUN + first] = run.address
        table[RUN_COUNT] += 1
    return table
