"""Checkpoint: the id of a query and the times of its micro-batches, as Spark stores them.

The file ``metadata`` has the id of the query, which is the same after a restart. Spark writes
``offsets/<batch id>``, with the watermark and the time of planning, before the micro-batch starts.
So a replay reads the same times.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final

from streaming.errors import StateError
from streaming.state.files import read_small_file
from streaming.state.open_files import open_files

__all__ = ["Checkpoint"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Checkpoint:
    """The checkpoint directory of a query.

    Args:
        location: As for ``ViewSink(state_dir=...)``.
    """

    def __init__(self, location: str) -> None:
        self._location = location

    @property
    def query_id(self) -> str:
        """The id of the query.

        Raises:
            StateError: The directory is not a checkpoint.
        """
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._invalid_file("metadata", error) from error

    def watermark(self, batch_id: int) -> datetime | None:
        """Return the watermark of a micro-batch; None if the stream has none.

        Raises:
            StateError: The directory is not a checkpoint, or has no entry for the micro-batch.
        """
        milliseconds = self._milliseconds(batch_id, "batchWatermarkMs")
        try:
            return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None
        except OverflowError as error:
            raise self._invalid_file(f"offsets/{batch_id}", error) from error

    def planned_ms(self, batch_id: int) -> int:
        """Return when Spark planned a micro-batch, in milliseconds since 1970.

        A micro-batch that Spark repeats has the same time.

        Raises:
            StateError: See `watermark`.
        """
        return self._milliseconds(batch_id, "batchTimestampMs")

    def _milliseconds(self, batch_id: int, name: str) -> int:
        file = f"offsets/{batch_id}"
        try:
            # The lines: the version of the format, the micro-batch, the offsets of each source.
            _, micro_batch, *_ = self._read(file).splitlines()
            return int(json.loads(micro_batch).get(name, 0))
        except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise self._invalid_file(file, error) from error

    def _invalid_file(self, name: str, error: Exception) -> StateError:
        return StateError(
            f"checkpoint {self._location}: {name} does not have the format of Spark "
            f"({type(error).__name__}: {error}): put a copy of the checkpoint back"
        )

    def _read(self, name: str) -> str:
        try:
            return read_small_file(open_files(self._location), name).decode()
        except OSError as error:
            raise StateError(
                f"checkpoint {self._location} has no file {name} ({error}): give ViewSink("
                "checkpoint=...) the directory that the query has as checkpointLocation"
            ) from error
