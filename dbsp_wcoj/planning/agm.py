"""The AGM bound: how many rows a join can have, whatever the data.

Give each atom ``i`` a weight ``x_i >= 0`` such that the atoms of every variable weigh at least 1
together, a fractional edge cover. Then a join of relations of sizes ``N_i`` has at most
``Π N_i^x_i`` rows [1], and the best cover is a linear program::

    minimize    Σ_i  x_i log N_i
    subject to  Σ_{i: v in atom i}  x_i >= 1     for each variable v,   0 <= x_i <= 1

An upper limit of 1 loses nothing, since more than 1 covers no variable better. The bound is tight:
some relations of these sizes reach it up to a constant. A generic join does that much work at most.

References:
    [1] Atserias, Grohe, Marx. Size bounds and query plans for relational joins. SIAM Journal on
        Computing 42(4), 2013, section 3. doi:10.1137/110859440
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dbsp_wcoj.errors import ArityError
from dbsp_wcoj.query import Query

__all__ = ["AgmBound", "agm_bound"]


@dataclass(frozen=True, slots=True)
class AgmBound:
    """The bound, and the edge cover that proves it.

    Args:
        bound: Most rows that the query can have before projection; infinite beyond floats.
        cover: Weight of each atom, in body order.
    """

    bound: float
    cover: tuple[float, ...]


def agm_bound(query: Query, sizes: Sequence[int]) -> AgmBound:
    """The AGM bound of a query for relations of these sizes.

    Constants, repeated variables and comparisons are not counted in, so the bound holds with them
    but need not be tight; it is over all variables, so it holds for any head. Give the sizes after
    the constants have selected to have them counted.

    Args:
        query: The query.
        sizes: Distinct rows of each atom, in body order.

    Returns:
        The bound and its cover. An empty relation makes the bound 0. Atoms without variables weigh
        0; a query of such atoms only has bound 1, the empty row.

    Raises:
        ArityError: Not one size per atom.

    Complexity:
        One linear program of ``len(query.body)`` unknowns; milliseconds.

    References:
        Atserias, Grohe, Marx, section 3.

    >>> query = Query.parse("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")
    >>> agm_bound(query, [100, 100, 100])
    AgmBound(bound=1000.0, cover=(0.5, 0.5, 0.5))
    """
    if len(sizes) != len(query.body):
        raise ArityError(
            f"{len(sizes)} sizes for the {len(query.body)} atoms of '{query}'; give one per atom"
        )
    cover = _cheapest_cover(query, sizes)
    if min(sizes) <= 0:
        return AgmBound(0.0, cover)
    try:
        return AgmBound(math.prod(size**x for size, x in zip(sizes, cover, strict=True)), cover)
    except OverflowError:
        return AgmBound(math.inf, cover)


def _cheapest_cover(query: Query, sizes: Sequence[int]) -> tuple[float, ...]:
    if not query.variables:
        return (0.0,) * len(sizes)
    # scipy takes longer to import than everything else here together.
    from scipy.optimize import linprog

    covers = [[-float(v in atom.variables) for atom in query.body] for v in query.variables]
    solution = linprog(
        c=[math.log(max(size, 1)) for size in sizes],
        A_ub=covers,
        b_ub=[-1.0] * len(covers),
        bounds=(0.0, 1.0),
        method="highs",
    )
    assert solution.x is not None, "1 for every atom is always a cover"
    return tuple(
        max(0.0, float(x)) if atom.variables else 0.0
        for x, atom in zip(solution.x, query.body, strict=True)
    )
