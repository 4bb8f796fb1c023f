"""Scratch arrays: writable arrays in files without a name.

The system writes their pages to the disk when memory is short. The disk space of a file is reserved
when it is created, and freed when its array is not referenced any more.
"""

from __future__ import annotations

import threading
from weakref import ref

from dbsp_wcoj.zset import Int64Array
from streaming.state.files import MappableFiles, ScratchMemory

__all__ = ["ScratchArrays"]


class ScratchArrays:
    """Arrays in scratch files of a folder; any thread may call the methods.

    Args:
        files: The directory.
        folder: The folder in it, which must exist.
        is_random: True if the arrays are read at random positions, so that reading ahead would be
            a waste.
    """

    def __init__(self, files: MappableFiles, folder: str, *, is_random: bool = False) -> None:
        self._files = files
        self._folder = folder
        self._is_random = is_random
        self._lock = threading.Lock()
        # The scratch files in use, each with its array.
        self._scratch: list[tuple[ref[Int64Array], ScratchMemory]] = []

    def allocate(self, words: int) -> Int64Array:
        """Return an array of ``words`` zeros.

        Raises:
            OSError: The disk has too little space, or the process has too many maps.
        """
        with self._lock:
            self._drop_unused()
            scratch = self._files.scratch(self._folder, words)
            if self._is_random:
                scratch.expect_random_access()
            array = scratch.take_array()
            self._scratch.append((ref(array), scratch))
            return array

    def release_pages(self) -> None:
        """Remove the pages of all arrays from the memory of this process."""
        with self._lock:
            self._drop_unused()
            for _, scratch in self._scratch:
                scratch.release_pages()

    def _drop_unused(self) -> None:
        """Drop the files of arrays that are not in use any more, which frees their space."""
        self._scratch = [
            (array, scratch) for array, scratch in self._scratch if array() is not None
        ]
