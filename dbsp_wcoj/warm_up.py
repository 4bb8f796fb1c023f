"""Compiling the kernels before they are needed: at installation, or before the clock starts.

The kernels are compiled once for all queries, on the first machine that uses them (about twenty
seconds), and kept on disk beside their sources, or where ``NUMBA_CACHE_DIR`` says; a later process
loads them in a fraction of a second. Without this call that happens in the first steps of a view.
"""

from __future__ import annotations

from dbsp_wcoj.delta_query import DeltaQuery
from dbsp_wcoj.run import Merge, Run
from dbsp_wcoj.spine import TINY_RUNS, Spine
from dbsp_wcoj.trace import Trace, run_in_order
from dbsp_wcoj.zset import ZSet

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile, or load from the cache, every kernel that steps run.

    >>> warm_up()
    """
    view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
    rows = ZSet.from_rows([(1, 2), (2, 3), (1, 3)])
    view.step({"e": rows})
    view.step({"e": -rows})
    trace = Trace(2)
    trace.update(rows)
    trace.weights_of(rows)
    trace.to_zset()
    run = run_in_order(rows, (1, 0))
    Merge(run, run).work()
    Run.merged(run, run)
    spine = Spine()
    for _ in range(TINY_RUNS):
        spine.append(run)
