"""The rows of cells move to other cells on executors, all or none, and not through the driver."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from streaming import StateDamagedError, StreamingError, ViewSink
from streaming.distributed import stage_move
from streaming.distributed.cell_state import circuit_stages, divide_circuit
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.planning.grid_layout import GridLayout
from streaming.distributed.planning.grid_planning import count_in_tables, stage_grid
from streaming.distributed.planning.load_balance import count_loads
from streaming.distributed.rescaling import rescale_state
from streaming.distributed.stage_cells import StageCells
from streaming.distributed.stage_move import RowSource, StageMove, sources_of_cells
from streaming.distributed.task_runner import LocalRunner, SparkRunner
from streaming.state.local_files import LocalFiles
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_task import unnamed_files
from tests.support.tables import bag_of

SCHEMA = {"e": pa.schema([("src", pa.int64()), ("dst", pa.string())])}
VIEWS = """
    CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = CAST(y.src AS text);
    CREATE VIEW most AS SELECT src, max(dst) AS most, count(DISTINCT dst) AS n FROM e GROUP BY src;
    CREATE VIEW top AS SELECT src, dst FROM e
        QUALIFY row_number() OVER (PARTITION BY src ORDER BY dst DESC) <= 2;
"""


def edges(first: int, count: int, nulls: bool = True) -> pa.Table:
    numbers = range(first, first + count)
    dst = [None if nulls and n % 17 == 0 else str(n % 997) for n in numbers]
    return pa.table({"src": [n % 50 for n in numbers], "dst": dst}, SCHEMA["e"])


def sink_of(place: Path, cells: int) -> ViewSink:
    circuit = compile_sql(VIEWS, SCHEMA)
    return ViewSink(circuit, state_dir=place, mode="distributed", cells=cells)


def outputs(sink: ViewSink) -> dict[str, Counter]:
    assert sink.last is not None
    return {view: bag_of(table) for view, table in sink.last.outputs.items()}


def files_of_rows(place: Path) -> list[Path]:
    """Return the files by which old cells send rows to new ones."""
    return [*place.rglob("*-rows-*")]


def write_state(place: Path, rows: int, cells: int, nulls: bool = True) -> ViewSink:
    """Write the state of some rows to cells; return a sink that continues in one process."""
    embedded, sink = ViewSink(compile_sql(VIEWS, SCHEMA)), sink_of(place, cells)
    for each in (embedded, sink):
        each(LocalCluster(attempts=(1,)).frame(edges(0, rows, nulls)), 0)
    sink.close()
    return embedded


@pytest.mark.parametrize("new_cells", [1, 3, 8])
def test_rows_move_on_executors_and_the_driver_receives_none(tmp_path, new_cells):
    received = {}
    for rows in (1_000, 8_000):
        place = tmp_path / str(rows)
        embedded, cluster = write_state(place, rows, 4), LocalCluster(2)
        session: Any = cluster.frame(edges(0, 1)).sparkSession
        with (
            patch.object(StageCells, "read", side_effect=AssertionError),
            patch.object(StageCells, "write", side_effect=AssertionError),
        ):
            moved = rescale_state(LocalFiles(place), cells=new_cells, session=session)
        assert (moved.before, moved.after) == (4, new_cells) and moved.rows > rows
        assert files_of_rows(place) == []
        cells = read_newest_cells(LocalFiles(place))
        assert cells is not None
        received[rows] = cluster.collected_bytes - sum(map(len, cells.manifests.values()))
        sink = sink_of(place, new_cells)
        sink(cluster.frame(edges(rows, 50)), 1)
        embedded(cluster.frame(edges(rows, 50)), 1)
        assert outputs(sink) == outputs(embedded)
        sink.close()
    assert max(received.values()) < 64_000
    assert received[8_000] < 1.3 * received[1_000]


@pytest.mark.spark
def test_rows_move_on_executors_of_spark(spark, tmp_path):
    embedded = write_state(tmp_path, 3_000, 4)
    rescale_state(LocalFiles(tmp_path), cells=3, session=spark)
    sink = sink_of(tmp_path, 3)
    for each in (sink, embedded):
        each(spark.createDataFrame(edges(3_000, 500)), 1)
    assert outputs(sink) == outputs(embedded)
    assert files_of_rows(tmp_path) == []
    sink.close()


@pytest.mark.parametrize("task", ["divide_cell", "assemble_cell"])
def test_a_move_that_fails_changes_nothing_and_leaves_no_files(tmp_path, task):
    embedded = write_state(tmp_path, 500, 4)
    before = {path: path.read_bytes() for path in tmp_path.rglob("data/*")}
    session: Any = LocalCluster(3).frame(edges(0, 1)).sparkSession
    run, calls = getattr(StageMove, task), []

    @wraps(run)
    def fail(move: StageMove, argument: Any, **options: Any) -> Any:
        calls.append(argument)
        if len(calls) > 5:
            raise StreamingError("no room")
        return run(move, argument, **options)

    with patch.object(StageMove, task, fail), pytest.raises(StreamingError, match="no room"):
        rescale_state(LocalFiles(tmp_path), cells=3, session=session)
    assert {path: path.read_bytes() for path in tmp_path.rglob("data/*")} == before
    rescale_state(LocalFiles(tmp_path), cells=3, session=session)
    sink = sink_of(tmp_path, 3)
    for each in (sink, embedded):
        each(LocalCluster(attempts=(1,)).frame(edges(500, 60)), 1)
    assert outputs(sink) == outputs(embedded)
    sink.close()


def test_a_driver_that_is_killed_during_a_move_moves_the_rows_again(tmp_path):
    embedded = write_state(tmp_path, 500, 4)
    with (
        patch.object(StageMove, "assemble_cell", side_effect=KeyboardInterrupt),
        patch.object(StageMove, "_remove_others"),
        pytest.raises(KeyboardInterrupt),
    ):
        rescale_state(LocalFiles(tmp_path), cells=3)
    assert unnamed_files(tmp_path) != set()
    rescale_state(LocalFiles(tmp_path), cells=3)
    sink = sink_of(tmp_path, 3)
    for each in (sink, embedded):
        each(LocalCluster(attempts=(1,)).frame(edges(500, 60)), 1)
    assert outputs(sink) == outputs(embedded)
    assert unnamed_files(tmp_path) == set()
    sink.close()


def moves_of(place: Path) -> list[tuple[StageMove, dict[int, bytes]]]:
    """Return a move of each stage of a state in cells, and the manifests of its cells."""
    circuit, cells = Circuit(compile_sql(VIEWS, SCHEMA).spec), read_newest_cells(LocalFiles(place))
    assert cells is not None
    stages, (_, specs) = circuit_stages(circuit), divide_circuit(circuit)
    layout = GridLayout.of_json(cells.layout, stages, cells.count)
    return [
        (
            StageMove(
                LocalFiles(place), "id", stage, spec, grid, StageMove.new_stem(0, stage), 0, 1
            ),
            cells.stage_manifests(stage.number),
        )
        for stage, spec, grid in zip(stages.stages, specs, layout.grids, strict=True)
    ]


def test_rows_in_the_wrong_cells_are_not_moved(tmp_path):
    write_state(tmp_path, 2_000, 4)
    for move, manifests in moves_of(tmp_path):
        if len(manifests) < 2:
            continue
        others = [*list(manifests.values())[1:], manifests[0]]
        sources = [RowSource(cell, manifest) for cell, manifest in enumerate(others)]
        with pytest.raises(StateDamagedError, match="in the wrong cells"):
            move.run(LocalRunner(), sources, stage_grid(move.stage, 3))
        lost = sources_of_cells(manifests)[:-1]
        if move.stage.atoms:
            with pytest.raises(StateDamagedError, match="copies of"):
                move.run(LocalRunner(), lost, stage_grid(move.stage, 3))
    assert unnamed_files(tmp_path) == set()


def test_the_counts_of_the_cells_are_those_of_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_move, "MAX_SENT_VALUES", 2_000)
    write_state(tmp_path, 2_000, 4, nulls=False)
    session: Any = LocalCluster(3).frame(edges(0, 1)).sparkSession
    counted = 0
    for move, manifests in moves_of(tmp_path):
        counts = move.count_values(SparkRunner(session), sources_of_cells(manifests))
        if not move.stage.atoms:
            assert counts is None
            continue
        assert counts is not None
        table = edges(0, 2_000, nulls=False)
        for (position, name), of_value in counts.items():
            atom = move.stage.atoms[position]
            (relation,) = (r for r in move.stage.relations if r.name == atom.relation)
            columns = [f.name for f in relation.fields]
            tables = (
                {relation.name: table.select(columns)} if set(columns) <= {"src", "dst"} else {}
            )
            if not tables:
                continue
            expected = count_in_tables(move.stage, tables)[position, name]
            assert of_value.total == expected.total
            assert Counter(of_value.rows.tolist()) == Counter(expected.rows.tolist())
            counted += 1
    assert counted


def test_few_values_are_sent_to_the_driver(tmp_path):
    write_state(tmp_path, 2_000, 4)
    with patch.object(stage_move, "MAX_SENT_VALUES", 3):
        for move, manifests in moves_of(tmp_path):
            for source in sources_of_cells(manifests):
                if move.stage.atoms:
                    tables = move.count_cell(source).values()
                    assert max(table.num_rows for table in tables) <= 3
                    loads = count_loads(move.stage, manifests)
                    assert sum(loads) >= 2_000
