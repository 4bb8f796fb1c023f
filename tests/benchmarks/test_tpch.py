"""The benchmark of TPC-H at a small scale: each part measures exact views."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tpch import loading, openivm, small_steps
from benchmarks.tpch.data import GENERATOR, write_files

pytestmark = pytest.mark.skipif(
    not GENERATOR.is_file(),
    reason=f"no {GENERATOR.name} beside {GENERATOR.parent}; install the PyPI package tpchgen-cli",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("tpch"), 0.01)


@pytest.mark.parametrize("slice_rows", [None, 10_000])
def test_a_load_has_the_answer_of_duckdb_in_one_step_and_in_slices(
    files: Path, slice_rows: int | None
) -> None:
    row = loading.load(files, "3", slice_rows, is_checked=True)

    assert row["as DuckDB"] is True
    assert row["rows"] == 60_175 + 15_000 + 1_500


def test_a_difference_from_duckdb_is_found() -> None:
    assert not loading.same_rows({(1, 0.5): 1}, {(1, 0.6): 1})
    assert not loading.same_rows({(1, 0.5): 1}, {(1, 0.5): 2})


def test_one_order_is_inserted_updated_and_deleted_in_all_views(files: Path) -> None:
    rows = small_steps.measure(files, 0.01, orders=2, seed=1, is_checked=True)

    assert [row["step"] for row in rows] == ["insert", "update", "delete", small_steps.IDLE]
    for row in rows:
        assert row["as DuckDB"] is True
    work = {row["step"]: (row["operators run"], row["Python calls"]) for row in rows}
    limits = {"insert": (120, 4_000), "update": (120, 4_000), "delete": (120, 4_000)}
    for step, (max_operators, max_calls) in (limits | {small_steps.IDLE: (8, 450)}).items():
        operators, calls = work[step]
        assert 0 < operators <= max_operators, step
        assert 0 < calls <= max_calls, step


@pytest.mark.parametrize("query", openivm.QUERIES)
def test_the_views_of_openivm_are_those_of_duckdb(query: str) -> None:
    row = openivm.measure(query, lineitems=40_000, batch=100, steps=4)

    assert row["as DuckDB"] is True
    assert row["DuckDB recomputes, CPU ms"] > 0
