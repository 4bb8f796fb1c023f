"""N-way join: a join of all its inputs at once, over traces that all joins of a circuit share.

::

    join(R₁, …, Rₙ)     = R₁ ⋈ … ⋈ Rₙ, projected to the head
    join^Δ(d₁, …, dₙ)   = Σ_i O₁ … O_{i-1} d_i N_{i+1} … N_n        (or another named formula)

O is an input before the step and N is the input after the step.

An example stream for ``n() :- e(a, b), e(b, c)``, the number of paths of two edges::

    delta of e    {12: +1}    {23: +1}    {23: +1}    {12: -1}
    delta of n    {}          {(): +1}    {(): +1}    {(): -2}

A `dbsp_wcoj.DeltaQuery` computes the delta. A join has no private state: the graph stores a trace
of each input, in the column orders that the terms of the formula need, and all joins that read the
input share this trace.

Cost: see `dbsp_wcoj.DeltaQuery.step`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from circuits.plan.columns import number_repeated
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.physical_nodes import Join
from circuits.runtime.operators.operator import Result, StepContext
from dbsp_wcoj import (
    CustomFormula,
    DeltaQuery,
    Formula,
    Query,
    Relations,
    Trace,
    ZSet,
    generic_join,
)
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.planning.formula_candidates import FormulaName
from dbsp_wcoj.query import Atom, Comparison, Variable
from dbsp_wcoj.row_parts import RowParts

__all__ = ["JoinOperator", "JoinOptions", "query_of"]


@dataclass(frozen=True)
class JoinOptions:
    """Options of the joins of a graph, and the limit of iterations of its recursions.

    Attributes:
        formula: The delta formula, or "auto". A custom formula applies to joins with its number of
            atoms; other joins run ``collapsed``.
        max_iterations: The maximal number of iterations of a recursion per step.
    """

    formula: FormulaName | str = Formula.collapsed
    max_iterations: int = MAX_ITERATIONS


class JoinOperator:
    """An N-way join.

    Args:
        plan: The join.
        names: The name of the trace of each input in ``relations``.
        relations: The traces that the circuit's joins share.
        options: The options of the join.
    """

    def __init__(
        self, plan: Join, names: Sequence[str], relations: Relations, options: JoinOptions
    ) -> None:
        self.query = query_of(plan, names)
        formula = options.formula
        if isinstance(formula, CustomFormula) and formula.atoms != len(self.query.body):
            formula = Formula.collapsed
        self.delta_query = DeltaQuery(self.query, formula=formula, relations=relations)

    def evaluate(self, inputs: Sequence[ZSet | Trace], budget: Budget | None = None) -> ZSet:
        """Join whole Z-sets or traces; a trace is read in its existing column orders only."""
        return generic_join(self.query, list(inputs), budget=budget)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the delta of the join; reads the deltas of the inputs in ``context.shared``."""
        if not any([len(delta.weight_array) for delta in deltas]):
            return ZSet.empty(len(self.query.head)), None
        delta = self.delta_query.evaluate(
            context.shared, context.budget, chain_products=context.chain_products
        )
        return delta, None

    def prepare_parts(self, context: StepContext) -> RowParts:
        """Compute the delta of the join, at least one input of which changes, in any order."""
        if context.chain_products is not None:
            rows = self.delta_query.evaluate_chain(
                context.shared, context.budget, context.chain_products
            )
            if rows is not None:
                return rows
        return RowParts.of(self.delta_query.evaluate(context.shared, context.budget))


def _identifier(name: str) -> str:
    """Return the name of a column as a name of a variable.

    >>> _identifier("sum(price * qty)")
    'sum_price_qty'
    """
    return re.sub(r"\W+", "_", name).strip("_") or "x"


def query_of(plan: Join, names: Sequence[str]) -> Query:
    """Return the join as a conjunctive query whose variables are named like the columns."""
    identifiers: dict[int, str] = {}
    for source, variables in zip(plan.inputs, plan.variables, strict=True):
        for field, variable in zip(source.fields, variables, strict=True):
            identifiers.setdefault(variable, _identifier(field.name))
    unique_names = number_repeated(identifiers.values())
    variable_names = dict(zip(identifiers, unique_names, strict=True))
    atoms = [
        Atom(name, tuple(Variable(variable_names[v]) for v in variables))
        for name, variables in zip(names, plan.variables, strict=True)
    ]
    comparisons = [
        Comparison(
            Variable(variable_names[c.left]), c.op, Variable(variable_names[c.right]), c.shift
        )
        for c in plan.comparisons
    ]
    head = tuple(variable_names[v] for v in plan.head)
    return Query("join", head, tuple(atoms), tuple(comparisons))
