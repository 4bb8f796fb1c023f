"""Small steps: a fast path for few changed rows of one relation, for queries with an empty head.

The result is one weight, such as the number of triangles of a graph. A step of one edge takes
microseconds, so the overhead of Python calls dominates. Therefore one kernel call does everything,
for up to `MAX_SMALL_ROWS` rows: it builds the delta's runs, evaluates the terms, and appends these
runs to the spines. All other steps take the general path, and so do steps that may overflow int64
or that are observed, and views that share their relations with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dbsp_wcoj.execution.bound_terms import BoundTerms
from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.kernel_loading import load_kernel
from dbsp_wcoj.kernels.join.single_step import ARENA_FULL, MAY_OVERFLOW, SETTLE, small_step
from dbsp_wcoj.kernels.storage.arena import MAX_SMALL_ROWS
from dbsp_wcoj.observer import OBSERVERS, current_observer
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["SmallSteps"]


@dataclass(frozen=True, slots=True, eq=False)
class _KernelArguments:
    """Cached kernel arguments of one relation, valid until its terms or arrangements change.

    Attributes:
        terms: The terms that a step of the relation runs.
        arena: The memory in which the kernel builds runs of the relation.
        buffers: The addresses of the join buffers.
        words: The array that the kernel reads; None if the steps take the general path.
        address: The address of ``words``.
    """

    terms: BoundTerms
    arena: Arena
    buffers: tuple[int, ...]
    words: Int64Array | None
    address: int


class SmallSteps:
    """The fast path for small steps of a delta query that shares its relations with no other."""

    __slots__ = ("_arguments", "_plan_cache", "_relations")

    def __init__(self, plan_cache: PlanCache, relations: Relations) -> None:
        """Run the terms of ``plan_cache`` on ``relations``."""
        self._plan_cache = plan_cache
        self._relations = relations
        self._arguments: dict[str, _KernelArguments] = {}

    def step(self, deltas: Mapping[str, ZSet]) -> tuple[int, int] | None:
        """Apply the deltas if they are a small step.

        Returns:
            The weight of the empty row and the number of joins; None if nothing was applied and the
            step must take the general path.
        """
        if OBSERVERS and current_observer() is not None:
            return None
        if not isinstance(deltas, Mapping) or len(deltas) != 1:
            return None
        ((name, delta),) = deltas.items()
        if not isinstance(delta, ZSet):
            return None
        rows = len(delta.weight_array)
        trace = self._relations.traces.get(name)
        if trace is None or not 0 < rows <= MAX_SMALL_ROWS or len(delta.row_array) != trace.arity:
            return None
        terms = self._plan_cache.bind_group((name,), rows)
        arena = trace.arena
        if terms is None or arena is None:
            return None
        arguments = self._arguments.get(name)
        if (
            arguments is None
            or arguments.terms is not terms
            or arguments.arena is not arena
            or arguments.buffers is not terms.arguments
        ):
            arguments = self._bind(name, terms, arena)
            if arguments.words is not None:
                # An interrupt while the kernel is compiled must not look like one of the step.
                load_kernel(small_step, arguments.address, delta.row_array, delta.weight_array)
            self._arguments[name] = arguments
        if arguments.words is None:
            return None
        address, relations = arguments.address, self._relations
        if relations.has_unfinished_commit:
            return None
        is_deleting = delta.weight_array.item(0) < 0
        if is_deleting is not arena.is_deleting:
            arena.change_sign(trace.version, is_deleting=is_deleting)
        # If an interrupt follows the kernel, it stays True: the result of the step is then lost.
        relations.has_unfinished_commit = True
        status, total, joins = small_step(address, delta.row_array, delta.weight_array)
        if status == ARENA_FULL:
            relations.has_unfinished_commit = False
            arena.start_buffer(rows)
            relations.has_unfinished_commit = True
            status, total, joins = small_step(address, delta.row_array, delta.weight_array)
            assert status != ARENA_FULL, "the new buffer has no room for the step"
        if status == MAY_OVERFLOW:
            relations.has_unfinished_commit = False
            return None
        trace.version += 1
        relations.version += 1
        self._plan_cache.record_rows(rows)
        if status == SETTLE:  # a spine has merge work to do, or a run needs bitmaps
            arena.settle()
            self._plan_cache.build_list_bitmaps()
        relations.has_unfinished_commit = False
        return total, joins

    def _bind(self, name: str, terms: BoundTerms, arena: Arena) -> _KernelArguments:
        """Build the kernel arguments of a relation."""
        slots = self._plan_cache.slots_of(name)
        buffers = terms.arguments
        if not terms.is_sum or not slots.keys() <= set(arena.orders):
            return _KernelArguments(terms, arena, buffers, None, 0)
        state, _, bitmap_buffer, memo = buffers
        deltas = address_of(self._plan_cache.deltas)
        slot_by_order = [slots.get(order, -1) for order in arena.orders]
        # The layout is that of the addresses in `dbsp_wcoj.kernels.join.single_step`.
        addresses = [arena.address, terms.address, deltas, state, bitmap_buffer, memo]
        words = np.array([*addresses, *slot_by_order], np.int64)
        return _KernelArguments(terms, arena, buffers, words, address_of(words))
