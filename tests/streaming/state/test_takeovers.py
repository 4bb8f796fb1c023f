"""Several processes use one directory without a lock, and take it over from each other.

A schedule that fails prints its seed; `python -m tests.support.takeovers SEED` prints its calls.
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from streaming.state.versions import Versions
from tests.support.takeovers import play_takeovers

QUICK = 120
MANY = 5000


@pytest.mark.parametrize("objects", [False, True])
def test_no_replaced_writer_loses_or_duplicates_a_row(objects):
    outcomes = Counter()
    for seed in range(QUICK):
        outcomes.update(play_takeovers(seed, objects=objects).outcomes)
    assert outcomes["done"] > outcomes["StateLockedError"] > QUICK / 4


@pytest.mark.slow
def test_no_replaced_writer_loses_or_duplicates_a_row_in_many_schedules():
    for seed in range(QUICK, MANY):
        play_takeovers(seed)
        play_takeovers(seed, objects=True)


# Mutation tests: the schedules detect each of these defects.


def is_detected(schedules=400):
    for seed in range(schedules):
        try:
            play_takeovers(seed)
        except Exception:
            return True
    return False


def test_a_removal_without_a_check_of_the_owner_is_detected():
    original = Versions.remove_unreferenced
    with patch.object(
        Versions, "remove_unreferenced", lambda self, check: original(self, lambda: None)
    ):
        assert is_detected()
