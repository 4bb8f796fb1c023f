"""Target: the interface of a place that receives the changes of views, exactly once.

::

    target.write(ViewDelta(view, batch_id, table, ...))

The sink calls ``write`` after its own commit, at least once for each micro-batch and view. Batch
ids increase, and after a crash the last one is written again, with the same rows. Every target
guarantees: a micro-batch that has been written is not written again, and a crash at any point of
``write``, followed by the same call, leaves the result of one complete call. So the target holds
each change exactly once.

The identity of a change is (state directory, view, batch id). The target stores the last identity
*in the same atomic act* as the rows: in the name of the file, the transaction of the Delta log, the
row of a bookkeeping table. A batch id alone is not enough, because a new state directory starts
from 0 again and its views begin empty. If a target finds deltas of another state directory, it
raises an error, because the sum of both is not a view. In mode ``complete`` a new state directory
replaces the view of an earlier one; two that alternate raise an error
(`ViewDelta.check_only_writer`).

The sum is not a view either if a target has missed micro-batches, for example because it was
restored from an older copy. So each delta names the last earlier micro-batch with rows of the view
(``ViewDelta.previous``), and a target that does not hold it raises `MissedBatchesError`. A delta
that is the whole view replaces what the target holds. A sink with a state directory writes the
whole view to a target that holds nothing of it, such as one of an added output: before the first
micro-batch it asks each `RecordingTarget` for its last micro-batch. Any other target, such as a
class without ``last_batch``, receives only the later deltas of a view that the sink had before. A
view that is added to a sink that runs is new, so its first delta is the whole view, whatever the
target holds.

A target is a value until the first ``write``: its constructor opens nothing, and it can be pickled,
because in Spark Connect it runs in another process.

The path or table name of a target is a template: ``"lake/{view}"`` is a directory or table for each
view; without ``{view}`` the target receives only one view.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa

from circuits.schema import WEIGHT
from streaming.errors import MissedBatchesError, TargetError
from streaming.targets.output_mode import Mode, OutputMode

__all__ = [
    "BATCH_ID",
    "NO_BATCH",
    "CheckedTarget",
    "ParallelTarget",
    "PartwiseTarget",
    "RecordingTarget",
    "ReplacingTarget",
    "Target",
    "ViewDelta",
    "address_of",
    "expand_template",
    "file_name",
]

BATCH_ID: Final = "batch_id"
#: Stands for the micro-batch before the first one.
NO_BATCH: Final = -1
_VIEW: Final = "{view}"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ViewDelta:
    """The change of one view in one micro-batch.

    Attributes:
        view: Name of the view.
        batch_id: The micro-batch, from 0.
        table: Rows with the int64 column ``weight``. In mode ``delta`` the consolidated changes; in
            mode ``upsert`` at most one row per key, the current row with weight 1 or a deleted row
            with weight -1; in mode ``append`` the new rows, of weights above 0; in mode
            ``complete`` the whole view.
        mode: See `streaming.targets.output_mode`.
        keys: The key columns, in mode ``upsert``.
        state_id: Identity of the state directory that counts the batch ids.
        files: Parquet files that also contain ``table``; empty if there are none.
        previous: The last earlier micro-batch in which the view had rows to write; `NO_BATCH` if
            there is none, so that the table is the whole view; None if it is not known.
        read_parts: For a `PartwiseTarget`: yields the rows as several tables, one after the other,
            so that not all of them are in memory; ``table`` then has no rows. None if ``table`` has
            all rows.
    """

    view: str
    batch_id: int
    table: pa.Table
    mode: Mode = "delta"
    keys: tuple[str, ...] = ()
    state_id: str = ""
    files: tuple[str, ...] = ()
    previous: int | None = None
    read_parts: Callable[[], Iterator[pa.Table]] | None = None

    @property
    def has_rows(self) -> bool:
        """Return whether there are rows to write."""
        return self.read_parts is not None or bool(self.table.num_rows)

    def parts(self) -> Iterator[ViewDelta]:
        """Yield deltas whose tables together have all rows, one after the other.

        >>> parts = [pa.table({"n": [1], "weight": [1]}), pa.table({"n": [2], "weight": [1]})]
        >>> delta = ViewDelta("v", 0, parts[0].slice(0, 0), read_parts=lambda: iter(parts))
        >>> [part.table.num_rows for part in delta.parts()], [*delta.parts()][0].read_parts
        ([1, 1], None)
        """
        if self.read_parts is None:
            yield self
            return
        for table in self.read_parts():
            yield replace(self, table=table, read_parts=None)

    def __str__(self) -> str:
        return f"view {self.view!r}, micro-batch {self.batch_id}"

    @property
    def is_whole(self) -> bool:
        """Return whether the table is the whole view, so that it replaces all older rows."""
        return self.mode == "complete" or self.previous == NO_BATCH

    @property
    def output_mode(self) -> OutputMode:
        """The mode with its keys."""
        return OutputMode(self.mode, self.keys)

    def written_columns(self) -> list[str]:
        """Return the columns of the table of a target: without the weight in modes without one."""
        names: list[str] = self.table.column_names
        return names if self.output_mode.has_weight else [n for n in names if n != WEIGHT]

    def written_rows(self) -> pa.Table:
        """Return the rows that a target inserts if it has none of the view.

        In mode ``append`` each row is there as often as its weight says; in mode ``upsert`` deleted
        rows are left out.

        >>> ViewDelta("v", 0, pa.table({"n": [1, 2], "weight": [2, 1]}), "append"
        ...     ).written_rows().to_pylist()
        [{'n': 1}, {'n': 1}, {'n': 2}]
        """
        rows = self.table.select(self.written_columns())
        if self.output_mode.has_weight:
            return rows
        weights = self.table.column(WEIGHT).to_numpy()
        if self.mode == "upsert":
            return rows if (weights > 0).all() else rows.filter(pa.array(weights > 0))
        return rows if (weights == 1).all() else rows.take(np.repeat(np.arange(len(rows)), weights))

    def check_only_writer(self, writer: str, place: str) -> None:
        """Check that no other state directory writes the target as well.

        In mode ``complete``, a new state directory may replace the view of an earlier one, which
        logs a warning. But if this directory has published the view before, and the target was last
        written by another one, both replace the view of the other. In the other modes, call this
        method only if the target has recorded a micro-batch of this directory.

        Args:
            writer: The state directory that has written the target last; empty if it is not known.
            place: The target, for the message.

        Raises:
            TargetError: There are two writers.

        >>> ViewDelta("v", 9, pa.table({"n": [1]}), "complete", state_id="a", previous=7
        ...     ).check_only_writer("b", "table 't'")
        Traceback (most recent call last):
        streaming.errors.TargetError: view 'v', micro-batch 9: table 't' was last written by \
another state directory (b), and this one (a) has published the view before, so each replaces the \
view of the other: stop one of the two jobs, or give it another target; to go on with this job, \
drop the table or the files of this view, and start the query again
        """
        if writer in ("", self.state_id):
            return
        replaces = self.mode == "complete"
        if replaces and (self.previous is None or self.previous == NO_BATCH):
            log.warning(
                "%s: %s was last written by another state directory (%s), and this one (%s) "
                "replaces its rows: if the other job still runs, its next micro-batch with rows of "
                "this view fails; stop it, or give one of the two jobs another target",
                self,
                place,
                writer,
                self.state_id or "none",
            )
            return
        effect = "each replaces the view of the other" if replaces else "their rows would mix"
        raise TargetError(
            f"{self}: {place} was last written by another state directory ({writer}), and this one "
            f"({self.state_id or 'none'}) has published the view before, so {effect}: stop one of "
            "the two jobs, or give it another target; to go on with this job, drop the table or "
            "the files of this view, and start the query again"
        )

    def check_follows(self, last_batch: int, place: str) -> None:
        """Check that a target holds all earlier micro-batches of the view.

        Args:
            last_batch: The last micro-batch of the view that the target holds, or `NO_BATCH`.
            place: The target, for the message.

        Raises:
            MissedBatchesError: It does not.

        >>> ViewDelta("v", 9, pa.table({"n": [1]}), previous=7).check_follows(5, "table 't'")
        Traceback (most recent call last):
        streaming.errors.MissedBatchesError: view 'v', micro-batch 9: table 't' holds the \
micro-batches up to 5, and must hold those up to 7: put back the rows that it has lost; or drop \
the table or the files of this view, and start the query again, which then writes the whole view \
(in mode 'distributed': start with an empty state directory, checkpoint and target)
        """
        if self.is_whole or self.previous is None or last_batch >= self.previous:
            return
        held = f"the micro-batches up to {last_batch}" if last_batch >= 0 else "no micro-batch"
        raise MissedBatchesError(
            f"{self}: {place} holds {held}, and must hold those up to {self.previous}: put back "
            "the rows that it has lost; or drop the table or the files of this view, and start the "
            "query again, which then writes the whole view (in mode 'distributed': start with an "
            "empty state directory, checkpoint and target)"
        )

    def with_batch_id(self) -> pa.Table:
        """Return the table with ``batch_id`` as an additional first column.

        Raises:
            TargetError: The view has a column of that name.
        """
        self.check_free(BATCH_ID)
        batch = pa.repeat(pa.scalar(self.batch_id, pa.int64()), self.table.num_rows)
        return self.table.add_column(0, pa.field(BATCH_ID, pa.int64(), nullable=False), batch)

    def check_free(self, *names: str) -> None:
        """Check that the view has no columns of these names, which the target adds.

        Raises:
            TargetError: A column has one of these names.
        """
        for name in names:
            if name in self.table.column_names:
                raise TargetError(
                    f"view {self.view!r} has a column {name!r}, which the target adds itself: "
                    "rename the column in the view (SELECT ... AS ...)"
                )

    def foreign_rows_error(self, place: str) -> TargetError:
        """Return the error for a place with rows of another view or state directory."""
        return TargetError(
            f"{place} holds rows that are not from view {self.view!r} of this state directory "
            f"({self.state_id or 'none'}), so deltas cannot be added to them: choose an empty "
            "target, or empty this one. After state and checkpoint were deleted, views begin empty "
            "and so must their targets; several views need {view} in the path or table name"
        )


@runtime_checkable
class Target(Protocol):
    """Writes deltas of views, idempotent by (state directory, view, batch id)."""

    def write(self, delta: ViewDelta) -> None:
        """Write the delta completely and durably, unless it has been written already.

        Raises:
            TargetError: The write failed; none of its rows is visible.
        """
        ...


@runtime_checkable
class CheckedTarget(Target, Protocol):
    """A target that can check before the first micro-batch whether it accepts the view."""

    def check(self, delta: ViewDelta) -> None:
        """Check, without changing anything, that this delta could be written.

        Args:
            delta: An empty delta with the view, state directory and mode of later ones.

        Raises:
            TargetError: The target would reject the delta.
        """
        ...


@runtime_checkable
class RecordingTarget(Target, Protocol):
    """A durable target that knows which micro-batches it holds."""

    def last_batch(self, delta: ViewDelta) -> int:
        """Return the last micro-batch with rows of the view that the target holds.

        Args:
            delta: An empty delta with the view, state directory and mode of later ones.

        Returns:
            At least the id of that micro-batch, and at most that of the last one written;
            `NO_BATCH` if the target holds none of this state directory.

        Raises:
            TargetError: The target cannot be read.
        """
        ...


@runtime_checkable
class ReplacingTarget(Target, Protocol):
    """A target in which a whole view atomically replaces the rows that it holds of this view.

    Only to such a target is the initial content of a new view written in several micro-batches
    (`streaming.sink.view_changes`): if the job stops in between, it is written from the beginning.
    """

    #: True for the classes and objects that do this (`ViewDelta.is_whole`).
    replaces_views: bool


@runtime_checkable
class ParallelTarget(Target, Protocol):
    """A target to which several threads may write at the same time, each another view."""

    #: True for the classes and objects that allow this.
    writes_in_parallel: bool


@runtime_checkable
class PartwiseTarget(Target, Protocol):
    """A target that does not need all rows of a delta in memory (`ViewDelta.read_parts`)."""

    #: True for the classes and objects that read the parts.
    reads_parts: bool


def expand_template(template: str, view: str, *, quoted: bool = True) -> str:
    """Replace ``{view}`` in a path or table name by the name of the view.

    Args:
        template: The path or table name.
        view: The name of the view.
        quoted: If True, the name is written as `file_name` returns it; else it is unchanged.

    >>> expand_template("out/{view}", "a/b"), expand_template("out", "a/b")
    ('out/a%2Fb', 'out')
    """
    name = file_name(view) if quoted else view
    return template.replace(_VIEW, name)


def file_name(text: str) -> str:
    """Convert any text to a part of a file name; different texts have different results."""
    name = quote(text, safe=" ")
    # Readers of directories skip names that begin with a dot or an underscore.
    escapes = {".": "%2E", "_": "%5F"}
    return escapes.get(name[:1], name[:1]) + name[1:]


def address_of(place: str) -> str:
    """Return a path or URL for messages; a URL without user, password and parameters.

    >>> address_of("s3://key:secret@bucket/lake?token=1"), address_of("lake/orders")
    ('s3://bucket/lake', 'lake/orders')
    """
    parts = urlsplit(place)
    if not parts.netloc:
        return place
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
