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
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Final

from streaming.errors import StateDamagedError, StateLockedError
from streaming.state.checksums import decode_checked, encode_checked, parse_count, parse_text
from streaming.state.files import Files, read_small_file, replace_atomically

__all__ = ["EPOCH_FILE", "Owner", "check_owner", "take_over"]

EPOCH_FILE: Final = "epoch.json"

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
    replace_atomically(
        files, EPOCH_FILE, encode_checked({"epoch": owner.epoch, "owner": owner.token})
    )
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
