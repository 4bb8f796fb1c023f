"""Clone: a copy of a state directory, for another job.

::

    state/  --clone-->  copy/        the newest version, with a new id, without files of outputs

The files that a version lists never change. So the copy has hard links to them if both directories
are on one file system, and copies of them otherwise. Jobs can then use both directories: neither
job writes to such a file again, and removing it from one directory leaves it in the other. Between
two folders of one bucket, the object store copies the files by itself
(`streaming.state.object_store.object_files`).

The identity of the copy is written first, as that of an unfinished clone. The manifest makes the
copy valid; after it, the identity is written again. A crash before the manifest leaves a directory
that every job refuses.

An object store has no lock, so the source may be in use there. If its job removes a file before it
is copied, the clone ends with an error.

The copy has an id of its own, by which targets tell its rows from those of the original. Its views
count as not published: a sink on the copy writes all rows of each view with its next micro-batch
(`streaming.state.program_change`), so the copy needs new targets.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming.errors import StateError
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.directory_identity import (
    FORMAT_VERSION,
    IDENTITY_FILE,
    UNFINISHED_CLONE,
    check_not_unfinished,
)
from streaming.state.files import Files, create_atomically, read_small_file, replace_atomically
from streaming.state.local_files import LocalFiles, folder_mode, make_folder
from streaming.state.manifest import MANIFESTS, Manifest, list_batch_ids, manifest_name
from streaming.state.object_store.object_files import ObjectFiles
from streaming.state.open_files import open_files
from streaming.state.program_change import definition_name, newest_version
from streaming.state.verified_files import check_size, read_verified
from streaming.state.versions import DATA, OUTPUTS
from streaming.state.view_definitions import DEFINITION_FILE

__all__ = ["CloneResult", "clone_state"]


@dataclass(frozen=True)
class CloneResult:
    """A copy of a state directory.

    Attributes:
        batch_id: The micro-batch of its version.
        id: The new id.
        linked_bytes: The bytes of the files that both directories share.
        copied_bytes: The bytes of the files that were copied.
        folders: The other folders that were copied.
    """

    batch_id: int
    id: str
    linked_bytes: int
    copied_bytes: int
    folders: tuple[str, ...] = ()


def clone_state(source: Any, target: Any, *, folders: Collection[str] = ()) -> CloneResult:
    """Copy the newest version of a state directory that no process writes to; the copy is durable.

    Args:
        source: The directory: a path, a URI, or another location (`open_files`).
        target: The new directory, a location too; it must not exist, or be empty.
        folders: The names of other folders of the source, such as Spark's checkpoint. Those that
            exist are copied, without links. Both directories must be on local disks for that.

    Raises:
        StateError: The source has no version or is distributed, the target is not empty or is
            inside of the source, or a folder cannot be copied: nothing was written. Or the file
            system failed: a part of the target may have been written, and the message says so.
        StateLockedError: A process writes to the source; known on local disks only.
        StateDamagedError: The newest version is damaged.
    """
    files, copy = open_files(source), open_files(target)
    if isinstance(files, LocalFiles):
        if not os.path.isdir(files.location):
            raise StateError(f"{source} is not a folder")
        mode = folder_mode(files, "")
        if isinstance(copy, LocalFiles):
            copy = LocalFiles(copy.location, mode)
    try:
        _check_target(files, copy)
        if isinstance(files, LocalFiles):
            files.lock()
        try:
            return _clone(files, copy, folders)
        finally:
            files.unlock()
    except OSError as error:
        raise StateError(
            f"{files.location} cannot be cloned to {copy.location}: {error}; stop the job that "
            f"writes to it, remove {copy.location} if it was made, correct this and try again"
        ) from error


def _check_target(files: Files, copy: Files) -> None:
    """Check that the target is new, and not inside of the source."""
    inside = f"{copy.location} is inside of {files.location}: name a folder beside it"
    if isinstance(copy, LocalFiles):
        path = Path(copy.location)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if path.is_dir():
                check_not_unfinished(copy)
            remedy = "name a new one"
            if (path / DATA).is_dir() and not list_batch_ids(copy):
                remedy = "it has no version, as after an interrupted clone: delete it and try again"
            raise StateError(f"{path} exists and is not an empty folder: {remedy}")
        if isinstance(files, LocalFiles) and path.resolve().is_relative_to(
            Path(files.location).resolve()
        ):
            raise StateError(inside)
        return
    if f"{copy.location}/".startswith(f"{files.location}/"):
        raise StateError(inside)
    for folder in ("", DATA, MANIFESTS, OUTPUTS):
        if names := copy.names(folder):
            raise StateError(
                f"{copy.location} is not empty, it contains {names[0]}: name a new folder, or "
                "remove its contents"
            )


def _clone(files: Files, copy: Files, folders: Collection[str]) -> CloneResult:
    manifest = newest_version(files)
    if manifest is None:
        raise StateError(
            f"{files.location} has no version that could be cloned: name the state directory of a "
            "job that has committed a micro-batch"
        )
    if manifest.cells is not None:
        raise StateError(
            f"{files.location} is distributed over cells: move the state to one process first, "
            f"with dbsp-wcoj rescale {files.location} --embedded"
        )
    names = manifest.data_files
    for name in names:
        check_size(files, name, manifest.files[name])
    existing = _existing_folders(files, copy, folders)
    id = str(uuid.uuid4())
    path = f"{files.location}/{IDENTITY_FILE}"
    identity = {**decode_checked(_read_description(files, IDENTITY_FILE), path), "id": id}
    if identity["format"] == UNFINISHED_CLONE:  # it was killed after its manifest
        identity["format"] = FORMAT_VERSION
    unfinished = encode_checked({**identity, "format": UNFINISHED_CLONE})
    definition = _read_description(files, definition_name(files, manifest))
    if isinstance(copy, LocalFiles):
        make_folder(Path(copy.location), copy.mode)
    # After a lost answer, a request that is repeated finds the file that it has written.
    if (
        not create_atomically(copy, IDENTITY_FILE, unfinished)
        and read_small_file(copy, IDENTITY_FILE) != unfinished
    ):
        raise StateError(
            f"{copy.location}/{IDENTITY_FILE} was written by another process meanwhile: name "
            "another folder"
        )
    copy.sync_folder("")
    if isinstance(copy, LocalFiles):
        for folder in (DATA, MANIFESTS):
            make_folder(Path(copy.location) / folder, copy.mode)
    linked = 0
    for name in names:
        if _copy_file(files, copy, name, manifest):
            linked += manifest.files[name].size
    for folder in existing:
        _copy_folder(Path(files.location) / folder, Path(copy.location) / folder)
    # The first version of a new history: no writer, no version before it, no change of views.
    new = replace(
        manifest,
        state_id=id,
        outputs={},
        files={name: manifest.files[name] for name in names},
        epoch=0,
        owner="",
        parent=None,
        link=None,
        dead_letter_file=None,
        dead_letters=0,
    )
    replace_atomically(copy, DEFINITION_FILE, definition)
    for folder in (DATA, ""):
        copy.sync_folder(folder)
    # It makes the copy valid.
    replace_atomically(copy, manifest_name(manifest.batch_id), new.encode())
    copy.sync_folder(MANIFESTS)
    replace_atomically(copy, IDENTITY_FILE, encode_checked(identity))
    copy.sync_folder("")
    total = sum(manifest.files[name].size for name in names)
    return CloneResult(manifest.batch_id, id, linked, total - linked, tuple(existing))


def _read_description(files: Files, name: str) -> bytes:
    """Return a file of the source that describes it.

    Raises:
        StateError: It is missing.
    """
    try:
        return read_small_file(files, name)
    except FileNotFoundError:
        raise StateError(
            f"{files.location} cannot be cloned: {name} is missing there; start its job with the "
            "same views, which writes the file again, stop it and try again; or restore the file "
            "from a copy of the directory"
        ) from None


def _existing_folders(files: Files, copy: Files, folders: Collection[str]) -> list[str]:
    """Return the folders to copy.

    Raises:
        StateError: There are some, and the target is not on a local disk.
    """
    if not isinstance(files, LocalFiles):
        return []
    existing = [folder for folder in folders if (Path(files.location) / folder).is_dir()]
    if existing and not isinstance(copy, LocalFiles):
        raise StateError(
            f"{files.location}/{existing[0]} cannot be copied to {copy.location}: Spark keeps its "
            "checkpoint on a local disk; move this folder out of the state directory, and give its "
            "new place with --checkpoint to the jobs of the state and of a copy of it"
        )
    return existing


def _copy_file(files: Files, copy: Files, name: str, manifest: Manifest) -> bool:
    """Copy a data file durably; return whether both directories share it."""
    if isinstance(files, LocalFiles) and isinstance(copy, LocalFiles):
        return _link(Path(files.location) / name, Path(copy.location) / name)
    size = manifest.files[name].size
    if not (
        isinstance(files, ObjectFiles)
        and isinstance(copy, ObjectFiles)
        and files.copy_to(copy, name, size)
    ):
        copy.write(name, [read_verified(files, name, manifest.files[name])])
        copy.sync(name)
    return False


def _link(source: Path, target: Path) -> bool:
    """Make a hard link, or a copy where that is impossible; return whether it is a link."""
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)
        return False
    return True


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with all that is in it durably; its own name needs a sync of its parent."""
    shutil.copytree(source, target, copy_function=_copy)
    for folder, _, _ in os.walk(target):
        LocalFiles(folder).sync_folder("")


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file, and make its bytes durable."""
    shutil.copy2(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())
