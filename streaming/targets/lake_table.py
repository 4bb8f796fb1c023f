"""Checks of tables of Delta Lake and Iceberg, and retries of their commits.

A table that a target creates has a property with the name of its view. An existing table must have
the columns of the view, with the same types or types that contain all their values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from streaming.errors import TargetError
from streaming.redaction import redact
from streaming.targets.column_types import contains_type
from streaming.targets.target import ViewDelta

__all__ = ["STATE_KEY", "VIEW_KEY", "check_columns", "check_types", "check_view", "retry_conflicts"]

#: The table property that names the view, in tables that a target creates.
VIEW_KEY: Final = "dbsp_wcoj.view"
#: The property that names the state directory of the last writer.
STATE_KEY: Final = "dbsp_wcoj.state"
MAX_ATTEMPTS: Final = 6
#: The pause after the first conflict; it doubles after each further conflict.
FIRST_PAUSE_S: Final = 0.05


def check_view(delta: ViewDelta, view: str, place: str) -> None:
    """Check that a table which a target created was created for this view.

    Args:
        delta: The delta to write; its table has the types of the lake.
        view: The view that the table names.
        place: The table, for the message.

    Raises:
        TargetError: It was created for another view.
    """
    if view != delta.view:
        raise TargetError(
            f"view {delta.view!r}: {place} receives view {view!r}, and two views in one table "
            "would mix, or overwrite each other: give each view its own table, with {view} in the "
            "name. If the other view is no longer written, remove the table; the target then "
            "creates it again with the whole view"
        )


def check_types(delta: ViewDelta, existing: pa.Schema, place: str) -> None:
    """Check that the columns of an existing table contain all values of those of the view.

    Otherwise a writer would change values without an error, for example 1.5 to 1.

    Raises:
        TargetError: The type of a column is neither that of the view nor a wider one.
    """
    for field in existing:
        if field.name in delta.table.column_names:
            type_ = delta.table.schema.field(field.name).type
            if not contains_type(field.type, type_):
                raise TargetError(
                    f"view {delta.view!r}: column {field.name!r} of {place} is {field.type}, and "
                    f"the view has {type_}: cast it in the view, or name another table"
                )


def check_columns(delta: ViewDelta, existing: pa.Schema, place: str) -> None:
    """Check that an existing table has the columns of the view.

    Raises:
        TargetError: It has others.
    """
    required = delta.written_columns()
    if set(required) != set(existing.names):
        raise TargetError(
            f"view {delta.view!r}: {place} cannot receive it: its columns are "
            f"{', '.join(existing.names)}, and those of the view {', '.join(required)}; name "
            "another table, or remove it; the target then creates it again"
        )


def retry_conflicts(
    write: Callable[[], None], conflicts: tuple[type[Exception], ...], delta: ViewDelta, place: str
) -> None:
    """Call a function again, after growing pauses, if it conflicts with another writer.

    Args:
        write: Reads the table and commits a micro-batch to it.
        conflicts: The errors of a commit that another writer has preceded, or of which it is not
            known whether it was made.
        delta: The micro-batch, for the message.
        place: The table, for the message.

    Raises:
        TargetError: It conflicts `MAX_ATTEMPTS` times.
    """
    pause = FIRST_PAUSE_S
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            write()
            return
        except conflicts as error:
            if attempt == MAX_ATTEMPTS:
                reason = redact(" ".join(str(error).split()))
                raise TargetError(
                    f"{delta}: {MAX_ATTEMPTS} commits to {place} failed: {reason}; if another "
                    "writer changes it all the time, stop that writer; start the query again"
                ) from error
            time.sleep(pause)
            pause *= 2
