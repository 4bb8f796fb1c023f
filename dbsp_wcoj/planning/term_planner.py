"""The term planner: plans the terms of one query.

`dbsp_wcoj.planning.planner.plan_term` plans a product over variables. A term is a product over
relations and partial deltas of a recursion; the term planner translates between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbsp_wcoj.formulas import PARTIAL, DeltaTerm, Version
from dbsp_wcoj.planning.planner import Body, TermPlan, is_ring, plan_term
from dbsp_wcoj.planning.statistics import Statistics
from dbsp_wcoj.query import Comparison, Query
from dbsp_wcoj.storage.trace import ColumnOrder

__all__ = ["TermPlanner"]


class TermPlanner:
    """Plans the terms of a query.

    Attributes:
        is_ring: True if the query is a ring (`dbsp_wcoj.planning.planner.is_ring`).
    """

    def __init__(self, query: Query, body: Body) -> None:
        """Plan the terms of a query with this body."""
        self._query = query
        self._body = body
        self.is_ring = is_ring(body.columns, body.comparisons, query.head)

    def partial_columns(self, target: int) -> tuple[str, ...]:
        """The variables of ``D_target``: those of the first atoms that are needed later.

        The head, a later atom, or a comparison with a later variable needs them.
        """
        columns = self._body.columns
        bound = list(dict.fromkeys(v for names in columns[:target] for v in names))
        needed = set(self._query.head) | {v for names in columns[target:] for v in names}
        for comparison in self._body.comparisons:
            if not set(comparison.variables) <= set(bound):
                needed |= set(comparison.variables)
        return tuple(v for v in bound if v in needed)

    def resolve_factors(self, term: DeltaTerm) -> tuple[list[str | int], list[tuple[str, ...]]]:
        """The relation, or number of a partial delta, that each factor reads, and its variables."""
        names: list[str | int] = []
        columns: list[tuple[str, ...]] = []
        for factor in term.factors:
            if factor == PARTIAL:
                names.append(term.target - 1)
                columns.append(self.partial_columns(term.target - 1) or ("#partial",))
            else:
                names.append(self._query.body[factor.atom].relation)
                columns.append(self._body.columns[factor.atom])
        return names, columns

    def plan(
        self,
        term: DeltaTerm,
        *,
        arranged: Callable[[str | int, ColumnOrder], bool],
        order: Sequence[str] | None,
        statistics: Statistics | None,
    ) -> TermPlan:
        """Plan a term.

        Args:
            term: The term.
            arranged: True if a relation or a partial delta is arranged in a column order already.
            order: The variable order, if it is prescribed.
            statistics: Statistics of the relations, if known.
        """
        names, columns = self.resolve_factors(term)

        def distinct(factor: int, wanted: Sequence[int]) -> float | None:
            name = names[factor]
            if statistics is None or isinstance(name, int):
                return None
            return statistics.distinct(name, wanted)

        return plan_term(
            columns,
            self._comparisons(term, columns),
            self._query.head
            if term.target == len(self._query.body)
            else self.partial_columns(term.target),
            first=[i for i, factor in enumerate(term.factors) if factor.version is Version.delta],
            new=[
                i for i, f in enumerate(term.factors) if self.is_ring and f.version is Version.new
            ],
            arranged=lambda i, order: arranged(names[i], order),
            order=order,
            distinct=None if statistics is None else distinct,
        )

    def _comparisons(self, term: DeltaTerm, columns: list[tuple[str, ...]]) -> list[Comparison]:
        """The comparisons between bound variables that its partial delta has not made yet."""
        made: set[str] = set()
        if term.factors[0] == PARTIAL:
            made = {v for names in self._body.columns[: term.target - 1] for v in names}
        bound = {v for names in columns for v in names}
        return [
            comparison
            for comparison in self._body.comparisons
            if set(comparison.variables) <= bound and not set(comparison.variables) <= made
        ]
