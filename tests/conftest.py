"""For all tests: one Spark session for the whole run, and how Hypothesis draws its examples.

A plain run draws the same examples every time, so that a failure is due to a change. With
``--examples N`` (``make test-slow``) every property test draws N times as many, from random seeds;
a failing example that it finds becomes an ``@example`` or a test of its own.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.class_archive import use_class_archive
from tests.support.databases import database, postgres, postgres_server

if TYPE_CHECKING:  # the tests of dbsp_wcoj and circuits run without Spark
    from pyspark.sql import SparkSession

__all__ = ["database", "postgres", "postgres_server"]  # fixtures of all modules

# No deadline: the first call of a kernel compiles or loads it, in whichever test makes the call.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--examples",
        type=int,
        metavar="N",
        help="draw N times as many examples in each property test, from random seeds",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="draw a tenth of the examples and leave out tests marked spark or thorough",
    )
    parser.addoption(
        "--spark-memory",
        default="1g",
        metavar="SIZE",
        help="heap of the JVM of Spark; the slow tests of values of 10 MB need 6g",
    )


def pytest_configure(config: pytest.Config) -> None:
    # With the default of 700 new objects, collections of garbage take a noticeable part of the
    # CPU time.
    gc.set_threshold(20_000, 10, 10)
    use_class_archive()
    settings.load_profile("random" if config.getoption("examples") else "fixed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    factor = config.getoption("examples")
    if config.getoption("quick"):
        factor = 0.1
        left_out = [
            item
            for item in items
            if item.get_closest_marker("spark") or item.get_closest_marker("thorough")
        ]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    done: set[object] = set()  # the items of a parametrized test share its function
    for item in items if factor else []:
        function = getattr(item, "obj", None)
        function = getattr(function, "__func__", function)
        own_settings = getattr(function, "_hypothesis_internal_use_settings", None)
        if own_settings is not None and function not in done:
            done.add(function)
            new_settings = settings(
                own_settings, max_examples=max(1, round(factor * own_settings.max_examples))
            )
            function._hypothesis_internal_use_settings = new_settings


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkSession]:
    from streaming import start_session
    from tests.support.spark_settings import SMALL_JVM

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start_session(
        "tests",
        cores=2,
        memory=request.config.getoption("spark_memory"),
        log=log,
        settings=SMALL_JVM,
    )
    yield session
    session.stop()
