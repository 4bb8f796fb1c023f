"""Unpublished views: views that a replayed micro-batch was not published to.

::

    program A     micro-batch N is committed; the job stops before a target has received it
    program B     does not have view v; the replay of N is published without v; the job stops
                  before N + 1, which would commit the change to B
    program A     goes on with N + 1, because Spark does not replay N again

Without a record, the target of v would never receive N. So before such a replay is published, a
file records the views that it leaves out. A sink that has one of them, and whose next micro-batch
is N + 1, publishes N to this view first. Targets ignore a micro-batch that they have. When a
version N + 1 is committed, the record is out of date: either its sink has published N, or the
change is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from streaming.errors import StateDamagedError
from streaming.state.checksums import (
    decode_checked,
    encode_checked,
    parse_count,
    parse_texts,
)
from streaming.state.files import Files, read_small_file, replace_atomically

__all__ = ["UNPUBLISHED_FILE", "UnpublishedFile", "UnpublishedViews"]

UNPUBLISHED_FILE: Final = "unpublished.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnpublishedViews:
    """The views that a replay left out.

    Attributes:
        batch_id: The micro-batch; None if the record is damaged.
        views: Their names in the version of the micro-batch.
    """

    batch_id: int | None
    views: tuple[str, ...]

    @staticmethod
    def read(files: Files) -> UnpublishedViews | None:
        """Return the record of a directory; None if there is none.

        Raises:
            OSError: The file system failed.
        """
        if files.size(UNPUBLISHED_FILE) is None:
            return None
        try:
            body = decode_checked(
                read_small_file(files, UNPUBLISHED_FILE), f"{files.location}/{UNPUBLISHED_FILE}"
            )
            return UnpublishedViews(parse_count(body["batch_id"]), parse_texts(body["views"]))
        except (StateDamagedError, KeyError, TypeError, ValueError):
            return UnpublishedViews(None, ())

    def write(self, files: Files) -> None:
        """Write the record; it is durable when this returns.

        Raises:
            OSError: The file system failed.
        """
        body = {"batch_id": self.batch_id, "views": list(self.views)}
        replace_atomically(files, UNPUBLISHED_FILE, encode_checked(body))
        files.sync_folder("")

    def views_to_publish(self, batch_id: int, views: Collection[str]) -> tuple[str, ...]:
        """Return the views of a version that have to be published again.

        Args:
            batch_id: The newest version.
            views: Its views.

        Returns:
            The recorded ones; all views if the record is damaged; none if it is out of date.
        """
        if self.batch_id is None:
            return tuple(views)
        return tuple(view for view in self.views if self.batch_id == batch_id and view in views)


class UnpublishedFile:
    """The record of a directory that this process writes, and its file.

    Args:
        files: The directory.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._record: UnpublishedViews | None = None

    @property
    def is_empty(self) -> bool:
        """True if no view is recorded."""
        return self._record is None

    def read(self) -> None:
        """Read the record that an earlier process left.

        Raises:
            OSError: The file system failed.
        """
        self._record = UnpublishedViews.read(self._files)

    def replace(self, record: UnpublishedViews) -> None:
        """Write another record; it is durable when this returns.

        Raises:
            OSError: The file system failed.
        """
        self._record = record
        record.write(self._files)

    def take_views(self, batch_id: int, views: Collection[str]) -> tuple[str, ...]:
        """Return the views to publish again (`UnpublishedViews.views_to_publish`).

        A record of an earlier version is out of date, and this removes its file.
        """
        if self._record is None:
            return ()
        recorded = self._record.views_to_publish(batch_id, views)
        if not recorded:  # a later version is committed
            self.remove()
        return recorded

    def remove(self) -> None:
        """Remove the record, because its views are published."""
        self._record = None
        try:
            self._files.remove(UNPUBLISHED_FILE)
        except OSError as error:  # it is out of date once the next version is committed
            log.warning("%s was not removed: %s", UNPUBLISHED_FILE, error)
