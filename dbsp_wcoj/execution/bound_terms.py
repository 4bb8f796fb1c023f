"""A batch: the terms of one kind of step, that is of one set of changed relations, ready to run.

Where all that is asked for is a weight, and no term is a partial delta's, one call runs all of
them (`dbsp_wcoj.kernels.join.small_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbsp_wcoj.execution.bound_term import BoundTerm
from dbsp_wcoj.execution.join_buffers import JoinBuffers, address_of
from dbsp_wcoj.kernels.compiled import address_of as kernel_address
from dbsp_wcoj.kernels.join.join import join
from dbsp_wcoj.kernels.join.small_batch import join_totals
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED
from dbsp_wcoj.zset import Int64Array

__all__ = ["BoundTerms"]


class BoundTerms:
    """Terms in the order to run them in.

    Attributes:
        address: Of the words that kernels know it by.
        terms: The terms.
        is_sum: Whether the view's delta is just the sum of their totals.
    """

    __slots__ = ("_stack", "_words", "address", "is_sum", "terms")

    def __init__(self, terms: Sequence[BoundTerm], deltas: Int64Array, stack: JoinBuffers) -> None:
        """Take bound terms.

        Args:
            terms: The terms.
            deltas: Addresses of the step's delta runs.
            stack: Where the terms run.
        """
        self.terms = tuple(terms)
        self.is_sum = not any(term.partial is not None or term.product.plan.head for term in terms)
        self.is_sum &= len({term.target for term in terms}) <= 1
        # Where no kernel reads the words, none is compiled for them.
        join_address = kernel_address(join) if self.is_sum else 0
        words = [len(terms), address_of(deltas), join_address]
        for term in terms:
            if self.is_sum:
                term.product.link()
            words += [*term.product.addresses[:2], len(term.product.plan.factors), term.joins]
            words += term.product.addresses[2:]
        # The kernel gets its address: the array is kept because it reads it.
        self._words = np.array(words, np.int64)
        self.address = address_of(self._words)
        self._stack = stack

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        """What the terms run with (`JoinBuffers.arguments`)."""
        return self._stack.arguments

    def total(self) -> tuple[int, int] | None:
        """The weight of the empty row and the number of joins; None if a weight leaves int64.

        Only where `is_sum` holds.
        """
        state, _, marks, sums = self._stack.arguments
        total, joins = join_totals(self.address, state, marks, sums)
        return None if total == OVERFLOWED else (total, joins)
