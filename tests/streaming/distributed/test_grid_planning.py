"""The grid of a stage: counts from arrangements, the choice by counts, and its printed form."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql
from circuits.runtime.incrementalize import incrementalize
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution.cell import driver_spec, group_by_destination
from streaming.distributed.execution.placement import place_rows
from streaming.distributed.execution.stage_rows import pack_relations, split_columns
from streaming.distributed.explain import explain_stages
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import (
    count_in_tables,
    grid_from_counts,
    stage_grid,
)
from streaming.distributed.planning.shares import JoinAtom, choose_shares, weigh_atoms
from streaming.distributed.planning.stages import Stages, cut_stages
from streaming.errors import StreamingError

SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int32()), ("name", pa.string()), ("town", pa.string())]),
}
TRIANGLES = (
    "SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src JOIN e z ON z.src = x.src "
    "AND z.dst = y.dst"
)
SAME_NAME = "SELECT a.town, b.town AS other FROM p a JOIN p b ON a.name = b.name"
SAME_NAME_ORDERED = f"{SAME_NAME} WHERE a.id < b.id"


def stages_of(text: str) -> Stages:
    circuit = compile_sql(text, SCHEMAS)
    fields = {name: schema.fields for name, schema in circuit.inputs.items()}
    return cut_stages(incrementalize(circuit.plans, fields))


def rows_of(name: str) -> pa.Table:
    rng = random.Random(3)
    if name == "e":
        pairs = {(0, b) for b in range(1, 60)} | {
            (rng.randrange(40), rng.randrange(40)) for _ in range(150)
        }
        columns = [*zip(*sorted(pairs), strict=True)]
    else:
        names = ["ann"] * 400 + [f"name {k % 30}" for k in range(60)]
        names += [f"once {k}" for k in range(900)]
        columns = [range(1360), names, [f"town {k}" for k in range(1360)]]
    schema = SCHEMAS[name]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema,
    )


def test_explain_names_the_heavy_values_and_their_parts():
    stages = stages_of(SAME_NAME)
    stage = next(stage for stage in stages.stages if stage.atoms)
    columns = [field.name for field in stage.relations[0].fields]
    tables = {relation.name: rows_of("p").select(columns) for relation in stage.relations}
    counts = count_in_tables(stage, tables)
    grids = [stage_grid(one, 9, counts=counts if one is stage else None) for one in stages.stages]
    text = explain_stages(stages, grids, rows={name: 1360.0 for name in tables})
    assert "heavy   v0 = ann; atom 0 r0: 29.4 % of its rows split into 3; atom 1 r0:" in text
    assert "and up to 1.59 times as many for heavy values" in text
    assert "a cell keeps 480 of 2,720 rows of all atoms, 1.59 times the ideal" in text


def test_a_group_by_two_keys_is_hashed_by_the_pairs():
    stages = stages_of("SELECT src, dst, count(*) AS n FROM e GROUP BY src, dst")
    (stage,) = (stage for stage in stages.stages)
    grid = stage_grid(stage, 8)
    relation = stage.relations[0].name
    result = place_rows(relation, [pa.array([1] * 800), pa.array(range(800))], grid)
    assert max(Counter(result.cells.tolist()).values()) < 140


def test_shares_weigh_changed_rows_like_stored_rows():
    atoms = [
        JoinAtom("fact", {"k": 0, "x": 1}),
        JoinAtom("dim", {"x": 0}),
        JoinAtom("other", {"k": 0}),
    ]
    kept = choose_shares(weigh_atoms(atoms, sizes={"fact": 900, "dim": 10, "other": 90}), 8)
    assert kept.by_variable["k"] == 8
    changed_rows = {"fact": 0, "dim": 90, "other": 1}
    both = weigh_atoms(
        atoms, sizes={"fact": 900, "dim": 10, "other": 90}, changed_rows=changed_rows
    )
    assert choose_shares(both, 8).by_variable["x"] > 1
    assert [atom.rows for atom in weigh_atoms(atoms)] == [1.0, 1.0, 1.0]
    with pytest.raises(StreamingError, match="each must be 0 or more"):
        weigh_atoms(atoms, sizes={"fact": -1})


def test_without_counts_no_value_is_spread():
    for stage in stages_of(TRIANGLES).stages:
        assert stage_grid(stage, 8).heavy == ()
        assert isinstance(stage_grid(stage, 8), Grid)


@pytest.mark.parametrize(
    ("hub", "text"),
    [(0, "1970-01-01 00:00:00"), (2**62, "<value out of range: 4611686018427387904>")],
)
def test_heavy_values_of_encoded_columns_are_printed_as_values(hub, text):
    schema = pa.schema([("at", pa.timestamp("us")), ("x", pa.int64())])
    circuit = compile_sql(
        "SELECT a.x, b.x AS y FROM r a JOIN s b ON a.at IS NOT DISTINCT FROM b.at",
        {"r": schema, "s": schema},
    )
    stages = circuit_stages(circuit)
    (stage,) = stages.stages
    hubs = [hub] * 2000 + [None] * 1000
    times = pa.array([*hubs, *range(1, 3000)], pa.int64()).cast(pa.timestamp("us"))
    inputs = {name: pa.table({"at": times, "x": range(len(times))}) for name in ("r", "s")}
    sent = group_by_destination(Circuit(driver_spec(circuit.spec, stages)).step(inputs))
    tables = {r.name: sent[f"relation {r.name}"] for r in stage.relations}
    packed = split_columns(stage, pack_relations(stage, tables))
    grid = grid_from_counts(stage, 8, count_in_tables(stage, packed))
    texts = {text for heavy in grid.heavy for text in heavy.texts}
    assert texts == {text, "NULL"}
    assert f"at = {text}" in explain_stages(stages, [grid]).replace("v0", "at")
