"""Versions: the manifests of a directory, the newest few, and the files that they name.

A version that is dropped loses its manifest first, then the files that no kept version names; a
crash in between leaves files without a manifest, which `Versions.sweep` removes. While a
manifest cannot be read nothing is removed, because the files that it names are unknown.

Each version has the checksum of its parent version. So a manifest of another history, for example
from an older copy of the directory, is detected: it counts as damaged, and its successor does not.
"""

from __future__ import annotations

import logging
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import Files
from streaming.state.manifest import (
    MANIFESTS,
    Manifest,
    list_batch_ids,
    manifest_name,
    read_manifest,
)

__all__ = ["DATA", "OUTPUTS", "Versions"]

DATA: Final = "data"
OUTPUTS: Final = "outputs"

log = logging.getLogger(__name__)


class Versions:
    """The last versions in a directory, by batch id; a damaged manifest is kept as its error.

    Args:
        files: The directory.
        keep: The number of versions to keep.
    """

    def __init__(self, files: Files, keep: int) -> None:
        self._files = files
        self._keep = keep
        self._found: dict[int, Manifest | StateDamagedError] = {}
        self._forgotten: set[int] = set()
        self._swept = False

    def __contains__(self, batch_id: int) -> bool:
        return batch_id in self._found

    def __getitem__(self, batch_id: int) -> Manifest:
        """Return the version of a batch id.

        Raises:
            StateDamagedError: Its manifest is damaged.
        """
        found = self._found[batch_id]
        if isinstance(found, StateDamagedError):
            raise found
        return found

    @property
    def newest(self) -> int | None:
        """The greatest batch id; None if there is no version."""
        return max(self._found, default=None)

    @property
    def oldest(self) -> int | None:
        """The least batch id; None if there is no version."""
        return min(self._found, default=None)

    @property
    def epoch(self) -> int:
        """The greatest epoch of a writer; 0 if there is none."""
        whole = [found for found in self._found.values() if isinstance(found, Manifest)]
        return max((found.epoch for found in whole), default=0)

    def read(self, state_id: str) -> None:
        """Read the manifests.

        Args:
            state_id: The id of the directory; a manifest of another one is damaged.

        Raises:
            OSError: The file system failed.
        """
        # The rename of a process that was killed may not be durable yet.
        self._files.sync_folder(MANIFESTS)
        self._found.clear()
        self._forgotten.clear()
        for number in list_batch_ids(self._files)[-self._keep :]:
            try:
                self._found[number] = read_manifest(self._files, number, state_id=state_id)
            except StateDamagedError as error:
                self._found[number] = error
        self._check_parents()
        self._swept = False

    def sweep(self) -> None:
        """Remove the files that no manifest names, once after `read`.

        Call it only if the versions match the checkpoint: a lost manifest can be restored only
        while its files exist.
        """
        if self._swept:
            return
        self._swept = True
        damaged = any(isinstance(found, StateDamagedError) for found in self._found.values())
        if not damaged and not self._forgotten:
            self._sweep()

    def add(self, manifest: Manifest) -> None:
        """Add a new version and remove the versions beyond ``keep``."""
        self._found[manifest.batch_id] = manifest
        dropped = sorted(self._found)[: -self._keep]
        if not dropped:
            return
        gone: set[str] = set()
        for number in dropped:
            found = self._found.pop(number)
            if isinstance(found, Manifest):
                gone |= found.file_names
        self._remove([*map(manifest_name, dropped), *sorted(gone - self._file_names())])

    def forget(self, batch_id: int) -> None:
        """Ignore a version from now on; its micro-batch is replayed."""
        del self._found[batch_id]
        self._forgotten.add(batch_id)

    def make_room(self, batch_id: int) -> None:
        """Remove the manifests of forgotten versions that a new version replaces.

        Raises:
            OSError: The file system failed.
        """
        for number in sorted(self._forgotten, reverse=True):
            if number >= batch_id:
                self._files.remove(manifest_name(number))
                self._forgotten.discard(number)

    def _check_parents(self) -> None:
        """Mark each version as damaged that is not the parent of its successor."""
        for number in sorted(self._found, reverse=True):
            child, parent = self._found[number], self._found.get(number - 1)
            if (
                isinstance(child, Manifest)
                and isinstance(parent, Manifest)
                and child.parent not in (None, parent.checksum)
            ):
                self._found[number - 1] = StateDamagedError(
                    f"{self._files.location}/{manifest_name(number - 1)} is not the version that "
                    f"version {number} was made from: a file was copied or replaced by hand; "
                    "restore the state directory from a copy"
                )

    def _sweep(self) -> None:
        kept = self._file_names() | {manifest_name(number) for number in self._found}
        try:
            there = [n for folder in (MANIFESTS, DATA, OUTPUTS) for n in self._files.names(folder)]
        except (OSError, StateDamagedError) as error:
            log.warning("%s was not swept: %s", self._files.location, error)
            return
        self._remove([name for name in there if name not in kept])

    def _remove(self, names: list[str]) -> None:
        failed: list[OSError | StateDamagedError] = []
        for name in names:
            try:
                self._files.remove(name)
            except (OSError, StateDamagedError) as error:
                failed.append(error)
        if failed:
            log.warning("%d old files stay in %s: %s", len(failed), self._files.location, failed[0])

    def _file_names(self) -> set[str]:
        return {
            name
            for found in self._found.values()
            if isinstance(found, Manifest)
            for name in found.file_names
        }
