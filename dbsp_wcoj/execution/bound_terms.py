"""Bound terms: the terms that a step runs, planned and bound to the data that they read.

A term is one product of a delta formula: a join of old, new and delta versions of the relations.
`dbsp_wcoj.execution.plan_cache` builds one `BoundTerms` for each set of changed relations and each
formula. A step skips each `BoundTerm` that is zero and runs the others in order.

A term reads the delta of a relation in one column order from a *slot*: a place in an array of the
addresses of delta runs, which each step fills. The *driver* is the delta whose rows the join starts
from; they are dealt out to parallel tasks in blocks. If there is none, the values of the first
column of another delta, the *split*, divide the work.

Some formulas are recursions over partial deltas: ``D_i`` is the delta of the join of the first i
atoms, and the terms of ``D_{i+1}`` read it.

If the query has an empty head and no term reads a partial delta, the result is one weight, and one
kernel call runs all terms (`dbsp_wcoj.kernels.join.small_batch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.execution.join_buffers import JoinBuffers, address_of
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.formulas import DeltaTerm
from dbsp_wcoj.kernels.compilation import address_of as kernel_address
from dbsp_wcoj.kernels.join.join import join
from dbsp_wcoj.kernels.join.small_batch import sum_batch
from dbsp_wcoj.kernels.storage.spine import RUN_COUNT
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED
from dbsp_wcoj.observer import OBSERVERS, current_observer
from dbsp_wcoj.storage.merged_runs import MIN_MERGED_ROWS, MergedRelation
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import ColumnOrder, TraceStep, build_run
from dbsp_wcoj.zset import MAX_INT64, Int64Array, ZSet, to_storable

__all__ = ["BoundTerm", "BoundTerms", "CycleFactor", "Partial", "RelationFactor", "SplitDelta"]

# The lists of a delta are prepared if it has at least this many rows,
MIN_PREPARED_ROWS: Final = 4096
# and at most this many for each row of the delta with which the term joins it.
MAX_PREPARED_ROWS_PER_DELTA_ROW: Final = 4


class Partial:
    """A partial delta ``D_i`` after all of its terms have run, sorted as later terms need it."""

    def __init__(self, rows: ZSet) -> None:
        """Store the rows, whose columns are those of `TermPlanner.partial_columns`."""
        self.rows = rows
        self._runs: dict[ColumnOrder, Run] = {}

    def address(self, order: ColumnOrder) -> int:
        """Return the address of the run in a column order; this object keeps the run alive."""
        if order not in self._runs:
            self._runs[order] = build_run(to_storable(self.rows), order)
        return self._runs[order].address


class SplitDelta(NamedTuple):
    """A delta of a relation whose rows can be divided, sorted in a column order."""

    name: str
    order: ColumnOrder


class RelationFactor(NamedTuple):
    """A factor that reads a relation before or after the step.

    Attributes:
        factor: Its position among the factors of the plan.
        name: The relation.
        order: The column order.
        spine: The relation before the step.
    """

    factor: int
    name: str
    order: ColumnOrder
    spine: Spine


class CycleFactor(NamedTuple):
    """A factor whose lists the join intersects: a delta, or a new relation, and its column order.

    Attributes:
        name: The relation.
        order: The column order.
        old: The relation before the step; None if the factor is a delta.
    """

    name: str
    order: ColumnOrder
    old: Spine | None


@dataclass(frozen=True, slots=True, eq=False)
class BoundTerm:
    """A term and everything that is needed to run it.

    Attributes:
        term: The term.
        physical: Its compiled plan with the data that it reads.
        target: The index of the partial delta to which the result is added.
        joins: The number of binary joins in the term.
        old: Its old relations. If one is empty, the term is zero.
        new: Its new relations. If one was empty and the step does not change it, the term is zero.
        partial_slot: The slot of the partial delta that the term reads; None if it reads none.
        split: The delta whose rows can be divided among parallel tasks; None if there is none.
        driver: The delta from whose rows the join starts; None if it starts from no delta of a
            relation.
        closing: The delta or new relation that closes a cycle or clique, if any
            (`PhysicalTerm.cycle_factors`).
        fixed: In a cycle, the delta or new relation whose lists are intersected with those of
            ``closing``.
    """

    term: DeltaTerm
    physical: PhysicalTerm
    target: int
    joins: int
    old: tuple[RelationFactor, ...]
    new: tuple[RelationFactor, ...]
    partial_slot: int | None
    split: SplitDelta | None
    driver: SplitDelta | None
    closing: CycleFactor | None
    fixed: CycleFactor | None

    @property
    def relation_factors(self) -> Iterator[tuple[bool, RelationFactor]]:
        """The factors that read a relation; True before those that read it after the step."""
        yield from ((False, factor) for factor in self.old)
        yield from ((True, factor) for factor in self.new)

    def is_zero(self, changed: Collection[str], partial: Partial | None) -> bool:
        """Return whether the term is zero because a factor is empty."""
        # The run counts are read from the tables, because a property takes longer.
        for factor in self.old:
            if not factor.spine.table[RUN_COUNT]:
                return True
        for factor in self.new:
            if not factor.spine.table[RUN_COUNT] and factor.name not in changed:
                return True
        return self.partial_slot is not None and (partial is None or not len(partial.rows))


class BoundTerms:
    """Bound terms in the order in which they run.

    Attributes:
        address: The address of the array that describes the terms to the kernels.
        terms: The terms.
        is_sum: True if the result is the sum of the totals of the terms, a single weight.
        reads_partial: True if a term reads a partial delta.
    """

    __slots__ = ("_buffers", "_words", "address", "is_sum", "reads_partial", "terms")

    def __init__(
        self, terms: Sequence[BoundTerm], deltas: Int64Array, buffers: JoinBuffers
    ) -> None:
        """Store bound terms.

        Args:
            terms: The terms.
            deltas: The addresses of the step's delta runs.
            buffers: The memory that the terms write to.
        """
        self.terms = tuple(terms)
        has_rows = any(term.physical.plan.head for term in terms)
        self.reads_partial = any(term.partial_slot is not None for term in terms)
        targets = {term.target for term in terms}
        self.is_sum = not has_rows and not self.reads_partial and len(targets) <= 1
        # If no kernel will read the words, the join kernel need not be compiled now.
        join_address = kernel_address(join) if self.is_sum else 0
        # The layout is that of a batch in `dbsp_wcoj.kernels.join.small_batch`.
        words = [len(terms), address_of(deltas), join_address]
        for term in terms:
            if self.is_sum:
                term.physical.link()
            words += [*term.physical.addresses[:2], len(term.physical.plan.factors), term.joins]
            words += term.physical.addresses[2:]
        # The kernel reads the array by its address; this reference keeps it alive.
        self._words = np.array(words, np.int64)
        self.address = address_of(self._words)
        self._buffers = buffers

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        """The kernel arguments of the buffers (`JoinBuffers.arguments`)."""
        return self._buffers.arguments

    def run_as_they_are(self, rows: int) -> bool:
        """Return whether no term of so small a step prepares lists or reads a partial delta."""
        return rows < MIN_PREPARED_ROWS and not self.reads_partial

    @contextmanager
    def prepared_lists(self, steps: Mapping[str, TraceStep]) -> Iterator[None]:
        """Let the terms read prepared lists if this pays off (`dbsp_wcoj.execution.list_packing`).

        It can pay off if a large step adds the first rows of a relation, because the join of the
        step then reads all lists of the relation. Run the terms inside the ``with`` statement.

        Args:
            steps: The changed relations.

        Complexity:
            O(rows) if the lists are prepared.
        """
        lists = None
        for term in self.terms:
            run = _run_to_prepare(term, steps)
            if run is not None and not term.is_zero(steps, None):
                lists = term.physical.prepare_cycle(run, _only_run(term.fixed, steps))
                break
        self._buffers.set_lists(lists)
        try:
            yield
        finally:
            self._buffers.set_lists(None)

    @contextmanager
    def merged_runs(self, steps: Mapping[str, TraceStep]) -> Iterator[None]:
        """Let the terms read changed relations as fewer runs (`dbsp_wcoj.storage.merged_runs`).

        Run the terms inside the ``with`` statement.

        Args:
            steps: The changed relations.

        Complexity:
            O(rows of the step), for each column order.
        """
        merged: dict[tuple[str, ColumnOrder], MergedRelation] = {}
        left_out: set[tuple[str, ColumnOrder]] = set()
        replaced: list[tuple[PhysicalTerm, Int64Array]] = []
        try:
            for term in self.terms:
                tables: dict[int, tuple[Int64Array, bool]] = {}
                for is_new, (factor, name, order, spine) in term.relation_factors:
                    step = steps.get(name)
                    if (name, order) in left_out or step is None:
                        continue
                    if step.rows < MIN_MERGED_ROWS:
                        continue
                    if self._count_lookups(name, steps) <= step.rows:
                        continue  # reading fewer runs would save less time than merging them takes
                    if step.must_compact:  # sums of only some runs may leave int64
                        continue
                    if (name, order) not in merged:
                        found = step.merge_newest_runs(order, spine)
                        if found is None:
                            left_out.add((name, order))
                            continue
                        merged[name, order] = found
                    relation = merged[name, order]
                    if is_new and relation.new is not None:
                        tables[factor] = relation.new, False
                    else:
                        tables[factor] = relation.old, is_new
                if tables:
                    # First the sources to restore: an interrupt may follow the replacement.
                    replaced.append((term.physical, term.physical.copy_sources()))
                    term.physical.read_tables(tables)
            yield
        finally:
            for physical, sources in replaced:
                physical.restore_sources(sources)

    def _count_lookups(self, name: str, steps: Mapping[str, TraceStep]) -> int:
        """Return about how many rows the terms search for in a relation.

        A term searches for each row of its driver; without a driver, it reads the whole relation.
        """
        lookups = 0
        for term in self.terms:
            factors = [factor for _, factor in term.relation_factors if factor.name == name]
            driver = None if term.driver is None else steps.get(term.driver.name)
            if driver is not None:
                lookups += len(factors) * driver.rows
            elif factors and term.driver is None:
                return MAX_INT64
        return lookups

    def total(self) -> tuple[int, int] | None:
        """Run all terms in one kernel call; call this only if `is_sum`.

        Returns:
            The weight of the empty row and the number of joins; None if the caller must run the
            terms one by one: a weight exceeds int64, or an observer counts each term.
        """
        if OBSERVERS and current_observer() is not None:
            return None
        state, _, bitmap_buffer, memo = self._buffers.arguments
        total, joins = sum_batch(self.address, state, bitmap_buffer, memo)
        if total == OVERFLOWED:
            self._buffers.drop_deferred()
            return None
        deferred_sum = self._buffers.take_deferred_sum()
        total += deferred_sum
        is_exact = deferred_sum != OVERFLOWED and abs(total) <= MAX_INT64
        return (total, joins) if is_exact else None


def _run_to_prepare(term: BoundTerm, steps: Mapping[str, TraceStep]) -> Run | None:
    """Return the run whose lists the term intersects, if it may read most of them."""
    closing, split = term.closing, term.split
    if closing is None or split is None or closing.name not in steps or split.name not in steps:
        return None
    rows = steps[closing.name].rows
    max_rows = MAX_PREPARED_ROWS_PER_DELTA_ROW * steps[split.name].rows
    if MIN_PREPARED_ROWS <= rows <= max_rows:
        return _only_run(closing, steps)
    return None


def _only_run(factor: CycleFactor | None, steps: Mapping[str, TraceStep]) -> Run | None:
    """Return the run of a factor that reads only a delta, or a relation that was empty."""
    if factor is None or factor.name not in steps:
        return None
    is_delta = factor.old is None or factor.old.is_empty
    return steps[factor.name].run(factor.order) if is_delta else None
