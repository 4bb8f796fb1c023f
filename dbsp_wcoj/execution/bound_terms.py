"""Bound terms: the terms of one kind of step, planned and bound to the runs that they read.

`dbsp_wcoj.execution.plan_cache` builds one `BoundTerms` for each set of changed relations and each
formula; a step skips each `BoundTerm` that is zero and runs the others in order.

If the view has an empty head and no term reads a partial delta, the result is one weight, and one
call runs all terms (`dbsp_wcoj.kernels.join.small_batch`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dbsp_wcoj.execution.join_buffers import JoinBuffers, address_of
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.formulas import DeltaTerm
from dbsp_wcoj.kernels.compilation import address_of as kernel_address
from dbsp_wcoj.kernels.join.join import join
from dbsp_wcoj.kernels.join.small_batch import sum_batch
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED
from dbsp_wcoj.observer import OBSERVERS, current_observer
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import ColumnOrder, build_run
from dbsp_wcoj.zset import Int64Array, ZSet, to_storable

__all__ = ["BoundTerm", "BoundTerms", "Partial"]


class Partial:
    """A complete partial delta ``D_i`` of a recursion, arranged as its terms ask for."""

    def __init__(self, rows: ZSet) -> None:
        """Store the rows, whose columns are those of `TermPlanner.partial_columns`."""
        self.rows = rows
        self._runs: dict[ColumnOrder, Run] = {}

    def address(self, order: ColumnOrder) -> int:
        """The address of the run in a column order; this object keeps the run alive."""
        if order not in self._runs:
            self._runs[order] = build_run(to_storable(self.rows), order)
        return self._runs[order].address


@dataclass(frozen=True, slots=True, eq=False)
class BoundTerm:
    """A term and everything that is needed to run it.

    Attributes:
        term: The term.
        physical: Its plan, bound to runs.
        target: The partial delta that it adds to.
        joins: Binary joins of the product.
        old: Spines of old factors; if one is empty, the product is zero.
        new: Spines of new factors with their relation; if one is empty and its relation does not
            change in the step, the product is zero.
        partial: The slot of the partial delta's address, if the term reads one.
        split: Relation and column order of the delta by which the work can be split.
    """

    term: DeltaTerm
    physical: PhysicalTerm
    target: int
    joins: int
    old: tuple[Spine, ...]
    new: tuple[tuple[Spine, str], ...]
    partial: int | None
    split: tuple[str, ColumnOrder] | None

    def is_zero(self, changed: Collection[str], partial: Partial | None) -> bool:
        """Return whether a factor is empty."""
        for spine in self.old:
            if spine.is_empty:
                return True
        for spine, name in self.new:
            if spine.is_empty and name not in changed:
                return True
        return self.partial is not None and (partial is None or not len(partial.rows))


class BoundTerms:
    """Bound terms in the order in which they run.

    Attributes:
        address: The address of the words that describe the terms to the kernels.
        terms: The terms.
        is_sum: True if the view's delta is the sum of the terms' totals, a single weight.
    """

    __slots__ = ("_buffers", "_words", "address", "is_sum", "terms")

    def __init__(
        self, terms: Sequence[BoundTerm], deltas: Int64Array, buffers: JoinBuffers
    ) -> None:
        """Store bound terms.

        Args:
            terms: The terms.
            deltas: Addresses of the step's delta runs.
            buffers: The memory that the terms write to.
        """
        self.terms = tuple(terms)
        self.is_sum = not any(term.partial is not None or term.physical.plan.head for term in terms)
        self.is_sum &= len({term.target for term in terms}) <= 1
        # Where no kernel reads the words, none is compiled for them.
        join_address = kernel_address(join) if self.is_sum else 0
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

    def total(self) -> tuple[int, int] | None:
        """The weight of the empty row and the number of joins; None to run the terms one by one.

        They run one by one if a weight leaves int64, and while an observer counts each of them.
        Valid only if `is_sum`.
        """
        if OBSERVERS and current_observer() is not None:
            return None
        state, _, marks, sums = self._buffers.arguments
        total, joins = sum_batch(self.address, state, marks, sums)
        return None if total == OVERFLOWED else (total, joins)
