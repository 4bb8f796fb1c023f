"""Last changes: which micro-batches the target of each view must hold.

A version records for each view the last micro-batches in which its published table has rows
(`streaming.state.manifest.LastChanges`). So a target can notice that it has missed one, although
micro-batches without rows are not written to every target. The first table of a view is the whole
view, and nothing comes before it.

If a target holds nothing of a view that has rows, for example because its output was added or its
table was dropped, then the view counts as one that was not published before. The next version
publishes the whole view, in the same way as that of a new view (`streaming.state.program_change`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from streaming.state.manifest import LastChanges, Manifest, ProgramLink

__all__ = ["LastBatch", "find_unwritten", "next_changes"]

#: Returns the last micro-batch of a view that its target holds; -1 if none, None if not known.
LastBatch = Callable[[str], int | None]


def next_changes(
    batch_id: int,
    tables: Mapping[str, pa.Table],
    manifest: Manifest | None,
    link: ProgramLink | None,
) -> dict[str, LastChanges]:
    """Return the last changes of the next version.

    Args:
        batch_id: The next version.
        tables: The published table of each view.
        manifest: The version before; None if there is none.
        link: The views that the next version continues; None if it has the same views.

    >>> tables = {"v": pa.table({"n": [1]}), "w": pa.table({"n": []})}
    >>> next_changes(0, tables, None, None)
    {'v': LastChanges(previous=-1, last=0), 'w': LastChanges(previous=-1, last=-1)}
    """

    def previous_of(view: str) -> int | None:
        old_view = view if link is None else link.views.get(view)
        if manifest is None or old_view is None:
            return -1
        return manifest.changes[old_view].last if old_view in manifest.changes else None

    changes = {}
    for view, table in tables.items():
        previous = previous_of(view)
        changes[view] = LastChanges(previous, batch_id if table.num_rows else previous)
    return changes


def find_unwritten(
    views: Iterable[str],
    renames: Mapping[str, str],
    versions: Callable[[int], Manifest],
    *,
    newest: int,
    batch_id: int | None,
    last_batch: LastBatch,
) -> dict[str, str]:
    """Find the views that have rows, and whose targets hold none of them.

    Args:
        views: The views of the sink.
        renames: The views whose name in the newest version differs, with that name.
        versions: Returns a version.
        newest: The newest version.
        batch_id: The micro-batch that is written to the targets next, maybe a replay; None if it is
            not known.
        last_batch: See `LastBatch`.

    Returns:
        For each such view its name in the newest version.

    Raises:
        StateDamagedError: The manifest of a version is damaged.
        TargetError: A target cannot be read.
    """
    is_replay = batch_id is not None and batch_id <= newest
    first = batch_id if batch_id is not None and is_replay else newest
    links = [versions(number).link for number in range(newest, first, -1)]
    changes = versions(first).changes
    unwritten = {}
    for view in views:
        name = renames.get(view, view)
        old_name: str | None = name
        for link in links:
            if link is not None and old_name is not None:
                old_name = link.views.get(old_name)
        if old_name is None or old_name not in changes:
            continue  # a later version publishes the whole view; or an earlier release wrote it
        required = changes[old_name].previous if is_replay else changes[old_name].last
        if required is not None and required >= 0 and last_batch(view) == -1:
            unwritten[view] = name
    return unwritten
