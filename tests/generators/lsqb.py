"""Where the sample of the LSQB network is, and what its nine queries answer on it.

The queries themselves are in `benchmarks.lsqb`, with the answers that were published.
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
