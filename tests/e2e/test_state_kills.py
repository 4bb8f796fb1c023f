"""Jobs that are killed while their state is compacted or committed lose and double no row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.state_kills import PHASES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("place", PHASES)
def test_kills_of_jobs_lose_and_double_no_row(place, tmp_path):
    if place == "object_store":
        pytest.importorskip("moto.server")
        pytest.importorskip("obstore")
    arguments = ["tests.support.state_kills", place, str(tmp_path), "12", "small"]
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    report = json.loads(finished.stdout.splitlines()[-1])
    assert report["kills"] == 12
    assert report["during"].keys() & PHASES[place].values()
