"""The candidates of a term by level, beside the AGM bound of the variables bound so far.

A generic join that has bound ``v1 … vk`` has proposed at most as many candidates on level k as the
query of that prefix can have rows. The query of the prefix consists of the atoms that contain one
of these variables, projected on those of them,

::

    tri(a, b, c) :- d(a, b), e(b, c), e(a, c)     level b: d(a, b), e(b, _), e(a, _)
                                                  level c: d(a, b), e(b, c), e(a, c)

with one row for every prefix in the tries (the sum over several runs, so an upper bound).
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
    """One level of a term, per run of the term.

    Attributes:
        variable: The variable that the level binds.
        listed: True if its values are listed one by one; else they are summed.
        proposals: Values proposed, or passed to an innermost intersection.
        intersections: Look-ups of such a value in another atom.
        bound: The AGM bound of the candidates, at the largest sizes of the first runs.
        seconds: The time of the join at this level; None if it was not sampled.
    """

    variable: str
    listed: bool
    proposals: float
    intersections: float
    bound: float
    seconds: float | None


def level_profiles(profiler: Profiler, term: TermProfile) -> list[LevelProfile]:
    """The profiles of a term's levels: means over its runs.

    Complexity:
        One linear program for each level.
    """
    plan = term.physical.plan
    runs = max(term.calls, 1)
    seconds = profiler.seconds_by_level(term)
    return [
        LevelProfile(
            variable=name,
            listed=level < plan.emitted_levels,
            proposals=int(term.counters[level, 0]) / runs,
            intersections=int(term.counters[level, 1]) / runs,
            bound=_bound(plan, term.nodes, level),
            seconds=None if seconds is None else seconds[level] / runs,
        )
        for level, name in enumerate(plan.order)
    ]


def _bound(plan: TermPlan, nodes: list[list[int]], level: int) -> float:
    """The AGM bound of the query of the prefix that ends with a level."""
    bound = plan.order[: level + 1]
    atoms = []
    sizes = []
    for place, factor in enumerate(plan.factors):
        columns = [factor.variables[column] for column in factor.order[: factor.depth]]
        names = [name for name in columns if name in bound]
        if names:
            atoms.append(Atom(f"r{place}", tuple(map(Variable, names))))
            sizes.append(nodes[place][len(names) - 1])
    return agm_bound(Query("prefix", tuple(bound), tuple(atoms), ()), sizes).bound
