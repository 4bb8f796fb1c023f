"""The distributed engine of a sink: its circuit runs in cells on Spark's executors.

::

    rows -> one Spark job: decoding, linear operators, stages of cells, files of the deltas
         -> one manifest with the manifests of all cells and the names of the files: the commit

In such a job no row passes through the driver (`streaming.distributed.batch_job`). Circuits that
need the driver's state (`batch_job.find_driver_reason`), the first micro-batch of those with
constants, a change of the views, and rows that cannot be decoded go another way, with the same
result::

    rows -> the driver's circuit: inputs with their options, linear operators above them, constants
         -> stages of cells (`streaming.distributed.pipeline`) -> deltas of the views, summed
         -> one manifest with the driver's state and the manifests of all cells: the commit

The driver's circuit is an ordinary circuit; its views are the parts of inputs that the first stages
read. Therefore constraints, rejected rows, replays and versions work as in the embedded engine. A
micro-batch that fails before the commit has changed only circuits in the memory of workers, and
these are never used for another version than their own.

The cells of a materialized view keep its rows, and publish them in the modes ``upsert`` and
``complete`` (`streaming.distributed.cell_views`). The engine refuses views that need all their rows
in one process when the sink is created.

When the views change, the driver gathers the state of all cells, changes it as in one process, and
writes it to new files of cells (`streaming.distributed.program_change`). In slices, new views get
cells of their own beside those of the old views (`streaming.distributed.cell_backfill`).

The state of the driver consists of the dictionaries of the strings that it has read and still
needs, and of the rows of materialized inputs and of inputs whose options need them, such as
``keep="all"``.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, CircuitStep
from circuits.state.program_change import ComputedRows, ProgramChange
from circuits.state.sliced_backfill import find_slice_obstacle
from dbsp_wcoj import ZSet
from dbsp_wcoj.planning.formula_candidates import parse_formula
from streaming.distributed.batch_job import UnreadableSourceError, find_driver_reason, read_digests
from streaming.distributed.cell_backfill import CellBackfill, UnnamedCells, slice_inputs
from streaming.distributed.cell_state import distributable_stages
from streaming.distributed.cell_views import open_cell_view, read_stored_view
from streaming.distributed.execution.cell import driver_spec, parts_of_source, source_spec
from streaming.distributed.execution.job_tasks import SourcePlan
from streaming.distributed.execution.view_deltas import (
    ViewOutput,
    concat_published,
    sum_tables,
)
from streaming.distributed.explain import explain_job, explain_stages
from streaming.distributed.pipeline import Pipeline
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.job_layout import plan_job
from streaming.distributed.planning.load_balance import count_loads
from streaming.distributed.planning.stage_bounds import StageBounds
from streaming.distributed.program_change import change_cells
from streaming.distributed.stage_reuse import StageReuse, find_stages
from streaming.distributed.task_pins import TaskPins
from streaming.distributed.unused_files import remove_unused_files
from streaming.engine.engine import (
    CellCounts,
    Engine,
    MicroBatch,
    PhaseTimer,
    RowCounts,
    StagedBatch,
    StepOutput,
    UnreadBatch,
    ViewBackfill,
)
from streaming.engine.prepare import PreparedBatch
from streaming.errors import StateDamagedError, StateMismatchError, StreamingError
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader
from streaming.sources.dead_letters import BadRowPolicy, apply_policy
from streaming.state.cell_versions import CellVersions
from streaming.state.directory_identity import read_identity
from streaming.state.files import Files, remove_files
from streaming.state.manifest import Manifest, read_cell_manifest, read_manifest
from streaming.state.program_change import (
    AppliedChange,
    ChangeOptions,
    PendingChange,
    check_allowed,
)
from streaming.state.reader import check_cells, newest_batch_id, read_unlocked
from streaming.state.records.dead_letter_files import DEFAULT_RETENTION, DeadLetterRetention
from streaming.state.records.early_state import EarlyState
from streaming.state.store import Store
from streaming.state.verified_files import read_state
from streaming.targets.output_mode import OutputMode

__all__ = ["DistributedEngine", "read_newest_cells"]

log = logging.getLogger(__name__)

# The most rows of a micro-batch that the driver reads itself. In a Spark job, each level of stages
# takes about 0.1 s, also without rows; the driver runs only stages with changed rows.
MAX_FEW_ROWS: Final = 500
# After a micro-batch that executors could not decode, the driver reads this many micro-batches,
# because the time of a job that cannot decode its rows is lost.
BATCHES_WITHOUT_JOB: Final = 100


class DividedProgram:
    """A program that is divided into stages of cells and the circuit of the driver.

    Args:
        circuit: The views.
        cells: The maximum number of cells of a stage.

    Attributes:
        id: Its unique id in this process.
        circuit: As given.
        stages: The stages.
        driver: The circuit of the driver.
        default_layout: The grids of relations without statistics.
        driver_reason: Why rows pass through the driver (`find_driver_reason`).
        source_spec: The circuit of the tasks that decode rows.
        has_constants: True if a view or a stage reads constants.

    Raises:
        StreamingError: The circuit cannot be distributed over this number of cells.
    """

    def __init__(self, circuit: Circuit, cells: int) -> None:
        stages = distributable_stages(circuit)
        self.id = uuid.uuid4().hex
        self.circuit = circuit
        self.stages = stages
        self.default_layout = GridLayout.default(self.stages, cells)
        self.driver = Circuit(driver_spec(circuit.spec, self.stages))
        self.driver_reason = find_driver_reason(circuit, self.stages)
        self.source_spec = source_spec(circuit.spec, self.stages)
        self.has_constants = bool(parts_of_source(self.stages, None))


class DistributedEngine(Engine):
    """Runs a circuit in cells on Spark's executors, below a circuit in the driver.

    Args:
        circuit: The views.
        cells: The maximum number of cells of a stage.
        files: The state directory, shared by driver and executors.
        keep: The number of versions to keep.
        dead_letters: Which files of dead letters to keep.
        change: What a change of the views of an existing state directory may do.
        pin_cells: True to pin the tasks of jobs to executors (`streaming.distributed.task_pins`).

    Raises:
        StreamingError: The circuit cannot be distributed over this number of cells.
        StateError: ``keep`` is too small.
    """

    explain_reads_state = True  # `explain` reads the newest manifest

    def __init__(
        self,
        circuit: Circuit,
        *,
        cells: int,
        files: Files,
        keep: int,
        dead_letters: DeadLetterRetention = DEFAULT_RETENTION,
        change: ChangeOptions | None = None,
        pin_cells: bool = False,
    ) -> None:
        self._pins = TaskPins() if pin_cells else None
        self._program = DividedProgram(circuit, cells)
        self._warn_if_not_pinned()
        self._files = files
        self._max_cells = cells
        self._pipeline: Pipeline | None = None
        self._pipeline_id = ""
        # The options, and the dropped views, of the changes that the next micro-batch commits.
        self._uncommitted: tuple[ChangeOptions, Collection[str]] = (change or ChangeOptions(), ())
        self._has_sliced_change = False  # True if the last change was computed in slices
        self._last_session: SparkSession | None = None
        # Held while the program and its cells are replaced, so that readers get both or neither.
        self._change_lock = Lock()
        # The steps of cells in jobs: all, and those whose circuit was in the memory of the worker.
        self._steps: Counter[str] = Counter()
        # The last micro-batch that executors could not decode, and the first one to be a job again.
        self._undecoded_batch = self._first_job = -1
        self._store = Store(
            files,
            self._program.driver,
            keep=keep,
            directory_circuit=circuit,
            cells=cells,
            dead_letters=dead_letters,
            change=change,
            change_cells=lambda manifest, options: change_cells(files, manifest, circuit, options),
        )
        super().__init__(self._program.driver, self._store)

    def max_few_rows(self, modes: Mapping[str, OutputMode]) -> int:
        """As in `Engine`. Whole views stay on executors: they may be large."""
        has_whole_views = any(mode.mode == "complete" for mode in modes.values())
        return 0 if has_whole_views or self._program.driver_reason is not None else MAX_FEW_ROWS

    def evaluate(self, step: CircuitStep, batch: MicroBatch) -> StepOutput:
        """Step the cells; their files are written, but no manifest names them yet.

        Raises:
            DbspWcojError: The step of a cell failed.
            StateMismatchError: The state belongs to other stages.
            PySparkException: A task failed, also after Spark's retries.
        """
        cells, circuit, batch_id = self._store.cells, self._program.circuit, batch.batch_id
        pipeline = self._pipeline_for(cells)
        if batch_id == self._undecoded_batch:
            self._first_job = batch_id + BATCHES_WITHOUT_JOB
        session = self._use_session(batch.frame)
        views = self._view_outputs(batch.modes)
        kept = {} if cells is None else cells.manifests
        previous = pipeline.rebalance(session, batch_id, kept, views, self.circuit.graph.watermarks)
        changed = self._store.pending_outputs  # rows that views publish because they have changed
        published = {
            view: output
            for view, output in views.items()
            if output.mode.needs_view and view not in changed
        }
        try:
            result = pipeline.step(
                session,
                step.outputs,
                batch_id,
                previous,
                published,
                step.graph_step.watermarks,
            )
        except BaseException:
            remove_unused_files(self._files, kept, previous)
            raise
        try:
            deltas = {
                view: sum_tables(
                    output.schema,
                    [*result.outputs[view], *([changed[view]] if view in changed else [])],
                )
                for view, output in views.items()
                if view not in published
            }
            published_tables = {
                view: concat_published(output, result.outputs[view])
                for view, output in published.items()
            }
        except BaseException:
            remove_unused_files(self._files, kept, previous, result.manifests)
            raise
        versions = CellVersions(
            self._max_cells, pipeline.layout.json_values, dict(result.manifests)
        )
        return StepOutput(
            deltas,
            after=lambda view: open_cell_view(self._files, circuit, versions, view),
            cells=versions,
            published=published_tables,
            discard=lambda: remove_unused_files(self._files, kept, previous, result.manifests),
        )

    def prepare_unread(
        self, batch: UnreadBatch, *, bad_rows: BadRowPolicy, timer: PhaseTimer
    ) -> StagedBatch | None:
        """Evaluate a micro-batch in one Spark job, as `Engine.prepare_unread`.

        Raises:
            RowError: Rows cannot be decoded, and the policy is to fail.
            DbspWcojError: The step of a cell failed.
            PySparkException: A task failed, also after Spark's retries.
        """
        cells = self._store.cells
        if not self._runs_as_job(batch):
            return None
        pipeline = self._pipeline_for(cells)
        session = self._use_session(batch.frame)
        views = self._view_outputs(batch.modes)
        kept = {} if cells is None else cells.manifests
        with timer.phase("cells", "decoding and the steps of the cells"):
            previous = pipeline.rebalance(session, batch.batch_id, kept, views)
            try:
                frame, source = batch.reader.select(batch.frame), self._source_plan(batch.reader)
                result = pipeline.run_job(frame, source, views, batch.batch_id, previous)
            except BaseException as error:
                remove_unused_files(self._files, kept, previous)
                if not isinstance(error, UnreadableSourceError):
                    raise
                log.info("the driver reads micro-batch %d: %s", batch.batch_id, error)
                if error.__cause__ is not None:  # else the micro-batch had no rows
                    self._undecoded_batch = batch.batch_id
                return None
        self._steps.update(all=result.cell_steps, open=result.open_cell_steps)
        batch_id = batch.batch_id

        def discard() -> None:
            tables = result.tables.values()
            remove_unused_files(self._files, kept, previous, result.manifests, tables=tables)

        try:
            dead_letters = apply_policy(result.dead_letters, bad_rows=bad_rows, batch_id=batch_id)
            step = self.circuit.prepare({})
            assert not any(table.num_rows for table in step.outputs.values())
        except BaseException:
            discard()
            raise
        prepared = PreparedBatch(step, {}, dead_letters, result.digests)
        manifests = {**previous, **result.manifests}
        output = StepOutput(
            {},
            after=_refuse_whole_view,
            cells=CellVersions(self._max_cells, pipeline.layout.json_values, manifests),
            published={
                view: result.tables.get(view, output.empty_table) for view, output in views.items()
            },
            discard=discard,
            cell_counts=CellCounts(result.cell_steps, result.open_cell_steps),
        )
        return StagedBatch(batch, prepared, output, self.versions, result.rows)

    def count_unread(self, batch: UnreadBatch) -> RowCounts | None:
        """Count the rows of a micro-batch in one Spark job, as `Engine.count_unread`."""
        if not self._runs_as_job(batch):
            return None
        pipeline = self._pipeline_for(self._store.cells)
        source = self._source_plan(batch.reader)
        session = _session_of(batch.frame)
        plan = pipeline.job_plan(session, source, self._view_outputs(batch.modes))
        try:
            result = read_digests(batch.reader.select(batch.frame), plan)
        except UnreadableSourceError:
            return None
        return RowCounts(result.rows, result.digests)

    def _runs_as_job(self, batch: UnreadBatch) -> bool:
        """Return whether executors can decode the rows.

        The first step of the driver publishes the constants of views, and a change of the views is
        committed by a step of the driver.
        """
        is_constant = self._store.cells is None and self._program.has_constants
        return (
            self._program.driver_reason is None
            and not is_constant
            and batch.batch_id >= self._first_job
            and not self._store.has_pending_change
            and hasattr(batch.frame, "mapInArrow")
        )

    def _source_plan(self, reader: FeedReader) -> SourcePlan:
        return SourcePlan(self._program.source_spec, reader.feed, reader.relation)

    def _view_outputs(self, modes: Mapping[str, OutputMode]) -> dict[str, ViewOutput]:
        circuit = self._program.circuit
        return {
            view: ViewOutput(circuit.schema(view), modes.get(view, OutputMode()))
            for view in circuit.outputs
        }

    def read_view(self, name: str) -> pa.Table:
        """Return a materialized view from its cells, or an input from the driver's circuit.

        The files of all cells of the view are read. Other threads may run micro-batches and change
        the views meanwhile.
        """
        while True:
            with self._change_lock:
                program, cells = self._program, self._store.cells
            circuit = program.circuit
            circuit.views.trace(name)  # an error if it is unknown or not materialized
            if name in circuit.inputs:
                return program.driver.views[name]
            if cells is None:
                return circuit.schema(name).empty_table
            try:
                return open_cell_view(self._files, circuit, cells, name).rows()
            except (FileNotFoundError, StateDamagedError):  # or a later version has replaced it
                if self._store.cells is cells:
                    raise

    def read_stored_view(self, name: str) -> pa.Table:
        """Return a materialized view or input of the newest version, as `Engine.read_stored_view`.

        Raises:
            StateMismatchError: The directory belongs to other views, or is not in cells.
        """
        files, circuit = self._files, self._program.circuit
        circuit.views.trace(name)  # an error if it is unknown or not materialized
        read_identity(files, circuit)

        def read_version(batch_id: int | None) -> pa.Table:
            if batch_id is None:
                return circuit.schema(name).empty_table
            manifest = read_manifest(files, batch_id)
            check_cells(files, manifest, self._max_cells)
            return read_stored_view(files, circuit, manifest, name)

        return read_unlocked(files, read_version, lambda: newest_batch_id(files))

    @property
    def must_commit_change(self) -> bool:
        """True if a change that was computed in slices is not committed yet.

        A change at once is computed from the last version, which does not have it.
        """
        return self._has_sliced_change and self._store.has_pending_change

    def begins_backfill(self, options: ChangeOptions) -> bool:
        """Return True if there are rows to read in slices."""
        return options.is_sliced and self._store.newest is not None

    def begin_backfill(
        self,
        circuit: Circuit,
        options: ChangeOptions,
        *,
        dropped: Collection[str],
        sliced_views: Mapping[str, Sequence[str]],
        unread_views: Collection[str],
    ) -> CellBackfill:
        """Begin to compute new views in cells, as `Engine.begin_backfill`.

        Raises:
            StreamingError: Cells of the old views cannot go on beside the new views.
        """
        old, program = self._program, DividedProgram(circuit, self._max_cells)
        where, batch_id = self.versions.description, self.versions.last_batch_id
        change = ProgramChange(old.circuit, circuit, given=options.backfill.keys(), dropped=dropped)
        check_allowed(change, options, where=where, batch_id=batch_id)
        obstacle = find_slice_obstacle(change) or _find_other_lateness(old.circuit, circuit)
        if obstacle is not None:
            raise StreamingError(
                f"{obstacle}, so the new views cannot be computed in slices in mode 'distributed': "
                "leave out rows_per_batch and seconds_per_batch, so that they are computed at once"
            )
        new_views = [view for view in circuit.plans if view not in old.circuit.plans]
        numbers = find_stages(program.stages, new_views)
        pipeline = self._new_pipeline(program, None, numbers)
        StageReuse(
            old.stages,
            program.stages,
            self._new_pipeline(old, None).specs,
            pipeline.specs,
            numbers,
        )  # raises: a stage cannot go on
        destinations = {f"view {view}" for view in new_views if view in circuit.outputs} | {
            f"relation {relation.name}"
            for number in numbers
            for relation in program.stages.stages[number].relations
        }
        parts = Circuit(driver_spec(circuit.spec, program.stages, destinations))
        return CellBackfill(
            change,
            slice_inputs(self.circuit, parts, options.backfill, where),
            pipeline,
            UnnamedCells(self._files, self._store.directory_versions),
            lambda: self._session,
            0 if batch_id is None else batch_id + 1,
            sliced_views,
        )

    def early_state(self, backfill: ViewBackfill) -> None:
        """Return None, because the cells write their state."""

    def finish_backfill(
        self, backfill: ViewBackfill, early: EarlyState | None, options: ChangeOptions
    ) -> None:
        """Go on with the cells of new and old stages, as `Engine.finish_backfill`."""
        assert isinstance(backfill, CellBackfill)
        cells = self._store.cells
        assert cells is not None
        old, circuit = self._pipeline_for(cells), backfill.change.new
        program, computed = DividedProgram(circuit, self._max_cells), backfill.pipeline
        reuse = StageReuse(old.stages, computed.stages, old.specs, computed.specs, computed.numbers)
        layout = GridLayout(self._max_cells, reuse.move_grids(old.grids, computed.grids))
        manifests = {**reuse.move_cells(cells), **backfill.cells.manifests}
        outputs = backfill.finish()
        moved = CellVersions(self._max_cells, layout.json_values, manifests)
        driver_change = ProgramChange(self.circuit, program.driver, published=())
        files = self._files

        def convert(manifest: Manifest, options: ChangeOptions) -> PendingChange:
            return change_cells(files, manifest, circuit, options)

        deltas = {
            view: ZSet.empty(program.driver.schema(view).arity) for view in program.driver.outputs
        }
        driver_change.finish(ComputedRows(deltas, {}, None))
        with self._change_lock:
            self._store.continue_with_cells(
                driver_change,
                AppliedChange(backfill.change, outputs, backfill.emitted_views),
                moved,
                convert,
                replace(options, allow_drop=True),
            )
            backfill.cells.release()
            self._uncommitted, self._has_sliced_change = (options, ()), True
            self._continue_with_program(program)

    def compute_change(
        self,
        circuit: Circuit,
        options: ChangeOptions,
        *,
        dropped: Collection[str],
        now: int | None,
        keys: Mapping[str, Sequence[str]],
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Write the state of other views to new files of cells, as `Engine.compute_change`.

        Several changes between two micro-batches are computed as one, from the last version.
        """
        program, files = DividedProgram(circuit, self._max_cells), self._files
        if self._store.has_pending_change:
            uncommitted, earlier_dropped = self._uncommitted
            earlier = replace(self._store.pending_options, allow_drop=uncommitted.allow_drop)
            self._check_not_dropped(circuit, earlier_dropped)
            options, dropped = options.after(earlier, circuit.plans), {*earlier_dropped, *dropped}

        def convert(manifest: Manifest, options: ChangeOptions) -> PendingChange:
            return change_cells(files, manifest, circuit, options, dropped=dropped, keys=keys)

        version = self._store.newest
        pending = None if version is None else convert(version, options)

        def discard() -> None:
            if pending is not None and version is not None:
                written = pending.manifest.all_files.keys() - version.all_files.keys()
                with suppress(OSError):  # they remain until the directory is opened again
                    remove_files(files, sorted(written))

        if pending is not None:
            try:
                program.driver.load(read_state(files, pending.manifest))
            except BaseException:
                discard()
                raise

        def make() -> None:
            # The losses are checked, also if the change has to be made again.
            repeated = replace(options, allow_drop=True)
            with self._change_lock:
                self._store.change_cells(program.driver, circuit, pending, convert, repeated)
                self._uncommitted, self._has_sliced_change = (options, dropped), False
                self._continue_with_program(program)

        return make, discard

    def settings(self) -> Mapping[str, Any]:
        """Return what a change of the views changes, as `Engine.settings`."""
        uncommitted = self._uncommitted, self._has_sliced_change
        return {**super().settings(), "program": self._program, "uncommitted": uncommitted}

    def must_undo_change(self, settings: Mapping[str, Any]) -> bool:
        """Return True: the store may have changed, although no circuit has moved its state."""
        return True

    def undo_change(self, settings: Mapping[str, Any]) -> None:
        """Go back to the views before a change, as `Engine.undo_change`."""
        with self._change_lock:
            super().undo_change(settings)
            self._uncommitted, self._has_sliced_change = settings["uncommitted"]
            self._continue_with_program(settings["program"])

    def _continue_with_program(self, program: DividedProgram) -> None:
        self._program, self.circuit, self._pipeline = program, program.driver, None
        self._warn_if_not_pinned()

    def _warn_if_not_pinned(self) -> None:
        """Warn that no task is pinned if all rows pass through the driver."""
        reason = self._program.driver_reason
        if self._pins is not None and reason is not None:
            log.warning(
                "pin_cells=True has no effect: rows pass through the driver, because %s", reason
            )

    def _check_not_dropped(self, circuit: Circuit, dropped: Collection[str]) -> None:
        """Raise an error if a view is added again before a commit, which cells cannot tell."""
        for view in circuit.outputs:
            if view in dropped:
                raise StreamingError(
                    f"view {view!r} was dropped, and this is not committed yet: in mode "
                    "'distributed', add it again after the next micro-batch"
                )

    def close(self) -> None:
        """Release the state directory, and the executors' memory of which tasks they run."""
        try:
            super().close()
        finally:
            if self._pins is not None:
                self._pins.release()

    def explain(self) -> str:
        """Describe the stages, with the grids and the loads of the cells of the state.

        This is the state in memory, or the newest version. Without a version, or with one of other
        views, the grids are those of relations without statistics.

        Raises:
            StateDamagedError: The newest version cannot be read.
            StateMismatchError: It belongs to other stages.
        """
        cells, pending = self._store.cells, ""
        if not self._store.is_loaded:
            newest = _read_newest(self._files)
            cells = None if newest is None else newest.cells
            if newest is not None and newest.fingerprint != self._program.circuit.fingerprint:
                cells = None
                pending = "\nstate: of other views; the next micro-batch changes it and its grids"
        program, layout, loads = self._program, self._program.default_layout, {}
        if cells is not None:
            layout = GridLayout.of_json(cells.layout, program.stages, cells.count)
            loads = {
                stage.number: count_loads(stage, cells.stage_manifests(stage.number))
                for stage in program.stages.stages
            }
        exchanged = None if self._pipeline is None else self._pipeline.exchanged
        job = plan_job(program.stages, layout.grids, program.circuit.outputs)
        stages = explain_stages(
            program.stages,
            layout.grids,
            loads=loads,
            exchanged=exchanged,
            layout=job if program.driver_reason is None else None,
        )
        steps, found = self._steps["all"], self._steps["open"]
        return (
            f"{stages}\n{explain_job(job, program.driver_reason, steps, found, exchanged)}{pending}"
        )

    def _pipeline_for(self, cells: CellVersions | None) -> Pipeline:
        """The cached pipeline for the grids of the state."""
        pipeline, id = self._pipeline, self.versions.id
        is_current = (
            pipeline is not None
            and self._pipeline_id == id
            and (cells is None or pipeline.layout.json_values == cells.layout)
        )
        if pipeline is None or not is_current:
            layout = None
            if cells is not None:
                layout = GridLayout.of_json(cells.layout, self._program.stages, self._max_cells)
            pipeline = self._new_pipeline(self._program, layout)
            if cells is not None:
                _check_cells(cells, pipeline)
            self._pipeline, self._pipeline_id = pipeline, id
        return pipeline

    def _new_pipeline(
        self,
        program: DividedProgram,
        layout: GridLayout | None,
        numbers: Collection[int] | None = None,
    ) -> Pipeline:
        return Pipeline(
            program.stages,
            max_cells=self._max_cells,
            files=self._files,
            state_id=self.versions.id,
            program_id=program.id,
            layout=layout,
            limits=program.circuit.limits,
            formula=parse_formula(program.circuit.spec.options.formula),
            max_iterations=program.circuit.spec.options.max_iterations,
            numbers=numbers,
            stage_limits=StageBounds(program.circuit.graph.state_bounds),
            pins=self._pins,
        )

    def _use_session(self, frame: DataFrame) -> SparkSession:
        """Return the session of a micro-batch, from now on that of the last micro-batch."""
        session = _session_of(frame)
        if self._pins is not None:
            self._pins.check(session)
        self._last_session = session
        return session

    @property
    def _session(self) -> SparkSession:
        """The session of the last micro-batch."""
        assert self._last_session is not None
        return self._last_session


def read_newest_cells(files: Files) -> CellVersions | None:
    """Read the cells of the newest version in a directory, without its lock; None without version.

    Raises:
        StateDamagedError: Its manifest cannot be read.
    """
    newest = _read_newest(files)
    return None if newest is None else newest.cells


def _read_newest(files: Files) -> Manifest | None:
    """Read the newest version in a directory; None without version."""
    newest = newest_batch_id(files)
    return None if newest is None else read_manifest(files, newest)


def _check_cells(cells: CellVersions, pipeline: Pipeline) -> None:
    """Check the circuits of the cells: another version of this library may cut other stages."""
    expected: Mapping[int, str] = {
        number: spec.fingerprint for number, spec in enumerate(pipeline.specs)
    }
    for (stage, _), manifest in cells.manifests.items():
        if read_cell_manifest(manifest).fingerprint != expected.get(stage):
            raise StateMismatchError(
                f"the cells of stage {stage} belong to another circuit than this version "
                "compiles the views to: use the version that wrote the state; or convert the state "
                "with that version, dbsp-wcoj rescale STATE --embedded, and start once with this "
                "version and mode='embedded', which computes what the new plan lacks"
            )


def _find_other_lateness(old: Circuit, new: Circuit) -> str | None:
    """Return that an input has another lateness, by which cells would drop other rows, or None."""
    for name in old.inputs_with_lateness:
        part = f"input {name}"
        if (
            new.spec.fingerprints.get(part, old.spec.fingerprints[part])
            != old.spec.fingerprints[part]
        ):
            return f"input {name!r} with lateness changes"
    return None


def _session_of(frame: DataFrame) -> SparkSession:
    session = frame.sparkSession
    try:
        session.sparkContext  # noqa: B018 - Spark Connect has none, and says so when asked
    except PySparkException as error:
        raise StreamingError(
            "mode='distributed' needs the classic Spark driver, not Spark Connect: run the query "
            "with the classic driver, or use mode='embedded'"
        ) from error
    return session


def _refuse_whole_view(view: str) -> NoReturn:
    raise AssertionError(f"view {view!r} is not whole anywhere")
