"""Writable directory: a state directory while this process is its writer.

Opening a directory locks it, checks that it is still the one that was opened before, takes over
from earlier writers (`streaming.state.ownership`), and reads its versions. A commit checks again,
before and after the rename of the manifest, that no other writer has taken over.

Invariant: ``is_open`` is False whenever the files may differ from what this process knows of them,
so the next `WritableDirectory.open` reads them again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial

from circuits import Circuit
from streaming.errors import StateDamagedError, StateError, StateLockedError
from streaming.state.directory_identity import (
    IDENTITY_FILE,
    DirectoryIdentity,
    ensure_identity,
    find_identity,
    update_identity,
    upgrade_identity,
)
from streaming.state.files import Files, StagedFile, read_small_file, remove_files
from streaming.state.manifest import MANIFESTS, Manifest, manifest_name
from streaming.state.ownership import Owner, check_owner, raise_if_replaced, take_over
from streaming.state.program_change import list_old_programs
from streaming.state.versions import DATA, OUTPUTS, Versions
from streaming.state.view_definitions import write_definition

__all__ = ["WritableDirectory"]

log = logging.getLogger(__name__)


class WritableDirectory:
    """A state directory, of which this process is the writer while it is open.

    Args:
        files: The directory.
        versions: Its versions; opening the directory reads them.
        circuit: The whole circuit of the directory.

    Attributes:
        circuit: The whole circuit; assign another one when the views change.
        id: The id of the directory, from `state.json`; empty until the directory is opened.
        is_open: True if the next `open` does nothing.
    """

    def __init__(self, files: Files, versions: Versions, circuit: Circuit) -> None:
        self.circuit = circuit
        self.id = ""
        self.is_open = False
        self._files = files
        self._versions = versions
        self._identity: DirectoryIdentity | None = None
        self._owner: Owner | None = None
        # The id that the directory must still have; None before opening and after closing.
        self._required_id: str | None = None

    @property
    def owner(self) -> Owner:
        """This process as the writer of the opened directory."""
        assert self._owner is not None
        return self._owner

    def open(self, read_records: Callable[[], None]) -> None:
        """Lock the directory, take it over from earlier writers and read its versions.

        Args:
            read_records: Reads the files that belong to no version. It may raise `OSError`.

        Raises:
            StateLockedError, StateMismatchError: Another sink or another circuit has it.
            StateDamagedError: It was deleted or replaced since this process opened it, or its
                identity is damaged.
            StateError: The file system failed.
        """
        self._owner = None
        try:
            self._files.lock()
            self._check_not_replaced()
            identity = ensure_identity(self._files, self.circuit, str(uuid.uuid4()))
            self._identity, self.id = identity, identity.id
            self._owner = take_over(self._files)
            self._versions.read(self.id, spare=1)
            while self._versions.epoch >= self._owner.epoch:  # epoch.json was lost
                self._owner = take_over(self._files, self._versions.epoch)
                # Another sink may have written versions meanwhile.
                self._versions.read(self.id, spare=1)
            read_records()
            if self._versions.fingerprint in (None, self.circuit.fingerprint):
                self._describe_circuit()
        except BaseException as error:
            self._files.unlock()
            if not isinstance(error, OSError):
                raise
            self.raise_if_replaced()
            raise StateError(
                f"state directory {self._files.location} cannot be opened: {error}; correct this "
                "and start the query again"
            ) from error
        self.is_open = True
        self._required_id = self.id

    def forget(self) -> None:
        """Read the directory again at the next `open`; this process remains its writer."""
        self.is_open = False

    def close(self) -> None:
        """Release the directory for other writers."""
        self.is_open = False
        self._required_id = None
        self._files.unlock()

    def check_owner(self) -> None:
        """Check that this process is still the writer.

        Raises:
            StateLockedError: Another sink has taken over the directory.
            StateDamagedError: The directory was deleted or replaced.
            OSError: The file system failed.
        """
        check_owner(self._files, self.owner)

    def raise_if_replaced(self) -> None:
        """Raise `StateLockedError` if another sink has taken over, which may explain an error."""
        if self._owner is not None:
            try:
                raise_if_replaced(self._files, self._owner)
            except StateLockedError:
                self.is_open = False
                raise

    def prepare_commit(self, manifest: Manifest) -> None:
        """Check that a version can be committed, and remove those that it replaces.

        Raises:
            StateLockedError: Another sink has taken over the directory.
            StateDamagedError: A file that the version names is missing.
            OSError: The file system failed.
        """
        self.is_open = False  # it remains so if one of the next lines fails
        self._check_still_owned(manifest)
        assert self._identity is not None
        self._identity = upgrade_identity(self._files, self._identity)
        self._versions.remove_replaced(manifest.batch_id)
        self.is_open = True

    def commit(self, staged: StagedFile, batch_id: int, data: bytes) -> None:
        """Give a manifest its name; call `confirm_commit` when the versions have it.

        Until then the next `open` reads the directory again, because the effect of a rename that
        fails is unknown.

        Args:
            staged: The manifest under its temporary name.
            batch_id: The micro-batch of the manifest.
            data: Its content.

        Raises:
            StateLockedError: Another writer has used the name, or has taken over the directory.
            StateDamagedError: The directory was deleted or replaced.
            OSError: The file system failed; the effect is unknown.
        """
        self.is_open = False
        try:
            staged.create()
        except FileExistsError as error:
            # The file is this manifest if the operation succeeded and its result was lost.
            if read_small_file(self._files, manifest_name(batch_id)) != data:
                staged.abandon()
                raise StateLockedError(
                    f"version {batch_id} of state directory {self._files.location} was written by "
                    "another sink: stop that query and start this one again, or give it a "
                    "directory of its own"
                ) from error
        except FileNotFoundError:
            self.check_owner()  # another writer may have removed the temporary file
            raise
        self._files.sync_folder(MANIFESTS)
        self.check_owner()

    def confirm_commit(self) -> None:
        """Record that this process knows the version that `commit` has committed."""
        self.is_open = True

    def remove_unreferenced(self) -> None:
        """Remove the files that no version names, once after the directory is opened.

        Raises:
            StateLockedError: Another sink has taken over the directory.
            StateDamagedError: The directory was deleted or replaced.
        """
        try:
            self._versions.remove_unreferenced(partial(check_owner, self._files, self.owner))
        except StateError:
            self.is_open = False
            raise

    def remove_abandoned(self) -> None:
        """Remove files of cells that no version has named (`Versions.remove_abandoned`).

        Raises:
            StateLockedError, StateDamagedError: As `remove_unreferenced`.
        """
        try:
            self._versions.remove_abandoned(partial(check_owner, self._files, self.owner))
        except StateError:
            self.is_open = False
            raise

    def try_to_describe_circuit(self) -> None:
        """Write which views the directory has, after a change; if it fails, `open` does it."""
        try:
            self._describe_circuit()
        except (OSError, StateLockedError) as error:
            log.warning("the new views are not in %s yet: %s", self._files.location, error)

    def _describe_circuit(self) -> None:
        """Write which views the directory has, as the manifest of its newest version says."""
        assert self._identity is not None
        old_programs = list_old_programs(self._files, self._versions.fingerprints)
        self.check_owner()
        write_definition(self._files, self.circuit.spec)
        self._identity = update_identity(self._files, self.circuit, self._identity)
        remove_files(self._files, old_programs)

    def _check_not_replaced(self) -> None:
        """Raise an error if the directory was deleted or replaced since this sink opened it."""
        if self._required_id is None:
            return
        identity = find_identity(self._files, self.circuit)
        if identity is None or identity.id != self._required_id:
            path = f"{self._files.location}/{IDENTITY_FILE}"
            problem = "is missing" if identity is None else f"has the id {identity.id!r}"
            raise StateDamagedError(
                f"{path} {problem}: state directory {self._files.location} was deleted or replaced "
                "while this sink was using it; restore it from a copy; or delete it together with "
                "the checkpoint, close() this sink or make a new one, and start again"
            )

    def _check_still_owned(self, manifest: Manifest) -> None:
        """Raise an error if another sink has taken over the directory, or files are missing."""
        existing = {name for folder in (DATA, OUTPUTS) for name in self._files.names(folder)}
        self.check_owner()  # after the listing: a later sink may remove files
        missing = sorted(manifest.all_files.keys() - existing)
        if missing:
            raise StateDamagedError(
                f"{self._files.location}/{missing[0]} is missing, and {len(missing) - 1} more: "
                "they were deleted while this sink was using them; restore the state directory "
                "from a copy, or delete it together with the checkpoint, and start the query again"
            )
