"""A sink in mode "distributed" publishes what the embedded sink does; its state is in cells."""

from __future__ import annotations

import datetime
import random
import re
from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import (
    EvaluationError,
    InputOptions,
    Retention,
    StepLimitError,
    StepLimits,
    UnknownViewError,
    compile_sql,
)
from circuits.circuit import Circuit
from circuits.circuit_spec import CircuitSpec
from streaming import (
    BatchOrderError,
    Output,
    ReplayError,
    RowError,
    StateDamagedError,
    StateError,
    StateMismatchError,
    StreamingError,
    TargetError,
    ViewSink,
)
from streaming.distributed import pipeline
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.engine import read_newest_cells
from streaming.distributed.pipeline import Pipeline
from streaming.distributed.planning.load_balance import count_loads
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import Manifest
from tests.support.tables import bag_of

pytestmark = pytest.mark.spark

SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int32()), ("name", pa.string()), ("at", pa.int64())]),
}
VIEWS = """
    CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW names AS SELECT p.name, count(*) AS n, min(e.dst) AS least
        FROM e LEFT JOIN p ON e.src = p.id GROUP BY p.name;
    CREATE VIEW loops AS SELECT src FROM e WHERE src = dst;
"""
INPUT_OPTIONS = {"p": InputOptions(keys=("id",), retain=Retention("at", 6))}
TAGGED_COLUMNS = {
    "relation": pa.string(),
    "src": pa.int64(),
    "dst": pa.int64(),
    "id": pa.int32(),
    "name": pa.string(),
    "at": pa.int64(),
    "weight": pa.int64(),
}


class Frame:
    """Stands for the DataFrame of a micro-batch, whose rows are an Arrow table."""

    def __init__(self, spark: Any, table: pa.Table) -> None:
        self.sparkSession = spark
        self._table = table

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    def toArrow(self) -> pa.Table:  # Spark's name
        return self._table


def batch_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{"weight": 1} | row for row in rows], pa.schema(TAGGED_COLUMNS))


def batches(count: int, seed: str) -> list[pa.Table]:
    """Insert and delete edges, and upsert people; the third micro-batch is empty."""
    rng = random.Random(seed)
    present: list[tuple[int, int]] = []
    result = []
    for number in range(count):
        rows: list[dict[str, Any]] = []
        for _ in range(rng.randrange(6, 16)):
            if present and rng.random() < 0.3:
                src, dst = present.pop(rng.randrange(len(present)))
                rows.append({"relation": "e", "src": src, "dst": dst, "weight": -1})
            else:
                src, dst = rng.randrange(7), rng.randrange(7)
                present.append((src, dst))
                rows.append({"relation": "e", "src": src, "dst": dst})
        for id in rng.sample(range(8), 3):
            rows.append({"relation": "p", "id": id, "name": f"n{id % 3}", "at": 3 * number})
        result.append(batch_of(*(rows if number != 2 else [])))
    return result


def circuit_spec() -> CircuitSpec:
    return compile_sql(VIEWS, SCHEMAS, input_options=INPUT_OPTIONS).spec


def outputs(sink: ViewSink) -> dict[str, Counter]:
    assert sink.last is not None
    for name, table in sink.last.outputs.items():
        assert table.num_rows == len(bag_of(table)), f"{name} is not consolidated"
    return {name: bag_of(table) for name, table in sink.last.outputs.items()}


def distributed(place: Any, *, cells: int = 4, **options: Any) -> ViewSink:
    circuit = Circuit(circuit_spec())
    return ViewSink(circuit, state_dir=place, mode="distributed", cells=cells, **options)


@pytest.mark.parametrize(
    "max_driver_rows", [pipeline.MAX_DRIVER_ROWS, -1], ids=["by the driver", "by executors"]
)
def test_it_publishes_what_the_embedded_sink_publishes_over_restarts_and_replays(
    spark, tmp_path, monkeypatch, max_driver_rows
):
    monkeypatch.setattr(pipeline, "MAX_DRIVER_ROWS", max_driver_rows)
    embedded = ViewSink(Circuit(circuit_spec()))
    sink = distributed(tmp_path, keep=2)
    for number, table in enumerate(batches(4, "restarts")):
        frame = Frame(spark, table)
        embedded(frame, number)
        with patch.object(
            Pipeline, "_run_stage", None if not table.num_rows else Pipeline._run_stage
        ):
            sink(frame, number)  # without rows there is no job
        assert outputs(sink) == outputs(embedded)
        if number == 1:
            sink.close()
            sink = distributed(tmp_path, keep=2)
            rows = random.Random(1).sample(range(table.num_rows), table.num_rows)
            sink(Frame(spark, table.take(rows)), number)
            assert outputs(sink) == outputs(embedded)
    sink.close()
    manifests = [
        Manifest.decode(path.read_bytes(), path.name) for path in (tmp_path / "manifests").iterdir()
    ]
    assert {manifest.batch_id for manifest in manifests} == {2, 3}
    present = {str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*") if p.suffix != ".json"}
    named = {name for manifest in manifests for name in manifest.all_files}
    assert present == named, "a file that no version names, or a name without a file"
    assert "grid    4 cells" in sink.explain()
    assert embedded.explain().startswith("triangles")
    rows = sum(n for name, (n, _) in manifests[-1].sizes.items() if name.startswith("stage"))
    assert rows > 0


def test_the_joins_in_the_cells_use_the_formula_of_the_circuit(spark, tmp_path):
    circuit = compile_sql(VIEWS, SCHEMAS, formula="auto")
    with patch.object(pipeline, "cell_spec", wraps=pipeline.cell_spec) as build:
        sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)
        sink(Frame(spark, batch_of({"relation": "e", "src": 1, "dst": 1})), 0)
    assert {call.kwargs["formula"] for call in build.call_args_list} == {"auto"}
    assert outputs(sink)["triangles"] == {(1,): 1}


class FailingFiles(LocalFiles):
    """A disk on which the commit fails while ``fails`` is True."""

    fails = False

    def rename_new(self, old: str, new: str) -> None:
        if FailingFiles.fails:
            raise OSError("no room")
        super().rename_new(old, new)


def test_a_commit_that_fails_changes_nothing_though_cells_have_stepped(spark, tmp_path):
    embedded = ViewSink(Circuit(circuit_spec()))
    sink = distributed(FailingFiles(tmp_path), cells=2)
    for number, table in enumerate(batches(2, "commit")):
        FailingFiles.fails = True
        with pytest.raises(StateError, match="no room"):
            sink(Frame(spark, table), number)
        FailingFiles.fails = False
        embedded(Frame(spark, table), number)
        sink(Frame(spark, table), number)
        assert outputs(sink) == outputs(embedded)


def test_wrong_batch_ids_different_rows_and_bad_rows_are_treated_as_by_the_embedded_sink(
    spark, tmp_path
):
    sink = distributed(tmp_path, bad_rows="dead_letter")
    edge = {"relation": "e", "src": 1, "dst": 1}
    with pytest.raises(BatchOrderError, match="not 0"):
        sink(Frame(spark, batch_of(edge)), 3)
    late = {"relation": "p", "id": 1, "name": "x", "at": 1}
    sink(Frame(spark, batch_of(edge, late | {"at": 50}, edge | {"relation": "f"})), 0)
    assert sink.metrics[-1].dead_letters == 1
    assert outputs(sink)["loops"] == {(1,): 1}
    with pytest.raises(ReplayError, match="different rows of relation 'e'"):
        sink(Frame(spark, batch_of(edge | {"src": 2}, late | {"at": 50})), 0)
    sink(Frame(spark, batch_of(late)), 1)
    assert sink.metrics[-1].dead_letters_total == 2
    with pytest.raises(BatchOrderError, match="3 follows 1"):
        sink(Frame(spark, batch_of(edge)), 3)
    sink.close()
    with pytest.raises(RowError, match="micro-batch 2: "):
        distributed(tmp_path)(Frame(spark, batch_of(edge | {"relation": "f"})), 2)


def test_an_error_in_a_cell_is_raised_by_the_sink_and_changes_nothing(spark, tmp_path):
    schema = {"r": pa.schema([("k", pa.int64()), ("x", pa.int64())])}
    circuit = compile_sql("SELECT k, sum(x) AS total FROM r GROUP BY k", schema)
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)

    def frame_of(*rows: tuple[int, int]) -> Frame:
        return Frame(spark, pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}))

    sink(frame_of((1, 2**62), (2, 5)), 0)
    with pytest.raises(EvaluationError, match="beyond int64"):
        sink(frame_of((1, 2**62), (2, 5)), 1)
    sink(frame_of((2, 5)), 1)
    assert outputs(sink)["view"] == {(2, 10): 1, (2, 5): -1}


def test_columns_of_types_that_spark_lacks_join_in_their_cells(spark, tmp_path):
    fields = {
        "u": pa.uint64(),
        "t": pa.timestamp("ns"),
        "n": pa.time64("ns"),
        "w": pa.decimal128(30, 2),
        "b": pa.binary(2),
        "d": pa.dictionary(pa.int8(), pa.string()),
        "f": pa.float32(),
    }
    schemas = {"r": pa.schema(fields), "s": pa.schema(fields)}
    text = f"""SELECT r.u, r.d, s.b, count(*) AS n, max(r.t) AS t FROM r JOIN s
        ON {" AND ".join(f"r.{name} = s.{name}" for name in fields)} GROUP BY r.u, r.d, s.b"""
    rows = [
        {
            "u": 2**63 + i % 4,
            "t": 10**18 + i % 3,
            "n": datetime.time(1, 2, 3, i % 2),
            "w": 12345678901234567890,
            "b": b"ab",
            "d": f"d{i % 2}",
            "f": -0.0 if i % 2 else 0.0,
        }
        for i in range(12)
    ]
    table = pa.Table.from_pylist(rows, pa.schema(fields))
    both = pa.concat_tables(
        [table.append_column("relation", pa.array([name] * 12)) for name in ("r", "s")]
    )
    result = []
    for options in ({}, {"state_dir": tmp_path, "mode": "distributed", "cells": 4}):
        sink = ViewSink(compile_sql(text, schemas), **options)
        sink(Frame(spark, both), 0)
        result.append(outputs(sink))
    assert result[0] == result[1]
    assert sum(result[0]["view"].values()) == 4


HUBS = """
    CREATE VIEW triangles AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
        JOIN e z ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW named AS SELECT e.src, p.name FROM e JOIN p ON e.dst = p.id;
"""


def hub(edges: int) -> list[dict[str, Any]]:
    """Return edges, half of which go to node 7."""
    rng = random.Random("hub")
    rows = [(number, 7 if number % 2 else rng.randrange(edges)) for number in range(edges)]
    return [{"relation": "e", "src": src, "dst": dst} for src, dst in rows]


def load_ratios(place: Any) -> dict[int, float]:
    """Return, for each join of the newest version, the rows of its fullest cell by the mean."""
    stages = circuit_stages(compile_sql(HUBS, SCHEMAS)).stages
    cells = read_newest_cells(LocalFiles(place))
    assert cells is not None
    loads = {
        stage.number: count_loads(stage, cells.stage_manifests(stage.number))
        for stage in stages
        if stage.atoms
    }
    return {number: max(rows) * len(rows) / sum(rows) for number, rows in loads.items()}


def test_a_hub_of_half_of_all_edges_fills_no_cell_with_more_than_twice_the_mean(spark, tmp_path):
    """The join with a small table is balanced, too, also if the first micro-batch is repeated."""
    embedded = ViewSink(compile_sql(HUBS, SCHEMAS))
    options: dict[str, Any] = {"mode": "distributed", "cells": 8}
    sink = ViewSink(compile_sql(HUBS, SCHEMAS), state_dir=FailingFiles(tmp_path), **options)
    rows = [*hub(2400), *({"relation": "p", "id": number} for number in range(40))]
    first = batch_of(*rows)
    FailingFiles.fails = True
    with pytest.raises(StateError, match="no room"):
        sink(Frame(spark, first), 0)
    FailingFiles.fails = False
    layouts = []
    for number, table in enumerate((first.take(pa.array(range(2440)[::-1])), batch_of(*rows[:99]))):
        embedded(Frame(spark, table), number)
        sink(Frame(spark, table), number)
        assert outputs(sink) == outputs(embedded)
        layouts.append(read_newest_cells(LocalFiles(tmp_path)).layout)
        sink.close()
        sink = ViewSink(compile_sql(HUBS, SCHEMAS), state_dir=tmp_path, **options)
    assert layouts[0] == layouts[1]
    assert all(1 < ratio <= 2 for ratio in load_ratios(tmp_path).values())
    text = sink.explain()  # of the directory, before the first micro-batch
    assert text.count("heavy   v") >= 2 and " = 7; atom " in text
    assert len(re.findall(r"kept .* in the fullest, 1\.\d+ times the mean", text)) >= 2


def test_circuits_and_options_that_cannot_be_distributed_are_refused_before_anything_runs(tmp_path):
    circuit = Circuit(circuit_spec())
    options: dict[str, Any] = {"mode": "distributed", "cells": 4}
    with pytest.raises(StateError, match=r"give ViewSink\(state_dir=...\)"):
        ViewSink(circuit, **options)
    with pytest.raises(StreamingError, match="without cells"):
        ViewSink(circuit, state_dir=tmp_path, mode="distributed")
    with pytest.raises(StreamingError, match="cells=0"):
        ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=0)
    with pytest.raises(StreamingError, match="cells=3: only mode='distributed' has cells"):
        ViewSink(circuit, cells=3)
    with pytest.raises(StreamingError, match="'spread': it must be one of embedded, distributed"):
        ViewSink(circuit, mode="spread")  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=r"'names': output mode 'upsert' needs the whole view"):
        ViewSink(
            circuit, [Output("names", mode="upsert", keys=["name"])], state_dir=tmp_path, **options
        )
    with pytest.raises(UnknownViewError, match="'names' is not materialized"):
        ViewSink(circuit, state_dir=tmp_path, **options).table("names")
    assert not list(tmp_path.iterdir())


def test_a_directory_of_another_mode_or_number_of_cells_is_refused_with_the_rescale_command(
    spark, tmp_path
):
    frame = Frame(spark, batches(1, "other")[0])
    with_cells, alone = tmp_path / "with", tmp_path / "alone"
    for sink in (distributed(with_cells), ViewSink(Circuit(circuit_spec()), state_dir=alone)):
        sink(frame, 0)
        sink.close()
    refused = distributed(with_cells, cells=8)
    with pytest.raises(StateMismatchError, match=r"over 4 cells, .* rescale .*/with --cells 8"):
        refused(frame, 1)  # it releases the directory, although it is not closed
    with pytest.raises(StateMismatchError, match=r"over 4 cells, .* rescale .*/with --embedded"):
        ViewSink(Circuit(circuit_spec()), state_dir=with_cells)(frame, 1)
    with pytest.raises(StateMismatchError, match=r"is embedded in .* rescale .*/alone --cells 4"):
        distributed(alone)(frame, 1)
    for file in (with_cells / "data").glob("*-0.0-*.arrow"):
        file.unlink()
    with pytest.raises(StateDamagedError, match="missing"):
        distributed(with_cells)(frame, 1)


def test_a_session_of_spark_connect_is_refused(tmp_path):
    from pyspark.errors import PySparkAttributeError

    class Remote:
        @property
        def sparkContext(self) -> Any:  # Spark's name
            raise PySparkAttributeError("not in Spark Connect")

    frame = Frame(Remote(), batch_of({"relation": "e", "src": 1, "dst": 1}))
    with pytest.raises(StreamingError, match="classic Spark driver"):
        distributed(tmp_path)(frame, 0)
    assert not list((tmp_path / "manifests").glob("*"))


@pytest.mark.parametrize(
    "max_driver_rows", [pipeline.MAX_DRIVER_ROWS, -1], ids=["by the driver", "by executors"]
)
def test_a_cell_that_exceeds_its_limits_ends_the_query_with_the_name_of_the_view(
    spark, tmp_path, monkeypatch, max_driver_rows
):
    monkeypatch.setattr(pipeline, "MAX_DRIVER_ROWS", max_driver_rows)
    circuit = compile_sql(
        "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON y.src = x.dst",
        {"e": SCHEMAS["e"]},
        limits=StepLimits(max_step_rows=200),
    )
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=2)
    star = [{"src": n, "dst": 0} for n in range(1, 60)] + [
        {"src": 0, "dst": n} for n in range(1, 60)
    ]

    def frame(rows):
        return Frame(spark, pa.Table.from_pylist(rows, SCHEMAS["e"]))

    with pytest.raises(
        StepLimitError, match=r"^view 'paths': cell \d of stage 0: .*max_step_rows=200"
    ):
        sink(frame(star), 0)
    sink(frame(star[50:70]), 0)  # the failed attempt has changed nothing
    assert sink.last is not None
    assert sink.last.outputs["paths"].num_rows == 9 * 11
