"""The AGM bound: the maximum number of rows of a join, for given relation sizes.

Give each atom ``i`` a weight ``x_i >= 0`` such that for each variable the weights of its atoms sum
to at least 1: a fractional edge cover. Then a join of relations of sizes ``N_i`` has at most
``Π N_i^x_i`` rows [1]. A linear program finds the best cover::

    minimize    Σ_i  x_i log N_i
    subject to  Σ_{i: v in atom i}  x_i >= 1     for each variable v,   0 <= x_i <= 1

The upper limit of 1 excludes no best cover, because a weight of 1 already covers a variable. The
bound is tight: for these sizes there are relations whose join has that many rows, up to a constant
factor. It also bounds the work of a generic join.

References:
    [1] Atserias, Grohe, Marx. Size bounds and query plans for relational joins. SIAM Journal on
        Computing 42(4), 2013, section 3. doi:10.1137/110859440
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dbsp_wcoj.errors import ArityError
from dbsp_wcoj.query import Query

__all__ = ["AgmBound", "agm_bound"]

TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class AgmBound:
    """The bound, and the edge cover that proves it.

    Args:
        bound: The maximum number of rows before projection; infinite if too large for a float.
        cover: The weight of each atom, in body order.
    """

    bound: float
    cover: tuple[float, ...]


def agm_bound(query: Query, sizes: Sequence[int]) -> AgmBound:
    """The AGM bound of a query for relations of these sizes.

    The bound counts rows over all variables, so it holds for any head. Constants, repeated
    variables and comparisons are ignored: with them the bound holds, but may not be tight. To
    include the constants of an atom, pass the number of rows that match them.

    Args:
        query: The query.
        sizes: The number of distinct rows of each atom's relation, in body order.

    Returns:
        The bound and its cover. An empty relation makes the bound 0. Atoms without variables
        have weight 0; a query of only such atoms has the bound 1, for the empty row.

    Raises:
        ArityError: The number of sizes differs from the number of atoms.

    Complexity:
        One linear program, solved in its dual form, which has one constraint per atom; well below
        a millisecond.

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
    """Solve the dual program, a fractional vertex packing, by the simplex method.

    ::

        maximize    Σ_v  y_v
        subject to  Σ_{v in atom i}  y_v <= log N_i   for each atom i,   y >= 0

    ``y = 0`` is feasible, so the simplex method can start there. At the optimum the dual variables
    of the constraints (the last row of the tableau, in the columns of the slacks) are the cover
    ``x``. Bland's rule (take the first column and row that qualify) prevents endless loops.
    """
    variables, atoms = len(query.variables), len(sizes)
    # A row for each atom: its variables, its slack variable, and its bound log N_i. The last row is
    # the objective.
    tableau = np.zeros((atoms + 1, variables + atoms + 1))
    tableau[:atoms, :variables] = [[v in a.variables for v in query.variables] for a in query.body]
    tableau[:atoms, variables:-1] = np.eye(atoms)
    tableau[:atoms, -1] = [math.log(max(size, 1)) for size in sizes]
    tableau[-1, :variables] = -1.0
    basis = list(range(variables, variables + atoms))
    while (entering := np.flatnonzero(tableau[-1, :-1] < -TOLERANCE)).size:
        column = entering[0]
        rows = np.flatnonzero(tableau[:-1, column] > TOLERANCE)  # every variable is in some atom
        ratios = tableau[rows, -1] / tableau[rows, column]
        ties = rows[ratios <= ratios.min() + TOLERANCE]
        pivot = min(ties, key=lambda row: basis[row])
        tableau[pivot] /= tableau[pivot, column]
        others = np.arange(atoms + 1) != pivot
        tableau[others] -= np.outer(tableau[others, column], tableau[pivot])
        basis[pivot] = column
    return tuple(min(max(0.0, float(x)), 1.0) for x in tableau[-1, variables:-1])
