"""Relations: how soon the traces of a step merge their runs."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Relations, ZSet
from dbsp_wcoj.storage.spine import MIN_UNREAD_ROWS

ROWS = MIN_UNREAD_ROWS + 1000


def large_delta(first: int) -> ZSet:
    """Return rows (x, x mod 100) that no other delta has."""
    numbers = np.arange(first, first + ROWS)
    return ZSet.from_columns([numbers, numbers % 100])


@pytest.mark.parametrize(
    ("query", "labels", "runs"),
    [
        ("n(c) :- e(a, b), label(b, c)", 10, 3),
        ("n(c) :- e(a, b), label(b, c)", ROWS, 1),
        ("n(c) :- e(a, b), e(b, d), label(b, c)", 10, 1),
    ],
    ids=["few lookups", "many lookups", "the delta reads its own relation"],
)
def test_large_deltas_remain_separate_runs_if_few_lookups_read_them(query, labels, runs):
    relations = Relations()
    view = DeltaQuery(query, relations=relations)
    total = ZSet.empty(1)
    for number in range(3):
        names = np.arange(labels) + 10**6 * number
        deltas = {
            "e": large_delta(10**7 * (number + 1)),
            "label": ZSet.from_columns([names % 7, names]),
        }
        step = relations.stage(deltas)
        total = total + view.evaluate(step)
        step.commit()
    spines = [arrangement.spine for arrangement in relations.traces["e"].arrangements]
    assert [len(spine.runs) for spine in spines] == [runs] * len(spines)
    if "d" not in query:
        edges = np.bincount(
            np.concatenate([large_delta(10**7 * (n + 1)).row_array[1] for n in range(3)])
        )
        expected = {
            (10**6 * n + i,): int(edges[(10**6 * n + i) % 7])
            for n in range(3)
            for i in range(labels)
        }
        assert total.to_dict() == expected
