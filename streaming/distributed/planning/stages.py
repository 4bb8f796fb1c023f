"""Stages: the views of a circuit, cut where rows have to change places.

::

    stage     =  one operator with state (a join, distinct, an aggregate, top-k), and what is linear
                 above it, as an embedded circuit in each of its cells
    exchange  =  between stages: each row goes to the cells of the next stage that want it

Linear operators need no exchange: L(Σ cells) = Σ L(cells). So they are made where their rows are,
and what a stage reads, a `Relation`, is a sum of `StagePart`s: each a linear plan over one input of
the circuit or over the operator of one earlier stage. A join is cut below the row ids of its atoms
(`circuits.plan.nodes.RowIdEncode`), because codes mean nothing outside of a circuit; columns that
travel together do so as they are.

Rows find their cells in a join by the variables of its atoms
(`streaming.distributed.planning.shares`), in all other stages by the columns that these group by.
What a join gives out is summed over variables that nobody asks for before it is sent: aggregates
over joins are partial before the exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from circuits.plan.nodes import (
    Aggregate,
    Fields,
    Join,
    Plan,
    RowIdDecode,
    RowIdEncode,
    Scan,
    Union,
    Values,
)
from circuits.runtime.graph import Graph
from streaming.distributed.planning.shares import JoinInput

__all__ = ["Relation", "Stage", "StagePart", "Stages", "stages_of"]

#: What a piece's plan reads.
SOURCE = "#source"
#: Aggregates that keep a few numbers of a group, not its values.
SUMS = frozenset({"count", "sum", "avg"})


@dataclass(frozen=True)
class StagePart:
    """A linear plan over one source.

    Attributes:
        source: The name of an input of the circuit, or the number of a stage; None for constants.
        plan: Reads a Scan named `SOURCE`, whose columns are the source's.
    """

    source: str | int | None
    plan: Plan


@dataclass(frozen=True)
class Relation:
    """Rows that a stage reads: the sum of pieces.

    Attributes:
        name: Its own in all stages.
        fields: Its columns.
        pieces: What it is the sum of.
        keys: The columns by which rows find their cell; None for the relations of a join.
    """

    name: str
    fields: Fields
    pieces: tuple[StagePart, ...]
    keys: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """An operator with state, and what it reads.

    Attributes:
        number: From 0 on; a stage reads only earlier ones.
        plan: The operator over Scans of its relations; those of a join are named by atom
            (`atom_name`), for each atom gets the rows that its cells want.
        relations: What it reads, each once.
        atoms: Of a join, where each atom's rows come from and what binds them.
        node: The operator's number in the graph that was cut.
    """

    number: int
    plan: Plan
    relations: tuple[Relation, ...]
    atoms: tuple[JoinInput, ...] = ()
    node: int = -1

    @property
    def is_small(self) -> bool:
        """Whether it has but one group, of which it keeps sums: no work for a task."""
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
        outputs: Of each view the pieces that it is the sum of.
    """

    stages: tuple[Stage, ...]
    outputs: Mapping[str, tuple[StagePart, ...]]


def atom_name(relation: str, atom: int) -> str:
    """The input of a join's cell that has the rows of a relation for one of its atoms."""
    return f"{relation}#{atom}"


def stages_of(graph: Graph) -> Stages:
    """The stages of the views of a graph, which needs no state.

    >>> import pyarrow as pa
    >>> from circuits import compile_sql
    >>> from circuits.runtime.incrementalize import incrementalize
    >>> e = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src"
    >>> circuit = compile_sql(text, {"e": e})
    >>> graph = incrementalize(circuit.plans, {"e": circuit.inputs["e"].fields})
    >>> cut = stages_of(graph)
    >>> [type(stage.plan).__name__ for stage in cut.stages]
    ['Join', 'Aggregate']
    >>> [piece.source for piece in cut.outputs["view"]]
    [1]
    """
    cutting = _Cutting(graph)
    # The numbers of stages name state, so they do not depend on the order of the views.
    outputs = {name: cutting.pieces(number) for name, number in sorted(graph.views.items())}
    return Stages(tuple(cutting.stages), outputs)


class _Cutting:
    """The stages so far. Nodes of the graph are equal only if they are the same."""

    def __init__(self, graph: Graph) -> None:
        self.stages: list[Stage] = []
        self._graph = graph
        self._pieces: dict[int, tuple[StagePart, ...]] = {}
        self._relations: dict[tuple[int, tuple[int, ...] | None], Relation] = {}
        # By stage and node, the encoders of row ids of a join as its cells have them.
        self._packs: dict[tuple[int, int], RowIdEncode] = {}

    def pieces(self, number: int) -> tuple[StagePart, ...]:
        """The pieces that a node's rows are the sum of."""
        if number not in self._pieces:
            self._pieces[number] = self._cut(number)
        return self._pieces[number]

    def _cut(self, number: int) -> tuple[StagePart, ...]:
        node = self._graph.nodes[number]
        plan = node.plan
        if node.operator is None:
            return (StagePart(node.name, Scan(SOURCE, plan.fields)),)
        match plan:
            case Values():
                return (StagePart(None, plan),)
            case Union():
                return tuple(piece for below in node.inputs for piece in self.pieces(below))
            case RowIdEncode():
                raise AssertionError("row ids are encoded in the cells of the join that reads them")
            case RowIdDecode():
                return tuple(self._unpacked(plan, p) for p in self.pieces(node.inputs[0]))
            case Join():
                stage = self._join(plan, node.inputs)
            case _ if plan.is_linear and len(node.inputs) == 1:
                below = self.pieces(node.inputs[0])
                return tuple(replace(p, plan=plan.with_inputs([p.plan])) for p in below)
            case _ if plan.partitioning is not None:
                stage = self._keyed(plan, node.inputs[0], plan.partitioning)
            case _:
                raise AssertionError(f"{type(plan).__name__} cannot be split into cells")
        self.stages.append(replace(stage, node=number))
        return (StagePart(stage.number, Scan(SOURCE, plan.fields)),)

    def _unpacked(self, plan: RowIdDecode, piece: StagePart) -> StagePart:
        assert isinstance(piece.source, int)
        row_ids = tuple(
            (column, self._packs[piece.source, self._graph.add(pack)])
            for column, pack in plan.row_ids
        )
        return replace(piece, plan=replace(plan, input=piece.plan, row_ids=row_ids))

    def _join(self, plan: Join, below: tuple[int, ...]) -> Stage:
        reads = []
        for number in below:
            node = self._graph.nodes[number]
            reads.append(node.inputs[0] if isinstance(node.plan, RowIdEncode) else number)
        relations = [self._relation(number, None) for number in reads]
        # Earlier stages have their numbers now.
        stage = len(self.stages)
        inputs: list[Plan] = []
        atoms: list[JoinInput] = []
        for place, (number, relation) in enumerate(zip(below, relations, strict=True)):
            scan: Plan = Scan(atom_name(relation.name, place), relation.fields)
            bound = plan.variables[place]
            packed = self._graph.nodes[number].plan
            if isinstance(packed, RowIdEncode):
                scan = self._packs[stage, number] = replace(packed, input=scan)
                bound = bound[: packed.kept]
            inputs.append(scan)
            # Of the columns that are bound to a variable one is enough.
            found = {variable: column for column, variable in reversed([*enumerate(bound)])}
            atoms.append(JoinInput(relation.name, {f"v{v}": c for v, c in sorted(found.items())}))
        joined = replace(plan, inputs=tuple(inputs))
        return Stage(stage, joined, tuple(dict.fromkeys(relations)), tuple(atoms))

    def _keyed(
        self,
        plan: Plan,
        below: int,
        keys: tuple[int, ...],
    ) -> Stage:
        relation = self._relation(below, keys)
        scan = Scan(relation.name, relation.fields)
        return Stage(len(self.stages), plan.with_inputs([scan]), (relation,))

    def _relation(self, number: int, keys: tuple[int, ...] | None) -> Relation:
        if (number, keys) not in self._relations:
            pieces = self.pieces(number)
            name = f"r{len(self._relations)}"
            fields = self._graph.nodes[number].plan.fields
            self._relations[number, keys] = Relation(name, fields, pieces, keys)
        return self._relations[number, keys]
