"""Batch request: a micro-batch without rows, so that a change of the views is committed.

::

    CHECKPOINT/requests/<number>.txt     an empty file for each request

A change of the views is committed by a micro-batch (`streaming.state.program_change`), and Spark
starts a micro-batch only if a source has new data. So ``run`` adds a source to its query: the
folder of requests. A new file in this folder is new data for Spark, although it has no rows. A run
that starts with other views than those of the state creates such a file. So Spark starts a
micro-batch, also with ``--once``, that commits the change and publishes the new views, even if no
row arrives. If new views are computed in slices, each micro-batch requests the next one.

Spark does not let a query continue from a checkpoint with another number of sources. The checkpoint
of an earlier release lacks the folder of requests, so its query runs without this source, and a
change of the views waits for rows.

Alternative considered: the source of `streaming.heartbeat`. It starts a micro-batch each second, or
at each trigger, also if no view has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from circuits import Circuit
from streaming.errors import StateError
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.sink.view_sink import ViewSink
from streaming.state.files import Files
from streaming.state.program_change import newest_version

__all__ = [
    "SliceRequests",
    "accepts_requests",
    "add_request_source",
    "has_other_views",
    "request_batch",
]

FOLDER: Final = "requests"
#: The files of older requests are removed. Spark has read them long before.
MAX_REQUEST_FILES: Final = 100
#: The lines of an offset file before those of the sources: the version, and the metadata.
HEADER_LINES: Final = 2


def has_other_views(files: Files, circuit: Circuit) -> bool:
    """Return True if the newest version of a state directory has other views than a circuit.

    Raises:
        StateDamagedError: The manifest of this version is damaged.
        OSError: The directory cannot be read.
    """
    manifest = newest_version(files)
    return manifest is not None and manifest.fingerprint != circuit.fingerprint


def accepts_requests(checkpoint: Path, source_count: int) -> bool:
    """Return True if a query that continues from a checkpoint can read the folder of requests.

    Args:
        checkpoint: The folder of the checkpoint; it may not exist.
        source_count: The number of the other sources of the query.

    Raises:
        StateError: The checkpoint is that of a query with another number of sources. Spark would
            give the position of one source to another one.
        OSError: The checkpoint cannot be read.
    """
    offsets = checkpoint / "offsets"
    numbers = [file.name for file in offsets.glob("[0-9]*")] if offsets.is_dir() else []
    if not numbers:
        return True
    lines = (offsets / max(numbers, key=int)).read_text().splitlines()
    found = len(lines) - HEADER_LINES
    had_requests = found > source_count or (checkpoint / FOLDER).is_dir()
    if found != source_count + had_requests:
        earlier = found - had_requests
        raise StateError(
            f"checkpoint {checkpoint} is that of a query with {earlier} sources, and this one has "
            f"{source_count}: read the same sources, or start with a new state and checkpoint"
        )
    return had_requests


def add_request_source(stream: DataFrame, checkpoint: Path) -> DataFrame:
    """Return a streaming DataFrame with the same rows, which also reads the folder of requests.

    Raises:
        StateError: The folder of requests cannot be created.
    """
    folder = checkpoint / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"{folder} cannot be created: {error.strerror}: check the permissions of the checkpoint"
        ) from error
    requests = stream.sparkSession.readStream.text(str(folder.absolute()))
    return stream.unionByName(requests.where("false").select(), allowMissingColumns=True)


def request_batch(checkpoint: Path) -> None:
    """Make Spark start a micro-batch of a query with the DataFrame of `add_request_source`.

    Raises:
        StateError: The file of the request cannot be written.
    """
    folder = checkpoint / FOLDER
    try:
        numbers = sorted(int(file.stem) for file in folder.glob("[0-9]*.txt"))
        (folder / f"{max(numbers, default=-1) + 1}.txt").touch()
        for number in numbers[:-MAX_REQUEST_FILES]:
            (folder / f"{number}.txt").unlink(missing_ok=True)
    except OSError as error:
        raise StateError(
            f"{folder}: a file cannot be created: {error.strerror}: check the free space and the "
            "permissions"
        ) from error


class SliceRequests(SinkObserver):
    """Requests micro-batches as long as new views are computed in slices.

    Args:
        sink: The sink of the query.
        checkpoint: The folder of its checkpoint.
    """

    def __init__(self, sink: ViewSink, checkpoint: Path) -> None:
        self._sink = sink
        self._checkpoint = checkpoint

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Request the next micro-batch, unless the change of the views is committed."""
        if self._sink.is_changing:
            request_batch(self._checkpoint)
