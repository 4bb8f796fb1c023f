"""TaskFiles: the files that a task writes to the state directory, synced together at its end.

A task steps several cells, and writes several views. A file system writes its journal once for all
syncs that wait for it, so one sync of all files takes a fraction of the time of one for each cell.
The results of a task count only when it has ended, so its manifests may be made before the sync.
If the task fails, its files are removed.
"""

from __future__ import annotations

from types import TracebackType

from streaming.state.files import Files
from streaming.state.manifest import Manifest
from streaming.state.writer import Writer

__all__ = ["TaskFiles"]


class TaskFiles:
    """The new files of a task; in a ``with`` statement, an exception removes them.

    Args:
        files: The state directory.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._writers: list[Writer] = []

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.undo()

    def open_writer(self, before: Manifest | None, stem: str) -> Writer:
        """Return a writer whose files belong to the task; the arguments are those of `Writer`."""
        self._writers.append(Writer(self._files, before, stem, maps_large_parts=True))
        return self._writers[-1]

    def sync(self) -> None:
        """Make the files durable.

        Raises:
            OSError: The file system failed.
        """
        if self._writers:
            Writer.sync_together(self._files, self._writers)

    def undo(self) -> None:
        """Remove the files."""
        for writer in self._writers:
            writer.undo()
        self._writers.clear()
