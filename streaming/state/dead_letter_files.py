"""Dead letter files: the rejected rows of a state directory, one file for each micro-batch.

A micro-batch with rejected rows writes ``dead_letters/<batch id>.parquet``. No manifest names these
files, so they remain when their version is removed. After each commit the oldest files are removed
until the others fit `DeadLetterRetention`; the file of the committed micro-batch always remains. On
a local disk, a reader that has a removed file open can still read it.

Only files with such a name are removed. The time of a file is that of its last change. A file
counts as at least `MIN_FILE_BYTES`, because it takes so much on most disks; so a limit of the size
also limits the number of files.

Cost: the folder is listed when the directory is opened. A commit removes at most
`MAX_REMOVED_AT_ONCE` files; the next commits remove the others.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Final

from streaming.errors import StateDamagedError, StateError
from streaming.state.files import Files, FileStatus

__all__ = [
    "DEAD_LETTERS_FOLDER",
    "DEFAULT_RETENTION",
    "DeadLetterFiles",
    "DeadLetterRetention",
    "dead_letter_file",
]

DEAD_LETTERS_FOLDER: Final = "dead_letters"
MIN_FILE_BYTES: Final = 1 << 12
MAX_REMOVED_AT_ONCE: Final = 1000
_FILE_NAME: Final = re.compile(rf"{DEAD_LETTERS_FOLDER}/[0-9]{{20}}\.parquet")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadLetterRetention:
    """How long, and up to which size, the files of dead letters are kept.

    Attributes:
        max_age: A file is removed when it is older; None for no limit.
        max_bytes: The oldest files are removed when all files together are larger; None for no
            limit.

    Raises:
        StateError: A limit is not positive.

    >>> DeadLetterRetention(max_age=timedelta(days=7), max_bytes=None).max_age.days
    7
    """

    max_age: timedelta | None = timedelta(days=30)
    max_bytes: int | None = 1 << 30

    def __post_init__(self) -> None:
        if self.max_age is not None and self.max_age <= timedelta(0):
            raise StateError(
                f"DeadLetterRetention(max_age={self.max_age!r}): give a positive timedelta, or "
                "None to keep dead letters of any age"
            )
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise StateError(
                f"DeadLetterRetention(max_bytes={self.max_bytes!r}): give a positive number of "
                "bytes, or None to keep any number of dead letters"
            )


DEFAULT_RETENTION: Final = DeadLetterRetention()


class DeadLetterFiles:
    """The files of dead letters of a state directory that this process writes.

    Args:
        files: The directory.
        retention: Which files to keep.

    Attributes:
        removed: The number of files that the last commit removed.
        bytes: The bytes of the files that exist; each counts as at least `MIN_FILE_BYTES`.
    """

    def __init__(self, files: Files, retention: DeadLetterRetention) -> None:
        self.removed = 0
        self._directory = files
        self._retention = retention
        self._known: dict[str, FileStatus] = {}  # oldest first
        self.bytes = 0

    def read(self) -> None:
        """List the existing files.

        Raises:
            OSError: The file system failed.
            StateDamagedError: The folder is a link.
        """
        self._known.clear()
        self.bytes = 0
        for status in self._directory.list_files(DEAD_LETTERS_FOLDER):
            if _FILE_NAME.fullmatch(status.name):
                self._add(status)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def after_commit(self, batch_id: int, size: int | None) -> None:
        """Record the file of a committed micro-batch, and remove files beyond the retention.

        Args:
            batch_id: The micro-batch.
            size: The size of its file in bytes; None if it has none.
        """
        current, now = dead_letter_file(batch_id), time.time()
        self._forget(current)  # an attempt that was not committed may have left it
        if size is not None:
            self._add(FileStatus(current, size, now))
        expired: list[str] = []
        for name, status in list(islice(self._known.items(), MAX_REMOVED_AT_ONCE)):
            if name >= current or not self._is_expired(status, now):
                break
            self._forget(name)
            expired.append(name)
        self.removed = self._remove(expired)

    def _is_expired(self, oldest: FileStatus, now: float) -> bool:
        """Return whether to remove the oldest file."""
        max_age, max_bytes = self._retention.max_age, self._retention.max_bytes
        if max_age is not None and now - oldest.modified > max_age.total_seconds():
            return True
        return max_bytes is not None and self.bytes > max_bytes

    def _add(self, status: FileStatus) -> None:
        self._known[status.name] = status
        self.bytes += max(status.size, MIN_FILE_BYTES)

    def _forget(self, name: str) -> None:
        status = self._known.pop(name, None)
        if status is not None:
            self.bytes -= max(status.size, MIN_FILE_BYTES)

    def _remove(self, names: list[str]) -> int:
        """Remove files; return their number."""
        location, removed = self._directory.location, 0
        try:
            for name in names:
                self._directory.remove(name)
                removed += 1
        except (OSError, StateDamagedError) as error:  # the next start tries again
            log.warning("old dead letters in %s could not be removed: %s", location, error)
        if removed:
            log.info("removed %d old files of dead letters from %s", removed, location)
        return removed


def dead_letter_file(batch_id: int) -> str:
    """Return the name of the file with the dead letters of a micro-batch."""
    return f"{DEAD_LETTERS_FOLDER}/{batch_id:020}.parquet"
