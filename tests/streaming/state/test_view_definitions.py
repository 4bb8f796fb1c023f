"""View definitions in a state directory: their text, options and schemas compile to equal views."""

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
from tests.streaming.state.test_hostile_state import forge


def test_a_definition_can_be_carried_to_executors():
    check_copy(cloudpickle)


def test_a_definition_is_stored_as_text_with_all_its_options_and_compiled_again(tmp_path):
    input_options = {
        "person": InputOptions(keys=("id",), sequence="id", strict=True),
        "knows": InputOptions(retain=Retention("a", 7)),
    }
    options = {
        "materialize": ["total"],
        "outputs": ["groups"],
        "formula": "auto",
        "threads": 3,
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
            compile_sql(sql, inputs, dialect="postgres", input_options=input_options, **options),
            compile_datalog(datalog, inputs, input_options=input_options, **options),
        )
    ):
        files = LocalFiles(tmp_path / str(number))
        for _ in range(2):
            write_definition(files, circuit.spec)
        stored = read_definition(files)
        assert stored == circuit.spec
        assert stored.source == circuit.spec.source and stored.source is not None
        assert stored.fingerprint == circuit.fingerprint
        defaults = CircuitSpec(circuit.plans, inputs).options
        assert stored.options.threads is None  # the number of threads belongs to the machine
        assert all(
            getattr(stored.options, option.name) != getattr(defaults, option.name)
            for option in fields(defaults)
            if option.compare
        ), "an option is not tested: give it a value here that is not its default"


def test_a_changed_text_and_a_damaged_file_are_written_again(tmp_path):
    files = LocalFiles(tmp_path)
    circuit = compile_sql("SELECT a FROM e", {"e": pa.schema([("a", pa.int64())])})
    for text in ("SELECT  a FROM e", "SELECT a FROM e"):
        other = compile_sql(text, circuit.spec.schemas)
        write_definition(files, other.spec)
        assert read_definition(files).source.text == text
    for content in (b"", b"\x80\x04.", b"{}"):
        (tmp_path / "views.json").write_bytes(content)
        with pytest.raises(StateDamagedError, match=r"views\.json"):
            read_definition(files)
        write_definition(files, circuit.spec)
        assert read_definition(files) == circuit.spec


def test_a_definition_of_an_earlier_version_with_parts_is_read(tmp_path):
    circuit = compile_sql("SELECT a FROM t", {"t": "a bigint"})
    write_definition(LocalFiles(tmp_path), circuit.spec)
    forge(tmp_path / "views.json", lambda body: body["options"].update(parts=32))
    assert read_definition(LocalFiles(tmp_path)) == circuit.spec
