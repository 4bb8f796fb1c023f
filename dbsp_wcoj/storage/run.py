"""A run: an immutable sorted piece of a relation, as a trie with weights in one int64 buffer.

A trie stores each prefix of the rows once. Level k has the values of column k; the offsets of a
level say where the children of each node begin in the next level::

    rows (1, 5), (1, 6), (4, 5)      level 0: values 1 4      offsets 0 2 3
                                     level 1: values 5 6 5    one leaf for each row

`dbsp_wcoj.kernels.storage.run_layout` describes the sections of the buffer. Besides the levels
there may be a directory, which speeds up searches in level 0, running sums of the weights, and for
one column a bitmap of the values.
Kernels read a run by its address; the `Run` keeps the buffer alive. All positions are relative to
the start of the buffer, so its words can be written to a file (`Run.to_words`) and read from a
memory map of that file (`Run.from_words`). A mapped run can have a header and a smaller directory
in memory (`Run.with_index`). `Merge` merges two runs into one, a piece at a time.

Memory of a relation of two columns with weights of 1: 4 bytes per row if all values of the second
column fit in 32 bits, also in the runs that were merged, else 8; and for each distinct value of the
first column 16 bytes plus at most 16 of directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.kernels.storage.bitmap import bitmap_words
from dbsp_wcoj.kernels.storage.level_values import MAX_NARROW_VALUE, MIN_NARROW_VALUE
from dbsp_wcoj.kernels.storage.merge import begin_merge, continue_merge, merge_runs, sum_runs
from dbsp_wcoj.kernels.storage.trie import build_sorted_run, read_run, run_words
from dbsp_wcoj.observer import BUILD_RUNS, MERGE, OBSERVERS, current_observer
from dbsp_wcoj.storage.parallel_build import (
    MIN_DIVIDED_BUILD_ROWS,
    build_in_parts,
    sort_in_parts,
)
from dbsp_wcoj.storage.small_pages import MIN_MAPPED_BYTES, SmallPages
from dbsp_wcoj.workers import current_workers
from dbsp_wcoj.zset import Int64Array, ZSet, sort_scratch

__all__ = ["ALL_VALUES", "Merge", "Ranges", "Run", "first_values", "value_ranges"]

Int32Array = npt.NDArray[np.int32]

# A merge does about as many rows of work per call as the *fuel* that it is given.
UNLIMITED_FUEL: Final = 2**62
#: A run of so many rows is built from the runs of so many ranges, if one thread sorts the rows.
MIN_RANGED_BUILD_ROWS: Final = 1 << 22
BUILT_RANGES: Final = 4
# Runs with at most this many rows in total are merged by a single call.
MAX_SINGLE_CALL_ROWS: Final = 1024

# The greatest shift of a directory in memory.
MAX_DIRECTORY_SHIFT: Final = 62

# `Run.find_damage` compares this many numbers at a time, to bound its memory.
CHECK_CHUNK_NUMBERS: Final = 1 << 18

# Disjoint ranges of the values of one variable; the bounds belong to the range.
Ranges = Sequence[tuple[int, int]]
ALL_VALUES: Final[Ranges] = ((-(2**63), 2**63 - 1),)


class Run:
    """A weighted trie over one column order; never changed after it is built.

    Attributes:
        pages: The memory of the buffer, if it can be freed in slices.
        is_mapped: True if the buffer is a shared memory map of a file, not memory of the process.
        index: A header and a directory in memory of the process (`with_index`); None if the kernels
            read those of the buffer.
        list_bitmaps: Bitmaps of its longest lists (`dbsp_wcoj.storage.list_bitmaps`); None until
            joins need them.
    """

    __slots__ = (
        "address",
        "buffer",
        "index",
        "is_mapped",
        "list_bitmaps",
        "max_abs_weight",
        "pages",
        "rows",
    )

    def __init__(
        self,
        buffer: Int64Array,
        address: int,
        rows: int,
        max_abs_weight: int,
        pages: SmallPages | None = None,
        *,
        is_mapped: bool = False,
        index: Int64Array | None = None,
    ) -> None:
        """Store a finished buffer and fields of its header."""
        self.index = index
        self.list_bitmaps: Int64Array | None = None
        self.buffer = buffer
        self.pages = pages
        self.is_mapped = is_mapped
        self.address = address
        self.rows = rows
        self.max_abs_weight = max_abs_weight

    @staticmethod
    def of(zset: ZSet, order: Int64Array) -> Run:
        """The run of a non-empty Z-set in a column order.

        Args:
            zset: At least one column and one row.
            order: A permutation of the columns.

        Complexity:
            O(n) in the Z-set's own order, else O(n) for each byte of the sort key.
        """
        rows = zset.row_array
        if len(zset) >= MIN_RANGED_BUILD_ROWS and current_workers() is None:
            runs = _build_ranges(zset, order)
            while len(runs) > 1:  # two runs are freed as soon as they are merged
                for position in range(len(runs) // 2):
                    runs.insert(position, Run.merged(runs.pop(position), runs.pop(position)))
            if runs:
                return runs[0]
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(BUILD_RUNS)
        try:
            if len(zset) >= MIN_DIVIDED_BUILD_ROWS:
                run = _build_in_parts(zset, order)
                if run is not None:
                    return run
            buffer = _reserve(len(rows), len(zset))
            scratch = sort_scratch(len(zset))
            return Run(buffer, *build_sorted_run(rows, zset.weight_array, order, buffer, scratch))
        finally:
            if observer is not None:
                observer.end_phase(len(zset))

    @staticmethod
    def merged(older: Run, newer: Run) -> Run:
        """The sum of two runs of one column order, at once; it may have no rows.

        Complexity:
            O(rows).
        """
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(MERGE)
        try:
            rows = older.rows + newer.rows
            larger, smaller = _larger_first(older, newer)
            if rows <= MAX_SINGLE_CALL_ROWS:
                buffer = _reserve(older.arity, rows)
                return Run(buffer, *merge_runs(larger.buffer, smaller.buffer, buffer))
            words = Merge.max_words(older, newer)
            if 8 * words < MIN_MAPPED_BYTES:
                buffer = _clear_header(np.empty(words, np.int64), older.arity)
                return Run(buffer, *merge_runs(larger.buffer, smaller.buffer, buffer))
            pages = SmallPages(words)
            pages.allow_large_pages()  # the merge is not done in slices
            buffer = _clear_header(pages.take_array(), older.arity)
            merged = Run(buffer, *merge_runs(larger.buffer, smaller.buffer, buffer))
            merged.pages = pages
            pages.trim(merged.end)
            return merged
        finally:
            if observer is not None:
                observer.end_phase(older.rows + newer.rows)

    @staticmethod
    def sum_of(runs: Sequence[Run], merge: Callable[[Run, Run], Run] | None = None) -> Run:
        """The sum of runs of one column order, at once; it may have no rows.

        Args:
            runs: At least one run; a single run is returned as it is.
            merge: Returns the sum of two runs; by default `Run.merged`.

        Complexity:
            O(rows log runs).
        """
        rows = sum([run.rows for run in runs])
        # The kernel reads each run as an array from its address on, so it cannot follow an index.
        is_array = all([run.index is None for run in runs])
        if merge is None and len(runs) > 1 and rows <= MAX_SINGLE_CALL_ROWS and is_array:
            largest_first = sorted(runs, key=lambda run: run.rows, reverse=True)  # as `merged` does
            table = np.array([len(runs), *[run.address for run in largest_first]], np.int64)
            buffer = _reserve(runs[0].arity, rows)
            return Run(buffer, *sum_runs(table, len(buffer), buffer))
        # Always merge the two runs with the fewest rows. The number of a run breaks ties.
        heap = [(run.rows, number, run) for number, run in enumerate(runs)]
        heapify(heap)
        while len(heap) > 1:
            _, number, smallest = heappop(heap)
            merged = (merge or Run.merged)(heap[0][2], smallest)  # the larger first, as there
            heapreplace(heap, (merged.rows, number, merged))
        return heap[0][2]

    @staticmethod
    def from_words(words: Int64Array, *, is_mapped: bool = False) -> Run:
        """Return the run that consists of the words of `to_words`, without a copy.

        Args:
            words: A contiguous int64 array. Nobody may write to it, but it must be writable, as a
                private memory map of a file is: the kernels are compiled for writable arrays.
            is_mapped: True if the words are a shared memory map of a file. A spine does not merge
                such a run.

        Raises:
            DbspWcojError: The header does not fit the number of words. The contents of the
                sections are not checked; keep a checksum.

        Complexity:
            O(columns).
        """
        flags = words.flags
        if words.dtype != np.int64 or words.ndim != 1 or not (flags.carray and flags.aligned):
            raise DbspWcojError(
                f"an array of {words.dtype} and shape {words.shape}, writable: {flags.writeable}, "
                f"contiguous: {flags.c_contiguous}; a run is one contiguous writable int64 array"
            )
        damage = _find_header_damage(words)
        if damage:
            raise DbspWcojError(
                f"{len(words)} words are not a run: {damage}; pass all words of Run.to_words"
            )
        address = int(words.__array_interface__["data"][0])
        rows, largest = int(words[run_layout.ROWS]), int(words[run_layout.MAX_ABS_WEIGHT])
        return Run(words, address, rows, largest, is_mapped=is_mapped)

    def with_index(
        self, max_words: int, on_chunk: Callable[[int, int], object] = lambda start, end: None
    ) -> Run:
        """Return a run with the same rows, whose header and directory are in memory.

        A search in a mapped run then reads no page of the header and the directory of the buffer.
        The directory in memory has every 2ᵏ-th entry of the other one. Its buckets are 2ᵏ times as
        wide, so a search compares about k values more if the values are spread evenly. All
        positions of the header in memory are relative to its own address, and lead to the sections
        of the buffer. They are negative if the header is above the buffer.

        A run of one column, or of few values, is returned as it is. One column can have a bitmap,
        whose range is that of the directory in the buffer.

        Args:
            max_words: The words of the directory in memory; at least 2.
            on_chunk: Called with the start and end of each piece of the buffer that was read.

        Complexity:
            O(entries of the directory in the buffer).

        >>> run = Run.of(ZSet.from_rows([(n, 0) for n in range(64)]), np.arange(2))
        >>> len(run.with_index(5).index) - len(run.with_index(3).index)
        2
        """
        if self.needs_no_index:
            return self
        header = self.buffer[: _header_words(self.arity)].copy()
        sections = _sections(header.tolist())
        start, size = int(header[run_layout.DIRECTORY]), int(header[run_layout.DIRECTORY_SIZE])
        shift = int(header[run_layout.DIRECTORY_SHIFT])
        k = 0
        while (size - 2 >> k) + 2 > max_words and shift + k < MAX_DIRECTORY_SHIFT:
            k += 1
        # The last entry is the number of nodes.
        entries = (size - 2 >> k) + 2
        index = np.empty(len(header) + entries, np.int64)
        directory = index[len(header) :]
        piece = max(CHECK_CHUNK_NUMBERS >> k, 1)
        for first in range(0, entries - 1, piece):
            end = min(first + piece, entries - 1)
            read = slice(start + (first << k), start + min(end << k, size))
            directory[first:end] = self.buffer[read][:: 1 << k]
            on_chunk(read.start, read.stop)
        directory[-1] = header[run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES]
        address = int(index.__array_interface__["data"][0])
        for section in sections[1:]:
            position = section.header_word + (self.address - address) // 8
            header[list(section.pointers)] = position
        header[run_layout.DIRECTORY] = len(header)
        header[run_layout.DIRECTORY_SIZE] = entries
        header[run_layout.DIRECTORY_SHIFT] = shift + k
        index[: len(header)] = header
        return Run(
            self.buffer,
            address,
            self.rows,
            self.max_abs_weight,
            self.pages,
            is_mapped=self.is_mapped,
            index=index,
        )

    @property
    def needs_no_index(self) -> bool:
        """True if `with_index` returns this run: it has an index, or cannot have one."""
        return self.index is not None or self.arity == 1 or not self.buffer[run_layout.DIRECTORY]

    def find_damage(self, on_chunk: Callable[[], object] = lambda: None) -> str:
        """Describe a contradiction between the sections; return "" if there is none.

        Args:
            on_chunk: Called after some megabytes have been read, for example to give back their
                memory.

        Kernels follow the positions in a run without checks, and search with its directory, its
        bitmap and its greatest absolute weight. So a run that was read from a file should be
        checked once, if somebody else may have written it. `from_words` has checked that the
        sections are within the buffer. A run without damage has the results of `Run.of` for its
        rows; only its greatest absolute weight may be too great.

        Complexity:
            O(words).

        >>> Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2)).find_damage()
        ''
        """
        buffer = self.buffer
        header = buffer[: _header_words(self.arity)].tolist()
        # Where the children of each node of the previous level begin.
        starts: Int64Array | None = None
        for level in range(self.arity):
            entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
            if _has_descent(self.level_values(level), starts, on_chunk):
                return f"the values of level {level} do not rise"
            if level < self.arity - 1:
                position = header[entry + run_layout.LEVEL_OFFSETS]
                nodes = header[entry + run_layout.LEVEL_NODES]
                starts = buffer[position : position + nodes + 1]
                children = header[entry + run_layout.LEVEL_HEADER_WORDS + run_layout.LEVEL_NODES]
                if starts[0] != 0 or starts[-1] != children or _has_descent(starts, None, on_chunk):
                    return f"the offsets of level {level} do not fit level {level + 1}"
        return self._find_weight_damage(on_chunk) or self._find_directory_damage(header, on_chunk)

    def _find_weight_damage(self, on_chunk: Callable[[], object]) -> str:
        """Describe a weight of 0, or above the greatest absolute weight; "" if there is none."""
        limit = self.max_abs_weight
        start = int(self.buffer[run_layout.WEIGHT_SUMS])
        if not start:
            weight = int(self.buffer[run_layout.UNIFORM_WEIGHT])
            is_damaged = self.rows > 0 and not 0 < abs(weight) <= limit
            return f"weights of {weight}, at most {limit}" if is_damaged else ""
        sums = self.buffer[start : start + self.rows + 1]
        if sums[0] != 0:
            return "the sums of weights do not begin with 0"
        for begin in range(0, self.rows, CHECK_CHUNK_NUMBERS):
            weights = np.diff(sums[begin : begin + CHECK_CHUNK_NUMBERS + 1])  # modulo 2**64
            if not weights.all():
                return "a weight is 0"
            if max(-int(weights.min()), int(weights.max())) > limit:
                return f"a weight is greater than {limit}"
            on_chunk()
        return ""

    def _find_directory_damage(self, header: Sequence[int], on_chunk: Callable[[], object]) -> str:
        position, size = header[run_layout.DIRECTORY], header[run_layout.DIRECTORY_SIZE]
        has_bitmap = self.arity == 1 and header[run_layout.BITMAP]
        if not position:
            return "a bitmap without a directory" if has_bitmap else ""
        nodes = header[run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES]
        shift, lowest = header[run_layout.DIRECTORY_SHIFT], header[run_layout.LOWEST_VALUE]
        entries = self.buffer[position : position + size]
        if not 0 <= shift < 64 or size < 2 or nodes < 1:
            return f"a directory of {size} entries with shift {shift}"
        is_within = entries[0] == 0 and entries[-1] == nodes
        if not is_within or _has_descent(entries, None, on_chunk, allow_equal=True):
            return "the directory does not fit level 0"
        values = self.level_values(0)
        if values[0] < lowest or (int(values[-1]) - lowest) >> shift >= size - 1:
            return "the directory does not fit the values of level 0"
        # Entry j is the number of nodes before bucket j, if each node is within its own bucket.
        for begin in range(0, nodes, CHECK_CHUNK_NUMBERS):
            chunk = values[begin : begin + CHECK_CHUNK_NUMBERS]
            distances = (chunk - lowest).view(np.uint64)  # modulo 2**64
            buckets = (distances >> np.uint64(shift)).astype(np.int64)
            positions = np.arange(begin, begin + len(chunk))
            if (entries[buckets] > positions).any() or (entries[buckets + 1] <= positions).any():
                return "the directory does not fit the values of level 0"
            on_chunk()
        return self._find_bitmap_damage(header, on_chunk) if has_bitmap else ""

    def _find_bitmap_damage(self, header: Sequence[int], on_chunk: Callable[[], object]) -> str:
        shift = header[run_layout.DIRECTORY_SHIFT]
        if shift > run_layout.MAX_BITMAP_SHIFT:
            return f"a bitmap and a directory with shift {shift}"
        size = bitmap_words(header[run_layout.DIRECTORY_SIZE], shift)
        start = header[run_layout.BITMAP]
        bitmap = self.buffer[start : start + size]
        values = self.level_values(0)
        lowest = header[run_layout.LOWEST_VALUE]
        is_in_range = values[0] >= lowest and int(values[-1]) - lowest < 64 * size
        marked = 0
        for begin in range(0, size, CHECK_CHUNK_NUMBERS):
            marked += int(
                np.bitwise_count(bitmap[begin : begin + CHECK_CHUNK_NUMBERS].view(np.uint64)).sum()
            )
            on_chunk()
        if not is_in_range or marked != len(values):
            return "the bitmap does not fit the values"
        for begin in range(0, len(values), CHECK_CHUNK_NUMBERS):
            bits = values[begin : begin + CHECK_CHUNK_NUMBERS] - lowest
            if not ((bitmap[bits >> 6] >> (bits & 63)) & 1).all():
                return "the bitmap does not fit the values"
            on_chunk()
        return ""

    def to_words(self) -> Int64Array:
        """The words of the run without unused ones; nobody may write to them.

        A buffer may have unused words between its sections and at its end. If it has none between
        sections, as in the run of a delta, the result shares its memory.

        Complexity:
            O(words) for the result of a merge, else O(columns).
        """
        parts = self.to_parts()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def to_parts(self) -> list[Int64Array]:
        """The words of `to_words` as arrays to be written one after the other; O(columns).

        All but the first one share the memory of the run.

        >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2))
        >>> np.array_equal(np.concatenate(run.to_parts()), run.to_words())
        True
        """
        buffer = self.buffer
        header_words = _header_words(self.arity)
        sections = _sections(buffer[:header_words].tolist())
        words = sum([section.size for section in sections])
        if max(section.start + section.size for section in sections) == words:
            return [buffer[:words]]
        header = buffer[:header_words].copy()
        end = header_words
        for section in sections[1:]:
            for pointer in section.pointers:
                header[pointer] = end + section.header_word - section.start
            end += section.size
        parts = [buffer[s.start : s.start + s.size] for s in sections[1:]]
        return [header, *parts]

    @property
    def only_weight(self) -> int | None:
        """The weight of all rows; None if they have several."""
        buffer = self.buffer
        if buffer[run_layout.WEIGHT_SUMS]:
            return None
        return int(buffer[run_layout.UNIFORM_WEIGHT])

    @property
    def has_equal_positive_weights(self) -> bool:
        """Return whether all rows have the same weight, above 0."""
        return (self.only_weight or 0) > 0

    def can_be_spliced(self, other: Run) -> bool:
        """Return whether the sum with another run copies ranges of the longer one.

        That is so if all rows of the shorter one are new, or, with the opposite weight, all cancel
        rows of the longer one (`dbsp_wcoj.kernels.storage.splice`).
        """
        weight, other_weight = self.only_weight, other.only_weight
        if weight is None or other_weight not in (weight, -weight) or self.arity != 2:
            return False
        return self.is_narrow and other.is_narrow

    @property
    def nbytes(self) -> int:
        """Bytes in use; the unused words of the buffer do not count."""
        header = self.buffer[: _header_words(self.arity)].tolist()
        return 8 * sum([section.size for section in _sections(header)])

    @property
    def bitmap_bytes(self) -> int:
        """Bytes of the bitmaps of long lists, which are in memory."""
        return 0 if self.list_bitmaps is None else self.list_bitmaps.nbytes

    @property
    def end(self) -> int:
        """The position after the last word in use; there may be unused words before it."""
        header = self.buffer[: _header_words(self.arity)].tolist()
        return max([section.start + section.size for section in _sections(header)])

    @property
    def leaf_sections(self) -> list[slice]:
        """The parts of the buffer that grow with the rows: the last values, and the weights.

        A search reads few words of them, at the positions to which the other sections point.

        >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)], [1, 2, 3]), np.arange(2))
        >>> [run.buffer[section].tolist() for section in run.leaf_sections]
        [[25769803781, 5], [0, 1, 3, 6]]
        """
        start, is_narrow = _split_position(int(self.buffer[_header_words(self.arity) - 2]))
        starts = [(start, _value_words(self.rows, is_narrow))]
        if self.buffer[run_layout.WEIGHT_SUMS]:
            starts.append((int(self.buffer[run_layout.WEIGHT_SUMS]), self.rows + 1))
        return [slice(start, start + size) for start, size in starts]

    @property
    def total_weight(self) -> int:
        """The sum of the weights of all rows, modulo 2**64 as a signed number; O(1).

        >>> Run.of(ZSet.from_rows([(1, 5), (4, 5)], [2, 3]), np.arange(2)).total_weight
        5
        """
        start = int(self.buffer[run_layout.WEIGHT_SUMS])
        if start:
            return int(self.buffer[start + self.rows])
        total = self.rows * int(self.buffer[run_layout.UNIFORM_WEIGHT])
        return (total + 2**63) % 2**64 - 2**63

    @property
    def arity(self) -> int:
        """The number of columns."""
        return int(self.buffer[run_layout.ARITY])

    def read(self) -> tuple[Int64Array, Int64Array]:
        """The columns, in the run's own order, and the weights of all rows."""
        columns, weights = read_run(self.buffer)
        return columns, weights

    @property
    def is_narrow(self) -> bool:
        """True if the values of the last column take 32 bits each."""
        return _split_position(int(self.buffer[_header_words(self.arity) - 2])).is_narrow

    @property
    def node_counts(self) -> list[int]:
        """The number of values of each level.

        >>> Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2)).node_counts
        [2, 3]
        """
        first = run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES
        counts: list[int] = self.buffer[
            first : _header_words(self.arity) : run_layout.LEVEL_HEADER_WORDS
        ].tolist()
        return counts

    def level_values(self, level: int) -> Int64Array | Int32Array:
        """The values of a column, once for each combination with the columns before it; a view.

        They are int32 if they are narrow (`dbsp_wcoj.kernels.storage.run_layout`), else int64.

        >>> Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2)).level_values(0).tolist()
        [1, 4]
        """
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        start, is_narrow = _split_position(int(self.buffer[entry + run_layout.LEVEL_VALUES]))
        nodes = int(self.buffer[entry + run_layout.LEVEL_NODES])
        if not is_narrow:
            return self.buffer[start : start + nodes]
        words = self.buffer[start : start + _value_words(nodes, is_narrow)]
        return words.view(np.int32)[:nodes]

    @property
    def leaf_address(self) -> int:
        """The tagged address of the values of the last column, for kernels."""
        values = self.level_values(self.arity - 1)
        return int(values.__array_interface__["data"][0]) + (values.dtype == np.int32)

    def read_rows(self, first: int, end: int) -> tuple[Int64Array, Int64Array]:
        """The columns, in the run's own order, and the weights of some consecutive rows.

        Args:
            first: The position of the first row, from 0.
            end: The position after the last row.

        Complexity:
            O((end - first) log rows) for each column.

        >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)], [1, 2, 3]), np.arange(2))
        >>> columns, weights = run.read_rows(1, 3)
        >>> columns.tolist(), weights.tolist()
        ([[1, 4], [6, 5]], [2, 3])
        """
        columns = self.rows_at(np.arange(first, end))
        start = int(self.buffer[run_layout.WEIGHT_SUMS])
        if not start:
            return columns, np.full(end - first, self.buffer[run_layout.UNIFORM_WEIGHT])
        return columns, np.diff(self.buffer[start + first : start + end + 1])

    def count_up_to(self, key: Sequence[int]) -> int:
        """Return the number of rows that are at most a row, in the run's own order.

        Args:
            key: A value for each column, in the run's own order; such a row need not exist.

        Raises:
            DbspWcojError: The key has more or fewer values than the run has columns.

        Complexity:
            O(columns * log rows).

        >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2))
        >>> [run.count_up_to(key) for key in [(0, 9), (1, 5), (1, 9), (4, 5)]]
        [0, 1, 2, 3]
        """
        if len(key) != self.arity:
            raise DbspWcojError(
                f"a key of {len(key)} values, but the run has {self.arity} columns: "
                "give a value for each column"
            )
        first, end = 0, len(self.level_values(0))
        for level, value in enumerate(key):
            values = self.level_values(level)
            node = first + _find_position(values[first:end], value)
            if node == end or values[node] != value:
                for deeper in range(level, self.arity - 1):
                    node = int(self.level_offsets(deeper)[node])
                return node
            if level == self.arity - 1:
                first = node + 1
            else:
                first, end = map(int, self.level_offsets(level)[node : node + 2])
        return first

    def level_offsets(self, level: int) -> Int64Array:
        """Return where the children of each node of a level begin, and where the last ones end."""
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        start = int(self.buffer[entry + run_layout.LEVEL_OFFSETS])
        nodes = int(self.buffer[entry + run_layout.LEVEL_NODES])
        return self.buffer[start : start + nodes + 1]

    def rows_at(self, positions: Int64Array) -> Int64Array:
        """The columns, in the run's own order, of the rows at some positions.

        Args:
            positions: Positions of rows, from 0.

        Complexity:
            O(positions log rows) for each column.
        """
        buffer = self.buffer
        columns = np.empty((self.arity, len(positions)), np.int64)
        for level in range(self.arity - 1, -1, -1):
            entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
            columns[level] = self.level_values(level)[positions]
            if level > 0:
                parent = entry - run_layout.LEVEL_HEADER_WORDS
                start = int(buffer[parent + run_layout.LEVEL_OFFSETS])
                offsets = buffer[start : start + int(buffer[parent + run_layout.LEVEL_NODES])]
                positions = np.searchsorted(offsets, positions, side="right") - 1
        return columns

    def weights_at(self, positions: Int64Array) -> Int64Array:
        """The weights of the rows at some positions, which are counted from 0.

        Complexity:
            O(positions).
        """
        start = int(self.buffer[run_layout.WEIGHT_SUMS])
        if not start:
            return np.full(len(positions), self.buffer[run_layout.UNIFORM_WEIGHT])
        sums = self.buffer[start : start + self.rows + 1]
        return sums[positions + 1] - sums[positions]


def _larger_first(older: Run, newer: Run) -> tuple[Run, Run]:
    """Order two runs so that their sum has one weight if the second only cancels rows."""
    return (older, newer) if older.rows >= newer.rows else (newer, older)


class Merge:
    """An open merge of two runs; both stay readable until it is complete."""

    __slots__ = ("_out", "_pages", "_state", "newer", "older")

    def __init__(
        self, older: Run, newer: Run, allocate: Callable[[int], Int64Array] | None = None
    ) -> None:
        """Open a merge of two runs of one column order.

        Args:
            older: The first run.
            newer: The second run.
            allocate: Returns the memory for the result, an array of so many words whose values are
                undefined, such as a writable map of a file; by default memory of the process.
        """
        self.older = older
        self.newer = newer
        words = Merge.max_words(older, newer)
        self._pages: SmallPages | None = None
        if allocate is None:
            self._pages = SmallPages(words)
            out = self._pages.take_array()
        else:
            out = allocate(words)
        self._out = _clear_header(out, older.arity)
        larger, smaller = _larger_first(older, newer)
        self._state = begin_merge(larger.buffer, smaller.buffer, self._out)

    @staticmethod
    def max_words(older: Run, newer: Run) -> int:
        """Return the maximum number of words that a merge of two runs writes; O(columns).

        Less than `run_words` for the rows of both, if many rows have common prefixes.

        >>> one, two = (Run.of(ZSet.from_rows([(1, n), (1, n + 1)]), np.arange(2)) for n in (1, 5))
        >>> Merge.max_words(one, two), run_words(2, 4)
        (34, 54)
        """
        arity, rows = older.arity, older.rows + newer.rows
        nodes = [sum(pair) for pair in zip(older.node_counts, newer.node_counts, strict=True)]
        # The levels of one node per row have offsets only if two different rows have a common node.
        offsets = sum([count + 1 for count in nodes[:-1]])
        late_offsets = max(arity - 2, 0) * (rows + 1)
        directory, weights = 2 * nodes[0] + 3, rows + 1
        bitmap = rows if arity == 1 else 0
        values = sum(nodes[:-1]) + _value_words(rows, older.is_narrow and newer.is_narrow)
        words = _header_words(arity) + values + offsets + late_offsets
        return words + directory + weights + bitmap

    def work(self, fuel: int = UNLIMITED_FUEL) -> Run | None:
        """Do about ``fuel`` rows of work; return the merged run once it is complete."""
        observer = current_observer() if OBSERVERS else None
        if observer is not None:
            observer.begin_phase(MERGE)
        larger, smaller = _larger_first(self.older, self.newer)
        done = False
        try:
            done = continue_merge(larger.buffer, smaller.buffer, self._out, self._state, fuel)
        finally:
            if observer is not None:
                # A merge reports its rows once, when it is complete.
                observer.end_phase(larger.rows + smaller.rows if done else 0)
        if not done:
            return None
        out = self._out
        address = int(out.__array_interface__["data"][0])
        rows, largest = out[run_layout.ROWS], out[run_layout.MAX_ABS_WEIGHT]
        merged = Run(out, address, int(rows), int(largest), self._pages)
        if self._pages is not None and self._pages.is_mapped:
            self._pages.trim(merged.end)
            self._pages.allow_large_pages()
        return merged


def _header_words(arity: int) -> int:
    return run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * arity


class _Position(NamedTuple):
    """Where the values of a level start, and whether they are narrow (32 bits each)."""

    start: int
    is_narrow: bool


def _split_position(word: int) -> _Position:
    """Return what a header word `run_layout.LEVEL_VALUES` says."""
    is_narrow = (word + run_layout.NARROW // 2) >> run_layout.NARROW_SHIFT == 1
    # Other numbers are outside of every buffer, so that damage is found.
    return _Position(word - run_layout.NARROW if is_narrow else word, is_narrow)


def _value_words(count: int, is_narrow: bool) -> int:
    """Return the number of words of ``count`` values of a level."""
    return (count + 1) // 2 if is_narrow else count


def _find_position(values: Int64Array | Int32Array, value: int) -> int:
    """Return the number of values, which are ascending, that are less than another one."""
    if values.dtype == np.int32:
        # numpy would copy all values to compare them with a number of 64 bits.
        if not MIN_NARROW_VALUE <= value <= MAX_NARROW_VALUE:
            return 0 if value < MIN_NARROW_VALUE else len(values)
        return int(np.searchsorted(values, np.int32(value)))
    return int(np.searchsorted(values, value))


class Section(NamedTuple):
    """A part of a run's buffer.

    Attributes:
        pointers: The positions of the header words that contain the start.
        start: The position of its first word.
        size: The number of its words.
        header_word: The header word at each of these positions: the start, and a flag for narrow
            values.
    """

    pointers: tuple[int, ...]
    start: int
    size: int
    header_word: int


def _sections(header: Sequence[int]) -> list[Section]:
    """The sections of a run, in the order of the buffer."""
    arity = header[run_layout.ARITY]
    sections = [Section((), 0, _header_words(arity), 0)]

    def add(pointers: tuple[int, ...], size: int) -> None:
        start = header[pointers[0]]
        sections.append(Section(pointers, start, size, start))

    # The header words that point to the offsets, by level.
    offset_pointers = [
        run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level + run_layout.LEVEL_OFFSETS
        for level in range(arity - 1)
    ]
    # The levels with a node per row point to the same offsets, those of the last level but one.
    shared = tuple(
        pointer for pointer in offset_pointers if header[pointer] == header[offset_pointers[-1]]
    )
    for level in range(arity):
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        nodes = header[entry + run_layout.LEVEL_NODES]
        pointer = entry + run_layout.LEVEL_VALUES
        start, is_narrow = _split_position(header[pointer])
        words = _value_words(nodes, is_narrow)
        sections.append(Section((pointer,), start, words, header[pointer]))
        if level == arity - 1:
            continue
        pointer = offset_pointers[level]
        if level == arity - 2:
            add(shared, nodes + 1)
        elif pointer not in shared:
            add((pointer,), nodes + 1)
    if header[run_layout.DIRECTORY]:
        add((run_layout.DIRECTORY,), header[run_layout.DIRECTORY_SIZE])
    if header[run_layout.WEIGHT_SUMS]:
        add((run_layout.WEIGHT_SUMS,), header[run_layout.ROWS] + 1)
    if arity == 1 and header[run_layout.BITMAP]:
        shift = header[run_layout.DIRECTORY_SHIFT]
        if not 0 <= shift <= run_layout.MAX_BITMAP_SHIFT:
            shift = 0  # a damaged header
        size = bitmap_words(header[run_layout.DIRECTORY_SIZE], shift)
        add((run_layout.BITMAP,), size)
    return sections


def _find_header_damage(words: Int64Array) -> str:
    """Describe a contradiction between the header and the words; return "" if there is none."""
    size = len(words)
    if size <= run_layout.LEVEL_HEADERS or not 1 <= words[run_layout.ARITY] <= size:
        return "there is no header"
    header_size = _header_words(int(words[run_layout.ARITY]))
    if size < header_size:
        return f"the header has {header_size} words"
    header = words[:header_size].tolist()
    if header[run_layout.ROWS] < 0 or header[run_layout.MAX_ABS_WEIGHT] < 0:
        return f"rows {header[run_layout.ROWS]}, largest weight {header[run_layout.MAX_ABS_WEIGHT]}"
    nodes = [
        header[k + run_layout.LEVEL_NODES]
        for k in range(run_layout.LEVEL_HEADERS, header_size, run_layout.LEVEL_HEADER_WORDS)
    ]
    if nodes != sorted(nodes) or nodes[-1] != header[run_layout.ROWS]:
        return f"levels of {nodes} nodes for {header[run_layout.ROWS]} rows"
    first_values = run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES
    positions = header[first_values :: run_layout.LEVEL_HEADER_WORDS]
    can_be_narrow = [len(positions) > 1 and k == len(positions) - 1 for k in range(len(positions))]
    for position, is_allowed in zip(positions, can_be_narrow, strict=True):
        if _split_position(position).is_narrow and not is_allowed:
            return "narrow values of a level that cannot have them"
    for _, start, length, _ in _sections(header)[1:]:
        if start < header_size or length < 0 or start + length > size:
            return f"a section of {length} words at word {start}"
    return ""


def _has_descent(
    numbers: Int64Array | Int32Array,
    starts: Int64Array | None,
    on_chunk: Callable[[], object],
    *,
    allow_equal: bool = False,
) -> bool:
    """Return whether a number is at most its predecessor, except those at the positions ``starts``.

    Args:
        numbers: int64 or int32, one-dimensional.
        starts: Positions in ``numbers``, ascending.
        on_chunk: Called after each chunk.
        allow_equal: True if a number may be equal to its predecessor.
    """
    for begin in range(0, len(numbers), CHECK_CHUNK_NUMBERS):
        part = numbers[begin : begin + CHECK_CHUNK_NUMBERS + 1]
        # Element i is for the number at position begin + 1 + i.
        falls = part[1:] < part[:-1] if allow_equal else part[1:] <= part[:-1]
        if starts is not None:
            low, high = np.searchsorted(starts, (begin + 1, begin + len(part))).tolist()
            falls[starts[low:high] - (begin + 1)] = False
        if falls.any():
            return True
        on_chunk()
    return False


def _build_in_parts(zset: ZSet, order: Int64Array) -> Run | None:
    """Return the run of many rows, which workers build in parts; None if they cannot share it."""
    rows, weights = np.ascontiguousarray(zset.row_array), zset.weight_array
    if len(rows) < 2 or current_workers() is None:
        return None
    columns = order.tolist()
    if columns != list(range(len(rows))):
        result = sort_in_parts(rows, weights, columns)
        if result is None:
            return None
        rows, weights = result
    buffer = _reserve(len(rows), len(zset))
    description = build_in_parts(rows, weights, buffer)
    return None if description is None else Run(buffer, *description)


def _build_ranges(zset: ZSet, order: Int64Array) -> list[Run]:
    """Build the run of each of a few ranges of rows, if the rows of each remain together.

    A sort of all rows needs `SCRATCH_ARRAYS` words per row, which is more than the run has.

    Returns:
        No runs if the rows are in order, or other rows have the same first column in this order.
    """
    rows, weights, count = zset.row_array, zset.weight_array, len(zset)
    if order[0] or (order == np.arange(len(order))).all():
        return []
    evenly = np.arange(1, BUILT_RANGES) * count // BUILT_RANGES
    splits = np.unique(np.searchsorted(rows[0], rows[0][evenly]))
    bounds = [0, *splits[splits > 0].tolist(), count]
    if max(end - first for first, end in pairwise(bounds)) > count // 2:
        return []
    return [
        Run.of(ZSet(np.ascontiguousarray(rows[:, first:end]), weights[first:end]), order)
        for first, end in pairwise(bounds)
    ]


def _reserve(arity: int, rows: int) -> Int64Array:
    """Allocate a buffer for a run."""
    return _clear_header(np.empty(run_words(arity, rows), np.int64), arity)


def _clear_header(buffer: Int64Array, arity: int) -> Int64Array:
    """Set the header to 0, because words of it that the run does not use are written to files."""
    buffer[: _header_words(arity)] = 0
    return buffer


def value_ranges(run: Run, parts: int) -> Ranges:
    """Split all values into ranges that contain about the same number of the run's rows.

    The ranges split between values of the run's first column, never within the rows of one value.
    """
    values, positions = first_values(run)
    even_splits = np.linspace(0, run.rows, parts + 1)[1:-1]
    splits = np.unique(np.searchsorted(positions[:-1], even_splits, side="left"))
    lows = [int(values[split]) for split in splits if 0 < split < len(values)]
    (lowest, highest) = ALL_VALUES[0]
    bounds = [lowest, *lows, highest + 1]
    return [(low, high - 1) for low, high in pairwise(bounds)]


def first_values(run: Run) -> tuple[Int64Array, Int64Array]:
    """The distinct values of the run's first column, and the position of the first row of each.

    The positions end with the number of rows.

    Complexity:
        O(values) for each column.

    >>> run = Run.of(ZSet.from_rows([(1, 5), (1, 6), (4, 5)]), np.arange(2))
    >>> values, positions = first_values(run)
    >>> values.tolist(), positions.tolist()
    ([1, 4], [0, 2, 3])
    """
    buffer = run.buffer
    nodes = int(buffer[run_layout.LEVEL_HEADERS + run_layout.LEVEL_NODES])
    start = int(buffer[run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES])
    positions = np.arange(nodes + 1)
    for level in range(int(buffer[run_layout.ARITY]) - 1):
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        offsets = int(buffer[entry + run_layout.LEVEL_OFFSETS])
        size = int(buffer[entry + run_layout.LEVEL_NODES])
        starts = buffer[offsets : offsets + size + 1]
        positions = starts if level == 0 else starts[positions]
    return buffer[start : start + nodes], positions
