"""Circuit version: the state of a circuit after a commit, as one immutable value for all readers.

::

    version  =  runs of every trace  +  lengths of the dictionaries  +  steps, watermarks, counts

A commit publishes a version by one assignment. A reader, in any thread, takes a reference to the
version and reads it to the end, whatever other threads compute or commit meanwhile. This is
snapshot isolation. Nothing is copied. Runs are immutable. The committed part of a dictionary, which
maps values to integer codes, only grows. A reader that needs codes for new values gets them from an
overlay of its own (`dbsp_wcoj.values.overlay`).

Cost: a commit takes O(traces), plus O(arrangements) of each trace that changes. The first reader of
a version takes O(runs) for each trace that it reads. A version keeps its runs in memory for as long
as a reader refers to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from circuits.runtime.graph import Graph, GraphStep
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace
from dbsp_wcoj.storage.trace import TraceVersion
from dbsp_wcoj.values.overlay import InternerOverlay

if TYPE_CHECKING:
    from circuits.state.circuit_state import Strings

__all__ = ["CircuitVersion"]


class CircuitVersion:
    """The state after ``steps`` steps. It never changes; any number of threads may read it.

    Args:
        graph: The operators, outside of a commit. Readers use only those attributes of them that
            never change: plans, names and inputs.
        traces: A version of each trace, by the name of the trace in `circuits.state.registry`.

    Attributes:
        graph: The operators.
        steps: The number of steps that led to the state.
        watermarks: The watermark of each input with retention, by name.
        lengths: The number of values in each dictionary, by name.
        rows: The number of rows that each operator has emitted in all steps.
        seconds: The seconds that each operator has taken in all steps.
        traces: A version of each trace, by name.
    """

    # A plain class, because building a frozen dataclass takes a microsecond longer in each step.
    __slots__ = (
        "_arrangement_drops",
        "graph",
        "lengths",
        "rows",
        "seconds",
        "steps",
        "traces",
        "watermarks",
    )

    def __init__(self, graph: Graph, traces: Mapping[str, TraceVersion]) -> None:
        self.graph = graph
        self.steps = graph.steps
        self.watermarks = graph.watermarks
        self.lengths: Mapping[str, int] = graph.registry.lengths()
        self.rows = graph.rows
        self.seconds = graph.seconds
        self.traces = traces
        self._arrangement_drops = graph.relations.arrangement_drops

    @staticmethod
    def of(graph: Graph) -> CircuitVersion:
        """The state of a graph that no other thread is changing; O(arrangements)."""
        return CircuitVersion(graph, {name: TraceVersion(t) for name, t in graph.traces.items()})

    def after(self, step: GraphStep) -> CircuitVersion:
        """The version that follows this one; call it once the step is committed."""
        graph = step.graph
        names = graph.registry.names
        traces = dict(self.traces)
        for change in step.changes:
            traces[names[id(change.trace)]] = TraceVersion(change.trace)
        if graph.relations.arrangement_drops != self._arrangement_drops:
            # New versions of these traces, so that dropped arrangements do not stay in memory.
            for trace in graph.relations.traces.values():
                traces[names[id(trace)]] = TraceVersion(trace)
        return CircuitVersion(graph, traces)

    def trace(self, name: str) -> Trace:
        """A trace of this version; do not change it.

        Args:
            name: The name of the trace in `circuits.state.registry`.
        """
        return self.traces[name].trace

    def relations(self) -> Mapping[str, Trace]:
        """The traces of the joined relations, by the name of the relation."""
        return {name: self.trace(state) for name, state in self.graph.registry.relations.items()}

    def codecs(self) -> Codecs:
        """Codecs of the values of this version, for one reader. Values that it adds are private."""
        return self.graph.codecs.overlay(self.lengths)

    def tables(self) -> dict[str, Strings]:
        """The values of each dictionary that has any, in the order of their codes; O(bytes)."""
        tables = self.graph.registry.tables
        return {
            name: InternerOverlay(tables[name], length).arena()
            for name, length in self.lengths.items()
            if length
        }
