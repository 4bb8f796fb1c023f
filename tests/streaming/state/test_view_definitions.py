"""View definitions in a state directory: text, options and schemas are compiled to equal views."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from circuits import CircuitSpec, InputOptions, Retention, compile_datalog, compile_sql
from dbsp_wcoj.limits import StepLimits
from streaming import StateDamagedError
from streaming.state.local_files import LocalFiles
from streaming.state.view_definitions import read_definition, write_definition
from tests.circuits.test_circuit_spec import check_copy


def test_a_definition_can_be_carried_to_executors():
    check_copy(cloudpickle)


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
            write_definition(files, circuit.spec)
        kept = read_definition(files)
        assert kept == circuit.spec
        assert kept.source == circuit.spec.source and kept.source is not None
        assert kept.fingerprint == circuit.fingerprint
        plain = CircuitSpec(circuit.plans, inputs).options
        assert all(
            getattr(kept.options, part.name) != getattr(plain, part.name) for part in fields(plain)
        ), "an option is not tried: give it a value here that is not its default"


def test_a_changed_text_is_written_again_and_a_damaged_file_as_well(tmp_path):
    files = LocalFiles(tmp_path)
    one = compile_sql("SELECT a FROM e", {"e": pa.schema([("a", pa.int64())])})
    for text in ("SELECT  a FROM e", "SELECT a FROM e"):
        other = compile_sql(text, one.spec.schemas)
        write_definition(files, other.spec)
        assert read_definition(files).source.text == text
    for content in (b"", b"\x80\x04.", b"{}"):
        (tmp_path / "views.json").write_bytes(content)
        with pytest.raises(StateDamagedError, match=r"views\.json"):
            read_definition(files)
        write_definition(files, one.spec)
        assert read_definition(files) == one.spec
