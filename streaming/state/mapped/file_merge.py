"""File merge: merges runs in files into one run in a file, with the memory of one slice of rows.

The sorted runs of an arrangement (a relation in one column order) are mapped from their files. Two
runs at a time are merged into writable maps of scratch files. The last result is written to a file
of the state directory, one array of the run after the other (`dbsp_wcoj.storage.run`). All files
are read and written in order, a slice at a time, and after each slice the process releases the
pages. The system may keep released pages in its cache while memory is free.

Cost: each row is written to scratch files about log2(runs) times, and to the result once.
Scratch files take up to three times the space of the result; it is reserved before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from dbsp_wcoj.storage.run import Merge, Run
from streaming.state.files import Bytes, MappableFiles
from streaming.state.mapped.scratch_arrays import ScratchArrays
from streaming.state.part_reader import PartReader
from streaming.state.segment import encode_run

__all__ = ["FileMerge"]

# The chunks of a result are written in pieces of this size.
PIECE_BYTES: Final = 1 << 22


class FileMerge:
    """One merge of the runs in some files.

    Args:
        files: The directory.
        folder: The folder for scratch files.
        reader: The reader that maps the runs.
        rows_per_slice: The rows that are merged between two calls of ``check_stop``.
        check_stop: Raises an error if the merge must stop.
    """

    def __init__(
        self,
        files: MappableFiles,
        folder: str,
        reader: PartReader,
        rows_per_slice: int,
        check_stop: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._rows_per_slice = rows_per_slice
        self._check_stop = check_stop
        self._arrays = ScratchArrays(files, folder)

    def merge(self, older: Run, newer: Run) -> Run:
        """Merge two runs into a run in a scratch file; the weights of equal rows are added.

        Raises:
            OSError: The disk has too little space.
        """
        merge = Merge(older, newer, self._arrays.allocate)
        while (merged := merge.work(self._rows_per_slice)) is None:
            self.release_pages()
            self._check_stop()
        self.release_pages()
        return merged

    def encode(self, name: str, run: Run) -> Iterable[Bytes]:
        """Return the bytes of the file of a run; they can be iterated more than once."""
        return _Pieces(encode_run(name, run.to_parts()), self.release_pages)

    def release_pages(self) -> None:
        """Remove the pages of all maps from memory; their contents stay in the files."""
        self._reader.release_pages()
        self._arrays.release_pages()


class _Pieces:
    """Bytes in pieces of at most `PIECE_BYTES`; the pages of maps are released after each piece."""

    def __init__(self, chunks: Sequence[Bytes], release_pages: Callable[[], None]) -> None:
        self._chunks = chunks
        self._release_pages = release_pages

    def __iter__(self) -> Iterator[memoryview]:
        for chunk in self._chunks:
            data = memoryview(chunk).cast("B")
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
                self._release_pages()
