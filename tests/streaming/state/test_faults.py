"""Random faults of state directories lead to a correct answer or a typed error."""

from __future__ import annotations

import os

import pytest

from tests.support.state_faults import trials

SEED = int(os.environ.get("DBSP_WCOJ_SEED", "0"))


def test_some_faults_are_harmless_or_typed_errors_that_can_be_undone():
    outcomes, findings = trials(range(SEED, SEED + 12))
    assert not findings, "\n".join(findings)
    assert outcomes.total() == 12


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_faults_are_harmless_or_typed_errors_that_can_be_undone(part):
    first = SEED + 100 * part
    outcomes, findings = trials(range(first, first + 100))
    assert not findings, "\n".join(findings)
    assert any("refused" in outcome for outcome in outcomes)
    assert any("unharmed" in outcome for outcome in outcomes)
