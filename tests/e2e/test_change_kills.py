"""Jobs that are killed while their views change lose and double no row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.change_kills import KINDS

ROOT = Path(__file__).parents[2]


def run_kills(place: Path, kills: int, seed: str) -> dict:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.change_kills", str(place), str(kills), seed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    report = json.loads(finished.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    return report


@pytest.mark.slow
def test_240_kills_lose_and_double_no_row(tmp_path):
    report = run_kills(tmp_path, 240, "all")
    assert report["kills"] == 240
    assert report["kinds"].keys() == {*KINDS}
    assert min(report["kinds"].values()) >= 40
    assert report["during"].keys() >= {"start", "add", "slices", "drop"}
