"""Stages: the views of a circuit, cut where rows have to be exchanged between cells.

A cell holds one part of the state of a distributed operator. It is a circuit of its own, which runs
on an executor. ::


    stage     =  one operator with state (a join, distinct, an aggregate, top-k), and the linear
                 operators above it, as a circuit in each of its cells
    exchange  =  between stages: each row is sent to its cells of the next stage
    view      =  a stage that keeps the rows of a materialized view; it emits them unchanged
    recursion =  a stage whose cells run all iterations. They are divided by the columns that no
                 rule changes (`planning.divided_recursion`); without such columns it has one cell

Linear operators need no exchange: L(Σ cells) = Σ L(cells). They run where their rows are. A stage
reads `Relation`s. Each is a sum of `StagePart`s: linear plans over one input of the circuit or over
the operator of one earlier stage. The atoms of a join are its occurrences of relations. In a
circuit, one code replaces all columns of an atom that the join does not need: the row id
(`circuits.plan.physical_nodes.RowIdEncode`). Row ids have no meaning outside of a circuit, so the
exchange sends the columns themselves, and the cells of the join compute the row ids.

A join assigns rows to cells by the variables of its atoms (`planning.shares`), every other stage by
its grouping columns; an as-of join reads two relations, both placed by the keys that it compares.
The stage of a view may use any of its columns: in mode ``upsert`` some of the keys, so that all
rows of a key are in one cell. A cell of a join adds up the weights of output rows that are equal in
the columns that later stages need. So the exchange to an aggregate sends partial sums.

Counts, sums and means are computed in two parts, and the first one is linear::

    rows --partial, in each task--> (keys, slot), weight = quantity --final, by keys--> results

So the exchange sends a few rows per group and task, even if half of all rows are in one group. The
state is that of the aggregate in one process: both have the sums of all partial aggregates.

Min, max, the first row of a group (``arg_min``, ``arg_max``, ``first``) and top-k are computed in
two stages, so that a group with many rows is not in one cell either::

    partial stage    rows placed by all of their columns; each cell keeps its part of every group,
                     and emits the first ``offset + limit`` rows of this part: topk(part)
    final stage      rows placed by the keys; it reads what all parts emit, a few rows per group

    topk(Z)  =  topk(Σ topk(Z_cell))         rows with equal columns are in one cell
    max(Z)   =  max over the cells of max(Z_cell)

Both stages are ordinary incremental operators. The state of the operator in one process has the
rows of the partial stages (`streaming.distributed.migration`). A group exists if the sum of its
weights is positive, also if its rows of positive weight are in one cell and those of negative
weight in another one. So the final stage of an aggregate also reads the keys of all rows, with
their weights, and takes back the weight of each row that a partial stage has emitted::

    final stage reads    (key, NULL): weight of the rows        from each task: counts of rows
                         (key, x): +1, (key, NULL): -1          for each first row of a cell
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from circuits.plan.expressions import Column, Literal
from circuits.plan.fixpoint import Fixpoint
from circuits.plan.frontier import Frontier, GivenStateBound
from circuits.plan.nodes import Aggregate, Fields, Map, PlanNode, Scan, TopK, Union, Values
from circuits.plan.physical_nodes import (
    FinalAggregate,
    Join,
    PartialAggregate,
    RowIdDecode,
    RowIdEncode,
)
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.structural_hash import hash_values
from circuits.plan.time_windows import LatestTime
from circuits.plan.traversal import read_relations
from circuits.runtime.graph import Graph
from circuits.runtime.read_columns import read_columns
from circuits.state.migration import RecursionNode, recursion_nodes
from streaming.distributed.planning.divided_recursion import (
    DividedRecursion,
    NotDivided,
    divide_recursion,
)
from streaming.distributed.planning.first_rows import (
    AggregateParts,
    FirstRows,
    split_aggregate,
    split_top_k,
)
from streaming.distributed.planning.shares import JoinAtom

__all__ = ["Relation", "Stage", "StagePart", "Stages", "cut_stages"]

#: The name of the Scan in the plan of a part.
SOURCE = "#source"
#: Aggregates whose state is a few numbers per group, not the values of the group.
SUMS = frozenset({"count", "sum", "avg"})


@dataclass(frozen=True)
class StagePart:
    """A linear plan over one source.

    Attributes:
        source: The name of an input of the circuit, or the number of a stage; None for constants.
        plan: The plan; it reads the source as a Scan named `SOURCE`.
        operator: The position of the operator of the stage that it reads (`Stage.operators`).
    """

    source: str | int | None
    plan: PlanNode
    operator: int = 0


@dataclass(frozen=True)
class Relation:
    """Rows that a stage reads: the sum of its parts.

    Attributes:
        name: A name that is unique in all stages.
        fields: The columns.
        parts: The plans whose results are summed.
        keys: The columns whose hash assigns a row to its cell; None for the relations of a join,
            whose atoms assign rows. Without columns, a group has one cell. In a recursion the keys
            are the carried columns; a relation without any is sent to all of its cells.
    """

    name: str
    fields: Fields
    parts: tuple[StagePart, ...]
    keys: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """An operator with state, and its inputs.

    Attributes:
        number: The position of the stage; a stage reads only earlier stages.
        plan: The operator over Scans of its relations. A join has a Scan for each atom
            (`atom_name`), because each atom receives its own rows.
        relations: The relations that it reads, each once.
        atoms: For a join, the relation and the variables of each atom.
        node: The number of the operator in the circuit's graph.
        hash: The structural hash of the operator in the circuit's graph; that of a recursion is the
            same for all of its relations.
        view: The materialized view whose rows the cells keep, or empty. Its plan is a Scan.
        is_partial: True for a partial stage of first rows; its plan is a TopK, and all columns
            assign rows to cells.
        partial_stages: For the final stage of first rows, the numbers of its partial stages.
        recursion_nodes: For a recursion, its nodes in the circuit's graph, in the order of a cell.
        carried: For each relation of a recursion, the columns that divide it; empty if it has one
            cell.
        state_columns: For each part of the state of a divided recursion, the columns with the
            values that divide it; None if all cells have all of its rows.
        one_cell_reason: Why a recursion has one cell; else empty.
        bounds: The bounds by which the cells drop rows, and their values as functions of the
            watermarks in ``frontiers`` (`streaming.distributed.planning.stage_bounds`).
        reports_sessions: True if bounds of later stages depend on the oldest open session here.
    """

    number: int
    plan: PlanNode
    relations: tuple[Relation, ...]
    atoms: tuple[JoinAtom, ...] = ()
    node: int = -1
    hash: str = ""
    view: str = ""
    is_partial: bool = False
    partial_stages: tuple[int, ...] = ()
    recursion_nodes: tuple[RecursionNode, ...] = ()
    carried: tuple[tuple[int, ...], ...] = ()
    state_columns: tuple[tuple[int, ...] | None, ...] = ()
    one_cell_reason: str = ""
    bounds: tuple[GivenStateBound, ...] = ()
    frontiers: tuple[Frontier, ...] = ()
    reports_sessions: bool = False

    @property
    def operators(self) -> tuple[PlanNode, ...]:
        """The operators that parts read: the relations of a recursion; otherwise the plan."""
        plan = self.plan
        if not isinstance(plan, Fixpoint):
            return (plan,)
        return tuple(replace(plan, index=index) for index in range(len(plan.names)))

    def relation_of_part(self, part: int) -> Relation:
        """Return the relation whose rows a part of the state has, for a stage that groups rows."""
        return self.relations[min(part, len(self.relations) - 1)]

    @property
    def is_recursive(self) -> bool:
        """Return whether the stage is a recursion."""
        return isinstance(self.plan, Fixpoint)

    @property
    def is_one_group_of_sums(self) -> bool:
        """Return whether the state is the sums of one group: too little work for a task."""
        plan = self.plan
        if isinstance(plan, FinalAggregate):
            return not plan.key_count
        return (
            isinstance(plan, Aggregate)
            and not plan.keys
            and all(call.function in SUMS and not call.distinct for call in plan.aggregates)
        )


@dataclass(frozen=True)
class Stages:
    """A circuit in stages.

    Attributes:
        stages: The stages; each reads only earlier ones.
        outputs: For each view, the parts that sum up to it.
        hidden: The views that only other views read. The circuits of cells contain their parts,
            so that the same state serves any choice of outputs, but do not return them.
    """

    stages: tuple[Stage, ...]
    outputs: Mapping[str, tuple[StagePart, ...]]
    hidden: frozenset[str] = frozenset()

    @property
    def published(self) -> Mapping[str, tuple[StagePart, ...]]:
        """The parts of the views that are not hidden."""
        return {name: parts for name, parts in self.outputs.items() if name not in self.hidden}

    def find_view(self, number: int) -> str | None:
        """Return a view that depends on a stage, if possible one that is published."""
        dependent = {number}
        for stage in self.stages[number + 1 :]:
            parts = [part for relation in stage.relations for part in relation.parts]
            if any(part.source in dependent for part in parts):
                dependent.add(stage.number)
        views = [
            name
            for name, parts in self.outputs.items()
            if any(part.source in dependent for part in parts)
        ]
        return min(views, key=lambda name: name in self.hidden, default=None)


def atom_name(relation: str, atom: int) -> str:
    """Return the name of the input of a cell that has the rows of one atom of a join."""
    return f"{relation}#{atom}"


def cut_stages(graph: Graph, materialized: Collection[str] = ()) -> Stages:
    """Cut the views of a graph into stages. The operators of the graph need no state for this.

    Args:
        graph: The graph.
        materialized: The views whose rows cells keep.

    >>> import pyarrow as pa
    >>> from circuits import compile_sql
    >>> from circuits.runtime.incrementalize import incrementalize
    >>> edges = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src"
    >>> circuit = compile_sql(text, {"e": edges})
    >>> graph = incrementalize(circuit.plans, {"e": circuit.inputs["e"].fields})
    >>> stages = cut_stages(graph)
    >>> [type(stage.plan).__name__ for stage in stages.stages]
    ['Join', 'Aggregate']
    >>> [part.source for part in stages.outputs["view"]]
    [1]
    """
    builder = _StageBuilder(graph)
    # The state stores the numbers of stages, so they must not depend on the order of the views.
    views = sorted(graph.views.items())
    outputs = {name: builder.parts(number) for name, number in views}
    outputs |= {
        name: builder.add_view_stage(name, number) for name, number in views if name in materialized
    }
    return Stages(tuple(builder.stages), outputs)


class _StageBuilder:
    """Collects the stages of a graph; a node of the graph is named by its number."""

    def __init__(self, graph: Graph) -> None:
        self.stages: list[Stage] = []
        self._graph = graph
        self._parts: dict[int, tuple[StagePart, ...]] = {}
        self._relations: dict[tuple[int, tuple[object, ...] | None], Relation] = {}
        self._inputs = {
            node.name: number
            for number, node in enumerate(graph.nodes)
            if node.operator is None and isinstance(node.plan, Scan)
        }
        # By the ``id`` of the nested circuit of a recursion: the number of its stage.
        self._recursions: dict[int, int] = {}

    def parts(self, number: int) -> tuple[StagePart, ...]:
        """Return the parts that sum up to a node's rows."""
        if number not in self._parts:
            self._parts[number] = self._cut(number)
        return self._parts[number]

    def add_view_stage(self, view: str, number: int) -> tuple[StagePart, ...]:
        """Add the stage that keeps the rows of a view; return the part that reads it."""
        node = self._graph.nodes[number]
        fields = node.plan.fields
        relation = self._relation(number, tuple(range(len(fields))))
        stage = Stage(
            len(self.stages),
            Scan(relation.name, relation.fields),
            (relation,),
            hash=hash_values("Integrate", node.hash, view),
            view=view,
        )
        self.stages.append(stage)
        return (StagePart(stage.number, Scan(SOURCE, fields)),)

    def _cut(self, number: int) -> tuple[StagePart, ...]:
        node = self._graph.nodes[number]
        plan = node.plan
        if isinstance(plan, Fixpoint):
            return (self._recursion_part(number, plan),)
        if node.operator is None:
            return (StagePart(node.name, Scan(SOURCE, plan.fields)),)
        match plan:
            case Values():
                return (StagePart(None, plan),)
            case Union():
                return tuple(part for child in node.inputs for part in self.parts(child))
            case RowIdEncode():
                raise AssertionError("row ids are encoded in the cells of the join that reads them")
            case RowIdDecode():
                return tuple(self._decode_row_ids(plan, p) for p in self.parts(node.inputs[0]))
            case Join():
                stage = self._join_stage(plan, node.inputs)
            case Aggregate() if _has_partial_sums(plan):
                stage = self._sums_stage(plan, node.inputs[0])
            case Aggregate() if (aggregate_parts := split_aggregate(plan)) is not None:
                stage = self._final_aggregate_stage(aggregate_parts, number)
            case TopK() if (first_rows := split_top_k(plan)) is not None:
                stage = self._final_top_k_stage(plan, first_rows, number)
            case _ if plan.is_linear and len(node.inputs) == 1:
                children = self.parts(node.inputs[0])
                return tuple(replace(p, plan=plan.with_inputs([p.plan])) for p in children)
            case LatestTime():
                stage = self._latest_time_stage(plan, node.inputs)
            case _ if plan.partitioning is not None:
                stage = self._keyed_stage(plan, node.inputs[0], plan.partitioning)
            case _:
                raise AssertionError(f"{type(plan).__name__} cannot be split into cells")
        self.stages.append(replace(stage, node=number, hash=node.hash))
        return (StagePart(stage.number, Scan(SOURCE, plan.fields)),)

    def _decode_row_ids(self, plan: RowIdDecode, part: StagePart) -> StagePart:
        assert isinstance(part.source, int)
        join = self.stages[part.source].plan
        assert isinstance(join, Join)
        # Two atoms may read one relation. A cell has other rows for each of them, so each has row
        # ids of its own.
        encoders = {
            variables[-1]: encode
            for variables, encode in zip(join.variables, join.inputs, strict=True)
            if isinstance(encode, RowIdEncode)
        }
        row_ids = tuple((column, encoders[join.head[column]]) for column, _ in plan.row_ids)
        return replace(part, plan=replace(plan, input=part.plan, row_ids=row_ids))

    def _join_stage(self, plan: Join, children: tuple[int, ...]) -> Stage:
        relations = []
        for child in children:
            node = self._graph.nodes[child]
            is_encoded = isinstance(node.plan, RowIdEncode)
            relations.append(self._relation(node.inputs[0] if is_encoded else child, None))
        inputs: list[PlanNode] = []
        atoms: list[JoinAtom] = []
        for position, (child, relation) in enumerate(zip(children, relations, strict=True)):
            scan: PlanNode = Scan(atom_name(relation.name, position), relation.fields)
            variables = plan.variables[position]
            encode = self._graph.nodes[child].plan
            if isinstance(encode, RowIdEncode):
                scan = replace(encode, input=scan)
                variables = variables[: encode.kept_count]
            inputs.append(scan)
            # If several columns are bound to a variable, the first one is enough.
            column_of: dict[int, int] = {}
            for column, variable in enumerate(variables):
                column_of.setdefault(variable, column)
            columns = {f"v{variable}": column_of[variable] for variable in sorted(column_of)}
            atoms.append(JoinAtom(relation.name, columns))
        join = replace(plan, inputs=tuple(inputs))
        return Stage(len(self.stages), join, tuple(dict.fromkeys(relations)), tuple(atoms))

    def _sums_stage(self, plan: Aggregate, child: int) -> Stage:
        """Return the stage of the final aggregate, which reads partial aggregates."""
        fields = self._graph.nodes[child].plan.fields
        arguments = list(
            dict.fromkeys(c.argument for c in plan.aggregates if c.argument is not None)
        )
        kept_count = len(plan.keys)
        calls = tuple(
            call
            if call.argument is None
            else replace(call, argument=kept_count + arguments.index(call.argument))
            for call in plan.aggregates
        )
        read = (*plan.keys, *arguments)
        expressions = tuple(Column(column, fields[column].type) for column in read)
        names = tuple(fields[column].name for column in read)

        def compute_partially(rows: PlanNode) -> PartialAggregate:
            return PartialAggregate(Map(rows, expressions, names), kept_count, calls)

        partial = compute_partially(Scan(SOURCE, fields))
        parts = tuple(replace(p, plan=compute_partially(p.plan)) for p in self.parts(child))
        relation = Relation(
            f"r{len(self._relations)}", partial.fields, parts, tuple(range(kept_count))
        )
        self._relations[child, plan.key()] = relation
        final = FinalAggregate(Scan(relation.name, relation.fields), kept_count, partial)
        return Stage(len(self.stages), final, (relation,))

    def _partial_stages(self, number: int, partials: Sequence[FirstRows]) -> tuple[int, ...]:
        """Add the partial stages of the first rows that a node reads; return their numbers."""
        node = self._graph.nodes[number]
        (child,) = node.inputs
        numbers = []
        for index, first_rows in enumerate(partials):
            parts = tuple(replace(p, plan=first_rows.rows_of(p.plan)) for p in self.parts(child))
            fields = first_rows.kept_fields
            # Equal rows are in one cell, and the rows of a group are in all cells.
            keys = tuple(range(len(fields)))
            relation = Relation(f"r{len(self._relations)}", fields, parts, keys)
            self._relations[number, ("partial", index)] = relation
            stage = Stage(
                len(self.stages),
                first_rows.operator(Scan(relation.name, fields)),
                (relation,),
                node=number,
                hash=hash_values("partial", node.hash, index),
                is_partial=True,
            )
            self.stages.append(stage)
            numbers.append(stage.number)
        return tuple(numbers)

    def _final_aggregate_stage(self, aggregate: AggregateParts, number: int) -> Stage:
        """Return the stage that reads the first rows of partial stages, and counts of rows."""
        (child,) = self._graph.nodes[number].inputs
        partial_stages = self._partial_stages(number, aggregate.partials)
        parts = [replace(p, plan=aggregate.counts(p.plan)) for p in self.parts(child)]
        for index, partial in enumerate(partial_stages):
            rows = Scan(SOURCE, aggregate.partials[index].kept_fields)
            parts += [
                StagePart(partial, aggregate.additions(index, rows)),
                StagePart(partial, aggregate.subtractions(index, rows)),
            ]
        keys = tuple(range(len(aggregate.plan.keys)))
        relation = Relation(f"r{len(self._relations)}", aggregate.fields, tuple(parts), keys)
        self._relations[number, ("final",)] = relation
        plan = aggregate.operator(Scan(relation.name, relation.fields))
        return Stage(len(self.stages), plan, (relation,), partial_stages=partial_stages)

    def _final_top_k_stage(self, plan: TopK, first_rows: FirstRows, number: int) -> Stage:
        """Return the stage that reads the first rows of the partial stage."""
        (partial,) = partial_stages = self._partial_stages(number, (first_rows,))
        fields = plan.input.fields
        parts = (StagePart(partial, Scan(SOURCE, fields)),)
        relation = Relation(f"r{len(self._relations)}", fields, parts, plan.keys)
        self._relations[number, ("final",)] = relation
        final = plan.with_inputs([Scan(relation.name, fields)])
        return Stage(len(self.stages), final, (relation,), partial_stages=partial_stages)

    def _recursion_part(self, number: int, plan: Fixpoint) -> StagePart:
        """Return the part that reads a relation of a recursion; all of them are one stage."""
        circuit = self._graph.nested_circuits[number]
        nested = id(circuit)
        if nested not in self._recursions:
            # Not that of the relation that is read first, which depends on the views.
            hashes = sorted(self._graph.nodes[n].hash for n in circuit.references)
            stage = self._recursion_stage(number, plan)
            stage = replace(stage, node=number, hash=hash_values("recursion", hashes))
            self._recursions[nested] = stage.number
            self.stages.append(stage)
        stage = self.stages[self._recursions[nested]]
        assert isinstance(stage.plan, Fixpoint)
        operator = stage.plan.names.index(plan.names[plan.index])
        return StagePart(stage.number, Scan(SOURCE, plan.fields), operator)

    def _recursion_stage(self, number: int, plan: Fixpoint) -> Stage:
        """Return the stage of a recursion, divided if possible."""
        nodes: Sequence[RecursionNode] = recursion_nodes(self._graph, number)
        divided, reason = None, ""
        scans: dict[str, Scan] = {}
        try:
            divided = divide_recursion(plan, self._graph, number)
            scans |= self._read_base_rows(divided)
            plan, nodes = divided.plan, divided.nodes
        except NotDivided as error:
            divided, reason = None, str(error)
        readers = {position for position, _ in nodes if position is not None}
        positions = {**self._graph.views, **self._inputs, **(divided.copies if divided else {})}
        for name in sorted(read_relations(plan) - scans.keys()):
            position = positions[name]
            relation = self._read_columns(position, readers)
            scans[name] = Scan(relation.name, relation.fields)
        names = {scan.relation for scan in scans.values()}
        stage = Stage(
            len(self.stages),
            _replace_scans(plan, scans, {}),
            tuple(r for r in self._relations.values() if r.name in names),
            recursion_nodes=tuple(nodes),
            one_cell_reason=reason,
        )
        if divided is None:
            return stage
        return replace(stage, carried=divided.carried, state_columns=divided.state_columns)

    def _read_base_rows(self, divided: DividedRecursion) -> dict[str, Scan]:
        """Return the Scans of the relations of base rows.

        Raises:
            NotDivided: Base rows need an operator with state that the circuit does not have.
        """
        positions = {}
        for name, (_, plan) in divided.bases.items():
            count = len(self._graph.nodes)
            positions[name] = self._graph.add(rewrite_plan(plan))
            added = (node.plan for node in self._graph.nodes[count:])
            if not all(plan.is_linear or isinstance(plan, Values) for plan in added):
                raise NotDivided("the rows that begin it are computed together with other rows")
        scans = {}
        for name, position in positions.items():
            index, plan = divided.bases[name]
            fields = tuple(
                replace(field, nullable=plan.is_nullable(column))
                for column, field in enumerate(plan.fields)
            )
            parts = self.parts(position)
            relation = Relation(f"r{len(self._relations)}", fields, parts, divided.carried[index])
            self._relations[position, ("base", name)] = relation
            scans[name] = Scan(relation.name, relation.fields)
        return scans

    def _read_columns(self, number: int, readers: Collection[int]) -> Relation:
        """Return the relation of a node's rows for one cell, in which columns may be NULL.

        Columns that no reader reads are NULL integers, so they are not sent.

        Args:
            number: The number of the node.
            readers: The numbers of the nodes that read it.
        """
        fields = self._graph.nodes[number].plan.fields
        read = read_columns(self._graph.nodes, (), number, readers)
        if len(read) == len(fields):
            return self._relation(number, ())
        key = number, ("columns", *sorted(read))
        if key not in self._relations:
            null = pa.int64()
            narrowed = tuple(
                field if column in read else replace(field, type=null, nullable=True)
                for column, field in enumerate(fields)
            )
            expressions = tuple(
                Column(column, field.type) if column in read else Literal(None, null)
                for column, field in enumerate(fields)
            )
            names = tuple(field.name for field in fields)
            parts = tuple(
                replace(p, plan=Map(p.plan, expressions, names)) for p in self.parts(number)
            )
            self._relations[key] = Relation(f"r{len(self._relations)}", narrowed, parts, ())
        return self._relations[key]

    def _keyed_stage(
        self,
        plan: PlanNode,
        child: int,
        keys: tuple[int, ...],
    ) -> Stage:
        relation = self._relation(child, keys)
        scan = Scan(relation.name, relation.fields)
        return Stage(len(self.stages), plan.with_inputs([scan]), (relation,))

    def _latest_time_stage(self, plan: LatestTime, children: tuple[int, ...]) -> Stage:
        """Return the stage of two relations whose rows with equal keys are in one cell."""
        left, right = (
            self._relation(child, keys)
            for child, keys in zip(children, (plan.keys, tuple(range(len(plan.keys)))), strict=True)
        )
        scans = [Scan(relation.name, relation.fields) for relation in (left, right)]
        relations = tuple(dict.fromkeys((left, right)))
        return Stage(len(self.stages), plan.with_inputs(scans), relations)

    def _relation(self, number: int, keys: tuple[int, ...] | None) -> Relation:
        if (number, keys) not in self._relations:
            parts = self.parts(number)
            name = f"r{len(self._relations)}"
            fields = self._graph.nodes[number].plan.fields
            self._relations[number, keys] = Relation(name, fields, parts, keys)
        return self._relations[number, keys]


def _has_partial_sums(plan: Aggregate) -> bool:
    """Return whether partial aggregates are smaller than the rows: there is a sum or mean.

    A count of rows is the weight of the row with the keys, which is a partial sum already.
    """
    calls = plan.aggregates
    are_linear = all(c.function in SUMS and not c.distinct and not c.others for c in calls)
    return are_linear and any(c.argument is not None for c in calls)


def _replace_scans(
    plan: PlanNode, scans: Mapping[str, Scan], replaced: dict[int, PlanNode]
) -> PlanNode:
    """Return a plan with other Scans.

    Args:
        plan: The plan.
        scans: The new Scans, by the relation of the old ones.
        replaced: The results so far, by the ``id`` of the old node.
    """
    if isinstance(plan, Scan):
        return scans[plan.relation]
    if id(plan) not in replaced:
        inputs = [_replace_scans(input, scans, replaced) for input in plan.inputs]
        replaced[id(plan)] = plan.with_inputs(inputs) if inputs else plan
    return replaced[id(plan)]
