"""Committed: the state of a circuit after a commit, as one value for readers in any thread.

::

    version  =  runs of every trace  +  lengths of the tables of codes  +  steps, marks, counts

A commit publishes a version by one assignment. A reader takes the reference and reads that version
to its end, whatever is computed or committed meanwhile: snapshot isolation. Nothing is copied:
runs are immutable, tables only grow, and a reader that needs codes of its own has them in an
overlay (`dbsp_wcoj.overlay`).

Cost: a commit pays O(traces), and O(arrangements) for those of them that change; the first reader
of a version O(runs) for each trace that it reads. A version keeps its runs in memory for as long as
somebody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from circuits.codec import Codecs
from circuits.graph import Graph, GraphStep
from dbsp_wcoj import Trace
from dbsp_wcoj.overlay import Overlay
from dbsp_wcoj.trace_version import TraceVersion

if TYPE_CHECKING:
    from circuits.state import Strings

__all__ = ["Committed"]


class Committed:
    """The state after ``steps`` steps, never changed; any number of threads may read it.

    Args:
        graph: The operators, none of which is within a commit. Readers look at what never changes
            of them: plans, names and inputs.
        traces: The rows of each trace, by its name in `circuits.holdings`.

    Attributes:
        graph: The operators.
        steps: How many steps made the state.
        marks: Numbers that the rules of the inputs keep.
        lengths: How many values each table of codes has.
        rows: By operator, how many rows it has put out.
        seconds: And how long it has taken.
        traces: As given.
    """

    # A plain class: a frozen dataclass takes a microsecond more, in each step.
    __slots__ = (
        "_rearranged",
        "graph",
        "lengths",
        "marks",
        "rows",
        "seconds",
        "steps",
        "traces",
    )

    def __init__(self, graph: Graph, traces: Mapping[str, TraceVersion]) -> None:
        self.graph = graph
        self.steps = graph.steps
        self.marks = graph.marks
        self.lengths: Mapping[str, int] = graph.holdings.lengths()
        self.rows = graph.rows
        self.seconds = graph.seconds
        self.traces = traces
        self._rearranged = graph.relations.rearranged

    @staticmethod
    def of(graph: Graph) -> Committed:
        """The state of a graph that nobody changes now; O(arrangements)."""
        return Committed(graph, {name: TraceVersion(t) for name, t in graph.traces.items()})

    def after(self, step: GraphStep) -> Committed:
        """The version that follows, once the step is committed."""
        graph = step.graph
        names = graph.holdings.names
        traces = dict(self.traces)
        for prepared in step.prepared:
            for change in prepared.changes:
                trace = change.trace
                traces[names[id(trace)]] = TraceVersion(trace)
        if graph.relations.rearranged != self._rearranged:
            # So that arrangements that were dropped do not stay in memory.
            for trace in graph.relations.traces.values():
                traces[names[id(trace)]] = TraceVersion(trace)
        return Committed(graph, traces)

    def trace(self, name: str) -> Trace:
        """A trace of this version, to be read only.

        Args:
            name: As in `circuits.holdings`.
        """
        return self.traces[name].trace

    def relations(self) -> Mapping[str, Trace]:
        """The traces of the joined relations, by the names of these."""
        joined = self.graph.relations.traces
        return {name: self.trace(f"relation {name}") for name in joined}

    def codecs(self) -> Codecs:
        """Codecs with the values of this version, for one reader; what it adds stays with it."""
        return self.graph.codecs.overlaid(self.lengths)

    def tables(self) -> dict[str, Strings]:
        """The values of the tables that have any, in the order of their codes; O(bytes)."""
        tables = self.graph.holdings.tables
        return {
            name: Overlay(tables[name], length).arena()
            for name, length in self.lengths.items()
            if length
        }
