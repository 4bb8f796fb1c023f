"""Small steps: a few rows of one relation, where all that is asked for is a weight.

What such a step costs is calls, so one call does all of it: the delta's runs, the terms, and the
way into the spines. Any other step is left to the general way, and so is one that may overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dbsp_wcoj.execution.bound_terms import BoundTerms
from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.execution.plan_cache import PlanCache
from dbsp_wcoj.kernels.join.single_step import BEYOND, NO_ROOM, SETTLE, small_step
from dbsp_wcoj.storage.arena import FEW, Arena
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.zset import Int64Array, ZSet

__all__ = ["SmallSteps"]


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """What the steps of a relation run with, as long as it is what it was.

    Attributes:
        batch: The terms.
        arena: Where the relation's runs lie.
        arguments: What the terms run with.
        words: What the kernel reads; None where the general way has to be gone.
        address: Of the words.
    """

    batch: BoundTerms
    arena: Arena
    arguments: tuple[int, ...]
    words: Int64Array | None
    address: int


class SmallSteps:
    """The small steps of a view that owns its relations."""

    __slots__ = ("_bound", "_plan_cache", "_relations")

    def __init__(self, plan_cache: PlanCache, relations: Relations) -> None:
        """Steps of the plan_cache's view."""
        self._plan_cache = plan_cache
        self._relations = relations
        self._bound: dict[str, _Bound] = {}

    def step(self, deltas: Mapping[str, ZSet]) -> tuple[int, int] | None:
        """Apply the deltas if it is such a step.

        Returns:
            The weight of the empty row and the number of joins; None if nothing has happened.
        """
        if not isinstance(deltas, Mapping) or len(deltas) != 1:
            return None
        ((name, delta),) = deltas.items()
        if not isinstance(delta, ZSet):
            return None
        rows = len(delta._weights)
        trace = self._relations.traces.get(name)
        if trace is None or not 0 < rows <= FEW or len(delta._rows) != trace.arity:
            return None
        batch = self._plan_cache.only(name, rows)
        arena = trace.arena
        if batch is None or arena is None:
            return None
        bound = self._bound.get(name)
        if (
            bound is None
            or bound.batch is not batch
            or bound.arena is not arena
            or bound.arguments is not batch.arguments
        ):
            bound = self._bound[name] = self._bind(name, batch, arena)
        if bound.words is None:
            return None
        status, total, joins = small_step(bound.address, delta._rows, delta._weights)
        if status == NO_ROOM:
            arena.renew(rows)
            status, total, joins = small_step(bound.address, delta._rows, delta._weights)
        if status == BEYOND:
            return None
        trace.version += 1
        self._relations.version += 1
        self._plan_cache.count(rows)
        if status == SETTLE:
            arena.settle()
        return total, joins

    def _bind(self, name: str, batch: BoundTerms, arena: Arena) -> _Bound:
        """Write down what the kernel has to know."""
        places = self._plan_cache.places_of(name)
        arguments = batch.arguments
        if not batch.is_sum or not places.keys() <= set(arena.orders):
            return _Bound(batch, arena, arguments, None, 0)
        state, _, marks, sums = arguments
        deltas = address_of(self._plan_cache.deltas)
        wanted = [places.get(order, -1) for order in arena.orders]
        addresses = [arena.address, batch.address, deltas, state, marks, sums]
        words = np.array([*addresses, *wanted], np.int64)
        return _Bound(batch, arena, arguments, words, address_of(words))
