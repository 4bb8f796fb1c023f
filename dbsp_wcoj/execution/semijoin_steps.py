"""Small steps of a relation that is reduced by semijoins, if the result is one weight.

Like `dbsp_wcoj.execution.small_steps`: one kernel call does everything. It selects the rows of each
reduced relation, builds their runs, runs the terms and appends the runs to the spines. The other
rows are only appended to the log of the full relation. Each reduced relation may get up to
`dbsp_wcoj.kernels.storage.arena.MAX_SMALL_ROWS` rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dbsp_wcoj.execution.bound_terms import BoundTerms
from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.execution.semijoins import SemijoinReduction
from dbsp_wcoj.kernel_loading import load_kernel
from dbsp_wcoj.kernels.join.semijoin_step import ARENA_FULL, NOT_SMALL, SETTLE, semijoin_step
from dbsp_wcoj.kernels.storage.arena import MAX_SMALL_ROWS
from dbsp_wcoj.observer import OBSERVERS, current_observer
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["SemijoinSteps"]

# Larger steps are not tried, because a reduced relation would probably get too many rows.
MAX_ROWS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _KernelArguments:
    """Cached kernel arguments of one relation, valid until its terms or arrangements change.

    Attributes:
        terms: The terms that a step of the relation runs.
        arenas: The memory in which the kernel builds runs, by reduced relation.
        buffers: The addresses of the join buffers.
        words: The array that the kernel reads; None if the steps take the general path.
        address: The address of ``words``.
        reduced_words: The words of each reduced relation; ``words`` has their addresses.
    """

    terms: BoundTerms
    arenas: tuple[Arena | None, ...]
    buffers: tuple[int, ...]
    words: Int64Array | None
    address: int
    reduced_words: tuple[Int64Array, ...]


class SemijoinSteps:
    """The fast path for small steps of a delta query with reduced relations."""

    __slots__ = ("_arguments", "_plan_cache", "_reduction", "_relations")

    def __init__(
        self, plan_cache: PlanCache, relations: Relations, reduction: SemijoinReduction
    ) -> None:
        """Run the terms of ``plan_cache`` on the reduced ``relations``."""
        self._plan_cache = plan_cache
        self._relations = relations
        self._reduction = reduction
        self._arguments: dict[str, _KernelArguments] = {}

    def step(self, deltas: Mapping[str, ZSet]) -> tuple[int, int] | None:
        """Apply the deltas if they are a small step; see `SmallSteps.step`."""
        if OBSERVERS and current_observer() is not None:
            return None
        if not isinstance(deltas, Mapping) or len(deltas) != 1:
            return None
        ((name, delta),) = deltas.items()
        filters = self._reduction.filters.get(name)
        if filters is None or not isinstance(delta, ZSet):
            return None
        columns, weights = delta.row_array, delta.weight_array
        rows = len(weights)
        traces = self._reduction.reduced_traces[name]
        if not 0 < rows <= MAX_ROWS or len(columns) != traces[0].arity:
            return None
        terms = self._plan_cache.bind_group(self._reduction.reduced_names[name], rows)
        if terms is None or not terms.is_sum:
            return None
        arenas = tuple([trace.arena for trace in traces])
        arguments = self._arguments.get(name)
        if (
            arguments is None
            or arguments.terms is not terms
            or arguments.arenas != arenas
            or arguments.buffers is not terms.arguments
        ):
            arguments = self._bind(name, terms, arenas)
            if arguments.words is not None:
                # An interrupt while the kernel is compiled must not look like one of the step.
                load_kernel(semijoin_step, arguments.address, columns, weights, filters)
            self._arguments[name] = arguments
        if arguments.words is None:
            return None
        address, relations = arguments.address, self._relations
        if relations.has_unfinished_commit:
            return None
        # If an interrupt follows the kernel, it stays True: the result of the step is then lost.
        relations.has_unfinished_commit = True
        status, total, joins = semijoin_step(address, columns, weights, filters)
        while status == ARENA_FULL:
            relations.has_unfinished_commit = False
            arena = arenas[total]
            assert arena is not None
            arena.start_buffer(min(rows, MAX_SMALL_ROWS))
            relations.has_unfinished_commit = True
            status, total, joins = semijoin_step(address, columns, weights, filters)
        if status == NOT_SMALL:
            relations.has_unfinished_commit = False
            return None
        for trace in traces:
            trace.version += 1
        relations.version += 1
        self._plan_cache.record_rows(rows)
        if status == SETTLE:  # a spine has merge work to do
            for arena in arenas:
                if arena is not None:
                    arena.settle()
            self._plan_cache.build_list_bitmaps()
        relations.has_unfinished_commit = False
        return total, joins

    def _bind(
        self, name: str, terms: BoundTerms, arenas: tuple[Arena | None, ...]
    ) -> _KernelArguments:
        """Build the kernel arguments of a relation."""
        buffers = terms.arguments
        # The layout is that of `dbsp_wcoj.kernels.join.semijoin_step`.
        reduced_words = []
        for reduced, arena in zip(self._reduction.reduced_names[name], arenas, strict=True):
            slots = self._plan_cache.slots_of(reduced)
            if arena is None or not slots.keys() <= set(arena.orders):
                return _KernelArguments(terms, arenas, buffers, None, 0, ())
            slot_by_order = [slots.get(order, -1) for order in arena.orders]
            reduced_words.append(np.array([arena.address, *slot_by_order], np.int64))
        state, _, bitmap_buffer, memo = buffers
        deltas = address_of(self._plan_cache.deltas)
        log = self._reduction.full[name].log_address
        addresses = [terms.address, deltas, state, bitmap_buffer, memo, log]
        words = np.array([*addresses, *map(address_of, reduced_words)], np.int64)
        return _KernelArguments(
            terms, arenas, buffers, words, address_of(words), tuple(reduced_words)
        )
