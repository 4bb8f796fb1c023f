"""Ownership: which writer a state directory belongs to, in the file ``epoch.json``.

The lock keeps a second process out as long as its file is there, and other file systems have none.
So each writer that opens the directory takes it over: it writes the next number and a random token
of its own. Every commit compares them, before and after the manifest has its name, and no manifest
takes the place of another::

    A: take over 4 ... check 4, publish version 7, check 4 ... check 4: it is 5, StateLockedError
    B:                                  take over 5, read versions up to 7 ...

A writer that was taken over fails before targets see anything. The file is also what a running sink
misses when its directory is deleted.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Final

from streaming.errors import StateDamagedError, StateLockedError
from streaming.state.checksums import decode_checked, encode_checked, parse_count, parse_text
from streaming.state.files import Files, read_small, replace_small

__all__ = ["EPOCH_FILE", "Owner", "check_owner", "take_over"]

EPOCH_FILE: Final = "epoch.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """A writer of a directory.

    Attributes:
        epoch: Greater than those of all writers before it.
        token: Unlike that of any other writer.
    """

    epoch: int
    token: str


def take_over(files: Files, after: int = 0) -> Owner:
    """Make this process the writer of a directory.

    Args:
        files: The directory, locked if it has locks.
        after: An epoch that the new one has to be greater than.

    Raises:
        OSError: The file system refused.
    """
    try:
        before = _read(files)
    except StateDamagedError as error:
        log.warning("%s; not needed, a new one is written", error)
        before = None
    known = 0 if before is None else before.epoch
    owner = Owner(max(known, after) + 1, uuid.uuid4().hex)
    replace_small(files, EPOCH_FILE, encode_checked({"epoch": owner.epoch, "owner": owner.token}))
    return owner


def check_owner(files: Files, owner: Owner) -> None:
    """Look whether a directory still belongs to a writer.

    Raises:
        StateLockedError: Another writer has taken it over.
        StateDamagedError: The directory is gone, or was replaced.
        OSError: The file system refused.
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
    """The content of the file; None if there is no file."""
    path = f"{files.location}/{EPOCH_FILE}"
    try:
        body = decode_checked(read_small(files, EPOCH_FILE), path)
        return Owner(parse_count(body["epoch"]), parse_text(body["owner"]))
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise StateDamagedError(f"{path} names no writer ({error}): delete the file") from error
