"""Holdings: what holds the state of a graph, by name, and all of it out and in.

::

    relation e       the trace of what joins read of the input or operator e
    operator #7 0    the first trace of the operator #7
    text             a table of codes (`circuits.types.codecs.dictionaries`)
    payload #5       the table of what the operator #5 packs

Names follow from the views' plans, so that two graphs of the same plans have the same ones. How
joins are planned is state as well: it says which arrangements of a relation there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from circuits.errors import SnapshotError
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.runtime.operators.operator import Operator
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations
from dbsp_wcoj.planning.formula_candidates import FormulaName
from dbsp_wcoj.values.interner import Interner

__all__ = ["StateRegistry", "is_payload"]

_PAYLOAD: Final = "payload "


class StateRegistry:
    """The state of operators and of the relations and codes that they share.

    Args:
        operators: By name, None for inputs.
        relations: The joined relations.
        codecs: The codes of values.
        formula: That of all joins.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator | None],
        relations: Relations,
        codecs: Codecs,
        formula: FormulaName,
    ) -> None:
        self.traces = {f"relation {name}": trace for name, trace in relations.traces.items()}
        self._payloads: dict[str, Interner] = {}
        self._queries = {}
        for name, operator in operators.items():
            for index, trace in enumerate(getattr(operator, "traces", ())):
                self.traces[f"operator {name} {index}"] = trace
            if isinstance(operator, RowIdEncodeOperator):
                self._payloads[f"{_PAYLOAD}{name}"] = operator.table
            if isinstance(operator, JoinOperator):
                self._queries[name] = operator.delta_query
        self.names: Mapping[int, str] = {id(trace): name for name, trace in self.traces.items()}
        self._relations = relations
        self._codecs = codecs
        self._formula = formula
        # How the joins were planned when `plans` was last asked, and what it gave.
        self._planned: Sequence[object] = [None] * len(self._queries)
        self._plans: dict[str, Any] = {"formula": str(formula), "joins": {}}

    @property
    def tables(self) -> dict[str, Interner]:
        """The tables of codes: those of the codecs, and those of packed columns."""
        return {**self._codecs.interners, **self._payloads}

    def lengths(self) -> dict[str, int]:
        """The number of values of each table."""
        return {name: len(table) for name, table in self.tables.items()}

    def truncate(self, lengths: Mapping[str, int]) -> None:
        """Take back the codes given since `lengths` gave these, which nobody may use any more."""
        for name, table in self.tables.items():
            table.truncate(lengths.get(name, 0))

    @property
    def plans(self) -> dict[str, Any]:
        """How the joins are planned; the same object until one is planned anew. For `resume`."""
        planned = [query.plans for query in self._queries.values()]
        if any(now is not before for now, before in zip(planned, self._planned, strict=True)):
            self._planned = planned
            found = zip(self._queries, planned, strict=True)
            joins = {name: plans for name, plans in found if plans is not None}
            self._plans = {"formula": str(self._formula), "joins": joins}
        return self._plans

    def resume(self, plans: Any) -> None:
        """Plan the joins after the traces have been loaded, and build what these lack.

        Args:
            plans: As `plans` was, of any formula; None to plan by what the relations are like.

        Raises:
            SnapshotError: It is nothing that `plans` gives.
        """
        try:
            same = plans is not None and plans["formula"] == str(self._formula)
            joins = plans["joins"] if same else {}
            for name, query in self._queries.items():
                query.resume(joins.get(name))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the plans of the joins cannot be read ({error!r}): give the plans of the step "
                "that the state is of, or None"
            ) from error
        self._relations.drop_unread()


def is_payload(table: str) -> bool:
    """Whether a table of this name is one of packed columns."""
    return table.startswith(_PAYLOAD)
