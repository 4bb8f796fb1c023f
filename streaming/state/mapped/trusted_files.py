"""Trusted files: the mapped files that a restart verifies in the background.

To verify a file, its checksum is computed, which reads all of the file. For state larger than
memory this takes long. So the file ``verified.json`` of the directory records the identity of each
mapped file that this library has written or verified: its size, its checksum, its inode, and the
time of its last change. A write to the file changes that time. A restart maps a file that
still has the recorded identity without reading it. A thread verifies the file meanwhile, and the
first commit waits for the thread, so nothing that was computed from unverified rows is committed.

All other files are verified before they are used, for example those of a copied directory.
``verified.json`` may be missing or outdated at any time; then more files are verified first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.storage.run import Run
from streaming.errors import StateDamagedError
from streaming.state import compaction
from streaming.state.checksums import decode_checked, encode_checked, parse_int64, parse_items
from streaming.state.files import Files, MappableFiles, read_small_file
from streaming.state.manifest import FileChecksum
from streaming.state.mapped.unreadable_pages import guard_reads
from streaming.state.segment import decode_segment
from streaming.state.segment_references import SegmentReference
from streaming.state.verified_files import find_part, map_verified

__all__ = ["Identity", "RunFile", "TrustedFiles", "Verification", "verify"]

FILE: Final = "verified.json"

log = logging.getLogger(__name__)

#: The size, the checksum, the inode and the time of the last change.
Identity = tuple[int, ...]


class TrustedFiles:
    """The recorded identities of files.

    Args:
        files: The directory.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._identities: dict[str, Identity] = {}

    def read(self) -> None:
        """Read the record; if it is missing or damaged, no file is trusted."""
        try:
            body = decode_checked(read_small_file(self._files, FILE), FILE)
            self._identities = {
                name: tuple(parse_int64(number) for number in identity)
                for name, identity in parse_items(body.get("files"))
            }
        except (OSError, StateDamagedError, ValueError, TypeError):
            self._identities = {}

    def __contains__(self, entry: tuple[str, Identity]) -> bool:
        """Return whether a file of this name and identity is recorded."""
        name, identity = entry
        return self._identities.get(name) == identity

    def record(self, identities: Mapping[str, Identity]) -> None:
        """Replace the record if it differs; an error is logged."""
        if identities == self._identities:
            return
        self._identities = dict(identities)
        try:
            # Not synced: after a crash, files that are not recorded are read at the start.
            self._files.remove(f"{FILE}.tmp")
            self._files.write(f"{FILE}.tmp", [encode_checked({"files": identities})])
            self._files.rename(f"{FILE}.tmp", FILE)
        except OSError as error:
            log.warning(
                "%s in %s was not written, so the next start takes longer: %s",
                FILE,
                self._files.location,
                error,
            )


@dataclass(frozen=True)
class RunFile:
    """The runs of a version in one file.

    Attributes:
        name: The name of the file.
        checksum: The checksum of the file in the manifest.
        runs: The name and the reference of each part that is a run.
    """

    name: str
    checksum: FileChecksum
    runs: Sequence[tuple[str, SegmentReference]]


class Verification:
    """Verifies files in a thread.

    Args:
        files: The directory.
        unverified: The files to verify.
    """

    def __init__(self, files: MappableFiles, unverified: Sequence[RunFile]) -> None:
        self._files = files
        self._unverified = unverified
        self._error: BaseException | None = None
        self._must_stop = False
        self._thread = compaction.start_thread(self._run)

    def finish(self) -> None:
        """Wait until all files are verified.

        Raises:
            StateDamagedError: A file is damaged.
            OSError: A file cannot be read.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._must_stop = True
        self._thread.join()

    def _run(self) -> None:
        try:
            for file in self._unverified:
                if self._must_stop:
                    return
                with guard_reads():
                    verify(self._files, file)
        except BaseException as error:
            self._error = error


def verify(files: MappableFiles, file: RunFile) -> None:
    """Check a file of runs against its checksum, and check the structure of its runs; O(bytes).

    The file is read in order, and only a part of it is in memory at a time.

    Raises:
        StateDamagedError: The file is damaged.
        OSError: The file cannot be read.
    """
    mapped = map_verified(files, file.name, file.checksum)
    path = f"{files.location}/{file.name}"
    parts = decode_segment(mapped.memory, path)
    for name, reference in file.runs:
        part = find_part(files, parts, reference, name)
        try:
            damage = Run.from_words(part.words).find_damage(mapped.release_pages)
        except DbspWcojError as error:
            damage = str(error)
        if damage:
            raise StateDamagedError(f"{path}: {name!r} is not a run: {damage}")
