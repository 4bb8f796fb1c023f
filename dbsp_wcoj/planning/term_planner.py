"""The term planner: plans the terms of one query.

A term names relations and partial deltas (``D3 += D2 O3``, see `dbsp_wcoj.formulas`);
`dbsp_wcoj.planning.planner.plan_term` plans a product of factors with variables. The term planner
translates the one into the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbsp_wcoj.formulas import PARTIAL, DeltaTerm, Version
from dbsp_wcoj.planning.planner import Body, TermPlan, is_ring, plan_term
from dbsp_wcoj.planning.statistics import Statistics
from dbsp_wcoj.query import Comparison, Query
from dbsp_wcoj.storage.trace import ColumnOrder

__all__ = ["RelationOrPartial", "TermPlanner"]

# The name of a relation, or the number of a partial delta.
RelationOrPartial = str | int


class TermPlanner:
    """Plans the terms of a query.

    Attributes:
        is_ring: True if the query is a ring (`dbsp_wcoj.planning.planner.is_ring`).
    """

    def __init__(self, query: Query, body: Body) -> None:
        """Create a planner for a query and its normalized body."""
        self._query = query
        self._body = body
        self.is_ring = is_ring(body.columns, body.comparisons, query.head)

    def partial_columns(self, target: int) -> tuple[str, ...]:
        """The variables of the partial delta ``D_target``: those that are still needed.

        A variable of the first ``target`` atoms is needed if it is in the head, in a later atom, or
        in a comparison with a variable of a later atom.
        """
        columns = self._body.columns
        bound = list(dict.fromkeys(name for names in columns[:target] for name in names))
        needed = set(self._query.head)
        for names in columns[target:]:
            needed |= set(names)
        for comparison in self._body.comparisons:
            if not set(comparison.variables) <= set(bound):
                needed |= set(comparison.variables)
        return tuple(name for name in bound if name in needed)

    def resolve_factors(
        self, term: DeltaTerm
    ) -> tuple[list[RelationOrPartial], list[tuple[str, ...]]]:
        """Return the source of each factor, a relation or a partial delta, and its variables."""
        sources: list[RelationOrPartial] = []
        columns: list[tuple[str, ...]] = []
        for factor in term.factors:
            if factor == PARTIAL:
                sources.append(term.target - 1)
                # Rows without columns are stored with one column, which the join does not read.
                columns.append(self.partial_columns(term.target - 1) or ("#partial",))
            else:
                sources.append(self._query.body[factor.atom].relation)
                columns.append(self._body.columns[factor.atom])
        return sources, columns

    def plan(
        self,
        term: DeltaTerm,
        *,
        is_arranged: Callable[[RelationOrPartial, ColumnOrder], bool],
        order: Sequence[str] | None,
        statistics: Statistics | None,
    ) -> TermPlan:
        """Plan a term.

        Args:
            term: The term.
            is_arranged: Returns True if a relation or partial delta is arranged in a column order.
            order: The variable order, if it is prescribed.
            statistics: Statistics of the relations, if known.
        """
        sources, columns = self.resolve_factors(term)

        def count_distinct(factor: int, of_columns: Sequence[int]) -> float | None:
            source = sources[factor]
            if statistics is None or isinstance(source, int):
                return None
            return statistics.count_distinct(source, of_columns)

        is_last = term.target == len(self._query.body)
        versions = [factor.version for factor in term.factors]
        delta_factors = [i for i, version in enumerate(versions) if version is Version.delta]
        new_factors = [i for i, version in enumerate(versions) if version is Version.new]
        return plan_term(
            columns,
            self._comparisons(term, columns),
            self._query.head if is_last else self.partial_columns(term.target),
            delta_factors=delta_factors,
            new_factors=new_factors if self.is_ring else (),
            is_arranged=lambda i, order: is_arranged(sources[i], order),
            order=order,
            count_distinct=None if statistics is None else count_distinct,
        )

    def _comparisons(self, term: DeltaTerm, columns: list[tuple[str, ...]]) -> list[Comparison]:
        """The comparisons that the term has to check.

        These are the comparisons between its variables, except those that its partial delta
        satisfies already.
        """
        variables = {name for names in columns for name in names}
        checked: set[str] = set()  # all comparisons between these variables are satisfied
        if term.factors[0] == PARTIAL:
            checked = {name for names in self._body.columns[: term.target - 1] for name in names}
        return [
            comparison
            for comparison in self._body.comparisons
            if set(comparison.variables) <= variables and not set(comparison.variables) <= checked
        ]
