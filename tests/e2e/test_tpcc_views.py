"""Generated view queries over the TPC-C schema, maintained, against DuckDB after every step.

The tables arrive in two parts, and then a third of the rows is deleted. The normal run takes one
query of each shape, the slow run as many as the suites that other engines publish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import duckdb
import numpy as np
import pytest

from circuits import compile_sql
from circuits.errors import SqlError
from tests.generators.tpcc import order_processing
from tests.generators.tpcc_queries import SHAPES, write_queries
from tests.oracles.duckdb_mirror import Mirror
from tests.support.comparison import add_changes, comparable

TABLES = order_processing(seed=1)
SCHEMAS = {name: rows.schema for name, rows in TABLES.items()}
#: The number of queries of the largest published suite.
PUBLISHED_COUNT: Final = 2451


def valid_queries(seed: int, count: int) -> Iterator[str]:
    """Yield different queries that DuckDB accepts."""
    database = duckdb.connect(config={"threads": 1})
    for name, rows in TABLES.items():
        database.register(name, rows)
    texts = set()
    for _, text in write_queries(seed, count):
        try:
            if text not in texts:
                database.execute(text)
                yield text
        except duckdb.Error:
            pass
        texts.add(text)


def published_count_of_queries() -> list[str]:
    queries = valid_queries(seed=2, count=PUBLISHED_COUNT + PUBLISHED_COUNT // 10)
    return list(queries)[:PUBLISHED_COUNT]


def check(texts: Iterable[str]) -> None:
    """Compare the views of texts with DuckDB after every step.

    All views share the steps, so that DuckDB stores the rows of a step once.
    """
    circuits = {text: compile_sql(text, SCHEMAS) for text in texts}
    totals: dict[str, Counter[tuple[Any, ...]]] = {text: Counter() for text in circuits}
    mirror = Mirror(TABLES)
    random = np.random.default_rng(1)
    order = {name: random.permutation(rows.num_rows) for name, rows in TABLES.items()}
    parts = {name: np.array_split(numbers, 2) for name, numbers in order.items()}
    for step in range(3):
        if step < 2:
            deltas = mirror.insert({name: part[step] for name, part in parts.items()})
        else:
            deltas = mirror.delete({name: o[: len(o) // 3] for name, o in order.items()})
        for text, circuit in circuits.items():
            totals[text] = add_changes(totals[text], circuit.step(deltas)["view"])
            assert totals[text] == Counter(map(comparable, mirror.answer(text))), (step, text)


def compiles(text: str) -> bool:
    try:
        compile_sql(text, SCHEMAS)
    except SqlError:
        return False
    return True


def test_a_query_of_each_shape_is_exact_after_every_step():
    texts = list(valid_queries(seed=5, count=len(SHAPES)))
    assert len(texts) > 0.9 * len(SHAPES)
    check(texts)


@pytest.mark.slow
def test_nearly_all_of_many_queries_compile():
    refused = {}
    texts = published_count_of_queries()
    for text in texts:
        try:
            compile_sql(text, SCHEMAS)
        except SqlError as error:
            refused[text] = str(error)
    assert len(refused) < 0.01 * len(texts), refused


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_queries_are_exact_after_every_step(part):
    check(filter(compiles, published_count_of_queries()[part::20]))
