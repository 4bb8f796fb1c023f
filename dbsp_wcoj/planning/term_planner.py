"""Term planner: what the terms of one query hold, and their plans.

A factor of a term reads a relation or a partial delta ``D_i`` of a recursion, and `plan_term` plans
variables alone; this is what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbsp_wcoj.formulas import PARTIAL, Term, View
from dbsp_wcoj.planning.planner import Body, TermPlan, is_ring, plan_term
from dbsp_wcoj.planning.statistics import Statistics
from dbsp_wcoj.query import Comparison, Query
from dbsp_wcoj.storage.trace import ColumnOrder

__all__ = ["TermPlanner"]


class TermPlanner:
    """Plans the terms of a query.

    Attributes:
        ring: Whether the query is a ring (`dbsp_wcoj.planning.planner.is_ring`).
    """

    def __init__(self, query: Query, body: Body) -> None:
        """Take a query and its body."""
        self._query = query
        self._body = body
        self.ring = is_ring(body.columns, body.comparisons, query.head)

    def kept(self, target: int) -> tuple[str, ...]:
        """The variables of ``D_target``: those bound so far that the head, a later atom or a
        comparison with a later variable needs.
        """
        columns = self._body.columns
        bound = list(dict.fromkeys(v for names in columns[:target] for v in names))
        needed = set(self._query.head) | {v for names in columns[target:] for v in names}
        for comparison in self._body.comparisons:
            if not set(comparison.variables) <= set(bound):
                needed |= set(comparison.variables)
        return tuple(v for v in bound if v in needed)

    def factors(self, term: Term) -> tuple[list[str | int], list[tuple[str, ...]]]:
        """What a factor reads, a relation or the number of a partial delta, and its variables."""
        names: list[str | int] = []
        columns: list[tuple[str, ...]] = []
        for factor in term.factors:
            if factor == PARTIAL:
                names.append(term.target - 1)
                columns.append(self.kept(term.target - 1) or ("#partial",))
            else:
                names.append(self._query.body[factor.atom].relation)
                columns.append(self._body.columns[factor.atom])
        return names, columns

    def plan(
        self,
        term: Term,
        *,
        arranged: Callable[[str | int, ColumnOrder], bool],
        order: Sequence[str] | None,
        statistics: Statistics | None,
    ) -> TermPlan:
        """The plan of a term.

        Args:
            term: The term.
            arranged: Whether a relation or a partial delta is arranged in a column order already.
            order: The variable order, where it is decided elsewhere.
            statistics: What is known of the relations.
        """
        names, columns = self.factors(term)

        def distinct(factor: int, wanted: Sequence[int]) -> float | None:
            name = names[factor]
            if statistics is None or isinstance(name, int):
                return None
            return statistics.distinct(name, wanted)

        return plan_term(
            columns,
            self._comparisons(term, columns),
            self._query.head if term.target == len(self._query.body) else self.kept(term.target),
            first=[i for i, factor in enumerate(term.factors) if factor.view is View.delta],
            new=[i for i, f in enumerate(term.factors) if self.ring and f.view is View.new],
            arranged=lambda i, order: arranged(names[i], order),
            order=order,
            distinct=None if statistics is None else distinct,
        )

    def _comparisons(self, term: Term, columns: list[tuple[str, ...]]) -> list[Comparison]:
        """The comparisons of a term: between bound variables, and not yet made in its partial."""
        made: set[str] = set()
        if term.factors[0] == PARTIAL:
            made = {v for names in self._body.columns[: term.target - 1] for v in names}
        bound = {v for names in columns for v in names}
        return [
            comparison
            for comparison in self._body.comparisons
            if set(comparison.variables) <= bound and not set(comparison.variables) <= made
        ]
