"""Dead letter files: the rejected rows of a state directory, one file for each micro-batch.

An attempt at a micro-batch with rejected rows writes ``dead_letters/<batch id>-<attempt>.parquet``
before the commit. So no attempt changes the file of another one, even that of another writer. The
manifest names the file of the attempt that was committed; the files of others are removed with the
unused files of versions (`streaming.state.versions`). Earlier releases wrote
``dead_letters/<batch id>.parquet``.

The files remain when their version is removed. After each commit the oldest files are removed until
the others fit `DeadLetterRetention`; the file of the committed micro-batch always remains. On a
local disk, a reader that has a removed file open can still read it.

Only files with such a name are removed. The time of a file is that of its last change. A file
counts as at least `MIN_FILE_BYTES`, because it takes so much on most disks; so a limit of the size
also limits the number of files.

Cost: the folder is listed at the first commit after the directory is opened. A commit removes at
most `MAX_REMOVED_AT_ONCE` files; the next commits remove the others.
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
from streaming.state.files import Files, FileStatus, remove_files

__all__ = [
    "DEAD_LETTERS_FOLDER",
    "DEFAULT_RETENTION",
    "DeadLetterFiles",
    "DeadLetterRetention",
    "dead_letter_name",
    "find_batch_id",
]

DEAD_LETTERS_FOLDER: Final = "dead_letters"
MIN_FILE_BYTES: Final = 1 << 12
MAX_REMOVED_AT_ONCE: Final = 1000
_FILE_NAME: Final = re.compile(rf"{DEAD_LETTERS_FOLDER}/([0-9]{{20}})(-[0-9a-z]+)?\.parquet")

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
        self._is_read = False

    def forget(self) -> None:
        """Forget which files exist; the next commit lists them."""
        self._is_read = False

    def after_commit(self, batch_id: int, name: str | None, size: int) -> None:
        """Record the file of a committed micro-batch, and remove files beyond the retention.

        Args:
            batch_id: The micro-batch.
            name: The name of its file; None if it has none.
            size: The size of this file in bytes.
        """
        now, expired = time.time(), list[str]()
        try:
            if not self._is_read:
                self._read()
            elif name is not None:
                self._add(FileStatus(name, size, now))
            first_kept = f"{DEAD_LETTERS_FOLDER}/{batch_id:020}"
            for old, status in list(islice(self._known.items(), MAX_REMOVED_AT_ONCE)):
                if old >= first_kept or not self._is_expired(status, now):
                    break
                self._forget(old)
                expired.append(old)
            self.removed = self._remove(expired)
        except (OSError, StateDamagedError) as error:  # the next commit tries again
            self.removed = 0
            location = self._directory.location
            log.warning("old dead letters in %s could not be listed: %s", location, error)

    def _read(self) -> None:
        """List the existing files, that of a committed micro-batch included."""
        statuses = self._directory.list_files(DEAD_LETTERS_FOLDER)
        self._known.clear()
        self.bytes = 0
        for status in statuses:
            if _FILE_NAME.fullmatch(status.name):
                self._add(status)
        self._is_read = True

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
        """Remove files; return their number, or 0 if some may remain."""
        location = self._directory.location
        try:
            remove_files(self._directory, names)
        except (OSError, StateDamagedError) as error:  # the next start tries again
            log.warning("old dead letters in %s could not be removed: %s", location, error)
            return 0
        if names:
            log.info("removed %d old files of dead letters from %s", len(names), location)
        return len(names)


def dead_letter_name(stem: str) -> str:
    """Return the name of the file with the dead letters of an attempt at a micro-batch.

    Args:
        stem: The batch id in 20 digits, ``-``, and a name of the attempt.
    """
    return f"{DEAD_LETTERS_FOLDER}/{stem}.parquet"


def find_batch_id(name: str) -> int | None:
    """Return the batch id in the name of a file that this release may remove, else None.

    The files of earlier releases have no name of an attempt, so it is unknown whether they are of
    a committed one.

    >>> find_batch_id(dead_letter_name("00000000000000000007-c1f78a08aaf0"))
    7
    """
    match = _FILE_NAME.fullmatch(name)
    return None if match is None or match[2] is None else int(match[1])
