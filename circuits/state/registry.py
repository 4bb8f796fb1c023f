"""State registry: the names of all state of a graph.

::

    relation e               the trace of the rows of input e that joins read
    relation #3f0c2a7d9b1e   the trace of the rows that joins read from the operator with this hash
    operator #3f0c2a7d9b1e 0 the first trace that this operator itself keeps
    row ids #3f0c2a7d9b1e    the dictionary of this operator's row ids
    text                     a dictionary of values (`circuits.types.codecs.dictionaries`)

The name of an operator's state is the structural hash of its plan
(`circuits.plan.structural_hash`), not its position. So it stays the same when other views are
added, dropped or reordered, and in every process. The plans of joins are state as well: they
decide which arrangements a relation has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from circuits.errors import SnapshotError
from circuits.runtime.operators.join import JoinOperator
from circuits.runtime.operators.late_materialization import RowIdEncodeOperator
from circuits.runtime.operators.operator import Operator
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations
from dbsp_wcoj.planning.formula_candidates import FormulaName
from dbsp_wcoj.values.interner import Interner

__all__ = ["StateRegistry", "is_row_ids", "operator_trace", "relation_trace", "row_ids_dictionary"]

_ROW_IDS: Final = "row ids "


class StatefulNode(Protocol):
    """The attributes of `circuits.runtime.graph_node.Node` that this module reads."""

    name: str
    state_name: str
    operator: Operator | None


class StateRegistry:
    """The state of a graph: of its operators, of the relations that joins read, and of the codes.

    Args:
        nodes: The nodes of the graph.
        relations: The joined relations, by the names of the nodes.
        codecs: The codes of values.
        formula: The formula of all joins.

    Attributes:
        traces: All traces, by the name of the state.
        relations: The name of the state of each joined relation, by the name of its node.
        names: The name of the state of each trace, by the ``id`` of the trace.
    """

    def __init__(
        self,
        nodes: Sequence[StatefulNode],
        relations: Relations,
        codecs: Codecs,
        formula: FormulaName,
    ) -> None:
        self.relations = {
            node.name: relation_trace(node.state_name)
            for node in nodes
            if node.name in relations.traces
        }
        self.traces = {self.relations[name]: trace for name, trace in relations.traces.items()}
        self._row_ids: dict[str, Interner] = {}
        # The delta query of each join, by the name of the state of its node.
        self._queries = {}
        for node in nodes:
            operator, name = node.operator, node.state_name
            for index, trace in enumerate(getattr(operator, "traces", ())):
                self.traces[operator_trace(name, index)] = trace
            if isinstance(operator, RowIdEncodeOperator):
                self._row_ids[row_ids_dictionary(name)] = operator.dictionary
            if isinstance(operator, JoinOperator):
                self._queries[name] = operator.delta_query
        self.names: Mapping[int, str] = {id(trace): name for name, trace in self.traces.items()}
        self._relations = relations
        self._codecs = codecs
        self._formula = formula
        # The plan of each query when `plans` was last read, and the value that it returned.
        self._plans_at_last_read: Sequence[object] = [None] * len(self._queries)
        self._plans: dict[str, Any] = {"formula": str(formula), "joins": {}}

    @property
    def joins(self) -> Collection[str]:
        """The names of the joins, by which `plans` contains their plans."""
        return self._queries.keys()

    @property
    def dictionaries(self) -> dict[str, Interner]:
        """The dictionaries of values and of row ids."""
        return {**self._codecs.interners, **self._row_ids}

    def lengths(self) -> dict[str, int]:
        """The number of codes of each dictionary."""
        return {name: len(dictionary) for name, dictionary in self.dictionaries.items()}

    def truncate(self, lengths: Mapping[str, int]) -> None:
        """Remove the codes beyond these lengths; no reader may use them any more."""
        for name, dictionary in self.dictionaries.items():
            dictionary.truncate(lengths.get(name, 0))

    @property
    def plans(self) -> dict[str, Any]:
        """The plans of the joins, for `resume`; the same object until a join is planned again."""
        planned = [query.plans for query in self._queries.values()]
        if any(
            now is not before for now, before in zip(planned, self._plans_at_last_read, strict=True)
        ):
            self._plans_at_last_read = planned
            plans_by_join = zip(self._queries, planned, strict=True)
            joins = {name: plans for name, plans in plans_by_join if plans is not None}
            self._plans = {"formula": str(self._formula), "joins": joins}
        return self._plans

    def has_orders_of(self, plans: Any) -> bool:
        """Return whether `resume` accepts these plans and keeps the compiled terms of all joins.

        If so, `resume` fails only without memory or by an interrupt. With None, no join has been
        planned again yet; `resume` may then plan large joins by statistics.

        Args:
            plans: A value of `plans`, which may be invalid.
        """
        joins: Any = {}
        if plans is not None:
            if not isinstance(plans, dict) or not isinstance(plans.get("formula"), str):
                return False
            if plans["formula"] == str(self._formula):
                joins = plans.get("joins")
        return isinstance(joins, dict) and all(
            query.has_orders_of(joins.get(name)) for name, query in self._queries.items()
        )

    def resume(self, plans: Any) -> None:
        """Plan the joins after the traces have been loaded; build missing arrangements.

        Args:
            plans: A value of `plans`, of any formula; None to plan by statistics.

        Raises:
            SnapshotError: The value is not one of `plans`.
        """
        try:
            is_same_formula = plans is not None and plans["formula"] == str(self._formula)
            joins = plans["joins"] if is_same_formula else {}
            for name, query in self._queries.items():
                query.resume(joins.get(name))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the plans of the joins cannot be read ({error!r}): give the plans that were "
                "stored with the state, or None"
            ) from error
        self._relations.drop_unread()


def relation_trace(state_name: str) -> str:
    """Return the name of the trace of the rows that joins read from a node."""
    return f"relation {state_name}"


def operator_trace(state_name: str, index: int) -> str:
    """Return the name of a trace that the operator of a node keeps."""
    return f"operator {state_name} {index}"


def row_ids_dictionary(state_name: str) -> str:
    """Return the name of the dictionary of a node's row ids."""
    return f"{_ROW_IDS}{state_name}"


def is_row_ids(name: str) -> bool:
    """Return True for the name of a dictionary of row ids."""
    return name.startswith(_ROW_IDS)
