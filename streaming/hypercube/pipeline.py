"""Pipeline: the stages of one micro-batch, each one job on Spark's executors.

::

    for each stage:   rows of its relations -> one table -> routed -> one task per some cells
                      -> steps of the cells -> their pieces and manifests, as Arrow, to the driver

Many rows are routed by Spark's expressions on executors, and shuffled. A few are placed in the
driver by the same hashes (`streaming.hypercube.placing`) and sent to the tasks that have something
to do: no plan, no shuffle, half of the time.

Rows between stages pass through the driver: a delta is small beside the state, the driver knows at
once which stages have nothing to do, and each stage is one consistent cut. The way not taken is to
chain the stages in one plan: then every stage would run for every micro-batch, and rows of all
relations would have to share one type of row through all shuffles.

Nothing here is the state: what a stage's tasks wrote is named by the manifests that they give back,
and becomes the state when the driver commits (`streaming.hypercube.task`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming.hypercube.cell import added_up, definition_of
from streaming.hypercube.layout import Layout
from streaming.hypercube.routing import CELL, routed
from streaming.hypercube.rows import columns_of, placed_here, wide
from streaming.hypercube.stages import Stage, Stages
from streaming.hypercube.task import (
    ERROR,
    MANIFEST,
    SAID,
    StagePlan,
    StageTask,
    read,
    written,
)
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
        layout: The grids, if there is a state already.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        cells: int,
        files: Files,
        state_id: str,
        layout: Layout | None = None,
    ) -> None:
        self.stages = stages
        self.layout = layout or Layout.chosen(stages, cells)
        self.grids = list(self.layout.grids)
        self.definitions = [definition_of(stage, stages) for stage in stages.stages]
        self._session: SparkSession | None = None
        self._plans = [
            pickle.dumps(StagePlan(files, state_id, stage, definition, grid.cells))
            for stage, definition, grid in zip(
                stages.stages, self.definitions, self.grids, strict=True
            )
        ]

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
            own = {
                cell: sealed for (number, cell), sealed in before.items() if number == stage.number
            }
            # The first step of a cell may give something without a row.
            is_first = len(own) < self.grids[stage.number].cells
            if not is_first and not any(t.num_rows for some in tables.values() for t in some):
                continue
            for cell, name, content in self._stage(session, stage, tables, batch_id, own):
                if name == ERROR:
                    raise pickle.loads(content)
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
        grid = self.grids[stage.number]
        tasks = min(grid.cells, session.sparkContext.defaultParallelism)
        task = StageTask(self._plans[stage.number], batch_id, before, tasks)
        rows = wide(stage, tables)
        if rows.num_rows > FEW:
            return self._shuffled(self._session_beside(session), stage, rows, task)
        return self._sent(session, stage, rows, task)

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

    def _session_beside(self, session: SparkSession) -> SparkSession:
        """A session of the same application with settings of its own, made once."""
        known = self._session
        if known is None or known.sparkContext is not session.sparkContext:
            known = self._session = session.newSession()
            for key, value in SETTINGS.items():
                known.conf.set(key, value)
        return known
