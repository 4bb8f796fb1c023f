"""Cell state: convert the whole state of a distributed circuit to that of one process, and back.

::

    version in cells  -- gather -->   the circuit has the state of all its operators
    circuit           -- scatter -->  files of the cells, and the state of the driver's circuit

Rescaling (`streaming.distributed.rescaling`) and a change of the views
(`streaming.distributed.program_change`) do this. The new files are not part of a version until a
manifest names them.

Memory: the state in one process, and once more the state of one stage. `CellState.repartition`,
from cells to other cells, needs that of one cell in each task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.plan.nodes import Field
from circuits.runtime.incrementalize import incrementalize
from circuits.state.circuit_state import StateStep
from circuits.state.migration import (
    OperatorState,
    StateImport,
    export_dictionaries,
    export_recursion,
    export_relation,
    export_state,
    find_integral,
    import_dictionaries,
)
from streaming.distributed.execution.cell import cell_spec, driver_spec
from streaming.distributed.execution.transport import transport_type
from streaming.distributed.migration import (
    final_state,
    merge_partial_states,
    partial_state,
    relation_tables,
)
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import (
    KnownCounts,
    count_in_tables,
    grid_from_counts,
    stage_grid,
    view_grid,
)
from streaming.distributed.planning.stage_bounds import (
    StageBounds,
    add_bounds,
    find_oldest_sessions,
)
from streaming.distributed.planning.stages import Stage, Stages, cut_stages
from streaming.distributed.stage_cells import StageCells
from streaming.distributed.task_runner import LocalRunner, TaskRunner
from streaming.errors import StreamingError
from streaming.state.cell_versions import CellVersions
from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.verified_files import read_state

__all__ = [
    "CellState",
    "circuit_stages",
    "distributable_stages",
    "divide_circuit",
    "materialized_views",
]


class CellState:
    """The state of a circuit that is divided among cells.

    Args:
        files: The state directory.
        state_id: Its id.
        circuit: The whole circuit.
        runner: Runs the tasks that move rows from cells to cells; by default this process.

    Attributes:
        stage_cells: The cells of each stage.
    """

    def __init__(
        self, files: Files, state_id: str, circuit: Circuit, runner: TaskRunner | None = None
    ) -> None:
        self._files = files
        self._circuit = circuit
        self._stages = circuit_stages(circuit)
        driver, cells = divide_circuit(circuit)
        self._driver = Circuit(driver)
        self._limits = StageBounds(circuit.graph.state_bounds)
        self.stage_cells = [
            StageCells(files, state_id, stage, spec, runner or LocalRunner())
            for stage, spec in zip(self._stages.stages, cells, strict=True)
        ]

    @property
    def bytes_written(self) -> int:
        """The size of the new files."""
        return sum(stage_cells.bytes_written for stage_cells in self.stage_cells)

    def undo(self) -> None:
        """Remove the new files, if something fails later."""
        for stage_cells in self.stage_cells:
            stage_cells.undo()

    def gather(self, manifest: Manifest, steps: int) -> StateStep:
        """Load a version in cells into the circuit; return the state, to write it.

        Args:
            manifest: The version.
            steps: The number of steps of the result. The circuit has made one step less, so it has
                the state before a step without rows.

        Raises:
            StateError: As `StageCells.read`.
        """
        cells = manifest.cells
        assert cells is not None
        layout = GridLayout.of_json(cells.layout, self._stages, cells.count)
        oldest = find_oldest_sessions(self._stages.stages, cells.manifests)
        driver, circuit = self._driver, self._circuit
        driver.load(read_state(self._files, manifest))
        import_dictionaries(circuit, export_dictionaries(driver))
        state_import = StateImport(circuit, steps=steps, watermarks=manifest.watermarks)
        _import_inputs(state_import, driver, circuit)
        partial_states: dict[int, OperatorState] = {}  # until their final stage
        for stage_cells, grid in zip(self.stage_cells, layout.grids, strict=True):
            stage = stage_cells.stage
            stage_cells.limits = self._limits.compute(stage, manifest.watermarks, oldest)
            state = stage_cells.read(grid, cells.stage_manifests(stage.number))
            stage_cells.record_moved(state)
            if stage.is_partial:
                partial_states[stage.number] = state
            elif stage.is_recursive:
                state_import.add_recursion(stage.recursion_nodes, state)
            else:
                partials = [partial_states.pop(number) for number in stage.partial_stages]
                state = merge_partial_states(stage, state, partials)
                state_import.add_operator(_node_of(stage, circuit), state)
        return state_import.finish()

    def scatter(
        self,
        count: int,
        batch_id: int,
        steps: int,
        columns_of_views: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> tuple[StateStep, CellVersions]:
        """Write the state of the circuit to cells.

        Args:
            count: The maximum number of cells of a stage.
            batch_id: The version.
            steps: The number of steps that produced the state.
            columns_of_views: The columns that assign the rows of a materialized view to cells
                (`columns_of_views`); by default, and if the view lacks one of them, all columns.

        Returns:
            The state of the driver's circuit, to write it, and the cells.

        Raises:
            StateError: As `StageCells.write`.
        """
        circuit = self._circuit
        grids: dict[int, Grid] = {}
        manifests: dict[tuple[int, int], bytes] = {}

        def write(stage_cells: StageCells, state: OperatorState) -> dict[int, bytes]:
            stage = stage_cells.stage
            columns = _find_columns(stage, columns_of_views.get(stage.view, ()))
            grid = grids[stage.number] = _choose_grid(
                stage, count, _count_values(stage, state), columns
            )
            written = stage_cells.write(grid, state, batch_id=batch_id, steps=steps)
            manifests.update({(stage.number, cell): data for cell, data in written.items()})
            return written

        for stage_cells in self.stage_cells:
            stage = stage_cells.stage
            if stage.is_partial:
                continue  # with its final stage
            if stage.is_recursive:
                state = export_recursion(circuit, stage.recursion_nodes)
            else:
                state = export_state(circuit, _node_of(stage, circuit))
            if stage.partial_stages:
                selected = []
                for index, number in enumerate(stage.partial_stages):
                    partial_cells = self.stage_cells[number]
                    written = write(partial_cells, partial_state(stage, state, index))
                    selected.append(partial_cells.read_selected_rows(written))
                state = final_state(stage, state, selected)
            write(stage_cells, state)
        driver = import_dictionaries(self._driver, export_dictionaries(circuit))
        state_import = StateImport(driver, steps=steps, watermarks=circuit.graph.watermarks)
        _import_inputs(state_import, circuit, driver)
        layout = GridLayout(count, tuple(grids[number] for number in sorted(grids)))
        return state_import.finish(), CellVersions(count, layout.json_values, manifests)

    def columns_of_views(self, manifest: Manifest) -> dict[str, list[str]]:
        """Return the columns that assign the rows of each materialized view to cells.

        Args:
            manifest: A version in cells.
        """
        cells = manifest.cells
        assert cells is not None
        layout = GridLayout.of_json(cells.layout, self._stages, cells.count)
        return {
            stage.view: [
                stage.relations[0].fields[column].name for column in _columns_of_grid(grid)
            ]
            for stage, grid in zip(self._stages.stages, layout.grids, strict=True)
            if stage.view
        }

    def repartition(self, manifest: Manifest, count: int) -> CellVersions:
        """Convert the cells of a version to another number of cells.

        The tasks of the runner read and write the rows (`streaming.distributed.stage_move`).

        Args:
            manifest: The version.
            count: The new maximum number of cells of a stage.

        Raises:
            StateError: As `StageCells.repartition`.
        """
        cells = manifest.cells
        assert cells is not None
        layout = GridLayout.of_json(cells.layout, self._stages, cells.count)
        oldest = find_oldest_sessions(self._stages.stages, cells.manifests)
        grids: list[Grid] = []
        manifests: dict[tuple[int, int], bytes] = {}
        for stage_cells, grid in zip(self.stage_cells, layout.grids, strict=True):
            stage = stage_cells.stage
            stage_cells.limits = self._limits.compute(stage, manifest.watermarks, oldest)
            choose_grid = partial(_choose_other_grid, grid, stage, count)
            # If the grid of a partial stage has changed, its cells have emitted other rows.
            is_reselected = any(grids[n] != layout.grids[n] for n in stage.partial_stages)
            new_grid, written = stage_cells.repartition(
                grid,
                choose_grid,
                cells.stage_manifests(stage.number),
                batch_id=manifest.batch_id,
                steps=manifest.steps,
                partial_cells=[
                    (self.stage_cells[number], _stage_manifests(manifests, number))
                    for number in (stage.partial_stages if is_reselected else ())
                ],
            )
            grids.append(new_grid)
            manifests |= {(stage.number, cell): data for cell, data in written.items()}
        return CellVersions(count, GridLayout(count, tuple(grids)).json_values, manifests)


def distributable_stages(circuit: Circuit) -> Stages:
    """Return the stages of a circuit, after checking that cells can run them.

    Raises:
        StreamingError: A view reads ``now()`` or emits rows on window close, an input keeps the
            results of expired rows, or a stage reads a column that cannot be sent to its cell.
    """
    inputs = [
        name
        for name, options in circuit.input_options.items()
        if options.retain and options.retain.keeps_results
    ]
    if inputs:
        raise StreamingError(
            f"input {inputs[0]!r} has on_expiry='keep', and cells cannot drop expired rows without "
            "deleting their results: use mode='embedded', or on_expiry='retract'"
        )
    if circuit.emits_on_window_close:
        raise StreamingError(
            "a view with EMIT ON WINDOW CLOSE cannot be distributed over cells, because a cell "
            "does not know the watermark of the whole input: use mode='embedded'"
        )
    if circuit.reads_now:
        raise StreamingError(
            "a view compares with now(), and cells have no time of the step: use mode='embedded'"
        )
    stages = circuit_stages(circuit)
    for stage in stages.stages:
        columns = [field for relation in stage.relations for field in relation.fields]
        if stage.view:
            columns = [*circuit.schema(stage.view).fields]  # with the names of the view
        for column in columns:
            try:
                transport_type(column.type)
            except StreamingError as error:
                raise _not_sent(stage, stages, column) from error
    return stages


def _not_sent(stage: Stage, stages: Stages, column: Field) -> StreamingError:
    """Return the error for a column that a stage reads."""
    if stage.view:
        return StreamingError(
            f"view {stage.view!r} is materialized, and its column {column.name!r} of type "
            f"{column.type} cannot be sent to a cell: compile the views without materialize= for "
            "this view, or use mode='embedded'"
        )
    view, operator = stages.find_view(stage.number), type(stage.plan).__name__.lower()
    return StreamingError(
        f"view {view!r}: column {column.name!r} of type {column.type}, which a "
        f"{operator.removeprefix('final')} reads, cannot be sent to a cell: read parts of its "
        "values, such as the elements of a list or the fields of a struct, as columns; or use "
        "mode='embedded'"
    )


def materialized_views(circuit: Circuit) -> list[str]:
    """Return the materialized views, without inputs."""
    return [name for name in circuit.materialized if name not in circuit.inputs]


def circuit_stages(circuit: Circuit) -> Stages:
    """Return the stages of all views of a circuit."""
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    # The nodes have the same numbers as in the graph of the circuit (`Circuit.build_graph`).
    graph = incrementalize(circuit.plans, fields, bounded_inputs=circuit.inputs_with_lateness)
    stages = cut_stages(graph, materialized_views(circuit))
    stages = replace(stages, hidden=frozenset(stages.outputs) - {*circuit.outputs})
    return add_bounds(stages, circuit.graph)


def divide_circuit(circuit: Circuit) -> tuple[CircuitSpec, list[CircuitSpec]]:
    """Return the circuit of the driver, and the circuit of the cells of each stage."""
    stages = circuit_stages(circuit)
    cells = [cell_spec(stage, stages) for stage in stages.stages]
    return driver_spec(circuit.spec, stages), cells


def _import_inputs(state_import: StateImport, source: Circuit, target: Circuit) -> None:
    """Import the rows of inputs that are kept because they are materialized or have options.

    Args:
        state_import: Imports into ``target``.
        source: The circuit that has the rows.
        target: The circuit that gets them.
    """
    for name in source.input_options:
        state_import.add_relation(name, export_relation(source, name))
    for name in source.materialized:
        if name not in source.inputs:
            continue  # cells keep views
        rows = export_state(source, find_integral(source, name))
        state_import.add_operator(find_integral(target, name), rows)


def _node_of(stage: Stage, circuit: Circuit) -> int:
    """Return the node of the whole circuit that has the state of a stage."""
    return find_integral(circuit, stage.view) if stage.view else stage.node


def _columns_of_grid(grid: Grid) -> list[int]:
    """Return the columns that assign the rows of a relation to cells; none for a join."""
    atoms = grid.shares.atoms
    return [*atoms[0].columns.values()] if len(atoms) == 1 else []


def _find_columns(stage: Stage, names: Collection[str]) -> list[int]:
    """Return the positions of columns of a view; none if it lacks one of them."""
    if not stage.view:
        return []
    fields = stage.relations[0].fields
    columns = [number for number, field in enumerate(fields) if field.name in names]
    return columns if len(columns) == len(names) else []


def _choose_grid(
    stage: Stage, count: int, counts: KnownCounts | None, view_columns: Collection[int]
) -> Grid:
    """Choose the grid of a stage from the counts of the rows in its state, if it has some.

    The grid of a view has the given columns, if there are some.
    """
    if stage.view and view_columns:
        return view_grid(stage, count, view_columns)
    if counts is None:
        return stage_grid(stage, count)
    return grid_from_counts(stage, count, counts)


def _choose_other_grid(
    old_grid: Grid, stage: Stage, count: int, counts: KnownCounts | None
) -> Grid:
    """Choose the grid for another number of cells, or the old one if it places rows equally."""
    grid = _choose_grid(stage, count, counts, _columns_of_grid(old_grid))
    return old_grid if grid.is_same_placement(old_grid) else grid


def _count_values(stage: Stage, state: OperatorState) -> KnownCounts | None:
    """Count the values of a join in its state; None for other stages, and without rows."""
    tables = relation_tables(stage, state)
    has_rows = any(table.num_rows for table in tables.values())
    return count_in_tables(stage, tables) if has_rows else None


def _stage_manifests(manifests: Mapping[tuple[int, int], bytes], number: int) -> dict[int, bytes]:
    """Return the manifests of the cells of one stage."""
    return {cell: data for (other, cell), data in manifests.items() if other == number}
