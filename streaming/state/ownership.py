"""Ownership: the current writer of a state directory, in the file ``epoch.json``.

The lock excludes a second process only while its file exists, and remote file systems have no
locks. So each writer that opens the directory takes it over: it writes the next epoch and its
random token. Each commit compares them before and after the rename of the manifest, and no manifest
replaces another (fencing)::

    A: take over 4 ... check 4, publish version 7, check 4 ... check 4: it is 5, StateLockedError
    B:                                  take over 5, read versions up to 7 ...

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
        before = _read(files)
    except StateDamagedError as error:
        log.warning("%s; not needed, a new one is written", error)
        before = None
    known = 0 if before is None else before.epoch
    owner = Owner(max(known, after) + 1, uuid.uuid4().hex)
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
    found = _read(files)
    if found is None:
        raise StateDamagedError(
            f"{files.location}/{EPOCH_FILE} is gone: state directory {files.location} was deleted "
            "or replaced while a sink was writing to it; restore it from a copy, or delete it "
            "together with the checkpoint, and start the query again"
        )
    if found != owner:
        raise StateLockedError(
            f"state directory {files.location} was taken over by another sink (epoch "
            f"{found.epoch}, this one has {owner.epoch}): stop that query and start this one "
            "again, or give it a directory of its own"
        )


def _read(files: Files) -> Owner | None:
    """Return the content of the file; None if there is no file."""
    path = f"{files.location}/{EPOCH_FILE}"
    try:
        body = decode_checked(read_small_file(files, EPOCH_FILE), path)
        return Owner(parse_count(body["epoch"]), parse_text(body["owner"]))
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise StateDamagedError(f"{path} names no writer ({error}): delete the file") from error
