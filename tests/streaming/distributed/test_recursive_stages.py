"""Recursive views in mode "distributed", in one cell or divided among cells."""

from __future__ import annotations

import random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, IterationError, compile_datalog, compile_sql
from circuits.circuit_spec import CircuitSpec
from circuits.schema import Schema
from streaming import Output, ViewSink
from streaming.distributed import engine
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.rescaling import rescale_state
from streaming.state.open_files import open_files
from tests.generators.recursive_programs import PROGRAMS, SCHEMA
from tests.streaming.distributed.local_job import LocalCluster
from tests.streaming.distributed.test_batch_job import (
    LAW,
    SCHEMAS,
    VIEWS,
    UnreadFrame,
    rows_of,
)
from tests.streaming.distributed.test_engine import Frame, outputs
from tests.support.tables import bag_of

REACH = """
    CREATE VIEW reach AS
        WITH RECURSIVE tc(src, dst) AS (
            SELECT src, dst FROM e UNION SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst
        ) SELECT src, dst FROM tc;
    CREATE VIEW reached AS SELECT p.name, count(*) AS n, max(reach.src) AS m
        FROM reach JOIN p ON p.id = reach.dst GROUP BY p.name;
    CREATE VIEW named_reach AS
        WITH RECURSIVE r(name) AS (
            SELECT name FROM named WHERE src = 1
            UNION SELECT b.name FROM r JOIN named a ON a.name = r.name JOIN named b ON b.src = a.dst
        ) SELECT name FROM r;
"""
INPUTS = {
    name: pa.schema([(field.name, field.type) for field in fields])
    for name, fields in SCHEMA.items()
}


def edge_batches(count: int, seed: int) -> list[pa.Table]:
    """Return changes of edges and people, which delete only rows that exist; the third is empty."""
    rng, present = random.Random(seed), []
    tables = []
    for number in range(count):
        rows: list[dict[str, Any]] = []
        for _ in range(0 if number == 2 else 7):
            if present and rng.random() < 0.4:
                edge = present.pop(rng.randrange(len(present)))
                rows.append({"relation": "e", "weight": -1} | edge)
            else:
                present.append({"src": rng.randrange(6), "dst": rng.randrange(6)})
                rows.append({"relation": "e"} | present[-1])
        if number < 2:
            rows += [{"relation": "p", "id": k, "name": f"n{k % 3}"} for k in (number, number + 2)]
        tables.append(rows_of(*rows))
    return tables


def make_circuit(**options: Any) -> Circuit:
    return compile_sql(VIEWS + REACH, SCHEMAS, **options)


def distributed(place: Any, circuit: Circuit, cells: int = 4, given_outputs: Any = ()) -> ViewSink:
    return ViewSink(circuit, given_outputs, state_dir=place, mode="distributed", cells=cells)


@pytest.mark.parametrize("most", [500, 0], ids=["few rows", "in one job"])
def test_a_recursion_and_other_views_run_in_one_job(tmp_path, most):
    cluster = LocalCluster()
    outputs_of_sink = [
        Output("reach", mode="upsert", keys=["src", "dst"]),
        Output("named_reach", mode="complete"),
    ]
    kept = {"materialize": ["reach", "named_reach"]}
    embedded = ViewSink(make_circuit(**kept), outputs_of_sink)
    with patch.object(engine, "MAX_FEW_ROWS", most):
        sink = distributed(tmp_path, make_circuit(**kept), given_outputs=outputs_of_sink)
        for number, table in enumerate(edge_batches(6, 1)):
            embedded(Frame(None, table), number)
            frame: Any = cluster.frame(table)
            is_job = most == 0 and table.num_rows and number
            sink(UnreadFrame(frame) if is_job else frame, number)
            assert outputs(sink) == outputs(embedded)
            assert bag_of(sink.table("reach")) == bag_of(embedded.table("reach"))
            if number == 3:
                sink.close()
                sink = distributed(tmp_path, make_circuit(**kept), 4, outputs_of_sink)
    text = sink.explain()
    assert "recursion of tc by src, which no iteration changes" in text
    assert "recursion of r in one cell, because no column has the same value in a row and" in text
    assert "grid    4 cells" in text
    sink.close()


def test_the_state_of_a_recursion_is_rescaled_and_changes_with_the_program(tmp_path):
    cluster, embedded = LocalCluster(), ViewSink(make_circuit())
    sink = distributed(tmp_path, make_circuit())
    for number, table in enumerate(edge_batches(8, 2)):
        if number == 1:
            again = "CREATE VIEW again AS SELECT src, count(*) AS n FROM reach GROUP BY src"
            for each in (embedded, sink):
                each.add_view(again)
        if number in (3, 5, 6):
            cells = {3: 3, 5: None, 6: 2}[number]
            spec = sink.circuit.spec
            sink.close()
            rescale_state(open_files(tmp_path), cells=cells)
            options = {} if cells is None else {"mode": "distributed", "cells": cells}
            sink = ViewSink(Circuit(spec), state_dir=tmp_path, **options)  # type: ignore[arg-type]
        embedded(Frame(None, table), number)
        sink(cluster.frame(table) if number != 5 else Frame(None, table), number)
        assert outputs(sink) == outputs(embedded)
    sink.close()


def test_columns_that_no_recursion_reads_are_not_sent(tmp_path):
    """They may have types that cannot be sent, such as lists."""
    schema = SCHEMAS["e"].append(pa.field("note", pa.string(), nullable=False))
    schemas = {"e": schema.append(pa.field("list", pa.list_(pa.int64())))}
    text = """WITH RECURSIVE tc(src, dst) AS (
        SELECT src, dst FROM e UNION SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst
    ) SELECT src, dst FROM tc"""
    circuit = compile_sql(text, schemas)
    (stage,) = circuit_stages(circuit).stages
    assert [len(relation.fields) for relation in stage.relations] == [2, 4]
    assert {field.type for relation in stage.relations for field in relation.fields} == {pa.int64()}
    cluster, embedded = LocalCluster(), ViewSink(Circuit(circuit.spec))
    sink = distributed(tmp_path, circuit, 2)
    for number in range(4):
        edges = [(number, number + 1), (number + 1, number + 3)]
        rows = [{"src": a, "dst": b, "note": "x", "list": [a]} for a, b in edges]
        table = pa.Table.from_pylist(rows, schemas["e"])
        if number == 2:
            sink.close()
            rescale_state(open_files(tmp_path), cells=None)
            rescale_state(open_files(tmp_path), cells=3)
            sink = distributed(tmp_path, Circuit(circuit.spec), 3)
        embedded(Frame(None, table), number)
        sink(UnreadFrame(cluster.frame(table)), number)
        assert outputs(sink) == outputs(embedded)
    sink.close()


def test_a_recursion_in_one_cell_that_reads_another_recursion_is_moved(tmp_path):
    text = """WITH RECURSIVE
        tc(a, b) AS (
            SELECT src, dst FROM e UNION SELECT tc.a, e.dst FROM tc JOIN e ON e.src = tc.b),
        r(n) AS (SELECT id FROM p UNION SELECT tc.b FROM r JOIN tc ON tc.a = r.n)
    SELECT n FROM r"""
    circuit = compile_sql(text, {name: SCHEMAS[name] for name in "ep"})
    assert [stage.is_recursive for stage in circuit_stages(circuit).stages] == [True]
    cluster, embedded = LocalCluster(), ViewSink(Circuit(circuit.spec))
    sink = distributed(tmp_path, circuit, 2)
    for number, table in enumerate(edge_batches(4, 3)):
        if number in (1, 3):
            sink.close()
            rescale_state(open_files(tmp_path), cells=None)
            rescale_state(open_files(tmp_path), cells=3)
            sink = distributed(tmp_path, Circuit(circuit.spec), 3)
        embedded(Frame(None, table), number)
        sink(cluster.frame(table), number)
        assert outputs(sink) == outputs(embedded)
    sink.close()


def test_relations_of_one_recursion_are_one_stage():
    circuit = compile_datalog(PROGRAMS["odd and even paths"], INPUTS)
    (stage,) = circuit_stages(circuit).stages
    assert len(stage.operators) == 2 and stage.is_recursive


def test_the_hash_of_a_recursion_does_not_depend_on_the_views():
    text = PROGRAMS["odd and even paths"]
    hashes = set()
    for more in ("", " a(x) :- odd(x, _).", " a(x) :- even(x, _)."):
        stages = circuit_stages(compile_datalog(text + more, INPUTS)).stages
        hashes |= {stage.hash for stage in stages if stage.is_recursive}
    assert len(hashes) == 1


def test_a_recursion_that_does_not_converge_changes_nothing(tmp_path):
    text = """WITH RECURSIVE tc(src, dst) AS (
        SELECT src, dst FROM e UNION ALL SELECT tc.src, e.dst FROM tc JOIN e ON e.src = tc.dst
    ) SELECT src, dst FROM tc"""
    circuit = compile_sql(text, {"e": SCHEMAS["e"]}, max_iterations=30)
    cluster, sink = LocalCluster(), distributed(tmp_path, circuit)

    def frame_of(*rows: tuple[int, int]) -> Any:
        return cluster.frame(pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]}))

    sink(UnreadFrame(frame_of((1, 2), (2, 3))), 0)
    for most in (500, 0):
        with (
            patch.object(engine, "MAX_FEW_ROWS", most),
            pytest.raises(IterationError, match="the recursion of 'tc' still changes"),
        ):
            sink(frame_of((3, 1)), 1)
    sink(UnreadFrame(frame_of((3, 4))), 1)
    assert outputs(sink)["view"] == {(3, 4): 1, (2, 4): 1, (1, 4): 1}


def value_of(type: pa.DataType, number: int | None) -> Any:
    """Return a value of a type for a small number; NULL for None."""
    if number is None:
        return None
    if pa.types.is_string(type):
        return "abcd"[number]
    return number - 0.5 if pa.types.is_floating(type) else number


def check_views(spec: CircuitSpec, data: st.DataObject) -> None:
    """Compare recursive views in cells with one process, over restarts and rescaling."""
    cluster = LocalCluster(data.draw(st.integers(0, 99), "seed"))
    cells = data.draw(st.sampled_from([1, 2, 3]), "cells")
    most = data.draw(st.sampled_from([0, 500]), "rows that the driver reads")
    embedded = ViewSink(Circuit(spec))
    fields_of = {name: Schema.of(name, schema).fields for name, schema in spec.schemas.items()}
    names = sorted(fields_of)
    columns = {field.name: field.type for name in names for field in fields_of[name]}
    types = pa.schema([("relation", pa.string()), *columns.items(), ("weight", pa.int64())])
    numbers = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, None])
    inserted: list[dict[str, Any]] = []
    with TemporaryDirectory() as place, patch.object(engine, "MAX_FEW_ROWS", most):
        sink = distributed(place, Circuit(spec), cells)
        for number in range(data.draw(st.integers(2, 4), "steps")):
            rows = []
            for _ in range(data.draw(st.integers(0, 6), "rows")):
                relation = data.draw(st.sampled_from(names))
                weight = data.draw(st.sampled_from([1, 1, 2]))
                rows.append({"relation": relation, "weight": weight})
                for field in fields_of[relation]:
                    rows[-1][field.name] = value_of(field.type, data.draw(numbers))
            inserted += rows
            if inserted and data.draw(st.booleans(), "deletion"):
                deleted = inserted.pop(data.draw(st.integers(0, len(inserted) - 1), "deleted"))
                rows.append(deleted | {"weight": -deleted["weight"]})
            table = pa.Table.from_pylist(rows, types)
            embedded(Frame(None, table), number)
            change = data.draw(st.sampled_from(["", "", "restart", "rescale"]), "change")
            if number and change:
                sink.close()
                if change == "rescale":
                    cells = data.draw(st.sampled_from([1, 2, 4]), "new cells")
                    if data.draw(st.booleans(), "over one process"):
                        rescale_state(open_files(place), cells=None)
                    rescale_state(open_files(place), cells=cells)
                sink = distributed(place, Circuit(spec), cells)
            sink(cluster.frame(table), number)
            assert outputs(sink) == outputs(embedded)
        sink.close()


def check_program(name: str, data: st.DataObject) -> None:
    check_views(compile_datalog(PROGRAMS[name], INPUTS).spec, data)


@LAW
@given(name=st.sampled_from(sorted(PROGRAMS)), data=st.data())
def test_recursive_programs_give_the_same_in_cells_and_in_one_process(name, data):
    check_program(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@LAW
@given(data=st.data())
def test_each_recursive_program_gives_the_same_in_cells_and_in_one_process(name, data):
    check_program(name, data)
