"""Where the sample of the LSQB network is, and what its nine queries answer on it.

The queries themselves are in `benchmarks.lsqb`; the answers were published with the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.shared import SHARED

__all__ = ["ANSWERS", "FOLDER", "needs_lsqb"]

FOLDER: Final[Path] = SHARED / "data" / "lsqb" / "ldbc-snb-sample"

needs_lsqb = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason=f"no LSQB data at {FOLDER}; set DBSP_WCOJ_SHARED to the folder that has data/lsqb",
)

ANSWERS: Final = {
    "q1": 1_807_953,
    "q2": 33_671,
    "q3": 7_536,
    "q4": 296_431,
    "q5": 452_762,
    "q6": 13_271_670,
    "q7": 612_689,
    "q8": 227_688,
    "q9": 11_803_138,
}
