"""Merged runs: a large step merges the newest runs of a relation and its delta before it joins.

A term reads the old version of a relation, which is the sum of the runs of the spine, or the new
version, which is the sum of these and the delta::

    runs before the step       1,000,000   9,000   700     a delta deletes 8,000 of 9,700 rows
    old, as the terms read it  1,000,000   9,700           the two newest runs are merged
    new, as the terms read it  1,000,000   1,700           the same and the delta are merged

A join intersects the lists of each run of one relation with those of each run of another, so it
takes less time with fewer runs. Rows that the delta deletes soon after they were inserted are not
read at all in the new version. The spine merges its runs only when the step is committed. It then
uses the sum of its newest runs and the delta (`Spine.append`). All views that share the relation
use the same merged runs (`dbsp_wcoj.storage.trace.TraceStep.merge_newest_runs`).

The merged runs have at most `MAX_ROWS_PER_DELTA_ROW` rows for each row of the delta, so merging
takes a small part of the time of the join. There are two exceptions: the newest of several runs, if
the spine will merge it with the delta anyway (`GROWTH_FACTOR`), and runs whose merge copies ranges
of rows (`MAX_COPIED_ROWS_PER_DELTA_ROW`). If each run has one weight, but the sum would have
several, the join reads the runs as they are: lists with equal weights are intersected faster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dbsp_wcoj.kernels.storage.list_bitmaps import NO_BITMAPS, NOT_BUILT
from dbsp_wcoj.kernels.storage.spine import (
    FIRST_RUN,
    GROWTH_FACTOR,
    LIST_BITMAPS,
    RUN_COUNT,
)
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine, SumOfNewest
from dbsp_wcoj.zset import Int64Array

__all__ = ["MIN_MERGED_ROWS", "MergedRelation", "MergedRuns", "merge_newest_runs"]

# Callers merge only for deltas of at least this many rows, and if the step looks up more rows in
# the relation than the delta has.
MIN_MERGED_ROWS: Final = 1024
# The most rows of the merged runs, for each row of the delta.
MAX_ROWS_PER_DELTA_ROW: Final = 4
# The same, if merging copies ranges of rows (`Run.can_be_spliced`); and the most rows for which
# this larger number applies.
MAX_COPIED_ROWS_PER_DELTA_ROW: Final = 16
MAX_COPIED_ROWS: Final = 1 << 20


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


class MergedRuns(NamedTuple):
    """The merged runs of a relation and a delta, in one column order.

    Attributes:
        before: The runs of the spine, for which the others were computed.
        relation: The relation; None if it is better to read the spine and the delta.
        offered: The sum that the spine can use when the delta is committed, if any.
    """

    before: tuple[Run, ...]
    relation: MergedRelation | None
    offered: SumOfNewest | None


def merge_newest_runs(spine: Spine, delta: Run) -> MergedRuns:
    """Merge the newest runs of a spine, and these and a delta.

    Args:
        spine: The relation before the step.
        delta: The delta in the same column order.

    Complexity:
        O(r log(k + 1)) for the r rows of the k merged runs and the delta; the header of this file
        says how r is limited.
    """
    runs = spine.visible_runs
    first = _first_merged(spine, runs, delta)
    newest = runs[first:]
    if not newest:
        return MergedRuns(runs, None, None)
    old = Run.sum_of(newest)
    if not _is_readable(old, newest):
        return MergedRuns(runs, None, None)
    new = Run.merged(old, delta)
    rows = sum([run.rows for run in newest])
    is_readable = _is_readable(new, (old, delta))
    # A sum that is slower to read is used only if the spine would compute it, too.
    is_offered = is_readable or rows <= GROWTH_FACTOR * delta.rows
    offered = SumOfNewest(newest, new) if is_offered else None
    if is_readable:
        tables = [_replace_runs(spine, first, run) for run in (old, new)]
        return MergedRuns(runs, MergedRelation(tables[0], tables[1], (old, new)), offered)
    if len(newest) == 1:
        return MergedRuns(runs, None, offered)
    return MergedRuns(runs, MergedRelation(_replace_runs(spine, first, old), None, (old,)), offered)


def _first_merged(spine: Spine, runs: tuple[Run, ...], delta: Run) -> int:
    """Return the position of the first run to merge; the number of runs if there is none."""
    first = _first_of_few_rows(runs, MAX_ROWS_PER_DELTA_ROW * delta.rows)
    max_copied_rows = min(MAX_COPIED_ROWS_PER_DELTA_ROW * delta.rows, MAX_COPIED_ROWS)
    first_copied = _first_of_few_rows(runs, max_copied_rows)
    # Deletions may cancel rows of any run, so all runs must be merged for them.
    is_complete = first_copied == 0 or runs[-1].only_weight == delta.only_weight
    can_be_copied = is_complete and all(run.can_be_spliced(delta) for run in runs[first_copied:])
    if can_be_copied:
        first = min(first, first_copied)
    if first == len(runs) > 1:
        # The only run of a spine may have bitmaps, and is read as it is. If the spine will merge
        # the newest of several runs and the delta, their sum costs nothing.
        newest = runs[-1]
        is_small = newest.rows <= GROWTH_FACTOR * delta.rows
        if is_small and not newest.is_mapped and spine.may_merge(newest, delta):
            first -= 1
    return first


def _first_of_few_rows(runs: tuple[Run, ...], max_rows: int) -> int:
    """Return the position of the first of the newest runs that have at most so many rows."""
    first, rows = len(runs), 0
    while first and not runs[first - 1].is_mapped:
        rows += runs[first - 1].rows
        if rows > max_rows:
            break
        first -= 1
    return first


def _is_readable(merged: Run, runs: tuple[Run, ...]) -> bool:
    """Return False if a sum has several weights although each of its runs has one."""
    return merged.only_weight is not None or any(run.only_weight is None for run in runs)


def _replace_runs(spine: Spine, first: int, run: Run) -> Int64Array:
    """Return the table of a spine with one run in place of those from position ``first`` on."""
    table = spine.table.copy()
    table[RUN_COUNT] = first
    # The bitmaps of another run do not fit; and bitmaps that are not built are not worth it now,
    # because the spine replaces the run.
    if first == 0 and (run.address != table[FIRST_RUN] or table[LIST_BITMAPS] == NOT_BUILT):
        table[LIST_BITMAPS] = NO_BITMAPS
    if run.rows:
        table[FIRST_RUN + first] = run.address
        table[RUN_COUNT] += 1
    return table
