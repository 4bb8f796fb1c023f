"""Write a change stream as files in time order, and read them with Spark's file source.

There is one Parquet file per micro-batch, written before the run. The source reads files by
modification time, so the times are set one second apart. With one file for each trigger, the batch
id is the number of the file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streaming.demo.events import ChangeStream, Integers

__all__ = ["read_files", "write_files"]

SCHEMA: Final = "src long, dst long, weight long"


def write_files(stream: ChangeStream, cuts: Integers, directory: Path) -> None:
    """Write one file for each part of the stream, which ends at a cut."""
    directory.mkdir(parents=True)
    oldest = int(time.time()) - len(cuts)
    begin = 0
    for number, end in enumerate(cuts):
        rows = slice(begin, end)
        columns = {
            "src": stream.source[rows],
            "dst": stream.target[rows],
            "weight": stream.weight[rows],
        }
        path = directory / f"{number:06d}.parquet"
        pq.write_table(pa.table(columns), path, compression="none")
        os.utime(path, (oldest + number, oldest + number))
        begin = end


def read_files(session: SparkSession, directory: Path) -> DataFrame:
    """Open the stream of the files, one for each micro-batch."""
    reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))
