"""For all tests: one Spark session for the whole run, and no deadline for a first call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from streaming import start_session
from streaming.demo.command import QUICK
from tests.databases import database, postgres, postgres_server

__all__ = ["database", "postgres", "postgres_server"]  # fixtures of all modules

# The first call of a kernel loads it, or compiles it, within some test's time.
settings.register_profile("engine", deadline=None)
settings.load_profile("engine")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start_session("tests", cores=2, memory="1g", log=log, settings=QUICK)
    yield session
    session.stop()
