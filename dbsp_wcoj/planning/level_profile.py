"""Level profiles: how much a join worked on each variable, compared with the AGM bound.

Level k of a generic join binds the k-th variable of its variable order ``v1, v2, …``. On that level
the join proposes at most as many values as the *prefix query* can have rows. The prefix query
consists of the atoms that contain at least one of ``v1 … vk``, projected on these variables::

    tri(a, b, c) :- d(a, b), e(b, c), e(a, c)     level of b: d(a, b), e(b), e(a)
                                                  level of c: d(a, b), e(b, c), e(a, c)

The size of such a projection is the number of distinct prefixes of the relation's tries. A relation
of several runs has several tries, whose numbers are added, so the size is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbsp_wcoj.execution.profiler import Profiler, TermProfile
from dbsp_wcoj.planning.agm import agm_bound
from dbsp_wcoj.planning.planner import TermPlan
from dbsp_wcoj.query import Atom, Query, Variable

__all__ = ["LevelProfile", "level_profiles"]


@dataclass(frozen=True, slots=True)
class LevelProfile:
    """One level of a term; all numbers are means over the executions of the term.

    Attributes:
        variable: The variable that the level binds.
        is_listed: True if the join lists its values one by one; False if it sums over them.
        proposals: The number of values that the join proposed. At the innermost level, where lists
            are intersected without a proposal, the values of the shortest list count.
        intersections: Look-ups of such a value in another atom.
        bound: The AGM bound of the prefix query, for the largest size that each atom had in the
            first executions. Later sizes are not recorded.
        seconds: The time of the join at this level; None if it was not sampled.
    """

    variable: str
    is_listed: bool
    proposals: float
    intersections: float
    bound: float
    seconds: float | None


def level_profiles(profiler: Profiler, term: TermProfile) -> list[LevelProfile]:
    """The profile of each level of a term, in the variable order.

    Complexity:
        One linear program for each level.
    """
    plan = term.physical.plan
    calls = max(term.calls, 1)
    seconds = profiler.seconds_by_level(term)
    return [
        LevelProfile(
            variable=name,
            is_listed=level < plan.emitted_levels,
            proposals=int(term.counters[level, 0]) / calls,
            intersections=int(term.counters[level, 1]) / calls,
            bound=_bound(plan, term.prefix_counts, level),
            seconds=None if seconds is None else seconds[level] / calls,
        )
        for level, name in enumerate(plan.order)
    ]


def _bound(plan: TermPlan, prefix_counts: list[list[int]], level: int) -> float:
    """The AGM bound of the prefix query of a level.

    Args:
        plan: The plan of the term.
        prefix_counts: For each factor the number of its distinct prefixes, by their length from 1.
        level: The level.
    """
    prefix = plan.order[: level + 1]
    atoms = []
    sizes = []
    for index, factor in enumerate(plan.factors):
        columns = [factor.variables[column] for column in factor.order[: factor.depth]]
        names = [name for name in columns if name in prefix]
        if names:
            atoms.append(Atom(f"r{index}", tuple(map(Variable, names))))
            sizes.append(prefix_counts[index][len(names) - 1])
    return agm_bound(Query("prefix", tuple(prefix), tuple(atoms), ()), sizes).bound
