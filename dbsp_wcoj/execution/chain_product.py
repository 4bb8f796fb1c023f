"""Chain product: joins a large delta with relations by a product of sparse matrices.

It computes a term of a delta formula whose atoms form a path between the two variables of the
head. Each atom is a sparse matrix: the rows (x, y) with their weights::

    closure(x, z) :- edge(x, y), delta(y, z)
    same_generation(x, y) :- edge(a, x), delta(a, b), edge(b, y)

The kernel (`dbsp_wcoj.kernels.join.chain`) reads the matrices from one end of the path to the
other, even if the delta is in the middle. A generic join starts at the rows of the delta instead,
and sorts its result. So a chain product is faster if the delta is large, as in the first step of a
recursion. It needs arrays indexed by value, so the values must be dense: their range is not much
larger than the number of rows. The weights must be so small that no sum overflows int64.
`ChainProducts.multiply` checks all this; if a condition fails, a generic join computes the term.

The delta may have a third column, the *tag*, with the same value in all rows: the iteration of a
recursion. The tag is copied to the result.

A `ChainProduct` is computed when its rows are read. A reader that needs only the keys of the rows,
and the rows that are new in a set, calls `ChainProduct.derive_keys` instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.kernels.join.chain import (
    GROUP_WORDS,
    derive_chain_keys,
    group_rows,
    map_values,
    multiply_chain,
)
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.query import Query, Variable
from dbsp_wcoj.row_parts import RowPart, RowParts
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder, Trace, TraceStep
from dbsp_wcoj.zset import MAX_INT64, Int64Array, ZSet

__all__ = ["Chain", "ChainProduct", "ChainProducts", "DerivedKeys", "find_chain"]

# Smaller deltas are computed by generic joins.
MIN_DELTA_ROWS: Final = 1 << 10
# This factor limits two numbers of rows. The atoms before the delta in the path have in total at
# most this many rows per row of the delta, because the kernel may read all of them. A relation is
# prepared as a factor only if it has at most this many rows per row of all deltas so far.
MAX_ROWS_PER_DELTA_ROW: Final = 4
# The latter limit for a relation with one run in the column order: no row is copied or sorted then,
# and its values are read once.
MAX_READ_ROWS_PER_DELTA_ROW: Final = 32
# Values are dense if their range has at most DENSE_SIZE + DENSE_FACTOR * rows numbers.
DENSE_SIZE: Final = 1 << 16
DENSE_FACTOR: Final = 4
ONE: Final = np.ones(1, np.int64)
# The kernel returns the result in chunks of this many rows, plus the rows of one source.
CHUNK_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class Chain:
    """A query whose atoms form a path from a source variable to a target variable.

    The source and target of an atom are the ends of its edge, in the direction of the path.

    Attributes:
        relations: The relation of each atom, in the order of the path.
        orders: The column order of each atom: its source, its target, and the tag if it has one.
        delta: The position of the delta in the path.
        head: For each column of the head: 0 for the source, 1 for the target, 2 for the tag.
    """

    relations: tuple[str, ...]
    orders: tuple[ColumnOrder, ...]
    delta: int
    head: tuple[int, ...]


def find_chain(query: Query, delta: str) -> Chain | None:
    """Return the chain of a query; None if the query does not have that form.

    Args:
        query: The query.
        delta: The relation that changes; in a chain it occurs exactly once. It may have a tag as
            third column: a variable that occurs in no other atom.

    >>> chain = find_chain(Query.parse("q(x, z, i) :- e(x, y), d(y, z, i)"), "d")
    >>> chain.relations, chain.orders, chain.head
    (('e', 'd'), ((0, 1), (0, 1, 2)), (0, 1, 2))
    >>> find_chain(Query.parse("q(x, y) :- e(x, y), e(y, z), d(x, z)"), "d") is None
    True
    """
    if query.comparisons or len(query.body) < 2 or len(set(query.head)) < len(query.head):
        return None
    atoms: list[tuple[str, list[str]]] = []
    tag = ""
    for atom in query.body:
        names = [term.name for term in atom.terms if isinstance(term, Variable)]
        if len(names) != len(atom.terms) or len(set(names)) < len(names):
            return None
        if atom.relation == delta and len(names) == 3:
            tag = names.pop()
        if len(names) != 2:
            return None
        atoms.append((atom.relation, names))
    if [relation for relation, _ in atoms].count(delta) != 1:
        return None
    ends = [name for name in query.head if name != tag]
    uses = [name for _, names in atoms for name in names]
    middle = set(uses) - set(ends)
    is_path = len(ends) == 2 and tag not in uses and all(uses.count(name) == 1 for name in ends)
    if not is_path or any(uses.count(name) != 2 for name in middle):
        return None
    # Walk from the source. Atoms that are left over at the end are not on the path.
    variable, path, orders = ends[0], [], []
    while (k := next((k for k, (_, n) in enumerate(atoms) if variable in n), None)) is not None:
        relation, names = atoms.pop(k)
        source = names.index(variable)
        order = (source, 1 - source)
        orders.append((*order, 2) if relation == delta and tag else order)
        path.append(relation)
        variable = names[1 - source]
    if atoms:
        return None
    head = tuple(2 if name == tag else ends.index(name) for name in query.head)
    return Chain(tuple(path), tuple(orders), path.index(delta), head)


@dataclass(frozen=True)
class _Factor:
    """A factor of a product: the rows of an atom by source, with a map of its sources.

    Attributes:
        address: The address of the run that the kernel reads: the first column is the source, the
            second the target.
        memory: The arrays and runs at this address, and those to which the run leads.
        rows: The number of rows.
        sources: The distinct sources, ascending.
        positions: For each number from the lowest source on: the position of the source in
            ``sources``, or -1. None if the sources are not dense.
        target_range: The lowest and the highest target.
        max_abs_weight: The greatest absolute weight, or more.
        has_equal_positive_weights: True if all rows have the same weight, above 0.
    """

    address: int
    memory: object
    rows: int
    sources: Int64Array
    positions: Int64Array | None
    target_range: tuple[int, int]
    max_abs_weight: int
    has_equal_positive_weights: bool

    @staticmethod
    def of(run: Run) -> _Factor:
        """Return the factor of a run; O(rows)."""
        # The first of several levels is never narrow, so this is no copy.
        sources, targets = np.asarray(run.level_values(0), np.int64), run.level_values(1)
        return _Factor(
            run.address,
            run,
            run.rows,
            sources,
            _positions_of(sources, run.rows),
            (int(targets.min()), int(targets.max())),
            run.max_abs_weight,
            run.has_equal_positive_weights,
        )

    @staticmethod
    def of_rows(rows: ZSet) -> _Factor | None:
        """Return the factor of rows in the order of their columns; no row is copied.

        None if their weights differ.
        """
        columns, count = rows.row_array, len(rows)
        first, last = int(columns[0, 0]), int(columns[0, -1])
        run = np.empty(GROUP_WORDS + 2 * min(count, last - first + 1) + 1, np.int64)
        nodes, lowest, highest, weight = group_rows(columns, rows.weight_array, run)
        if not weight:
            return None
        sources = run[GROUP_WORDS : GROUP_WORDS + nodes]
        return _Factor(
            address_of(run),
            (run, columns),
            count,
            sources,
            _positions_of(sources, count),
            (lowest, highest),
            abs(weight),
            weight > 0,
        )

    @property
    def kernel_words(self) -> tuple[int, int, int, int]:
        """The address of the run; then the address, lowest value and size of the map, or zeros."""
        if self.positions is None:
            return self.address, 0, 0, 0
        return self.address, address_of(self.positions), int(self.sources[0]), len(self.positions)


def _positions_of(sources: Int64Array, rows: int) -> Int64Array | None:
    """Return the map of ascending sources to their positions; None if they are not dense."""
    lowest, size = int(sources[0]), int(sources[-1]) - int(sources[0]) + 1
    if not _is_dense(size, rows):
        return None
    positions = np.empty(size, np.int64)
    map_values(sources, lowest, positions)
    return positions


class _Scratch:
    """The memory of products; all products of a `ChainProducts` use the same.

    Between two calls of a kernel, its numbers are 0 if the kernel expects that.
    """

    def __init__(self) -> None:
        self._nodes: Int64Array = np.empty(0, np.int64)
        self._marks: Int64Array = np.empty(0, np.int64)
        self._targets: Int64Array = np.empty(0, np.int64)
        self._keys: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self._last_stamp = 0

    def take_stamp(self, sources: int) -> int:
        """Return a number that no mark is, like the ``sources`` - 1 numbers after it."""
        stamp = self._last_stamp + 1
        self._last_stamp += sources
        return stamp

    def of_nodes(self, factors: int, nodes: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the arrays ``nodes``, ``marks`` and ``weights`` of the kernels."""
        if len(self._nodes) < (2 + factors) * nodes:
            self._nodes = np.empty((2 + factors) * nodes, np.int64)
        if len(self._marks) < factors * nodes:
            self._marks = np.zeros(factors * nodes, np.int64)
        words = self._nodes
        return (
            words[: 2 * nodes].reshape(2, nodes),
            self._marks[: factors * nodes].reshape(factors, nodes),
            words[2 * nodes : (2 + factors) * nodes].reshape(factors, nodes),
        )

    def of_targets(self, span: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the arrays ``target_weights``, ``bits`` and ``summary`` of the kernels."""
        words = (span >> 6) + 1
        ends = span, span + words, span + words + (words >> 6) + 1
        if len(self._targets) < ends[-1]:
            self._targets = np.zeros(ends[-1], np.int64)
        targets = self._targets
        return targets[: ends[0]], targets[ends[0] : ends[1]], targets[ends[1] : ends[2]]

    def of_keys(self, capacity: int) -> npt.NDArray[np.uint32]:
        """Return three arrays of keys."""
        if len(self._keys) < 3 * capacity:
            self._keys = np.empty(3 * capacity, np.uint32)
        return self._keys[: 3 * capacity].reshape(3, capacity)


class DerivedKeys(NamedTuple):
    """Some rows of a product, packed into keys.

    Attributes:
        keys: The keys, uint32, ascending; they follow those before.
        weights: Their weights, uint32.
        new_keys: Those that are new in the set.
    """

    keys: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.uint32]
    new_keys: npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class ChainProduct:
    """A chain product that is not computed yet: the source of its rows.

    Attributes:
        factors: The factors, in the order of the path.
        lowest: The lowest target.
        highest: The highest target.
        tag: The value of the tag, as an array of one number.
        head: As `Chain.head`.
        budget: Limits the rows and the time.
        scratch: The memory that it uses.

    Complexity:
        For each source, O(rows of the factors that its paths reach): a row is read once per source,
        however many paths lead to it. Plus one word per 4096 numbers of the range of the targets.
    """

    factors: tuple[_Factor, ...]
    lowest: int
    highest: int
    tag: Int64Array
    head: tuple[int, ...]
    budget: Budget | None
    scratch: _Scratch

    @property
    def weight_bound(self) -> int:
        """An upper bound of the absolute weights of the rows."""
        largest = prod([factor.max_abs_weight for factor in self.factors])
        return largest * prod([len(factor.sources) for factor in self.factors[1:]])

    @property
    def has_positive_weights(self) -> bool:
        """True if the weights of each factor are equal and positive."""
        return all(factor.has_equal_positive_weights for factor in self.factors)

    @property
    def extremes(self) -> Int64Array:
        """The lowest and the highest source, and target, that a row may have; shape ``(2, 2)``."""
        sources = self.factors[0].sources
        return np.array([[sources[0], sources[-1]], [self.lowest, self.highest]], np.int64)

    def compute_parts(self) -> Sequence[RowPart]:
        """Return the rows, sorted.

        Raises:
            LimitError: They are more, or take longer, than the budget allows.
        """
        parts = []
        out = np.empty((3, self._capacity), np.int64)
        for written, _ in self._run(multiply_chain, (out,)):
            columns, weights = out[:2, :written].copy(), out[2, :written]
            # Neither a tag nor weights of 1 take memory.
            tag = np.broadcast_to(self.tag, written)
            rows = [columns[k] if k < 2 else tag for k in self.head]
            if (weights == 1).all():
                parts.append(RowPart(rows, np.broadcast_to(ONE, written)))
            else:
                parts.append(RowPart(rows, weights.copy()))
        return parts

    def project(self, columns: Sequence[int]) -> tuple[ChainProduct, bool] | None:
        """Return the product with its columns in another order, and whether its rows are sorted.

        None if these are not all columns.
        """
        if sorted(columns) != [*range(len(self.head))]:
            return None
        head = tuple(self.head[k] for k in columns)
        return replace(self, head=head), head.index(0) < head.index(1)

    def derive_keys(
        self, layout: KeyLayout, known: npt.NDArray[np.uint64]
    ) -> Iterator[DerivedKeys]:
        """Yield the keys of the rows without their tag, and the new ones; add them to a set.

        The weights must be positive and fit in uint32. The next chunk overwrites all arrays.

        Args:
            layout: A layout of (source, target) with at most 32 bits that fits `extremes`.
            known: One bit per key, and a word more: the set.

        Raises:
            LimitError: They are more, or take longer, than the budget allows.
        """
        words = np.array([*layout.lowest, layout.bits[1]], np.int64)
        keys, weights, new_keys = self.scratch.of_keys(self._capacity)
        for written, added in self._run(derive_chain_keys, (words, known, keys, weights, new_keys)):
            yield DerivedKeys(keys[:written], weights[:written], new_keys[:added])

    @property
    def _capacity(self) -> int:
        """The rows of a chunk: the kernel begins no source whose rows might not fit."""
        return CHUNK_ROWS + self.highest - self.lowest + 1

    def _run(self, kernel: Any, arguments: tuple[Any, ...]) -> Iterator[list[int]]:
        """Run a kernel until it has read all sources; yield what it returns, without the source.

        The results are those of calls that have written rows.
        """
        factors, budget, scratch = self.factors, self.budget, self.scratch
        factor_words = np.array([factor.kernel_words for factor in factors], np.int64)
        nodes = scratch.of_nodes(len(factors), max([len(factor.sources) for factor in factors]))
        targets = scratch.of_targets(self.highest - self.lowest + 1)
        source, source_count = 0, len(factors[0].sources)
        stamp = scratch.take_stamp(source_count)
        while source < source_count:
            source, written, *rest = kernel(
                factor_words, source, stamp, self.lowest, *nodes, *targets, *arguments
            )
            if budget is not None:
                budget.add_rows(written, len(self.head))
                budget.check_time()
            if written:
                yield [written, *(rest or [0])]


class ChainProducts:
    """Computes chain products, and caches the factors of relations until these change.

    Release it when the deltas become small, because it takes memory: if the trace of a relation has
    several runs, or lacks the column order, the factor has a copy of all rows.
    """

    def __init__(self) -> None:
        # By relation and column order: the runs of the trace, and the factor built from them.
        self._factors: dict[tuple[str, ColumnOrder], tuple[tuple[Run, ...], _Factor]] = {}
        self._delta_rows = 0
        self._scratch = _Scratch()

    def is_large(self, step: TraceStep) -> bool:
        """Return whether a delta has enough rows for a chain product."""
        return step.rows >= MIN_DELTA_ROWS

    def multiply(
        self,
        chain: Chain,
        step: TraceStep,
        traces: Mapping[str, Trace],
        budget: Budget | None = None,
    ) -> ZSet | None:
        """Return the result of `multiply_parts` as a Z-set."""
        rows = self.multiply_parts(chain, step, traces, budget)
        return None if rows is None else rows.sorted()

    def multiply_parts(
        self,
        chain: Chain,
        step: TraceStep,
        traces: Mapping[str, Trace],
        budget: Budget | None = None,
    ) -> RowParts | None:
        """Return the result of a chain; None if a generic join should compute it.

        The rows are sorted and distinct. They are computed when they are read.

        Args:
            chain: The chain.
            step: The staged step of its delta.
            traces: The relations, by name. No relation of the chain but the delta has changes.
            budget: Limits the rows and the time; computing the rows then raises `LimitError`.

        Complexity:
            O(rows of the factors), at most; see `ChainProduct` for computing the rows.
        """
        if not self.is_large(step):
            return None
        delta = step.delta
        tags = delta.row_array[-1]
        if len(chain.orders[chain.delta]) == 3 and (tags != tags[0]).any():
            return None
        self._delta_rows += len(delta)
        factors: list[_Factor] = []
        factor: _Factor | None
        for k, (relation, order) in enumerate(zip(chain.relations, chain.orders, strict=True)):
            if k == chain.delta:
                factor = _Factor.of_rows(delta) if order == (0, 1, 2)[: len(order)] else None
                if factor is None:
                    factor = _Factor.of(step.run(order))
            else:
                trace = traces[relation]
                if trace.is_empty:
                    return RowParts(len(chain.head), [])
                factor = self._factor(relation, order, trace)
            if factor is None:
                return None
            factors.append(factor)
        rows_before = sum([factor.rows for factor in factors[: chain.delta]])
        lowest, highest = factors[-1].target_range
        product = ChainProduct(
            tuple(factors), lowest, highest, tags[:1], chain.head, budget, self._scratch
        )
        if (
            rows_before > MAX_ROWS_PER_DELTA_ROW * len(delta)
            or any(factor.positions is None for factor in factors[1:])
            or not _is_dense(highest - lowest + 1, factors[-1].rows)
            or product.weight_bound > MAX_INT64
        ):
            return None
        return RowParts(len(chain.head), product, is_sorted=True)

    def _factor(self, relation: str, order: ColumnOrder, trace: Trace) -> _Factor | None:
        """Return the factor of a relation; None if it has no rows or too many for the deltas."""
        runs = trace.visible_runs(order)
        known = self._factors.get((relation, order))
        if known is not None and known[0] == runs:
            return known[1]
        is_copied = len(runs) > 1 or all(a.order != order for a in trace.arrangements)
        limit = MAX_ROWS_PER_DELTA_ROW if is_copied else MAX_READ_ROWS_PER_DELTA_ROW
        if sum([run.rows for run in runs]) > limit * self._delta_rows:
            return None
        run = trace.visible_run(order)
        if not run.rows:
            return None
        factor = _Factor.of(run)
        self._factors[relation, order] = runs, factor
        return factor


def _is_dense(size: int, rows: int) -> bool:
    return size <= DENSE_SIZE + DENSE_FACTOR * rows
