"""Upserts by key: which change of a key is the last, and errors if none is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import InputOptions, InputOptionsError, SchemaError, UpsertError, compile_sql
from tests.circuits.inputs.test_input_options import COLUMNS, KEYED, circuit_of
from tests.support.tables import INT, bag_of


def test_a_row_upserted_twice_in_a_step_is_one_row():
    circuit = circuit_of(KEYED)
    table = pa.table({"k": [1, 1], "g": [5, 5], "ts": [0, 0]})
    assert bag_of(circuit.step({"r": table})["view"]) == {(1, 5, 0): 1}


def test_an_update_to_and_back_within_a_step_nets_to_nothing():
    circuit = circuit_of(KEYED)
    circuit.step({"r": pa.table({"k": [1], "g": [5], "ts": [0]})})
    there_and_back = pa.table({"k": [1, 1], "g": [6, 5], "ts": [0, 0], "sequence": [7, 8]})
    assert circuit.step({"r": there_and_back})["view"].num_rows == 0


def test_a_deletion_needs_only_the_columns_of_the_key():
    schema = pa.schema([pa.field(name, INT, nullable=False) for name in COLUMNS])
    circuit = circuit_of(KEYED, schema)
    circuit.step({"r": pa.table({"k": [1, 2], "g": [5, 5], "ts": [0, 0]})})
    only_key = circuit.step({"r": pa.table({"k": [1], "weight": [-1]})})
    assert bag_of(only_key["view"]) == {(1, 5, 0): -1}
    nulls = pa.table({"k": [2], "g": pa.nulls(1), "ts": pa.nulls(1), "weight": [-1]})
    assert bag_of(circuit.step({"r": nulls})["view"]) == {(2, 5, 0): -1}


def test_an_upsert_that_lacks_a_column_or_holds_a_forbidden_null_is_an_error():
    circuit = circuit_of(KEYED, pa.schema([pa.field(n, INT, nullable=False) for n in COLUMNS]))
    with pytest.raises(SchemaError, match="no column 'g'"):
        circuit.step({"r": pa.table({"k": [1, 2], "ts": [1, 1], "weight": [1, -1]})})
    with pytest.raises(SchemaError, match="column 'g' holds 1 NULL"):
        circuit.step(
            {"r": pa.table({"k": [1, 2], "g": [None, None], "ts": [1, 1], "weight": [1, -1]})}
        )
    with pytest.raises(SchemaError, match="column 'k' holds 1 NULL"):
        circuit.step({"r": pa.table({"k": pa.array([None], INT), "weight": [-1]})})


@pytest.mark.parametrize(
    ("weights", "sequences"),
    [([1, 1], None), ([1, -1], None), ([1, 1], [4, 4]), ([1, -1], [4, 4]), ([1, 1], [4, None])],
)
def test_changes_of_a_key_without_an_order_are_an_error_and_change_nothing(weights, sequences):
    circuit = circuit_of(KEYED)
    circuit.step({"r": pa.table({"k": [1], "g": [5], "ts": [0]})})
    table = pa.table({"k": [3, 1, 1], "g": [0, 6, 7], "ts": [0, 0, 0], "weight": [1, *weights]})
    if sequences is not None:
        table = table.append_column("sequence", pa.array([9, *sequences], INT))
    with pytest.raises(UpsertError, match=r"2 different changes of the key \{'k': 1\}"):
        circuit.step({"r": table})
    assert bag_of(circuit.views["r"]) == {(1, 5, 0): 1}


def test_ties_below_the_last_change_of_a_key_do_no_harm():
    circuit = circuit_of(KEYED)
    table = pa.table({"k": [1] * 3, "g": [5, 6, 7], "ts": [0] * 3, "sequence": [1, 1, 2]})
    assert bag_of(circuit.step({"r": table})["view"]) == {(1, 7, 0): 1}


def test_a_column_of_the_schema_can_be_the_sequence():
    circuit = circuit_of(InputOptions(keys=("k",), sequence="ts"))
    table = pa.table({"k": [1, 1], "g": [5, 6], "ts": [9, 8]})
    assert bag_of(circuit.step({"r": table})["view"]) == {(1, 5, 9): 1}


def test_a_column_named_sequence_of_the_schema_orders_nothing_unless_an_option_names_it():
    schema = pa.schema([("k", INT), ("sequence", INT)])
    table = pa.table({"k": [1, 1], "sequence": [5, 6]})
    with pytest.raises(UpsertError, match=r"the column .* InputOptions\(keys=..., sequence=...\)"):
        circuit_of(KEYED, schema).step({"r": table})
    chosen = circuit_of(InputOptions(keys=("k",), sequence="sequence"), schema)
    assert bag_of(chosen.step({"r": table})["view"]) == {(1, 6): 1}


def test_texts_of_keys_and_rows_are_found_again():
    schema = pa.schema([("name", pa.string()), ("city", pa.string()), ("n", pa.float64())])
    circuit = circuit_of(InputOptions(keys=("name",)), schema)
    circuit.step({"r": pa.table({"name": ["ann", "bob"], "city": ["Rome", None], "n": [0.5, 1]})})
    table = pa.table({"name": ["bob", "ann"], "city": ["Oslo", "Rome"], "n": [1.0, 0.5]})
    assert bag_of(circuit.step({"r": table})["view"]) == {
        ("bob", None, 1.0): -1,
        ("bob", "Oslo", 1.0): 1,
    }


def test_a_sequence_of_texts_is_refused():
    schema = pa.schema([("k", INT), ("name", pa.string())])
    with pytest.raises(InputOptionsError, match="have no order"):
        circuit_of(InputOptions(keys=("k",), sequence="name"), schema)
    table = pa.table({"k": [1], "name": ["ann"], "sequence": ["7"]})
    with pytest.raises(SchemaError, match=r"column 'sequence' .* type string have no order"):
        circuit_of(KEYED, schema).step({"r": table})


def test_a_later_step_wins_whatever_its_sequence():
    circuit = circuit_of(KEYED)
    for n, sequence in ((5, 9), (6, 3)):
        table = pa.table({"k": [1], "g": [n], "ts": [0], "sequence": [sequence]})
        circuit.step({"r": table})
    assert bag_of(circuit.views["r"]) == {(1, 6, 0): 1}


def test_an_error_shows_a_key_of_a_year_outside_of_pythons_range():
    schema = pa.schema([("t", pa.timestamp("us")), ("n", INT)])
    times = pa.array([3 * 10**17, 3 * 10**17], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(UpsertError, match=r"the key \{'t': '11476-08-15 05:20:00"):
        circuit_of(InputOptions(keys=("t",)), schema).step(
            {"r": pa.table({"t": times, "n": [1, 2]})}
        )


def test_an_error_of_a_tie_shows_the_key_and_both_rows_and_how_to_fix_it():
    circuit = circuit_of(InputOptions(keys=("k",), sequence="ts"))
    tied = pa.table({"k": [1, 1, 2], "g": [5, 6, 0], "ts": [9, 9, 9]})
    with pytest.raises(UpsertError) as caught:
        circuit.step({"r": tied})
    for part in ("{'k': 1}", "'g': 5", "'g': 6", "a different value in a column 'ts'"):
        assert part in str(caught.value)
    deleted = pa.table({"k": [1, 1], "g": [5, 5], "ts": [9, 9], "weight": [1, -1]})
    with pytest.raises(UpsertError, match=r"the row .*'g': 5.* and a deletion"):
        circuit.step({"r": deleted})


def test_equal_rows_with_the_same_sequence_are_one_row():
    circuit = circuit_of(InputOptions(keys=("k",), sequence="ts"))
    equal = pa.table({"k": [1, 1, 1], "g": [5, 5, 4], "ts": [9, 9, 8]})
    assert bag_of(circuit.step({"r": equal})["view"]) == {(1, 5, 9): 1}


def test_a_change_in_a_later_step_wins_whatever_its_sequence():
    circuit = circuit_of(InputOptions(keys=("k",), sequence="ts"))
    circuit.step({"r": pa.table({"k": [1], "g": [5], "ts": [9]})})
    later = circuit.step({"r": pa.table({"k": [1], "g": [6], "ts": [3]})})
    assert bag_of(later["view"]) == {(1, 5, 9): -1, (1, 6, 3): 1}


def test_long_values_are_shortened_in_the_error_of_a_tie():
    schema = pa.schema([("k", pa.string()), ("s", pa.string())])
    circuit = compile_sql(
        "SELECT s FROM r", {"r": schema}, input_options={"r": InputOptions(keys=("k",))}
    )
    key = "k" * 10**6
    with pytest.raises(UpsertError) as caught:
        circuit.step({"r": pa.table({"k": [key, key], "s": ["a" * 10**6, "b" * 10**6]})})
    assert len(str(caught.value)) < 2500
