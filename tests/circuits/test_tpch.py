"""TPC-H queries as views, under refreshes of the data, against DuckDB at every step."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

import pyarrow as pa
import pytest

from benchmarks.tpch.queries import QUERIES, SCHEMAS
from circuits.compile import compile_sql
from tests.generators.tpch import GENERATOR, Change, changes, generate
from tests.oracles.duckdb_mirror import Mirror

pytestmark = pytest.mark.skipif(
    not GENERATOR.is_file(),
    reason=f"no {GENERATOR.name} beside {GENERATOR.parent}; install the PyPI package tpchgen-cli",
)

Row = tuple[object, ...]


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return generate(tmp_path_factory.mktemp("tpch"))


class Bag:
    """The sum of a view's deltas."""

    def __init__(self) -> None:
        self._weights: Counter[Row] = Counter()

    def add(self, delta: pa.Table) -> None:
        for *row, weight in zip(*(column.to_pylist() for column in delta.columns), strict=True):
            self._weights[tuple(row)] += weight
        self._weights = Counter({row: w for row, w in self._weights.items() if w})

    def rows(self) -> list[Row]:
        assert all(weight > 0 for weight in self._weights.values())
        return list(self._weights.elements())


def sort_key(row: Row) -> tuple[object, ...]:
    """Return a key of the exact values of a row, and after them of its floats."""
    exact = [value for value in row if not isinstance(value, float)]
    floats = tuple(value for value in row if isinstance(value, float))
    normal = [v.normalize() if isinstance(v, Decimal) else v for v in exact]
    return repr([str(v) for v in normal]), floats


def assert_same_rows(case: str, actual: Iterable[Row], expected: Iterable[Row]) -> None:
    """Assert that the rows are equal, floats within 1e-9."""
    actual, expected = sorted(actual, key=sort_key), sorted(expected, key=sort_key)
    assert len(actual) == len(expected), case
    for row, expected_row in zip(actual, expected, strict=True):
        for value, expected_value in zip(row, expected_row, strict=True):
            if isinstance(expected_value, float):
                assert isinstance(value, float), case
                assert math.isclose(value, expected_value, rel_tol=1e-9), case
            else:
                assert value == expected_value, case


def restricted(change: Change, relations: Mapping[str, pa.Table]) -> Change:
    return {name: places for name, places in change.items() if name in relations}


def read_by(text: str, relations: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    words = set(re.findall(r"\w+", text))
    return {name: table for name, table in relations.items() if name in words}


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_follows_refreshes_of_the_data(number: int, relations: dict[str, pa.Table]) -> None:
    text = QUERIES[number]
    own = read_by(text, relations)
    mirror, bag = Mirror(own), Bag()
    circuit = compile_sql(text, {name: table.schema for name, table in own.items()})

    for step, change in changes(relations, seed=1):
        bag.add(circuit.step(mirror.change(restricted(change, own)))["view"])

        assert_same_rows(f"query {number}: {step}", bag.rows(), mirror.answer(text))


def test_all_queries_in_one_circuit_over_nullable_columns_follow_refreshes(
    relations: dict[str, pa.Table],
) -> None:
    """The views share common parts, and without constraints their plans are not simplified."""
    mirror = Mirror(relations)
    views = {f"q{number}": text for number, text in QUERIES.items()}
    bags = {name: Bag() for name in views}
    circuit = compile_sql(
        "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in views.items()), SCHEMAS
    )

    for step, change in changes(relations, seed=2):
        outputs = circuit.step(mirror.change(change))

        assert outputs.keys() == bags.keys()
        for name, bag in bags.items():
            bag.add(outputs[name])
            assert_same_rows(f"{name}: {step}", bag.rows(), mirror.answer(views[name]))
