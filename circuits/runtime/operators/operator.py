"""Operator: a non-incremental form Q, and the incremental form Q^Δ = D ∘ Q ∘ I.

``evaluate`` applies Q to whole Z-sets and has no state. ``prepare`` takes the deltas of one step.
It returns the delta of the output and, if the operator has state, the `Staged` change of the state.
The state changes only when this is committed, so a step is all or nothing. The test of every
operator checks the law between the two forms after every step::

    Σ prepare(deltas of step t).delta  =  evaluate(Σ deltas of step t)

By the chain rule (Q₁ ∘ Q₂)^Δ = Q₁^Δ ∘ Q₂^Δ a circuit of incremental operators is incremental.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dbsp_wcoj import RelationsStep, Trace, ZSet
from dbsp_wcoj.execution.chain_product import ChainProducts
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.storage.trace import Staged

__all__ = ["Closing", "Operator", "Result", "StepContext"]


#: The delta of the output, and the change of the state; None if the state does not change.
Result = tuple[ZSet, Staged | None]


class Closing(NamedTuple):
    """The rows of an input that are final after a step: those with ``column < limit``.

    Attributes:
        column: A column of the input.
        previous_limit: The limit after the previous step, as a code.
        limit: The limit after this step.
    """

    column: int
    previous_limit: int
    limit: int


@dataclass(frozen=True)
class StepContext:
    """The step that operators prepare.

    Attributes:
        first: True in the first step of the circuit.
        shared: The staged deltas of the relations that joins read.
        budget: The limits of the step.
        now: The time of the step, in microseconds since 1970 in UTC; None if no view reads it.
        previous_now: The time of the step before; None in the first step.
        closing: For a node that reads watermarks: which rows of its input are final. None for other
            nodes, and as long as there is no watermark.
        best_changes: In a nested circuit, by the trace of a recursive min or max: the changes of
            its final best values. The operators append to them.
        chain_products: In a nested circuit, computes the joins of large deltas.
    """

    first: bool
    shared: RelationsStep
    budget: Budget = field(default_factory=lambda: Budget(StepLimits.off()))
    now: int | None = None
    previous_now: int | None = None
    closing: Closing | None = None
    best_changes: dict[Trace, list[ZSet]] = field(default_factory=dict)
    chain_products: ChainProducts | None = None


class Operator(Protocol):
    """The execution of a plan node.

    An operator with state has an attribute ``traces``, its traces in a fixed order. If columns of
    these contain codes of a dictionary, it also has an attribute ``coded_columns``: for each trace,
    the codecs of these columns by their positions.

    A group is the rows that are equal in the columns of `PlanNode.partitioning`, such as the keys
    of an aggregate. The rows of old groups, which no later step changes, can be dropped from traces
    that begin with these columns (`circuits.runtime.state_bounds`). If all traces of an operator
    begin with them, its attribute ``traces_begin_with_partitioning`` is True.
    """

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Apply Q to whole Z-sets."""
        ...

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Compute the delta of the output from the deltas of the inputs; stage the new state."""
        ...
