"""Distributed: the engine of a sink whose circuit is in cells on Spark's executors.

::

    rows -> the driver's circuit: inputs with their rules, what is linear above them, constants
         -> stages of cells (`streaming.distributed.pipeline`) -> deltas of the views, added up
         -> one manifest with the driver's state and the manifests of all cells: the commit

The driver's circuit is a circuit like any other, whose views are the pieces that the first stages
read. So rules, refused rows, replays and versions are the embedded engine's, and a micro-batch that
fails anywhere before the commit has changed nothing but the circuits in some worker's memory, which
are never taken for the version that they should be at.

What no cell can tell is refused when the sink is made: a whole view. The driver keeps the tables of
texts of all inputs, and nothing else of inputs without rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from circuits import Circuit, CircuitStep, UnknownViewError
from circuits.runtime.incrementalize import incrementalize
from circuits.schema import Schema
from circuits.types.codecs.codec import Codecs
from streaming.distributed.execution.cell import feeds_of
from streaming.distributed.explain import explained
from streaming.distributed.pipeline import Pipeline
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.load_balance import loads_of
from streaming.distributed.planning.stages import Stages, stages_of
from streaming.engine.engine import Engine, StepOutput
from streaming.errors import StateMismatchError, StreamingError
from streaming.state.cell_versions import CellVersions
from streaming.state.files import Files
from streaming.state.manifest import numbers_in, of_cell, read_manifest
from streaming.state.store import Store

__all__ = ["DistributedEngine", "check_distributable", "newest_cells", "stages_in"]


class DistributedEngine(Engine):
    """Cells on Spark's executors, and the driver's circuit.

    Args:
        circuit: The views.
        cells: How many cells a stage may have.
        files: The state directory, which driver and executors share.
        keep: How many versions stay.

    Raises:
        StreamingError: The circuit cannot be distributed, or not over so many cells.
        StateError: ``keep`` is too small.
    """

    explain_reads_state = True

    def __init__(self, circuit: Circuit, *, cells: int, files: Files, keep: int) -> None:
        check_distributable(circuit)
        self._stages = stages_in(circuit)
        self._chosen = GridLayout.chosen(self._stages, cells)
        self._schemas = {view: circuit.schema(view) for view in circuit.outputs}
        self._files = files
        self._cells = cells
        self._limits = circuit.limits
        self._pipeline: Pipeline | None = None
        self._made_for = ""
        driver = Circuit(feeds_of(circuit.definition, self._stages))
        self._store = Store(files, driver, keep=keep, owner=circuit, cells=cells)
        super().__init__(driver, self._store)

    def evaluate(self, step: CircuitStep, batch_id: int, frame: DataFrame) -> StepOutput:
        """Step the cells; their files are written and not yet named.

        Raises:
            DbspWcojError: A cell has refused its step.
            StateMismatchError: The state is of other stages.
            PySparkException: A task failed, as often as Spark tries it.
        """
        known = self._store.cells
        pipeline = self._pipeline_for(known)
        session = _session_of(frame)
        before = {} if known is None else pipeline.evened(batch_id, known.manifests)
        result = pipeline.step(session, step.outputs, batch_id, before)
        deltas = {
            view: summed(schema, result.outputs[view]) for view, schema in self._schemas.items()
        }
        return StepOutput(
            deltas, _after, CellVersions(self._cells, pipeline.layout.body, dict(result.cells))
        )

    def check_readable(self, view: str) -> None:
        """Refuse: the cells keep parts of views, and no process has a whole one."""
        raise UnknownViewError(
            f"{view!r} is not kept whole, as nothing is in mode 'distributed': give outputs a "
            "target that holds the view"
        )

    def explain(self) -> str:
        """The stages, with the grids that the newest version has and how full its cells are.

        Without a version, the grids of relations of which nothing is known.

        Raises:
            StateDamagedError: The newest version cannot be read.
            StateMismatchError: It is of other stages.
        """
        known = newest_cells(self._files)
        if known is None:
            return explained(self._stages, self._chosen.grids)
        layout = GridLayout.of(known.layout, self._stages, known.count)
        loads = {
            stage.number: loads_of(stage, known.of_stage(stage.number))
            for stage in self._stages.stages
        }
        return explained(self._stages, layout.grids, loads=loads)

    def _pipeline_for(self, known: CellVersions | None) -> Pipeline:
        """The pipeline of the grids that the state has, made once."""
        found, id = self._pipeline, self.versions.id
        if found is None or self._made_for != id or not _is_of(found.layout, known):
            layout = None
            if known is not None:
                layout = GridLayout.of(known.layout, self._stages, self._cells)
            found = Pipeline(
                self._stages,
                cells=self._cells,
                files=self._files,
                state_id=id,
                layout=layout,
                limits=self._limits,
            )
            if known is not None:
                _check_cells(known, found)
            self._pipeline, self._made_for = found, id
        return found


def newest_cells(files: Files) -> CellVersions | None:
    """The cells of the newest version in a directory, whoever writes to it; None if there are none.

    Raises:
        StateDamagedError: Its manifest cannot be read.
    """
    newest = max(numbers_in(files), default=None)
    return None if newest is None else read_manifest(files, newest).cells


def check_distributable(circuit: Circuit) -> None:
    """Refuse what cells cannot do.

    Raises:
        StreamingError: Views or inputs are to be kept whole, a view is recursive, or the results of
            an input's rows are kept when these expire.
    """
    kept = [
        name
        for name, rules in circuit.input_options.items()
        if rules.retain and rules.retain.keeps_results
    ]
    if kept:
        raise StreamingError(
            f"input {kept[0]!r} has on_expiry='keep', and cells cannot drop expired rows without "
            "deleting their results: take mode='embedded', or on_expiry='retract'"
        )
    if circuit.recursions:
        names = ", ".join(repr(name) for of in circuit.recursions for name in of)
        raise StreamingError(
            f"the recursion of {names} is not spread over cells: take mode='embedded'"
        )
    if circuit.materialized:
        raise StreamingError(
            f"{', '.join(circuit.materialized)}: to be materialized, and in mode 'distributed' "
            "nothing is kept whole in one place: compile the views without materialize=, and give "
            "outputs a target that holds them, or take mode='embedded'"
        )


def stages_in(circuit: Circuit) -> Stages:
    """The stages of all views of a circuit."""
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    return stages_of(incrementalize(circuit.plans, fields))


def summed(schema: Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of rows with weights as one, in which each row is once.

    Args:
        schema: The columns, whatever the tables call them.
        tables: What is to be added up.

    >>> schema = Schema.of("v", pa.schema({"x": pa.int64()}))
    >>> one, two = (pa.table({"c0": [7, 8], "weight": [1, w]}) for w in (1, -1))
    >>> summed(schema, [one, two]).to_pylist()
    [{'x': 7, 'weight': 2}]
    """
    there = [table.rename_columns(schema.arrow.names) for table in tables if table.num_rows]
    if not there:
        return schema.arrow.empty_table()
    codecs = Codecs()
    if len(there) == 1 and there[0].schema.types == schema.arrow.types:
        return there[0].cast(schema.arrow)
    zset = schema.to_zset(there[0], codecs)
    for table in there[1:]:
        zset = zset + schema.to_zset(table, codecs)
    return schema.to_table(zset, codecs)


def _is_of(layout: GridLayout, known: CellVersions | None) -> bool:
    """Whether these are the grids that the state has, if it has any."""
    return known is None or known.layout == layout.body


def _check_cells(known: CellVersions, pipeline: Pipeline) -> None:
    """Refuse cells of other circuits: another version of this library may cut otherwise."""
    expected: Mapping[int, str] = {
        number: definition.fingerprint for number, definition in enumerate(pipeline.definitions)
    }
    for (stage, _), sealed in known.manifests.items():
        if of_cell(sealed).fingerprint != expected.get(stage):
            raise StateMismatchError(
                f"the cells of stage {stage} are of another circuit than this version makes of the "
                "views: use the version that wrote the state, or delete the state directory "
                "together with the checkpoint to start again"
            )


def _session_of(frame: DataFrame) -> SparkSession:
    session = frame.sparkSession
    try:
        session.sparkContext  # noqa: B018 - Spark Connect has none, and says so when asked
    except PySparkException as error:
        raise StreamingError(
            "mode='distributed' needs the classic Spark driver, and this is Spark Connect: run the "
            "query there, or take mode='embedded'"
        ) from error
    return session


def _after(view: str) -> NoReturn:
    raise AssertionError(f"view {view!r} is not whole anywhere")
