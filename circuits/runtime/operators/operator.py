"""Operator: a non-incremental form Q, and the incremental form Q^Δ = D ∘ Q ∘ I.

``evaluate`` applies Q to whole Z-sets and has no state. ``prepare`` takes the deltas of one step.
It returns the delta of the output and, if the operator has state, a `Prepared` that commits the
change. Until then nothing has changed, so a step is all or nothing. The test of every operator
checks the law between the two after every step::

    Σ prepare(deltas of step t).delta  =  evaluate(Σ deltas of step t)

By the chain rule (Q₁ ∘ Q₂)^Δ = Q₁^Δ ∘ Q₂^Δ a circuit of incremental operators is incremental.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dbsp_wcoj import RelationsStep, ZSet
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.storage.trace import TraceStep

__all__ = ["Operator", "Prepared", "Result", "StepContext"]


class Prepared(Protocol):
    """What an operator hands back before its state changes: deltas of traces, and nothing else."""

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change, each once; what durable state writes."""

    def commit(self) -> None:
        """Make the step the state."""


Result = tuple[ZSet, Prepared | None]


@dataclass(frozen=True)
class StepContext:
    """The step that is prepared.

    Attributes:
        first: Whether it is the first.
        shared: The joined relations' deltas.
        budget: What the step may use.
    """

    first: bool
    shared: RelationsStep
    budget: Budget = field(default_factory=lambda: Budget(StepLimits.off()))


class Operator(Protocol):
    """A node of a circuit."""

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Apply Q to whole Z-sets."""
        ...

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """The output's delta for these deltas of the inputs, and what commits it."""
        ...
