"""Pipeline: the stages of one micro-batch, each one job on Spark's executors.

::

    for each stage:   rows of its relations -> one DataFrame -> routed -> one task per some cells
                      -> steps of the cells -> their pieces and manifests, as Arrow, to the driver

Rows between stages pass through the driver: a delta is small beside the state, the driver knows at
once which stages have nothing to do, and each stage is one consistent cut. The way not taken is to
chain the stages in one plan: then every stage would run for every micro-batch, and rows of all
relations would have to share one type of row through all shuffles.

Nothing here is the state: what a stage's tasks wrote is named by the manifests that they give back,
and becomes the state when the driver commits (`streaming.hypercube.task`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from circuits.schema import WEIGHT
from streaming.hypercube.cell import added_up, definition_of, schema_of
from streaming.hypercube.grid import Grid
from streaming.hypercube.routing import CELL, RELATION, ROLES, routed
from streaming.hypercube.shares import Atom, shares_of
from streaming.hypercube.stages import Relation, Stage, Stages, atom_name
from streaming.hypercube.task import StageWork
from streaming.state.files import Files

__all__ = ["Cells", "Pipeline", "Result"]

#: The sealed manifests of cells, by stage and cell.
Cells = Mapping[tuple[int, int], bytes]

Given = dict[str, list[pa.Table]]

_SAID = "cell int, name string, content binary"
_MANIFEST = ""


@dataclass(frozen=True)
class Result:
    """What a micro-batch came to.

    Attributes:
        outputs: The delta of each view, as tables whose sum it is.
        cells: The manifests of the cells after it.
    """

    outputs: Mapping[str, list[pa.Table]]
    cells: Cells


class Pipeline:
    """The stages of a circuit and their grids.

    Args:
        stages: The stages.
        cells: How many cells a stage may have.
        files: The state directory.
        state_id: Its id.
    """

    def __init__(self, stages: Stages, *, cells: int, files: Files, state_id: str) -> None:
        self.stages = stages
        self.grids = [_grid(stage, cells) for stage in stages.stages]
        self._definitions = [definition_of(stage, stages) for stage in stages.stages]
        self._files = files
        self._state_id = state_id

    def step(
        self, session: SparkSession, given: Mapping[str, pa.Table], batch_id: int, before: Cells
    ) -> Result:
        """Run a micro-batch.

        Args:
            session: Where the tasks run.
            given: The pieces that are made of inputs and constants, by name.
            batch_id: The micro-batch.
            before: The manifests of the micro-batch before.

        Raises:
            PySparkException: A task failed, as often as Spark tries it; with what it said.
        """
        sent: Given = added_up(given)
        cells = dict(before)
        for stage, grid in zip(self.stages.stages, self.grids, strict=True):
            tables = {
                relation.name: sent.get(f"relation {relation.name}", [])
                for relation in stage.relations
            }
            rows = _wide(stage, tables)
            if not rows.num_rows and any(number == stage.number for number, _ in before):
                continue
            for cell, name, content in self._stage(session, stage, grid, rows, batch_id, before):
                if name == _MANIFEST:
                    cells[stage.number, cell] = content
                else:
                    for what, tables_ in added_up({name: _read(content)}).items():
                        sent.setdefault(what, []).extend(tables_)
        outputs = {name: sent.get(f"view {name}", []) for name in self.stages.outputs}
        return Result(outputs, cells)

    def _stage(
        self,
        session: SparkSession,
        stage: Stage,
        grid: Grid,
        rows: pa.Table,
        batch_id: int,
        before: Cells,
    ) -> Iterable[tuple[int, str, bytes]]:
        tasks = min(grid.cells, session.sparkContext.defaultParallelism)
        relations = {
            relation.name: [_column(number, place) for place in range(len(relation.fields))]
            for number, relation in enumerate(stage.relations)
        }
        own = {cell: sealed for (number, cell), sealed in before.items() if number == stage.number}
        work = StageWork(
            self._files,
            self._state_id,
            stage.number,
            self._definitions[stage.number],
            batch_id,
            own,
        )
        frame = routed(session.createDataFrame(rows), relations, grid)
        if len(own) < grid.cells:
            # The first step of a cell may give something without a row, and Spark makes no tasks
            # for nothing.
            every = session.range(grid.cells).select(f.col("id").cast("int").alias(CELL))
            frame = frame.unionByName(every, allowMissingColumns=True)
        placed = frame.repartitionById(tasks, (f.col(CELL) % tasks).cast("int"))
        said = placed.mapInArrow(_task(work, stage, grid.cells, tasks), _SAID).toArrow()
        columns = [said.column(name).to_pylist() for name in ("cell", "name", "content")]
        return zip(*columns, strict=True)


def _grid(stage: Stage, cells: int) -> Grid:
    if stage.atoms:
        return Grid(shares_of(stage.atoms, cells))
    (relation,) = stage.relations
    assert relation.keys is not None
    return Grid(shares_of([Atom(relation.name, {f"k{k}": k for k in relation.keys})], cells))


def _column(relation: int, place: int) -> str:
    return f"c{relation}_{place}"


def _wide(stage: Stage, tables: Mapping[str, list[pa.Table]]) -> pa.Table:
    """Rows of all relations of a stage in one table; columns of other relations are NULL."""
    fields = [pa.field(RELATION, pa.int32())]
    for number, relation in enumerate(stage.relations):
        fields += [
            pa.field(_column(number, place), field.type)
            for place, field in enumerate(relation.fields)
        ]
    schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
    parts = [schema.empty_table()]
    for number, relation in enumerate(stage.relations):
        for table in tables[relation.name]:
            own = {_column(number, k): table.column(k) for k in range(len(relation.fields))}
            own[WEIGHT] = table.column(WEIGHT)
            own[RELATION] = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            columns = [
                own[field.name] if field.name in own else pa.nulls(table.num_rows, field.type)
                for field in schema
            ]
            parts.append(pa.table(columns, schema))
    return pa.concat_tables(parts)


def _task(
    work: StageWork, stage: Stage, cells: int, tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stepped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if gc.get_freeze_count() == 0:
            gc.collect()
            gc.freeze()  # the daemon collects after every task, and need not look at modules
        context = TaskContext.get()
        assert context is not None
        got = list(batches)
        table = pa.Table.from_batches(got) if got else None
        for cell in range(context.partitionId(), cells, tasks):
            rows = None if table is None else table.filter(pc.equal(table.column(CELL), cell))
            if (rows is None or not rows.num_rows) and cell in work.before:
                continue
            done = work.step(cell, {} if rows is None else _split(stage, rows))
            said = [(_MANIFEST, done.manifest)]
            said += [(name, _written(out)) for name, out in done.outputs.items() if out.num_rows]
            yield pa.record_batch(
                [
                    pa.array([cell] * len(said), pa.int32()),
                    pa.array([name for name, _ in said]),
                    pa.array([content for _, content in said], pa.binary()),
                ],
                ["cell", "name", "content"],
            )

    return stepped


def _split(stage: Stage, rows: pa.Table) -> dict[str, pa.Table]:
    """The rows of a cell as its circuit takes them: by relation, and of a join by atom."""
    tables = {}
    for number, relation in enumerate(stage.relations):
        own = rows.filter(pc.equal(rows.column(RELATION), number))
        if not stage.atoms:
            tables[relation.name] = _narrow(relation, number, own)
            continue
        readers = [n for n, atom in enumerate(stage.atoms) if atom.relation == relation.name]
        for bit, atom in enumerate(readers):
            wanted = pc.not_equal(pc.bit_wise_and(own.column(ROLES), 1 << bit), 0)
            name = atom_name(relation.name, atom)
            tables[name] = _narrow(relation, number, own.filter(wanted))
    return tables


def _narrow(relation: Relation, number: int, rows: pa.Table) -> pa.Table:
    columns = [rows.column(_column(number, place)) for place in range(len(relation.fields))]
    schema = schema_of(relation.fields)
    return pa.table([*columns, rows.column(WEIGHT)], [*schema.names, WEIGHT])


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
