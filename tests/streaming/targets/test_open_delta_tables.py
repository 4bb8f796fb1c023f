"""Delta tables that stay open, also when another table replaces one while it is in use."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from streaming.targets.open_delta_tables import OpenDeltaTables

deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install -e '.[sinks]'")


def write(path: str, *numbers: int) -> None:
    deltalake.write_deltalake(path, pa.table({"n": numbers}), mode="append")


@pytest.mark.parametrize("commits", [1, 2])
def test_a_table_that_is_replaced_while_it_is_in_use_is_opened_again(tmp_path, commits):
    path, tables = str(tmp_path / "t"), OpenDeltaTables()
    write(path, 1)
    table = tables.take(path)
    shutil.rmtree(path)
    for number in range(commits):
        write(path, 2 + number)
    tables.keep(path, table)
    write(path, 9)
    rows = tables.take(path).to_pyarrow_table()["n"].to_pylist()
    assert sorted(rows) == [*range(2, 2 + commits), 9]


def test_a_table_stays_open_over_the_commits_of_its_user_and_of_others(tmp_path):
    path, tables = str(tmp_path / "t"), OpenDeltaTables()
    write(path, 1)
    table = tables.take(path)
    deltalake.write_deltalake(table, pa.table({"n": [2]}), mode="append")
    tables.keep(path, table)
    write(path, 3)
    again = tables.take(path)
    assert again is table
    assert sorted(again.to_pyarrow_table()["n"].to_pylist()) == [1, 2, 3]
