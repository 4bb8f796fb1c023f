"""Running best, against a loop over iterations, for weights of any sign."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj.kernels.values.running_best import change_improvements

ITERATIONS = 4
Candidate = tuple[int, int, int]  # key, value, iteration
WEIGHT = st.integers(-2, 2)


def improvements(weights: dict[Candidate, int]) -> dict[Candidate, None]:
    """Return the candidates that lower the least value of their key, iteration by iteration."""
    improved = {}
    best: dict[int, int] = {}
    for iteration in range(ITERATIONS):
        for key, value in sorted({row[:2] for row in weights}):
            total = sum(weights.get((key, value, i), 0) for i in range(iteration + 1))
            if total > 0 and value < best.get(key, value + 1):
                best[key] = value
                improved[key, value, iteration] = None
    return improved


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(0, ITERATIONS - 1)),
        st.tuples(WEIGHT, WEIGHT),
        max_size=12,
    )
)
def test_the_changes_are_those_between_two_naive_evaluations(weights):
    candidates = sorted(weights)
    rows = np.array(candidates, np.int64).reshape(-1, 3).T.copy()
    old, new = np.array([weights[row] for row in candidates], np.int64).reshape(-1, 2).T.copy()
    size = len(candidates)
    positions, signs = np.empty((2, size), np.int64)
    best_positions, best_signs = np.empty((2, 2 * size), np.int64)
    count, best_count, is_overflow = change_improvements(
        rows[0], rows[1:], old, new, positions, signs, best_positions, best_signs
    )
    assert not is_overflow
    expected: Counter[Candidate] = Counter()
    expected_best: Counter[tuple[int, int]] = Counter()
    for sign, column in ((1, 1), (-1, 0)):
        improved = improvements({row: pair[column] for row, pair in weights.items()})
        expected.update(dict.fromkeys(improved, sign))
        for key, values in groupby(sorted(improved), lambda row: row[0]):
            expected_best[key, min(value for _, value, _ in values)] += sign
    changes = {
        candidates[position]: sign
        for position, sign in zip(positions[:count].tolist(), signs.tolist(), strict=False)
    }
    assert changes == {row: sign for row, sign in expected.items() if sign}
    best_changes = {
        candidates[position][:2]: sign
        for position, sign in zip(
            best_positions[:best_count].tolist(), best_signs.tolist(), strict=False
        )
    }
    assert best_changes == {row: sign for row, sign in expected_best.items() if sign}
