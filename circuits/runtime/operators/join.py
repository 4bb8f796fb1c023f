"""The N-way join: one `DeltaQuery` over the shared traces of its inputs.

::

    join(R₁, …, Rₙ)     = R₁ ⋈ … ⋈ Rₙ, projected to the head
    join^Δ(d₁, …, dₙ)   = Σ_i O₁ … O_{i-1} d_i N_{i+1} … N_n        (or another formula, by name)

An example stream for ``n() :- e(a, b), e(b, c)``, the number of paths of two edges:

    delta of e    {12: +1}    {23: +1}    {23: +1}    {12: -1}
    delta of n    {}          {(): +1}    {(): +1}    {(): -2}

State: none of its own. Inputs are relations, arranged as the terms need, shared by all joins of the
circuit; an input that two joins read is stored once. Cost: `dbsp_wcoj.DeltaQuery.step`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import Join
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

__all__ = ["JoinOperator", "JoinOptions", "query_of"]


@dataclass(frozen=True)
class JoinOptions:
    """How the joins of a graph are computed, and the limit of iterations of its recursions.

    Attributes:
        formula: The delta formula, or "auto". A formula of the user applies to joins of its number
            of atoms; other joins run ``collapsed``.
        executor: Threads for large steps; None for none.
        parts: The number of parts into which a large delta is split.
        max_iterations: The maximal number of iterations of a recursion per step.
    """

    formula: FormulaName | str = Formula.collapsed
    executor: Executor | None = None
    parts: int = 1
    max_iterations: int = MAX_ITERATIONS


class JoinOperator:
    """An N-way join.

    Args:
        plan: The join.
        names: The relation of each input.
        relations: The traces that the circuit's joins share.
        options: How the join is computed.
    """

    def __init__(
        self, plan: Join, names: Sequence[str], relations: Relations, options: JoinOptions
    ) -> None:
        self.query = query_of(plan, names)
        formula = options.formula
        if isinstance(formula, CustomFormula) and formula.atoms != len(self.query.body):
            formula = Formula.collapsed
        self.delta_query = DeltaQuery(
            self.query,
            formula=formula,
            executor=options.executor,
            parts=options.parts,
            relations=relations,
        )

    def evaluate(self, inputs: Sequence[ZSet | Trace], budget: Budget | None = None) -> ZSet:
        """Join whole Z-sets, or traces in the arrangements that exist."""
        return generic_join(self.query, list(inputs), budget=budget)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Join what has changed with the rest; the inputs' deltas are in ``context.shared``."""
        if not any(len(delta) for delta in deltas):
            return ZSet.empty(len(self.query.head)), None
        return self.delta_query.evaluate(context.shared, context.budget), None


def query_of(plan: Join, names: Sequence[str]) -> Query:
    """The join as a conjunctive query, its variables named after the columns."""
    found: dict[int, str] = {}
    used: set[str] = set()
    for source, variables in zip(plan.inputs, plan.variables, strict=True):
        for field, variable in zip(source.fields, variables, strict=True):
            if variable not in found:
                word = re.sub(r"\W", "_", field.name) or "x"
                name, number = word, 2
                while name in used:
                    name, number = f"{word}_{number}", number + 1
                used.add(name)
                found[variable] = name
    atoms = [
        Atom(name, tuple(Variable(found[v]) for v in variables))
        for name, variables in zip(names, plan.variables, strict=True)
    ]
    comparisons = [
        Comparison(Variable(found[c.left]), c.op, Variable(found[c.right]))
        for c in plan.comparisons
    ]
    head = tuple(found[v] for v in plan.head)
    return Query("join", head, tuple(atoms), tuple(comparisons))
