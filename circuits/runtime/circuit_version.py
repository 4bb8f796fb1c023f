"""Circuit version: the state of a circuit after a commit, as one immutable value for all readers.

::

    version  =  runs of every trace  +  arrays of the dictionaries  +  steps, watermarks, counts

A trace is the stored history of a relation, as a list of sorted runs. A dictionary maps values to
integer codes.

A commit publishes a version by one assignment. A reader, in any thread, takes a reference to the
version and reads only from it, whatever other threads compute or commit meanwhile. This is snapshot
isolation. Nothing is copied: runs are immutable, and the committed part of a dictionary does not
change: values are only added to its arrays, and a sweep makes new arrays
(`circuits.state.dictionary_sweep`). A reader that needs codes for new values gets them from an
overlay of its own (`dbsp_wcoj.values.overlay`).

Cost: a commit takes O(traces), plus O(arrangements) for each trace that changes. The first reader
of a version takes O(runs) for each trace that it reads. A version keeps its runs and arrays in
memory for as long as a reader refers to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from circuits.runtime.graph import Graph, GraphStep
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace
from dbsp_wcoj.storage.trace import TraceVersion
from dbsp_wcoj.values.coded_strings import CodedStrings
from dbsp_wcoj.values.interner import InternerArrays
from dbsp_wcoj.values.overlay import InternerOverlay

__all__ = ["CircuitVersion"]


class CircuitVersion:
    """The state after ``steps`` steps. It never changes; any number of threads may read it.

    Args:
        graph: The operators; no commit may be running. Readers use only the attributes of its
            nodes that never change: plans, names and inputs.
        traces: A version of each trace, by the name of the trace in `circuits.state.registry`.
        previous: An earlier version, whose arrays of unchanged dictionaries are used again.

    Attributes:
        graph: The operators.
        steps: The number of steps that led to the state.
        watermarks: The watermark of each input with retention, by name.
        lengths: The number of codes of each dictionary, by name.
        value_count: The number of values in all dictionaries.
        rows: The number of rows that each operator has emitted in all steps.
        seconds: The seconds that each operator has taken in all steps.
        traces: A version of each trace, by name.
        shared: The arrays of each dictionary, by name.
    """

    # A plain class, because building a frozen dataclass takes a microsecond longer in each step.
    __slots__ = (
        "_arrangement_drops",
        "graph",
        "lengths",
        "rows",
        "seconds",
        "shared",
        "steps",
        "traces",
        "value_count",
        "watermarks",
    )

    def __init__(
        self,
        graph: Graph,
        traces: Mapping[str, TraceVersion],
        previous: CircuitVersion | None = None,
    ) -> None:
        self.graph = graph
        self.steps = graph.steps
        self.watermarks = graph.watermarks
        dictionaries = graph.registry.dictionaries
        self.shared: dict[str, InternerArrays] = {}
        self.lengths: dict[str, int] = {}
        for name, entry in dictionaries.items():
            before = None if previous is None else previous.shared.get(name)
            shared = self.shared[name] = (
                entry.share() if before is None else entry.share_again(before)
            )
            self.lengths[name] = (
                shared.next_code
                if previous is None or shared is not before
                else previous.lengths[name]
            )
        self.value_count = sum([shared.size for shared in self.shared.values()])
        self.rows = graph.rows
        self.seconds = graph.seconds
        self.traces = traces
        self._arrangement_drops = graph.relations.arrangement_drops

    @staticmethod
    def of(graph: Graph) -> CircuitVersion:
        """Return the state of a graph that no other thread is changing; O(arrangements)."""
        traces = {name: TraceVersion(trace) for name, trace in graph.traces.items()}
        return CircuitVersion(graph, traces)

    def after(self, step: GraphStep) -> CircuitVersion:
        """Return the version after a step; call this after the step has been committed."""
        graph = step.graph
        names = graph.registry.names
        traces = dict(self.traces)
        for change in step.changes:
            traces[names[id(change.trace)]] = TraceVersion(change.trace)
        if graph.relations.arrangement_drops != self._arrangement_drops:
            # New versions of these traces, so that dropped arrangements do not stay in memory.
            for trace in graph.relations.traces.values():
                traces[names[id(trace)]] = TraceVersion(trace)
        return CircuitVersion(graph, traces, self)

    def with_runs(self, names: Collection[str]) -> CircuitVersion:
        """Return the same version, with the present runs of some traces."""
        traces = {name: TraceVersion(self.graph.traces[name]) for name in names}
        return CircuitVersion(self.graph, {**self.traces, **traces})

    def with_dictionaries(self) -> CircuitVersion:
        """Return the same version, with the present arrays of the dictionaries, after a sweep."""
        return CircuitVersion(self.graph, self.traces)

    def trace(self, name: str) -> Trace:
        """Return a trace of this version; do not change it.

        Args:
            name: The name of the trace in `circuits.state.registry`.
        """
        return self.traces[name].trace

    def relations(self) -> Mapping[str, Trace]:
        """Return the traces that joins read, by the name of the graph node."""
        trace_names = self.graph.registry.relations
        return {node_name: self.trace(name) for node_name, name in trace_names.items()}

    def rows_in_runs(self) -> dict[str, int]:
        """Return the rows in the runs of each trace; a row that is in two runs counts twice."""
        return {name: version.rows for name, version in self.traces.items()}

    def codecs(self) -> Codecs:
        """Return codecs for one reader; the codes that it adds for new values are private."""
        return self.graph.codecs.overlay(self.shared)

    def dictionaries(self) -> dict[str, CodedStrings]:
        """Return the values of each dictionary that has any; O(bytes)."""
        return {
            name: InternerOverlay(shared).arena()
            for name, shared in self.shared.items()
            if shared.size
        }
