"""Whoever waits for the compilation of kernels is told so, once; checked with an empty cache."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

# Two small kernels: one is compiled by the first call, the other by the second.
SCRIPT = """
import numpy as np
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.kernels.compilation import observe_compilation

class Told:
    def started(self, kernel):
        print("started", kernel)

    def finished(self, kernel):
        print("finished", kernel)

if {told}:
    observe_compilation(Told())
names = Interner()
names.gather(np.empty(0, np.int64))
names.gather(np.empty(0, np.int64))
"""


def run(cache: Path, *, told: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(told=told)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )


def on_terminal(cache: Path) -> str:
    """Run the script with a terminal as its standard error; return what the terminal received."""
    terminal, its_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(told=False)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        stderr=its_end,
    )
    os.close(its_end)
    received = b""
    # The end of a terminal is an empty read, or on Linux an error.
    with suppress(OSError):
        while part := os.read(terminal, 1 << 12):
            received += part
    os.close(terminal)
    assert process.wait() == 0
    return received.decode()


def test_the_first_compilation_writes_one_line_and_later_processes_none(tmp_path: Path) -> None:
    first = run(tmp_path, told=False)
    assert first.stderr.count("\n") == 1
    assert "compiling the kernels" in first.stderr
    assert run(tmp_path, told=False).stderr == ""


def test_a_terminal_shows_the_kernel_that_is_compiled_now_and_nothing_after(
    tmp_path: Path,
) -> None:
    logged, line = on_terminal(tmp_path).split("\r\n")
    assert "compiling the kernels" in logged
    updates = [part.strip() for part in line.split("\r")]
    assert [part for part in updates if part] == [
        "compiling kernel 1: intern.extents",
        "compiling kernel 2: intern.gather",
    ]
    assert updates[-1] == ""
    assert on_terminal(tmp_path) == ""


def test_an_observer_is_told_of_each_kernel_and_not_of_what_it_calls(tmp_path: Path) -> None:
    assert run(tmp_path, told=True).stdout.split("\n")[:-1] == [
        "started intern.extents",
        "finished intern.extents",
        "started intern.gather",
        "finished intern.gather",
    ]
