"""Pipeline: the stages of one micro-batch, each one job on Spark's executors.

::

    for each stage:   rows of its relations -> one table -> routed -> a task for some of the cells
                      -> steps of the cells -> their pieces and manifests, as Arrow, to the driver

Many rows are routed by Spark's expressions on executors, and shuffled. A few are placed in the
driver by the same hashes (`streaming.distributed.execution.placement`) and sent to the tasks that
have something to do: no plan, no shuffle, half of the time. A stage of one group that keeps only
sums of it (a count of all, say) is stepped in the driver, without a job.

Rows between stages pass through the driver: a delta is small beside the state, the driver knows at
once which stages have nothing to do, and each stage is one consistent cut. The way not taken is to
chain the stages in one plan: then every stage would run for every micro-batch, and rows of all
relations would have to share one type of row through all shuffles.

Nothing here is the state: what a stage's tasks wrote is named by the manifests that they give back,
and becomes the state when the driver commits (`streaming.distributed.execution.task`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from circuits import StepLimitError
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.distributed.execution.cell import added_up, definition_of
from streaming.distributed.execution.routing import CELL, RELATION, routed
from streaming.distributed.execution.stage_rows import columns_of, placed_here, split, wide
from streaming.distributed.execution.task import (
    ERROR,
    MANIFEST,
    SAID,
    StagePlan,
    StageTask,
    StageWork,
    read,
    written,
)
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import counts_of_tables, known_grid
from streaming.distributed.planning.load_balance import LoadBalance
from streaming.distributed.planning.stages import Stage, Stages
from streaming.distributed.stage_cells import StageCells
from streaming.distributed.task_errors import error_of
from streaming.state.files import Files

__all__ = ["Cells", "Pipeline", "Result"]

#: So many rows of a stage are placed by the driver.
FEW: Final = 1 << 14
# What the jobs rely on, whatever the session of the query has: partitions stay where they were put,
# Arrow comes as it is, and a table of rows is data, not a part of the plan.
SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
}

#: The sealed manifests of cells, by stage and cell.
Cells = Mapping[tuple[int, int], bytes]


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
        layout: The grids, if there is a state already. Without one a join's grid is chosen by the
            rows of its first micro-batch, as far as these tell: an initial load has the sizes of
            relations and the values that are heavy. What was chosen is the state's when it is
            committed; another attempt chooses again.
        limits: Of the step of each cell.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        cells: int,
        files: Files,
        state_id: str,
        layout: GridLayout | None = None,
        limits: StepLimits = DEFAULT_LIMITS,
    ) -> None:
        self.stages = stages
        self._layout = layout or GridLayout.chosen(stages, cells)
        self._is_open = layout is None
        self.definitions = [definition_of(stage, stages, limits=limits) for stage in stages.stages]
        self._files = files
        self._state_id = state_id
        self._session: SparkSession | None = None
        self._evenness = LoadBalance()
        # The plan that tasks receive, by stage; made again when the grid changes.
        self._plans: dict[int, tuple[Grid, StagePlan]] = {}

    @property
    def layout(self) -> GridLayout:
        """How rows find their cells."""
        return self._layout

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Those of the stages."""
        return self._layout.grids

    def evened(self, batch_id: int, before: Cells) -> Cells:
        """The cells of the micro-batch before, those of uneven joins in other grids.

        The grids and the files of what has moved are nothing until the micro-batch is committed.

        Args:
            batch_id: The micro-batch.
            before: The manifests of the micro-batch before.

        Raises:
            StateError: Cells cannot be read or written.
        """
        cells = dict(before)
        for stage in self.stages.stages:
            own = _of_stage(stage, cells)
            if not self._evenness.is_due(stage, own):
                continue
            definition = self.definitions[stage.number]
            moving = StageCells(self._files, self._state_id, stage, definition)
            grid = self.grids[stage.number]
            try:
                grid, moved = self._evenness.evened(
                    moving, grid, own, most=self._layout.cells, batch_id=batch_id
                )
            except BaseException:
                for writer in moving.written:
                    writer.undo()
                raise
            self._have(stage, grid)
            cells = {key: one for key, one in cells.items() if key[0] != stage.number}
            cells |= {(stage.number, cell): one for cell, one in moved.items()}
        return cells

    def step(
        self, session: SparkSession, given: Mapping[str, pa.Table], batch_id: int, before: Cells
    ) -> Result:
        """Run a micro-batch: a job for each stage that has rows, and none for one that has not.

        Args:
            session: Where the tasks run.
            given: The pieces that are made of inputs and constants, by name.
            batch_id: The micro-batch.
            before: The manifests of the micro-batch before.

        Raises:
            DbspWcojError: A cell has refused its step.
            PySparkException: A task failed, as often as Spark tries it; with what it said.
        """
        sent: dict[str, list[pa.Table]] = added_up(given)
        cells = dict(before)
        for stage in self.stages.stages:
            tables = {
                relation.name: sent.get(f"relation {relation.name}", [])
                for relation in stage.relations
            }
            own = _of_stage(stage, before)
            # The first step of a cell may give something without a row.
            is_first = len(own) < self.grids[stage.number].cells
            if not is_first and not any(t.num_rows for some in tables.values() for t in some):
                continue
            for cell, name, content in self._stage(session, stage, tables, batch_id, own):
                if name == ERROR:
                    raise _of_view(error_of(content), self.stages, stage.number, cell)
                if name == MANIFEST:
                    cells[stage.number, cell] = content
                else:
                    for what, tables_ in added_up({name: read(content)}).items():
                        sent.setdefault(what, []).extend(tables_)
        outputs = {name: sent.get(f"view {name}", []) for name in self.stages.outputs}
        return Result(outputs, cells)

    def _stage(
        self,
        session: SparkSession,
        stage: Stage,
        tables: Mapping[str, list[pa.Table]],
        batch_id: int,
        before: Mapping[int, bytes],
    ) -> Iterable[tuple[int, str, bytes]]:
        """What the cells of a stage say."""
        rows = wide(stage, tables)
        if before:
            self._evenness.note(stage, rows)
        elif self._is_open and stage.atoms:
            self._choose(stage, rows)
        if stage.is_small:
            return self._here(stage, rows, batch_id, before)
        tasks = min(self.grids[stage.number].cells, session.sparkContext.defaultParallelism)
        task = StageTask(self._plan(stage), batch_id, before, tasks)
        if rows.num_rows > FEW:
            return self._shuffled(self._session_beside(session), stage, rows, task)
        return self._sent(session, stage, rows, task)

    def _here(
        self, stage: Stage, rows: pa.Table, batch_id: int, before: Mapping[int, bytes]
    ) -> Iterable[tuple[int, str, bytes]]:
        """A stage that is no work for a task, in the driver: its one cell is like any other."""
        work = StageWork(
            self._files,
            self._state_id,
            stage.number,
            self.definitions[stage.number],
            batch_id,
            before,
        )
        sent = placed_here(stage, rows, self.grids[stage.number])
        return work.step(0, split(stage, sent)).said

    def _sent(
        self, session: SparkSession, stage: Stage, rows: pa.Table, task: StageTask
    ) -> Iterable[tuple[int, str, bytes]]:
        """Rows that the driver places."""
        grid = self.grids[stage.number]
        sent = placed_here(stage, rows, grid)
        numbers = sent.column(CELL).to_numpy() % task.tasks
        new = {cell % task.tasks for cell in range(grid.cells) if cell not in task.before}
        parts = [
            (number, written(sent.filter(pa.array(numbers == number))))
            for number in sorted(new.union(numbers.tolist()))
        ]
        found = session.sparkContext.parallelize(parts, len(parts)).mapPartitions(task.run_here)
        return list(found.collect())

    def _shuffled(
        self, session: SparkSession, stage: Stage, rows: pa.Table, task: StageTask
    ) -> Iterable[tuple[int, str, bytes]]:
        """Rows that executors route."""
        grid = self.grids[stage.number]
        frame = routed(session.createDataFrame(rows), columns_of(stage), grid)
        if len(task.before) < grid.cells:
            # Spark makes no tasks for nothing.
            every = session.range(grid.cells).select(f.col("id").cast("int").alias(CELL))
            frame = frame.unionByName(every, allowMissingColumns=True)
        placed = frame.repartitionById(task.tasks, (f.col(CELL) % task.tasks).cast("int"))

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.run(batches)

        said = placed.mapInArrow(run, SAID).toArrow()
        columns = [said.column(name).to_pylist() for name in ("cell", "name", "content")]
        return zip(*columns, strict=True)

    def _plan(self, stage: Stage) -> StagePlan:
        """What the tasks of a stage are told in every micro-batch, made once."""
        grid = self.grids[stage.number]
        known = self._plans.get(stage.number)
        if known is None or known[0] is not grid:
            definition = self.definitions[stage.number]
            plan = StagePlan(self._files, self._state_id, stage, definition, grid.cells)
            known = self._plans[stage.number] = grid, plan
        return known[1]

    def _choose(self, stage: Stage, rows: pa.Table) -> None:
        """Have the grid of a join that begins with these rows."""
        numbers, tables = rows.column(RELATION), {}
        for number, (relation, names) in enumerate(columns_of(stage).items()):
            tables[relation] = rows.filter(pc.equal(numbers, number)).select(names)
        counts = counts_of_tables(stage, tables)
        self._have(stage, known_grid(stage, self._layout.cells, counts))

    def _have(self, stage: Stage, grid: Grid) -> None:
        """Another grid for a stage."""
        grids = list(self.grids)
        grids[stage.number] = grid
        self._layout = GridLayout(self._layout.cells, tuple(grids))

    def _session_beside(self, session: SparkSession) -> SparkSession:
        """A session of the same application with settings of its own, made once."""
        known = self._session
        if known is None or known.sparkContext is not session.sparkContext:
            known = self._session = session.newSession()
            for key, value in SETTINGS.items():
                known.conf.set(key, value)
        return known


def _of_stage(stage: Stage, cells: Cells) -> dict[int, bytes]:
    """The manifests of one stage."""
    return {cell: sealed for (number, cell), sealed in cells.items() if number == stage.number}


def _of_view(error: Exception, stages: Stages, stage: int, cell: int) -> Exception:
    """The error of a cell; one of its limits with the name of a view that the cell is for."""
    if not isinstance(error, StepLimitError):
        return error
    reading = {stage}
    for later in stages.stages:
        if any(p.source in reading for relation in later.relations for p in relation.pieces):
            reading.add(later.number)
    views = [
        name for name, pieces in stages.outputs.items() if any(p.source in reading for p in pieces)
    ]
    return error.renamed(views[0] if views else None, f"cell {cell} of stage {stage}: ")
