"""Run the stages of one micro-batch, each as one job on Spark's executors.

::

    for each stage:   rows of its relations -> one table -> routed -> tasks, each for some cells
                      -> steps of the cells -> their outputs and manifests, as Arrow, to the driver

Many rows are routed on executors by Spark's expressions, and shuffled. Few rows are placed in the
driver by the same hash functions (`streaming.distributed.execution.placement`) and sent directly to
the tasks that have rows: no plan, no shuffle, half of the time. A stage that keeps only sums of one
group (a count of all rows, say) runs in the driver, without a job.

Rows between stages pass through the driver: it knows at once which stages have no rows, and a stage
starts when all its rows are known. Circuits whose rows executors can decode run in one job instead,
in which no row passes through the driver (`streaming.distributed.batch_job`). The first micro-batch
of a circuit with constants runs here, too.

The pipeline holds no state. The manifests that the tasks return name the files that they wrote, and
these become the state when the driver commits (`streaming.distributed.execution.task`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from circuits import StepLimitError
from circuits.plan.fixpoint import MAX_ITERATIONS
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName
from streaming.distributed.batch_job import JobResult, read_counts, run_job
from streaming.distributed.execution.cell import cell_spec, destination_of, group_by_destination
from streaming.distributed.execution.job_tasks import JobPlan, SourcePlan
from streaming.distributed.execution.routing import CELL, route_rows
from streaming.distributed.execution.stage_rows import (
    columns_of,
    pack_relations,
    replicate_rows,
    split_columns,
    split_relations,
)
from streaming.distributed.execution.task import (
    ERROR,
    MANIFEST,
    RESULT_SCHEMA,
    StagePlan,
    StageStep,
    StageTask,
)
from streaming.distributed.execution.task_files import TaskFiles
from streaming.distributed.execution.transport import read_table, write_table
from streaming.distributed.execution.view_deltas import ViewOutput, sum_tables
from streaming.distributed.explain import ExchangedRows
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import (
    KnownCounts,
    count_in_tables,
    grid_from_counts,
    view_grid,
)
from streaming.distributed.planning.job_layout import plan_job
from streaming.distributed.planning.load_balance import LoadBalance
from streaming.distributed.planning.stage_bounds import StageBounds, find_oldest_sessions
from streaming.distributed.planning.stages import Stage, Stages
from streaming.distributed.spark_settings import SETTINGS
from streaming.distributed.stage_cells import StageCells
from streaming.distributed.task_errors import parse_error
from streaming.distributed.task_pins import TaskPins
from streaming.distributed.task_runner import SparkRunner
from streaming.distributed.unused_files import remove_unused_files
from streaming.state.files import Files
from streaming.state.manifest import read_cell_manifest

__all__ = ["CellManifests", "Pipeline", "PipelineResult"]

#: Up to this number of rows of a stage, the driver places them.
MAX_DRIVER_ROWS: Final = 1 << 14
#: For circuits whose state has no bounds.
NO_LIMITS: Final = StageBounds(None)

#: The checksummed manifests of cells, by stage and cell.
CellManifests = Mapping[tuple[int, int], bytes]


@dataclass(frozen=True)
class PipelineResult:
    """The result of a micro-batch.

    Attributes:
        outputs: For each view, tables that sum up to its delta.
        manifests: The manifests of the cells after the micro-batch.
    """

    outputs: Mapping[str, list[pa.Table]]
    manifests: CellManifests


class Pipeline:
    """The stages of a circuit and their grids.

    Args:
        stages: The stages.
        max_cells: The maximum number of cells of a stage.
        files: The state directory.
        state_id: The id of the state directory.
        program_id: The unique id of the program (`Key`).
        layout: The grids of an existing state. Without it, the grid of a join is chosen from the
            rows of its first micro-batch: an initial load shows the sizes of relations and the
            heavy values. The choice becomes part of the state with the commit; another attempt
            chooses again.
        limits: The limits of the step of each cell.
        formula: The delta formula of the joins in the cells.
        max_iterations: The limit of iterations of a recursion per step.
        numbers: The stages that run, with all stages that they read; by default all stages.
        stage_limits: Computes the values of the bounds of the state of cells.
        pins: Pins the tasks of jobs to executors; None if Spark chooses them.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        max_cells: int,
        files: Files,
        state_id: str,
        program_id: str,
        layout: GridLayout | None = None,
        limits: StepLimits = DEFAULT_LIMITS,
        formula: FormulaName = Formula.collapsed,
        max_iterations: int = MAX_ITERATIONS,
        numbers: Collection[int] | None = None,
        stage_limits: StageBounds = NO_LIMITS,
        pins: TaskPins | None = None,
    ) -> None:
        self._pins = pins
        self._stage_limits = stage_limits
        self.stages = stages
        self.numbers = {stage.number for stage in stages.stages} if numbers is None else numbers
        self._running = [stage for stage in stages.stages if stage.number in self.numbers]
        self._layout = layout or GridLayout.default(stages, max_cells)
        # True for a new state: the grid of a join is chosen when its first rows arrive.
        self._chooses_grids = layout is None
        self.specs = [
            cell_spec(stage, stages, formula=formula, limits=limits, max_iterations=max_iterations)
            for stage in stages.stages
        ]
        self._files = files
        self._state_id = state_id
        self._program_id = program_id
        self._session: SparkSession | None = None
        self._load_balance = LoadBalance()
        #: The rows that the last job has exchanged; None before the first job.
        self.exchanged: ExchangedRows | None = None
        # The plan of the last job, and what it was made from.
        self._job_plan: tuple[Any, JobPlan] | None = None
        # The plan that tasks receive, by stage; created again when the grid changes.
        self._plans: dict[int, tuple[Grid, StagePlan]] = {}

    @property
    def layout(self) -> GridLayout:
        """The current grids and the maximum number of cells."""
        return self._layout

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grid of each stage."""
        return self._layout.grids

    def rebalance(
        self,
        session: SparkSession,
        batch_id: int,
        previous: CellManifests,
        views: Mapping[str, ViewOutput] = MappingProxyType({}),
        watermarks: Mapping[str, int] = MappingProxyType({}),
    ) -> CellManifests:
        """Return the cells of the previous micro-batch, after repartitioning some stages.

        These are uneven joins, and materialized views of which a key has rows in several cells.

        Executors move the rows. New grids and files become part of the state only with the commit
        of the micro-batch.

        Args:
            session: The session that runs the tasks.
            batch_id: The micro-batch.
            previous: The manifests after the previous micro-batch; empty before the first one.
            views: How the views are published.
            watermarks: The watermarks after the previous micro-batch.

        Raises:
            StateError: Cells cannot be read or written.
            PySparkException: A task failed, also after Spark's retries.
        """
        manifests = dict(previous)
        runner = SparkRunner(session)
        moved: list[StageCells] = []  # to undo them if a later one fails
        oldest = find_oldest_sessions(self._running, previous)
        for stage in self._running:
            old_manifests = _stage_manifests(stage, manifests)
            spec, grid = self.specs[stage.number], self.grids[stage.number]
            limits = self._stage_limits.compute(stage, watermarks, oldest)
            stage_cells = StageCells(self._files, self._state_id, stage, spec, runner, limits)
            moved.append(stage_cells)
            grid_of_keys = self._grid_of_keys(stage, views.get(stage.view))
            try:
                if grid_of_keys is not None and old_manifests:
                    grid, new_manifests = stage_cells.repartition(
                        grid,
                        partial(_return_grid, grid_of_keys),
                        old_manifests,
                        batch_id=batch_id,
                        steps=max(read_cell_manifest(m).steps for m in old_manifests.values()),
                    )
                elif grid_of_keys is not None:
                    grid, new_manifests = grid_of_keys, {}
                elif self._load_balance.should_rebalance(stage, old_manifests):
                    grid, new_manifests = self._load_balance.rebalance(
                        stage_cells,
                        grid,
                        old_manifests,
                        max_cells=self._layout.max_cells,
                        batch_id=batch_id,
                    )
                else:
                    continue
            except BaseException:
                for stage_cells in moved:
                    stage_cells.undo()
                raise
            self._set_grid(stage, grid)
            manifests = {key: data for key, data in manifests.items() if key[0] != stage.number}
            manifests |= {(stage.number, cell): data for cell, data in new_manifests.items()}
        return manifests

    def _grid_of_keys(self, stage: Stage, output: ViewOutput | None) -> Grid | None:
        """Return the grid by which the rows of each key are in one cell; None if they are."""
        if output is None or output.mode.mode != "upsert":
            return None
        keys = {output.schema.columns.index(key) for key in output.mode.keys}
        (atom,) = self.grids[stage.number].shares.atoms
        if keys.issuperset(atom.columns.values()):
            return None
        return view_grid(stage, self._layout.max_cells, keys)

    def step(
        self,
        session: SparkSession,
        inputs: Mapping[str, pa.Table],
        batch_id: int,
        previous: CellManifests,
        published: Mapping[str, ViewOutput] = MappingProxyType({}),
        watermarks: Mapping[str, int] = MappingProxyType({}),
    ) -> PipelineResult:
        """Run a micro-batch, with one job for each stage that has rows.

        Args:
            session: The session that runs the tasks.
            inputs: The parts that are computed from inputs and constants, by name.
            batch_id: The micro-batch.
            previous: The manifests after the previous micro-batch.
            published: The materialized views of which the result has the published tables of the
                cells instead of their deltas.
            watermarks: The watermarks after the micro-batch: the cells drop the rows that no later
                one needs.

        If a cell fails, the files of all other cells are removed.

        Raises:
            DbspWcojError: The step of a cell failed.
            PySparkException: A task failed, also after Spark's retries.
        """
        manifests = dict(previous)
        try:
            outputs = self._step_stages(session, inputs, batch_id, manifests, published, watermarks)
        except BaseException:
            remove_unused_files(self._files, previous, manifests)
            raise
        return PipelineResult(outputs, manifests)

    def _step_stages(
        self,
        session: SparkSession,
        inputs: Mapping[str, pa.Table],
        batch_id: int,
        manifests: dict[tuple[int, int], bytes],
        published: Mapping[str, ViewOutput],
        watermarks: Mapping[str, int],
    ) -> dict[str, list[pa.Table]]:
        """Run the stages one after another; replace the manifests of the cells that step.

        The other arguments are those of `step`.

        Returns:
            For each view, tables that sum up to its delta.
        """
        tables_by_destination: dict[str, list[pa.Table]] = group_by_destination(inputs)
        changed_rows: dict[str, int] = {}  # several stages may read the same relation
        for stage in self._running:
            tables = {
                relation.name: tables_by_destination.get(f"relation {relation.name}", [])
                for relation in stage.relations
            }
            old_manifests = _stage_manifests(stage, manifests)
            # The first step of a cell may produce output without any input row.
            has_new_cells = len(old_manifests) < self.grids[stage.number].cells
            has_rows = any(
                table.num_rows
                for tables_of_relation in tables.values()
                for table in tables_of_relation
            )
            output = published.get(stage.view)
            oldest = find_oldest_sessions(self._running, manifests)
            limits = self._stage_limits.compute(stage, watermarks, oldest)
            step = StageStep(self._stage_plan(stage), batch_id, old_manifests, output, limits)
            if not has_new_cells and not has_rows and not step.steps_all:
                continue
            result = list(self._run_stage(session, stage, tables, step))
            if old_manifests:
                changed_rows |= {
                    relation: sum(table.num_rows for table in tables_of_relation)
                    for relation, tables_of_relation in tables.items()
                }
            manifests.update(
                ((stage.number, cell), content)
                for cell, name, content in result
                if name == MANIFEST
            )
            for cell, name, content in result:
                if name == ERROR:
                    raise _name_view(parse_error(content), self.stages, stage.number, cell)
                if name != MANIFEST:
                    tables_by_destination.setdefault(destination_of(name), []).append(
                        read_table(content)
                    )
        self._load_balance.record(changed_rows)
        return {
            name: tables_by_destination.get(f"view {name}", []) for name in self.stages.published
        }

    def run_job(
        self,
        frame: DataFrame,
        source: SourcePlan,
        views: Mapping[str, ViewOutput],
        batch_id: int,
        previous: CellManifests,
    ) -> JobResult:
        """Run a micro-batch as one job that decodes its rows (`streaming.distributed.batch_job`).

        Args:
            frame: The rows.
            source: How they are decoded.
            views: How the views are written.
            batch_id: The micro-batch.
            previous: The manifests of all cells after the previous micro-batch.

        Raises:
            UnreadableSourceError, DbspWcojError, PySparkException: As `batch_job.run_job`.
        """

        def name_view(error: Exception, stage: int, cell: int) -> Exception:
            return _name_view(error, self.stages, stage, cell)

        plan = self.job_plan(frame.sparkSession, source, views)
        if self._chooses_grids and not previous and any(s.atoms for s in self._running):
            for number, counts in read_counts(frame, plan).items():
                stage = self.stages.stages[number]
                self._set_grid(stage, grid_from_counts(stage, self._layout.max_cells, counts))
            plan = self.job_plan(frame.sparkSession, source, views)
        result = run_job(
            frame,
            plan,
            batch_id,
            previous,
            has_new_cells=not self.has_all_cells(previous),
            name_view=name_view,
            pins=self._pins,
        )
        self.exchanged = result.exchanged
        if previous:
            self._load_balance.record(result.changed_rows)
        try:
            self._run_driver_stages(plan, batch_id, previous, result)
        except BaseException:
            result.remove_files(self._files, previous)
            raise
        return result

    def _run_driver_stages(
        self, plan: JobPlan, batch_id: int, previous: CellManifests, result: JobResult
    ) -> None:
        """Run the stages of a job that run in the driver, and publish the views that read them."""
        tables: dict[str, list[pa.Table]] = {}
        for stage in self._running:
            number = stage.number
            manifests, rows = _stage_manifests(stage, previous), result.driver_rows.get(number, [])
            if plan.layout.levels[number] is not None or (manifests and not rows):
                continue
            packed = pa.concat_tables([pack_relations(stage, {}), *rows])
            step = StageStep(self._stage_plan(stage), batch_id, manifests)
            for cell, name, content in self._run_in_driver(stage, packed, step):
                if name == MANIFEST:
                    result.manifests[number, cell] = content
                else:
                    tables.setdefault(destination_of(name), []).append(read_table(content))
        for view in plan.layout.driver_views:
            delta = sum_tables(plan.views[view].schema, tables.get(f"view {view}", []))
            result.tables[view] = plan.views[view].mode.publish(view, delta)

    def job_plan(
        self, session: SparkSession, source: SourcePlan, views: Mapping[str, ViewOutput]
    ) -> JobPlan:
        """Return the plan of the jobs of this pipeline, cached."""
        parallelism = session.sparkContext.defaultParallelism
        tasks = max(1, min(max((grid.cells for grid in self.grids), default=1), parallelism))
        given = (source, views, self.grids, tasks)
        if self._job_plan is None or self._job_plan[0] != given:
            plan = JobPlan(
                uuid.uuid4().hex,
                self._files,
                source,
                tuple(self._stage_plan(stage) for stage in self.stages.stages),
                self.grids,
                plan_job(self.stages, self.grids, views),
                views,
                tasks,
            )
            self._job_plan = given, plan
        return self._job_plan[1]

    def has_all_cells(self, manifests: CellManifests) -> bool:
        """Return whether all cells of all stages have a state, so that none takes a first step."""
        return all(
            len(_stage_manifests(stage, manifests)) == self.grids[stage.number].cells
            for stage in self._running
        )

    def _run_stage(
        self,
        session: SparkSession,
        stage: Stage,
        tables: Mapping[str, list[pa.Table]],
        step: StageStep,
    ) -> Iterable[tuple[int, str, bytes]]:
        """Step the cells of a stage; return their result rows."""
        rows = pack_relations(stage, tables)
        if not step.manifests and self._chooses_grids and stage.atoms:
            self._choose_grid(stage, rows)
            step = replace(step, plan=self._stage_plan(stage))
        if stage.is_one_group_of_sums:
            return self._run_in_driver(stage, rows, step)
        tasks = min(self.grids[stage.number].cells, session.sparkContext.defaultParallelism)
        task = StageTask(step, tasks)
        if rows.num_rows > MAX_DRIVER_ROWS and stage.relations:
            return self._run_shuffled(self._own_session(session), stage, rows, task)
        return self._run_placed(session, stage, rows, task)

    def _run_in_driver(
        self, stage: Stage, rows: pa.Table, step: StageStep
    ) -> Iterable[tuple[int, str, bytes]]:
        """Run a stage that is too small for a task in the driver, as its one cell."""
        sent = replicate_rows(stage, rows, self.grids[stage.number])
        with TaskFiles(self._files) as task_files:
            try:
                result = step.step_cell(0, split_relations(stage, sent), task_files)
            except StepLimitError as error:
                raise _name_view(error, self.stages, stage.number, 0) from error
            task_files.sync()
        return result.result_rows

    def _run_placed(
        self, session: SparkSession, stage: Stage, rows: pa.Table, task: StageTask
    ) -> Iterable[tuple[int, str, bytes]]:
        """Run a stage on rows that the driver places."""
        grid = self.grids[stage.number]
        sent = replicate_rows(stage, rows, grid)
        task_of_row = sent.column(CELL).to_numpy() % task.tasks
        # A cell without state takes its first step even if it has no rows.
        tasks_of_new_cells = {
            cell % task.tasks
            for cell in range(grid.cells)
            if cell not in task.step.manifests or task.step.steps_all
        }
        task_inputs = [
            (number, write_table(sent.filter(pa.array(task_of_row == number))))
            for number in sorted(tasks_of_new_cells.union(task_of_row.tolist()))
        ]
        inputs = session.sparkContext.parallelize(task_inputs, len(task_inputs))
        return list(inputs.mapPartitions(task.run_placed).collect())

    def _run_shuffled(
        self, session: SparkSession, stage: Stage, rows: pa.Table, task: StageTask
    ) -> Iterable[tuple[int, str, bytes]]:
        """Run a stage on rows that executors route."""
        grid = self.grids[stage.number]
        frame = route_rows(session.createDataFrame(rows), columns_of(stage), grid)
        if len(task.step.manifests) < grid.cells or task.step.steps_all:
            # Spark creates no task for an empty partition.
            all_cells = session.range(grid.cells).select(f.col("id").cast("int").alias(CELL))
            frame = frame.unionByName(all_cells, allowMissingColumns=True)
        placed = frame.repartitionById(task.tasks, (f.col(CELL) % task.tasks).cast("int"))

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.run(batches)

        result = placed.mapInArrow(run, RESULT_SCHEMA).toArrow()
        columns = [result.column(name).to_pylist() for name in ("cell", "name", "content")]
        return zip(*columns, strict=True)

    def _stage_plan(self, stage: Stage) -> StagePlan:
        """Return the part of a stage's tasks that is the same in every micro-batch, cached."""
        grid = self.grids[stage.number]
        cached = self._plans.get(stage.number)
        if cached is None or cached[0] is not grid:
            spec = self.specs[stage.number]
            plan = StagePlan(self._files, self._state_id, self._program_id, stage, spec, grid.cells)
            cached = self._plans[stage.number] = grid, plan
        return cached[1]

    def _choose_grid(self, stage: Stage, rows: pa.Table) -> None:
        """Choose the grid of a join from its first rows."""
        counts = count_in_tables(stage, split_columns(stage, rows))
        self._set_grid(stage, grid_from_counts(stage, self._layout.max_cells, counts))

    def _set_grid(self, stage: Stage, grid: Grid) -> None:
        """Replace the grid of a stage."""
        grids = list(self.grids)
        grids[stage.number] = grid
        self._layout = GridLayout(self._layout.max_cells, tuple(grids))

    def _own_session(self, session: SparkSession) -> SparkSession:
        """Return a cached session of the same application with its own settings."""
        cached = self._session
        if cached is None or cached.sparkContext is not session.sparkContext:
            cached = self._session = session.newSession()
            for key, value in SETTINGS.items():
                cached.conf.set(key, value)
        return cached


def _return_grid(grid: Grid, counts: KnownCounts | None) -> Grid:
    """Return a grid that does not depend on the state."""
    return grid


def _stage_manifests(stage: Stage, manifests: CellManifests) -> dict[int, bytes]:
    """Return the manifests of the cells of one stage."""
    return {cell: data for (number, cell), data in manifests.items() if number == stage.number}


def _name_view(error: Exception, stages: Stages, stage: int, cell: int) -> Exception:
    """Return the error of a cell; a limit error names a view that depends on the cell."""
    if not isinstance(error, StepLimitError):
        return error
    return error.with_view(stages.find_view(stage), f"cell {cell} of stage {stage}: ")
