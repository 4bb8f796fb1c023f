"""Stage reuse: the cells of a program that go on when views are added.

::

    stages of the old program      0: r0 join r1       1: count of r2
    stages of the new program      0: r0 join r1       1: distinct r2       2: count of r3
    cells that go on               0 -> 0, 1 -> 2, without their rows being read

The stages of a program are numbered in the order of its views, and their relations as well. So a
stage of the new program that equals one of the old program may have another number, and relations
of other names. Its cells have the same rows, under state names that contain the names of the
relations. So their manifests are written again with the new names. Files stay as they are, with the
old names in them (`SegmentReference.stored_name`).

Two stages are equal if their operators have the same structural hash in the graphs of the whole
programs. The inputs of both programs must be the same. The cells must drop the same rows by the
watermarks, because another view may need rows that the cells of a join have dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.runtime.graph_node import Node
from circuits.state.migration import (
    find_recursion,
    find_stateful_operator,
    recursion_nodes,
)
from circuits.state.registry import operator_trace, relation_trace, row_ids_dictionary
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import atoms_of
from streaming.distributed.planning.stages import Stage, Stages
from streaming.errors import StreamingError
from streaming.state.cell_versions import CellVersions
from streaming.state.manifest import read_cell_manifest
from streaming.state.segment import part_name
from streaming.state.segment_references import SegmentReference

__all__ = ["StageReuse", "find_stages"]


@dataclass(frozen=True)
class ReusedStage:
    """A stage of the new program whose cells go on.

    Attributes:
        stage: The stage.
        old_number: The number of the equal stage of the old program.
        fingerprint: The fingerprint of the new circuit of the cells.
        names: By the name of each part of the state of a cell, its new name.
        joins: By the state name of a join in a cell, its new state name.
    """

    stage: Stage
    old_number: int
    fingerprint: str
    names: Mapping[str, str]
    joins: Mapping[str, str]

    def move_grid(self, old: Grid) -> Grid:
        """Return the grid with the names of the relations of the new stage."""
        atoms = tuple(
            replace(atom, relation=new.relation)
            for atom, new in zip(old.shares.atoms, atoms_of(self.stage), strict=True)
        )
        return replace(old, shares=replace(old.shares, atoms=atoms))

    def move_cell(self, data: bytes) -> bytes:
        """Return the manifest of a cell with the new names."""
        old = read_cell_manifest(data)
        if old.fingerprint == self.fingerprint:
            return data
        plans = old.plans
        if plans is not None:
            joins = {self.joins[name]: plan for name, plan in plans["joins"].items()}
            plans = {**plans, "joins": joins}
        traces = {
            self.names[name]: {
                order: with_stored_name(references, part_name(name, order))
                for order, references in orders.items()
            }
            for name, orders in old.traces.items()
        }
        # Dictionaries of values are named by their types.
        dictionaries = {
            self.names.get(name, name): with_stored_name(references, name)
            if name in self.names
            else references
            for name, references in old.dictionaries.items()
        }
        lengths = {self.names.get(n, n): length for n, length in old.dictionary_lengths.items()}
        return replace(
            old,
            fingerprint=self.fingerprint,
            plans=plans,
            traces=traces,
            dictionaries=dictionaries,
            dictionary_lengths=lengths,
        ).encode()


def with_stored_name(
    references: Iterable[SegmentReference], name: str
) -> tuple[SegmentReference, ...]:
    """Return references to parts whose name in their segments is this one, or an earlier one."""
    return tuple(
        replace(reference, stored_name=reference.stored_name or name) for reference in references
    )


class StageReuse:
    """The stages of a new program whose cells go on.

    Args:
        old: The stages of the old program.
        new: The stages of the new program.
        old_specs: The circuit of the cells of each old stage.
        new_specs: The circuit of the cells of each new stage.
        computed: The numbers of the new stages whose cells are computed.

    Raises:
        StreamingError: A stage is neither computed nor in the old program.
    """

    def __init__(
        self,
        old: Stages,
        new: Stages,
        old_specs: Sequence[CircuitSpec],
        new_specs: Sequence[CircuitSpec],
        computed: Collection[int],
    ) -> None:
        stages_by_hash = {stage.hash: stage for stage in old.stages}
        self.stages = []
        for stage in new.stages:
            if stage.number in computed:
                continue
            old_stage = stages_by_hash.get(stage.hash)
            names = None
            if old_stage is not None and _has_same_bounds(old_stage, stage):
                old_circuit = Circuit(old_specs[old_stage.number])
                names = match_state(old_circuit, Circuit(new_specs[stage.number]))
            if old_stage is None or names is None:
                raise StreamingError(
                    f"together with the new views, stage {stage.number} of the views of the job is "
                    "planned in another way, so its cells cannot go on: leave out rows_per_batch "
                    "and seconds_per_batch, so that the driver computes the new views at once"
                )
            fingerprint = new_specs[stage.number].fingerprint
            self.stages.append(ReusedStage(stage, old_stage.number, fingerprint, *names))

    def move_grids(self, old: Sequence[Grid], computed: Sequence[Grid]) -> tuple[Grid, ...]:
        """Return the grid of each stage of the new program.

        Args:
            old: The grids of the old program.
            computed: The grids of the new program; only those of computed stages are right.
        """
        grids = list(computed)
        for reused in self.stages:
            grids[reused.stage.number] = reused.move_grid(old[reused.old_number])
        return tuple(grids)

    def move_cells(self, old: CellVersions) -> dict[tuple[int, int], bytes]:
        """Return the manifests of the cells that go on.

        Complexity:
            O(cells), and the size of their manifests.
        """
        return {
            (reused.stage.number, cell): reused.move_cell(data)
            for reused in self.stages
            for cell, data in old.stage_manifests(reused.old_number).items()
        }


def _has_same_bounds(old: Stage, new: Stage) -> bool:
    """Return whether the cells of two equal stages drop the same rows by the watermarks."""

    def columns(stage: Stage) -> list[tuple[int, str]]:
        pairs = zip(stage.bounds, stage.frontiers, strict=True)
        return [(bound.column, frontier.label()) for bound, frontier in pairs]

    return columns(old) == columns(new)


def find_stages(stages: Stages, views: Collection[str]) -> set[int]:
    """Return the numbers of the stages that compute views."""
    found: set[int] = set()
    sources = [part.source for view in views for part in stages.outputs[view]]
    while sources:
        number = sources.pop()
        if isinstance(number, int) and number not in found:
            found.add(number)
            relations = stages.stages[number].relations
            sources += [part.source for relation in relations for part in relation.parts]
    return found


def match_state(old: Circuit, new: Circuit) -> tuple[dict[str, str], dict[str, str]] | None:
    """Match the state of the cells of two equal stages.

    Returns:
        By the names in the old circuit, the names in the new one: of traces and dictionaries, and
        of joins. None if the circuits differ in more than names.
    """
    names, joins = {}, {}
    pairs = zip(_nodes_with_state(old), _nodes_with_state(new), strict=False)
    for (old_node, is_operator), (new_node, _) in pairs:
        if type(old_node.plan) is not type(new_node.plan):
            return None
        name, new_name = old_node.state_name, new_node.state_name
        names[relation_trace(name)] = relation_trace(new_name)
        names[row_ids_dictionary(name)] = row_ids_dictionary(new_name)
        for index in range(len(getattr(old_node.operator, "traces", ()))):
            names[operator_trace(name, index)] = operator_trace(new_name, index)
        if is_operator:
            joins[name] = new_name
    moved = {names.get(name, name): trace.orders for name, trace in old.graph.traces.items()}
    if moved != {name: trace.orders for name, trace in new.graph.traces.items()}:
        return None
    return names, joins


def _nodes_with_state(circuit: Circuit) -> Iterator[tuple[Node, bool]]:
    """Yield the operator of a cell and the nodes below it, and whether each is an operator.

    The operators of a recursion are all of its nodes.
    """
    nodes = circuit.graph.nodes
    if circuit.graph.nested_circuits:
        for position, _ in recursion_nodes(circuit.graph, find_recursion(circuit.graph)):
            yield nodes[position], True
        return
    pending = [find_stateful_operator(circuit)]
    operator = pending[0]
    while pending:
        position = pending.pop()
        yield nodes[position], position == operator
        pending += reversed(nodes[position].inputs)
