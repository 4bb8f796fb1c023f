"""State that moves between one process and cells of any grid equals the state that never moved."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import Circuit, InputOptions, Retention, SnapshotError, compile_sql
from circuits.circuit_spec import CircuitSpec
from circuits.runtime.operators.windows import window as window_module
from circuits.state.migration import (
    StateImport,
    export_dictionaries,
    export_relation,
    export_selected_rows,
    export_state,
    find_stateful_operator,
    import_dictionaries,
)
from streaming import StateDamagedError
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution.cell import cell_spec, driver_spec, group_by_destination
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import (
    pack_relations,
    replicate_rows,
    split_relations,
)
from streaming.distributed.execution.view_deltas import sum_tables
from streaming.distributed.migration import (
    final_state,
    gather_state,
    merge_partial_states,
    partial_state,
    scatter_state,
)
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import count_in_tables, stage_grid
from streaming.distributed.planning.stages import Stage
from tests.circuits.sql.test_sql_circuits import SCHEMAS, World
from tests.generators.sql_generator import selects
from tests.support.tables import bag_of


class Cells:
    """A circuit in stages, each in cells; all cells are in this process."""

    def __init__(self, circuit: Circuit, count: int) -> None:
        self.circuit = circuit
        self.stages = circuit_stages(circuit)
        self.grids = [stage_grid(stage, count) for stage in self.stages.stages]
        self.specs = [cell_spec(stage, self.stages) for stage in self.stages.stages]
        self.driver = Circuit(driver_spec(circuit.spec, self.stages))
        self.cells = [
            [Circuit(spec) for _ in range(grid.cells)]
            for spec, grid in zip(self.specs, self.grids, strict=True)
        ]

    def step(self, tables: dict[str, Any]) -> dict[str, Counter]:
        sent = group_by_destination(self.driver.step(tables))
        for stage, grid, circuits in zip(self.stages.stages, self.grids, self.cells, strict=True):
            given = {r.name: sent.get(f"relation {r.name}", []) for r in stage.relations}
            rows = pack_relations(stage, given)
            for circuit, part in zip(circuits, self._parts(stage, grid, rows), strict=True):
                for name, result in group_by_destination(
                    circuit.step(split_relations(stage, part))
                ).items():
                    sent.setdefault(name, []).extend(result)
        return {
            name: bag_of(sum_tables(self.circuit.schema(name), sent.get(f"view {name}", [])))
            for name in self.circuit.outputs
        }

    def _parts(self, stage: Stage, grid: Grid, rows: pa.Table) -> list[pa.Table]:
        sent = replicate_rows(stage, rows, grid)
        cells = sent.column(CELL).to_numpy()
        return [sent.filter(pa.array(cells == cell)) for cell in range(grid.cells)]

    def gathered_states(self) -> list[Any]:
        return [
            gather_state(
                stage,
                grid,
                {n: export_state(c, find_stateful_operator(c)) for n, c in enumerate(circuits)},
            )
            for stage, grid, circuits in zip(
                self.stages.stages, self.grids, self.cells, strict=True
            )
        ]

    def fill(self, gathered_states: list[Any], count: int) -> None:
        """Distribute gathered states to new grids, chosen from the rows."""
        for k, (stage, gathered) in enumerate(
            zip(self.stages.stages, gathered_states, strict=True)
        ):
            if stage.partial_stages:
                gathered = final_state(
                    stage, gathered, [self._selected_rows(n) for n in stage.partial_stages]
                )
            tables = {
                atom.relation: table
                for atom, table in zip(stage.atoms, gathered, strict=False)
                if table is not None and table.num_rows
            }
            counts = count_in_tables(stage, tables) if tables else None
            self.grids[k] = stage_grid(stage, count, counts=counts)
            self.cells[k] = []
            for state in scatter_state(stage, self.grids[k], gathered):
                circuit = Circuit(self.specs[k])
                state_import = StateImport(circuit, steps=3, watermarks={})
                state_import.add_operator(find_stateful_operator(circuit), state)
                state_import.finish()
                self.cells[k].append(circuit)

    def _selected_rows(self, stage: int) -> pa.Table:
        return pa.concat_tables(
            export_selected_rows(circuit, find_stateful_operator(circuit))
            for circuit in self.cells[stage]
        )

    def embedded(self) -> Circuit:
        circuit = import_dictionaries(Circuit(self.circuit.spec), export_dictionaries(self.driver))
        state_import = StateImport(circuit, steps=3, watermarks=self.driver.snapshot().watermarks)
        for name in circuit.input_options:
            state_import.add_relation(name, export_relation(self.driver, name))
        states = self.gathered_states()
        for stage, gathered in zip(self.stages.stages, states, strict=True):
            if not stage.is_partial:
                partials = [states[number] for number in stage.partial_stages]
                state_import.add_operator(
                    stage.node, merge_partial_states(stage, gathered, partials)
                )
        state_import.finish()
        return circuit


def cells_of(circuit: Circuit, count: int) -> Cells:
    """Distribute an embedded circuit, with its state, over cells."""
    cells = Cells(Circuit(circuit.spec), count)
    states = [export_state(circuit, stage.node) for stage in cells.stages.stages]
    for stage in cells.stages.stages:
        for index, number in enumerate(stage.partial_stages):
            states[number] = partial_state(stage, states[stage.number], index)
    cells.fill(states, count)
    import_dictionaries(cells.driver, export_dictionaries(circuit))
    state_import = StateImport(cells.driver, steps=3, watermarks=circuit.snapshot().watermarks)
    for name in circuit.input_options:
        state_import.add_relation(name, export_relation(circuit, name))
    state_import.finish()
    return cells


def migrate(now: Circuit | Cells, cells: int) -> Circuit | Cells:
    """Move the state to this number of cells; to one process if it is 0."""
    if isinstance(now, Circuit):
        return cells_of(now, cells) if cells else now
    if not cells:
        return now.embedded()
    now.fill(now.gathered_states(), cells)
    return now


def check_migration(
    spec: CircuitSpec, changes: list[dict[str, pa.Table]], cell_counts: list[int]
) -> None:
    """Compare a circuit that never moves with one that moves after every step."""
    unmoved, now = Circuit(spec), Circuit(spec)
    for tables, cells in zip(changes, cell_counts, strict=True):
        expected = {name: bag_of(table) for name, table in unmoved.step(tables).items()}
        actual = now.step(tables)
        actual = {n: bag_of(t) if isinstance(t, pa.Table) else t for n, t in actual.items()}
        assert actual == expected
        now = migrate(now, cells)
        if isinstance(now, Circuit):
            for stage in circuit_stages(now).stages:
                # Only the first trace depends on the rows alone; later ones depend on the steps.
                kept = len(stage.atoms) or 1
                parts = zip(
                    export_state(now, stage.node), export_state(unmoved, stage.node), strict=True
                )
                for one, other in [*parts][:kept]:
                    assert (one is None) == (other is None)
                    assert one is None or bag_of(one) == bag_of(other)


@pytest.mark.parametrize("cells", [2, 4, 6])
def test_each_atom_of_a_relation_has_row_ids_of_its_own(cells):
    query = "SELECT x.a, x.b, y.a AS c, y.b AS d FROM e x JOIN f ON x.k = f.p JOIN e y ON f.q = y.k"
    schemas = {"e": "k INT, a INT, b INT", "f": "p INT, q INT"}
    circuit = compile_sql(query, schemas)
    changes = {
        "e": [{"k": k, "a": 10 * k, "b": -k} for k in range(20)],
        "f": [{"p": k, "q": 7 * k % 20} for k in range(20)],
    }
    expected = {view: bag_of(table) for view, table in Circuit(circuit.spec).step(changes).items()}
    assert Cells(circuit, cells).step(changes) == expected


CELL_COUNTS = st.sampled_from([0, 1, 2, 3, 6])  # 0 for one process


# Each move creates a circuit for each cell, so shrinking would take hours.
LAW = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@LAW
@given(data=st.data())
def test_random_sql_gives_the_same_with_and_without_moves(data):
    check_random_migration(data)


@pytest.mark.slow
@settings(LAW, max_examples=150)
@given(data=st.data())
def test_much_random_sql_gives_the_same_with_and_without_moves(data):
    check_random_migration(data)


def check_random_migration(data: st.DataObject) -> None:
    spec = compile_sql(data.draw(selects()), SCHEMAS).spec
    world = World()
    changes = [world.change(data.draw) for _ in range(data.draw(st.integers(2, 3)))]
    check_migration(spec, changes, [data.draw(CELL_COUNTS) for _ in changes])


PEOPLE = {
    "e": pa.schema([("src", pa.string()), ("dst", pa.string()), ("at", pa.int64())]),
    "p": pa.schema([("id", pa.string()), ("pay", pa.decimal128(25, 2)), ("note", pa.binary())]),
}
VIEWS = """
    CREATE VIEW triangles AS SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst GROUP BY x.src;
    CREATE VIEW paid AS SELECT src, sum(pay) AS pay, min(note) AS note, max(pay) AS most,
        count(DISTINCT note) AS notes, max(dst) AS last FROM e LEFT JOIN p ON dst = id GROUP BY src;
    CREATE VIEW top AS SELECT src, dst, note FROM e JOIN p ON src = id
        QUALIFY row_number() OVER (PARTITION BY src ORDER BY note DESC, dst) <= 2;
    CREATE VIEW runs AS SELECT src, at, sum(at) OVER w AS total, dense_rank() OVER w AS place,
        lag(dst) OVER (PARTITION BY src ORDER BY at, dst) AS previous FROM e JOIN p ON src = id
        WINDOW w AS (PARTITION BY src ORDER BY at);
    CREATE VIEW ends AS SELECT DISTINCT dst FROM e EXCEPT SELECT id FROM p WHERE pay > 2;
    CREATE VIEW worth AS SELECT sum(pay) AS worth, count(*) AS n FROM e JOIN p ON dst = id;
"""
INPUT_OPTIONS = {"e": InputOptions(retain=Retention("at", 9)), "p": InputOptions(keys=("id",))}


def people(count: int, seed: int) -> list[dict[str, pa.Table]]:
    rng = np.random.default_rng(seed)
    result = []
    for number in range(count):
        names = [f"n{k}" for k in rng.integers(0, 9, 40)]
        edges = [names[:20], names[20:], [3 * number] * 20]
        ids = [f"n{k}" for k in rng.choice(9, 4, replace=False)]
        pays = pa.array([int(k) for k in rng.integers(0, 9, 4)]).cast(PEOPLE["p"][1].type)
        notes = [b"x" * int(k) for k in rng.integers(0, 4, 4)]
        result.append(
            {
                "e": pa.Table.from_arrays([pa.array(edge) for edge in edges], schema=PEOPLE["e"]),
                "p": pa.Table.from_arrays(
                    [pa.array(ids), pays, pa.array(notes)], schema=PEOPLE["p"]
                ),
            }
        )
    return result


def test_all_kinds_of_state_and_input_options_move_between_cells_and_one_process():
    spec = compile_sql(VIEWS, PEOPLE, input_options=INPUT_OPTIONS).spec
    check_migration(spec, people(6, 1), [0, 4, 3, 0, 2, 0])


@pytest.mark.parametrize("call", ["string_agg(name, ',' ORDER BY city)", "mode(name)"])
def test_tied_rows_whose_codes_change_are_read_after_a_move(call):
    spec = compile_sql(
        f"SELECT k, {call} AS x FROM r GROUP BY k",
        {"r": "k bigint not null, city string, name string"},
        dialect="duckdb",
    ).spec
    circuit = Circuit(spec)

    def rows(*names: str, weight: int = 1, k: int = 2) -> dict[str, Any]:
        columns = {"k": k, "city": "Rome", "weight": weight}
        return {"r": [columns | {"name": name} for name in names]}

    circuit.step(rows("x", "y", "z"))
    circuit.step(rows("y", k=1))  # in the moved state, y has a smaller code than x
    circuit.step(rows("z", weight=-1))
    moved = Circuit(spec)
    state_import = StateImport(moved, steps=4, watermarks={})
    node = find_stateful_operator(circuit)
    state_import.add_operator(node, export_state(circuit, node))
    state_import.finish()
    later = rows("w", "w")
    assert bag_of(moved.step(later)["view"]) == bag_of(circuit.step(later)["view"])


def test_state_in_the_wrong_cells_is_refused():
    circuit = Circuit(compile_sql(VIEWS, PEOPLE, input_options=INPUT_OPTIONS).spec)
    circuit.step(people(1, 2)[0])
    cells = cells_of(circuit, 4)
    stage = next(stage for stage in cells.stages.stages if len(stage.atoms) == 3)
    grid = cells.grids[stage.number]
    circuits = cells.cells[stage.number]
    states = {n: export_state(one, find_stateful_operator(one)) for n, one in enumerate(circuits)}
    assert gather_state(stage, grid, states)
    swapped = dict(zip(states, [*list(states.values())[1:], states[0]], strict=True))
    with pytest.raises(StateDamagedError, match="in the wrong cells"):
        gather_state(stage, grid, swapped)
    lost = states | {0: tuple(None if t is None else t.slice(1) for t in states[0])}
    with pytest.raises(StateDamagedError, match="copies of"):
        gather_state(stage, grid, lost)


def test_states_of_different_steps_are_refused():
    spec = compile_sql(VIEWS, PEOPLE, input_options=INPUT_OPTIONS).spec
    circuits = [Circuit(spec) for _ in range(2)]
    for circuit, tables in zip(circuits, people(2, 3), strict=True):
        circuit.step(tables)
    joins = [
        stage.node
        for stage in circuit_stages(circuits[0]).stages
        if len(stage.atoms) == 3 or len(stage.relations) == 2
    ]
    state_import = StateImport(Circuit(spec), steps=1, watermarks={})
    with pytest.raises(SnapshotError, match="export all states at the same step"):
        for number, node in enumerate(joins):
            state_import.add_operator(node, export_state(circuits[number % 2], node))
            state_import.add_relation("e", export_relation(circuits[1 - number % 2], "e"))
    with pytest.raises(SnapshotError, match="the state lacks"):
        StateImport(Circuit(spec), steps=1, watermarks={}).finish()


@pytest.mark.parametrize("overhead", [-(10**9), 10**9])
def test_the_ties_of_a_window_keep_their_order_after_a_move(overhead):
    spec = compile_sql(
        "SELECT *, row_number() OVER (PARTITION BY k ORDER BY t) AS n FROM r",
        {"r": "k bigint not null, t bigint, url string"},
    ).spec
    circuit, prefix = Circuit(spec), "https://www.example.com/a/path/"

    def rows(*names: str, k: int = 2, weight: int = 1) -> dict[str, Any]:
        columns = {"k": k, "t": 1, "weight": weight}
        return {"r": [columns | {"url": prefix + name} for name in names]}

    circuit.step(rows("y", "x", "z"))
    circuit.step(rows("x", "z", k=1))  # in the moved state, x and z have smaller codes than y
    moved = Circuit(spec)
    state_import = StateImport(moved, steps=3, watermarks={})
    node = find_stateful_operator(circuit)
    state_import.add_operator(node, export_state(circuit, node))
    state_import.finish()
    later = rows("x", weight=-1)
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
        assert bag_of(moved.step(later)["view"]) == bag_of(circuit.step(later)["view"])
