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


def check_carried(carry):
    """Check that a specification is the same after it was carried elsewhere."""
    circuit = compile_sql(VIEWS, INPUTS, materialize=["total"], outputs=["groups"], parts=3)
    definition = carry.loads(carry.dumps(circuit.spec))
    assert definition == circuit.spec
    new = Circuit(definition)
    assert (new.fingerprint, new.fingerprints) == (circuit.fingerprint, circuit.fingerprints)
    tables = next(steps(1, seed=1))
    assert bags(new.step(tables)) == bags(circuit.step(tables))
    assert list(new.views) == ["total"]


def test_a_definition_can_be_copied_to_another_process():
    check_carried(pickle)


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
