"""For the tests of benchmarks: the collections of garbage that they ask for are cheap."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def small_collections() -> Iterator[None]:
    """Collections visit only objects of this test.

    Benchmarks collect garbage before they measure. In a process of pytest, a collection visits the
    objects of all modules and earlier tests, which takes longer than the runs that are measured.
    """
    gc.freeze()
    yield
    gc.unfreeze()
