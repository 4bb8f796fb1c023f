"""Ownership: the current writer of a state directory, in the file ``epoch.json``.

The lock excludes a second process only while its file exists, and remote file systems have no
locks. So each writer that opens the directory takes it over: it writes the next epoch and its
random token. Each commit compares them before and after the rename of the manifest, and no manifest
replaces another (fencing)::

    writer A                                writer B
    takes over: epoch 4
    checks: 4; renames manifest 7; checks: 4
                                            takes over: epoch 5; reads versions up to 7
    checks: 5, StateLockedError

A writer that was replaced fails before targets receive anything. If the file is missing, a running
sink knows that its directory was deleted.

A check and the operation after it are two calls, and another writer may take over in between. These
rules make the operation harmless then:

- To commit, a writer first writes its manifest under a temporary name, then checks, then renames
  it. A writer that takes over removes the temporary manifests before it reads the versions. So each
  commit of an earlier writer is read, or it fails because its temporary file is missing.
- A writer removes a file only if it listed the file before a check, and if no version that it has
  read or written names the file. A later writer reads these versions, so it does not need the file
  either. `streaming.state.versions` lists, checks and removes in this order.
- All other files, except those that describe the directory (``state.json``, ``views.json``,
  ``epoch.json``), have names that no other writer uses. A description that an earlier writer
  replaces late is written again at the next start.

This needs a file system whose operations take effect in one order, and whose rename is atomic. Then
two cases remain in which a writer that was replaced between its check and its next call can do
harm. Both are refused or repaired when the directory is read, and give no wrong rows:

- A replay replaces a damaged version: its manifest is removed by name, although the later writer
  may have replaced it already. The next start then misses this version.
- A command that rewrites the newest version (`streaming.state.version_rewrite`) replaces its
  manifest by an equal one, which is not the one that the later writer's versions name as parent. So
  it is not used if those are damaged.

An object store (`streaming.state.files.AtomicFiles`) has no temporary manifests: the commit is one
request, which creates the manifest unless it exists. A request of an earlier writer may be delayed,
and take effect after a takeover. It then commits the version that the later writer is to write
next, or nothing. In the first case the later writer's commit fails, because the name is used, and
it continues from this version when it starts again. Therefore it removes files only after its first
commit.

If the rename to an unused name is not atomic (`Files.rename_new` says where), two writers that both
commit a version within that call may replace each other's manifest.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from dataclasses import dataclass
from typing import Final

from streaming.errors import StateDamagedError, StateLockedError
from streaming.state.checksums import decode_checked, encode_checked, parse_count, parse_text
from streaming.state.files import (
    TEMPORARY_SUFFIX,
    Files,
    is_atomic,
    read_small_file,
    replace_atomically,
)
from streaming.state.manifest import MANIFESTS

__all__ = ["EPOCH_FILE", "Owner", "check_owner", "raise_if_replaced", "take_over"]

EPOCH_FILE: Final = "epoch.json"
MAX_ATTEMPTS: Final = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """A writer of a directory.

    Attributes:
        epoch: Greater than the epochs of all earlier writers.
        token: Unique to the writer.
    """

    epoch: int
    token: str


def take_over(files: Files, after: int = 0) -> Owner:
    """Make this process the writer of a directory.

    When this returns, all versions that earlier writers committed can be read, and these writers
    cannot commit any more. On an object store they can, until this writer has committed its first
    version.

    Args:
        files: The directory, locked if it has locks.
        after: The new epoch is greater than this one.

    Raises:
        OSError: The file system failed.
    """
    try:
        previous = _read_owner(files)
    except StateDamagedError as error:
        log.warning("%s; a new one replaces it", error)
        previous = None
    last_epoch = after if previous is None else max(previous.epoch, after)
    owner = Owner(last_epoch + 1, uuid.uuid4().hex)
    _write_owner(files, owner)
    for name in [] if is_atomic(files) else files.names(MANIFESTS):
        if name.endswith(TEMPORARY_SUFFIX):
            with contextlib.suppress(IsADirectoryError):
                files.remove(name)
    return owner


def check_owner(files: Files, owner: Owner) -> None:
    """Check that a directory still belongs to a writer.

    Raises:
        StateLockedError: Another writer has taken it over.
        StateDamagedError: The directory was deleted or replaced.
        OSError: The file system failed.
    """
    current = _read_owner(files)
    if current is None:
        raise StateDamagedError(
            f"{files.location}/{EPOCH_FILE} is missing: state directory {files.location} was "
            "deleted or replaced while a sink was writing to it; restore it from a copy, or delete "
            "it together with the checkpoint, and start the query again"
        )
    if current != owner:
        raise StateLockedError(
            f"state directory {files.location} was taken over by another sink (epoch "
            f"{current.epoch}, this one has {owner.epoch}): stop that query and start this one "
            "again, or give it a directory of its own"
        )


def raise_if_replaced(files: Files, owner: Owner) -> None:
    """Raise `StateLockedError` if another writer has taken over; ignore all other errors.

    Call it when an operation has failed. The later writer removes files, so its takeover may be the
    cause of an error that looks like damage.
    """
    with contextlib.suppress(OSError, StateDamagedError):
        check_owner(files, owner)


def _write_owner(files: Files, owner: Owner) -> None:
    data = encode_checked({"epoch": owner.epoch, "owner": owner.token})
    for attempt in range(MAX_ATTEMPTS):
        try:
            replace_atomically(files, EPOCH_FILE, data)
            return
        except FileNotFoundError:  # another writer has removed the temporary file
            if attempt == MAX_ATTEMPTS - 1:
                raise


def _read_owner(files: Files) -> Owner | None:
    """Return the current writer; None if the file is missing."""
    path = f"{files.location}/{EPOCH_FILE}"
    try:
        body = decode_checked(read_small_file(files, EPOCH_FILE), path)
        return Owner(parse_count(body["epoch"]), parse_text(body["owner"]))
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise StateDamagedError(
            f"{path} does not name a writer ({error}): delete the file"
        ) from error
