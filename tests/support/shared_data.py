"""Finds the real data of the tests: the folder ``shared`` beside the repository.

``DBSP_WCOJ_SHARED`` names another folder. The data is not part of the project, so a test that needs
it is skipped with a reason if it is missing. All files are edge lists of int64 in Parquet. Their
``INDEX.md`` describes them; the tests expect its counts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

SHARED = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[3] / "shared"))

needs_data = pytest.mark.skipif(
    not (SHARED / "data" / "INDEX.md").is_file(),
    reason=f"no real graphs at {SHARED / 'data'}; set DBSP_WCOJ_SHARED to the folder that has them",
)
needs_cases = pytest.mark.skipif(
    not (SHARED / "cases" / "join_cases.json").is_file(),
    reason=f"no cases at {SHARED / 'cases'}; set DBSP_WCOJ_SHARED to the folder that has them",
)


def table(name: str) -> dict[str, np.ndarray]:
    """Read the columns of ``data/<name>.parquet`` as int64 arrays (strings as objects)."""
    columns = pq.read_table(SHARED / "data" / f"{name}.parquet")
    arrays = {field: columns[field].to_numpy() for field in columns.column_names}
    return {
        field: array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array
        for field, array in arrays.items()
    }


def cases(*kinds: str) -> list[dict[str, Any]]:
    """Read the cases of these kinds; none if the file is missing (the tests are skipped then)."""
    path = SHARED / "cases" / "join_cases.json"
    if not path.is_file():
        return []
    return [case for case in json.loads(path.read_text()) if case["kind"] in kinds]
