"""Definitions: carried elsewhere they are the same circuit; fingerprints say in what two differ."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from circuits import CircuitSpec, InputOptions, Retention, compile_datalog, compile_sql
from circuits.circuit import Circuit
from dbsp_wcoj.limits import StepLimits
from streaming import StateDamagedError
from streaming.state.files import LocalFiles
from streaming.state.view_definitions import read_definition, write_definition
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
from tests.support.state_store import bags


@pytest.mark.parametrize("carry", [pickle, cloudpickle])
def test_a_definition_can_be_carried_elsewhere(carry):
    circuit = compile_sql(VIEWS, INPUTS, materialize=["total"], outputs=["groups"], parts=3)
    definition = carry.loads(carry.dumps(circuit.definition))
    assert definition == circuit.definition
    new = Circuit(definition)
    assert (new.fingerprint, new.fingerprints) == (circuit.fingerprint, circuit.fingerprints)
    tables = next(steps(1, seed=1))
    assert bags(new.step(tables)) == bags(circuit.step(tables))
    assert list(new.views) == ["total"]


def test_fingerprints_say_in_what_two_circuits_differ():
    one = compile_sql(VIEWS, INPUTS)
    other = {
        "view total": compile_sql(VIEWS.replace("'all'", "'one'"), INPUTS),
        "materialized": compile_sql(VIEWS, INPUTS, materialize=["total"]),
    }
    for name, circuit in other.items():
        differing = {n for n, f in circuit.fingerprints.items() if one.fingerprints[n] != f}
        assert differing == {name}
        assert circuit.fingerprint != one.fingerprint
    alike = compile_sql(VIEWS, INPUTS, formula="recursive", parts=2, outputs=["total"])
    assert (alike.fingerprint, alike.fingerprints) == (one.fingerprint, one.fingerprints)
    assert set(one.fingerprints) == {
        "materialized",
        *(f"input {name}" for name in one.inputs),
        *(f"view {name}" for name in one.plans),
    }


def test_a_definition_is_stored_as_text_with_all_its_options_and_compiled_again(tmp_path):
    rules = {
        "person": InputOptions(keys=("id",), sequence="id", strict=True),
        "knows": InputOptions(retain=Retention("a", 7)),
    }
    options = {
        "materialize": ["total"],
        "outputs": ["groups"],
        "formula": "auto",
        "parts": 3,
        "max_iterations": 77,
        "limits": StepLimits(max_step_rows=1000, max_step_bytes=None, max_seconds=9.5),
    }
    inputs = {
        "person": pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]),
        "knows": pa.schema([("a", pa.int64()), ("b", pa.decimal128(9, 2))]),
    }
    sql = (
        "CREATE VIEW total AS SELECT count(*) AS n FROM knows; "
        'CREATE VIEW groups AS SELECT name, count(*) AS "ä" FROM person GROUP BY name'
    )
    datalog = "total(id) :- person(id, n), knows(id, b). groups(id) :- total(id)."
    for number, circuit in enumerate(
        (
            compile_sql(sql, inputs, dialect="postgres", input_options=rules, **options),
            compile_datalog(datalog, inputs, input_options=rules, **options),
        )
    ):
        files = LocalFiles(tmp_path / str(number))
        for _ in range(2):
            write_definition(files, circuit.definition)
        kept = read_definition(files)
        assert kept == circuit.definition
        assert kept.source == circuit.definition.source and kept.source is not None
        assert kept.fingerprint == circuit.fingerprint
        plain = CircuitSpec(circuit.plans, inputs).options
        assert all(
            getattr(kept.options, part.name) != getattr(plain, part.name) for part in fields(plain)
        ), "an option is not tried: give it a value here that is not its default"


def test_a_changed_text_is_written_again_and_a_damaged_file_as_well(tmp_path):
    files = LocalFiles(tmp_path)
    one = compile_sql("SELECT a FROM e", {"e": pa.schema([("a", pa.int64())])})
    for text in ("SELECT  a FROM e", "SELECT a FROM e"):
        other = compile_sql(text, one.definition.schemas)
        write_definition(files, other.definition)
        assert read_definition(files).source.text == text
    for content in (b"", b"\x80\x04.", b"{}"):
        (tmp_path / "views.json").write_bytes(content)
        with pytest.raises(StateDamagedError, match=r"views\.json"):
            read_definition(files)
        write_definition(files, one.definition)
        assert read_definition(files) == one.definition


FINGERPRINTS = """
import json
from circuits import InputOptions, compile_sql
from tests.circuits.state.test_snapshot import INPUTS, VIEWS
input_options = {"person": InputOptions(keys=("id",)), "knows": InputOptions(strict=True)}
circuit = compile_sql(VIEWS, INPUTS, materialize=["total", "groups"], input_options=input_options)
print(json.dumps(circuit.fingerprints))
"""


def test_fingerprints_are_the_same_in_every_process():
    found = [
        subprocess.run(
            [sys.executable, "-c", FINGERPRINTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
