"""Metrics file: a line for each micro-batch, in ``metrics.jsonl``.

A file that has grown beyond `MAX_METRICS_FILE_BYTES` is renamed to ``metrics.jsonl.1``, in place of
an earlier one. So both together stay below twice that size.
"""

from __future__ import annotations

from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import Files

__all__ = ["METRICS_FILE", "MetricsFile"]

METRICS_FILE: Final = "metrics.jsonl"
MAX_METRICS_FILE_BYTES: Final = 16 << 20  # a longer file is renamed to metrics.jsonl.1


class MetricsFile:
    """The metrics of a state directory that this process writes.

    Args:
        files: The directory.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._bytes = 0

    def read_size(self) -> None:
        """Read the size that an earlier process left.

        Raises:
            OSError: The file system failed.
        """
        try:
            self._bytes = self._files.size(METRICS_FILE) or 0
        except StateDamagedError:  # not a regular file; `append` raises the error
            self._bytes = 0

    def append(self, line: str) -> None:
        """Add a line; a crash may lose it.

        Raises:
            OSError: The file system failed.
            StateDamagedError: It is not a regular file.
        """
        self._files.append(METRICS_FILE, line)
        self._bytes += len(line)
        if self._bytes > MAX_METRICS_FILE_BYTES:
            self._files.rename(METRICS_FILE, f"{METRICS_FILE}.1")
            self._bytes = 0
