"""Versions: the manifests of a directory, the newest few, and the files that they name.

A version that is dropped loses its manifest first, then the files that no kept version names; a
crash in between leaves files without a manifest, which `Versions.read` sweeps away. As long as any
manifest cannot be read nothing is swept, because what it names is not known.
"""

from __future__ import annotations

import logging
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import Files
from streaming.state.manifest import FOLDER, Manifest, batch_of, manifest_name

__all__ = ["DATA", "OUTPUTS", "Versions"]

DATA: Final = "data"
OUTPUTS: Final = "outputs"

log = logging.getLogger(__name__)


class Versions:
    """The last versions in a directory, by batch id; a manifest that is damaged is its error.

    Args:
        files: The directory.
        keep: How many stay.
    """

    def __init__(self, files: Files, keep: int) -> None:
        self._files = files
        self._keep = keep
        self._found: dict[int, Manifest | StateDamagedError] = {}

    def __contains__(self, batch_id: int) -> bool:
        return batch_id in self._found

    def __getitem__(self, batch_id: int) -> Manifest:
        """The version of a batch id.

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

    def read(self) -> None:
        """Read the manifests, and sweep away what none of them names."""
        # The rename of a process that was killed may not be durable yet.
        self._files.sync_folder(FOLDER)
        self._found.clear()
        names = {batch_of(name): name for name in self._files.names(FOLDER)}
        numbers = sorted(number for number in names if number is not None)
        for number in numbers[-self._keep :]:
            name = names[number]
            path = f"{self._files.location}/{name}"
            try:
                self._found[number] = Manifest.of(bytes(self._files.read(name)), path)
            except StateDamagedError as error:
                self._found[number] = error
        if not any(isinstance(found, StateDamagedError) for found in self._found.values()):
            self._sweep()

    def add(self, manifest: Manifest) -> None:
        """Take up a new version and drop those beyond the last ones."""
        self._found[manifest.batch_id] = manifest
        dropped = sorted(self._found)[: -self._keep]
        if not dropped:
            return
        gone: set[str] = set()
        for number in dropped:
            found = self._found.pop(number)
            if isinstance(found, Manifest):
                gone |= found.named
        self._remove([*map(manifest_name, dropped), *sorted(gone - self._named())])

    def forget(self, batch_id: int) -> None:
        """Leave a version out of account; its micro-batch is to be done again."""
        del self._found[batch_id]

    def _sweep(self) -> None:
        kept = self._named() | {manifest_name(number) for number in self._found}
        try:
            there = [n for folder in (FOLDER, DATA, OUTPUTS) for n in self._files.names(folder)]
        except OSError as error:
            log.warning("%s was not swept: %s", self._files.location, error)
            return
        self._remove([name for name in there if name not in kept])

    def _remove(self, names: list[str]) -> None:
        try:
            for name in names:
                self._files.remove(name)
        except OSError as error:
            log.warning("old files stay in %s: %s", self._files.location, error)

    def _named(self) -> set[str]:
        return {
            name
            for found in self._found.values()
            if isinstance(found, Manifest)
            for name in found.named
        }
