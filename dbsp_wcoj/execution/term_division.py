"""Term division: the parts of a term, for workers and for local look-ups in mapped runs.

A join is linear in each factor, so a term is the sum of its parts::

    delta = rows 1, 3, 5, …  +  rows 2, 4, 6, …        if the join starts from the rows of a delta
    values = … to u  ∪  u+1 to v  ∪  …                 else, by the values of the first variable

The rows of a delta are dealt out to the parts in blocks of `BLOCK_ROWS`. So the rows of a hub, a
value with many rows, are divided evenly, and so are neighbouring values with much work. Ranges of
values contain about equally many rows, but a value is never divided.

Each part has at least `MIN_PART_ROWS` rows of the delta: a join begins each part with a search in
every relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dbsp_wcoj.execution.bound_terms import BoundTerm
from dbsp_wcoj.execution.delta_division import count_parts, divide_run
from dbsp_wcoj.execution.physical_term import RowBlocks, TermPart
from dbsp_wcoj.storage.run import ALL_VALUES, Run, value_ranges
from dbsp_wcoj.storage.trace import TraceStep
from dbsp_wcoj.workers import MIN_DIVIDED_ROWS, TASKS_PER_THREAD, current_workers
from dbsp_wcoj.zset import ZSet

__all__ = ["MIN_PART_ROWS", "divide_term"]

#: Parts of dealt rows have about the same work, so a few of them per thread are enough.
DEALT_PARTS_PER_THREAD: Final = 2
#: Neighbouring rows, which often join the same rows, stay in one part.
BLOCK_ROWS: Final = 8
#: A part of a term that workers share has at least about so many rows of the delta.
MIN_PART_ROWS: Final = 512


def divide_term(
    term: BoundTerm, steps: Mapping[str, TraceStep], *, parallel: bool
) -> Iterator[Sequence[TermPart]]:
    """Divide a term of a step.

    Args:
        term: The term, bound to the runs of the step.
        steps: The staged deltas of the step.
        parallel: True to divide a large delta among the workers of this thread.

    Yields:
        Groups of parts to compute one after the other: one group, unless the term joins a large
        delta with mapped runs. The parts of a group may be computed at the same time.
    """
    workers = current_workers() if parallel else None
    threads = 0 if workers is None else workers.threads
    physical = term.physical
    low, high = ALL_VALUES[0]
    if term.driver is not None:
        run = steps[term.driver.name].run(term.driver.order)
        local_parts = count_parts(run, physical.spines)
        if local_parts == 1:
            yield [TermPart(physical, low, high, rows) for rows in _deal_rows(run, threads)]
            return
        for local_run in divide_run(run, local_parts):
            local = physical.with_driver(local_run)
            yield [TermPart(local, low, high, rows) for rows in _deal_rows(local_run, threads)]
    elif threads and term.split is not None:
        run = steps[term.split.name].run(term.split.order)
        parts = _count(run.rows, threads * TASKS_PER_THREAD)
        ranges = value_ranges(run, parts) if parts > 1 else ALL_VALUES
        yield [TermPart(physical, low, high) for low, high in ranges]
    else:
        yield [TermPart(physical, low, high)]


def _deal_rows(run: Run, threads: int) -> list[RowBlocks] | list[None]:
    """Deal out the rows of a run in blocks; None for all rows if it is not worth it."""
    parts = _count(run.rows, threads * DEALT_PARTS_PER_THREAD)
    if parts < 2:
        return [None]
    rows = ZSet(*run.read())
    return [RowBlocks(rows, BLOCK_ROWS, part, parts) for part in range(parts)]


def _count(rows: int, parts: int) -> int:
    """Return into how many parts to divide so many rows of a delta."""
    return min(parts, rows // MIN_PART_ROWS) if rows >= MIN_DIVIDED_ROWS else 1
