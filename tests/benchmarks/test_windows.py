"""The benchmark of window functions at a tiny size; a wrong answer is counted as a difference."""

from __future__ import annotations

import pytest

from benchmarks import windows
from benchmarks.verdict import Verdict

CALLS = windows.NEAR | windows.SUFFIX | windows.TOTAL | windows.WHOLE


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_measured_and_its_view_compared(name):
    verdict = Verdict()

    row = windows.measure(verdict, name, CALLS[name], 4000, near_end=name in windows.SUFFIX, seed=3)

    assert row["changed results"] > 0 or name in windows.TOTAL
    assert verdict.comparisons == 1
    assert not verdict.differences


def test_a_step_replaces_half_of_its_rows():
    table = windows.Stream(100, 0, seed=1).change()

    assert table.num_rows == windows.CHANGES
    assert sum(table["weight"].to_pylist()) == 0
