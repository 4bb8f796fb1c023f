"""Session: start a local Spark session with settings for small micro-batches.

The most important setting is the checkpoint file manager: the default one runs shell commands on a
local disk, about 100 ms for every micro-batch. The setting is correct for a local file system only;
on HDFS or an object store start your own session without it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from streaming.errors import StreamingError
from streaming.java import use_java

__all__ = ["SETTINGS", "start_session"]

#: The last lines of Java's output in the error when Spark does not start.
MAX_LOG_LINES: Final = 10

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.driver.maxResultSize": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_session(
    name: str,
    *,
    cores: int | None = None,
    memory: str = "2g",
    log: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Start a local Spark session, on an installed Java or the one of the extra.

    Args:
        name: The application's name.
        cores: Threads of Spark; by default one for each core of the machine.
        memory: Heap of the JVM. It does not include the state of the views.
        log: File for the standard error of Java; None to leave it unchanged.
        settings: Further Spark settings; they override ``SETTINGS``.

    Raises:
        JavaMissingError: No Java 17 or newer was found.
        StreamingError: Spark did not start.
    """
    java = use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Python tasks run in this Python, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = cores or os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    all_settings = {
        **SETTINGS,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(cores),
        **settings,
    }
    for key, value in all_settings.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports a stopped JVM as an error
    try:
        with _standard_error_to(log) if log else nullcontext():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        java_output = log.read_text(errors="replace").splitlines() if log else []
        raise StreamingError(
            "\n".join([f"Spark did not start with {java}: {error}", *java_output[-MAX_LOG_LINES:]])
        ) from error


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Redirect standard error in the context; processes started in it keep the redirection."""
    sys.stderr.flush()
    original = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
