"""Batch order: which version of a state directory a micro-batch continues from.

Spark numbers the micro-batches of a checkpoint 0, 1, 2, ... and repeats the last one after a
failure. So a micro-batch is either the next one after the newest version, or the replay of a
version that is kept. All others are refused: the checkpoint and the directory do not belong
together.

If the newest version is damaged, a replay of its micro-batch continues from the previous version,
and computes the same version again.
"""

from __future__ import annotations

import logging

from streaming.errors import BatchOrderError, StateDamagedError
from streaming.state.manifest import Manifest
from streaming.state.versions import Versions

__all__ = ["check_order", "check_query", "fall_back"]

log = logging.getLogger(__name__)


def check_order(versions: Versions, batch_id: int, location: str) -> None:
    """Check that a micro-batch is the next one, or has a version after which none is missing.

    Args:
        versions: The versions of the directory.
        batch_id: The micro-batch.
        location: The directory, for the message.

    Raises:
        BatchOrderError: It is neither.
    """
    directory = f"state directory {location}"
    newest, oldest = versions.newest, versions.oldest
    if newest is None or oldest is None:
        if batch_id:
            raise BatchOrderError(
                f"the first micro-batch has id {batch_id}, not 0, but {directory} is empty "
                "and the checkpoint has earlier micro-batches; put the state directory back, "
                "or delete the checkpoint as well to read the source again from its beginning"
            )
        return
    if batch_id > newest + 1:
        missing = f"{newest + 1} is"
        if batch_id > newest + 2:
            missing = f"{newest + 1} to {batch_id - 1} are"
        raise BatchOrderError(
            f"micro-batch {batch_id} follows {newest}, the last one in {directory}: "
            f"{missing} missing; put back the state directory or the checkpoint that belong "
            "together, or delete both and empty the targets, to start again"
        )
    if batch_id < oldest:
        raise BatchOrderError(
            f"micro-batch {batch_id} is older than the oldest version in {directory}, which "
            f"has {oldest} to {newest}: the checkpoint was deleted or is an old copy; put back "
            "the one that belongs to the state, or delete both and empty the targets, to start "
            "again"
        )
    lost = None if batch_id > newest else versions.find_missing(batch_id)
    if lost is not None:
        raise BatchOrderError(
            f"micro-batch {batch_id} was replayed, and version {lost} is not in {directory}: if "
            "the checkpoint is an old copy, put back the one that belongs to the state; else "
            "restore the version from a copy, or delete the directory together with the checkpoint"
        )


def check_query(
    current: Manifest | None, batch_id: int, query_id: str | None, location: str
) -> None:
    """Check that a micro-batch is of the query that wrote a version.

    Args:
        current: The version; None if there is none.
        batch_id: The micro-batch.
        query_id: The query of its checkpoint; None if it is not known.
        location: The directory, for the message.

    Raises:
        BatchOrderError: It is of another query.
    """
    if current is None or None in (query_id, current.query_id) or query_id == current.query_id:
        return
    raise BatchOrderError(
        f"micro-batch {batch_id} is from query {query_id}, state directory "
        f"{location} belongs to query {current.query_id}: one state serves one "
        "checkpoint; put back that checkpoint, or delete the state directory as well"
    )


def fall_back(
    versions: Versions, batch_id: int, error: StateDamagedError, *, can_repeat: bool
) -> None:
    """Continue from the previous version, if Spark replays the micro-batch of the newest.

    The state before version 0 is empty, so version 0 needs no previous version.

    Args:
        versions: The versions of the directory; the newest one is ignored from now on.
        batch_id: The micro-batch.
        error: The damage of the newest version.
        can_repeat: True if the caller can apply the micro-batch again.

    Raises:
        StateDamagedError: The micro-batch of the newest version is not applied again, or the
            previous version is missing.
    """
    newest = versions.newest
    is_replay = can_repeat and newest is not None and batch_id <= newest
    if newest is None or not is_replay or (newest and newest - 1 not in versions):
        raise StateDamagedError(
            f"{error}. Micro-batch {batch_id} needs this version: restore the state "
            "directory from a copy, or delete it together with the checkpoint"
        ) from error
    log.warning(
        "%s; continuing from %s, because micro-batch %d is replayed",
        error,
        f"version {newest - 1}" if newest else "the empty state",
        newest,
    )
    versions.ignore(newest)
