"""Stage bounds: which rows the cells of a stage drop, by the watermarks of the whole inputs.

::

    circuit in one process    T' = (T + d)[column >= bound]       the bound of a trace, from the
                                                                  watermarks (`state_bounds`)
    cell of a stage           its part of T, the same column, and the same bound

A cell has only some rows of an input, so it cannot compute the watermark. The driver applies the
options of inputs, so it knows the watermarks that hold after a micro-batch before any cell begins
its step. It sends each cell the values of its bounds: a few numbers. So cells keep what the
operators of one process keep, and the results are the same, because dropped rows change no output
(`circuits.runtime.state_bounds`).

A cell drops rows when it steps, and a cell without rows does not step. So the copies of a row of a
join may be dropped in some cells and not yet in others. Whoever reads all cells of a join drops the
rows before the newest bound first (`streaming.distributed.cell_files.open_cell`).

The bound of the results of sessions depends on the oldest session that is open in any cell. Each
cell writes that of its own to its manifest (`OLDEST_SESSION`), and the driver takes the least of
all. So that it advances, all cells of such a stage step in each micro-batch, also without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from circuits.plan.frontier import (
    Frontier,
    FunctionOf,
    GivenStateBound,
    Least,
    OldestSession,
    Shifted,
)
from circuits.plan.physical_nodes import RowIdEncode
from circuits.runtime.graph import Graph, watermark_of
from circuits.runtime.state_bounds import BoundedStep, StateBounds
from streaming.distributed.planning.stages import Stage, Stages, atom_name
from streaming.state.manifest import read_cell_manifest

__all__ = ["OLDEST_SESSION", "StageBounds", "add_bounds", "find_oldest_sessions"]

#: The name in the manifest of a cell of the time before which no open session of it starts.
OLDEST_SESSION: Final = "oldest session"


@dataclass(frozen=True)
class StageBounds:
    """Computes the values of the bounds of stages from watermarks.

    Attributes:
        bounds: The bounds of the state of the whole circuit; None if no input has lateness.
    """

    bounds: StateBounds | None

    def compute(
        self,
        stage: Stage,
        watermarks: Mapping[str, int],
        oldest_sessions: Mapping[int, int] = MappingProxyType({}),
    ) -> dict[str, int]:
        """Return the values of the bounds of a stage, by name; those without a value are missing.

        Args:
            stage: The stage.
            watermarks: The watermarks, as a graph and a manifest have them.
            oldest_sessions: Of earlier stages, as `find_oldest_sessions` returns them.
        """
        if self.bounds is None or not stage.bounds:
            return {}
        step = BoundedStep(
            self.bounds, lambda name: watermarks.get(watermark_of(name)), {}, oldest_sessions
        )
        values = {
            given.name: step.value(frontier)
            for given, frontier in zip(stage.bounds, stage.frontiers, strict=True)
        }
        return {name: value for name, value in values.items() if value is not None}


def find_oldest_sessions(
    stages: Iterable[Stage], manifests: Mapping[tuple[int, int], bytes]
) -> dict[int, int]:
    """Return the start of the oldest open session of stages, by the node in the whole graph.

    A stage is missing if one of its cells does not know it yet.

    Args:
        stages: The stages.
        manifests: The manifests of all cells, by stage and cell.
    """
    found = {}
    for stage in stages:
        if not stage.reports_sessions:
            continue
        starts = [
            read_cell_manifest(data).watermarks.get(OLDEST_SESSION)
            for (number, _), data in manifests.items()
            if number == stage.number
        ]
        known = [start for start in starts if start is not None]
        if known and len(known) == len(starts):
            found[stage.node] = min(known)
    return found


def add_bounds(stages: Stages, graph: Graph) -> Stages:
    """Return stages with the bounds of their state.

    Args:
        stages: The stages of the whole circuit.
        graph: Its graph, whose nodes the stages name.
    """
    bounds = graph.state_bounds
    if bounds is None:
        return stages
    bounded = []
    for stage in stages.stages:
        found = _find_bounds(stage, graph, bounds)
        bounded.append(
            replace(
                stage,
                bounds=tuple(given for given, _ in found),
                frontiers=tuple(frontier for _, frontier in found),
            )
        )
    nodes = {
        node
        for stage in bounded
        for frontier in stage.frontiers
        for node in _session_nodes(frontier)
    }
    return replace(
        stages,
        stages=tuple(replace(stage, reports_sessions=stage.node in nodes) for stage in bounded),
    )


def _session_nodes(frontier: Frontier) -> set[int]:
    """Return the nodes with the oldest session that a frontier depends on."""
    match frontier:
        case OldestSession(time, node):
            return {node} | _session_nodes(time)
        case FunctionOf(base) | Shifted(base):
            return _session_nodes(base)
        case Least(parts):
            return {node for part in parts for node in _session_nodes(part)}
        case _:
            return set()


def _find_bounds(
    stage: Stage, graph: Graph, bounds: StateBounds
) -> list[tuple[GivenStateBound, Frontier]]:
    """Return the bounds of the state of a stage, each with its value as a function of watermarks.

    Recursions and materialized views have none, as in one process.
    """
    if stage.view or stage.is_recursive:
        return []
    if stage.atoms:
        found = []
        inputs = graph.nodes[stage.node].inputs
        for number, (atom, position) in enumerate(zip(stage.atoms, inputs, strict=True)):
            bound = bounds.relation_bounds.get(position)
            if bound is not None and not isinstance(graph.nodes[position].plan, RowIdEncode):
                relation = atom_name(atom.relation, number)
                name = f"{relation}: {bound.label()}"
                given = GivenStateBound(name, bound.column, relation)
                found.append((given, bound.frontier))
        return found
    session = bounds.sessions.get(stage.node)
    if session is not None:
        return [(GivenStateBound(session.frontier.label(), 0), session.frontier)]
    # All traces of an operator begin with the columns of its key, and have the same bound.
    traces = bounds.operators.get(stage.node, ())[:1]
    return [(GivenStateBound(bound.label(), bound.column), bound.frontier) for bound in traces]
