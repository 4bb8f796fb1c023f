"""Metrics file: a line for each micro-batch, in ``metrics.jsonl``.

Before a line is added to a file that has grown beyond `MAX_METRICS_FILE_BYTES`, it is renamed to
``metrics.jsonl.1``, in place of an earlier one. So each exceeds that size by at most a line.
"""

from __future__ import annotations

import contextlib
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

        A file that is too long is renamed first. So it does not grow while this fails.

        Raises:
            OSError: The file system failed; the line was not added.
            StateDamagedError: It is not a regular file.
        """
        if self._bytes > MAX_METRICS_FILE_BYTES:
            with contextlib.suppress(FileNotFoundError):  # it was removed by hand
                self._files.rename(METRICS_FILE, f"{METRICS_FILE}.1")
            self._bytes = 0
        self._files.append(METRICS_FILE, line)
        self._bytes += len(line)
