"""Clone: a copy of a state directory on the local disk, for another job.

::

    state/  --clone-->  copy/        the newest version, with a new id, without files of outputs

The files that a version lists never change. So the copy has hard links to them if both directories
are on one file system, and copies of them otherwise. Jobs can then use both directories: neither
job writes to such a file again, and removing it from one directory leaves it in the other.

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

from streaming.errors import StateError
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.directory_identity import IDENTITY_FILE
from streaming.state.files import read_small_file
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import MANIFESTS, manifest_name
from streaming.state.program_change import definition_name, newest_version
from streaming.state.verified_files import check_size
from streaming.state.versions import DATA
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
    """

    batch_id: int
    id: str
    linked_bytes: int
    copied_bytes: int


def clone_state(source: Path, target: Path, *, folders: Collection[str] = ()) -> CloneResult:
    """Copy the newest version of a state directory that no process writes to; the copy is durable.

    Args:
        source: The directory.
        target: The new directory; it must not exist, or be empty.
        folders: The names of other folders of the source, such as Spark's checkpoint; those that
            exist are copied, without links.

    Raises:
        StateError: The source has no version or is distributed, or the target is not empty.
        StateLockedError: A process writes to the source.
        StateDamagedError: The newest version is damaged.
    """
    files = LocalFiles(str(source))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StateError(f"{target} exists and is not an empty folder: name a new one")
    if target.resolve().is_relative_to(source.resolve()):
        raise StateError(f"{target} is inside of {source}: name a folder beside it")
    if not source.is_dir():
        raise StateError(f"{source} is not a folder")
    files.lock()
    try:
        return _clone(files, source, target, folders)
    except OSError as error:
        raise StateError(
            f"{source} cannot be cloned to {target}: {error}; remove {target}, correct this and "
            "try again"
        ) from error
    finally:
        files.unlock()


def _clone(files: LocalFiles, source: Path, target: Path, folders: Collection[str]) -> CloneResult:
    manifest = newest_version(files)
    if manifest is None:
        raise StateError(f"{source} has no version that could be cloned")
    if manifest.cells is not None:
        raise StateError(
            f"{source} is distributed over cells: move the state to one process first, with "
            f"dbsp-wcoj rescale {source} --embedded"
        )
    names = manifest.data_files
    for name in names:
        check_size(files, name, manifest.files[name])
    id = str(uuid.uuid4())
    mode = source.stat().st_mode & 0o777
    for path in (target, target / DATA, target / MANIFESTS):
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    linked = copied = 0
    for name in names:
        if _link(source / name, target / name):
            linked += manifest.files[name].size
        else:
            copied += manifest.files[name].size
    for folder_name in folders:
        if (source / folder_name).is_dir():
            shutil.copytree(source / folder_name, target / folder_name, copy_function=_copy)
    copy = LocalFiles(str(target))
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
    )
    identity = decode_checked(read_small_file(files, IDENTITY_FILE), f"{source}/{IDENTITY_FILE}")
    for name, data in (
        (DEFINITION_FILE, read_small_file(files, definition_name(files, manifest))),
        (IDENTITY_FILE, encode_checked({**identity, "id": id})),
        (manifest_name(manifest.batch_id), new.encode()),  # last: it makes the copy valid
    ):
        copy.write(name, [data])
        copy.sync(name)
    for folder in (DATA, MANIFESTS, ""):
        copy.sync_folder(folder)
    return CloneResult(manifest.batch_id, id, linked, copied)


def _link(source: Path, target: Path) -> bool:
    """Make a hard link, or a copy where that is impossible; return whether it is a link."""
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)
        return False
    return True


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file, and make its bytes durable."""
    shutil.copy2(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())
