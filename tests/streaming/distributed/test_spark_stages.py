"""The stages of a circuit on Spark's executors: they give what the embedded circuit gives."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from circuits.runtime.incrementalize import incrementalize
from streaming.distributed.execution import cell
from streaming.distributed.pipeline import CellManifests, Pipeline
from streaming.distributed.planning.stages import Stages, cut_stages
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import Manifest
from tests.circuits.sql.test_sql_circuits import _comparable, _rows

pytestmark = pytest.mark.spark

SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int32()), ("name", pa.string())]),
}
TRIANGLES = (
    "SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src JOIN e z ON z.src = x.src "
    "AND z.dst = y.dst"
)
NAMES = (
    "SELECT p.name, count(*) AS n, min(e.dst) AS least FROM e LEFT JOIN p ON e.src = p.id "
    "GROUP BY p.name"
)
CLOSURE = (
    "WITH RECURSIVE tc(a, name, b) AS (SELECT src, name, dst FROM e JOIN p ON src = id "
    "UNION SELECT tc.a, tc.name, e.dst FROM tc JOIN e ON e.src = tc.b) SELECT * FROM tc"
)


def summed(tables: list[pa.Table]) -> dict:
    result: Counter = Counter()
    for table in tables:
        for *row, weight in _rows(table):
            result[_comparable(tuple(row))] += weight
    return {row: weight for row, weight in result.items() if weight}


class Driver:
    """Computes the parts that the driver sends to the first stages."""

    def __init__(self, circuit: Circuit) -> None:
        fields = {name: schema.fields for name, schema in circuit.inputs.items()}
        self.stages: Stages = cut_stages(incrementalize(circuit.plans, fields))
        self._circuit = Circuit(cell.driver_spec(circuit.spec, self.stages))

    def step(self, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
        return dict(self._circuit.step(tables))


def changes(rng: random.Random, present: list[tuple[int, int]]) -> dict[str, pa.Table]:
    rows, weights = [], []
    for _ in range(rng.randrange(1, 30)):
        if present and rng.random() < 0.4:
            rows.append(present.pop(rng.randrange(len(present))))
            weights.append(-1)
        else:
            rows.append((rng.randrange(12), rng.randrange(12)))
            present.append(rows[-1])
            weights.append(1)
    tables = {
        "e": pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows], "weight": weights})
    }
    if rng.random() < 0.5:
        ids = [rng.randrange(12) for _ in range(3)]
        tables["p"] = pa.table(
            {"id": pa.array(ids, pa.int32()), "name": [f"n{i % 4}" for i in ids]}
        )
    return tables


@pytest.mark.parametrize(
    "query", [TRIANGLES, NAMES, CLOSURE], ids=["triangles", "outer join", "recursion"]
)
def test_stages_on_executors_give_the_deltas_of_the_embedded_circuit(spark, tmp_path, query):
    embedded = compile_sql(query, SCHEMAS)
    driver = Driver(compile_sql(query, SCHEMAS))
    rng = random.Random(query)
    present: list[tuple[int, int]] = []
    files = LocalFiles(tmp_path)
    cells: CellManifests = {}
    pipeline = Pipeline(driver.stages, max_cells=4, files=files, state_id="s", program_id=query)
    for batch_id in range(3):
        tables = changes(rng, present)
        parts = driver.step(tables)
        if batch_id == 1:  # an attempt that is not committed, and then another one
            pipeline.step(spark, parts, batch_id, cells)
        result = pipeline.step(spark, parts, batch_id, cells)
        cells = result.manifests
        for name, table in embedded.step(tables).items():
            assert summed(result.outputs[name]) == summed([table])
    for (stage, number), manifest_bytes in cells.items():
        manifest = Manifest.decode(manifest_bytes, f"{stage}.{number}")
        assert all(files.size(name) == file.size for name, file in manifest.files.items())
