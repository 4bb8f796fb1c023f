"""Circuit specifications: a copy gives an equal circuit; fingerprints name the differences."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from circuits import compile_sql
from circuits.circuit import Circuit
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
from tests.support.state_store import bags


def check_copy(serializer):
    """Check that a copy of a specification, through bytes, gives an equal circuit."""
    circuit = compile_sql(VIEWS, INPUTS, materialize=["total"], outputs=["groups"], threads=3)
    copy = serializer.loads(serializer.dumps(circuit.spec))
    assert copy == circuit.spec
    new = Circuit(copy)
    assert (new.fingerprint, new.fingerprints) == (circuit.fingerprint, circuit.fingerprints)
    tables = next(steps(1, seed=1))
    assert bags(new.step(tables)) == bags(circuit.step(tables))
    assert list(new.views) == ["total"]


def test_a_specification_can_be_pickled():
    check_copy(pickle)


def test_fingerprints_name_the_parts_in_which_two_circuits_differ():
    original = compile_sql(VIEWS, INPUTS)
    changed = {
        "view total": compile_sql(VIEWS.replace("'all'", "'one'"), INPUTS),
        "materialized": compile_sql(VIEWS, INPUTS, materialize=["total"]),
    }
    for name, circuit in changed.items():
        differing = {n for n, f in circuit.fingerprints.items() if original.fingerprints[n] != f}
        assert differing == {name}
        assert circuit.fingerprint != original.fingerprint
    equal = compile_sql(VIEWS, INPUTS, formula="recursive", threads=2, outputs=["total"])
    assert (equal.fingerprint, equal.fingerprints) == (
        original.fingerprint,
        original.fingerprints,
    )
    assert set(original.fingerprints) == {
        "materialized",
        *(f"input {name}" for name in original.inputs),
        *(f"view {name}" for name in original.plans),
    }


FINGERPRINTS = """
import json
from circuits import InputOptions, compile_sql
from tests.circuits.state.test_snapshot import INPUTS, VIEWS
input_options = {"person": InputOptions(keys=("id",)), "knows": InputOptions(strict=True)}
circuit = compile_sql(VIEWS, INPUTS, materialize=["total", "groups"], input_options=input_options)
print(json.dumps(circuit.fingerprints))
"""


def test_fingerprints_are_the_same_in_every_process():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", FINGERPRINTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
