"""After a warm-up no kernel remains to be compiled, checked in a new process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, json, pkgutil
from numba.core.dispatcher import Dispatcher
from dbsp_wcoj import kernels, warm_up

def signatures():
    signatures_by_kernel = {}
    for module in pkgutil.walk_packages(kernels.__path__, "dbsp_wcoj.kernels."):
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            # Kernels that Python calls; those that kernels call are compiled with them.
            if isinstance(value, Dispatcher) and value.__module__ == loaded.__name__:
                if type(value._cache).__name__ != "NullCache":
                    file = loaded.__name__.rpartition(".")[2]
                    signatures_by_kernel[f"{file}.{name}"] = list(map(str, value.signatures))
    return signatures_by_kernel

warm_up()
warm = signatures()
%s
print(json.dumps([warm, signatures()]))
"""
STEPS = """
from circuits import compile_sql
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
circuit = compile_sql(VIEWS, INPUTS, materialize=True)
for tables in steps(30, 4):
    circuit.step(tables)
circuit.restore(circuit.snapshot())
circuit.query("SELECT city, count(*) FROM person GROUP BY city ORDER BY city LIMIT 2")
"""


def run_in_new_process(script):
    """Return the signatures of all kernels after the warm-up, and after the script."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT % script], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def kernels():
    return run_in_new_process(STEPS)


def test_every_kernel_is_compiled_by_the_warm_up_and_for_one_signature(kernels):
    warm, _ = kernels
    assert {"join.join", "intern.intern", "prefix_lookup.look_up_prefixes"} <= warm.keys()
    # Few queries call the hash functions of Spark, and no step needs the profiler's kernel.
    rare = ("progress_board.watch_levels", "spark_hashes.")
    of_steps = {name: signatures for name, signatures in warm.items() if not name.startswith(rare)}
    assert [name for name, signatures in of_steps.items() if len(signatures) != 1] == []


def test_steps_of_a_circuit_of_all_operators_compile_no_kernel(kernels):
    warm, after_steps = kernels
    assert after_steps == warm
