"""The benchmark of TPC-H at a small scale: each part measures exact views."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tpch import loading
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
    assert not loading.find_failures([row])


def test_a_difference_from_duckdb_is_found() -> None:
    assert not loading.same_rows({(1, 0.5): 1}, {(1, 0.6): 1})
    assert not loading.same_rows({(1, 0.5): 1}, {(1, 0.5): 2})
    assert loading.find_failures([{"query": "3", "as DuckDB": False}]) == ["3"]
