"""Finds the sample of the LSQB network, and lists the published answers of its nine queries.

The queries and the answers are in `benchmarks.lsqb`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from benchmarks.lsqb import ANSWERS
from tests.support.shared_data import SHARED

__all__ = ["ANSWERS", "FOLDER", "needs_lsqb"]

FOLDER: Final[Path] = SHARED / "data" / "lsqb" / "ldbc-snb-sample"

needs_lsqb = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason=f"no LSQB data at {FOLDER}; set DBSP_WCOJ_SHARED to the folder that has data/lsqb",
)
