"""Stages: the views of a circuit, cut where rows have to be exchanged.

::

    stage     =  one operator with state (a join, distinct, an aggregate, top-k), and the linear
                 operators above it, as an embedded circuit in each of its cells
    exchange  =  between stages: each row is sent to its cells of the next stage

Linear operators need no exchange: L(Σ cells) = Σ L(cells). They run where their rows are. A stage
reads `Relation`s, each a sum of `StagePart`s: a linear plan over one input of the circuit or over
the operator of one earlier stage. A join is cut below the row ids of its atoms
(`circuits.plan.nodes.RowIdEncode`), because codes have no meaning outside of a circuit; the
columns of a row id are sent as they are.

A join assigns rows to cells by the variables of its atoms (`planning.shares`), every other stage by
its grouping columns. The output of a join is summed over unused variables
before it is sent: aggregates over joins are partial before the exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from circuits.plan.nodes import (
    Aggregate,
    Fields,
    Join,
    PlanNode,
    RowIdDecode,
    RowIdEncode,
    Scan,
    Union,
    Values,
)
from circuits.runtime.graph import Graph
from streaming.distributed.planning.shares import JoinInput

__all__ = ["Relation", "Stage", "StagePart", "Stages", "cut_stages"]

#: The name of the Scan in the plan of a part.
SOURCE = "#source"
#: Aggregates whose state is a few numbers per group, not its values.
SUMS = frozenset({"count", "sum", "avg"})


@dataclass(frozen=True)
class StagePart:
    """A linear plan over one source.

    Attributes:
        source: The name of an input of the circuit, or the number of a stage; None for constants.
        plan: Reads a Scan named `SOURCE`, whose columns are the source's.
    """

    source: str | int | None
    plan: PlanNode


@dataclass(frozen=True)
class Relation:
    """Rows that a stage reads: the sum of its parts.

    Attributes:
        name: A name that is unique in all stages.
        fields: Its columns.
        parts: The summands.
        keys: The columns that assign rows to cells; None for the relations of a join.
    """

    name: str
    fields: Fields
    parts: tuple[StagePart, ...]
    keys: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """An operator with state, and its inputs.

    Attributes:
        number: From 0 on; a stage reads only earlier stages.
        plan: The operator over Scans of its relations; those of a join are named by atom
            (`atom_name`), because each atom receives its own rows.
        relations: The relations that it reads, each once.
        atoms: For a join, the relation and the variables of each atom.
        node: The number of the operator in the circuit's graph.
    """

    number: int
    plan: PlanNode
    relations: tuple[Relation, ...]
    atoms: tuple[JoinInput, ...] = ()
    node: int = -1

    @property
    def is_small(self) -> bool:
        """Return whether the state is the sums of a single group: too little work for a task."""
        plan = self.plan
        return (
            isinstance(plan, Aggregate)
            and not plan.keys
            and all(call.function in SUMS and not call.distinct for call in plan.aggregates)
        )


@dataclass(frozen=True)
class Stages:
    """A circuit in stages.

    Attributes:
        stages: In an order in which each reads only earlier ones.
        outputs: For each view the parts that sum up to it.
    """

    stages: tuple[Stage, ...]
    outputs: Mapping[str, tuple[StagePart, ...]]


def atom_name(relation: str, atom: int) -> str:
    """Return the name of a cell's input with the rows of a relation for one atom of a join."""
    return f"{relation}#{atom}"


def cut_stages(graph: Graph) -> Stages:
    """Cut the views of a graph, which needs no state, into stages.

    >>> import pyarrow as pa
    >>> from circuits import compile_sql
    >>> from circuits.runtime.incrementalize import incrementalize
    >>> e = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src"
    >>> circuit = compile_sql(text, {"e": e})
    >>> graph = incrementalize(circuit.plans, {"e": circuit.inputs["e"].fields})
    >>> cut = cut_stages(graph)
    >>> [type(stage.plan).__name__ for stage in cut.stages]
    ['Join', 'Aggregate']
    >>> [part.source for part in cut.outputs["view"]]
    [1]
    """
    cutting = _StageBuilder(graph)
    # The numbers of stages name state, so they do not depend on the order of the views.
    outputs = {name: cutting.parts(number) for name, number in sorted(graph.views.items())}
    return Stages(tuple(cutting.stages), outputs)


class _StageBuilder:
    """Collects the stages. Nodes of the graph are compared by identity."""

    def __init__(self, graph: Graph) -> None:
        self.stages: list[Stage] = []
        self._graph = graph
        self._parts: dict[int, tuple[StagePart, ...]] = {}
        self._relations: dict[tuple[int, tuple[int, ...] | None], Relation] = {}
        # By stage and node, the encoded inputs of a join in its cells.
        self._encoded_inputs: dict[tuple[int, int], RowIdEncode] = {}

    def parts(self, number: int) -> tuple[StagePart, ...]:
        """The parts that sum up to a node's rows."""
        if number not in self._parts:
            self._parts[number] = self._cut(number)
        return self._parts[number]

    def _cut(self, number: int) -> tuple[StagePart, ...]:
        node = self._graph.nodes[number]
        plan = node.plan
        if node.operator is None:
            return (StagePart(node.name, Scan(SOURCE, plan.fields)),)
        match plan:
            case Values():
                return (StagePart(None, plan),)
            case Union():
                return tuple(part for below in node.inputs for part in self.parts(below))
            case RowIdEncode():
                raise AssertionError("row ids are encoded in the cells of the join that reads them")
            case RowIdDecode():
                return tuple(self._decode_row_ids(plan, p) for p in self.parts(node.inputs[0]))
            case Join():
                stage = self._join(plan, node.inputs)
            case _ if plan.is_linear and len(node.inputs) == 1:
                below = self.parts(node.inputs[0])
                return tuple(replace(p, plan=plan.with_inputs([p.plan])) for p in below)
            case _ if plan.partitioning is not None:
                stage = self._keyed(plan, node.inputs[0], plan.partitioning)
            case _:
                raise AssertionError(f"{type(plan).__name__} cannot be split into cells")
        self.stages.append(replace(stage, node=number))
        return (StagePart(stage.number, Scan(SOURCE, plan.fields)),)

    def _decode_row_ids(self, plan: RowIdDecode, part: StagePart) -> StagePart:
        assert isinstance(part.source, int)
        row_ids = tuple(
            (column, self._encoded_inputs[part.source, self._graph.add(pack)])
            for column, pack in plan.row_ids
        )
        return replace(part, plan=replace(plan, input=part.plan, row_ids=row_ids))

    def _join(self, plan: Join, below: tuple[int, ...]) -> Stage:
        reads = []
        for number in below:
            node = self._graph.nodes[number]
            reads.append(node.inputs[0] if isinstance(node.plan, RowIdEncode) else number)
        relations = [self._relation(number, None) for number in reads]
        # Earlier stages have been numbered by now.
        stage = len(self.stages)
        inputs: list[PlanNode] = []
        atoms: list[JoinInput] = []
        for place, (number, relation) in enumerate(zip(below, relations, strict=True)):
            scan: PlanNode = Scan(atom_name(relation.name, place), relation.fields)
            bound = plan.variables[place]
            packed = self._graph.nodes[number].plan
            if isinstance(packed, RowIdEncode):
                scan = self._encoded_inputs[stage, number] = replace(packed, input=scan)
                bound = bound[: packed.kept]
            inputs.append(scan)
            # One of the columns that are bound to a variable is enough.
            found = {variable: column for column, variable in reversed([*enumerate(bound)])}
            atoms.append(JoinInput(relation.name, {f"v{v}": c for v, c in sorted(found.items())}))
        joined = replace(plan, inputs=tuple(inputs))
        return Stage(stage, joined, tuple(dict.fromkeys(relations)), tuple(atoms))

    def _keyed(
        self,
        plan: PlanNode,
        below: int,
        keys: tuple[int, ...],
    ) -> Stage:
        relation = self._relation(below, keys)
        scan = Scan(relation.name, relation.fields)
        return Stage(len(self.stages), plan.with_inputs([scan]), (relation,))

    def _relation(self, number: int, keys: tuple[int, ...] | None) -> Relation:
        if (number, keys) not in self._relations:
            parts = self.parts(number)
            name = f"r{len(self._relations)}"
            fields = self._graph.nodes[number].plan.fields
            self._relations[number, keys] = Relation(name, fields, parts, keys)
        return self._relations[number, keys]
