"""Refreshes of a pipeline that are killed anywhere lose and double no row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["first", "second"])
def test_kills_of_refreshes_lose_and_double_no_row(seed, tmp_path):
    pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")
    arguments = ["tests.support.pipeline_kills", str(tmp_path), seed, "12"]
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert json.loads(finished.stdout.splitlines()[-1])["kills"] >= 3
