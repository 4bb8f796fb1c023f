"""A process reports the compilation of kernels, once; tested with an empty cache."""

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

class Printer:
    def on_start(self, kernel):
        print("started", kernel)

    def on_finish(self, kernel):
        print("finished", kernel)

if {is_observed}:
    observe_compilation(Printer())
names = Interner()
names.gather(np.empty(0, np.int64))
names.gather(np.empty(0, np.int64))
"""


def run(cache: Path, *, is_observed: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(is_observed=is_observed)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )


def on_terminal(cache: Path) -> str:
    """Run the script with a terminal as its standard error; return the output of the terminal."""
    terminal, stderr_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(is_observed=False)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        stderr=stderr_end,
    )
    os.close(stderr_end)
    received = b""
    # The end of a terminal is an empty read, or on Linux an error.
    with suppress(OSError):
        while part := os.read(terminal, 1 << 12):
            received += part
    os.close(terminal)
    assert process.wait() == 0
    return received.decode()


def test_the_first_compilation_writes_one_line_and_later_processes_none(tmp_path: Path) -> None:
    first = run(tmp_path, is_observed=False)
    assert first.stderr.count("\n") == 1
    assert "compiling the kernels" in first.stderr
    assert run(tmp_path, is_observed=False).stderr == ""


def test_a_terminal_shows_the_running_compilation_and_clears_it_at_the_end(
    tmp_path: Path,
) -> None:
    logged, line = on_terminal(tmp_path).split("\r\n")
    assert "compiling the kernels" in logged
    updates = [part.strip() for part in line.split("\r")]
    assert [part for part in updates if part] == [
        "compiling kernel 1: intern.write_offsets",
        "compiling kernel 2: intern.gather",
    ]
    assert updates[-1] == ""
    assert on_terminal(tmp_path) == ""


def test_an_observer_receives_each_kernel_and_not_its_subroutines(tmp_path: Path) -> None:
    assert run(tmp_path, is_observed=True).stdout.split("\n")[:-1] == [
        "started intern.write_offsets",
        "finished intern.write_offsets",
        "started intern.gather",
        "finished intern.gather",
    ]
