"""Machine code that a wheel brings: numba compiles nothing, unless the code does not fit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dbsp_wcoj
from dbsp_wcoj.kernels import precompiled

# Prints how many functions numba compiles for a call of a small kernel, and its result.
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from numba.core import event
from dbsp_wcoj.kernels import precompiled
from dbsp_wcoj.kernels.storage.key_sets import add_absent_bits

class Counter(event.Listener):
    count = 0
    def on_start(self, event):
        self.count += 1
    def on_end(self, event):
        pass

event.register("numba:compile", counter := Counter())
%s
is_absent = np.empty(3, np.bool_)
add_absent_bits(np.array([3, 5, 3]), np.zeros(1, np.uint64), is_absent)
print(counter.count, is_absent.tolist())
"""
WRITE = "\nadd_absent_bits._cache._cache_file.write_precompiled(Path(sys.argv[1]))"
RESULT = "[True, True, False]"

pytestmark = pytest.mark.skipif(
    platform.machine() not in precompiled.BASELINES, reason="no baseline for this architecture"
)


def run(source: Path, cache: Path, script: str, *arguments: str, **variables: str) -> str:
    """Run a script with the package at ``source``; return what it prints."""
    environment = {n: text for n, text in os.environ.items() if not n.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)} | variables
    completed = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the package with the machine code of one kernel, and nothing compiled."""
    place = tmp_path_factory.mktemp("precompiled")
    package = place / "source" / "dbsp_wcoj"
    shutil.copytree(
        Path(dbsp_wcoj.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__", precompiled.FOLDER),
    )
    folder = package / "kernels" / precompiled.FOLDER
    folder.mkdir()
    baseline = precompiled.BASELINES[platform.machine()].cpu
    variables = {"NUMBA_CPU_NAME": baseline, "NUMBA_CPU_FEATURES": ""}
    arguments = package.parent, place / "cache", SCRIPT % "" + WRITE, str(folder)
    assert run(*arguments, **variables) == f"1 {RESULT}"
    assert len(list(folder.iterdir())) == 1
    return package.parent


def test_nothing_is_compiled(source, tmp_path):
    assert run(source, tmp_path / "cache", SCRIPT % "") == f"0 {RESULT}"
    assert not list(tmp_path.glob("cache/**/*.nbc"))


def test_nothing_is_compiled_from_an_archive(source, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", source)
    # numba does not find a folder for the cache of an archive in NUMBA_CACHE_DIR.
    variables = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run(Path(archive), tmp_path, SCRIPT % "", **variables) == f"0 {RESULT}"


def test_a_processor_without_the_instructions_compiles(source, tmp_path):
    lacks = "precompiled.binding.get_host_cpu_features = dict"
    if precompiled.BASELINES[platform.machine()].features:
        assert run(source, tmp_path / "cache", SCRIPT % lacks) == f"1 {RESULT}"


def test_nothing_precompiled_is_used_if_the_processor_is_chosen(source, tmp_path):
    result = run(source, tmp_path / "cache", SCRIPT % "", NUMBA_CPU_NAME="generic")
    assert result == f"1 {RESULT}"


def test_another_numba_compiles(source, tmp_path):
    script = "import numba; numba.__version__ += '.1'\n" + SCRIPT % ""
    assert run(source, tmp_path / "cache", script) == f"1 {RESULT}"


@pytest.fixture
def changed_source(source, tmp_path):
    """The same, after a change of a source file, so that the machine code does not fit."""
    changed = shutil.copytree(source, tmp_path / "source")
    with (changed / "dbsp_wcoj/kernels/memory.py").open("a") as file:
        file.write("# changed\n")
    return changed


def test_a_changed_source_compiles_and_then_its_own_cache_is_used(changed_source, tmp_path):
    assert run(changed_source, tmp_path / "cache", SCRIPT % "") == f"1 {RESULT}"
    assert run(changed_source, tmp_path / "cache", SCRIPT % "") == f"0 {RESULT}"


def test_code_for_another_processor_is_not_written(changed_source, tmp_path):
    variables = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}
    with pytest.raises(AssertionError, match=r"numba's cache has code of storage\.key_sets"):
        run(changed_source, tmp_path / "cache", SCRIPT % "" + WRITE, str(tmp_path), **variables)
