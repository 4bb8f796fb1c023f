"""Version rewrite: replace the newest version of a state directory by an equal one in other files.

Rescaling (`streaming.distributed.rescaling`) and offline compaction
(`streaming.state.offline_compaction`) do this. They take the lock of the directory, so no query may
run on it. The new version has the same batch id and the same published deltas. One rename makes it
current; an error or a crash before that leaves the old version, and the next start removes the
files that no manifest names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from circuits import Circuit
from circuits.circuit_spec import CircuitSpec
from circuits.user_functions import UserFunction, check_functions
from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StateDamagedError, StateError
from streaming.state.directory_identity import (
    DirectoryIdentity,
    read_identity,
    upgrade_identity,
)
from streaming.state.files import Files, StagedFile
from streaming.state.local_files import LocalFiles, folder_mode
from streaming.state.manifest import (
    MANIFESTS,
    Manifest,
    list_batch_ids,
    manifest_name,
    read_manifest,
)
from streaming.state.ownership import Owner, check_owner, take_over
from streaming.state.program_change import definition_name, newest_version
from streaming.state.versions import DATA
from streaming.state.view_definitions import read_definition

__all__ = ["VersionRewrite", "lock_for_rewrite", "read_newest_definition"]


@contextmanager
def lock_for_rewrite(files: Files, action: str) -> Iterator[Files]:
    """Lock a directory that has a version; yield it, with the file mode of its folders.

    Args:
        files: The directory. If it has no file mode, new files get the mode of the old ones.
        action: What is done to the directory, a verb in its base form, for messages.

    Raises:
        StateLockedError: A sink is using the directory.
        StateError: There is no version, or the block raised an error of the file system.
        StateDamagedError: The block raised another error, as damaged files cause them.
    """
    failed = f"state directory {files.location}: failed to {action} it"
    try:
        if isinstance(files, LocalFiles) and files.mode is None:
            files = LocalFiles(files.location, folder_mode(files, MANIFESTS))
        if not list_batch_ids(files):
            raise StateError(
                f"state directory {files.location} has no version, so there is nothing to "
                f"{action}: start the query first"
            )
        files.lock()
        try:
            yield files
        finally:
            files.unlock()
    except OSError as error:
        raise StateError(f"{failed}: {error}; it was not changed") from error
    except (DbspWcojError, MemoryError):
        raise
    except Exception as error:  # a damaged file may raise any error
        raise StateDamagedError(
            f"{failed} ({type(error).__name__}: {error}): a file was changed after it was written; "
            "restore it from a copy"
        ) from error


def read_newest_definition(
    files: Files, functions: Mapping[str, UserFunction] | None
) -> CircuitSpec:
    """Compile the text of the views of the newest version.

    Args:
        files: The directory, with a version.
        functions: The user-defined functions that the text calls, by name.

    Raises:
        StateError: The text is missing or damaged.
    """
    newest = newest_version(files)
    assert newest is not None
    name = definition_name(files, newest)
    return read_definition(files, check_functions(functions), name=name)


@dataclass(frozen=True)
class VersionRewrite:
    """The newest version of a locked directory, and this process as its writer.

    Attributes:
        files: The directory.
        identity: What the directory belongs to.
        owner: The writer.
        before: The newest version.
    """

    files: Files
    identity: DirectoryIdentity
    owner: Owner
    before: Manifest

    @staticmethod
    def begin(files: Files, circuit: Circuit) -> VersionRewrite:
        """Take over a locked directory of the views of a circuit.

        Raises:
            StateDamagedError: The directory has no identity, or its newest version is damaged.
            OSError: The file system failed.
            StateMismatchError: The directory belongs to other views.
        """
        identity = read_identity(files, circuit)
        if identity is None:
            raise StateDamagedError(
                f"state directory {files.location} has no identity: restore it from a copy"
            )
        owner = take_over(files)
        before = read_manifest(files, max(list_batch_ids(files)), state_id=identity.id)
        while before.epoch >= owner.epoch:  # epoch.json was lost and written again
            owner = take_over(files, before.epoch)
            before = read_manifest(files, max(list_batch_ids(files)), state_id=identity.id)
        return VersionRewrite(files, identity, owner, before)

    def new_stem(self) -> str:
        """Return an unused beginning of the names of new data files."""
        return f"{DATA}/{self.before.batch_id:020}-{uuid.uuid4().hex[:12]}"

    def stage(self, after: Manifest) -> StagedFile:
        """Write the manifest of the new version; return it for `commit`.

        Args:
            after: The new version, with the same batch id. Its files are synced.

        Raises:
            OSError: The file system failed.
        """
        after = replace(after, epoch=self.owner.epoch, owner=self.owner.token)
        staged = StagedFile(self.files, manifest_name(self.before.batch_id), after.encode())
        staged.prepare()
        self.files.sync_folder("")
        check_owner(self.files, self.owner)
        return staged

    def commit(self, staged: StagedFile) -> None:
        """Make the staged version the current version.

        Raises:
            StateError: The file system failed. The old or the new version is current, so the files
                of both must remain.
            StateLockedError: A sink has taken over the directory. It may use the old version, so
                the files of both must remain.
        """
        try:
            upgrade_identity(self.files, self.identity)
            try:
                staged.replace()
            except FileNotFoundError:
                check_owner(self.files, self.owner)  # a sink may have removed the temporary file
                raise
            self.files.sync_folder(MANIFESTS)
            check_owner(self.files, self.owner)
        except OSError as error:
            raise StateError(
                f"the outcome of the commit to state directory {self.files.location} is unknown: "
                f"{error}; the old and the new version have the same rows: run the command again"
            ) from error
