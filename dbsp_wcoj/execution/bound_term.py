"""A bound term: one product of a delta formula, planned and bound to the runs that it reads.

`dbsp_wcoj.execution.plan_cache` makes them; a step asks each whether it is zero, and runs it if
not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.formulas import Term
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import ColumnOrder, run_in_order
from dbsp_wcoj.zset import ZSet, stored

__all__ = ["BoundTerm", "Partial"]


class Partial:
    """A complete partial delta ``D_i`` of a recursion, arranged as its terms ask for."""

    def __init__(self, rows: ZSet) -> None:
        """Take the rows, columns as `Schedule.kept` lists them."""
        self.rows = rows
        self._runs: dict[ColumnOrder, Run] = {}

    def address(self, order: ColumnOrder) -> int:
        """The address of the run in a column order; kept alive by this object."""
        if order not in self._runs:
            self._runs[order] = run_in_order(stored(self.rows), order)
        return self._runs[order].address


@dataclass(frozen=True, slots=True, eq=False)
class BoundTerm:
    """A term and what it takes to run it.

    Attributes:
        term: The term.
        product: Its plan, bound to runs.
        target: The partial delta that it adds to.
        joins: Binary joins of the product.
        old: Spines that have to hold something, or the product is zero.
        new: Spines that have to hold something unless their relation changes in the step.
        partial: The place of the partial delta's address, if the term has one.
        split: Relation and order of the delta along which the work can be cut.
    """

    term: Term
    product: PhysicalTerm
    target: int
    joins: int
    old: tuple[Spine, ...]
    new: tuple[tuple[Spine, str], ...]
    partial: int | None
    split: tuple[str, ColumnOrder] | None

    def is_zero(self, changed: Collection[str], partial: Partial | None) -> bool:
        """Whether a factor is empty."""
        for spine in self.old:
            if spine.is_empty:
                return True
        for spine, name in self.new:
            if spine.is_empty and name not in changed:
                return True
        return self.partial is not None and (partial is None or not len(partial.rows))
