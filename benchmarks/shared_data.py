"""Names the folder of real graphs and streams; without it, benchmarks generate their input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: ``DBSP_WCOJ_SHARED``, or the folder ``shared`` beside the checkout.
SHARED: Final = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[2] / "shared"))
