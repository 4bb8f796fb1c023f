"""A version of a trace: its rows at one moment, for readers in any thread.

Runs are immutable, so a version is the list of them: nothing is copied, and what the trace does
afterwards (new runs, merges, other arrangements) makes new runs and leaves these. Who reads a
version keeps its runs alive.

Cost: O(arrangements) to take one, O(runs) for the first reader.
"""

from __future__ import annotations

from dbsp_wcoj.storage.spine import runs_in
from dbsp_wcoj.storage.trace import Trace

__all__ = ["TraceVersion"]


class TraceVersion:
    """The rows that a trace has now, in the column orders that it is arranged in now.

    Args:
        trace: A trace on which no steps are laid (`Trace.push_overlay`).

    >>> from dbsp_wcoj import ZSet
    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(7,)]))
    >>> before = TraceVersion(trace)
    >>> trace.update(ZSet.from_rows([(8,)]))
    >>> before.trace.to_zset(), trace.to_zset()
    (ZSet({(7,): 1}), ZSet({(7,): 1, (8,): 1}))
    """

    __slots__ = ("_arity", "_contents", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._arity = trace.arity
        self._contents = trace.contents()
        self._trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """A trace of these rows, to be read only; the same one for all readers."""
        found = self._trace
        if found is None:
            # Two threads may both make one; which is kept does not matter.
            found = Trace(self._arity, ())
            found.load({order: runs_in(contents) for order, contents in self._contents})
            self._trace = found
        return found
