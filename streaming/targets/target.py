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
raises an error, because the sum of both is not a view.

A target is a value until the first ``write``: its constructor opens nothing, and it can be pickled,
because in Spark Connect it runs in another process.

The path or table name of a target is a template: ``"lake/{view}"`` is a directory or table for each
view; without ``{view}`` the target receives only one view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

import pyarrow as pa

from streaming.errors import TargetError
from streaming.targets.output_mode import Mode

__all__ = [
    "BATCH_ID",
    "CheckedTarget",
    "Target",
    "ViewDelta",
    "address_of",
    "expand_template",
    "file_name",
]

BATCH_ID: Final = "batch_id"
_VIEW: Final = "{view}"


@dataclass(frozen=True)
class ViewDelta:
    """The change of one view in one micro-batch.

    Attributes:
        view: Name of the view.
        batch_id: The micro-batch, from 0.
        table: Rows with the int64 column ``weight``. In mode ``delta`` the consolidated changes; in
            mode ``upsert`` at most one row per key, the current row with weight 1 or a deleted row
            with weight -1; in mode ``complete`` the whole view.
        mode: See `streaming.targets.output_mode`.
        keys: The key columns, in mode ``upsert``.
        state_id: Identity of the state directory that counts the batch ids.
        files: Parquet files that also contain ``table``; empty if there are none.
    """

    view: str
    batch_id: int
    table: pa.Table
    mode: Mode = "delta"
    keys: tuple[str, ...] = ()
    state_id: str = ""
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"view {self.view!r}, micro-batch {self.batch_id}"

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
