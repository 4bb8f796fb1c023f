"""Versions: the manifests of a directory, the newest few, and the files that they name.

To remove a version, first its manifest is removed, then the files that no other version names. A
crash in between leaves files without a manifest, which `Versions.remove_unreferenced` removes. If a
manifest cannot be read, nothing is removed, because the files that it names are unknown. If it
cannot be removed, its files remain, too. So an old version may remain although versions after it
were removed; micro-batches before such a gap are not replayed.

Another writer may take over the directory at any time, even where there are no locks. So the files
are listed first, then the ownership is checked, then those listed files are removed that no version
names. All listed files are older than the later writer, who reads the same versions, and therefore
needs none of the removed files (`streaming.state.ownership` has the assumptions).

Each version has the checksum of the previous version's manifest, its parent. So a manifest of
another history, for example from an older copy of the directory, is detected: if a version is not
the parent that its successor names, the version counts as damaged, not the successor.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.files import Files, remove_files
from streaming.state.manifest import (
    MANIFESTS,
    Manifest,
    ProgramLink,
    list_batch_ids,
    manifest_name,
    parse_manifest_name,
    read_manifest,
)
from streaming.state.records.dead_letter_files import DEAD_LETTERS_FOLDER, find_batch_id

__all__ = ["ABANDONED_BATCHES", "DATA", "OUTPUTS", "LastBatch", "Versions"]

#: Returns the last micro-batch of a view that its target holds: -1 if it holds none, as a new
#: table; None if it does not record this, as a function of Python.
LastBatch = Callable[[str], int | None]

# A file of at least this size is removed in the background: an object store takes some hundredths
# of a second for each file, and a file system more time for larger ones.
MIN_LARGE_FILE_BYTES: Final = 1 << 18
DATA: Final = "data"
OUTPUTS: Final = "outputs"
#: The age, in micro-batches, from which on a file of cells that no version names is abandoned. It
#: only has to exceed the time that an attempt of a task, or a change of the views, may take.
ABANDONED_BATCHES: Final = 100
# The files of cells, and of the deltas of views, begin with the number of their micro-batch.
_BATCH_FILE: Final = re.compile(rf"(?:{DATA}/(\d{{20}})-[0-9a-f]+-\d+\.\d+|{OUTPUTS}/(\d{{20}})-)")
_TEMPORARY_DESCRIPTION: Final = re.compile(
    r"(state|views|epoch|unpublished|published|recomputed_columns)\.json\.([0-9a-f]+\.)?tmp"
)

log = logging.getLogger(__name__)


class Versions:
    """The last versions in a directory, by batch id; for a damaged manifest, its error.

    Args:
        files: The directory.
        keep: The number of versions to keep.
    """

    def __init__(self, files: Files, keep: int) -> None:
        self._files = files
        self._keep = keep
        self._manifests: dict[int, Manifest | StateDamagedError] = {}
        self._ignored: set[int] = set()
        self._is_cleaned = False
        # False if `remove_unreferenced` has removed all other manifests.
        self._has_other_manifests = True
        # The files that the next version is to name.
        self._kept_files: frozenset[str] = frozenset()
        #: Further files that no version names yet and `remove_unreferenced` does not remove.
        self.unnamed_files: Collection[str] = ()

    def __contains__(self, batch_id: int) -> bool:
        return batch_id in self._manifests

    def __getitem__(self, batch_id: int) -> Manifest:
        """Return the version of a batch id.

        Raises:
            StateDamagedError: Its manifest is damaged.
        """
        manifest = self._manifests[batch_id]
        if isinstance(manifest, StateDamagedError):
            raise manifest
        return manifest

    @property
    def newest(self) -> int | None:
        """The greatest batch id; None if there is no version."""
        return max(self._manifests, default=None)

    @property
    def oldest(self) -> int | None:
        """The least batch id; None if there is no version."""
        return min(self._manifests, default=None)

    @property
    def epoch(self) -> int:
        """The greatest epoch of a writer; 0 if there is none."""
        return max((manifest.epoch for manifest in self._intact()), default=0)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the circuit of the newest intact version; None without versions."""
        newest = max(self._intact(), key=lambda manifest: manifest.batch_id, default=None)
        return None if newest is None else newest.fingerprint

    @property
    def fingerprints(self) -> set[str]:
        """The fingerprints of the circuits of all intact versions."""
        return {manifest.fingerprint for manifest in self._intact()}

    def links_after(self, batch_id: int) -> list[ProgramLink]:
        """Return the changes of the views after a version, oldest first.

        None of the later versions is missing, see `find_missing`.

        Raises:
            StateDamagedError: The manifest of a later version is damaged.
        """
        newest = batch_id if self.newest is None else self.newest
        links = [self[number].link for number in range(batch_id + 1, newest + 1)]
        return [link for link in links if link is not None]

    def find_missing(self, batch_id: int) -> int | None:
        """Find the first version that is missing among a version and those after it.

        A removal of old versions that was executed in part may have left a version without those
        after it.
        """
        newest = batch_id if self.newest is None else self.newest
        numbers = range(batch_id, newest + 1)
        return next((number for number in numbers if number not in self), None)

    def find_unwritten(
        self,
        views: Iterable[str],
        renames: Mapping[str, str],
        *,
        batch_id: int | None,
        last_batch: LastBatch,
    ) -> dict[str, str]:
        """Find the views that have rows, and whose targets hold none of them.

        This happens if an output was added, or the table of a view was dropped. The next version
        then publishes the whole view, like a new one (`streaming.state.program_change`).

        Args:
            views: The views of the sink.
            renames: The views whose name in the newest version differs, with that name.
            batch_id: The micro-batch that is written to the targets next, maybe a replay; None if
                it is not known.
            last_batch: See `LastBatch`.

        Returns:
            For each such view its name in the newest version.

        Raises:
            StateDamagedError: The manifest of a version is damaged.
            TargetError: A target cannot be read.
        """
        newest = self.newest
        assert newest is not None
        is_replay = batch_id is not None and batch_id <= newest
        first = batch_id if batch_id is not None and is_replay else newest
        if first not in self:
            return {}
        links = [self[number].link for number in range(newest, first, -1) if number in self]
        changes = self[first].changes
        unwritten = {}
        for view in views:
            name = renames.get(view, view)
            old_name: str | None = name
            for link in links:
                if link is not None and old_name is not None:
                    old_name = link.views.get(old_name)
            if old_name is None or old_name not in changes:
                continue  # a later version publishes the whole view, or an earlier release wrote it
            required = changes[old_name].previous if is_replay else changes[old_name].last
            if required is not None and required >= 0 and last_batch(view) == -1:
                unwritten[view] = name
        return unwritten

    @property
    def is_cleaned(self) -> bool:
        """True if `remove_unreferenced` has removed all other files, and removes none any more."""
        return self._is_cleaned

    def read(self, state_id: str, *, spare: int = 0) -> None:
        """Read the last ``keep`` manifests.

        Args:
            state_id: The id of the directory; a manifest of another one is damaged.
            spare: How many more to read, if there are so many. A crash may have left one.

        Raises:
            OSError: The file system failed.
        """
        # A process that was killed may have renamed a manifest without syncing the folder.
        self._files.sync_folder(MANIFESTS)
        self._manifests.clear()
        self._ignored.clear()
        for number in list_batch_ids(self._files)[-self._keep - spare :]:
            try:
                self._manifests[number] = read_manifest(self._files, number, state_id=state_id)
            except StateDamagedError as error:
                self._manifests[number] = error
        self._check_parents()
        self._is_cleaned, self._has_other_manifests = False, True

    def remove_unreferenced(self, check_owner: Callable[[], None]) -> None:
        """Remove the files that no manifest names; repeated calls after one `read` do nothing.

        Call it only when the versions are known to match the checkpoint. If they do not, a manifest
        may be lost, and it can be restored from a copy only while its files exist. Call it only
        while no file is being written that a later version of this writer will name.

        Args:
            check_owner: Raises an error if another writer has taken over the directory.

        Raises:
            StateLockedError, StateDamagedError: As ``check_owner``; nothing was removed.
        """
        has_damaged = len(self._intact()) < len(self._manifests)
        if self._is_cleaned or has_damaged or self._ignored:
            return
        unused = self._find_owned(self._unused_files, check_owner)
        if unused is None:
            return
        manifests = [name for name in unused if parse_manifest_name(name) is not None]
        self._has_other_manifests = bool(self._remove(manifests))
        if not self._has_other_manifests:  # else the next commit tries again
            self._remove([name for name in unused if name not in manifests])
            self._is_cleaned = True

    def remove_abandoned(self, check_owner: Callable[[], None]) -> None:
        """Remove files of micro-batches long ago that no manifest names.

        An executor that is killed leaves the files of its tasks, and a task of which Spark has run
        a second attempt those of the first one. An attempt may still write when its micro-batch is
        committed; what it writes after this call is removed by a later one. Files of other writers
        than cells, such as a compaction, may take any time until a version names them, and are not
        removed here. Nothing is removed while there may be manifests of older versions than those
        that are kept, because they may name the files.

        Args:
            check_owner: As for `remove_unreferenced`.

        Raises:
            StateLockedError, StateDamagedError: As ``check_owner``; nothing was removed.

        Complexity:
            O(files in the directory), without reading one.
        """
        newest = self.newest
        has_damaged = len(self._intact()) < len(self._manifests)
        if newest is None or has_damaged or self._ignored or self._has_other_manifests:
            return
        abandoned = self._find_owned(
            lambda: self._abandoned_files(newest - ABANDONED_BATCHES), check_owner
        )
        if abandoned:
            self._remove(abandoned)

    def keep_files(self, names: Collection[str]) -> None:
        """Keep files that no version names until the next version is added.

        Those that were kept for this version before are removed.
        """
        if not self._kept_files and not names:
            return
        unused = sorted(self._kept_files - set(names) - self._file_names())
        self._kept_files = frozenset(names)
        self._remove(unused)

    def add(self, new: Manifest) -> list[str]:
        """Add a new version and remove the versions beyond ``keep``.

        Returns:
            The large files that no version names any more. The caller removes them: it takes long,
            and they are not in the way. After a crash, `remove_unreferenced` removes them.
        """
        self._manifests[new.batch_id] = new
        self.keep_files(())
        dropped = sorted(self._manifests)[: -self._keep]
        if not dropped:
            return []
        sizes: dict[str, int] = {}
        for number in dropped:
            if self._remove([manifest_name(number)]):
                continue  # the next commit tries again
            manifest = self._manifests.pop(number)
            if isinstance(manifest, Manifest):
                sizes |= {name: file.size for name, file in manifest.all_files.items()}
        unreferenced = sorted(sizes.keys() - self._file_names())
        large = [name for name in unreferenced if sizes[name] >= MIN_LARGE_FILE_BYTES]
        small = [name for name in unreferenced if sizes[name] < MIN_LARGE_FILE_BYTES]
        self._remove(small)
        return large

    def ignore(self, batch_id: int) -> None:
        """Ignore a damaged version from now on; its micro-batch is applied again."""
        del self._manifests[batch_id]
        self._ignored.add(batch_id)

    def remove_replaced(self, batch_id: int) -> None:
        """Remove the manifests of ignored versions that a new version replaces.

        Raises:
            OSError: The file system failed.
        """
        for number in sorted(self._ignored, reverse=True):
            if number >= batch_id:
                self._files.remove(manifest_name(number))
                self._ignored.discard(number)

    def _check_parents(self) -> None:
        """Mark each version as damaged whose successor has another parent."""
        for number in sorted(self._manifests, reverse=True):
            child, parent = self._manifests[number], self._manifests.get(number - 1)
            if (
                isinstance(child, Manifest)
                and isinstance(parent, Manifest)
                and child.parent not in (None, parent.checksum)
            ):
                self._manifests[number - 1] = StateDamagedError(
                    f"{self._files.location}/{manifest_name(number - 1)} is not the parent of "
                    f"version {number}: a file was copied or replaced by hand; "
                    "restore the state directory from a copy"
                )

    def _unused_files(self) -> list[str]:
        """List the files that no version needs."""
        needed = self._needed_names()
        folders = (MANIFESTS, DATA, OUTPUTS)
        names = [name for folder in folders for name in self._files.names(folder)]
        unused = [name for name in names if name not in needed]
        unused += filter(_TEMPORARY_DESCRIPTION.fullmatch, self._files.names(""))
        for name in self._files.names(DEAD_LETTERS_FOLDER):
            batch_id = find_batch_id(name)
            version = None if batch_id is None else self._manifests.get(batch_id)
            next_batch_id = 0 if self.newest is None else self.newest + 1
            if batch_id == next_batch_id or (
                isinstance(version, Manifest) and version.dead_letter_file != name
            ):
                unused.append(name)
        return unused

    def _abandoned_files(self, last: int) -> list[str]:
        """List the files of micro-batches up to the last one that no version needs."""
        needed = self._needed_names()
        return [
            name
            for folder in (DATA, OUTPUTS)
            for name in self._files.names(folder)
            if name not in needed
            and (match := _BATCH_FILE.match(name)) is not None
            and int(match[1] or match[2]) <= last
        ]

    def _find_owned(
        self, find: Callable[[], list[str]], check_owner: Callable[[], None]
    ) -> list[str] | None:
        """Find files to remove, and check that this process may remove them.

        The check is after the listing: all listed files are then older than a later writer.

        Returns:
            Their names; None, with a warning, if the file system failed.

        Raises:
            StateLockedError, StateDamagedError: As ``check_owner``.
        """
        try:
            names = find()
        except (OSError, StateDamagedError) as error:
            self._warn_not_removed(error)
            return None
        if names:
            try:
                check_owner()
            except OSError as error:
                self._warn_not_removed(error)
                return None
        return names

    def _needed_names(self) -> set[str]:
        """Return the names of the manifests, and of the files that a version needs or will need."""
        return (
            self._file_names()
            | self._kept_files
            | set(self.unnamed_files)
            | {manifest_name(number) for number in self._manifests}
        )

    def _remove(self, names: list[str]) -> bool:
        """Remove files; return whether one of them could not be removed."""
        try:
            remove_files(self._files, names)
        except (OSError, StateDamagedError) as error:
            self._warn_not_removed(error)
            return True
        return False

    def _warn_not_removed(self, error: Exception) -> None:
        log.warning("old files in %s could not be removed: %s", self._files.location, error)

    def _file_names(self) -> set[str]:
        """Return the files that the intact manifests name."""
        return {name for manifest in self._intact() for name in manifest.all_files}

    def _intact(self) -> list[Manifest]:
        """Return the manifests that are not damaged."""
        manifests = self._manifests.values()
        return [manifest for manifest in manifests if isinstance(manifest, Manifest)]
