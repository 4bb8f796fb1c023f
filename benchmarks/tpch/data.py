"""Tables of TPC-H, made by ``tpchgen-cli``, a package of the extra ``bench``.

A scale always has the same rows. They are written as Parquet files once, and a process reads only
the relations of its queries.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tpch.queries import QUERIES, SCHEMAS

GENERATOR: Final = Path(sys.executable).with_name("tpchgen-cli")


def write_files(folder: Path, scale: float) -> Path:
    """Write the files of a scale in a subfolder, unless they are there; return the subfolder."""
    files = folder / f"scale-{scale:g}"
    if all((files / f"{name}.parquet").exists() for name in SCHEMAS):
        return files
    if not GENERATOR.is_file():
        raise FileNotFoundError(f"{GENERATOR} does not exist; install the PyPI package tpchgen-cli")
    command = [str(GENERATOR), "parquet", "-s", f"{scale:g}", f"--output-dir={files}"]
    subprocess.run(command, check=True, capture_output=True)
    return files


def read_table(files: Path, name: str) -> pa.Table:
    """Read a relation as one chunk, with columns that are not null."""
    schema = pa.schema([field.with_nullable(False) for field in SCHEMAS[name]])
    return pq.read_table(files / f"{name}.parquet").cast(schema).combine_chunks()


def read_tables(files: Path, names: Sequence[str] = tuple(SCHEMAS)) -> dict[str, pa.Table]:
    """Read some relations."""
    return {name: read_table(files, name) for name in names}


def relations_of(numbers: Sequence[int]) -> list[str]:
    """Return the relations that some queries read.

    >>> relations_of([6]), relations_of([4, 6])
    (['lineitem'], ['orders', 'lineitem'])
    """
    words = {word for number in numbers for word in re.findall(r"\w+", QUERIES[number])}
    return [name for name in SCHEMAS if name in words]


def program(numbers: Sequence[int]) -> str:
    """Return a program with a view ``q1``, ``q2``, ... for each of some queries."""
    return "\n".join(f"CREATE VIEW q{number} AS {QUERIES[number]};" for number in numbers)


def schemas_of(numbers: Sequence[int]) -> dict[str, pa.Schema]:
    """Return the schemas of the relations that some queries read, with columns not null."""
    return {
        name: pa.schema([field.with_nullable(False) for field in SCHEMAS[name]])
        for name in relations_of(numbers)
    }
