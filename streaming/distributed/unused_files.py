"""Remove the files that cells have written for a micro-batch that is not committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from streaming.errors import StateDamagedError
from streaming.state.files import Files, remove_files
from streaming.state.manifest import read_cell_manifest
from streaming.state.version_summary import PublishedTable, StoredTable

__all__ = ["remove_unused_files"]


def remove_unused_files(
    files: Files,
    kept: Mapping[tuple[int, int], bytes],
    *unused: Mapping[tuple[int, int], bytes],
    tables: Iterable[PublishedTable] = (),
) -> None:
    """Remove files of cells and views, because the state directory will not name them.

    Files that cannot be removed remain until the directory is opened again.

    Args:
        files: The state directory.
        kept: The manifests of the cells that remain, by stage and cell: their files are kept.
        unused: Manifests of cells that are discarded; those that are also in ``kept`` are ignored.
        tables: Published tables that are discarded.

    Complexity:
        O(files of the manifests that are not in ``kept``).
    """
    names: set[str] = set()
    for manifests in unused:
        for cell, manifest in manifests.items():
            before = kept.get(cell)
            if manifest != before:
                names |= read_cell_manifest(manifest).files.keys()
                if before is not None:
                    names -= read_cell_manifest(before).files.keys()
    for table in tables:
        if isinstance(table, StoredTable):
            names |= table.checksums.keys()
    with suppress(OSError, StateDamagedError):
        remove_files(files, sorted(names))
