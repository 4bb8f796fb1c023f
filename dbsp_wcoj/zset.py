"""Z-sets: finite maps from rows to non-zero integer weights, for relations and for their deltas.

A Z-set has one int64 array per column and one of weights. The rows are in strictly ascending order
and no weight is zero: each constructor sorts the rows and sums the weights of equal ones
(`consolidate`), so equal Z-sets have equal arrays. Z-sets are immutable. The Z-sets with the same
number of columns (the arity) are a group under addition.

Weights are in ``[-(2**63 - 1), 2**63 - 1]``. An operation whose result has a weight outside this
range raises an error; it never wraps around.

Reference:
    Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, section 2.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import ArityError, ColumnTypeError, WeightError, WeightOverflowError
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS, OVERFLOW, SCRATCH_ARRAYS, consolidate
from dbsp_wcoj.observer import OBSERVERS, SORT, current_observer
from dbsp_wcoj.storage.pair_sort import MIN_PAIRS, sort_dense_pairs
from dbsp_wcoj.storage.parallel_sort import MIN_SPLIT_ROWS, split_rows
from dbsp_wcoj.workers import TASKS_PER_THREAD, current_workers, run_tasks

__all__ = [
    "MAX_INT64",
    "Int64Array",
    "SortedRows",
    "ZSet",
    "accumulate",
    "add_in_order",
    "consolidated_rows",
    "reusing_sort_scratch",
    "sort_scratch",
    "sum_ranges",
    "to_storable",
    "unit_weights",
]

Int64Array = npt.NDArray[np.int64]

MAX_INT64: Final = 2**63 - 1
# `accumulate` sorts this many Z-sets at a time.
SUMMANDS: Final = 64
# Z-sets with so many rows together are summed in ranges of about this many rows.
MIN_RANGED_SUM_ROWS: Final = 1 << 18
RANGE_ROWS: Final = 1 << 16
# About the number of rows that are read of each range to find the ranges.
SAMPLES_PER_RANGE: Final = 64
#: More columns than this are an error.
MAX_ARITY: Final = 1 << 16
_INT64: Final = np.dtype(np.int64)
# The weights of Z-sets whose weights are all 1, up to MAX_SHARED_ONES; nobody writes to weights.
_shared_ones: Final[list[Int64Array]] = [np.ones(1024, np.int64)]
MAX_SHARED_ONES: Final = 1 << 20
# For few rows, which are sorted without scratch memory.
_SMALL_SCRATCH: Final[Int64Array] = np.empty((1, 1), np.int64)
_NO_COLUMNS: Final[Int64Array] = np.empty((0, 1), np.int64)
# Sorts of fewer rows get memory that the allocator has kept.
MIN_REUSED_ROWS: Final = 1 << 17


class _KeptScratch(threading.local):
    """The scratch memory that the sorts of a thread share; None if each allocates its own."""

    array: Int64Array | None = None


_kept_scratch: Final = _KeptScratch()


class ZSet:
    """A finite map from rows of integers to non-zero integer weights.

    Build one with `from_rows`, `from_columns` or `empty`.

    Attributes:
        row_array: The columns as one array of shape ``(arity, n)``, for kernels. Nobody may write
            to it; `rows` is a read-only view.
        weight_array: The weights, for kernels. Nobody may write to them; `weights` is a read-only
            view.

    >>> edges = ZSet.from_rows([(1, 2), (2, 3), (1, 2)])
    >>> edges
    ZSet({(1, 2): 2, (2, 3): 1})
    >>> (edges - ZSet.from_rows([(1, 2)])).to_dict()
    {(1, 2): 1, (2, 3): 1}
    """

    __slots__ = ("row_array", "weight_array")

    row_array: Int64Array
    weight_array: Int64Array

    def __init__(self, rows: Int64Array, weights: Int64Array) -> None:
        """Store consolidated arrays without checks: ``(arity, n)`` rows, ``(n,)`` weights.

        For the engine; users call `from_columns`, which checks and consolidates.
        """
        self.row_array = rows
        self.weight_array = weights

    @staticmethod
    def from_rows(
        rows: Iterable[Sequence[int]],
        weights: Iterable[int] | None = None,
        *,
        arity: int | None = None,
    ) -> ZSet:
        """Build a Z-set from Python rows.

        Args:
            rows: Tuples of integers, all of one length.
            weights: One integer per row; by default 1 each.
            arity: The number of columns; needed only if ``rows`` may be empty.

        Raises:
            ArityError: The rows have different lengths, or more than `MAX_ARITY` columns; or both
                rows and ``arity`` are missing.
            ColumnTypeError: A value is not a 64-bit integer.
            WeightError: A weight is not an integer, or less than ``-(2**63 - 1)``; or there is not
                one weight per row.
            WeightOverflowError: The weights of a row, added in some order, leave the range of
                weights.

        >>> ZSet.from_rows([(5,), (3,), (5,)], [1, 2, -1])
        ZSet({(3,): 2})
        """
        tuples = [tuple(row) for row in rows]
        if arity is None:
            if not tuples:
                raise ArityError(
                    "no rows, so the arity is unknown; give arity=, or ZSet.empty(arity)"
                )
            arity = len(tuples[0])
        _check_arity(arity)
        for row in tuples:
            if len(row) != arity:
                raise ArityError(
                    f"row {row!r} has {len(row)} columns, but the Z-set has {arity}; give all "
                    f"rows {arity} columns"
                )
        columns = [_to_int64([row[k] for row in tuples], k) for k in range(arity)]
        if weights is None:
            weight_array = np.ones(len(tuples), np.int64)
        else:
            weight_array = _to_weights(list(weights))
        if len(weight_array) != len(tuples):
            raise WeightError(
                f"{len(weight_array)} weights for {len(tuples)} rows; give one per row"
            )
        return _consolidate_columns(columns, weight_array)

    @staticmethod
    def from_columns(columns: Sequence[Any], weights: Any | None = None) -> ZSet:
        """Build a Z-set from columns, without a Python loop over rows.

        Args:
            columns: At least one one-dimensional integer array, all of one length n.
            weights: Integer array of length n; by default 1 each.

        Raises:
            ArityError: ``columns`` is empty, or the columns have different lengths.
            ColumnTypeError: A column does not hold integers that fit in int64.
            WeightError: The weights have another length or type, or one is less than
                ``-(2**63 - 1)``.
            WeightOverflowError: The weights of a row, added in some order, leave the range of
                weights.

        Complexity:
            O(n) if the rows are sorted, else O(n) for each byte in which they differ.

        >>> ZSet.from_columns([np.array([2, 1]), np.array([3, 2])], np.array([1, -1]))
        ZSet({(1, 2): -1, (2, 3): 1})
        """
        if len(columns) == 0:
            raise ArityError(
                "0 columns; use ZSet.from_rows(rows, arity=0) for rows without columns"
            )
        arrays = [
            column
            if type(column) is np.ndarray and column.dtype is _INT64 and column.ndim == 1
            else _to_int64(column, k)
            for k, column in enumerate(columns)
        ]
        rows = len(arrays[0])
        for k in range(1, len(arrays)):
            if len(arrays[k]) != rows:
                raise ArityError(
                    f"column {k} has {len(arrays[k])} rows, column 0 has {rows}; give equal lengths"
                )
        weight_array = None if weights is None else _to_weights(weights)
        if weight_array is not None and len(weight_array) != rows:
            raise WeightError(f"{len(weight_array)} weights for {rows} rows; give one per row")
        zset = _sort_in_parts(arrays, weight_array) if rows >= MIN_SPLIT_ROWS else None
        if zset is not None:
            return zset
        if rows >= MIN_PAIRS and len(arrays) == 2 and weight_array is None:
            zset = _sort_pairs(*arrays)
            if zset is not None:
                return zset
        return _consolidate_columns(
            arrays, unit_weights(rows) if weight_array is None else weight_array
        )

    @staticmethod
    def empty(arity: int) -> ZSet:
        """The Z-set without rows, the zero of the group.

        >>> len(ZSet.empty(2))
        0
        """
        _check_arity(arity)
        return ZSet(np.empty((arity, 0), np.int64), np.empty(0, np.int64))

    @staticmethod
    def scalar(weight: int) -> ZSet:
        """The Z-set of arity 0 with this weight of the empty row.

        Raises:
            WeightOverflowError: The weight is outside of ``[-(2**63 - 1), 2**63 - 1]``.

        >>> ZSet.scalar(3).to_dict(), ZSet.scalar(0).to_dict()
        ({(): 3}, {})
        """
        if type(weight) is not int:
            check_type("weight", weight, (int, np.integer), "an integer")
            weight = int(weight)
        if weight == 0:
            return _ZERO
        if not -MAX_INT64 <= weight <= MAX_INT64:
            raise WeightOverflowError(
                f"the weight of the empty row would be {weight}, beyond int64 ({MAX_INT64}); "
                f"nothing was changed: give smaller weights, or count fewer rows"
            )
        return ZSet(_NO_COLUMNS, np.array([weight], _INT64))

    @property
    def arity(self) -> int:
        """Number of columns."""
        return len(self.row_array)

    @property
    def columns(self) -> tuple[Int64Array, ...]:
        """One read-only int64 array per column, rows in ascending order."""
        return tuple(_read_only(column) for column in self.row_array)

    @property
    def weights(self) -> Int64Array:
        """Read-only int64 weights, none zero, one per row."""
        return _read_only(self.weight_array)

    @property
    def rows(self) -> Int64Array:
        """The columns as one read-only array of shape ``(arity, n)``."""
        return _read_only(self.row_array)

    def to_dict(self) -> dict[tuple[int, ...], int]:
        """The Z-set as a dict from row to weight, for tests and for small results.

        >>> ZSet.from_rows([(2, 1)]).to_dict()
        {(2, 1): 1}
        """
        if not len(self.row_array):
            return {(): self.weight_array.item(0)} if len(self.weight_array) else {}
        return dict(self)

    def __len__(self) -> int:
        return len(self.weight_array)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], int]]:
        rows = self.row_array.T.tolist()
        return zip(map(tuple, rows), self.weight_array.tolist(), strict=True)

    def __add__(self, other: ZSet) -> ZSet:
        if not isinstance(other, ZSet):
            return NotImplemented
        if other.arity != self.arity:
            raise ArityError(
                f"cannot add Z-sets of arity {self.arity} and {other.arity}; project one first"
            )
        if not len(other):
            return self
        if not len(self):
            return other
        rows = np.concatenate((self.row_array, other.row_array), axis=1)
        return consolidated_rows(rows, np.concatenate((self.weight_array, other.weight_array)))

    def __neg__(self) -> ZSet:
        return ZSet(self.row_array, -self.weight_array)

    def __sub__(self, other: ZSet) -> ZSet:
        if not isinstance(other, ZSet):
            return NotImplemented
        return self + -other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ZSet):
            return NotImplemented
        return np.array_equal(self.row_array, other.row_array) and np.array_equal(
            self.weight_array, other.weight_array
        )

    def __hash__(self) -> int:
        return hash((self.row_array.tobytes(), self.weight_array.tobytes()))

    def __repr__(self) -> str:
        if len(self) <= 8:
            return f"ZSet({self.to_dict()})"
        return f"<ZSet of {len(self)} rows, arity {self.arity}>"

    def _check(self) -> None:
        """Assert the invariant: sorted rows, each once, weights non-zero and in range."""
        assert self.row_array.dtype == self.weight_array.dtype == np.int64
        assert self.row_array.ndim == 2 and self.row_array.shape[1] == len(self.weight_array)
        rows = [row for row, _ in self]
        assert all(x < y for x, y in pairwise(rows))
        assert all(w != 0 and abs(w) <= MAX_INT64 for w in self.weight_array.tolist())


def _check_arity(arity: int) -> None:
    if type(arity) is not int:
        check_type("arity", arity, int, "a number of columns")
    if not 0 <= arity <= MAX_ARITY:
        raise ArityError(f"arity {arity}: give a number of columns from 0 to {MAX_ARITY}")


# The sum of no rows of arity 0; most small steps return it.
_ZERO: Final = ZSet.empty(0)


def accumulate(zsets: Iterable[ZSet], arity: int) -> ZSet:
    """Sum Z-sets: `SUMMANDS` sums of as many Z-sets are sorted together into the next sum.

    Complexity:
        O(rows log zsets), with base `SUMMANDS`.
    """
    # levels[k] has sums of SUMMANDS ** k Z-sets each.
    levels: list[list[ZSet]] = []
    for zset in zsets:
        if not len(zset.weight_array):
            continue
        summand, level = zset, 0
        while level < len(levels) and len(levels[level]) == SUMMANDS - 1:
            summand = _sum_of([*levels[level], summand])
            levels[level] = []
            level += 1
        if level == len(levels):
            levels.append([])
        levels[level].append(summand)
    if not levels:
        return ZSet.empty(arity)
    if len(levels) == 1 and len(levels[0]) == 1:
        return levels[0][0]
    return _sum_of([zset for zsets_of_level in levels for zset in zsets_of_level])


def _sum_of(zsets: Sequence[ZSet]) -> ZSet:
    """Sum at least one Z-set: in one sort, or range by range if there are many rows."""
    summands = [zset for zset in zsets if len(zset.weight_array)]
    if len(summands) < 2:
        return summands[0] if summands else zsets[0]
    rows_of_all = sum([len(zset.weight_array) for zset in summands])
    if rows_of_all >= MIN_RANGED_SUM_ROWS and summands[0].arity and current_workers() is None:
        stored = [SortedRows(zset.row_array, zset.weight_array) for zset in summands]
        parts = [(part.row_array, part.weight_array) for part in sum_ranges(stored, RANGE_ROWS)]
        return ZSet(*_concatenate(parts, zsets[0].arity)) if parts else ZSet.empty(zsets[0].arity)
    rows = np.concatenate([zset.row_array for zset in summands], axis=1)
    return consolidated_rows(rows, np.concatenate([zset.weight_array for zset in summands]))


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Sorted rows and their weights, of which ranges are read."""

    columns: Int64Array
    weights: Int64Array

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.weights)

    def read(self, first: int, end: int) -> ZSet:
        """Return some of the rows."""
        return ZSet(self.columns[:, first:end], self.weights[first:end])

    def sample(self, step: int) -> Int64Array:
        """Return the first column of every row whose position is a multiple of ``step``."""
        return self.columns[0, ::step]

    def find(self, values: Int64Array) -> list[int]:
        """For each value, return the number of rows whose first column is less than it."""
        return [int(position) for position in np.searchsorted(self.columns[0], values)]


def sum_ranges(summands: Sequence[SortedRows], range_rows: int) -> Iterator[ZSet]:
    """Yield the sums of ranges of values of the first column, in order, without empty ones.

    A range is sorted by itself, so the sort needs scratch memory for one range only. Ranges of
    `RANGE_ROWS` rows also stay in the cache.

    Args:
        summands: At least one; each has a row and a column.
        range_rows: About the number of rows of a range; more if a value is more frequent.

    Complexity:
        O(r log r) time for r rows, and memory for a range.
    """
    step = max(range_rows // SAMPLES_PER_RANGE, 1)
    sample = np.sort(np.concatenate([summand.sample(step) for summand in summands]))
    pivots = np.unique(sample[:: range_rows // step][1:])
    bounds = [[0, *summand.find(pivots), summand.rows] for summand in summands]
    for number in range(len(pivots) + 1):
        parts = [
            summand.read(ends[number], ends[number + 1])
            for summand, ends in zip(summands, bounds, strict=True)
        ]
        rows = np.concatenate([part.row_array for part in parts], axis=1)
        weights = np.concatenate([part.weight_array for part in parts])
        total = consolidated_rows(rows, weights)
        if len(total):
            yield total


def add_in_order(zsets: Iterable[ZSet], arity: int) -> ZSet:
    """Sum Z-sets; O(rows), without sorting, if the rows of each one are before those of the next.

    The last row of one may also be the first row of the next, as if a sorted list of rows had been
    cut into slices. In any other order, the rows are sorted.

    >>> first, second = ZSet.from_rows([(1,), (2,)]), ZSet.from_rows([(2,), (3,)])
    >>> add_in_order([first, second], 1)
    ZSet({(1,): 1, (2,): 2, (3,): 1})
    """
    parts: list[tuple[Int64Array, Int64Array]] = []
    for zset in zsets:
        rows, weights = zset.row_array, zset.weight_array
        if not len(weights):
            continue
        if parts and np.array_equal(parts[-1][0][:, -1], rows[:, 0]):
            last_rows, last_weights = parts[-1]
            total = int(last_weights[-1]) + int(weights[0])
            if abs(total) <= MAX_INT64:  # otherwise the sum below raises the error
                if total:
                    last_weights = last_weights.copy()
                    last_weights[-1] = total
                    parts[-1] = last_rows, last_weights
                elif len(last_weights) > 1:
                    parts[-1] = last_rows[:, :-1], last_weights[:-1]
                else:
                    parts.pop()
                rows, weights = rows[:, 1:], weights[1:]
        if len(weights):
            parts.append((rows, weights))
    if not parts:
        return ZSet.empty(arity)
    if len(parts) == 1:
        rows, weights = parts[0]
        return ZSet(np.ascontiguousarray(rows), weights)
    return consolidated_rows(*_concatenate(parts, arity))


def _concatenate(
    parts: Sequence[tuple[Int64Array, Int64Array]], arity: int
) -> tuple[Int64Array, Int64Array]:
    """Return the rows and the weights of all parts, in order; workers share the copies of many."""
    row_count = sum([len(weights) for _, weights in parts])
    workers = current_workers() if row_count >= MIN_SPLIT_ROWS else None
    if workers is None:
        return (
            np.concatenate([rows for rows, _ in parts], axis=1),
            np.concatenate([weights for _, weights in parts]),
        )
    firsts = np.cumsum([0, *[len(weights) for _, weights in parts]]).tolist()
    all_rows, all_weights = np.empty((arity, firsts[-1]), np.int64), np.empty(firsts[-1], np.int64)

    def copy(numbers: range) -> None:
        for number in numbers:
            part = slice(firsts[number], firsts[number + 1])
            all_rows[:, part], all_weights[part] = parts[number]

    tasks = min(TASKS_PER_THREAD * workers.threads, len(parts))
    bounds = [len(parts) * task // tasks for task in range(tasks + 1)]
    run_tasks([partial(copy, range(*numbers)) for numbers in pairwise(bounds)])
    return all_rows, all_weights


def to_storable(zset: ZSet) -> ZSet:
    """The Z-set as runs store it: rows without columns get one column that is always 0."""
    if zset.arity:
        return zset
    return ZSet(np.zeros((1, len(zset)), np.int64), zset.weight_array)


def unit_weights(rows: int) -> Int64Array:
    """Return ``rows`` weights of 1. Nobody may write to them, because Z-sets share the memory.

    >>> unit_weights(3).tolist()
    [1, 1, 1]
    """
    ones = _shared_ones[0]
    if rows <= len(ones):
        return ones[:rows]
    if rows <= MAX_SHARED_ONES:
        # Twice as many, so that growing Z-sets share an array for some time.
        ones = _shared_ones[0] = np.ones(min(2 * rows, MAX_SHARED_ONES), np.int64)
        return ones[:rows]
    return np.ones(rows, np.int64)


def _read_only(array: Int64Array) -> Int64Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _to_int64(values: Any, column: int) -> Int64Array:
    """Return the values of a column as a one-dimensional int64 array."""
    if type(values) is np.ndarray and values.dtype == _INT64 and values.ndim == 1:
        return values
    name = f"column {column}"
    if np.ma.isMaskedArray(values):
        raise ColumnTypeError(
            f"{name} is a masked array, and a Z-set has no NULL; drop the masked rows, "
            f"or give NULL an integer code"
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ColumnTypeError(f"{name} does not hold integers ({error}); encode it") from None
    if array.ndim != 1:
        raise ColumnTypeError(
            f"{name} has shape {array.shape}; give one one-dimensional array per column"
        )
    if array.dtype.kind == "u":
        if len(array) and int(array.max()) > MAX_INT64:
            raise ColumnTypeError(
                f"{name} holds {array.max()}, beyond int64 ({MAX_INT64}); encode it"
            )
    elif array.dtype.kind != "i" and len(array):
        content = f"dtype {array.dtype}"
        if _are_all_ints(array):
            if max(array) <= MAX_INT64 and min(array) >= -MAX_INT64 - 1:
                raise ColumnTypeError(
                    f"{name} has {content} (first value {array[0]!r}); convert it with "
                    "astype(numpy.int64)"
                )
            content = "integers beyond int64"
        raise ColumnTypeError(
            f"{name} has {content} (first value {array[0]!r}); columns are int64, "
            f"encode other values as integers, or use circuits, which encodes Arrow columns"
        )
    return array.astype(np.int64)


def _are_all_ints(array: npt.NDArray[Any]) -> bool:
    return array.dtype == object and all(type(v) is int for v in array.tolist())


def _to_weights(values: Any) -> Int64Array:
    """Return weights as an int64 array whose negation does not overflow."""
    if type(values) is np.ndarray and values.dtype == _INT64 and values.ndim == 1:
        return _check_negatable(values.copy())  # a copy: the caller may write to the original
    if np.ma.isMaskedArray(values):
        raise WeightError(
            "the weights are a masked array, and each row has a weight; drop the masked rows"
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise WeightError(f"weights are not integers ({error}); give one integer per row") from None
    if array.ndim != 1:
        raise WeightError(f"weights have shape {array.shape}; give one integer per row")
    if len(array) == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or (array.dtype.kind == "u" and int(array.max()) > MAX_INT64):
        raise WeightError(
            f"weights have dtype {array.dtype} (first value {array[0]!r}); "
            f"give integers in [-{MAX_INT64}, {MAX_INT64}]"
        )
    return _check_negatable(array.astype(np.int64))


def _check_negatable(weights: Int64Array) -> Int64Array:
    """Return the weights; raise an error if the negation of one overflows."""
    if len(weights) == 1:
        lowest = weights.item(0)
    elif len(weights) < 16:  # Python's min is faster than numpy's for a few values
        lowest = min(weights.tolist(), default=0)
    else:
        lowest = int(weights.min())
    if lowest < -MAX_INT64:
        raise WeightError(f"weight {lowest} is less than -{MAX_INT64}; give greater ones")
    return weights


def _sum_weights(weights: Int64Array) -> int:
    """The exact sum of weights; numpy computes it if it cannot wrap around."""
    if len(weights) * int(np.abs(weights).max(initial=0)) <= MAX_INT64:
        return int(weights.sum())
    return sum(weights.tolist())


def _consolidate_columns(columns: list[Int64Array], weights: Int64Array) -> ZSet:
    if not columns:
        return ZSet.scalar(_sum_weights(weights))
    return consolidated_rows(np.array(columns), weights)  # faster than `np.concatenate`


def sort_scratch(rows: int) -> Int64Array:
    """Scratch memory for sorting ``rows`` rows, until the next call; see `reusing_sort_scratch`."""
    if rows <= MAX_INSERTION_ROWS:
        return _SMALL_SCRATCH
    kept = _kept_scratch.array
    if kept is None or rows < MIN_REUSED_ROWS:
        return np.empty((SCRATCH_ARRAYS, rows), np.int64)
    words = SCRATCH_ARRAYS * rows
    if len(kept) < words:
        del kept
        _kept_scratch.array = None  # its memory is free before the larger one is allocated
        kept = _kept_scratch.array = np.empty(words, np.int64)
    return kept[:words].reshape(SCRATCH_ARRAYS, rows)


@contextmanager
def reusing_sort_scratch() -> Iterator[None]:
    """Sort in the same memory again and again, as long as this thread is in the context.

    The system must clear new memory, which takes longer than a sort of the rows that it holds. The
    memory, `SCRATCH_ARRAYS` words for each row of the largest sort, is freed at the end.
    """
    before = _kept_scratch.array
    _kept_scratch.array = np.empty(0, np.int64)
    try:
        yield
    finally:
        _kept_scratch.array = before


def consolidated_rows(rows: Int64Array, weights: Int64Array) -> ZSet:
    """Return the Z-set of rows in any order.

    The caller must not use the rows afterwards, nor write to the weights, which may be shared.
    """
    if not len(rows):
        return _consolidate_columns([], weights)
    size = len(weights)
    if size < 2:
        return ZSet(rows, weights) if size and weights.item(0) else ZSet.empty(len(rows))
    zset = _sort_in_parts([*rows], weights) if size >= MIN_SPLIT_ROWS else None
    if zset is not None:
        return zset
    # Kernels are compiled for each array layout; with one layout, one of them is enough.
    rows = np.ascontiguousarray(rows)
    observer = current_observer() if OBSERVERS else None
    if observer is not None:
        observer.begin_phase(SORT)
    try:
        scratch = _SMALL_SCRATCH if size <= MAX_INSERTION_ROWS else sort_scratch(size)
        sorted_rows, summed, status = consolidate(rows, weights, scratch)
    finally:
        if observer is not None:
            observer.end_phase(size)
    if status == OVERFLOW:
        raise _overflow_error(weights)
    return ZSet(sorted_rows, summed)


def _sort_pairs(first: Int64Array, second: Int64Array) -> ZSet | None:
    """Return the Z-set of many pairs of weight 1; None if they are not suitable for this sort."""
    observer = current_observer() if OBSERVERS else None
    if observer is not None:
        observer.begin_phase(SORT)
    result = None
    try:
        result = sort_dense_pairs(first, second)
    finally:
        if observer is not None:
            observer.end_phase(0 if result is None else len(first))
    if result is None:
        return None
    pairs, counts = result
    return ZSet(pairs, unit_weights(len(first)) if counts is None else counts)


def _sort_in_parts(columns: Sequence[Int64Array], weights: Int64Array | None) -> ZSet | None:
    """Return the Z-set of many rows; None if this thread is to sort them alone."""
    parts = split_rows(columns, weights)
    if parts is None:
        return None
    result = parts.sort()
    if result is None:
        raise _overflow_error(weights)
    rows, summed = result  # no sums if all weights are 1
    return ZSet(rows, unit_weights(rows.shape[1]) if summed is None else summed)


def _overflow_error(weights: Int64Array | None) -> WeightOverflowError:
    largest = 1 if weights is None else np.abs(weights).max()
    return WeightOverflowError(
        f"the weights of equal rows add up to more than int64 holds ({MAX_INT64}); the largest "
        f"weight is {largest}: give smaller weights, or keep a column in which the rows differ"
    )
