"""TPC-DS: all 99 queries, maintained over three loads and a delete, against DuckDB.

The data (scale 0.01) and the texts come from DuckDB's extension, which is installed from the
package index into an environment of its own, with the version of DuckDB that it needs. The tests
are skipped if it cannot be installed. Every text compiles as written; the rows are compared without
the last LIMIT, because the order of a LIMIT 100 has ties.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import compile_sql
from tests.oracles.duckdb_mirror import Mirror
from tests.support.comparison import add_changes, comparable

pytestmark = pytest.mark.slow

PACKAGE = "duckdb-extension-tpcds"
QUERIES = range(1, 100)
GENERATE = """
import glob, json, os, sys
import duckdb, duckdb_extension_tpcds
folder = os.path.dirname(duckdb_extension_tpcds.__file__)
(extension,) = glob.glob(os.path.join(folder, "extensions", "*", "tpcds.duckdb_extension"))
database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
database.execute(f"LOAD '{extension}'")
database.execute("CALL dsdgen(sf=0.01)")
for (table,) in database.execute("SELECT table_name FROM information_schema.tables").fetchall():
    database.execute(f"COPY {table} TO '{sys.argv[1]}/{table}.parquet'")
queries = dict(database.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
with open(f"{sys.argv[1]}/queries.json", "w") as file:
    json.dump(queries, file)
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    """The generated tables and texts; generated once per machine."""
    cache = Path(tempfile.gettempdir()) / "dbsp-wcoj-tpcds"
    if not (cache / "queries.json").exists():
        with tempfile.TemporaryDirectory() as environment:
            python = f"{environment}/bin/python"
            try:
                subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
                install = [python, "-m", "pip", "-q", "install", PACKAGE]
                subprocess.run(install, check=True, timeout=600, capture_output=True)
                cache.mkdir(exist_ok=True)
                subprocess.run([python, "-c", GENERATE, str(cache)], check=True, timeout=600)
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"{PACKAGE} cannot be installed: {error}")
    return cache


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, pa.Table]:
    return {file.stem: pq.read_table(file) for file in sorted(folder.glob("*.parquet"))}


@pytest.fixture(scope="module")
def texts(folder: Path) -> dict[int, str]:
    queries = json.loads((folder / "queries.json").read_text())
    return {int(number): text.strip().rstrip(";") for number, text in queries.items()}


def test_the_extension_has_all_queries(texts):
    assert sorted(texts) == list(QUERIES)


@pytest.mark.parametrize("number", QUERIES)
def test_a_maintained_query_is_that_of_duckdb_after_every_step(number, tables, texts):
    schemas = {name: table.schema for name, table in tables.items()}
    text = re.sub(r"\bLIMIT\s+100\s*$", "", texts[number], flags=re.IGNORECASE)
    compile_sql(texts[number], schemas)
    circuit = compile_sql(text, schemas)
    tables_used = {name: table for name, table in tables.items() if re.search(rf"\b{name}\b", text)}
    mirror = Mirror(tables_used)
    rng = np.random.default_rng(number)
    part_of_row = {name: rng.integers(0, 3, table.num_rows) for name, table in tables_used.items()}
    total: Counter[tuple[Any, ...]] = Counter()
    for step in range(4):
        if step < 3:
            deltas = mirror.insert(
                {name: np.flatnonzero(part == step) for name, part in part_of_row.items()}
            )
        else:
            deltas = mirror.delete(
                {
                    name: np.flatnonzero(rng.random(len(part)) < 0.2)
                    for name, part in part_of_row.items()
                }
            )
        total = add_changes(total, circuit.step(deltas)["view"])
        assert total == Counter(map(comparable, mirror.answer(text))), step
